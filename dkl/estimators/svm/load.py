"""Loading of the classifier from a run of ONK."""

from __future__ import annotations

import numpy as np

from dkl.estimators.base.declared_arrays import read_history
from dkl.estimators.base.run_arrays import columns_of, result_in
from dkl.estimators.base.settings import remade
from dkl.estimators.base.standardize import read_scale
from dkl.estimators.svm.decisions import FittedClassifier
from dkl.estimators.svm.learner import OptimalNeighborhoodSVC
from dkl.estimators.svm.model import load_model, reported_rho
from dkl.estimators.svm.settings import SVCSettings
from dkl.stores.run import RunStore


def load_classifier(run: RunStore) -> OptimalNeighborhoodSVC:
    """Load the fitted classifier of a run, as `dkl fit svc` left it."""
    model, result = load_model(run), result_in(run, read_history(run))
    outputs, settings = run.report().get("outputs", []), run.config["settings"]
    told = columns_of(outputs, "objective", "gap", "relative_gap")
    found = remade(OptimalNeighborhoodSVC, SVCSettings, settings, work_dir=None)
    found.scale_ = read_scale(run)
    rhos = np.array([reported_rho(output, settings["rho"]) for output in outputs])
    certificate = rhos, told["objective"], told["gap"], told["relative_gap"]
    found._adopt(
        FittedClassifier(model.classes, model.support, model.machines, model.n_features, *certificate, result=result)
    )
    return found
