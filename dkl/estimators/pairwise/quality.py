"""The quality of a pairwise kernel: the AUC of K_ij on held-out pairs, next to that of distances of their rows.

Where pairs were held out in folds, their scores at the gamma of the fit are used. Else a tenth of each kind is held out, and the kernel
of the others is found from the final factor on, to a gap of 10 %: on pairs with random labels the AUC is at most
.02 above that of a cold start, of eight draws, although the final factor has learned them all. The final fit does not change by it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.estimators.common.outcomes import warn_if_worse
from dkl.estimators.common.pair_quality import DISTANCES, EDGES, drawn, hold_out, quality_of_pairs, similarities
from dkl.estimators.pairwise.choice import Folds
from dkl.estimators.pairwise.factored_plan import SharedPlan, fold_rank
from dkl.estimators.pairwise.fit import Fitted
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.pairs import Pairs
from dkl.problems.fold_problems import pair_folds
from dkl.problems.pair_folds import follows, split_folds
from dkl.problems.pairwise import PairwiseKernel
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]


def plain_scores(rows: Any, pairs: Pairs, settings: PairwiseSettings) -> Vector | None:
    """Return (m,) the alternative's scores of the pairs that may be compared, NaN for others; None where nothing is held out."""
    if not settings.holdout:
        return None
    return similarities(rows, pairs, drawn(pairs, 1.0, settings.seed) | drawn(pairs, settings.holdout, settings.seed))


def with_quality(
    fitted: Fitted, problem: PairwiseKernel, pairs: Pairs, plain: Vector | None, settings: PairwiseSettings,
    session: Session, watch: Watch, *, stacklevel: int,
) -> Fitted:  # fmt: skip
    """Return what was fitted with the quality in its result, and warn where the alternative is better.

    plain: see `plain_scores`; None: the entries of the graph. Nothing is measured where `holdout` is 0, the fit was stopped, or its
    factor is not in memory, or does not fit there with what is needed next to it.
    """
    if not settings.holdout or watch.outcome is not None:
        return fitted
    start = time.perf_counter()
    scores = _alone(fitted, problem, pairs, settings, session, watch)
    if fitted.choice is not None:
        scores = _by_folds(fitted, problem.n, pairs, settings)
    if scores is None or watch.outcome is not None:
        return fitted
    name = EDGES if plain is None else DISTANCES
    if plain is None:
        plain = -np.asarray(problem.laplacian[pairs.i, pairs.j], np.float64).ravel()
    quality = quality_of_pairs(scores, plain, pairs.sign > 0, name)
    warn_if_worse(quality, stacklevel=stacklevel + 1)
    took = time.perf_counter() - start
    seconds = fitted.result.seconds | {"quality": took, "total": fitted.result.seconds["total"] + took}
    fitted.result = replace(fitted.result, quality=quality, seconds=seconds)
    return fitted


def _by_folds(fitted: Fitted, n: int, pairs: Pairs, settings: PairwiseSettings) -> Vector:
    """(m,) of the sample the scores of the folds at the gamma nearest to that of the fit; NaN for pairs that follow from others."""
    choice = fitted.choice
    assert choice is not None
    scores = choice.scores[int(np.argmin(np.abs(np.log(choice.gammas / fitted.gamma))))].copy()
    masks = split_folds(n, pairs, settings.cv, settings.seed, score_all=fitted.result.wrong_pairs is not None)
    tested = np.zeros(len(scores), bool)
    for learn, score in masks:
        tested |= score & ~follows(n, pairs, learn)
    scores[~(tested & drawn(pairs, 1.0, settings.seed))] = np.nan
    return scores


def _alone(
    fitted: Fitted, problem: PairwiseKernel, pairs: Pairs, settings: PairwiseSettings, session: Session, watch: Watch
) -> Vector | None:
    """(m,) the scores of pairs that are held out of one more fit, NaN for others; None where there can be none."""
    masks = hold_out(problem.n, pairs, settings.holdout, settings.seed)
    if fitted.choice is not None or fitted.factor is None or masks is None:
        return None
    shared = SharedPlan.of(problem, settings, session)
    sizes = problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz)
    rank = fold_rank(*sizes, settings) if shared is None else shared.rank
    if rank < fitted.factor.shape[1]:
        return None
    folds = Folds(problem, pairs, settings, np.array([fitted.gamma]), False, rank, shared)
    with folds.solver(session) as solve:
        (fold,) = pair_folds(problem.n, pairs, [masks], solve)
        found = fold.solved(fitted.gamma, np.asarray(fitted.factor, np.float64), watch.quiet())
    if found.outcome is Outcome.NUMERICAL_ERROR:
        return None
    scores = np.full(len(pairs.sign), np.nan)
    scores[masks[1]] = fold.scored(found.factor)[0]
    return scores
