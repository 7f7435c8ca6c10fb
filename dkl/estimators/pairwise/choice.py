"""Fit of pairs, after pairs are held out in folds along a path of gamma to choose it or find bad ones."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.session import Session
from dkl.errors import DataWarning, NumericalError
from dkl.estimators.base.progress import warn_if_worse
from dkl.estimators.pairwise.factored import LowRankRequest, solved_on_workers
from dkl.estimators.pairwise.fit import PairwiseFit, fit_problem, make_problem
from dkl.estimators.pairwise.held_out import (
    HeldOutPairs,
    gammas_to_compare,
    holds_out_for_certain,
    largest_gamma,
    looks_for_wrong_pairs,
)
from dkl.estimators.pairwise.plan import SharedPlan, check_room, fold_rank, rank_within, solver_of
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stages import FINISH_SHARE, REMEDIES
from dkl.estimators.pairwise.store import (
    StoredFolds,
    WrongPairs,
    even_weights,
    load_choice,
    rows_of,
    store_choice,
    wrong_pairs_of,
)
from dkl.problems.pair_folds import Flags, n_contradictions, split_folds
from dkl.problems.pairwise.problem import PairwiseKernel, Solve, pair_folds
from dkl.problems.pairwise.terms import on_targets
from dkl.quality import too_few
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_path import FoldPath, GammaChoice, follow_path
from dkl.solvers.pairwise.low_rank import FactoredSolution, solve_to_gap
from dkl.solvers.watch import Outcome, Watch
from dkl.stores.run import RunStore

Vector = NDArray[np.float64]
CV_GAP = 0.1
"""Relative gap that is enough on the folds."""
NOT_LEARNED = "a kernel without the held-out pairs does not fit into memory, or is not finite"


def problem_of(laplacian: sparse.csr_array, pairs: Pairs, settings: PairwiseSettings) -> PairwiseKernel:
    """Make the problem at the given gamma, or at the end of the path that it is chosen from."""
    return make_problem(laplacian, pairs, largest_gamma(settings, scale_of(laplacian)))


def scale_of(laplacian: sparse.csr_array) -> float:
    """Return the Laplacian's largest entry, 1 for one of zeros."""
    return float(laplacian.diagonal().max()) or 1.0


def fit_pairs(
    problem: PairwiseKernel,
    pairs: Pairs,
    settings: PairwiseSettings,
    session: Session,
    *,
    held: HeldOutPairs | None = None,
    run: RunStore | None = None,
    scratch: RunStore | None = None,
    watch: Watch | None = None,
    warm_start: NDArray | None = None,
    seconds: dict[str, float] | None = None,
) -> PairwiseFit:
    """Fit the checked pairs, at the problem's gamma or (gamma="cv") at a chosen one.

    Pairs that look wrong have less weight. held: pairs to measure the quality on; None: it is not measured.
    """
    given: dict[str, Any] = {"run": run, "scratch": scratch}
    watch, seconds = watch or Watch(), dict(seconds or {})
    folds = Folds.of(problem, pairs, settings, session)
    reason = "" if not settings.holdout else too_few(len(pairs.i), "pairs") if held is None else NOT_LEARNED
    if folds is None:
        fold = None if held is None else OneFold.of(problem, held, settings, session, run)
        scores = None
        if fold is not None:
            start = time.perf_counter()
            scores, factor = fold.solved(watch)
            seconds["held out"] = time.perf_counter() - start
            # A kernel that was learned without some pairs is a good start for all of them.
            if warm_start is None and solver_of(problem, settings, session, run) == "factored":
                warm_start = factor
        fitted = fit_problem(problem, settings, session, **given, warm_start=warm_start, watch=watch, seconds=seconds)
        return _measured(fitted, held, scores, None, run, reason, watch)
    start, choosing = time.perf_counter(), watch.stage()
    choice, found = folds.compared(session, run, choosing)
    seconds["cv"] = time.perf_counter() - start
    # Of a path that was cut short the given gamma holds, where there is one.
    gamma = choice.gamma if settings.gamma == "cv" or choice.is_whole else problem.gamma
    chosen = replace(problem, gamma=gamma)
    if found is not None and found.is_used:
        # A pair that looks wrong weighs less, and is not dropped: it may be right after all.
        chosen = replace(chosen, weights=on_targets(problem.n, pairs, pairs.weights * found.trust))
        warnings.warn(found.summary, DataWarning, stacklevel=3)
    fitted = fit_problem(chosen, settings, session, **given, warm_start=warm_start, watch=watch, seconds=seconds)
    fitted.choice = choice
    history = choosing.history + fitted.result.history
    fitted.result = replace(fitted.result, history=history, wrong_pairs=found)
    # The scores at the gamma of the fit, or at the nearest one of the path.
    at = int(np.argmin(np.abs(choice.gammas - gamma)))
    # Scores of the folds serve the quality as well: each is by a kernel that did not learn from the pair.
    scores = None if held is None else choice.scores[at, held.numbers]
    return _measured(fitted, held, scores, settings.cv, run, reason, watch)


