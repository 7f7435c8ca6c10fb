"""Kernel learned without one fold of the pairs, to measure the quality of a fit of all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.estimators.pairwise.factored_plan import SharedPlan, rank_within
from dkl.estimators.pairwise.fold_solver import fold_solver
from dkl.estimators.pairwise.held_out import HeldOutPairs
from dkl.estimators.pairwise.kept import StoredFolds
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pair_folds import Flags
from dkl.problems.pairwise.fold_problems import pair_folds
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.solvers.pairwise.gamma_scores import FoldPath
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

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
                found = fold.solved(gamma, None, watch.quiet())
                watch.raise_if_interrupted("stopped while pairs were held out")
                if watch.outcome is not None or found.outcome is Outcome.NUMERICAL_ERROR:
                    return None, None
                scores, cosines = fold.scored(found.factor)
            path = FoldPath(found.factor, [scores], [cosines], [int(found.factor.shape[1])], [watch.seconds])
            if kept is not None:
                kept.commit(0, path)
        return path.scores[0], path.factor
