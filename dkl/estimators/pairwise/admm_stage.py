"""Algorithm 1 of a fit, from its last commit if there is one, and its certificate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.graph.sparse_operator import product_on
from dkl.blocks.slabs.export import export_factor, exported_columns, store_factor
from dkl.blocks.slabs.workspace import RunCheckpoints, Workspace
from dkl.errors import NumericalError
from dkl.estimators.pairwise.history import history
from dkl.estimators.pairwise.stage import REMEDIES, Context, Stage, outcome_of
from dkl.problems.pairwise.admm import PairwiseADMM
from dkl.problems.pairwise.problem import RandomStart, WarmStart
from dkl.solvers.loop import Loop, NoCheckpoints
from dkl.solvers.pairwise.admm import ADMMStepper
from dkl.solvers.result import Outcome
from dkl.stores.run import RunStore


def by_admm(fit: Context, warm_start: NDArray | None) -> Stage:
    """Run Algorithm 1, and certify its result."""
    settings, problem = fit.settings, fit.problem
    session = fit.session.here() if fit.plan.idle_workers else fit.session
    program = problem.admm(fit.rank, settings.dtype, settings.tol, adapt_rho=settings.adapt_rho)
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
    # The best multiple of K costs nothing, and makes <S, K> zero in the certificate.
    scale = problem.scale(entries, smooth)
    factor = None
    if fit.plan.placement == "memory":
        collected = loop.finish(stepper, lambda: stepper.placement.collect("U"))
        factor = collected * np.sqrt(scale).astype(program.dtype)
        columns: Iterable[NDArray] = (factor[:, lo : lo + 16] for lo in range(0, rank, 16))
        if fit.run is not None:
            store_factor(fit.run, factor)
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
