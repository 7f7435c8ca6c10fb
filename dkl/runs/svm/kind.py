"""Runs of the classifier: a machine after another, whose coefficients are kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.estimators.common.plot_rows import MOST_DECIDED
from dkl.estimators.svc.decisions import Scheme
from dkl.estimators.svc.model import load_model
from dkl.estimators.svc.plan import MachineSizes
from dkl.estimators.svc.settings import SVCSettings
from dkl.plotting.figures import PlotData
from dkl.runs.class_inputs import ClassInputs
from dkl.runs.classification import ClassifierRuns, class_predictor
from dkl.runs.comparison import Comparison
from dkl.runs.kind import Facts, Notes
from dkl.runs.lazy import Lazy
from dkl.runs.output import Request
from dkl.runs.prediction_plan import kernel_needs
from dkl.runs.predictions import Predictor
from dkl.runs.stored import settings_of
from dkl.runs.supervised_runs import WHOSE
from dkl.runs.svc import DECLARATION, facts
from dkl.runs.svc.planner import SVCPlanner
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.svc.learner import OptimalNeighborhoodSVC


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
        from dkl.estimators.svc.store import fit_in_run
        from dkl.estimators.svc.training import Training

        inputs = found()
        kernels = self.kernels(inputs, settings)
        training = Training.of(inputs.rows, inputs.classes, inputs.numbers, kernels, settings.C, settings.class_weight)
        return fit_in_run(run, training, settings, session, watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts.facts(run)

    def claims(self, run: RunStore, found: Lazy[ClassInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.svc import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> OptimalNeighborhoodSVC:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.svc.load import load_classifier

        return load_classifier(run)

    def predictor(self, run: RunStore, request: Request) -> Predictor:
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
        from dkl.estimators.svc.plot_data import plot_data

        return plot_data(model, X, y, whose=WHOSE)
