"""What a run of kernel regression takes, from shapes alone."""

from __future__ import annotations

from dataclasses import replace

from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.estimators.columns.plan import kernel_of, n_candidates, plan_fit
from dkl.estimators.regression.settings import RegressionSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.runs.planner import Estimate
from dkl.runs.regression.inputs import RegressionInputs
from dkl.runs.supervised_planner import SupervisedPlanner


class RegressionPlanner(SupervisedPlanner[RegressionSettings, RegressionInputs]):
    """Of SLKL."""

    def kernels(self, found: RegressionInputs, settings: RegressionSettings) -> list[Kernel]:
        """That of the columns."""
        return [kernel_of(settings)]

    def adapted(self, settings: RegressionSettings, found: RegressionInputs) -> RegressionSettings:
        """No more folds than rows."""
        return replace(settings, cv=min(settings.cv, found.rows.n)) if settings.nu == "cv" else settings

    def plan(self, found: RegressionInputs, settings: RegressionSettings, session: Session) -> Plan:
        """Bytes of memory and disk; MemoryBudgetError where they do not fit."""
        count = n_candidates(found.rows.n, settings, None)
        n_targets = 1 if found.targets.ndim == 1 else found.targets.shape[1]
        return plan_fit(found.rows, count, n_targets, settings, Place.of(session), has_folder=True)

    def estimate(self, found: RegressionInputs, settings: RegressionSettings, plan: Plan, session: Session) -> Estimate:
        """Sizes and seconds, for `dkl plan`."""
        from dkl.runs.regression.estimate import estimate  # by the kernels and sums themselves

        return estimate(found, settings, plan, session)
