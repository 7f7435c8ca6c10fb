"""One fit of a pairwise kernel, stage by stage: plan, ADMM or the factored solver, certificate, and the finish to a gap.

Used by the estimator and by the command line; with a run's folder every stage is on disk and `resume` continues from it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.export import compressed, export_factor, exported_columns, store_factor
from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.sparse_operator import product_on
from dkl.blocks.workspace import RunCheckpoints, Workspace
from dkl.errors import NumericalError, StoreError
from dkl.estimators.common.outcomes import warn_of
from dkl.estimators.pairwise.factored import Request, solved_here, solved_on_workers
from dkl.estimators.pairwise.history import history
from dkl.estimators.pairwise.plan import (
    LEAST_FINISH_RANK,
    MAX_FINISH_RANK,
    SharedPlan,
    chosen_rank,
    finish_rank,
    make_plan,
    solver_of,
)
from dkl.estimators.pairwise.search_state import Told, lengths_of
from dkl.estimators.pairwise.search_store import SearchStore
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.pairs import Pairs
from dkl.problems.certificate import Certificate
from dkl.problems.pairwise import PairwiseKernel, RandomStart, WarmStart, check_gamma, check_weights
from dkl.problems.pairwise_admm import PairwiseADMM
from dkl.resources import peak_rss
from dkl.solvers.admm import ADMMStepper
from dkl.solvers.gamma_choice import GammaChoice
from dkl.solvers.loop import Loop, NoCheckpoints
from dkl.solvers.result import Outcome, Remedies, Result, remedies
from dkl.solvers.watch import Row, Watch
from dkl.stores.run import RunStore

FINISH_SHARE = 20
"""Iterations of the factored solver for each that is allowed of ADMM: at a fraction of the rank they cost less."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen target_gap; where that is None loosen tol, or set it to finish by a second-order"
    " method",
    stationary="the residuals are at tol, which proves nothing: set target_gap, or more memory_limit where it is set",
    stalled="rounding ends all progress: loosen target_gap, or use dtype='float64' if it is not",
    numerical_error="a value stopped being finite: lower gamma, or use dtype='float64'; the last commit is kept",
)
FACTORED_REMEDIES = {
    **REMEDIES,
    Outcome.ITERATION_LIMIT: "raise max_iter, or loosen target_gap, or tol where there is none",
    Outcome.STALLED: "rounding ends all progress: loosen target_gap, or tol where there is none, or use dtype='float64'",
}


@dataclass
class Fitted:
    """What a fit leaves. `factor` is an ndarray, or None where it stands in the run's store alone; settings: as they were given; solver:
    "admm" or "factored"; choice: of gamma, if it was chosen."""

    factor: NDArray | None
    certificate: Certificate
    result: Result
    rank: int
    settings: PairwiseSettings
    solver: str
    gamma: float
    choice: GammaChoice | None = None


@dataclass
class Stage:
    """What a stage of a fit leaves: the factor, or None where it stands in the run's store alone; how near it is to the
    optimum; why it ended; how often lost workers sent it back."""

    factor: NDArray | None
    certificate: Certificate
    outcome: Outcome
    restarts: int = 0


def make_problem(laplacian: sparse.csr_array, pairs: Pairs, gamma: float) -> PairwiseKernel:
    """Problem (1) of a graph's Laplacian (n, n) and pairs; InputError for a gamma, or weights, that do not go with it."""
    scale = float(laplacian.diagonal().max()) or 1.0
    check_gamma(gamma, scale)
    check_weights(gamma, pairs.weights, scale)
    return PairwiseKernel.of(laplacian, pairs, gamma)


