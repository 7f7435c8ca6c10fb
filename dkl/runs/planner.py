"""Interface to the plans and checks of a learner, made before any work starts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from dkl.estimators.base.settings import Settings

if TYPE_CHECKING:  # declarations, which name planners, are to be had without them
    from dkl.blocks.memory.plan import Plan
    from dkl.blocks.session import Session

S = TypeVar("S", bound=Settings)
I = TypeVar("I")  # noqa: E741  # of inputs


@dataclass(frozen=True)
class Estimate:
    """Lines of `dkl plan` before the memory plan, and after it."""

    before: list[str]
    after: list[str]


class Planner(ABC, Generic[S, I]):
    """Plans and checks before a learner's work: what a run takes, and whether a fit can take the values.

    S: its settings; I: its inputs, read and checked, with `fingerprints()`. It imports no more than that needs, neither Numba nor
    scikit-learn: a run that does not fit is refused within a second.
    """

    @abstractmethod
    def plan(self, inputs: I, settings: S, session: Session) -> Plan:
        """Return bytes of memory and disk, without values of the inputs; MemoryBudgetError if they do not fit."""

    @abstractmethod
    def estimate(self, inputs: I, settings: S, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for a person who plans a run."""

    # -- where a learner differs from most ----------------------------------------------------------------------------

    def adapted(self, settings: S, inputs: I) -> S:
        """Return the settings as these inputs allow them; a `work_dir` is made absolute, and must be writable."""
        from dkl.estimators.base.work_folder import checked_folder

        folder = getattr(settings, "work_dir", None)
        return settings if folder is None else settings.changed(work_dir=checked_folder(folder))

    def check_values(self, inputs: I, settings: S) -> None:
        """Look at all values once, when a run begins; InputError for the first that no fit can take."""

    def disk_bytes(self, inputs: I, settings: S, plan: Plan) -> int:
        """Return an upper bound on the bytes of the run's folder."""
        return plan.disk_bytes
