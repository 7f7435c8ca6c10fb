"""One fit of a pairwise kernel, stage by stage: graph, plan, ADMM, result, certificate, and the finish to a gap.

Used by the estimator and by the command line; with a run's folder every stage is on disk and `resume` goes on from it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.export import compressed, export_factor, exported_columns, store_factor
from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.sparse_operator import product_on
from dkl.blocks.workspace import RunCheckpoints, Workspace
from dkl.errors import ConvergenceWarning, InterruptedRunError, NumericalError
from dkl.estimators.pairwise.settings import Settings, chosen_rank, make_plan
from dkl.pairs import Pairs
from dkl.problems.certificate import Certificate
from dkl.problems.pairwise import PairwiseKernel, RandomStart, WarmStart, target_matrix
from dkl.resources import peak_rss
from dkl.solvers.admm import ADMMStepper
from dkl.solvers.loop import Loop, NoCheckpoints, Row
from dkl.solvers.result import Outcome, Result
from dkl.stores.graph import read_csr, write_csr_blocks
from dkl.stores.run import RunStore

MAX_FINISH_RANK = 64
FINISH_SHARE = 20
"""Iterations of the factored solver for each that is allowed of ADMM: at a fraction of the rank they cost less."""


@dataclass
class Fitted:
    """What a fit leaves. `factor` is an ndarray, or None where it stands in the run's store alone."""

    factor: NDArray | None
    certificate: Certificate
    result: Result
    rank: int
    settings: Settings
    warm_start: NDArray | None = field(default=None, repr=False)


def make_problem(laplacian: sparse.csr_array, pairs: Pairs, gamma: float) -> PairwiseKernel:
    targets = target_matrix(int(laplacian.shape[0]), pairs.must_link, pairs.cannot_link)
    return PairwiseKernel(laplacian, targets, gamma)


def fit_problem(
    problem: PairwiseKernel,
    settings: Settings,
    session: Session,
    *,
    run: RunStore | None = None,
    scratch: RunStore | None = None,
    callbacks: Sequence[Callable[[Row], Any]] = (),
    warm_start: NDArray | None = None,
    seconds: dict[str, float] | None = None,
) -> Fitted:
    """Learn the kernel of a problem whose graph and pairs are there. `run` keeps commits and the result.

    A callback that stops the run gets the result so far; one with the attribute `comes_back = True` means to resume it,
    and gets an InterruptedRunError as soon as the iteration is committed.
    """
    clock = _Clock(seconds)
    rank = chosen_rank(problem, settings)
    plan = make_plan(problem, settings, session, has_store=run is not None or scratch is not None)
    if settings.solver == "factored":
        factor = warm_start
        history: list[Row] = []
        outcome, restarts = Outcome.SOLVED, 0
        entries, smooth = None, None
    else:
        factor, entries, smooth, outcome, history, restarts = _admm(
            problem, settings, session, plan, rank, run, scratch, callbacks, warm_start, clock
        )
    if outcome is Outcome.NUMERICAL_ERROR:
        raise NumericalError(outcome.remedy, where="ADMM")
    certificate = None
    if entries is not None and smooth is not None:
        certificate = problem.certificate(entries, smooth, product=product_on(session), seed=settings.seed)
        clock.lap("certificate")
    goal = settings.target_gap
    if settings.solver == "factored" and goal is None:
        goal = settings.tol
    if goal is not None and (certificate is None or certificate.relative_gap > goal):
        start = (
            factor if factor is not None or entries is None else compressed(_store(run, scratch), 4 * MAX_FINISH_RANK)
        )
        factor, certificate, outcome = _finish(problem, settings, start, goal, history, callbacks, session.threads)
        if settings.dtype != "float64":
            factor = factor.astype(settings.dtype)
            certificate = problem.certificate(*problem.evaluate(factor), product=product_on(session))
        if run is not None:
            store_factor(run, factor)
        clock.lap("finish")
    elif goal is not None:
        outcome = Outcome.SOLVED
    assert certificate is not None
    result = Result(outcome, len(history), history, clock.done(), peak_rss(), restarts, plan.as_dict())
    if not outcome.converged and outcome is not Outcome.STOPPED:
        warnings.warn(
            f"{result.message} (relative gap {certificate.relative_gap:.2g})", ConvergenceWarning, stacklevel=3
        )
    return Fitted(factor, certificate, result, _rank_of(factor, rank), settings)


