"""A fit of pairs, and what comes before it where gamma or wrong pairs are to be found: pairs held out in folds, along a path of gamma."""

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
from dkl.estimators.pairwise.checks import (
    gammas_to_compare,
    holds_out_for_certain,
    largest_gamma,
    looks_for_wrong_pairs,
)
from dkl.estimators.pairwise.factored import Request, solved_on_workers
from dkl.estimators.pairwise.factored_plan import SharedPlan, check_room, fold_rank
from dkl.estimators.pairwise.fit import Fitted, fit_problem, make_problem
from dkl.estimators.pairwise.kept import StoredFolds, load_choice, rows_of, store_choice
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.stage import FINISH_SHARE, REMEDIES
from dkl.estimators.pairwise.wrong_pairs import WrongPairs, even_weights, wrong_pairs_of
from dkl.pairs import Pairs
from dkl.problems.fold_problems import Solve, pair_folds
from dkl.problems.pair_folds import n_contradictions, split_folds
from dkl.problems.pairwise import PairwiseKernel
from dkl.problems.pairwise_terms import on_targets
from dkl.solvers.factored import FactoredSolution, solve_to_gap
from dkl.solvers.gamma_path import follow_path
from dkl.solvers.gamma_scores import FoldPath, GammaChoice
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

Vector = NDArray[np.float64]
CV_GAP = 0.1
"""Relative gap that is enough on the folds."""


def problem_of(laplacian: sparse.csr_array, pairs: Pairs, settings: PairwiseSettings) -> PairwiseKernel:
    """`make_problem` at the given gamma, or at the end of the path that it is chosen from."""
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
    run: RunStore | None = None,
    scratch: RunStore | None = None,
    watch: Watch | None = None,
    warm_start: NDArray | None = None,
    seconds: dict[str, float] | None = None,
) -> Fitted:
    """`fit_problem` of a problem of the checked pairs, at its gamma or, with gamma="cv", at one that is chosen first, with less
    weight of pairs that look wrong."""
    given: dict[str, Any] = {"run": run, "scratch": scratch, "warm_start": warm_start}
    folds = Folds.of(problem, pairs, settings, session)
    if folds is None:
        return fit_problem(problem, settings, session, **given, watch=watch, seconds=seconds)
    watch, start = watch or Watch(), time.perf_counter()
    choosing = watch.stage()
    choice, found = folds.compared(session, run, choosing)
    seconds = {**(seconds or {}), "cv": time.perf_counter() - start}
    gamma = choice.gamma if settings.gamma == "cv" or choice.is_whole else problem.gamma
    chosen = replace(problem, gamma=gamma)
    if found is not None and found.is_used:
        chosen = replace(chosen, weights=on_targets(problem.n, pairs, pairs.weights * found.trust))
        warnings.warn(found.summary, DataWarning, stacklevel=3)
    fitted = fit_problem(chosen, settings, session, **given, watch=watch, seconds=seconds)
    fitted.choice = choice
    history = choosing.history + fitted.result.history
    fitted.result = replace(fitted.result, history=history, wrong_pairs=found)
    return fitted


@dataclass(frozen=True)
class Folds:
    """Folds of the pairs that are held out before the fit, and the gammas at which each is scored.

    rank: at most, of their kernels; shared: the plan of their rows on workers, None where this process learns them.
    """

    problem: PairwiseKernel
    pairs: Pairs
    settings: PairwiseSettings
    gammas: NDArray[Any]
    looks: bool
    rank: int
    shared: SharedPlan | None

    @classmethod
    def of(cls, problem: PairwiseKernel, pairs: Pairs, settings: PairwiseSettings, session: Session) -> Folds | None:
        """Return None where no pairs are to be held out, or where wrong ones are only looked for if that fits into memory."""
        gammas = gammas_to_compare(pairs, settings, scale_of(problem.laplacian))
        if gammas is None:
            return None
        sizes = problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz)
        looks = looks_for_wrong_pairs(pairs, settings)
        shared = SharedPlan.of(problem, settings, session)
        rank = fold_rank(*sizes, settings) if shared is None else shared.rank
        if rank == 0 and not holds_out_for_certain(settings):
            told = "wrong pairs are not looked for, as the folds' kernels do not fit into memory_limit: raise it"
            warnings.warn(told, DataWarning, stacklevel=4)
            return None
        return cls(problem, pairs, settings, gammas, looks, rank or check_room(*sizes, settings), shared)

    def compared(self, session: Session, run: RunStore | None, watch: Watch) -> tuple[GammaChoice, WrongPairs | None]:
        """Return the choice of gamma and the pairs that look wrong (None where these are not looked for): stored ones of the run, if
        it has any, else computed and stored."""
        settings, pairs, n = self.settings, self.pairs, self.problem.n
        known = None if run is None else load_choice(run)
        if known is not None:
            watch.stage("cv").resume(rows_of(known[0]))
            return known
        masks = split_folds(n, pairs, settings.cv, settings.seed, score_all=self.looks)
        kept = None if run is None else StoredFolds(run, self.gammas)
        paths = [FoldPath() for _ in masks]
        if kept is not None:
            paths = [kept.load(k, n, int(score.sum())) for k, (_, score) in enumerate(masks)]
        commit = (lambda fold, path: None) if kept is None else kept.commit
        with self.solver(session) as solve:
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
            kept.drop()
        return choice, found

    @contextmanager
    def solver(self, session: Session) -> Iterator[Solve]:
        """The solver of the folds' problems: in this process, by threads that end with the context, or on workers."""
        settings, problem, shared = self.settings, self.problem, self.shared
        most = FINISH_SHARE * settings.max_iter
        if shared is not None:
            request = Request(CV_GAP, None, self.rank, most, settings.seed, "float64")

            def there(weights: Vector, gamma: float, start: NDArray, watch: Watch) -> FactoredSolution:
                fold = replace(problem, gamma=gamma, weights=weights)
                return solved_on_workers(fold, start, request, watch, session, shared)[0]

            yield there
            return
        whole = problem.factored(session.threads)

        def here(weights: Vector, gamma: float, start: NDArray, watch: Watch) -> FactoredSolution:
            fold = whole.with_weights(weights).with_gamma(gamma)
            return solve_to_gap(
                fold, start, target_gap=CV_GAP, max_rank=self.rank, max_iter=most, seed=settings.seed, watch=watch
            )

        try:
            yield here
        finally:
            whole.close()
