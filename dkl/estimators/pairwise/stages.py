"""Stages of a fit: Algorithm 1 (ADMM), and the factored solver, by itself or after it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.distributed_products import product_on
from dkl.blocks.memory_plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.slabs.export import export_factor, exported_columns
from dkl.blocks.slabs.placement import RunCheckpoints, Workspace
from dkl.errors import NumericalError, StoreError
from dkl.estimators.pairwise.arrays import history
from dkl.estimators.pairwise.factored import LowRankRequest, solved_here, solved_on_workers
from dkl.estimators.pairwise.plan import LEAST_FINISH_RANK, SharedPlan, finish_rank
from dkl.estimators.pairwise.search_state import LowRankSnapshotNotes, SearchStore, lengths_of
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.admm import PAPER, PairwiseADMM
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart, WarmStart
from dkl.solvers.pairwise.admm import ADMMStepper, Loop, NoCheckpoints
from dkl.solvers.watch import Outcome, Remedies, Row, Watch, remedies
from dkl.stores.run import RunStore
from dkl.stores.seals import read_json, require_identity

# Parts shared by the stages of a fit: the problem, its resources, the clock, and a stage's result.

FINISH_SHARE = 20
"""Iterations of the factored solver for each of ADMM: at a fraction of the rank they cost less."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen target_gap; where that is None loosen tol, or set it to finish by a second-order"
    " method",
    stationary="the residuals are at tol, which proves nothing: set target_gap, or more memory_limit where it is set",
    stalled="rounding ends all progress: loosen target_gap, or use dtype='float64' if it is not",
    numerical_error="a value stopped being finite: lower gamma, or use dtype='float64' if it is not; the last commit is kept",
)
FACTORED_REMEDIES = {
    **REMEDIES,
    Outcome.ITERATION_LIMIT: "raise max_iter, or loosen target_gap, or tol where there is none",
    Outcome.STALLED: "rounding ends all progress: loosen target_gap, or tol where there is none, or use dtype='float64' if it is not",
}


@dataclass
class Stage:
    """Result of a stage of a fit.

    The factor, or None where it is in the run's store alone; how near it is to the optimum; why it ended; how often lost
    workers sent it back.
    """

    factor: NDArray | None
    certificate: Certificate
    outcome: Outcome
    restarts: int = 0


def outcome_of(ended: Outcome, proven: float, goal: float | None, *, unproven: Outcome) -> Outcome:
    """Return the outcome of a factor that is proven within `proven` of the optimum.

    SOLVED only if there is a goal and `proven` is within it; `unproven` if the solver itself took it for solved; else why the
    solver ended.
    """
    if goal is not None and proven <= goal:
        return Outcome.SOLVED
    return unproven if ended is Outcome.SOLVED else ended


def remedies_of(settings: PairwiseSettings) -> Remedies:
    """Return the remedies by outcome for the solver in use."""
    return FACTORED_REMEDIES if settings.solver == "factored" else REMEDIES


@dataclass
class Context:
    """Context shared by the stages of one fit."""

    problem: PairwiseKernel
    settings: PairwiseSettings
    session: Session
    plan: Plan
    rank: int
    run: RunStore | None
    scratch: RunStore | None
    watch: Watch
    clock: Clock


