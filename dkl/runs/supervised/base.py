"""Common base of the runs of all learners that predict something of rows, by kernels on them."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import Any

from dkl.errors import DklError
from dkl.plotting.figures import PlotData, figure_of
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.kind import RunKind
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.predictions import Predictor, predictions
from dkl.runs.supervised.planner import I, S, SupervisedPlanner
from dkl.stores.run import RunStore

WHOSE = "rows learned from"
"""Name of the rows in a run's picture."""


class SupervisedRuns(SupervisedPlanner[S, I], RunKind[S, I]):
    """Base of runs for which a learner supplies predictions and drawing; see `RunKind` for the rest."""

    @abstractmethod
    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return the predictor of the run's model for a request; InputError for what it cannot predict."""

    @abstractmethod
    def plot_data(self, model: Any, X: Any, y: Any) -> PlotData:
        """Return the plot of the fitted estimator: of rows X and targets y, or None of each, called WHOSE."""

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of the command's verb for the rows of a file."""
        return predictions(self.predictor(run, request), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[I]) -> Any:
        """Return the learner's picture, of the rows that it learned from if they still exist."""
        X = y = None
        with suppress(DklError):  # the rows are gone, or have changed: what needs them is left out
            X, y = found().rows, found().targets
        return figure_of(self.plot_data(self.load(run), X, y))
