"""How a run ended, and what it leaves: one closed list of outcomes, one result type for every solver."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Outcome(Enum):
    """Why the run stopped. `remedy` says what to do about it."""

    SOLVED = "solved"
    ITERATION_LIMIT = "iteration_limit"
    STALLED = "stalled"
    NUMERICAL_ERROR = "numerical_error"
    STOPPED = "stopped_by_callback"
    INTERRUPTED = "interrupted"

    @property
    def remedy(self) -> str:
        return _REMEDIES[self]

    @property
    def converged(self) -> bool:
        return self is Outcome.SOLVED


_REMEDIES = {
    Outcome.SOLVED: "",
    Outcome.ITERATION_LIMIT: "raise max_iter, loosen tol, or set target_gap to finish by a second-order method",
    Outcome.STALLED: "no further progress was made: loosen target_gap, or raise the rank",
    Outcome.NUMERICAL_ERROR: "a value stopped being finite: lower gamma, or use dtype='float64'; the last commit is kept",
    Outcome.STOPPED: "a callback asked for the end",
    Outcome.INTERRUPTED: "go on from the last commit with `dkl resume`",
}


@dataclass(frozen=True)
class Result:
    """What happened, for every solver alike.

    history     one dictionary an iteration: iteration, objective, residuals, seconds since the start
    seconds     wall time by stage ("graph", "solve", "finish", "certificate") and "total"
    peak_bytes  largest resident memory of this process so far
    restarts    how often lost workers sent the run back to its last commit
    """

    outcome: Outcome
    n_iter: int
    history: list[dict[str, Any]] = field(repr=False)
    seconds: dict[str, float]
    peak_bytes: int
    restarts: int = 0
    plan: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def message(self) -> str:
        return f"{self.outcome.value}: {self.outcome.remedy}" if self.outcome.remedy else self.outcome.value
