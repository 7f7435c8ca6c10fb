"""Runs of LogDet metric learning: a path of gammas, each kept once it is solved, then the metric at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import DklError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.logdet.model import check_metric_model, metric_settings_in, transformed_block
from dkl.estimators.logdet.plan import plan_metric
from dkl.estimators.logdet.settings import LogDetMetricRunSettings
from dkl.runs.estimate import own_rows
from dkl.runs.inputs.files import Lazy
from dkl.runs.inputs.readers import check_values
from dkl.runs.logdet.inputs import LogDetInputs, dense, estimate_of, verified_bytes
from dkl.runs.logdet.kind import facts_of
from dkl.runs.logdet.metric import DECLARATION
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.predictions import Needs, Predictor, applied_bytes, predictions, with_later
from dkl.runs.registry import Estimate, Facts, Notes, RunKind
from dkl.runs.report import Comparison
from dkl.runs.stored import settings_of
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.logdet.metric import LogDetMetricLearner
    from dkl.plotting.canvas import Picture


def _needs(d: int, n_components: int | None) -> Needs:
    """Return the needs of all coordinates of rows of d features, or of `n_components` of them."""
    k = n_components or d
    return Needs(8 * k * d, lambda rows: 2 * 8 * rows * d, 8 * k)


def predictor(run: RunStore) -> Predictor:
    """Return a predictor by the stored metric; StoreError for parts that do not fit together."""
    found = run.read_arrays("model")
    check_metric_model(run, found)
    components, d = found["components"], trained_on(run)[1]
    k = len(components)

    def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return np.concatenate(rows.map(transformed_block, components, only=some))

    summary = "rows whose Euclidean distances are the learned ones"
    return Predictor((k,), np.float64, lambda features: d, together, None, summary, _needs(d, k), "factor")


class MetricRuns(RunKind[LogDetMetricRunSettings, LogDetInputs]):
    """Runs of TRIN's metrics in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_ROWS

    def plan(self, found: LogDetInputs, settings: LogDetMetricRunSettings, session: Session) -> Plan:
        """Return the memory plan; MemoryBudgetError if it fits neither a worker nor this process."""
        own, sizes, place = own_rows(found.rows), found.sizes(settings), Place.of(session)
        made = plan_metric(sizes, settings, session, own).plan
        later = {
            "dkl transform": applied_bytes(_needs(sizes.d, settings.n_components), found.rows, place),
            "dkl verify": verified_bytes(sizes, is_cut=settings.n_components is not None) + own,
        }
        return with_later(made, place, settings.memory_limit, later)

    def disk_bytes(self, found: LogDetInputs, settings: LogDetMetricRunSettings, plan: Plan) -> int:
        """Return bytes of the model, two states of the path, held-out multipliers, and rows that a picture shows."""
        sizes = found.sizes(settings)
        vectors = 8 * (5 * len(settings.gammas) + 1) * sizes.c
        return vectors + 8 * (
            (2 * sizes.d + (settings.n_components or 0)) * sizes.d + sizes.p + min(sizes.n, MOST_ROWS) * sizes.d
        )

    def estimate(
        self, found: LogDetInputs, settings: LogDetMetricRunSettings, plan: Plan, session: Session
    ) -> Estimate:
        """Return sizes, shown before the plan, and seconds, after it."""
        return estimate_of(found, settings, plan, found.rows.n_features)

    def check_values(self, found: LogDetInputs, settings: LogDetMetricRunSettings) -> None:
        """Raise InputError for a value that is not finite."""
        check_values(found.rows)

    def fit(
        self,
        run: RunStore,
        found: Lazy[LogDetInputs],
        settings: LogDetMetricRunSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.logdet.store import fit_metric_in_run

        given = found()
        rows = dense(given.rows.read(0, given.rows.n))
        side = given.side(rows, settings)
        return fit_metric_in_run(run, rows, side, settings, session, watch, notes, own_rows(given.rows))

    def facts(self, run: RunStore) -> Facts:
        """Return state, sizes, the certificate at the last gamma, and a line for each gamma."""
        return facts_of(run, len(metric_settings_in(run).gammas))

    def claims(self, run: RunStore, found: Lazy[LogDetInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.logdet.metric import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LogDetMetricLearner:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.logdet.store import load_metric

        return load_metric(run)

    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of `dkl transform` for the rows of a file."""
        return predictions(predictor(run), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[LogDetInputs]) -> Picture:
        """Return the learner's picture, with classes if the data still exist."""
        learner, y = self.load(run), None
        with suppress(DklError):  # labels are gone, or have changed
            codes = found().codes
            if codes is not None and len(codes) == trained_on(run)[0]:
                y = codes
        return learner.plot(y=y)
