"""Remedies for a plan that does not fit: each is tried on the plan, and only those that help named."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dkl.errors import MemoryBudgetError

RAISE_LIMIT = "raise memory_limit"
"""Remedy that always helps; it has other words where the limit is a share of a worker's."""
Way = tuple[str, Callable[[], bool]]
"""Remedy: words for a change, and a function that says whether the plan fits with it."""


def what_helps(ways: Iterable[Way]) -> str:
    """Return a sentence of the ways that make the plan fit; more memory is always one of them.

    >>> what_helps([("lower n_columns", lambda: False), ("use 1 thread", lambda: True)])
    'raise memory_limit, or use 1 thread'
    """
    found = [RAISE_LIMIT, *(words for words, fits in ways if fits())]
    return found[0] if len(found) == 1 else ", or ".join([", ".join(found[:-1]), found[-1]])


def fewer(words: str, fits: Callable[[int], bool], count: int, least: int = 1) -> list[Way]:
    """Return the way of taking fewer than `count`: `words` with the most of its halves that fits.

    >>> what_helps(fewer("lower rank to {}", lambda rank: rank < 5, 16))
    'raise memory_limit, or lower rank to 4'
    """
    while (count := count // 2) >= least:
        if fits(count):
            return [(words.format(count), lambda: True)]
    return []


def fits_in(attempt: Callable[[], object]) -> bool:
    """Return whether `attempt`, which makes a plan, succeeds without MemoryBudgetError."""
    try:
        attempt()
    except MemoryBudgetError:
        return False
    return True
