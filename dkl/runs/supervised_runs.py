"""What the runs of all learners have in common that predict something of rows, by kernels on them."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any, TypeVar

from dkl.errors import DklError
from dkl.estimators.common import drawing
from dkl.estimators.common.settings import Settings
from dkl.linalg.kernel_columns import Kernel
from dkl.runs.kind import RunKind
from dkl.runs.lazy import Lazy
from dkl.runs.output import Output, Request
from dkl.runs.predictions import Predictor, predictions
from dkl.runs.row_files import check_values
from dkl.runs.supervised import SupervisedInputs, check_kernel
from dkl.stores.run import RunStore

S = TypeVar("S", bound=Settings)
I = TypeVar("I", bound=SupervisedInputs)  # noqa: E741  # of inputs

WHOSE = "rows learned from"
"""What a run's picture calls the rows that it shows."""


class SupervisedRuns(RunKind[S, I]):
    """Rows with targets: a learner supplies its kernels, what it predicts and how it is drawn; see `RunKind` for the rest."""

    @abstractmethod
    def kernels(self, found: I, settings: S) -> list[Kernel]:
        """The kernels that the settings name, as the learner makes them of these rows."""

    @abstractmethod
    def predictor(self, run: RunStore, request: Request) -> Predictor:
        """What the run's model predicts, as `dkl predict` asks for it; InputError for what it has not."""

    @abstractmethod
    def draw(self, figure: Any, model: Any, X: Any, y: Any) -> None:
        """The fitted estimator's picture into an empty figure: of rows X and targets y, or None of each, called WHOSE."""

    def check_values(self, found: I, settings: S) -> None:
        """InputError for a value that is not finite, or a kernel that is none on these rows."""
        check_values(found.rows)
        for kernel in self.kernels(found, settings):
            check_kernel(found.rows, kernel)

    def apply(self, run: RunStore, request: Request) -> Output:
        """What the command's verb writes for the rows of a file."""
        return predictions(self.predictor(run, request), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[I]) -> Any:
        """The learner's picture, of the rows it learned from where these are still there."""
        X = y = None
        with suppress(DklError):  # the rows are gone, or have changed: what needs them is left out
            X, y = found().rows, found().targets
        figure = drawing.new_figure()
        self.draw(figure, self.load(run), X, y)
        return figure
