"""Checked training data of a classifier, decision values of its machines for rows, and the classes that follow."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.blocks.rows.predictions import FewRows, KeptPoints, predict_block
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.base.kernel_width import width_of
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.solvers.watch import Result


@dataclass(frozen=True)
class Training:
    """Training data of a classifier: rows, classes, class numbers, bounds (n,) of alpha, and kernels."""

    source: RowSource
    classes: NDArray
    numbers: NDArray[np.intp]
    bounds: NDArray[np.float64]
    class_weight: NDArray[np.float64]
    kernels: list[Kernel]

    @classmethod
    def of(
        cls,
        source: RowSource,
        classes: NDArray,
        numbers: NDArray[np.intp],
        kernels: list[Kernel],
        C: float,
        class_weight: object = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> Training:
        """Build from the rows; InputError for invalid weights or a precomputed kernel that is not square."""
        from dkl.estimators.base.validation import (
            box_bounds,  # scikit-learn, which plans and rows that are refused do without
        )

        bounds, weights = box_bounds(C, class_weight, classes, numbers, sample_weight)
        if kernels[0].is_precomputed:
            check_square(source.n, source.n_features)
        return cls(source, classes, numbers, bounds, weights, kernels)


Decisions = NDArray[np.float64]


@dataclass(frozen=True)
class Machines:
    """Machines g_m(x) = sum_i c_mi sum_k s_mk K_k(x_i, x) + b_m, with points i and kernels k.

    points: (s, d) rows, or (s,) column numbers of a precomputed kernel; shares (M, kernels); coefficients (M, s): y alpha;
    intercepts (M,).
    """

    kernels: list[Kernel]
    shares: NDArray[np.float64]
    points: Any
    coefficients: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    kept: KeptPoints | None = None
    """Prepared form of the points, if any."""

    def decide(self, rows: RowBlocks | FewRows, only: Collection[int] | None = None) -> Decisions:
        """Return decision values (m, M) for all rows, or for those of the blocks `only`."""
        if len(self.kernels) == 1:
            parts = (rows, self.kernels[0], self.coefficients, self.intercepts)
            return self._times(*parts, only)
        found = self._times(rows, self.kernels[0], self.shares[:, :1] * self.coefficients, self.intercepts, only)
        for kernel, shares in zip(self.kernels[1:], self.shares.T[1:], strict=True):
            # A kernel that no machine gives a weight is not computed.
            if shares.any():
                found += self._times(rows, kernel, shares[:, None] * self.coefficients, np.zeros(len(shares)), only)
        return found

    def _times(
        self,
        rows: RowBlocks | FewRows,
        kernel: Kernel,
        weights: Decisions,
        offsets: Decisions,
        only: Collection[int] | None,
    ) -> Decisions:
        points = self.points if self.kept is None else self.kept.for_rows(rows, kernel)
        return np.concatenate(rows.map(predict_block, kernel, points, weights, offsets, only=only))


@dataclass(frozen=True)
class ClassifierModel:
    """Model of a classifier, with all that predictions need.

    support (s,): row numbers of the support vectors; machines: what decides; n_features: of its rows, which with a
    precomputed kernel is how many it learned from.
    """

    classes: NDArray
    support: NDArray[np.intp]
    machines: Machines
    n_features: int


@dataclass(frozen=True)
class FittedClassifier(ClassifierModel):
    """Fitted classifier: a model with its machines' statistics.

    rho, objective, gap and relative gap (M,) of the machines, the result, and arrays of machines without held-out rows; bound: by
    the level method, means (rows of all machines,) of alpha and |alpha|^2 alpha, which prove the gaps.
    """

    rhos: NDArray[np.float64]
    objectives: NDArray[np.float64]
    gaps: NDArray[np.float64]
    relative_gaps: NDArray[np.float64]
    result: Result
    held_out: dict[str, NDArray] = field(default_factory=dict, repr=False)
    bound: dict[str, NDArray] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Scheme:
    """Scheme by which machines decide on classes: multi_class "ovo" or "ovr", and the decisions' shape.

    The shape is as in SVC.
    """

    n_classes: int
    multi_class: str
    shape: str = "ovr"

    def values(self, found: Decisions) -> Decisions:
        """Return SVC's decision values: (m,), (m, classes), or (m, pairs) in the shape "ovo".

        (m,) is for two classes.
        """
        if self.n_classes == 2:
            return found[:, 0]
        if self.multi_class == "ovr" or self.shape == "ovo":
            return found
        from sklearn.utils.multiclass import _ovr_decision_function

        # scikit-learn's own function, private as it is, with SVC's arguments: the values then equal SVC's.
        return np.asarray(_ovr_decision_function(found < 0, -found, self.n_classes))

    def classes(self, found: Decisions) -> NDArray[np.intp]:
        """Return class numbers (m,): by most votes of one-against-one machines, the first of equals, as SVC."""
        if self.n_classes == 2:
            return (found[:, 0] > 0).astype(np.intp)
        scores = votes(found, self.n_classes) if self.multi_class == "ovo" else found
        return scores.argmax(axis=1)


def votes(decisions: Decisions, n_classes: int) -> NDArray[np.int64]:
    """Return how many machines decide for each class, (m, classes)."""
    gains, against = _gains(n_classes)
    return ((decisions > 0) @ gains + against).astype(np.int64)


@lru_cache(maxsize=8)
def _gains(n_classes: int) -> tuple[Decisions, Decisions]:
    """Return gains (M, classes), 1 for a machine's first class, -1 for its second, and against (classes,).

    against: the number of machines that have the class as their second.
    """
    first, second = np.triu_indices(n_classes, k=1)
    numbers = np.arange(n_classes)
    # By one product for all rows: a loop over machines would take as long as their kernels, of hundreds of classes.
    gains = (first[:, None] == numbers).astype(float) - (second[:, None] == numbers)
    return gains, np.arange(n_classes, dtype=float)


# The kernels that a classifier's settings name.


def kernel_names(settings: SVCSettings) -> list[Any]:
    """Return the names or functions of the kernel, or of each of several, as a list."""
    return list(settings.kernel) if isinstance(settings.kernel, (list, tuple)) else [settings.kernel]


def refuse_several(settings: SVCSettings, names: list[Any]) -> None:
    """Raise InputError for several kernels where the solver takes one."""
    for where, takes_one in (
        ("solver level", settings.solver == "level"),
        ("stopping paper", settings.stopping == "paper"),
    ):
        if takes_one and len(names) > 1:
            raise InputError("one kernel only", where=where, got=f"{len(names)} kernels")


def kernels_for_plans(settings: SVCSettings) -> list[Kernel]:
    """Return the kernels without their widths, for which rows would have to be read."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    return [Kernel(name, None, settings.degree, settings.coef0) for name in names]


def kernels_of(
    settings: SVCSettings, source: RowSource, kernel_params: dict[str, object] | None = None
) -> list[Kernel]:
    """Return the kernel, or each of several with its own parameters, with the widths from the rows."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    common = {
        "gamma": settings.gamma,
        "degree": settings.degree,
        "coef0": settings.coef0,
        "kernel_params": kernel_params,
    }
    made = []
    for item in names:
        chosen = {**common, **(item if isinstance(item, dict) else {"kernel": item})}
        gamma = width_of(chosen["kernel"], chosen["gamma"], source)
        params = dict(chosen["kernel_params"] or {})
        of_matrices = callable(chosen["kernel"])  # as SVC calls it
        made.append(Kernel(chosen["kernel"], gamma, chosen["degree"], chosen["coef0"], params, of_matrices))
    return made