def _rank_of(factor: NDArray | None, rank: int) -> int:
    return rank if factor is None else int(factor.shape[1])


def _store(run: RunStore | None, scratch: RunStore | None) -> RunStore:
    store = run or scratch
    assert store is not None
    return store


def _admm(
    problem: PairwiseKernel,
    settings: Settings,
    session: Session,
    plan: Plan,
    rank: int,
    run: RunStore | None,
    scratch: RunStore | None,
    callbacks: Sequence[Callable[[Row], Any]],
    warm_start: NDArray | None,
    clock: _Clock,
) -> tuple[NDArray | None, NDArray, float, Outcome, list[Row], int]:
    """Run Algorithm 1. (factor or None if it is on disk, K on T, tr(KL), outcome, history, restarts)."""
    program = problem.admm(rank, settings.dtype, settings.tol, adapt_rho=settings.adapt_rho)
    fill: Any = RandomStart(settings.seed, problem.n, rank)
    if warm_start is not None:
        fill = WarmStart(warm_start[:, :rank], settings.seed, rank)
    store = run if run is not None else (scratch if plan.placement == "disk" else None)
    workspace = Workspace(session, plan, store, scratch)
    stepper = ADMMStepper(lambda: workspace.place(program), fill, program.start(settings.rho), workspace.newest)
    checkpoints: Any = NoCheckpoints()
    if store is not None:
        checkpoints = RunCheckpoints(store, lambda: stepper.placement, settings.checkpoint_every)
    loop = Loop(settings.max_iter, checkpoints, callbacks)
    try:
        iteration, row = loop.begin(stepper)
        if run is not None and iteration:
            loop.history = _history_of(run, iteration)
        clock.lap("start")
        outcome = loop.run(stepper, iteration, row)
        clock.lap("solve")
        if outcome is Outcome.STOPPED and any(getattr(call, "comes_back", False) for call in callbacks):
            raise InterruptedRunError(f"stopped at iteration {loop.history[-1]['iteration']}", mend="resume the run")
        if outcome is Outcome.NUMERICAL_ERROR:
            return None, np.empty(0), 0.0, outcome, loop.history, loop.restarts
        sums = loop.finish(stepper, lambda: stepper.placement.sums())
        entries, smooth = problem.evaluate_sums(program, sums)
        # The best multiple of K costs nothing, and makes <S, K> zero in the certificate.
        scale = problem.scale(entries, smooth)
        factor = None
        if plan.placement == "memory":
            collected = loop.finish(stepper, lambda: stepper.placement.collect("U"))
            factor = collected * np.sqrt(scale).astype(program.dtype)
            columns: Iterable[NDArray] = (factor[:, lo : lo + 16] for lo in range(0, rank, 16))
            if run is not None:
                store_factor(run, factor)
        else:
            assert store is not None
            generation = next(store.generations().newest_first())
            export_factor(session, store, generation, "U", rank, float(np.sqrt(scale)))
            columns = exported_columns(generation, "U", rank, float(np.sqrt(scale)))
        entries, smooth = scale * entries, scale * smooth
        if program.dtype != np.float64:  # their sums are rounded, and so is the factor: certify what is handed out
            entries, smooth = problem.evaluate_columns(columns)
        clock.lap("result")
    finally:
        stepper.close()
        workspace.close()
    return factor, entries, smooth, outcome, loop.history, loop.restarts


