"""The way from rows and targets to the solvers' sums: choose candidates, plan memory, make one pass.

Used by every regressor on kernel columns and by the command line. With a run's folder the pass is kept in between, and
resumes from there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.predictions import FewRows, predict_block
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_groups import RowGroups
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.regression.columns.candidates import (
    Candidates,
    choose_candidates,
    kernel_between,
    kernel_of,
    n_candidates,
    plan_fit,
)
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.kernels.kernel_columns import Kernel, block_rows
from dkl.linalg.rows.column_moments import Moments
from dkl.problems.regression.column_gram import CenteredGram, held_out
from dkl.problems.regression.column_pass import ColumnJob, Wave, near_means, run_pass, targets_and_roots
from dkl.problems.regression.column_ridge import ColumnFold
from dkl.solvers.watch import Watch
from dkl.stores.kernels import GramRows, create_columns, create_gram, is_created, write_gram

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import RowSource
    from dkl.estimators.base.validation import CheckedRows
    from dkl.linalg.rows import Rows


@dataclass
class ColumnSums:
    """Result of a pass over the rows.

    `sums` is B and C'y of all rows, or None where the watch ended the pass; `moments` are raw sums
    (folds apart); squares (T,): sums of squares of the targets, about their means where an intercept is fitted; weight: the sum of the
    sample weights; between (M, M): the kernel between the columns' points, scaled as they are, where settings want it."""

    candidates: Candidates
    sums: CenteredGram | None
    moments: Moments | None
    plan: Plan
    seconds: dict[str, float]
    squares: NDArray[np.float64]
    weight: float
    columns_path: str | None = None
    between: NDArray[np.float64] | None = None

    @property
    def shared(self) -> CenteredGram:
        """Return B and C'y of all rows."""
        assert self.sums is not None
        return self.sums

    def folds(self, settings: Any) -> list[ColumnFold]:
        """Return for each fold B and C'y of all other rows, and the fold's own sums."""
        assert self.moments is not None
        return [
            ColumnFold(
                CenteredGram.of(held_out(self.moments, fold), intercept=settings.fit_intercept, eps=_eps(settings)),
                self.moments,
                fold,
                settings.lam,
            )
            for fold in range(settings.n_folds)
        ]


class PassStorage:
    """Interface for storing a pass in between; this one stores nothing."""

    def candidates(self) -> Candidates | None:
        """Return the candidates of an earlier attempt, if any."""
        return None

    def chosen(self, candidates: Candidates) -> None:
        """Record the chosen candidates."""

    def partials(self, panel: int) -> dict[Any, Any]:
        """Return the state to start panel number `panel` with."""
        return {}

    def panel_done(self, panel: int) -> bool:
        """Return whether the panel is complete."""
        return False

    def after(self, panel: int, panels: int, wave: Wave, is_stopped: bool) -> None:
        """Record a finished wave. is_stopped: the watch has ended the pass, so what is not stored now is lost."""

    def panel_written(self, panel: int) -> None:
        """Record that the panel's rows of B are written."""