def _measured(
    fitted: PairwiseFit,
    held: HeldOutPairs | None,
    scores: NDArray | None,
    n_folds: int | None,
    run: RunStore | None,
    reason: str,
    watch: Watch,
) -> PairwiseFit:
    """Add the quality by `scores` (p,) of held-out pairs, or the reason why it is missing.

    Warns if the plain alternative is better.
    """
    if held is None or scores is None or not np.isfinite(scores).all():
        # A fit that was stopped on purpose needs no reason for what it lacks.
        is_stopped = fitted.result.outcome.is_wanted and not fitted.result.outcome.converged
        fitted.result = replace(fitted.result, no_quality="" if is_stopped else reason)
        return fitted
    start = time.perf_counter()
    if run is not None:
        held.store(run, scores)
    quality = held.quality(scores, n_folds)
    fitted.result = fitted.result.with_quality(quality, time.perf_counter() - start, "", watch.seconds)
    warn_if_worse(quality, stacklevel=4)
    return fitted


@dataclass(frozen=True)
class Folds:
    """Folds of the pairs that are held out before the fit, and the gammas at which each is scored.

    rank: at most, of their kernels; shared: the plan of their rows on workers, None where this process learns them.
    """

    problem: PairwiseKernel
    pairs: Pairs
    settings: PairwiseSettings
    gammas: NDArray
    looks: bool
    rank: int
    shared: SharedPlan | None

    @classmethod
    def of(cls, problem: PairwiseKernel, pairs: Pairs, settings: PairwiseSettings, session: Session) -> Folds | None:
        """Return the folds; None if no pairs are to be held out, or optional ones do not fit in memory."""
        gammas = gammas_to_compare(pairs, settings, scale_of(problem.laplacian))
        if gammas is None:
            return None
        sizes = problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz)
        looks = looks_for_wrong_pairs(pairs, settings)
        shared = SharedPlan.of(problem, settings, session)
        rank = fold_rank(*sizes, settings) if shared is None else shared.rank
        # A fit that asked for folds is refused without them; others do without, and say so.
        if rank == 0 and not holds_out_for_certain(settings):
            text = "wrong pairs are not looked for, as the folds' kernels do not fit into memory_limit: raise it"
            warnings.warn(text, DataWarning, stacklevel=4)
            return None
        return cls(problem, pairs, settings, gammas, looks, rank or check_room(*sizes, settings), shared)

    def compared(self, session: Session, run: RunStore | None, watch: Watch) -> tuple[GammaChoice, WrongPairs | None]:
        """Return the choice of gamma and the pairs that look wrong (None if not looked for).

        Results stored in the run are used, others computed and stored.
        """
        settings, pairs, n = self.settings, self.pairs, self.problem.n
        known = None if run is None else load_choice(run)
        # What an earlier attempt has chosen is read, not computed again.
        if known is not None:
            watch.stage("cv").resume(rows_of(known[0]))
            return known
        masks = split_folds(n, pairs, settings.cv, settings.seed, score_all=self.looks)
        kept = None if run is None else StoredFolds(run, self.gammas)
        paths = [FoldPath() for _ in masks]
        if kept is not None:
            paths = [kept.load(k, n, int(score.sum())) for k, (_, score) in enumerate(masks)]
        commit = (lambda fold, path: None) if kept is None else kept.commit
        most = FINISH_SHARE * settings.max_iter
        with fold_solver(
            self.problem, settings, session, self.shared, gap=CV_GAP, rank=self.rank, max_iter=most
        ) as solve:
            folds = pair_folds(n, pairs, masks, solve)
            paths, outcome = follow_path(folds, self.gammas, paths=paths, commit=commit, watch=watch)
        watch.raise_if_interrupted("stopped while pairs were held out")
        if outcome is Outcome.NUMERICAL_ERROR:
            raise NumericalError(REMEDIES[outcome], where="the folds of pairs")
        held_out = [score for _, score in masks]
        choice = GammaChoice.of(self.gammas, paths, held_out, pairs.sign > 0, even_weights(pairs))
        found = wrong_pairs_of(choice, pairs, n_contradictions(pairs)) if self.looks else None
        if kept is not None:
            store_choice(kept.run, choice, found)
            # The folds' paths are dropped once the choice is stored, as it holds all that is needed.
            kept.drop()
        return choice, found


