"""Cases beyond those that each property is tested by already: left out of plain `pytest`, run by `pytest -m exhaustive`."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

import pytest


def but_for(further: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """All cases, those in `further` marked as exhaustive; a tuple is of several arguments."""

    def marked(case: Any) -> Any:
        values = case if isinstance(case, tuple) else (case,)
        return pytest.param(*values, marks=pytest.mark.exhaustive)

    return [marked(case) if case in further else case for case in cases]


def crossed(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """All pairs of one of each; marked as exhaustive but for a diagonal, in which each value of either occurs."""
    least = min(len(first), len(second))
    return [
        pytest.param(one, other, marks=() if i % least == j % least else pytest.mark.exhaustive)
        for i, one in enumerate(first)
        for j, other in enumerate(second)
    ]