def make_pass(
    rows: CheckedRows,
    y: NDArray[np.float64],
    sample_weight: NDArray[np.float64] | None,
    settings: ColumnSettings,
    session: Session,
    *,
    given: object = None,
    fold_of: NDArray[np.integer] | None = None,
    folder: Path | None = None,
    keeper: PassStorage | None = None,
    watch: Watch | None = None,
) -> ColumnSums:
    """Choose candidates (unless the keeper has them) and add up all that solvers need of their columns.

    fold_of (n,): the fold of each row, for settings with folds; None draws them. folder: where the Gram matrix goes if it
    is too large for memory, and the columns if they are to be kept. A row of the watch is a wave of blocks. Raises
    InterruptedRunError where the run is to be resumed.
    """
    keeper = keeper or PassStorage()
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
        if len(candidates.scale) != count:  # fewer: an attempt that resumes from here cuts its blocks for as many
            groups = row_groups(source, session, len(candidates.scale), settings, plan)
    chosen = time.perf_counter()
    columns_path = _columns_path(folder, source.n, len(candidates.scale), groups, settings)
    if settings.n_folds > 1 and fold_of is None:
        fold_of = random_folds(source.n, sample_weight, settings.n_folds, settings.seed)
    job = ColumnJob(
        kernel_of(settings, candidates.gamma),
        candidates.points,
        candidates.scale,
        targets_and_roots(y, sample_weight),
        settings.dtype,
        settings.n_folds,
        fold_of,
        store=columns_path,
    )
    if settings.fit_intercept:  # without one a shift of the columns would change the problem
        job = replace(job, shift=near_means(job))
    waves = _Waves(keeper, watch or Watch())
    sums, kept = _summed(groups, job, waves, settings, plan.shape["panel"], folder)
    waves.watch.raise_if_interrupted("stopped during the pass over the rows")
    seconds = {"columns": chosen - started, "pass": time.perf_counter() - chosen}
    weights = np.ones(len(y)) if sample_weight is None else sample_weight
    squares = _squares(y, weights, settings.fit_intercept) if sums is None else sums.squares
    between = None
    if settings.between_columns and sums is not None:
        between = kernel_between(groups, kernel_of(settings, candidates.gamma), candidates)
    return ColumnSums(candidates, sums, kept, plan, seconds, squares, float(weights.sum()), columns_path, between)


class _Waves:
    """Reporter of the waves of a pass, which also has them stored."""

    def __init__(self, keeper: PassStorage, watch: Watch) -> None:
        self.keeper, self.watch = keeper, watch

    def run(self, groups: RowGroups, job: ColumnJob, panel: int = 0, panels: int = 1) -> Moments | None:
        """Make pass `panel` of `panels` over the rows; None if the watch ended it."""
        stage = self.watch.stage("pass", of=panels * groups.n_groups)

        def after(wave: Wave) -> bool:
            outcome = stage.record({"iteration": panel * wave.total + wave.done})
            self.keeper.after(panel, panels, wave, outcome is not None)
            return outcome is not None

        return run_pass(groups, job, partials=self.keeper.partials(panel), after_wave=after)


def _columns_path(folder: Path | None, n: int, count: int, groups: RowGroups, settings: ColumnSettings) -> str | None:
    """Return the path of the stored columns (n, count), created if missing; None if they are not stored."""
    if not settings.store_columns:
        return None
    assert folder is not None
    path = str(folder / "columns")
    if not is_created(path):
        create_columns(path, n, count, groups.block_rows, settings.dtype)
    return path


def _summed(
    groups: RowGroups, job: ColumnJob, waves: _Waves, settings: ColumnSettings, panel: int | None, folder: Path | None
) -> tuple[CenteredGram | None, Moments | None]:
    """Return (B and C'y, the sums of each fold if there are any); None where the watch ended the pass."""
    if panel is not None:
        assert folder is not None
        return _by_panels(groups, job, waves, panel, folder / "gram", settings), None
    moments = waves.run(groups, job)
    if moments is None:
        return None, None
    if settings.n_folds == 1:
        return CenteredGram.of(moments, intercept=settings.fit_intercept, eps=_eps(settings), shift=job.shift), None
    own = held_out(moments, -1)
    return CenteredGram.of(own, intercept=settings.fit_intercept, eps=_eps(settings), shift=job.shift), moments


def _eps(settings: ColumnSettings) -> float:
    """Return the precision of the columns."""
    return float(np.finfo(settings.dtype).eps)


def _squares(y: NDArray[np.float64], weights: NDArray[np.float64], intercept: bool) -> NDArray[np.float64]:
    """Return y'S y (T,) of targets, about weighted means with an intercept: the objective of no column."""
    centred = y - np.average(y, axis=0, weights=weights) if intercept else y
    return np.asarray(weights @ centred**2)


def row_groups(source: RowSource, session: Session, n_columns: int, settings: ColumnSettings, plan: Plan) -> RowGroups:
    """Group the rows for the pass, within the memory that the plan leaves for them."""
    size = block_rows(n_columns, source.n_features, settings.dtype)
    return RowGroups(source, session, plan.shape["rows_budget"] or None, block_rows=size)