# Kernel learned without one fold of the pairs, to measure the quality of a fit of all of them.

FOLD_GAP = 0.3
"""Relative gap of the kernel without the fold: its AUC is that of a gap of 0.1 to .003, and it takes from a third of a fit's time to all of
it."""
MAX_STEPS = 10_000
HELD_FACTORS = 2
"""Factors in memory next to the solver's own: the fit's start, and a copy of it on its way to disk."""


@dataclass(frozen=True)
class OneFold:
    """A problem, the pairs that are held out of it, and the largest rank of the kernel without them."""

    problem: PairwiseKernel
    held: HeldOutPairs
    learn: Flags
    settings: PairwiseSettings
    session: Session
    run: RunStore | None
    rank: int
    shared: SharedPlan | None

    @classmethod
    def of(
        cls,
        problem: PairwiseKernel,
        held: HeldOutPairs,
        settings: PairwiseSettings,
        session: Session,
        run: RunStore | None,
    ) -> OneFold | None:
        """Return None where the kernel does not fit into memory."""
        sizes = problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz)
        shared = SharedPlan.of(problem, settings, session)
        rank = rank_within(*sizes, settings, kept=HELD_FACTORS) if shared is None else shared.rank
        if held.learn is None or rank == 0:
            return None
        return cls(problem, held, held.learn, settings, session, run, rank, shared)

    def solved(self, watch: Watch) -> tuple[NDArray | None, NDArray | None]:
        """Return (scores (p,) of held-out pairs, factor), stored in the run or computed and stored there.

        None where a value is not finite, or the watch has ended the fit; InterruptedRunError where it is to be resumed.
        """
        n, gamma, held = self.problem.n, float(self.problem.gamma), self.held
        kept = None if self.run is None else StoredFolds(self.run, np.array([gamma]))
        path = FoldPath() if kept is None else kept.load(0, n, len(held.numbers))
        if not path.ranks:
            with fold_solver(
                self.problem, self.settings, self.session, self.shared, gap=FOLD_GAP, rank=self.rank, max_iter=MAX_STEPS
            ) as solve:
                (fold,) = pair_folds(n, held.pairs, [(self.learn, held.scored)], solve)
                # Quiet: the history is that of the fit alone.
                found = fold.solved(gamma, None, watch.quiet())
                watch.raise_if_interrupted("stopped while pairs were held out")
                if watch.outcome is not None or found.outcome is Outcome.NUMERICAL_ERROR:
                    return None, None
                scores, cosines = fold.scored(found.factor)
            path = FoldPath(found.factor, [scores], [cosines], [int(found.factor.shape[1])], [watch.seconds])
            if kept is not None:
                kept.commit(0, path)
        return path.scores[0], path.factor


# Solver of the kernels learned without some of the pairs, in this process or on workers.


@contextmanager
def fold_solver(
    problem: PairwiseKernel,
    settings: PairwiseSettings,
    session: Session,
    shared: SharedPlan | None,
    *,
    gap: float,
    rank: int,
    max_iter: int,
) -> Iterator[Solve]:
    """Yield a solver of the problem with other weights, to a relative gap, at most at `rank`.

    Its threads end with the context.

    shared: the plan of the rows on workers, None where this process learns.
    """
    if shared is not None:
        request = LowRankRequest(gap, None, rank, max_iter, settings.seed, "float64")

        def there(weights: Vector, gamma: float, start: NDArray | None, watch: Watch) -> FactoredSolution:
            fold = replace(problem, gamma=gamma, weights=weights)
            return solved_on_workers(fold, start, request, watch, session, shared)[0]

        yield there
        return
    whole = problem.factored(session.threads)

    def here(weights: Vector, gamma: float, start: NDArray | None, watch: Watch) -> FactoredSolution:
        fold = whole.with_weights(weights).with_gamma(gamma)
        return solve_to_gap(
            fold, start, target_gap=gap, max_rank=rank, max_iter=max_iter, seed=settings.seed, watch=watch
        )

    try:
        yield here
    finally:
        whole.close()
