"""Checkpoints of a fit under hard constraints, from which a resumed fit continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np

from dkl.estimators.qsdp.basis.checkpoint import open_checkpoints
from dkl.problems.qsdp.linear import LinearSDP
from dkl.solvers.qsdp.augmented import Array, LagrangianState, LinearSDPSolution
from dkl.solvers.qsdp.interior import PathState
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch
from dkl.stores.checkpointer import StateCheckpointer
from dkl.stores.run import RunStore

Method = Literal["solve", "interior"]
"""Stages of the history: by factors, and by the interior point."""


@dataclass(frozen=True)
class EndedMethod:
    """Solution of the method that had the first turn, where the other has the second; low: of its certificate."""

    method: Method
    outcome: Outcome
    factor: Annotated[Array, "sample", "first column"] = field(repr=False)
    dual: Annotated[Array, "edge"] = field(repr=False)
    low: float
    n_iter: int
    n_newton: int
    face: int | None

    @classmethod
    def of(cls, method: Method, found: LinearSDPSolution) -> EndedMethod:
        """Return what is kept of a solution."""
        low = float(found.certificate.min_eigenvalue)
        return cls(method, found.outcome, found.factor, found.dual, low, found.n_iter, found.n_newton, found.face)

    def solution(self, problem: LinearSDP) -> LinearSDPSolution:
        """Return the solution, certified once more."""
        proof = problem.certify(self.factor, self.dual, self.low)
        return LinearSDPSolution(
            self.outcome, self.factor, self.dual, proof, self.n_iter, self.n_newton, self.face
        )  # fmt: skip


@dataclass(frozen=True)
class HardCheckpoint:
    """State of the method under way, the solution of the one before it, and the history's rows up to it."""

    method: Method
    state: PathState | LagrangianState
    ended: EndedMethod | None = None
    rows: list[Row] = field(default_factory=list, repr=False)

    @property
    def step(self) -> int:
        """Return the number of the step, which those of a method before it count in."""
        return self.state.iteration + (0 if self.ended is None else self.ended.n_iter + 1)

    def fits(self, n: int, p: int) -> bool:
        """Return whether it is of a problem of n rows with p constraints, its method's own, and finite."""
        of_best = [(self.state.best, self.state.best_dual)]
        of_best += [] if self.ended is None else [(self.ended.factor, self.ended.dual)]
        are_finite = all(np.isfinite(one).all() for one in vars(self.state).values() if isinstance(one, np.ndarray))
        is_own = isinstance(self.state, PathState) == (self.method == "interior")
        return is_own and are_finite and all(len(R) == n and len(y) == p for R, y in of_best)


class HardCheckpointer(StateCheckpointer[HardCheckpoint | None]):
    """Checkpointer of the state of a method, every `every` steps or by time."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every, open_checkpoints(run), HardCheckpoint, None)
        self.kept: Callable[[], list[Row]] = list
        if self.state is not None:
            self.rule.step = self.rule.committed = self.state.step

    def keep_if_of(self, problem: LinearSDP) -> None:
        """Forget a state that is not of this problem."""
        if self.state is not None and not self.state.fits(problem.n, problem.p):
            self.state, self.rule.step, self.rule.committed = None, 0, 0

    def ended(self, watch: Watch) -> EndedMethod | None:
        """Return the method that had the first turn, if that has ended, its rows restored to a stage of `watch`."""
        if self.state is None or self.state.ended is None:
            return None
        self._restore(watch.stage(self.state.ended.method), self.state.ended.method)
        return self.state.ended

    def options(
        self, watch: Watch, stage: Watch, method: Method, face: int | None = None, ended: EndedMethod | None = None
    ) -> dict[str, Any]:
        """Return the options by which a method resumes in its stage of `watch`, and hands over its states."""
        return {
            "resume_from": self.resume(stage, method, face),
            "on_state": lambda found: self.on_state(HardCheckpoint(method, found, ended), watch),
        }

    def resume(self, stage: Watch, method: Method, face: int | None) -> Any:
        """Return the state that the method resumes from, its rows restored to its stage; None if none is stored, or of another face."""
        if self.state is None or self.state.method != method:
            return None
        if isinstance(self.state.state, PathState) and len(self.state.state.V) != face:
            return None
        self._restore(stage, method)
        return self.state.state

    def _restore(self, stage: Watch, method: Method) -> None:
        assert self.state is not None  # or there are no rows
        stage.resume([row for row in self.state.rows if row.get("stage") == method])

    def on_state(self, found: HardCheckpoint, watch: Watch) -> None:
        """Record a method's current state, and commit it if due."""
        if self.state is None or found.step != self.rule.step:
            count = watch.n_rows
            self.state, self.kept = found, lambda: watch.history[:count]
            self.rule.step = found.step
            self.commit_due()

    def to_snapshot(self, state: HardCheckpoint | None) -> HardCheckpoint:
        """Return the state with its rows."""
        assert state is not None  # a step was taken
        return replace(state, rows=self.kept())

    def log_entries(self, state: HardCheckpoint | None) -> dict[str, object]:
        """Return the iteration of the state."""
        return {} if state is None else {"iteration": state.state.iteration}
