"""Checkpoint state of a binary SVM solver between two steps; resuming from it is bit-identical.

A state is a dictionary of arrays, numbers, words and None. Its arrays may be stored as float64, which holds
row numbers too. A solver that works by another one has that one's state within its own: "inner.alpha".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

State = dict[str, Any]
Kept = Callable[[State], Any]
"""Callback with the solver's state at each check, before its row is recorded; resuming starts there.
The state's arrays are not written to later."""


def within(name: str, state: State) -> State:
    """Return the state of `name` as a part of another one.

    >>> within("inner", {"tol": 0.1})
    {'inner.tol': 0.1}
    """
    return {f"{name}.{key}": value for key, value in state.items()}


def part_of(state: State, name: str) -> State | None:
    """Return the state that `within` made the part `name` of `state`; None if there is no such part."""
    found = {key[len(name) + 1 :]: value for key, value in state.items() if key.startswith(f"{name}.")}
    return found or None


def point_state(name: str, point: Any) -> State:
    """Return a point, or None, as a part of a state; all of it, as its gap may be of another product."""
    if point is None:
        return {}
    told = ("alpha", "product", "gradient", "objective", "gap", "intercept")
    return within(name, {key: getattr(point, key) for key in told})


def point_of(state: State, name: str, problem: Any) -> Any:
    """Return the point that `point_state` was given, of that problem; no product."""
    found = part_of(state, name)
    return None if found is None else replace(problem.at(found["alpha"], found["product"]), **found)
