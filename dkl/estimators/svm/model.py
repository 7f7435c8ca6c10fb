"""ONK's model in a run's folder: written by a fit, read to predict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import StoreError
from dkl.estimators.base.classes import read_classes
from dkl.estimators.base.run_arrays import check_lengths, point_arrays, read_points, trained_on
from dkl.estimators.base.stored_history import write_history
from dkl.estimators.svm.decisions import ClassifierModel, FittedClassifier, Machines
from dkl.estimators.svm.kernels import kernel_names, kernels_for_plans
from dkl.estimators.svm.settings import SVCSettings
from dkl.solvers.svm.class_pairs import machines
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


def store_model(run: RunStore, fitted: FittedClassifier) -> None:
    """Store a fitted classifier's model in its run.

    Support (s,): row numbers; coefficients (M, s): y alpha; intercepts (M,), shares of the kernels, their gamma, the
    support vectors; and the machines' statistics.
    """
    decided = fitted.machines
    arrays = {
        "support": fitted.support,
        "coefficients": decided.coefficients,
        "intercepts": decided.intercepts,
        "kernel_weights": decided.shares,
        "gammas": np.array([kernel.gamma for kernel in decided.kernels]),
    }
    if not decided.kernels[0].is_precomputed:
        arrays |= point_arrays(decided.points)
    run.write_arrays("model", arrays)
    if fitted.held_out:
        run.write_arrays("held_out", fitted.held_out)
    write_history(run, fitted.result.history)


def load_model(run: RunStore) -> ClassifierModel:
    """Load the stored classifier, ready to predict; StoreError for parts that do not fit together."""
    found = run.read_arrays("model")
    settings, classes, where = SVCSettings(**run.config["settings"]), read_classes(run), f"{run.path}/model"
    names, support, n_features = kernel_names(settings), found["support"], trained_on(run)[1]
    is_precomputed = names == ["precomputed"]
    points = support if is_precomputed else read_points(found, where)
    count = len(machines(np.arange(len(classes)), len(classes), settings.multi_class))
    known = {"machine": count, "kernel": len(names), "support": points.shape[0]}
    check_lengths(run, "model", found, "a model whose parts do not fit together", where, **known)
    if not is_precomputed and points.shape[1] != n_features:
        raise StoreError("support vectors of another number of features", where=where, got=points.shape[1])
    bare = zip(kernels_for_plans(settings), found["gammas"], strict=True)
    kernels = [replace(kernel, gamma=float(gamma)) for kernel, gamma in bare]
    decided = Machines(kernels, found["kernel_weights"], points, found["coefficients"], found["intercepts"])
    return ClassifierModel(classes, support, decided, n_features)


def reported_rho(output: Json, setting: float | str) -> float:
    """Return a machine's rho in a report, else `setting` (earlier versions); ValueError if not a number."""
    return float(output.get("rho", setting))
