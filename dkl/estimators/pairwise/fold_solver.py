"""Solver of the kernels learned without some of the pairs, in this process or on workers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.estimators.pairwise.factored import LowRankRequest, solved_on_workers
from dkl.estimators.pairwise.factored_plan import SharedPlan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.fold_problems import Solve
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.solvers.pairwise.low_rank import FactoredSolution, solve_to_gap
from dkl.solvers.watch import Watch

Vector = NDArray[np.float64]


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
