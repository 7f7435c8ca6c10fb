"""From rows and targets to the sums that solvers work on: candidates chosen, memory planned, one pass made.

Used by every regressor on kernel columns and by the command line. With a run's folder the pass is kept in between, and
goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_groups import RowGroups
from dkl.blocks.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InterruptedRunError
from dkl.estimators.columns.candidates import Candidates, choose_candidates
from dkl.estimators.columns.folds import random_folds
from dkl.estimators.columns.settings import ColumnSettings, n_candidates, plan_fit
from dkl.linalg.column_moments import Moments
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_gram import CentredGram, held_out
from dkl.problems.column_pass import ColumnJob, Wave, block_rows, run_pass, targets_and_roots
from dkl.problems.column_predict import predict_block
from dkl.stores.kernel_columns import GramRows, create_columns, create_gram, is_created, write_rows

Row = dict[str, Any]


@dataclass
class Passed:
    """What a pass leaves. `moments` are raw sums (folds apart); `shared` is B and C'y of all rows."""

    candidates: Candidates
    shared: CentredGram
    moments: Moments | None
    plan: Plan
    seconds: dict[str, float]
    columns_path: str | None = None

    def without_fold(self, fold: int, intercept: bool) -> CentredGram:
        """B and C'y of all rows but a fold's."""
        assert self.moments is not None
        return CentredGram.of(held_out(self.moments, fold), intercept=intercept)


@dataclass
class Keeper:
    """Where a pass is kept in between; this one keeps nothing. `every` waves call `after`, which may end the pass."""

    callbacks: list[Callable[[Row], Any]] = field(default_factory=list)

    def candidates(self) -> Candidates | None:
        """Those of an earlier attempt."""
        return None

    def chosen(self, candidates: Candidates) -> None:
        pass

    def partials(self, panel: int) -> dict[Any, Any]:
        """The state to begin panel number `panel` with."""
        return {}

    def panel_done(self, panel: int) -> bool:
        return False

    def after(self, panel: int, panels: int, wave: Wave) -> bool:
        row = {
            "stage": "pass",
            "iteration": panel * wave.total + wave.done,
            "of": panels * wave.total,
            "seconds": wave.seconds,
        }
        answers = [callback(dict(row)) for callback in self.callbacks]  # all are called
        return any(answer is True for answer in answers)

    def panel_written(self, panel: int) -> None:
        pass


def make_pass(
    rows: Any,
    y: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    settings: ColumnSettings,
    session: Session,
    *,
    given: Any = None,
    fold_of: NDArray[np.integer] | None = None,
    folder: Path | None = None,
    keeper: Keeper | None = None,
) -> Passed:
    """Choose candidates (unless the keeper has them) and add up all that solvers need of their columns.

    fold_of (n,): the fold of each row, for settings with folds; None draws them. folder: where the Gram matrix goes if it
    is too large for memory, and the columns if they are to be kept.
    """
    keeper = keeper or Keeper()
    candidates = keeper.candidates()
    source = row_source(rows)
    count = n_candidates(source.n, settings, given) if candidates is None else len(candidates.scale)
    place = Place.of(session)
    plan = plan_fit(source, count, y.shape[1], settings, place, has_folder=folder is not None)
    groups = row_groups(source, session, count, settings, plan)
    started = time.perf_counter()
    if candidates is None:
        candidates = choose_candidates(groups, settings, given, sample_weight)
        keeper.chosen(candidates)
        if len(candidates.scale) != count:  # blocks are what an attempt that goes on from here will take
            groups = row_groups(source, session, len(candidates.scale), settings, plan)
    chosen = time.perf_counter()
    columns_path = None
    if settings.store_columns:
        assert folder is not None
        columns_path = str(folder / "columns")
        if not is_created(columns_path):
            create_columns(columns_path, source.n, len(candidates.scale), groups.block_rows, settings.dtype)
    if settings.n_folds > 1 and fold_of is None:
        fold_of = random_folds(source.n, sample_weight, settings.n_folds, settings.seed)
    job = ColumnJob(
        settings.kernel_function,
        candidates.points,
        candidates.scale,
        targets_and_roots(y, sample_weight),
        settings.dtype,
        settings.n_folds,
        fold_of,
        store=columns_path,
    )
    panel = plan.shape["panel"]
    if panel is None:
        moments = _whole(groups, job, keeper)
        shared = _shared(moments, settings)
        kept = moments if settings.n_folds > 1 else None
    else:
        assert folder is not None
        shared, kept = _by_panels(groups, job, keeper, panel, folder / "gram", settings.fit_intercept), None
    seconds = {"columns": chosen - started, "pass": time.perf_counter() - chosen}
    return Passed(candidates, shared, kept, plan, seconds, columns_path)


def row_groups(source: Any, session: Session, n_columns: int, settings: ColumnSettings, plan: Plan) -> RowGroups:
    """The rows, with what the plan has left for them."""
    size = block_rows(n_columns, source.n_features, settings.dtype)
    return RowGroups(source, session, plan.shape["rows_budget"] or None, block_rows=size)


def _whole(groups: RowGroups, job: ColumnJob, keeper: Keeper) -> Moments:
    moments = run_pass(groups, job, partials=keeper.partials(0), after_wave=lambda wave: keeper.after(0, 1, wave))
    if moments is None:
        raise InterruptedRunError("stopped during the pass over the rows", mend="`dkl resume` the run, or fit anew")
    return moments


def _shared(moments: Moments, settings: ColumnSettings) -> CentredGram:
    if settings.n_folds == 1:
        return CentredGram.of(moments, intercept=settings.fit_intercept)
    return CentredGram.of(held_out(moments, -1), intercept=settings.fit_intercept)


def _by_panels(
    groups: RowGroups, job: ColumnJob, keeper: Keeper, height: int, path: Path, intercept: bool
) -> CentredGram:
    """B written to disk, `height` rows a pass."""
    M = job.n_columns
    if not is_created(path):
        create_gram(path, M)
    stored = GramRows(path)
    step = max(1, height // stored.rows_per_chunk) * stored.rows_per_chunk
    bounds = [(lo, min(lo + step, M)) for lo in range(0, M, step)]
    last: Moments | None = None
    for number, bound in enumerate(bounds):
        if keeper.panel_done(number) and number < len(bounds) - 1:
            continue
        last = run_pass(
            groups,
            replace(job, panel=bound, store=job.store if number == 0 else None),
            partials=keeper.partials(number),
            after_wave=lambda wave, number=number: keeper.after(number, len(bounds), wave),  # type: ignore[misc]
        )
        if last is None:
            raise InterruptedRunError("stopped during a pass over the rows", mend="`dkl resume` the run, or fit anew")
        write_rows(path, bound[0], last[0][0])
        keeper.panel_written(number)
    assert last is not None
    diagonal = np.concatenate([np.diagonal(stored[lo:hi][:, lo:hi]) for lo, hi in _chunks(M, stored.rows_per_chunk)])
    return CentredGram.of(last, intercept=intercept, gram=stored, diagonal=diagonal)


def _chunks(count: int, step: int) -> list[tuple[int, int]]:
    return [(lo, min(lo + step, count)) for lo in range(0, count, step)]


def predicted(
    rows: RowBlocks, kernel: Kernel, points: Any, weights: NDArray[np.float64], intercepts: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n, T): sum_m weights[t, m] k(x, z_m) + intercept, block by block."""
    return np.concatenate(rows.map(predict_block, kernel, points, weights, intercepts))
