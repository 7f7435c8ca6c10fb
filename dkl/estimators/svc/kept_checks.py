"""Checks of a machine's record before resuming: the kind of every number, word and length in it.

A checksum says that notes were sealed, not that a solver wrote them. An invalid record counts as missing: its
machine starts from scratch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dkl.estimators.svc.kept import Ended, KeptMachine
from dkl.solvers.result import Outcome
from dkl.solvers.svm_state import State, part_of
from dkl.solvers.watch import Row

Kind = Callable[[Any, int], bool]
"""Check of a value in a state of a machine; the integer is its number of rows."""


def is_count(value: Any, n: int = 0) -> bool:
    """Return whether the value is a whole number, 0 or more, that fits in 64 bits."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any, n: int = 0) -> bool:
    """Return whether the value is a real number, or infinity."""
    return type(value) is float and not math.isnan(value)


def is_flag(value: Any, n: int = 0) -> bool:
    """Return whether the value is True or False."""
    return type(value) is bool


def is_outcome(value: Any, n: int = 0) -> bool:
    """Return whether the value is an outcome, why a solver ended."""
    return isinstance(value, str) and value in {outcome.value for outcome in Outcome}


def is_vector(value: Any, n: int = 0) -> bool:
    """Return whether the value is an array of one number a row."""
    return isinstance(value, np.ndarray) and value.shape == (n,)


def is_some(value: Any, n: int = 0) -> bool:
    """Return whether the value is a vector of any length."""
    return isinstance(value, np.ndarray) and value.ndim == 1


def is_rows(value: Any, n: int = 0) -> bool:
    """Return whether the value is a vector of as many numbers for each row."""
    return is_some(value) and value.size % n == 0


def _of(kind: Kind, *names: str) -> dict[str, Kind]:
    return dict.fromkeys(names, kind)


STATES: dict[str, dict[str, Kind]] = {
    "point": {**_of(is_vector, "alpha", "product", "gradient"), **_of(is_number, "objective", "gap", "intercept")},
    "gradient": {
        **_of(is_vector, "alpha", "product", "ahead", "ahead_product", "face"),
        **_of(is_number, "theta", "lipschitz", "shift"),
        **_of(is_count, "products", "iteration", "idle", "newton_products"),
    },
    "level": {
        **_of(is_rows, "gradients"),
        **_of(is_some, "offsets", "multipliers"),
        **_of(is_number, "lower", "b"),
        **_of(is_count, "products", "iteration", "idle"),
    },
    "accelerated": {
        **_of(is_some, "rows"),
        **_of(is_number, "tol", "before", "intercept"),
        **_of(is_flag, "is_rough", "best_is_rough", "grown"),
        **_of(is_count, "n_iter", "products", "idle"),
        **_of(is_outcome, "ended"),
    },
    "refined": _of(is_count, "round", "n_iter", "products"),
}
"""Checks of each solver's state by name, without its parts."""
PARTS: dict[str, dict[str, str]] = {
    "gradient": {"best": "point"},
    "level": {"best": "point", "point": "point"},
    "accelerated": {"best": "point", "point": "point", "inner": "gradient"},
    "refined": {"best": "point", "inner": ""},
}
"""States within each state; "" is that of the solver that the settings name."""
NEEDED = {("gradient", "best"), ("level", "best"), ("level", "point")}
"""Parts that are required."""
HELD = "held"
ROW: dict[str, Kind] = {
    **_of(is_count, "iteration", "products", "rows"),
    **_of(is_number, "objective", "gap", "relative_gap"),
    "seconds": lambda value, n: is_number(value) and 0 <= value < math.inf,
}


def is_sound(kept: KeptMachine, n: int, solver: str) -> bool:
    """Return whether a machine of `n` rows can resume from the record by `solver` (a settings' name)."""
    if kept.ended is not None and not _is_ended(kept.ended, n):
        return False
    if kept.state is not None:
        kind = "refined" if "round" in kept.state else solver
        return _is_state(kept.state, kind, n, solver) and all(map(_is_row, kept.rows))
    return kept.ended is not None or kept.alpha is None or kept.alpha.shape == (n,)


def _is_state(state: State, kind: str, n: int, solver: str) -> bool:
    parts = PARTS.get(kind, {})
    own = {name: value for name, value in state.items() if name.partition(".")[0] not in {*parts, HELD}}
    if not _is_like(own, STATES[kind], n) or not _is_held(part_of(state, HELD) or {}):
        return False
    if kind == "level" and not own["gradients"].size // n == len(own["offsets"]) == len(own["multipliers"]):
        return False
    for name, of in parts.items():
        part = part_of(state, name)
        if part is None and (kind, name) in NEEDED:
            return False
        if part is not None and not _is_state(part, of or solver, n, solver):
            return False
    return True


def _is_like(found: Mapping[str, Any], wanted: Mapping[str, Kind], n: int) -> bool:
    return found.keys() == wanted.keys() and all(is_kind(found[name], n) for name, is_kind in wanted.items())


def _is_held(held: State) -> bool:
    """Return whether cached columns are valid: rows and dtype of each kernel."""
    kinds = {"rows": is_some, "dtype": lambda value, n: value in ("float64", "float32")}
    return all(kinds.get(name.rpartition(".")[2], is_flag)(value, 0) for name, value in held.items())


def _is_ended(ended: Ended, n: int) -> bool:
    point = ended.point
    numbers = all(map(is_number, (point.objective, point.gap, point.intercept)))
    counts = all(map(is_count, (ended.n_iter, ended.products, ended.max_iter)))
    return (
        numbers and counts and is_vector(point.alpha, n) and _is_held(ended.held) and all(map(_is_row, ended.history))
    )


def _is_row(row: Row) -> bool:
    """Return whether a row of a history is valid: its known names have values of their kinds."""
    is_known = isinstance(row, dict) and {"iteration", "seconds", "objective"} <= row.keys()
    return is_known and all(ROW[name](value, 0) for name, value in row.items() if name in ROW)
