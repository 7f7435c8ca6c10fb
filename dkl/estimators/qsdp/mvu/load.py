"""The fitted `MaximumVarianceUnfolding` of a run."""

from __future__ import annotations

from dkl.estimators.base.settings import remade
from dkl.estimators.qsdp.basis.store import keep_in, posed_in
from dkl.estimators.qsdp.mvu.fit import PosedUnfolding
from dkl.estimators.qsdp.mvu.learner import MaximumVarianceUnfolding
from dkl.estimators.qsdp.mvu.settings import UnfoldingSettings
from dkl.stores.run import RunStore


def load_learner(run: RunStore) -> MaximumVarianceUnfolding:
    """Restore the learner from its run alone; StoreError for parts that do not fit together."""
    settings = UnfoldingSettings(**run.config["settings"])
    posed = posed_in(run, PosedUnfolding, settings)
    learner = remade(MaximumVarianceUnfolding, UnfoldingSettings, run.config["settings"])
    keep_in(learner, run, posed)
    learner._adopt(posed)
    return learner
