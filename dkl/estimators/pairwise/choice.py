"""A fit of pairs at a given gamma, or first the choice of gamma by cross-validation: the folds, the path, the fit of all pairs from
where the path has come to."""

from __future__ import annotations

import time
from dataclasses import replace

from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.session import Session
from dkl.errors import NumericalError
from dkl.estimators.pairwise.checks import largest_gamma
from dkl.estimators.pairwise.factored_plan import check_room
from dkl.estimators.pairwise.fit import Fitted, fit_problem, make_problem
from dkl.estimators.pairwise.kept import StoredFolds, load_choice, rows_of, store_choice
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stage import FINISH_SHARE, REMEDIES
from dkl.pairs import Pairs
from dkl.problems.fold_problems import pair_folds
from dkl.problems.pair_folds import Masks, split_folds
from dkl.problems.pairwise import PairwiseKernel
from dkl.problems.pairwise_terms import gamma_path
from dkl.solvers.gamma_choice import choose_gamma
from dkl.solvers.gamma_errors import FoldPath, GammaChoice
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

CV_GAP = 0.1
"""Relative gap that is enough on the folds."""


def problem_of(laplacian: sparse.csr_array, pairs: Pairs, settings: PairwiseSettings) -> PairwiseKernel:
    """`make_problem` at the given gamma, or at the end of the path that it is chosen from."""
    return make_problem(laplacian, pairs, largest_gamma(settings, float(laplacian.diagonal().max()) or 1.0))


def fit_pairs(
    problem: PairwiseKernel,
    pairs: Pairs,
    settings: PairwiseSettings,
    session: Session,
    *,
    run: RunStore | None = None,
    scratch: RunStore | None = None,
    watch: Watch | None = None,
    warm_start: NDArray | None = None,
    seconds: dict[str, float] | None = None,
) -> Fitted:
    """`fit_problem` of a problem of the checked pairs, at its gamma or, with gamma="cv", at one that is chosen first."""
    stores = {"run": run, "scratch": scratch}
    if settings.gamma != "cv":
        return fit_problem(problem, settings, session, **stores, watch=watch, warm_start=warm_start, seconds=seconds)
    watch, start = watch or Watch(), time.perf_counter()
    choosing = watch.stage()
    choice, factor = _choice(problem, pairs, settings, session, run, choosing)
    seconds = {**(seconds or {}), "cv": time.perf_counter() - start}
    chosen = replace(problem, gamma=choice.gamma)
    fitted = fit_problem(chosen, settings, session, **stores, watch=watch, warm_start=factor, seconds=seconds)
    fitted.choice = choice
    fitted.result = replace(fitted.result, history=choosing.history + fitted.result.history)
    return fitted


def _choice(
    problem: PairwiseKernel,
    pairs: Pairs,
    settings: PairwiseSettings,
    session: Session,
    run: RunStore | None,
    watch: Watch,
) -> tuple[GammaChoice, NDArray | None]:
    """(choice, factor to begin the fit at): of the run, if it has come so far, else made and kept there."""
    known = None if run is None else load_choice(run, problem.n)
    if known is not None:
        watch.stage("cv").resume(rows_of(known[0], settings))
        return known
    rank = check_room(problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz), settings)
    scale = float(problem.laplacian.diagonal().max()) or 1.0
    gammas = gamma_path(scale, settings.n_gammas)
    masks: Masks = split_folds(problem.n, pairs, settings.cv, settings.seed)
    kept = None if run is None else StoredFolds(run, gammas)
    paths = [FoldPath() for _ in masks] if kept is None else [kept.load(k, problem.n) for k in range(len(masks))]
    with pair_folds(problem, pairs, masks, session.threads) as folds:
        choice, factor, outcome = choose_gamma(
            folds,
            gammas,
            paths=paths,
            commit=(lambda fold, path: None) if kept is None else kept.commit,
            watch=watch,
            target_gap=CV_GAP,
            max_rank=rank,
            max_iter=FINISH_SHARE * settings.max_iter,
            seed=settings.seed,
        )
    watch.raise_if_interrupted("stopped in the choice of gamma")
    if outcome is Outcome.NUMERICAL_ERROR:
        raise NumericalError(REMEDIES[outcome], where="the choice of gamma")
    if kept is not None:
        store_choice(kept.run, choice, factor)
        kept.drop()
    return choice, factor
