"""Checkpoints of a classifier's machines in a run's folder.

A machine that has ended is stored as its result. One that is under way is stored as its solver's whole state at a
check, with the rows of the history before it: both lead to the bytes of a fit that nothing disturbed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.svm.model import ALPHAS
from dkl.solvers.svm.interface import (
    CutBound,
    GradientState,
    LevelState,
    RefinedState,
    RowVector,
    SolverState,
    SVMSolution,
    WorkingSetState,
)
from dkl.solvers.watch import Outcome, Row
from dkl.stores.checkpoints import CheckpointFolder, StateCheckpointer
from dkl.stores.run import RunStore

OF_STAGE = ("stage", "machine", "max_iter", "share")
"""Fields of a machine's rows that the stage adds in which they are resumed."""
STATES = {"level": LevelState, "gradient": GradientState}
"""Type of the state by the name of a solver; all others solve by working sets."""


@dataclass(frozen=True)
class ReportedPoint:
    """Reported part of a machine's solution: a `Point` without what a solver continues from."""

    alpha: RowVector
    objective: float
    gap: float
    intercept: float

    @property
    def relative_gap(self) -> float:
        """Return gap / |f|; infinity where f >= 0."""
        return self.gap / -self.objective if self.objective < 0 else float("inf")


@dataclass(frozen=True)
class CachedColumns:
    """Columns that a recomputed kernel holds, by their rows: products have other bits without them. dtype: "" without any."""

    rows: Annotated[NDArray[np.intp], "*", "< row"]
    dtype: Literal["", "float32", "float64"]

    @classmethod
    def of(cls, rows: NDArray[np.intp], dtype: Any) -> CachedColumns:
        """Build from what a kernel holds."""
        return cls(rows, dtype)


Cached = list[CachedColumns | None]
"""Cached columns of each kernel; None for a kernel that is not recomputed."""


@dataclass(frozen=True)
class MachineResult:
    """Result of one machine. max_iter: its limit; cached: columns of the kernels, for the next machine; bound: as the solution's."""

    point: ReportedPoint
    shares: Annotated[NDArray[np.float64], "kernel"]
    n_iter: int
    products: int
    outcome: Outcome
    max_iter: int
    cached: Cached
    history: list[Row] = field(repr=False)
    bound: CutBound | None = None

    @classmethod
    def of(cls, solution: SVMSolution, shares: NDArray[np.float64], max_iter: int, cached: Cached) -> MachineResult:
        """Build from a solver's solution."""
        point = solution.point
        reported = ReportedPoint(
            np.array(point.alpha), float(point.objective), float(point.gap), float(point.intercept)
        )
        counts = (solution.n_iter, solution.products, solution.outcome, max_iter)
        return cls(reported, shares, *counts, cached, [_own(row) for row in solution.history], solution.bound)

    def is_final(self, max_iter: int) -> bool:
        """Return whether the machine would end the same with this limit: one that had fewer steps continues."""
        return self.outcome is not Outcome.ITERATION_LIMIT or self.max_iter >= max_iter

    def solution(self, history: list[Row]) -> SVMSolution:
        """Return the solution as the solver returned it."""
        return SVMSolution(self.point, self.n_iter, self.products, self.outcome, history, self.bound)


@dataclass(frozen=True)
class MachineCheckpoint:
    """Checkpoint of a machine of `n` rows: its solver's state and the rows of the history before it, or its result.

    Both where a higher limit of steps may continue from the state. cached: columns of the kernels at the state.
    """

    n: Annotated[int, "row"]
    state: SolverState | None = None
    cached: Cached = field(default_factory=list)
    history: list[Row] = field(default_factory=list, repr=False)
    result: MachineResult | None = None

    def is_valid(self, n: int, solver: str, *, is_refined: bool) -> bool:
        """Return whether a machine of `n` rows resumes from it by `solver`. is_refined: of a kernel in single precision."""
        state = self.state.inner if isinstance(self.state, RefinedState) else self.state
        # `dkl resume` may take another solver or precision: its own state is of no use to that.
        is_of_solver = isinstance(state, STATES.get(solver, WorkingSetState))
        return self.n == n and (state is None or (is_of_solver and isinstance(self.state, RefinedState) == is_refined))


Machines = dict[int, MachineCheckpoint]


def open_checkpoints(run: RunStore) -> CheckpointFolder:
    """Return the folder of the machines that are under way."""
    return CheckpointFolder(run.path / "alphas", ALPHAS, "alphas", "the machines")


class MachineCheckpointer(StateCheckpointer[Machines]):
    """Checkpointer of all machines, by number, every `every` checks of their solvers or by time.

    A step of the rule is a check. rows: of the history of each machine, new ones included; counts: how many of them came before
    the machine's state.
    """

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every, open_checkpoints(run), Machines, {})
        self.rows = {number: machine.history for number, machine in self.state.items()}
        self.counts = {number: len(rows) for number, rows in self.rows.items()}

    def resume(self, number: int, n: int, solver: str, *, is_refined: bool) -> MachineCheckpoint | None:
        """Return the checkpoint that a machine starts from; None, and it is forgotten, unless it is valid."""
        machine = self.state.get(number)
        if machine is not None and not machine.is_valid(n, solver, is_refined=is_refined):
            del self.state[number]
            self.counts[number], machine = 0, None
        self.rows[number] = self.rows.get(number, [])[: self.counts.get(number, 0)]
        return None if machine is None else replace(machine, history=list(self.rows[number]))

    def on_state(self, number: int, n: int, state: SolverState, cached: Cached) -> None:
        """Record the state of a machine's solver at a check."""
        # Rows after the state's check belong to the next one: `counts` says where to cut when resuming.
        rows = self.rows.setdefault(number, [])
        self.counts[number] = len(rows)
        self.state[number] = MachineCheckpoint(n, state, cached, rows)  # at once: Ctrl-C may come between
        self.step_done(at_end=False)

    def on_result(self, number: int, n: int, result: MachineResult) -> None:
        """Record a machine's result in place of its solver's state, or next to it if that may continue."""
        machine = self.state.get(number)
        may_continue = result.outcome is Outcome.ITERATION_LIMIT and machine is not None and machine.result is None
        kept = machine if machine is not None and may_continue else MachineCheckpoint(n)
        self.state[number] = replace(kept, result=result)
        if kept is not machine:
            self.rows.pop(number, None)  # the result has its own
        self.step_done(at_end=True)

    def __call__(self, row: Row) -> None:
        """Collect a machine's row, and commit if due: the next check may be long in coming. A callback."""
        if "machine" in row:
            self.rows.setdefault(row["machine"], []).append(_own(row))
        self.commit_due()

    def to_snapshot(self, state: Machines) -> Machines:
        """Return the machines, each with the rows before its state alone."""
        return {
            number: replace(one, history=one.history[: self.counts.get(number, 0)]) for number, one in state.items()
        }

    def log_entries(self, state: Machines) -> dict[str, object]:
        """Return the numbers of machines, and of those solved."""
        return {"machines": len(state), "solved": sum(one.result is not None for one in state.values())}


def _own(row: Row) -> Row:
    """Return a row without the fields of the stage that it was recorded in."""
    return {name: value for name, value in row.items() if name not in OF_STAGE}