def _history_of(run: RunStore, iteration: int) -> list[Row]:
    """Rows of iterations 1 to `iteration` from the log; the last one written counts where a run was rolled back."""
    rows = {
        event["iteration"]: {key: value for key, value in event.items() if key not in ("event", "at", "attempt")}
        for event in run.events()
        if event.get("event") == "iteration"
    }
    return [rows[k] for k in range(1, iteration + 1) if k in rows]


def _finish(
    problem: PairwiseKernel,
    settings: Settings,
    start: NDArray | None,
    goal: float,
    history: list[Row],
    callbacks: Sequence[Callable[[Row], Any]],
    threads: int,
) -> tuple[NDArray, Certificate, Outcome]:
    """The second-order low-rank finish to a proven relative gap."""
    from dkl.solvers.factored import solve_to_gap

    factor, certificate, rows, outcome = solve_to_gap(
        problem.laplacian,
        problem.targets,
        problem.gamma,
        start,
        target_gap=goal,
        rank=None if settings.rank == "auto" or start is not None else int(settings.rank),
        max_rank=min(MAX_FINISH_RANK, problem.n),
        max_iter=FINISH_SHARE * settings.max_iter,
        threads=threads,
        seed=settings.seed,
    )
    offset = len(history)
    for row in rows:
        history.append({**row, "iteration": offset + int(row["iteration"]), "stage": "finish"})
    ends = {"solved": Outcome.SOLVED, "stalled": Outcome.STALLED}
    return factor, certificate, ends.get(outcome, Outcome.ITERATION_LIMIT)


class _Clock:
    """Wall time by stage."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self.at = time.perf_counter()

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.at
        self.at = now

    def done(self) -> dict[str, float]:
        return {**self.seconds, "total": sum(self.seconds.values())}


# -- runs on disk -------------------------------------------------------------------------------------------------------


def store_problem(run: RunStore, laplacian: sparse.csr_array, pairs: Pairs, notes: dict[str, Any]) -> None:
    """Keep what a resumed run needs: the graph in block CSR and the pairs."""
    run.write_pairs(pairs.must_link, pairs.cannot_link)
    import shutil

    shutil.rmtree(run.path / "graph", ignore_errors=True)
    write_csr_blocks(str(run.path / "graph"), laplacian, max(1, min(laplacian.shape[0], 65_536)), notes)


def load_problem(run: RunStore, gamma: float) -> PairwiseKernel:
    must_link, cannot_link = run.read_pairs()
    laplacian = read_csr(str(run.path / "graph"))
    return PairwiseKernel(laplacian, target_matrix(int(laplacian.shape[0]), must_link, cannot_link), gamma)


def report_of(fitted: Fitted, graph: dict[str, Any]) -> dict[str, Any]:
    """The report of a run, JSON."""
    result = fitted.result
    return {
        "outcome": result.outcome.value,
        "remedy": result.outcome.remedy,
        "n_iter": result.n_iter,
        "rank": fitted.rank,
        "certificate": fitted.certificate.as_dict(),
        "seconds": result.seconds,
        "peak_bytes": result.peak_bytes,
        "restarts": result.restarts,
        "plan": result.plan,
        "graph": graph,
        "settings": fitted.settings.as_dict(),
    }


def resume(path: Any, session: Session, *, callbacks: Sequence[Callable[[Row], Any]] = (), **changes: Any) -> RunStore:
    """Go on with a run from its last commit to its end; nothing to do where it is complete. Returns the run."""
    run = RunStore.open(path)
    if run.is_complete and not changes:
        return run
    run.lock()
    try:
        run.sweep()
        settings = replace(Settings(**run.config["settings"]), **changes)
        problem = load_problem(run, settings.gamma)
        fitted = fit_problem(problem, settings, session, run=run, callbacks=callbacks)
        run.write_report(report_of(fitted, run.config.get("graph", {})), fitted.certificate.lift)
    finally:
        run.close()
    return run
