"""Stage of a fit by the factored solver: by itself ("factored"), or after ADMM ("finish")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.slabs.export import store_factor
from dkl.errors import NumericalError, StoreError
from dkl.estimators.pairwise.factored import LowRankRequest, solved_here, solved_on_workers
from dkl.estimators.pairwise.factored_plan import LEAST_FINISH_RANK, SharedPlan, finish_rank
from dkl.estimators.pairwise.history import history
from dkl.estimators.pairwise.search_state import LowRankSnapshotNotes, lengths_of
from dkl.estimators.pairwise.search_store import SearchStore
from dkl.estimators.pairwise.stage import FINISH_SHARE, REMEDIES, Context, Stage, outcome_of
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Row, Watch
from dkl.stores.run import RunStore
from dkl.stores.run_identity import require_identity
from dkl.stores.sealed_json import read_json

ALONE, FINISH = "factored", "finish"
"""The stage of a fit by the factored solver alone, and the one after ADMM."""


@dataclass(frozen=True)
class StageResumePoint:
    """Stage of the factored solver that a run has stored."""

    store: SearchStore
    snapshot: LowRankSnapshotNotes


def stored_stage(fit: Context, name: str) -> StageResumePoint | None:
    """Return the stage of the factored solver that the run has stored, if any."""
    if fit.run is None:
        return None
    store = SearchStore(fit.run, fit.settings.checkpoint_every, name, lengths_of(fit.problem))
    snapshot = store.load()
    return None if snapshot is None else StageResumePoint(store, snapshot)


def left_in(fit: Context, goal: float) -> tuple[NDArray, list[Row]] | None:
    """Return the factor and rows that this solver alone left in a completed run to be continued.

    A run is continued to a smaller gap or past a limit. The rows are those of its history.
    None for a result that is only to be recomputed: it has the same bytes then.
    """
    reports = [] if fit.run is None else sorted(fit.run.path.glob("report-*.json"))
    if fit.run is None or not reports:
        return None
    try:
        report = read_json(reports[-1], sealed=True)
        require_identity(report, fit.run.identity, reports[-1])
        rows = history(fit.run, int(report["n_iter"]))
        if float(report["certificate"]["relative_gap"]) <= goal or rows[-1].get("stage") != ALONE:
            return None
        fit.run.check_part("factor", whole=True)
        return np.asarray(fit.run.factor()[...], dtype=np.float64), rows
    except (StoreError, KeyError, TypeError, ValueError, OverflowError, IndexError):
        return None  # damaged: it is learned again


def by_factored(
    fit: Context,
    name: str,
    start: NDArray | None,
    goal: float,
    shared: SharedPlan | None,
    resume_from: StageResumePoint | None,
) -> Stage:
    """Run the factored solver to a proven relative gap, from `resume_from`, a result of the run, or `start`.

    start: a factor of any rank; None for a random one.
    """
    settings, problem, past = fit.settings, fit.problem, fit.watch.history
    rank = None if settings.rank == "auto" or start is not None else int(settings.rank)
    if resume_from is None and name == ALONE and (left := left_in(fit, goal)) is not None:
        (start, past), rank = left, int(left[0].shape[1])
    store, watch = _kept_stage(fit, name, resume_from, past, on_workers=shared is not None)
    most = finish_rank(problem, settings) if shared is None else shared.rank
    request = LowRankRequest(
        gap=goal,
        rank=rank,
        max_rank=most or min(LEAST_FINISH_RANK, problem.n),
        max_iter=FINISH_SHARE * settings.max_iter,
        seed=settings.seed,
        dtype=settings.dtype,
    )
    restarts, snapshot = 0, None if resume_from is None else resume_from.snapshot
    try:
        if shared is None:
            found = solved_here(problem, start, request, watch, fit.session.threads, store, snapshot)
        else:
            found, restarts = solved_on_workers(problem, start, request, watch, fit.session, shared, store, snapshot)
    except NumericalError as error:
        raise NumericalError(REMEDIES[Outcome.NUMERICAL_ERROR], where=error.where) from None
    proven = float(found.certificate.relative_gap)
    # A goal that was reached before the factor was rounded, and is not any more, is rounding's affair.
    outcome = outcome_of(found.outcome, proven, goal, unproven=Outcome.STALLED)
    if fit.run is not None:
        store_factor(fit.run, found.factor)
    fit.clock.lap(name)
    return Stage(found.factor, found.certificate, outcome, restarts)


def _kept_stage(
    fit: Context, name: str, resume_from: StageResumePoint | None, rows: list[Row], *, on_workers: bool
) -> tuple[SearchStore | None, Watch]:
    """Return (store of the factored solver's state, watch of its stage with the rows it has).

    rows: of the history before a new stage. Without a run the store is None, except on workers, whose state goes to `scratch`.
    """
    run, before, every = fit.run, fit.watch.history, fit.settings.checkpoint_every
    if run is None:
        watch = fit.watch.stage(name, start={"iteration": len(before)})
        if fit.scratch is None or not on_workers:
            return None, watch
        return SearchStore(fit.scratch, every, name, lengths_of(fit.problem), len(before), must=False), watch
    if resume_from is None:
        store = SearchStore(run, every, name, lengths_of(fit.problem), len(rows))
        run.fsync()  # a commit is worth what its graph and pairs are
    else:
        store = resume_from.store
        rows = history(run, store.first + resume_from.snapshot.notes["count"])
    if not before:
        past = [row for row in rows if row["iteration"] <= store.first]
        # ADMM logs its rows with its commits, without the fields of its stage.
        admm = [row for row in past if "stage" not in row]
        fit.watch.stage("admm", max_iter=fit.settings.max_iter).resume(admm)
        fit.watch.stage().resume(past[len(admm) :])
    watch = fit.watch.stage(name, start={"iteration": store.first}, callbacks=[_Log(run)])
    watch.resume([row for row in rows if row["iteration"] > store.first])
    return store, watch


class _Log:
    """A callback that logs the rows of the factored solver with a run, as commits do those of ADMM."""

    passive = True

    def __init__(self, run: RunStore) -> None:
        self.run = run

    def __call__(self, row: Row) -> None:
        self.run.log(event="iteration", **row)
