"""What a classifier learns from, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_sources import RowSource
from dkl.errors import InputError
from dkl.estimators.common.sample_weights import box_bounds
from dkl.linalg.kernel_columns import Kernel


@dataclass(frozen=True)
class Training:
    """What a classifier learns from: rows, classes, each row's number of one, bounds (n,) of alpha, and the kernels."""

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
        class_weight: Any = None,
        sample_weight: NDArray[np.float64] | None = None,
    ) -> Training:
        """InputError for weights that are none, and for a precomputed kernel that is not square."""
        bounds, weights = box_bounds(C, class_weight, classes, numbers, sample_weight)
        if kernels[0].is_precomputed and source.n != source.n_features:
            got = f"shape ({source.n}, {source.n_features})"
            raise InputError("a precomputed kernel must be square", where="X", got=got, wanted="(n, n)")
        return cls(source, classes, numbers, bounds, weights, kernels)