class Clock:
    """Wall time by stage; seconds: of the stages before."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self.at = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.at
        self.at = now


# Algorithm 1 of a fit, from its last commit if there is one, and its certificate.


def by_admm(fit: Context, warm_start: NDArray | None) -> Stage:
    """Run Algorithm 1, and certify its result."""
    settings, problem = fit.settings, fit.problem
    # The plan is of one process then: workers would need memory that it does not count.
    session = fit.session.here() if fit.plan.idle_workers else fit.session
    rules: dict[str, Any] = {"adapt_rho": settings.adapt_rho, "stopping": settings.stopping}
    program = problem.admm(fit.rank, settings.dtype, settings.tol, **rules)
    fill: RandomStart | WarmStart = RandomStart(settings.seed, problem.n, fit.rank)
    if warm_start is not None:
        fill = WarmStart(warm_start[:, : fit.rank], settings.seed, fit.rank)
    store = fit.run or (fit.scratch if fit.plan.placement == "disk" else None)
    workspace = Workspace(session, fit.plan, store, fit.scratch)
    stepper = ADMMStepper(
        lambda: workspace.new_placement(program),
        fill,
        program.start(settings.rho),
        workspace.newest,
        program.is_carry,
    )
    checkpoints: Any = NoCheckpoints()
    if store is not None:
        checkpoints = RunCheckpoints(store, lambda: stepper.placement, settings.checkpoint_every)
    loop = Loop(settings.max_iter, checkpoints, fit.watch.stage("admm", max_iter=settings.max_iter))
    try:
        outcome = _iterate(fit, loop, stepper)
        factor, entries, smooth = _read(fit, loop, stepper, program, store)
    finally:
        stepper.close()
        workspace.close()
    certificate = problem.certificate(entries, smooth, product=product_on(session), seed=settings.seed)
    fit.clock.lap("certificate")
    proven = float(certificate.relative_gap)
    outcome = outcome_of(outcome, proven, settings.goal, unproven=Outcome.STATIONARY)
    return Stage(factor, certificate, outcome, loop.restarts)


def _iterate(fit: Context, loop: Loop, stepper: ADMMStepper) -> Outcome:
    """Run the iterations, from the last commit if there is one."""
    iteration, row = loop.begin(stepper)
    if fit.run is not None and iteration:
        loop.watch.resume(history(fit.run, iteration))
    fit.clock.lap("start")
    outcome = loop.run(stepper, iteration, row)
    fit.clock.lap("solve")
    if outcome is Outcome.STOPPED:
        fit.watch.raise_if_interrupted(f"stopped at iteration {loop.watch.history[-1]['iteration']}")
    if outcome is Outcome.NUMERICAL_ERROR:
        raise NumericalError(REMEDIES[outcome], where="ADMM")
    return outcome


def _read(
    fit: Context, loop: Loop, stepper: ADMMStepper, program: PairwiseADMM, store: RunStore | None
) -> tuple[NDArray | None, NDArray, float]:
    """Return (factor or None if it is on disk, K on T, tr(KL)) of the end state."""
    problem, rank = fit.problem, fit.rank
    sums = loop.finish(stepper, lambda: stepper.placement.sums())
    entries, smooth = problem.evaluate_sums(program, sums)
    # The best multiple of K costs nothing, and makes <S, K> zero in the certificate. The paper's K is U U' itself.
    scale = 1.0 if program.stopping == PAPER else problem.scale(entries, smooth)
    factor = None
    if fit.plan.placement == "memory":
        collected = loop.finish(stepper, lambda: stepper.placement.collect("U"))
        factor = collected * np.sqrt(scale).astype(program.dtype)
        # Some columns at a time: products of all would need another array of the factor's size.
        columns: Iterable[NDArray] = (factor[:, lo : lo + 16] for lo in range(0, rank, 16))
        if fit.run is not None:
            fit.run.write_factor(factor)
    else:
        assert store is not None
        generation = next(store.generations().newest_first())
        export_factor(fit.session, store, generation, "U", rank, float(np.sqrt(scale)))
        columns = exported_columns(generation, "U", rank, float(np.sqrt(scale)))
    entries, smooth = scale * entries, scale * smooth
    if program.dtype != np.float64:  # their sums are rounded, and so is the factor: certify what is handed out
        entries, smooth = problem.evaluate_columns(columns)
    fit.clock.lap("result")
    return factor, entries, smooth


# Stage of a fit by the factored solver: by itself ("factored"), or after ADMM ("finish").

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
        # By its checksums before it is believed: a damaged factor would be a bad start, and no error.
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
        # The setting counts iterations of ADMM, whichever solver runs.
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
        fit.run.write_factor(found.factor)
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
        # No further than the commit: the log may have rows of iterations that are to be done again.
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
