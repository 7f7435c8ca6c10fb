"""Stages of a fit of a pairwise kernel: plan, ADMM or factored solver, certificate, finish to a gap.

Used by the estimator and by the command line; with a run's folder every stage is on disk and `resume` continues from it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.graph.neighbor_graph import Graph, build_graph, graph_of
from dkl.blocks.memory_plan import note_idle_workers
from dkl.blocks.session import Session
from dkl.blocks.slabs.export import compressed
from dkl.errors import DataWarning
from dkl.estimators.base.progress import warn_of
from dkl.estimators.base.rules import width_rule
from dkl.estimators.pairwise.plan import MAX_FINISH_RANK, SharedPlan, chosen_rank, finish_rank, make_plan, solver_of
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stages import (
    ALONE,
    FINISH,
    Clock,
    Context,
    Stage,
    by_admm,
    by_factored,
    remedies_of,
    stored_stage,
)
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import check_gamma, check_weights
from dkl.resources import peak_rss
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_path import GammaChoice
from dkl.solvers.watch import Outcome, Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


@dataclass
class PairwiseFit:
    """Result of a fit.

    `factor` is an ndarray, or None where it is in the run's store alone; settings: as they were given; solver:
    "admm" or "factored"; choice: of gamma, if it was chosen.
    """

    factor: NDArray | None
    certificate: Certificate
    result: Result
    rank: int
    settings: PairwiseSettings
    solver: str
    gamma: float
    choice: GammaChoice | None = None


def make_problem(laplacian: sparse.csr_array, pairs: Pairs, gamma: float) -> PairwiseKernel:
    """Make the pairwise problem of a Laplacian (n, n) and pairs; InputError for a bad gamma or weights."""
    # gamma weighs pairs against L: what is too large for it depends on the size of L. 0 of a graph without edges.
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
) -> PairwiseFit:
    """Learn the kernel of a problem whose graph and pairs are there. `run` keeps commits and the result.

    Where the watch ends it, the result is the factor so far; InterruptedRunError where it is to be resumed, as soon as the
    iteration is committed. NumericalError where a value is not finite.
    """
    watch, given = (watch or Watch()).stage(), settings
    settings = replace(settings, solver=solver_of(problem, settings, session, run))
    clock, rank = Clock(seconds), chosen_rank(problem, settings)
    plan = make_plan(problem, settings, session, has_store=run is not None or scratch is not None)
    note_idle_workers(plan)
    fit = Context(problem, settings, session, plan, rank, run, scratch, watch, clock)
    if settings.solver == "factored":
        shared = SharedPlan.of(problem, settings, session)
        stage = by_factored(fit, ALONE, warm_start, _asked(settings), shared, stored_stage(fit, ALONE))
    else:
        stage = _by_admm_and_finish(fit, warm_start)
    # Before the result: a run that is to be resumed must have none.
    watch.raise_if_interrupted("stopped during the finish")
    history, proven = watch.history, float(stage.certificate.relative_gap)
    result = Result(
        stage.outcome,
        len(history),
        history,
        clock.seconds | {"total": watch.seconds},
        peak_rss(),
        stage.restarts,
        plan.as_dict(),
        remedies_of(settings)[stage.outcome],
        proven,
        asked=_asked(settings),
    )
    warn_of(result, stacklevel=4, more=f"relative gap {proven:.2g}")
    reached = rank if stage.factor is None else int(stage.factor.shape[1])
    return PairwiseFit(stage.factor, stage.certificate, result, reached, given, settings.solver, problem.gamma)


def _asked(settings: PairwiseSettings) -> float:
    """Return the relative gap that is to be proven."""
    return settings.tol if settings.goal is None else settings.goal


def _by_admm_and_finish(fit: Context, warm_start: NDArray | None) -> Stage:
    """Run Algorithm 1 and the finish from its end to the goal; resume within the finish if stored."""
    goal = fit.settings.goal
    resume_from = None if goal is None else stored_stage(fit, FINISH)
    if goal is not None and resume_from is not None:
        return by_factored(fit, FINISH, None, goal, SharedPlan.of(fit.problem, fit.settings, fit.session), resume_from)
    stage = by_admm(fit, warm_start)
    return stage if goal is None else _finished(fit, stage, goal)


def _finished(fit: Context, stage: Stage, goal: float) -> Stage:
    """Return the stage if solved, stopped or short of memory; else the second-order low-rank finish.

    A stage is solved if its gap is small enough.
    """
    if stage.outcome is Outcome.SOLVED:
        return stage
    if fit.watch.outcome is not None:
        return replace(stage, outcome=fit.watch.outcome)
    shared = SharedPlan.of(fit.problem, fit.settings, fit.session)
    most = finish_rank(fit.problem, fit.settings) if shared is None else shared.rank
    if most == 0:
        return stage
    start = stage.factor
    if start is None:
        store = fit.run or fit.scratch
        assert store is not None
        # The factor is on disk alone: what comes into memory is its leading columns, as many as the finish may take.
        start = compressed(store, 4 * MAX_FINISH_RANK if fit.settings.memory_limit is None else most)
    found = by_factored(fit, FINISH, start, goal, shared, None)
    return replace(found, restarts=found.restarts + stage.restarts)


# The neighbor graph of the rows that pairs are of.


def graph_for(rows: Rows, session: Session, settings: PairwiseSettings, *, is_affinity: bool) -> Graph:
    """Return the graph of checked rows (n, d), or of an affinity (n, n), and warn of too few rows, from the caller of `fit`."""
    if is_affinity:
        return graph_of(rows, laplacian=settings.laplacian, warns_of_cuts=False)
    others = int(rows.shape[0]) - 1
    if settings.n_neighbors > others:
        warnings.warn(
            f"n_neighbors={settings.n_neighbors}, but there are {others + 1} rows: all others are taken",
            DataWarning,
            stacklevel=3,
        )
    return build_graph(
        rows,
        n_neighbors=min(settings.n_neighbors, others),
        sigma=width_rule(settings.sigma, "average"),
        warns_of_cuts=False,  # the pairs join what weights cut
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        session=session,
    )