def _by_panels(
    groups: RowGroups, job: ColumnJob, waves: _Waves, height: int, path: Path, settings: ColumnSettings
) -> CenteredGram | None:
    """Write B to disk, `height` rows a pass, and open it."""
    M, keeper = job.n_columns, waves.keeper
    if not is_created(path):
        create_gram(path, M)
    stored = GramRows(path)
    step = max(1, height // stored.rows_per_chunk) * stored.rows_per_chunk
    bounds = [(lo, min(lo + step, M)) for lo in range(0, M, step)]
    last: Moments | None = None
    for number, bound in enumerate(bounds):
        # The last pass is repeated: the sums other than B, such as C'y, are taken from it.
        if keeper.panel_done(number) and number < len(bounds) - 1:
            continue
        # Every pass computes all columns, which are stored once.
        of_panel = replace(job, panel=bound, store=job.store if number == 0 else None)
        last = waves.run(groups, of_panel, number, len(bounds))
        if last is None:
            return None
        write_gram(path, bound[0], last[0][0])
        keeper.panel_written(number)
        if number < len(bounds) - 1 and waves.watch.outcome is not None:
            return None
    assert last is not None
    diagonal = np.concatenate([np.diagonal(stored[lo:hi][:, lo:hi]) for lo, hi in _chunks(M, stored.rows_per_chunk)])
    return CenteredGram.of(
        last, intercept=settings.fit_intercept, eps=_eps(settings), gram=stored, diagonal=diagonal, shift=job.shift
    )


def _chunks(count: int, step: int) -> list[tuple[int, int]]:
    return [(lo, min(lo + step, count)) for lo in range(0, count, step)]


def predicted(
    rows: RowBlocks | FewRows,
    kernel: Kernel,
    points: Rows,
    weights: NDArray[np.float64],
    intercepts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return predictions (n, T), sum_m weights[t, m] k(x, z_m) + intercept, block by block."""
    return np.concatenate(rows.map(predict_block, kernel, points, weights, intercepts))


# Folds of rows for cross-validation: drawn, or from a splitter of scikit-learn.


def random_folds(n: int, sample_weight: NDArray[np.float64] | None, n_folds: int, seed: int) -> NDArray[np.intp]:
    """Return random folds (n,), equal in size up to a row, of rows with a weight; -1 for the others."""
    rows = np.arange(n) if sample_weight is None else np.flatnonzero(sample_weight)
    if len(rows) < n_folds:
        raise InputError("more folds than rows with a weight", where="cv", got=n_folds, wanted=f"at most {len(rows)}")
    found = np.full(n, -1, np.intp)
    found[np.random.default_rng([seed, 1]).permutation(rows)] = np.arange(len(rows)) % n_folds
    return found


def fold_numbers(
    cv: object, targets: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.intp]:
    """Return the test set (n,) that each row is in; the splits' test sets must partition the rows."""
    from sklearn.model_selection import check_cv  # half a second, which a model that is only loaded does without

    n = len(targets)
    found = np.full(n, -1, np.intp)
    try:
        rows = np.arange(n)
        # Of X a splitter needs the number of rows alone.
        given = check_cv(cv).split(np.empty((n, 1)), targets[:, 0])
        # Row numbers also where a splitter gives masks.
        splits = [(rows[np.asarray(train)], rows[np.asarray(test)]) for train, test in given]
        held_out = np.zeros(n, np.intp)
        whole = len(splits) > 1
        for number, (train, test) in enumerate(splits):
            held_out[test] += 1
            found[test] = number
            rest = np.ones(n, bool)
            rest[test] = False
            whole &= bool(len(test) and rest.any()) and np.array_equal(np.sort(train), np.flatnonzero(rest))
    except (TypeError, ValueError, IndexError) as error:
        raise InputError("not splits of these rows", where="cv", got=error) from error
    if not (whole and (held_out == 1).all()):
        wanted = "2 or more test sets that hold out each row once, and train sets of all other rows"
        raise InputError("not a partition of the rows", where="cv", got=repr(cv)[:80], wanted=wanted)
    weighed = found if sample_weight is None else found[sample_weight > 0]
    if len(np.unique(weighed)) < len(splits):
        raise InputError("a test set has no row with a weight", where="cv", got=repr(cv)[:80])
    return found
