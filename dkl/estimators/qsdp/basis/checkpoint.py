"""Checkpoints of the low-rank method in a run's folder, from which a resumed fit continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.qsdp.basis.model import STATES
from dkl.solvers.qsdp.low_rank import LowRankState
from dkl.solvers.watch import Result, Row, Watch
from dkl.stores.checkpoints import CheckpointFolder, StateCheckpointer
from dkl.stores.run import RunStore


@dataclass(frozen=True)
class BasisCheckpoint:
    """State of the method, and the history's rows up to it."""

    state: LowRankState
    rows: list[Row] = field(repr=False)


def open_checkpoints(run: RunStore) -> CheckpointFolder:
    """Return the folder of the states that are written while a fit is under way."""
    return CheckpointFolder(run.path / "engine", STATES, "engine", "the solver's state")


class BasisCheckpointer(StateCheckpointer[BasisCheckpoint | None]):
    """Checkpointer of the method's state, every `every` steps or by time."""

    rows: Callable[[], list[Row]]
    """Function that returns the rows up to a state of this session, called on commits alone."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        super().__init__(run, every, open_checkpoints(run), BasisCheckpoint, None)

    def resume(self, watch: Watch, m: int) -> LowRankState | None:
        """Return the state to resume from, its rows restored to `watch`; None if no finite one of size m is stored."""
        if self.state is None:
            return None
        state = self.state.state
        # A state of other inputs, or of a step that diverged, is no damage to report: the fit starts over from the stored basis.
        if len(state.factor) != m or not (np.isfinite(state.factor).all() and np.isfinite(state.best).all()):
            return None
        watch.resume(self.state.rows)
        self.rule.step = self.rule.committed = state.iteration
        return state

    def on_state(self, state: LowRankState, watch: Watch) -> None:
        """Record the method's current state, and commit it if due."""
        # The state that is resumed from is reported again: it is on disk.
        if self.rule.step != state.iteration or state.iteration == 0:
            # The number of rows now, the rows when a commit is due: copying all of them in each step would grow with its square.
            count = watch.n_rows
            self.state, self.rows = BasisCheckpoint(state, []), lambda: watch.history[:count]
            self.rule.step = state.iteration
            self.commit_due()

    def to_snapshot(self, state: BasisCheckpoint | None) -> BasisCheckpoint:
        """Return the state with its rows."""
        assert state is not None  # a step was taken
        return replace(state, rows=self.rows())

    def log_entries(self, state: BasisCheckpoint | None) -> dict[str, object]:
        """Return the iteration of the state."""
        return {} if state is None else {"iteration": state.state.iteration}


def write_end(
    run: RunStore,
    result: Result,
    held_out: dict[str, NDArray[np.float64]],
    report: dict[str, Any],
    checkpointer: StateCheckpointer[Any],
) -> None:
    """Write what was held out and the report of a fit; keep its last state for a later resume, or drop all where it converged."""
    if held_out:
        run.write_arrays("held_out", held_out)
    # Before the report, which completes the run: a limit that is raised later resumes from here.
    if not result.outcome.converged:
        checkpointer.commit_rest()
    run.write_report(report)
    if result.outcome.converged:
        checkpointer.folder.drop()
