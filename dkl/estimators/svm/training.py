"""Checked training data of a classifier."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.blocks.rows.row_sources import RowSource
from dkl.estimators.base.validation import box_bounds
from dkl.linalg.kernels.kernel_columns import Kernel


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
        bounds, weights = box_bounds(C, class_weight, classes, numbers, sample_weight)
        if kernels[0].is_precomputed:
            check_square(source.n, source.n_features)
        return cls(source, classes, numbers, bounds, weights, kernels)
