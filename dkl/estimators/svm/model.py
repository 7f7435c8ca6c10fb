"""ONK's model in a run's folder, written by a fit and read to predict, and the kernel that it has learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.base.classes import read_classes
from dkl.estimators.base.run_arrays import (
    CERTIFICATE,
    ITERATION,
    check_lengths,
    check_rows,
    declared_history,
    declared_points,
    point_arrays,
    read_points,
    trained_on,
    write_history,
)
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.svm.decisions import ClassifierModel, FittedClassifier, Machines, kernel_names, kernels_for_plans
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.solvers.svm.interface import machines
from dkl.stores.checkpoints import vectors_of
from dkl.stores.kernels import TILES
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows
    from dkl.stores.seals import Json


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

# -- learned kernel ----------------------------------------------------------------------------------------------------
# The optimal neighborhood kernel of a machine, for rows learned from and for others (Liu et al. 2009, (5) and section 2.2).

ALIKE = 1e-3
"""Largest difference between the coordinates of equal rows, relative to the largest of all, that is put down
to the solver's tolerance."""


@dataclass(frozen=True)
class MachineKernel:
    """K = sum_k shares_k kernels_k of one machine."""

    kernels: list[Kernel]
    shares: NDArray[np.float64]

    def __call__(self, rows: Rows, others: Rows | None) -> NDArray[np.float64]:
        """Return K (m, l) of rows with others, or (m, m) of rows with themselves, symmetric to the bit.

        Rows of a precomputed kernel are rows of K.
        """
        if self.kernels[0].is_precomputed:
            return np.asarray(rows, np.float64)
        points = rows if others is None else others
        K = np.zeros((rows.shape[0], points.shape[0]))
        for kernel, share in zip(self.kernels, self.shares, strict=True):
            if share:
                K += share * kernel.columns(rows, points)
        return 0.5 * (K + K.T) if others is None else K


@dataclass(frozen=True)
class OwnCoordinates:
    """Coordinates y_i alpha_i / sqrt(2 rho) of the learned kernel, one that only this row has for each row learned from.

    support (s,): numbers of the support vectors; values (s,) theirs, other rows have 0.
    """

    support: NDArray[np.intp]
    values: NDArray[np.float64]

    def of_all(self, n: int) -> NDArray[np.float64]:
        """Return those of all n rows learned from."""
        found = np.zeros(n)
        found[self.support] = self.values
        return found

    def of_numbers(self, numbers: object, m: int) -> NDArray[np.float64]:
        """Return those (m,) of rows by their numbers among those learned from, -1 for others; InputError for other numbers."""
        given = np.asarray(numbers)
        if given.shape != (m,) or given.dtype.kind not in "iu" or (m and given.min() < -1):
            least = f", the least {given.min()}" if given.dtype.kind in "iu" and given.size else ""
            raise InputError(
                "not row numbers", where="rows", got=f"{given.dtype} of shape {given.shape}{least}",
                wanted=f"({m},) whole numbers, the row's among those learned from, or -1",
            )  # fmt: skip
        known = dict(zip(self.support.tolist(), self.values.tolist(), strict=True))
        return np.array([known.get(number, 0.0) for number in given.tolist()])

    def of_equal(self, rows: Rows, points: Rows, where: str) -> NDArray[np.float64]:
        """Return those (m,) of the support vectors `points` (s, d) that rows (m, d) equal, else 0.

        Raises InputError for a row that equals several support vectors of different coordinates.
        """
        known: dict[bytes, list[float]] = {}
        for name, value in zip(_names(points), self.values.tolist(), strict=True):
            known.setdefault(name, []).append(value)
        most, found = ALIKE * float(np.abs(self.values).max(initial=0.0)), np.zeros(rows.shape[0])
        for i, name in enumerate(_names(rows)):
            values = known.get(name, [0.0])
            if max(values) - min(values) > most:
                raise InputError(
                    "equals several rows that were learned from, whose labels or weights differ", where=f"{where}[{i}]",
                    remedy="give rows=, the number of each row of X among those learned from, or -1",
                )  # fmt: skip
            found[i] = sum(values) / len(values)
        return found


def _names(rows: Rows) -> list[bytes]:
    """Return the values of each row as bytes, the same for equal rows, dense or sparse."""
    found = sp.csr_array(rows, dtype=np.float64, copy=True)
    found.sum_duplicates()
    found.eliminate_zeros()
    columns, values, ends = found.indices.astype(np.int64), found.data, found.indptr.tolist()
    return [columns[lo:hi].tobytes() + values[lo:hi].tobytes() for lo, hi in zip(ends[:-1], ends[1:], strict=True)]
