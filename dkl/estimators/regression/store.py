"""SLKL in a run's folder: the pass kept in between, the model, and what a later session needs to go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.blocks.workspace import commit_wait
from dkl.errors import StoreError
from dkl.estimators.columns.fit import Candidates, Keeper, make_pass
from dkl.estimators.columns.settings import RegressionSettings
from dkl.estimators.common.run_arrays import point_arrays, read_arrays, read_points, report_of
from dkl.estimators.regression.fit import FittedColumns, fit_columns
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import Wave
from dkl.stores.disk import disk_errors
from dkl.stores.generations import fsync_tree
from dkl.stores.kernel_columns import stored_columns
from dkl.stores.partial_sums import PartialSums
from dkl.stores.run import RunStore

WORTH_KEEPING = 5.0
"""Seconds of a pass: if more of them are not committed at its end, that is a commit too. What follows may be long."""


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
        waited, at_end = time.monotonic() - self.last, wave.done == wave.total and panel == panels - 1
        if isinstance(self.every, int):
            due = self.waves % self.every == 0
        else:
            due = waited > (WORTH_KEEPING if at_end else commit_wait(self.cost))
        if due or stop:
            self.commit(panel, panels, wave)
        return stop

    def commit(self, panel: int, panels: int, wave: Wave) -> None:
        start = time.monotonic()
        self._settle("columns")  # rows that are summed are not made again
        self.number += 1
        self.sums.save(self.number, panel, wave.partials)
        self.last = time.monotonic()
        self.cost = self.last - start
        place = {"panel": panel, "panels": panels, "done": wave.done, "of": wave.total}
        self.run.log(event="commit", **place, cost=self.cost)

    def panel_written(self, panel: int) -> None:
        self._settle("gram")
        self.sums.mark_done(panel)

    def _settle(self, part: str) -> None:
        """See that what tasks wrote outlasts a power cut."""
        with disk_errors("could not be written", self.run.path / part):
            fsync_tree(self.run.path / part)


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
    notes: Callable[[], dict[str, Any]] = dict,
) -> FittedColumns:
    """A fit with everything on disk; goes on from what is there. `y` is less `offsets`, which the model has back.

    notes: more for the report, asked at the end.
    """
    callbacks = callbacks or []
    keeper = StoredPass(run, settings.checkpoint_every, callbacks)
    keeper.sums.sweep()
    passed = make_pass(
        rows, y, sample_weight, settings, session, given=given, fold_of=fold_of, folder=run.path, keeper=keeper
    )
    fitted = fit_columns(passed, settings, session, callbacks)
    fitted.intercepts = fitted.intercepts + offsets
    if passed.columns_path is not None:
        for _ in stored_columns(passed.columns_path):
            pass  # each chunk is there, and what was written
    store_model(run, fitted, settings)
    run.write_report(_report(fitted, settings) | notes())
    keeper.sums.drop()
    return fitted


def store_candidates(run: RunStore, candidates: Candidates) -> None:
    run.write_arrays(
        "candidates", {"indices": candidates.indices, "scale": candidates.scale} | point_arrays(candidates.points)
    )


def load_candidates(run: RunStore) -> Candidates:
    found = read_arrays(run, "candidates", "indices", "scale")
    candidates = Candidates(found["indices"], read_points(found, f"{run.path}/candidates"), found["scale"])
    if not candidates.points.shape[0] == len(candidates.indices) == len(candidates.scale):
        raise StoreError("candidates that do not fit together", where=f"{run.path}/candidates")
    return candidates


def store_model(run: RunStore, fitted: FittedColumns, settings: RegressionSettings) -> None:
    """Weights (T, M) of the normalised columns, intercepts (T,), mu (T, M); errors of cross-validation if there are any."""
    mu = np.sqrt(settings.lam / fitted.nu) * np.abs(fitted.weights)
    arrays = {"weights": fitted.weights, "intercepts": fitted.intercepts, "kernel_weights": mu}
    if fitted.cv is not None:
        arrays |= {"cv_nus": fitted.cv.nus, "cv_errors": fitted.cv.errors, "cv_active": fitted.cv.n_active}
    run.write_arrays("model", arrays)


@dataclass(frozen=True)
class Model:
    """A stored model, ready to predict: points (m, d) or column numbers, weights (T, m) with the scale in them.

    n_features: of the points; with a precomputed kernel, of which points do not tell, -1.
    """

    kernel: Kernel
    points: Any
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    n_features: int


def load_model(run: RunStore) -> Model:
    candidates, found = load_candidates(run), read_arrays(run, "model", "weights", "intercepts")
    settings = RegressionSettings(**run.config["settings"])
    weights, intercepts = found["weights"], found["intercepts"]
    if weights.ndim != 2 or weights.shape != (len(intercepts), len(candidates.scale)):
        raise StoreError("model and candidates do not fit together", where=str(run.path))
    active = np.flatnonzero((weights != 0).any(axis=0))
    kernel, points = settings.kernel_function, candidates.points
    return Model(
        kernel,
        points[active],
        weights[:, active] * candidates.scale[active],
        intercepts,
        -1 if kernel.is_precomputed else int(points.shape[1]),
    )


def _report(fitted: FittedColumns, settings: RegressionSettings) -> dict[str, Any]:
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
    return report_of(
        fitted.result,
        settings.as_dict(),
        nu=fitted.nu,
        nu_max=fitted.nu_max,
        n_columns=len(fitted.candidates.scale),
        n_active=len(fitted.active),
        outputs=outputs,
    )
