"""Predictions of a regression, and their score."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.errors import InputError
from dkl.estimators.regression.model import RegressionModel, load_model
from dkl.problems.column_predict import predict_block
from dkl.runs.inputs.files import Files
from dkl.runs.output.files import OutputRequest
from dkl.runs.output.prediction_plan import kernel_needs
from dkl.runs.output.predictions import Predictor
from dkl.runs.regression.inputs import read_targets
from dkl.runs.supervised.inputs import where_targets
from dkl.stores.run import RunStore


def predictor(run: RunStore, request: OutputRequest) -> Predictor:
    """Return a predictor by the stored model; InputError if decision values are asked for."""
    if request.decision:
        raise InputError("a regression has no decision values", where="--decision", remedy="leave it out")
    model = load_model(run)
    count = len(model.weights)
    targets = run.config.get("inputs", {}).get("targets", {}).get("shape", [0])
    is_flat = len(targets) == 1 and count == 1

    def blocks(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        parts = rows.map(predict_block, model.kernel, model.points, model.weights, model.intercepts, only=some)
        found = np.concatenate(parts)
        return found[:, 0] if is_flat else found

    return Predictor(
        () if is_flat else (count,),
        np.float64,
        lambda found: _features_wanted(run, model, found),
        blocks,
        lambda files, n: RegressionScore.of(files, n, count),
        f"predictions of {count} target(s)",
        kernel_needs(model.points, model.weights),
        of_kernel=model.kernel.is_precomputed,
    )


def _features_wanted(run: RunStore, model: RegressionModel, found: int) -> int:
    if model.n_features >= 0:
        return model.n_features
    # Rows of a precomputed kernel: as many numbers as there were rows.
    wanted = int(run.config.get("inputs", {}).get("data", {}).get("shape", [0, found])[1])
    return wanted if found > max(model.points, default=0) else int(max(model.points)) + 1


@dataclass
class RegressionScore:
    """Errors of predictions against targets (n, T), summed block by block."""

    targets: NDArray[np.float64]
    seen: int = 0
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the targets, three times: their spread takes two more copies."""
        return 3 * self.targets.nbytes

    @classmethod
    def of(cls, files: Files, n: int, n_targets: int) -> RegressionScore:
        """Return a score with the targets in the files; InputError for another number of them."""
        y = read_targets(files, n).reshape(n, -1)
        if y.shape[1] != n_targets:
            where = where_targets(files)
            raise InputError("another number of targets", where=where, got=y.shape[1], wanted=n_targets)
        return cls(y, squares=np.zeros(n_targets))

    def see(self, block: NDArray) -> None:
        """Add the squared errors of the next predictions (m,) or (m, T)."""
        known = self.targets[self.seen : self.seen + len(block)]
        self.squares += ((known - block.reshape(len(block), -1)) ** 2).sum(axis=0)
        self.seen += len(block)

    def describe(self) -> str:
        """Return R2 and mean squared error of each target, in lines."""
        spread = ((self.targets - self.targets.mean(axis=0)) ** 2).sum(axis=0)
        lines = []
        for number, (error, total) in enumerate(zip(self.squares, spread, strict=True)):
            name = "" if len(self.squares) == 1 else f"target {number}: "
            r2 = f"{1 - error / total:.6g}" if total > 0 else "none, the targets are constant"
            lines.append(f"  {name}R2 {r2}, mean squared error {error / self.seen:.8g}")
        return "\n".join(lines)
