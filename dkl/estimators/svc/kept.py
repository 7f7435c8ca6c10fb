"""Records of a classifier's machines while they are solved, in memory and as arrays with notes.

A machine that has ended is stored as its result. One that is under way is stored as its solver's whole state at a
check, with the rows of the history before it: both lead to the bytes of a fit that nothing disturbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernel_operator import RecomputedKernel
from dkl.solvers.result import Outcome
from dkl.solvers.svm_problem import SVMSolution, Vector
from dkl.solvers.svm_state import State, part_of, within
from dkl.solvers.watch import Row

OF_STAGE = ("stage", "machine", "max_iter", "share")
"""Fields of a machine's rows that the stage adds in which they are resumed."""
VERSION = 1
"""Version of solvers' states: a state of another version is not resumed, its machine restarts."""


@dataclass(frozen=True)
class EndedPoint:
    """Reported part of a machine's solution: as `Point`, without what a solver continues from."""

    alpha: Vector
    objective: float
    gap: float
    intercept: float

    @property
    def relative_gap(self) -> float:
        """Return gap / |f|; infinity where f >= 0."""
        return self.gap / -self.objective if self.objective < 0 else float("inf")


@dataclass(frozen=True)
class Ended:
    """Result of one machine. max_iter: its limit; held: cached columns of kernels, for the next machine."""

    point: EndedPoint
    shares: Vector
    n_iter: int
    products: int
    outcome: Outcome
    max_iter: int
    held: State
    history: list[Row]

    @classmethod
    def of(cls, found: SVMSolution, shares: Vector, max_iter: int, held: State) -> Ended:
        """Build from a solver's solution."""
        point = found.point
        told = EndedPoint(np.array(point.alpha), float(point.objective), float(point.gap), float(point.intercept))
        return cls(told, shares, found.n_iter, found.products, found.outcome, max_iter, held, found.history)

    def stands(self, max_iter: int) -> bool:
        """Return whether it would end the same with this limit: one that had fewer steps continues."""
        return self.outcome is not Outcome.ITERATION_LIMIT or self.max_iter >= max_iter

    def solution(self, history: list[Row]) -> SVMSolution:
        """Return the solution as the solver returned it."""
        return SVMSolution(self.point, self.n_iter, self.products, self.outcome, history)


@dataclass(frozen=True)
class KeptMachine:
    """Record of a machine.

    ended: its result; state and history: for resuming its solver; alpha: a start, of an earlier version.
    """

    ended: Ended | None = None
    state: State | None = None
    history: tuple[list[Row], int] = ([], 0)
    """Rows of the history, and how many of them came before the state."""
    alpha: Vector | None = None

    @property
    def start(self) -> Vector | None:
        """Return the known alpha to start at where there is no state; None if unknown."""
        return self.alpha if self.ended is None else self.ended.point.alpha

    @property
    def rows(self) -> list[Row]:
        """Return the rows of the history before the state."""
        rows, count = self.history
        return rows[:count]


def held_by(kernels: list[Any]) -> State:
    """Return the cached columns of recomputed kernels: products have other bits without them."""
    found: State = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, RecomputedKernel):
            rows, dtype = kernel.held
            found |= {f"{number}.rows": rows, f"{number}.dtype": dtype}
    return found


def hold(kernels: list[Any], held: State) -> None:
    """Have kernels hold what `held_by` said of them."""
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, RecomputedKernel) and f"{number}.dtype" in held:
            kernel.hold(held[f"{number}.rows"].astype(np.intp), held[f"{number}.dtype"])


# -- on disk ------------------------------------------------------------------------------------------------------------


def as_arrays(machines: dict[int, KeptMachine]) -> tuple[dict[str, NDArray], dict[str, Any]]:
    """Return (arrays, notes) of all machines: `alphas` and `machines` of known alphas, `vectors` else.

    notes: `version`, and of each machine its parts: numbers, names and lengths of its vectors, rows of the history.
    """
    table, alphas, notes = [], [], {}
    vectors: list[NDArray] = []
    for number in sorted(machines):
        kept = machines[number]
        alpha = np.empty(0) if kept.start is None else kept.start
        table.append((number, len(alpha), kept.ended is not None))
        alphas.append(alpha)
        parts = {}
        if kept.ended is not None:
            parts["ended"] = {**_told(kept.ended, vectors), "history": _own(kept.ended.history)}
        if kept.state is not None:
            parts["state"] = {**_packed(kept.state, vectors), "history": _own(kept.rows)}
        notes[str(number)] = parts
    arrays = {
        "alphas": np.concatenate(alphas),
        "machines": np.array(table, np.int64),
        "vectors": np.concatenate([np.empty(0), *vectors]),
    }
    return arrays, {"version": VERSION, "machines": notes}