def fit_problem(
    problem: PairwiseKernel,
    settings: PairwiseSettings,
    session: Session,
    *,
    run: RunStore | None = None,
    scratch: RunStore | None = None,
    watch: Watch | None = None,
    warm_start: NDArray | None = None,
    seconds: dict[str, float] | None = None,
) -> Fitted:
    """Learn the kernel of a problem whose graph and pairs are there. `run` keeps commits and the result.

    Where the watch ends it, the result is the factor so far; InterruptedRunError where it is to be resumed, as soon as the
    iteration is committed. NumericalError where a value is not finite.
    """
    watch, given = (watch or Watch()).stage(), settings
    settings = replace(settings, solver=solver_of(problem, settings, session, run))
    clock, rank = _Clock(seconds), chosen_rank(problem, settings)
    plan = make_plan(problem, settings, session, has_store=run is not None or scratch is not None)
    fit = _Fit(problem, settings, session, plan, rank, run, scratch, watch, clock)
    if settings.solver == "factored":
        goal = settings.tol if settings.goal is None else settings.goal
        stage = fit.by_factored("factored", warm_start, goal, SharedPlan.of(problem, settings, session))
    else:
        stage = fit.by_admm_and_finish(warm_start)
    watch.raise_if_interrupted("stopped during the finish")
    history, proven = watch.history, float(stage.certificate.relative_gap)
    result = Result(
        stage.outcome,
        len(history),
        history,
        clock.done(),
        peak_rss(),
        stage.restarts,
        plan.as_dict(),
        remedies_of(settings)[stage.outcome],
        proven,
    )
    warn_of(result, stacklevel=4, more=f"relative gap {proven:.2g}")
    reached = rank if stage.factor is None else int(stage.factor.shape[1])
    return Fitted(stage.factor, stage.certificate, result, reached, given, settings.solver, problem.gamma)


def outcome_of(ended: Outcome, proven: float, goal: float | None, *, unproven: Outcome) -> Outcome:
    """What may be said of a factor that is proven within `proven` of the optimum: SOLVED where a goal was asked for and that
    is within it, and nowhere else; `unproven` where the solver itself took it for solved; else why the solver ended."""
    if goal is not None and proven <= goal:
        return Outcome.SOLVED
    return unproven if ended is Outcome.SOLVED else ended


def remedies_of(settings: PairwiseSettings) -> Remedies:
    """What to do about an outcome, by the solver."""
    return FACTORED_REMEDIES if settings.solver == "factored" else REMEDIES


