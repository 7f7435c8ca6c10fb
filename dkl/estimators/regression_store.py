"""SLKL in a run's folder: the pass kept in between, the model, and what a later session needs to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.errors import StoreError
from dkl.estimators.column_fit import Candidates, Keeper, make_pass
from dkl.estimators.column_settings import RegressionSettings
from dkl.estimators.regression_run import FittedColumns, fit_columns
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import Wave
from dkl.stores.partial_sums import PartialSums
from dkl.stores.run import RunStore

COMMIT_SECONDS, COMMIT_SHARE = 30.0, 20.0
"""Automatic commits come every half minute, and take a twentieth of the time at most."""


class StoredPass(Keeper):
    """Keeps the sums in a run's folder: every so many waves, or by time."""

    def __init__(self, run: RunStore, every: int | str, callbacks: list[Callable[[dict[str, Any]], Any]]) -> None:
        super().__init__(callbacks)
        self.run, self.every, self.sums = run, every, PartialSums(run.path / "sums")
        self.number, self.waves = 0, 0
        self.last, self.cost = time.monotonic(), 0.0

    def candidates(self) -> Candidates | None:
        return load_candidates(self.run) if (self.run.path / "candidates").is_dir() else None

    def chosen(self, candidates: Candidates) -> None:
        store_candidates(self.run, candidates)

    def partials(self, panel: int) -> dict[Any, Any]:
        self.number, found = self.sums.load(panel)
        return found

    def panel_done(self, panel: int) -> bool:
        return panel in self.sums.done()

    def after(self, panel: int, panels: int, wave: Wave) -> bool:
        self.waves += 1
        stop = super().after(panel, panels, wave)
        self.run.log(event="wave", panel=panel, done=wave.done, of=wave.total, seconds=wave.seconds)
        if isinstance(self.every, int):
            due = self.waves % self.every == 0
        else:
            due = time.monotonic() - self.last > max(COMMIT_SECONDS, COMMIT_SHARE * self.cost)
        if due or stop:
            start = time.monotonic()
            self.number += 1
            self.sums.save(self.number, panel, wave.partials)
            self.last = time.monotonic()
            self.cost = self.last - start
            self.run.log(event="commit", panel=panel, done=wave.done, cost=self.cost)
        return stop

    def panel_written(self, panel: int) -> None:
        self.sums.mark_done(panel)


def fit_in_run(
    run: RunStore,
    rows: Any,
    y: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    offsets: NDArray[np.float64],
    settings: RegressionSettings,
    session: Session,
    *,
    given: Any = None,
    fold_of: NDArray[np.intp] | None = None,
    callbacks: list[Callable[[dict[str, Any]], Any]] | None = None,
) -> FittedColumns:
    """A fit with everything on disk; goes on from what is there. `y` is less `offsets`, which the model has back."""
    callbacks = callbacks or []
    keeper = StoredPass(run, settings.checkpoint_every, callbacks)
    keeper.sums.sweep()
    passed = make_pass(
        rows, y, sample_weight, settings, session, given=given, fold_of=fold_of, folder=run.path, keeper=keeper
    )
    fitted = fit_columns(passed, settings, session, callbacks)
    fitted.intercepts = fitted.intercepts + offsets
    store_model(run, fitted, settings)
    run.write_report(report_of(fitted, settings))
    keeper.sums.drop()
    return fitted


def store_candidates(run: RunStore, candidates: Candidates) -> None:
    run.write_arrays("candidates", {"indices": candidates.indices, "scale": candidates.scale} | _points(candidates))


def load_candidates(run: RunStore) -> Candidates:
    found = run.read_arrays("candidates")
    return Candidates(found["indices"], _read_points(found), found["scale"])


def _points(candidates: Candidates) -> dict[str, NDArray]:
    points = candidates.points
    if not sp.issparse(points):
        return {"points": np.ascontiguousarray(points)}
    return {
        "points_data": points.data,
        "points_indices": points.indices,
        "points_indptr": points.indptr,
        "points_shape": np.array(points.shape),
    }


def _read_points(found: dict[str, NDArray]) -> Any:
    if "points" in found:
        return found["points"]
    parts = (found["points_data"], found["points_indices"], found["points_indptr"])
    return sp.csr_array(parts, shape=tuple(found["points_shape"]))


def store_model(run: RunStore, fitted: FittedColumns, settings: RegressionSettings) -> None:
    """Weights (T, M) of the normalised columns, intercepts (T,), mu (T, M); errors of cross-validation if there are any."""
    mu = np.sqrt(settings.lam / fitted.nu) * np.abs(fitted.weights)
    arrays = {"weights": fitted.weights, "intercepts": fitted.intercepts, "kernel_weights": mu}
    if fitted.cv is not None:
        arrays |= {"cv_nus": fitted.cv.nus, "cv_errors": fitted.cv.errors, "cv_active": fitted.cv.n_active}
    run.write_arrays("model", arrays)


@dataclass(frozen=True)
class Model:
    """A stored model, ready to predict: points (m, d) or column numbers, weights (T, m) with the scale in them."""

    kernel: Kernel
    points: Any
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_features: int


def load_model(run: RunStore) -> Model:
    candidates, found = load_candidates(run), run.read_arrays("model")
    settings = RegressionSettings(**run.config["settings"])
    weights = found["weights"]
    if weights.ndim != 2 or weights.shape[1] != len(candidates.scale):
        raise StoreError("model and candidates do not fit together", where=str(run.path))
    active = np.flatnonzero((weights != 0).any(axis=0))
    features = int(run.config["inputs"]["data"]["shape"][1]) if "inputs" in run.config else -1
    return Model(
        settings.kernel_function,
        candidates.points[active],
        weights[:, active] * candidates.scale[active],
        found["intercepts"],
        features,
    )


def report_of(fitted: FittedColumns, settings: RegressionSettings) -> dict[str, Any]:
    """The report of a run, JSON."""
    result = fitted.result
    outputs = [
        {
            "objective": solution.evaluation.objective,
            "gap": solution.evaluation.gap,
            "relative_gap": solution.evaluation.relative_gap,
            "n_active": int(np.count_nonzero(solution.weights)),
            "n_screened": solution.n_screened,
            "n_iter": solution.n_iter,
        }
        for solution in fitted.solutions
    ]
    return {
        "outcome": result.outcome.value,
        "remedy": result.outcome.remedy,
        "n_iter": result.n_iter,
        "nu": fitted.nu,
        "nu_max": fitted.nu_max,
        "n_columns": len(fitted.candidates.scale),
        "n_active": len(fitted.active),
        "outputs": outputs,
        "seconds": result.seconds,
        "peak_bytes": result.peak_bytes,
        "restarts": result.restarts,
        "plan": result.plan,
        "settings": settings.as_dict(),
    }
