"""Plans and checks of learners by kernels on rows with targets, made before any work starts."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from dkl.estimators.base.settings import Settings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.inputs.row_files import check_values
from dkl.runs.planner import Planner
from dkl.runs.supervised.inputs import SupervisedInputs, check_kernels

S = TypeVar("S", bound=Settings)
I = TypeVar("I", bound=SupervisedInputs)  # noqa: E741  # of inputs


class SupervisedPlanner(Planner[S, I]):
    """Base of planners for which a learner supplies its kernels; see `Planner` for the rest."""

    @abstractmethod
    def kernels(self, found: I, settings: S) -> list[Kernel]:
        """Return the kernels that the settings name, as the learner makes them from these rows."""

    def check_values(self, found: I, settings: S) -> None:
        """Raise InputError for a value that is not finite, or a kernel that is invalid on these rows."""
        check_values(found.rows)
        check_kernels(found.rows, self.kernels(found, settings))
