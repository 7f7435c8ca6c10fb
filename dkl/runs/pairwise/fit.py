"""Fit of pairs in a run's folder: graph and pairs, stored to be resumed from, then the solver; and an estimate of its seconds."""

from __future__ import annotations

import time
from math import ceil
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.memory_plan import BYTES_A_SECOND, PROCESS_BASE, ROUND_SECONDS, Place, Plan
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import LocalPlacement
from dkl.estimators.base.rules import width_rule
from dkl.estimators.pairwise.choice import fit_pairs, problem_of, scale_of
from dkl.estimators.pairwise.held_out import HeldOutPairs, gammas_to_compare, largest_gamma
from dkl.estimators.pairwise.plan import EXCHANGES, GRAPH
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stages import FINISH_SHARE
from dkl.estimators.pairwise.store import (
    graph_notes,
    has_graph,
    load_pairs,
    load_problem,
    report_of,
    store_problem,
    write_result,
)
from dkl.linalg.slabs.slab_ops import slab_width
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.resources import format_bytes, one_blas_thread
from dkl.runs.inputs.files import Lazy
from dkl.runs.interrupt import echo
from dkl.runs.registry import Estimate, Notes
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.runs.pairwise.kind import PairwiseInputs


def fit(
    run: RunStore,
    found: Lazy[PairwiseInputs],
    settings: PairwiseSettings,
    session: Session,
    watch: Watch,
    notes: Notes,
) -> Result:
    """Fit or resume the run; see `RunKind.fit`."""
    seconds: dict[str, float] = {}
    if has_graph(run):
        # A gamma that is to be chosen takes the place of this one, so the Laplacian's scale need not be known.
        problem, pairs = load_problem(run, largest_gamma(settings, 1.0)), load_pairs(run)
    else:
        problem, pairs = _prepared(run, found, settings, session, seconds)
    held = HeldOutPairs.load(run, pairs, problem.n, settings, scale_of(problem.laplacian))
    with one_blas_thread():
        fitted = fit_pairs(problem, pairs, settings, session, held=held, run=run, watch=watch, seconds=seconds)
    write_result(run, fitted, notes(report_of(fitted, graph_notes(run))))
    return fitted.result


def _prepared(
    run: RunStore, found: Lazy[PairwiseInputs], settings: PairwiseSettings, session: Session, seconds: dict[str, float]
) -> tuple[PairwiseKernel, Pairs]:
    """Return the problem and pairs, once the graph is built and stored with them; `seconds`: by stage."""
    graph = build_graph(
        found().rows,
        n_neighbors=settings.n_neighbors,
        sigma=width_rule(settings.sigma, "average"),
        warns_of_cuts=False,  # the pairs join what weights cut
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        bytes_used=PROCESS_BASE + found().rows.own_bytes,
        session=session,
    )
    pairs = found().pairs
    held = HeldOutPairs.of(found().rows, pairs, settings, scale_of(graph.laplacian))
    found.release()  # the patterns' memory is the iterations' now
    problem = problem_of(graph.laplacian, pairs, settings)
    store_problem(run, graph, pairs, held)
    echo(graph.describe())
    seconds["graph"] = graph.seconds
    return problem, pairs


# -- seconds -----------------------------------------------------------------------------------------------------------
# From a few measured iterations.

SAMPLE = 20_000
"""Patterns of the problem on which an iteration is timed."""
TIMED = 3
SLAB_TRANSFERS = 12
"""Arrays of a slab that an iteration reads and writes where the state is on disk: four and two, three and three."""


