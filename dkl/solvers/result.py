"""End of a run: one closed list of outcomes, one result type for every learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dkl.quality import Quality

if TYPE_CHECKING:
    from dkl.solvers.watch import Row


class Outcome(StrEnum):
    """Reason why a solver returned, a string such as "solved"; for each learner's remedies see `remedies`.

    SOLVED: what is handed out is proven as good as was asked for. STATIONARY: the iteration has come to rest, by its own
    test of convergence, and no more than the gap that is reported with it is proven.
    """

    SOLVED = "solved"
    ITERATION_LIMIT = "iteration_limit"
    STALLED = "stalled"
    STATIONARY = "stationary"
    NUMERICAL_ERROR = "numerical_error"
    STOPPED = "stopped_by_callback"
    TIME_LIMIT = "time_limit"
    INTERRUPTED = "interrupted"

    @property
    def converged(self) -> bool:
        """Return whether the result is as good as was asked for."""
        return self is Outcome.SOLVED

    @property
    def is_wanted(self) -> bool:
        """Return whether no warning is due: solved, or stopped by a callback."""
        return self in (Outcome.SOLVED, Outcome.STOPPED)


Remedies = Mapping[Outcome, str]
"""Advice on each outcome of a learner, in the names of the learner's parameters."""

_COMMON = {
    Outcome.SOLVED: "",
    Outcome.STOPPED: "a callback asked for the end",
    Outcome.TIME_LIMIT: "the time was up before the tolerance was reached: allow more time",
    Outcome.STATIONARY: "the iteration came to rest, but no small gap is proven",
    Outcome.INTERRUPTED: "resume the run from its last commit",
}


def remedies(*, iteration_limit: str, stalled: str, numerical_error: str, **others: str) -> Remedies:
    """Return a learner's remedies from those that differ by learner; `others` by lower-case outcome names."""
    own = {"iteration_limit": iteration_limit, "stalled": stalled, "numerical_error": numerical_error, **others}
    return _COMMON | {Outcome[name.upper()]: text for name, text in own.items()}


def judged(outcome: Outcome, proven: float, asked: float) -> Outcome:
    """Return the outcome; in the place of SOLVED NUMERICAL_ERROR unless `proven` is finite, STALLED where it is more than `asked`.

    >>> judged(Outcome.SOLVED, 1e-7, 1e-6).value, judged(Outcome.SOLVED, 1e-5, 1e-6).value, judged(Outcome.SOLVED, math.inf, 1e-6).value
    ('solved', 'stalled', 'numerical_error')
    """
    if outcome is not Outcome.SOLVED or proven <= asked < math.inf:
        return outcome
    return Outcome.STALLED if math.isfinite(proven) else Outcome.NUMERICAL_ERROR


@dataclass(frozen=True)
class Result:
    """Outcome and statistics of a fit, of the same type for all learners.

    Where `proven` is not finite, or more than `asked`, an outcome SOLVED is replaced by what `judged` returns, and the remedy says why.

    history     a dictionary for each check: stage, iteration, objective, gap or residuals, seconds since the start
    seconds     wall time by stage of this session and "total", of earlier sessions too: at least the history's last seconds
    peak_bytes  largest resident memory of this process so far
    restarts    how often lost workers sent the run back to its last commit
    remedy      what to do about the outcome, in the names of the learner's parameters
    proven      how near to the optimum what is handed out is, recomputed from it: the largest relative gap, or what `measure` names
    asked       what `proven` may be at most for the outcome to be SOLVED
    measure     name of `proven`: "relative gap", or, of a learner without one, its residual
    wrong_pairs pairs that look wrong (`WrongPairs`), of a learner that looked for them; else None
    quality     a number on held-out data, next to that of the plainest alternative; None where nothing was held out
    no_quality  why `quality` is None, where one was asked for and the fit was not stopped
    placement   where dense work was done: "worker tcp://10.0.0.7:4000 (2.0 GB)", with what it may use, or "this process"
    """

    outcome: Outcome
    n_iter: int
    history: list[Row] = field(repr=False)
    seconds: dict[str, float]
    peak_bytes: int
    restarts: int = 0
    plan: dict[str, Any] = field(default_factory=dict, repr=False)
    remedy: str = ""
    proven: float = math.nan
    wrong_pairs: Any = field(default=None, repr=False)
    quality: Quality | None = None
    no_quality: str = ""
    asked: float = math.nan
    measure: str = "relative gap"
    placement: str = "this process"

    def __post_init__(self) -> None:
        """Replace an outcome SOLVED that does not hold."""
        outcome = judged(self.outcome, self.proven, self.asked)
        if outcome is self.outcome:
            return
        why = f"the {self.measure} of what is handed out is {self.proven:.2g}"
        remedy = (
            f"{why}, {self.asked:.2g} was asked for: loosen tol, or use dtype='float64' if it is not"
            if outcome is Outcome.STALLED
            else f"{why}: bring the numbers nearer to 1, of rows, kernel, targets and weights alike"
        )
        object.__setattr__(self, "outcome", outcome)
        object.__setattr__(self, "remedy", remedy)

    def placed(self, placement: str) -> Result:
        """Return the result with the place of its dense work."""
        return replace(self, placement=placement)

    def with_quality(self, quality: Quality | None, seconds: float, no_quality: str, total: float) -> Result:
        """Return the result with a quality that took `seconds` of `total`; no_quality: why `quality` is None."""
        times = self.seconds | {"quality": seconds, "total": total}
        return replace(self, quality=quality, no_quality="" if quality else no_quality, seconds=times)

    @property
    def ended(self) -> str:
        """Return the outcome, with what is proven if that is too little: "stationary (relative gap 0.049)"."""
        if math.isnan(self.proven) or self.outcome.is_wanted:
            return self.outcome.value
        return f"{self.outcome.value} ({self.measure} {self.proven:.2g})"

    @property
    def message(self) -> str:
        """Return the outcome and its remedy."""
        return f"{self.ended}: {self.remedy}" if self.remedy else self.ended
