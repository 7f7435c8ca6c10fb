"""A fit of pairs, and what comes before it where gamma or wrong pairs are to be found: pairs held out in folds, along a path of gamma."""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

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
from dkl.estimators.pairwise.factored_plan import check_room, fold_rank
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
from dkl.solvers.factored import solve_to_gap
from dkl.solvers.gamma_path import follow_path
from dkl.solvers.gamma_scores import FoldPath, GammaChoice
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

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
    folds = _Folds.of(problem, pairs, settings)
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
class _Folds:
    """Folds of the pairs that are held out before the fit, and the gammas at which each is scored."""

    problem: PairwiseKernel
    pairs: Pairs
    settings: PairwiseSettings
    gammas: NDArray[Any]
    looks: bool
    rank: int

    @classmethod
    def of(cls, problem: PairwiseKernel, pairs: Pairs, settings: PairwiseSettings) -> _Folds | None:
        """Return None where no pairs are to be held out, or where wrong ones are only looked for if that fits into memory."""
        gammas = gammas_to_compare(pairs, settings, scale_of(problem.laplacian))
        if gammas is None:
            return None
        sizes = problem.n, int(problem.laplacian.nnz), int(problem.targets.nnz)
        looks = looks_for_wrong_pairs(pairs, settings)
        rank = fold_rank(*sizes, settings)
        if rank == 0 and not holds_out_for_certain(settings):
            told = "wrong pairs are not looked for, as the folds' kernels do not fit into memory_limit: raise it"
            warnings.warn(told, DataWarning, stacklevel=4)
            return None
        return cls(problem, pairs, settings, gammas, looks, rank or check_room(*sizes, settings))

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
        with pair_folds(self.problem, pairs, masks, session.threads, self._solver()) as folds:
            commit = (lambda fold, path: None) if kept is None else kept.commit
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

    def _solver(self) -> Solve:
        """Return the solver of a fold's problem."""
        settings, rank = self.settings, self.rank

        def solve(problem: Any, start: NDArray, watch: Watch) -> Any:
            return solve_to_gap(
                problem, start, target_gap=CV_GAP, max_rank=rank, max_iter=FINISH_SHARE * settings.max_iter,
                seed=settings.seed, watch=watch,
            )  # fmt: skip

        return solve
