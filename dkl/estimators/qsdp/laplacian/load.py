"""The fitted `LaplacianKernelLearner` of a run."""

from __future__ import annotations

from dkl.estimators.base.settings import remade
from dkl.estimators.qsdp.basis.store import keep_in, posed_in
from dkl.estimators.qsdp.laplacian.fit import PosedPropagation
from dkl.estimators.qsdp.laplacian.learner import LaplacianKernelLearner
from dkl.estimators.qsdp.laplacian.settings import PropagationSettings
from dkl.stores.run import RunStore


def load_learner(run: RunStore) -> LaplacianKernelLearner:
    """Restore the learner from its run alone; StoreError for parts that do not fit together."""
    posed = posed_in(run, PosedPropagation, PropagationSettings(**run.config["settings"]))
    learner = remade(LaplacianKernelLearner, PropagationSettings, run.config["settings"])
    keep_in(learner, run, posed)
    return learner
