"""Plan of a run of kernel regression, from shapes alone."""

from __future__ import annotations

from dataclasses import replace

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.estimators.regression.columns.plan import kernel_of, n_candidates, plan_fit, quality_bytes
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.output.prediction_plan import PointSizes, applied_bytes, with_later
from dkl.runs.planner import Estimate
from dkl.runs.regression.inputs import RegressionInputs
from dkl.runs.supervised.planner import SupervisedPlanner
from dkl.runs.verify.recomputed import BLOCK_BYTES as VERIFY_BYTES
from dkl.stores.sealed_json import MEMORY

REPORT_BYTES, TARGET_BYTES = 20_000, 1_000
"""Bytes of a report, and of a target in it."""


class RegressionPlanner(SupervisedPlanner[RegressionSettings, RegressionInputs]):
    """Planner of SLKL, kernel regression."""

    def kernels(self, found: RegressionInputs, settings: RegressionSettings) -> list[Kernel]:
        """Return the kernel of the columns."""
        return [kernel_of(settings)]

    def adapted(self, settings: RegressionSettings, found: RegressionInputs) -> RegressionSettings:
        """Return the settings with no more folds than rows."""
        return replace(settings, cv=min(settings.cv, found.rows.n)) if settings.nu == "cv" else settings

    def plan(self, found: RegressionInputs, settings: RegressionSettings, session: Session) -> Plan:
        """Return bytes of memory and disk; MemoryBudgetError if they do not fit."""
        count = n_candidates(found.rows.n, settings, None)
        n_targets = 1 if found.targets.ndim == 1 else found.targets.shape[1]
        place = Place.of(session)
        made = plan_fit(found.rows, count, n_targets, settings, place, has_folder=True)
        return with_later(made, place, settings.memory_limit, _later(found.rows, count, n_targets, settings, place))

    def estimate(self, found: RegressionInputs, settings: RegressionSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for `dkl plan`."""
        from dkl.runs.regression.estimate import estimate  # by the kernels and sums themselves

        return estimate(found, settings, plan, session)


def _later(rows: RowSource, count: int, n_targets: int, settings: RegressionSettings, place: Place) -> dict[str, int]:
    """Return the bytes of `dkl predict` with targets, of `dkl verify`, and of reading the report, by name."""
    n, d = rows.n, rows.n_features
    sizes = PointSizes.of(rows, count, is_precomputed=settings.kernel == "precomputed")
    points = sizes.needs(n_targets, 8 * n_targets * count)
    known = 3 * 8 * n * n_targets
    models = (2 + bool(settings.holdout)) * 8 * n_targets * count
    quality = quality_bytes(rows, count, n_targets, settings)
    moments = 8 * (3 * count * n_targets + 3 * n * n_targets)
    passing = sizes.size + 2 * 8 * count * d + 3 * VERIFY_BYTES
    return {
        "dkl predict": applied_bytes(points, rows, place, known),
        "dkl verify": rows.own_bytes + models + moments + max(passing, quality),
        "reading the report": MEMORY * (REPORT_BYTES + TARGET_BYTES * n_targets),
    }
