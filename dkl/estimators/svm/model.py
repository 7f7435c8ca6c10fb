"""ONK's model in a run's folder: written by a fit, read to predict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import StoreError
from dkl.estimators.base.classes import read_classes
from dkl.estimators.base.declared_arrays import CERTIFICATE, ITERATION, declared_history, declared_points, write_history
from dkl.estimators.base.run_arrays import check_lengths, check_rows, point_arrays, read_points, trained_on
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.svm.decisions import ClassifierModel, FittedClassifier, Machines, kernel_names, kernels_for_plans
from dkl.estimators.svm.settings import SVCSettings
from dkl.solvers.svm.interface import machines
from dkl.stores.checkpoint_folder import vectors_of
from dkl.stores.kernels import TILES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
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
    if fitted.bound:
        run.write_arrays("bound", fitted.bound)
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
    check_rows(trained_on(run)[0], support, f"{where}/support")
    if not is_precomputed and points.shape[1] != n_features:
        raise StoreError("support vectors of another number of features", where=where, got=points.shape[1])
    bare = zip(kernels_for_plans(settings), found["gammas"], strict=True)
    kernels = [replace(kernel, gamma=float(gamma)) for kernel, gamma in bare]
    decided = Machines(kernels, found["kernel_weights"], points, found["coefficients"], found["intercepts"])
    return ClassifierModel(classes, support, decided, n_features)


def reported_rho(output: Json, setting: float | str) -> float:
    """Return a machine's rho in a report, else `setting` (earlier versions); ValueError if not a number."""
    return float(output.get("rho", setting))


# Declaration of a classifier run's arrays. A machine separates two classes, or one from the rest.

NUMBER = ("float64",)

ALPHAS = Arrays(vectors_of("alphas", "alphas", "All arrays of the machines that are under way or have ended."))

ARRAYS = Arrays(
    *COLUMN_ARRAYS,
    *ALPHAS,
    StoredArray("model/support", ("support",), INTEGERS, "Rows of the data with a coefficient in any machine."),
    StoredArray("model/coefficients", ("machine", "support"), NUMBER, "y alpha."),
    StoredArray("model/intercepts", ("machine",), NUMBER, "What is added to the decision value."),
    StoredArray("model/kernel_weights", ("machine", "kernel"), NUMBER, "Shares of the kernels that are combined."),
    StoredArray("model/gammas", ("kernel",), (*NUMBER, "int64"), "The kernels' gamma."),
    *declared_points("model", "support", "The support vectors"),
    StoredArray(
        "held_out/support",
        ("held_support",),
        INTEGERS,
        "Quality: rows of the data with a coefficient in any machine without the held-out rows.",
        optional=True,
    ),
    StoredArray("held_out/coefficients", ("machine", "held_support"), NUMBER, "y alpha of those.", optional=True),
    StoredArray("held_out/intercepts", ("machine",), NUMBER, "Their intercepts.", optional=True),
    StoredArray("held_out/gaps", ("machine",), NUMBER, "Their gaps.", optional=True),
    StoredArray(
        "bound/alpha",
        ("machine_row",),
        NUMBER,
        "Level method: mean of alpha over the points that prove the gap, the rows of one machine after those of another.",
        optional=True,
    ),
    StoredArray("bound/cubic", ("machine_row",), NUMBER, "Their mean of |alpha|^2 alpha.", optional=True),
    *declared_history(
        {
            "machine": "Of the solver's checks: the machine.",
            **ITERATION,
            "products": "Of the checks: products with the kernel matrix so far.",
        },
        CERTIFICATE,
    ),
    TILES,
    files={
        "alphas/alphas-*/MANIFEST.json": "A checkpoint of the machines, each as its result, or as the state that its solver "
        "resumes from: numbers, rows of the history, and the names and shapes of its arrays."
    },
)
