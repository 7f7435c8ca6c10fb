"""Runs of the classifier: a machine after another, whose coefficients are kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.estimators.base.plot_rows import MOST_DECIDED
from dkl.estimators.svm.decisions import Scheme
from dkl.estimators.svm.model import load_model
from dkl.estimators.svm.plan import MachineSizes
from dkl.estimators.svm.settings import SVCSettings
from dkl.plotting.figures import PlotData
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.kind import Facts, Notes
from dkl.runs.output.files import OutputRequest
from dkl.runs.output.prediction_plan import kernel_needs
from dkl.runs.output.predictions import Predictor
from dkl.runs.stored import settings_of
from dkl.runs.supervised.base import WHOSE
from dkl.runs.supervised.class_inputs import ClassInputs
from dkl.runs.supervised.classification import ClassifierRuns, class_predictor
from dkl.runs.svm import DECLARATION, facts
from dkl.runs.svm.planner import SVCPlanner
from dkl.runs.verify.comparison import Comparison
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.svm.learner import OptimalNeighborhoodSVC


class SVCRuns(SVCPlanner, ClassifierRuns[SVCSettings]):
    """Runs of ONK in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_DECIDED

    def fit(
        self,
        run: RunStore,
        found: Lazy[ClassInputs],
        settings: SVCSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.svm.store import fit_in_run
        from dkl.estimators.svm.training import Training

        inputs = found()
        kernels = self.kernels(inputs, settings)
        training = Training.of(inputs.rows, inputs.classes, inputs.numbers, kernels, settings.C, settings.class_weight)
        return fit_in_run(run, training, settings, session, watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts.facts(run)

    def claims(self, run: RunStore, found: Lazy[ClassInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.svm import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> OptimalNeighborhoodSVC:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.svm.load import load_classifier

        return load_classifier(run)

    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return a predictor of the stored model's labels, or of its decision values."""
        model = load_model(run)
        found, scheme = model.machines, Scheme(len(model.classes), settings_of(run, {}).multi_class)
        needs = kernel_needs(found.points, found.coefficients, len(found.kernels))
        votes = MachineSizes(len(found.coefficients), 0, 0, len(model.classes)).votes
        needs = replace(needs, model=needs.model + votes)
        of_kernel = found.kernels[0].is_precomputed
        return class_predictor(model.classes, model.n_features, found.decide, scheme, request, needs, of_kernel)

    def plot_data(self, model: OptimalNeighborhoodSVC, X: Any, y: Any) -> PlotData:
        """Return the plot of the rows that the run learned from, if they are there."""
        from dkl.estimators.svm.plot_data import plot_data

        return plot_data(model, X, y, whose=WHOSE)
