"""ONK's model in a run's folder: written by a fit, read to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.common.run_arrays import point_arrays, read_arrays, read_points, result_in
from dkl.estimators.svc.classifier import FittedClassifier
from dkl.estimators.svc.decisions import Machines, Scheme
from dkl.estimators.svc.kernels import kernel_names
from dkl.estimators.svc.learner import OptimalNeighborhoodSVC
from dkl.estimators.svc.settings import SVCSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.solvers.svm_pairs import machines
from dkl.stores.run import RunStore

TOLD = ("iteration", "products", "objective", "gap", "relative_gap")
"""Of the history, where all machines have them."""


def describe_classes(classes: NDArray) -> dict[str, Any]:
    """Class labels, numbers or text, as JSON keeps them."""
    return {"values": classes.tolist(), "dtype": classes.dtype.str}


def read_classes(run: RunStore) -> NDArray:
    """The class labels of a run, in their order."""
    known = run.config.get("classes")
    try:
        dtype = np.dtype(known["dtype"])  # type: ignore[index]
        if dtype.kind not in "biufU":
            raise ValueError(f"dtype {dtype}")
        classes = np.array(known["values"], dtype)  # type: ignore[index]
        if classes.ndim != 1 or len(np.unique(classes)) != len(classes) or len(classes) < 2:
            raise ValueError(f"{classes.size} values")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError("no classes that are understood", where=f"{run.path}/config.json", got=error) from error
    return classes


def store_model(run: RunStore, fitted: FittedClassifier) -> None:
    """Support (s,): row numbers; coefficients (M, s): y alpha; intercepts (M,), shares of the kernels, their gamma, the
    support vectors; and how the machines came to be."""
    decided, result = fitted.machines, fitted.result
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
    assert result is not None
    told = [name for name in TOLD if all(name in row for row in result.history)]
    columns = {name: np.array([row[name] for row in result.history]) for name in ("machine", *told)}
    run.write_arrays("history", columns)


def read_history(run: RunStore) -> list[dict[str, Any]]:
    """A row a check of the solver."""
    found = run.read_arrays("history")
    names = sorted(found)
    return [dict(zip(names, row, strict=True)) for row in zip(*(found[name].tolist() for name in names), strict=True)]


@dataclass(frozen=True)
class Model:
    """A stored classifier, ready to predict. n_features: of its rows; with a precomputed kernel, how many rows it saw."""

    machines: Machines
    support: NDArray[np.intp]
    classes: NDArray
    scheme: Scheme
    n_features: int


def load_model(run: RunStore) -> Model:
    """The stored classifier; StoreError for parts that do not fit together."""
    found = read_arrays(run, "model", "support", "coefficients", "intercepts", "kernel_weights", "gammas")
    settings, classes, where = SVCSettings(**run.config["settings"]), read_classes(run), f"{run.path}/model"
    names, gammas, support = kernel_names(settings), found["gammas"], found["support"]
    is_precomputed = names == ["precomputed"]
    points = support if is_precomputed else read_points(found, where)
    n_features = _trained_on(run)[0 if is_precomputed else 1]
    count = len(machines(np.arange(len(classes)), len(classes), settings.multi_class))
    shapes = {
        "coefficients": (count, len(support)),
        "intercepts": (count,),
        "kernel_weights": (count, len(names)),
        "gammas": (len(names),),
    }
    if any(found[name].shape != shape for name, shape in shapes.items()) or points.shape[0] != len(support):
        raise StoreError("a model whose parts do not fit together", where=where)
    if not is_precomputed and points.shape[1] != n_features:
        raise StoreError("support vectors of another number of features", where=where, got=points.shape[1])
    kernels = [
        Kernel(name, float(gamma), settings.degree, settings.coef0) for name, gamma in zip(names, gammas, strict=True)
    ]
    decided = Machines(kernels, found["kernel_weights"], points, found["coefficients"], found["intercepts"])
    return Model(decided, support, classes, Scheme(len(classes), settings.multi_class), n_features)


def _trained_on(run: RunStore) -> tuple[int, int]:
    try:
        n, n_features = run.config["inputs"]["data"]["shape"]
        return int(n), int(n_features)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError("no shape of the training rows", where=f"{run.path}/config.json", got=error) from error


def load_classifier(run: RunStore) -> OptimalNeighborhoodSVC:
    """The fitted classifier of a run, as `dkl fit svc` left it."""
    model, outputs = load_model(run), run.report().get("outputs", [])
    told = {key: np.array([output[key] for output in outputs]) for key in ("objective", "gap", "relative_gap")}
    stored = {
        name: value for name, value in run.config["settings"].items() if name in OptimalNeighborhoodSVC().get_params()
    }
    found = OptimalNeighborhoodSVC(**{**stored, "work_dir": None})
    found._adopt(
        FittedClassifier(
            model.classes,
            model.support,
            model.machines,
            told["objective"],
            told["gap"],
            told["relative_gap"],
            model.n_features,
            result_in(run, read_history(run)),
        )
    )
    return found