def known(arrays: dict[str, NDArray] | None, notes: dict[str, Any]) -> dict[int, KeptMachine] | None:
    """Restore what `as_arrays` stored; None if nothing is stored or it is invalid: machines restart."""
    try:
        return from_arrays(arrays, notes) if arrays else None
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        return None


def from_arrays(arrays: dict[str, NDArray], notes: dict[str, Any]) -> dict[int, KeptMachine]:
    """Restore what `as_arrays` stored; an earlier version stored alphas alone, where machines start.

    KeyError, TypeError, ValueError or AttributeError for invalid notes.
    """
    table, parts = arrays["machines"].tolist(), notes.get("machines", {})
    vectors = _Reader(arrays.get("vectors", np.empty(0)))
    alphas = _Reader(arrays["alphas"])
    machines = {}
    for number, length, _ in table:
        alpha, here = alphas.next(length), parts.get(str(number), {})
        ended = _ended(here["ended"], alpha, vectors) if "ended" in here else None
        state = vectors.unpacked(here["state"]) if "state" in here else None
        if notes.get("version") != VERSION:
            state = None
        rows = here["state"]["history"] if state is not None else []
        start = alpha if length and ended is None else None
        machines[number] = KeptMachine(ended, state, (rows, len(rows)), start)
    if vectors.left or alphas.left:
        raise ValueError("lengths that do not add up")
    return machines


class _Reader:
    """Reader that takes one array apart."""

    def __init__(self, values: NDArray[np.float64]) -> None:
        self.values, self.at = values, 0

    @property
    def left(self) -> int:
        """Return how many numbers are left."""
        return len(self.values) - self.at

    def next(self, length: int) -> Vector:
        """Return a copy of the next `length` numbers, aligned as a new array; ValueError if fewer are left."""
        if not (type(length) is int and 0 <= length <= self.left):
            raise ValueError(f"{self.left} numbers, of which {length!r} are wanted")
        self.at += length
        return np.array(self.values[self.at - length : self.at])

    def unpacked(self, note: dict[str, Any]) -> State:
        """Restore what `_packed` stored."""
        return {**note["numbers"], **{name: self.next(length) for name, length in note["vectors"].items()}}


def _packed(state: State, vectors: list[NDArray]) -> dict[str, Any]:
    """Return the numbers of a state and the lengths of its vectors, which are added to `vectors`."""
    arrays = {name: value for name, value in state.items() if isinstance(value, np.ndarray)}
    vectors += [np.asarray(value, np.float64) for value in arrays.values()]
    numbers = {name: _plain(value) for name, value in state.items() if name not in arrays}
    return {"numbers": numbers, "vectors": {name: len(value) for name, value in arrays.items()}}


def _own(rows: list[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in OF_STAGE} for row in rows]


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _told(ended: Ended, vectors: list[NDArray]) -> dict[str, Any]:
    point = ended.point
    facts = {
        "objective": point.objective,
        "gap": point.gap,
        "intercept": point.intercept,
        "n_iter": ended.n_iter,
        "products": ended.products,
        "outcome": ended.outcome.value,
        "max_iter": ended.max_iter,
    }
    return _packed({**facts, "shares": ended.shares, **within("held", ended.held)}, vectors)


def _ended(note: dict[str, Any], alpha: Vector, vectors: _Reader) -> Ended:
    found = vectors.unpacked(note)
    point = EndedPoint(alpha, found["objective"], found["gap"], found["intercept"])
    return Ended(
        point,
        found["shares"],
        found["n_iter"],
        found["products"],
        Outcome(found["outcome"]),
        found["max_iter"],
        part_of(found, "held") or {},
        note["history"],
    )
