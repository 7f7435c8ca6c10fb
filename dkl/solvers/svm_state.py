"""The whole state of a machine's solver between two steps: what goes on from it has the bits of what was never ended.

A state is a dictionary of arrays, numbers, words and None. Whoever keeps one may keep its arrays as float64, which holds
row numbers too. A solver that works by another one has that one's state within its own: "inner.alpha".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

State = dict[str, Any]
Kept = Callable[[State], Any]
"""Is given the solver's state at each check, before the check's row is recorded: from there on it may be resumed. Its arrays
are not written to later, by nobody."""


def within(name: str, state: State) -> State:
    """The state of `name` as a part of another one.

    >>> within("inner", {"tol": 0.1})
    {'inner.tol': 0.1}
    """
    return {f"{name}.{key}": value for key, value in state.items()}


def part_of(state: State, name: str) -> State | None:
    """What `within` was given; None where the state has no such part."""
    found = {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}.")}
    return found or None


def point_state(name: str, point: Any) -> State:
    """A point, or None, as a part of a state. All of it: a gap may be told by another product than the point's own."""
    if point is None:
        return {}
    told = ("alpha", "product", "gradient", "objective", "gap", "intercept")
    return within(name, {key: getattr(point, key) for key in told})


def point_of(state: State, name: str, problem: Any) -> Any:
    """The point that `point_state` was given, of that problem; no product."""
    found = part_of(state, name)
    return None if found is None else replace(problem.at(found["alpha"], found["product"]), **found)
