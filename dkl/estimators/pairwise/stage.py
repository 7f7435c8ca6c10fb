"""Parts shared by the stages of a fit: the problem, its resources, the clock, and a stage's result."""

from __future__ import annotations

import time
from dataclasses import dataclass

from numpy.typing import NDArray

from dkl.blocks.memory.plan import Plan
from dkl.blocks.session import Session
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.solvers.result import Outcome, Remedies, remedies
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

FINISH_SHARE = 20
"""Iterations of the factored solver for each of ADMM: at a fraction of the rank they cost less."""
REMEDIES = remedies(
    iteration_limit="raise max_iter, or loosen target_gap; where that is None loosen tol, or set it to finish by a second-order"
    " method",
    stationary="the residuals are at tol, which proves nothing: set target_gap, or more memory_limit where it is set",
    stalled="rounding ends all progress: loosen target_gap, or use dtype='float64' if it is not",
    numerical_error="a value stopped being finite: lower gamma, or use dtype='float64'; the last commit is kept",
)
FACTORED_REMEDIES = {
    **REMEDIES,
    Outcome.ITERATION_LIMIT: "raise max_iter, or loosen target_gap, or tol where there is none",
    Outcome.STALLED: "rounding ends all progress: loosen target_gap, or tol where there is none, or use dtype='float64'",
}


@dataclass
class Stage:
    """Result of a stage of a fit.

    The factor, or None where it is in the run's store alone; how near it is to the optimum; why it ended; how often lost
    workers sent it back.
    """

    factor: NDArray | None
    certificate: Certificate
    outcome: Outcome
    restarts: int = 0


def outcome_of(ended: Outcome, proven: float, goal: float | None, *, unproven: Outcome) -> Outcome:
    """Return the outcome of a factor that is proven within `proven` of the optimum.

    SOLVED only if there is a goal and `proven` is within it; `unproven` if the solver itself took it for solved; else why the
    solver ended.
    """
    if goal is not None and proven <= goal:
        return Outcome.SOLVED
    return unproven if ended is Outcome.SOLVED else ended


def remedies_of(settings: PairwiseSettings) -> Remedies:
    """Return the remedies by outcome for the solver in use."""
    return FACTORED_REMEDIES if settings.solver == "factored" else REMEDIES


@dataclass
class Context:
    """Context shared by the stages of one fit."""

    problem: PairwiseKernel
    settings: PairwiseSettings
    session: Session
    plan: Plan
    rank: int
    run: RunStore | None
    scratch: RunStore | None
    watch: Watch
    clock: Clock


class Clock:
    """Wall time by stage; seconds: of the stages before."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.seconds = dict(seconds or {})
        self.at = time.perf_counter()

    def lap(self, stage: str) -> None:
        """Add the time since the last lap to `stage`."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.at
        self.at = now
