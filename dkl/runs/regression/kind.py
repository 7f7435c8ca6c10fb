"""Runs of kernel regression: one pass over the rows, whose sums are kept in between, then the solver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.regression.columns.targets import target_means
from dkl.estimators.regression.settings import RegressionSettings
from dkl.plotting.figures import PlotData
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.kind import Facts, Notes
from dkl.runs.output.files import OutputRequest
from dkl.runs.output.predictions import Predictor
from dkl.runs.regression import DECLARATION
from dkl.runs.regression.facts import facts
from dkl.runs.regression.inputs import RegressionInputs
from dkl.runs.regression.planner import RegressionPlanner
from dkl.runs.regression.predict import predictor
from dkl.runs.stored import settings_of
from dkl.runs.supervised.base import WHOSE, SupervisedRuns
from dkl.runs.verify.comparison import Comparison
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.regression.learner import LowRankKernelRegressor
    from dkl.stores.sealed_json import Json


class RegressionRuns(RegressionPlanner, SupervisedRuns[RegressionSettings, RegressionInputs]):
    """Runs of SLKL in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_ROWS
    made_from = ("candidates",)

    def config(self, found: RegressionInputs) -> Json:
        """Return the means of the targets, as the run's configuration stores them."""
        return {"target_means": target_means(found.targets.reshape(found.rows.n, -1)).tolist()}

    def fit(
        self,
        run: RunStore,
        found: Lazy[RegressionInputs],
        settings: RegressionSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.regression.store import fit_in_run

        y, offsets = found().centered(settings, run.config.get("target_means"))
        return fit_in_run(run, found().rows, y, None, offsets, settings, session, watch=watch, notes=notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run that `dkl info` shows."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[RegressionInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.regression import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LowRankKernelRegressor:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.regression.load import load_regressor

        return load_regressor(run)

    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return a predictor by the stored model."""
        return predictor(run, request)

    def plot_data(self, model: LowRankKernelRegressor, X: Any, y: Any) -> PlotData:
        """Return the plot of the rows that the run learned from, if they are there."""
        from dkl.estimators.regression.plot_data import plot_data

        return plot_data(model, X, y, whose=WHOSE)
