"""Checkpoints of a path of gammas in a run's folder: the solved ones, from which a resumed fit continues."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dkl.estimators.logdet.arrays import STATES
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.solvers.logdet.solve import LogDetSolution
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row
from dkl.stores.checkpoint_folder import CheckpointFolder
from dkl.stores.checkpointer import StateCheckpointer
from dkl.stores.run import RunStore

PerConstraint = Annotated[NDArray[np.float64], "constraint"]


@dataclass(frozen=True)
class PathPoint(LogDetSolution):
    """Solution at a gamma of the path, with its rows; error: of nearest labeled neighbors, None without labels."""

    multipliers: PerConstraint = field(repr=False)
    margins: PerConstraint = field(repr=False)
    certificate: LogDetCertificate
    rows: list[Row] = field(repr=False)
    error: float | None

    @classmethod
    def of(cls, solution: LogDetSolution, rows: list[Row], error: float | None) -> PathPoint:
        """Build from a solver's solution."""
        values = {part.name: getattr(solution, part.name) for part in fields(LogDetSolution)}
        return cls(**values, rows=rows, error=error)

    def later(self, seconds: float) -> PathPoint:
        """Return the same with rows whose clock began `seconds` after that of the run, as on a worker."""
        return replace(self, rows=[{**row, "seconds": row["seconds"] + seconds} for row in self.rows])


Path = list[PathPoint]


def open_checkpoints(run: RunStore) -> CheckpointFolder:
    """Return the folder of a path that is under way."""
    return CheckpointFolder(run.path / "path", STATES, "path", "the path")


class PathCheckpointer(StateCheckpointer[Path]):
    """Checkpointer of the solved gammas, a commit each: the next starts at the last of them."""

    def __init__(self, run: RunStore) -> None:
        super().__init__(run, 1, open_checkpoints(run), Path, [])

    def resume(self, gammas: list[float], n_constraints: int) -> Path:
        """Return the stored solutions of the path's first gammas; [] for another path or other constraints."""
        is_known = [point.gamma for point in self.state] == gammas[: len(self.state)]
        if not is_known or any(point.multipliers.shape != (n_constraints,) for point in self.state):
            self.state = []
        return list(self.state)

    def on_solution(self, point: PathPoint) -> None:
        """Commit one more solution; one that is not SOLVED is not stored, but solved again on resuming."""
        if point.outcome is Outcome.SOLVED:
            self.state = [*self.state, point]
            self.step_done(at_end=True)

    def log_entries(self, state: Path) -> dict[str, object]:
        """Return the number of solved gammas."""
        return {"gammas": len(state)}