def estimate(inputs: PairwiseInputs, settings: PairwiseSettings, plan: Plan, session: Session) -> Estimate:
    """Return sizes, shown before the plan, and seconds, after it."""
    place, n = Place.of(session.here() if plan.idle_workers else session), inputs.rows.n
    factored = "slabs" not in plan.shape  # those are ADMM's
    solver = "factored" if factored else "admm"
    rank = f"rank {plan.shape['rank']}" + (" at first" if factored else "")
    before = [
        f"{n:,} patterns, {inputs.rows.n_features:,} features, {inputs.pairs!r}, solver {solver}, {rank}",
        f"graph first: {format_bytes(plan.stages[GRAPH])} at most in addition to the process itself; then",
    ]
    after = ["  no tasks and nothing exchanged in an iteration: one process"] if plan.processes == 1 else []
    gammas = gammas_to_compare(inputs.pairs, settings, 1.0)
    if gammas is not None:
        what = "gamma" if settings.gamma == "cv" else "wrong pairs"
        work = f"{len(gammas)} kernels in each of {settings.cv} folds, to loose gaps"
        of_scale = (
            ""
            if settings.laplacian == "normalized" or settings.gamma != "cv"
            else " times the Laplacian's largest entry"
        )
        after += [
            f"  {what} first: {work}; gamma {', '.join(f'{gamma:.4g}' for gamma in gammas)}{of_scale}",
            f"  at the largest, {gammas[-1]:.4g}{of_scale}, a process takes {format_bytes(plan.process_bytes)}",
        ]
    time_one, most = (seconds_a_step, FINISH_SHARE) if factored else (seconds_an_iteration, 1)
    seconds = time_one(plan, settings, place, len(inputs.pairs.i))
    after += [
        f"about {seconds:.2g} s an iteration, up to {most * settings.max_iter} of them: timed here on {min(n, SAMPLE):,}",
        "random patterns with as many pairs and neighbors each, and scaled; disk and network taken at 500 MB/s",
    ]
    return Estimate(before, after)


def seconds_an_iteration(plan: Plan, settings: PairwiseSettings, place: Place, n_pairs: int) -> float:
    """Return the seconds of an iteration, timed on a small problem and scaled to the plan."""
    n, rank = plan.shape["n"], plan.shape["rank"]
    m = min(n, SAMPLE)
    slots = place.processes * place.threads
    threads = min(place.threads if not place.distributed else place.processes, plan.shape["slabs"])
    width = slab_width(rank, settings.dtype)
    program = _small_problem(m, settings, n_pairs / n).admm(threads * width, settings.dtype, 0.0)
    placement = LocalPlacement(program, threads=threads)
    try:
        placement.start(RandomStart(0, m, threads * width), program.start(settings.rho))
        placement.advance(1)  # compiles
        start = time.perf_counter()
        placement.advance(TIMED)
        seconds = (time.perf_counter() - start) / TIMED
    finally:
        placement.close()
    slabs = ceil(plan.shape["slabs"] / min(slots, plan.shape["slabs"]))
    seconds *= n / m * slabs
    if plan.placement == "disk":
        slab_bytes = n * width * np.dtype(settings.dtype).itemsize
        seconds += SLAB_TRANSFERS * plan.shape["slabs"] * slab_bytes / BYTES_A_SECOND
    if place.distributed:
        seconds += EXCHANGES * ROUND_SECONDS + plan.exchanged_per_iteration / place.processes / BYTES_A_SECOND
    return seconds


def seconds_a_step(plan: Plan, settings: PairwiseSettings, place: Place, n_pairs: int) -> float:
    """Return the seconds of a step of the factored solver here: a small problem's, scaled to the plan's."""
    n = plan.shape["n"]
    m = min(n, SAMPLE)
    problem = _small_problem(m, settings, n_pairs / n).factored(1 if place.distributed else place.threads)
    try:
        start = problem.padded(np.random.default_rng(0).standard_normal((m, min(plan.shape["rank"], m))))
        minimize(problem, start.copy(), tol=0.0, max_iter=1)  # compiles
        began = time.perf_counter()
        found = minimize(problem, start, tol=0.0, max_iter=TIMED)
        seconds = (time.perf_counter() - began) / max(found.n_iter, 1)
    finally:
        problem.close()
    return seconds * n / m


def _small_problem(n: int, settings: PairwiseSettings, pairs_a_pattern: float) -> PairwiseKernel:
    """Return a problem of a random graph and random pairs on n patterns, as dense as the real ones."""
    rng = np.random.default_rng(0)
    count = n * min(settings.n_neighbors, n - 1)
    ends = (np.repeat(np.arange(n), count // n), rng.integers(n, size=count))
    graph = sparse.coo_array((np.full(count, 0.5), ends), shape=(n, n)).tocsr()
    laplacian = sparse.csr_array(sparse.eye_array(n) - (graph + graph.T) / (2 * settings.n_neighbors))
    drawn = rng.integers(n, size=(max(1, int(n * pairs_a_pattern)), 2))
    drawn = drawn[drawn[:, 0] != drawn[:, 1]]
    pairs = Pairs(drawn[::2], drawn[1::2]).check(n, "drop")
    return PairwiseKernel.of(laplacian, pairs, largest_gamma(settings, 1.0))