@dataclass
class _Fit:
    """What the stages of one fit share."""

    problem: PairwiseKernel
    settings: PairwiseSettings
    session: Session
    plan: Plan
    rank: int
    run: RunStore | None
    scratch: RunStore | None
    watch: Watch
    clock: _Clock

    def by_admm_and_finish(self, warm_start: NDArray | None) -> Stage:
        """Algorithm 1, and what goes on from there to the goal; from within the latter, where a run has come so far."""
        goal = self.settings.goal
        if goal is not None and (self.begun("finish") is not None or self.left("finish") is not None):
            return self.by_factored("finish", None, goal, SharedPlan.of(self.problem, self.settings, self.session))
        stage = self.by_admm(warm_start)
        return stage if goal is None else self.finished(stage, goal)

    def begun(self, name: str) -> Begun | None:
        """Where the run has kept a stage of the factored solver."""
        if self.run is None:
            return None
        store = SearchStore(self.run, self.settings.checkpoint_every, name, lengths_of(self.problem))
        told = store.load()
        return None if told is None else Begun(store, told)

    def left(self, name: str) -> NDArray | None:
        """The factor that this stage of the factored solver has left in the run, whole, if it was the last one to work there."""
        rows = [] if self.run is None else history(self.run)
        if self.run is None or not rows or rows[-1].get("stage") != name:
            return None
        try:
            self.run.check_part("factor", whole=True)
            return np.asarray(self.run.factor()[...], dtype=np.float64)
        except StoreError:
            return None  # it was never finished, or is damaged: it is learned again

    def by_admm(self, warm_start: NDArray | None) -> Stage:
        """Algorithm 1, and its certificate."""
        settings, problem = self.settings, self.problem
        program = problem.admm(self.rank, settings.dtype, settings.tol, adapt_rho=settings.adapt_rho)
        fill: Any = RandomStart(settings.seed, problem.n, self.rank)
        if warm_start is not None:
            fill = WarmStart(warm_start[:, : self.rank], settings.seed, self.rank)
        store = self.run or (self.scratch if self.plan.placement == "disk" else None)
        workspace = Workspace(self.session, self.plan, store, self.scratch)
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
        loop = Loop(settings.max_iter, checkpoints, self.watch.stage("admm", max_iter=settings.max_iter))
        try:
            outcome = self._iterate(loop, stepper)
            factor, entries, smooth = self._read(loop, stepper, program, store)
        finally:
            stepper.close()
            workspace.close()
        certificate = problem.certificate(entries, smooth, product=product_on(self.session), seed=settings.seed)
        self.clock.lap("certificate")
        proven = float(certificate.relative_gap)
        outcome = outcome_of(outcome, proven, settings.goal, unproven=Outcome.STATIONARY)
        return Stage(factor, certificate, outcome, loop.restarts)

    def _iterate(self, loop: Loop, stepper: ADMMStepper) -> Outcome:
        """The iterations, from the last commit if there is one."""
        iteration, row = loop.begin(stepper)
        if self.run is not None and iteration:
            loop.watch.resume(history(self.run, iteration))
        self.clock.lap("start")
        outcome = loop.run(stepper, iteration, row)
        self.clock.lap("solve")
        if outcome is Outcome.STOPPED:
            self.watch.raise_if_interrupted(f"stopped at iteration {loop.watch.history[-1]['iteration']}")
        if outcome is Outcome.NUMERICAL_ERROR:
            raise NumericalError(REMEDIES[outcome], where="ADMM")
        return outcome

    def _read(
        self, loop: Loop, stepper: ADMMStepper, program: PairwiseADMM, store: RunStore | None
    ) -> tuple[NDArray | None, NDArray, float]:
        """(factor or None if it is on disk, K on T, tr(KL)) of the end state."""
        problem, rank = self.problem, self.rank
        sums = loop.finish(stepper, lambda: stepper.placement.sums())
        entries, smooth = problem.evaluate_sums(program, sums)
        # The best multiple of K costs nothing, and makes <S, K> zero in the certificate.
        scale = problem.scale(entries, smooth)
        factor = None
        if self.plan.placement == "memory":
            collected = loop.finish(stepper, lambda: stepper.placement.collect("U"))
            factor = collected * np.sqrt(scale).astype(program.dtype)
            columns: Iterable[NDArray] = (factor[:, lo : lo + 16] for lo in range(0, rank, 16))
            if self.run is not None:
                store_factor(self.run, factor)
        else:
            assert store is not None
            generation = next(store.generations().newest_first())
            export_factor(self.session, store, generation, "U", rank, float(np.sqrt(scale)))
            columns = exported_columns(generation, "U", rank, float(np.sqrt(scale)))
        entries, smooth = scale * entries, scale * smooth
        if program.dtype != np.float64:  # their sums are rounded, and so is the factor: certify what is handed out
            entries, smooth = problem.evaluate_columns(columns)
        self.clock.lap("result")
        return factor, entries, smooth

    def finished(self, stage: Stage, goal: float) -> Stage:
        """The stage, if its gap is small enough, the watch has ended the run or memory is short of more; else the
        second-order low-rank finish."""
        if stage.outcome is Outcome.SOLVED:
            return stage
        if self.watch.outcome is not None:
            return replace(stage, outcome=self.watch.outcome)
        shared = SharedPlan.of(self.problem, self.settings, self.session)
        most = finish_rank(self.problem, self.settings) if shared is None else shared.rank
        if most == 0:
            return stage
        start = stage.factor
        if start is None:
            store = self.run or self.scratch
            assert store is not None
            start = compressed(store, 4 * MAX_FINISH_RANK if self.settings.memory_limit is None else most)
        found = self.by_factored("finish", start, goal, shared)
        return replace(found, restarts=found.restarts + stage.restarts)

    def by_factored(self, name: str, start: NDArray | None, goal: float, shared: SharedPlan | None) -> Stage:
        """The factored solver to a proven relative gap: from where the run has kept it, from what it has left there, from a factor of any
        rank or a random one."""
        settings, problem, left = self.settings, self.problem, None
        begun, rank = self.begun(name), None if settings.rank == "auto" or start is not None else int(settings.rank)
        if begun is None and (left := self.left(name)) is not None:
            start, rank = left, int(left.shape[1])
        store, watch = self._kept_stage(name, begun, goes_on=left is not None)
        most = finish_rank(problem, settings) if shared is None else shared.rank
        request = Request(
            gap=goal,
            rank=rank,
            max_rank=most or min(LEAST_FINISH_RANK, problem.n),
            max_iter=FINISH_SHARE * settings.max_iter,
            seed=settings.seed,
            dtype=settings.dtype,
        )
        restarts, told = 0, None if begun is None else begun.told
        try:
            if shared is None:
                found = solved_here(problem, start, request, watch, self.session.threads, store, told)
            else:
                found, restarts = solved_on_workers(problem, start, request, watch, self.session, shared, store, told)
        except NumericalError as error:
            raise NumericalError(REMEDIES[Outcome.NUMERICAL_ERROR], where=error.where) from None
        proven = float(found.certificate.relative_gap)
        # A goal that was reached before the factor was rounded, and is not any more, is rounding's affair.
        outcome = outcome_of(found.outcome, proven, goal, unproven=Outcome.STALLED)
        if self.run is not None:
            store_factor(self.run, found.factor)
        self.clock.lap(name)
        return Stage(found.factor, found.certificate, outcome, restarts)

    def _kept_stage(self, name: str, begun: Begun | None, *, goes_on: bool) -> tuple[SearchStore | None, Watch]:
        """Where the run keeps the factored solver's state, if there is a run, and the watch of its stage, with the rows it has.

        goes_on: from a factor that was left, so that rows of the log are its past.
        """
        run, before = self.run, self.watch.history
        if run is None:
            return None, self.watch.stage(name, start={"iteration": len(before)})
        if begun is None:
            rows = history(run) if goes_on else before
            store = SearchStore(run, self.settings.checkpoint_every, name, lengths_of(self.problem), len(rows))
            run.fsync()  # a commit is worth what its graph and pairs are
        else:
            store = begun.store
            rows = history(run, store.first + begun.told.notes["count"])
        if not before:
            past = [row for row in rows if row["iteration"] <= store.first]
            # ADMM logs its rows with its commits, without the fields of its stage.
            admm = [row for row in past if "stage" not in row]
            self.watch.stage("admm", max_iter=self.settings.max_iter).resume(admm)
            self.watch.stage().resume(past[len(admm) :])
        watch = self.watch.stage(name, start={"iteration": store.first}, callbacks=[_Log(run)])
        watch.resume([row for row in rows if row["iteration"] > store.first])
        return store, watch


@dataclass(frozen=True)
class Begun:
    """A stage of the factored solver that a run has kept."""

    store: SearchStore
    told: Told


class _Log:
    """A callback that logs the rows of the factored solver with a run, as commits do those of ADMM."""

    passive = True

    def __init__(self, run: RunStore) -> None:
        self.run = run

    def __call__(self, row: Row) -> None:
        self.run.log(event="iteration", **row)


class _Clock:
    """Wall time by stage."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self.at = time.perf_counter()

    def lap(self, stage: str) -> None:
        """What has passed since the last lap goes to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.at
        self.at = now

    def done(self) -> dict[str, float]:
        """Seconds by stage, and "total"."""
        return {**self.seconds, "total": sum(self.seconds.values())}
