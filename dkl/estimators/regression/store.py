"""SLKL in a run's folder: the sums of a pass, stored for resuming, and the resulting model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.estimators.base.run_arrays import report_of
from dkl.estimators.regression.columns.fit import Candidates, PassStorage, make_pass
from dkl.estimators.regression.fit import FittedColumns, fit_columns
from dkl.estimators.regression.model import SUMS, load_candidates, store_candidates, store_model
from dkl.estimators.regression.quality import assess
from dkl.estimators.regression.refit import Refit
from dkl.estimators.regression.settings import RegressionSettings
from dkl.problems.regression.column_pass import Wave
from dkl.solvers.watch import Watch
from dkl.stores.checkpoints import Checkpointer, Partials, PartialSums
from dkl.stores.folders import disk_errors, fsync_tree, remove_torn_files
from dkl.stores.kernels import column_sums, is_created, seal_columns, stored_columns
from dkl.stores.run import RunStore
from dkl.stores.seals import Files

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows


class StoredPass(PassStorage, Checkpointer[Partials]):
    """Store of the sums of a pass in a run's folder, written every `every` waves (steps) or by time."""

    def __init__(self, run: RunStore, every: int | str) -> None:
        Checkpointer.__init__(self, run, every)
        self.sums = PartialSums(run.path / "sums", SUMS)
        self.number = 0
        self.columns: Files = {}
        self.progress = {"panel": 0}
        """The panel (rows of B) that is under way; after a wave, also of how many, and groups of rows done of all."""

    def candidates(self) -> Candidates | None:
        """Return the candidates that an earlier attempt chose, if any; StoreError if they are damaged."""
        return load_candidates(self.run) if (self.run.path / "candidates").is_dir() else None

    def chosen(self, candidates: Candidates) -> None:
        """Keep the candidates, before the pass: they decide what its sums mean. Raises DiskError."""
        store_candidates(self.run, candidates)

    def partials(self, panel: int) -> Partials:
        """Return the sums to start panel number `panel` with; {} if missing."""
        self.progress = {"panel": panel}
        return self.load() or {}

    def panel_done(self, panel: int) -> bool:
        """Return whether the rows of B of that panel are stored."""
        return panel in self.sums.done()

    def after(self, panel: int, panels: int, wave: Wave, is_stopped: bool) -> None:
        """Log a wave; commit if due or if the watch has ended the pass. Raises DiskError."""
        self.rule.step += 1
        # What workers have written just now, before anybody can put it elsewhere.
        self.columns |= column_sums(self.run.path / "columns", wave.starts)
        self.progress = {"panel": panel, "panels": panels, "done": wave.done, "of": wave.total}
        self.run.log(event="wave", panel=panel, done=wave.done, of=wave.total, seconds=wave.seconds)
        # What follows the last wave, cross-validation and the solver, may be long and commits nothing.
        if self.due(at_end=wave.done == wave.total and panel == panels - 1) or is_stopped:
            self.commit(wave.partials)

    def load(self) -> Partials | None:
        """Return the committed sums of the panel that is under way."""
        self.number, found = self.sums.load_pass(self.progress["panel"])
        return found or None

    def write(self, state: Partials) -> dict[str, object]:
        """Store the sums, after the columns that went in: summed rows are not computed again."""
        self._fsync("columns")
        self.seal_columns()
        self.number += 1
        self.sums.save_pass(self.number, self.progress["panel"], state)
        return dict(self.progress)

    def seal_columns(self) -> None:
        """Seal the columns of this attempt and those before it, if they are stored. Raises DiskError.

        Rows that no committed sum holds are recomputed and sealed again, so this need not be of one step with the sums.
        """
        if is_created(self.run.path / "columns"):
            seal_columns(self.run.path / "columns", self.columns)

    def panel_written(self, panel: int) -> None:
        """Record that a panel's rows of B are stored, once they outlast a power cut. Raises DiskError."""
        self._fsync("gram")
        self.sums.mark_done(panel)

    def _fsync(self, part: str) -> None:
        """Flush what tasks wrote to disk, so that it outlasts a power cut."""
        with disk_errors("could not be written", self.run.path / part):
            fsync_tree(self.run.path / part)


def fit_in_run(
    run: RunStore,
    rows: CheckedRows,
    y: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    offsets: NDArray[np.float64],
    settings: RegressionSettings,
    session: Session,
    *,
    given: object = None,
    fold_of: NDArray[np.intp] | None = None,
    watch: Watch | None = None,
    notes: Callable[[dict[str, object]], dict[str, object]] = dict,
) -> FittedColumns:
    """Fit with everything on disk, resumed from what is there; the model gets back y's `offsets`.

    notes: returns the report with more in it, called at the end. Raises InterruptedRunError where the watch ends the run for it to be
    resumed; ended otherwise, during the pass, it has the constant model, and the sums so far are kept.
    """
    watch = watch or Watch()
    keeper = StoredPass(run, settings.checkpoint_every)
    keeper.sums.remove_leftovers()
    passed = make_pass(
        rows, y, sample_weight, settings, session,
        given=given, fold_of=fold_of, folder=run.path, keeper=keeper, watch=watch,
    )  # fmt: skip
    with blas_threads_for(len(passed.candidates.scale)):
        fitted = fit_columns(passed, settings, session, watch)
    assess(fitted, rows, y, sample_weight, fold_of, settings, session, watch)
    fitted.add(offsets)
    for part in ("columns", "gram"):  # written in place, chunk by chunk
        remove_torn_files(run.path / part)
    if passed.columns_path is not None and passed.sums is not None:
        keeper.seal_columns()
        for _ in stored_columns(passed.columns_path):
            pass  # each chunk is there, and what was written
    store_model(run, fitted, settings)
    if fitted.held_out:
        run.write_arrays("held_out", fitted.held_out)
    run.write_report(notes(_report(fitted, settings)))
    if passed.sums is not None:
        keeper.sums.drop()
    return fitted


def _report(fitted: FittedColumns, settings: RegressionSettings) -> dict[str, object]:
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
        refit=None if fitted.refit is None else _refit(fitted.refit),
        history=fitted.result.history,
    )


def _refit(refit: Refit) -> dict[str, object]:
    figures = zip(refit.objectives.tolist(), refit.gaps.tolist(), refit.relative_gaps.tolist(), strict=True)
    outputs = [dict(zip(("objective", "gap", "relative_gap"), one, strict=True)) for one in figures]
    return {"columns": refit.columns, "lam": refit.lam, "outputs": outputs}
