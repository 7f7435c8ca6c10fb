"""The kernel that SLKL learns, k_mu(x, z) = sum_m mu_m c_m(x) c_m(z) (Machart et al. 2011, (4))."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.predictions import kernel_of_rows, naming_z
from dkl.estimators.base.mixins import numbered
from dkl.estimators.base.validation import checked_rows
from dkl.linalg.kernels.kernel_columns import Kernel

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserRows
    from dkl.linalg.rows import Rows


@dataclass(frozen=True)
class SumOfColumns:
    """Kernel sum_m s_m^2 k(x, x_m) k(z, x_m) of points x_m (M, d), or column numbers of a precomputed k.

    scales (M,): s_m = sqrt(mu_m / k(x_m, x_m)).
    """

    kernel: Kernel
    points: Any
    scales: NDArray[np.float64]

    def __call__(self, rows: Rows, others: Rows | None) -> NDArray[np.float64]:
        """Return its values (m, l) of rows with others, or (m, m) of rows with themselves, symmetric to the bit."""
        left = self.kernel.columns(rows, self.points) * self.scales
        right = left if others is None else self.kernel.columns(others, self.points) * self.scales
        return np.asarray(left @ right.T)


class LearnedColumnsKernel:
    """Mixin of a regressor that learns the weights mu of kernel columns."""

    def kernel_matrix(
        self: Any, X: UserRows, Z: UserRows = None, *, output: int | None = None, lazy: bool = False
    ) -> Any:
        """Return the learned kernel k_mu(x, z) = sum_m mu_m c_m(x) c_m(z), c_m(x) = k(x, x_m) / sqrt(k(x_m, x_m)).

        Ridge regression with it and `lam` gives the lasso's predictions (Machart et al. 2011, (4) and (16)); with an intercept,
        with the kernel centered in feature space.

        Parameters
        ----------
        X : (m, d) rows; of a precomputed kernel (m, n), their values with the rows learned from
        Z : (l, d) rows, optional
            Left out, X itself.
        output : int, optional
            Number of the output, each of which has its own mu. Left out, the only one.
        lazy : bool
            Whether to return a dask array, whose blocks are computed when they are read.

        Returns
        -------
        (m, l) array, or dask array
            Positive semidefinite where Z is left out, of a rank of at most the number of columns with a weight.

        Raises
        ------
        InputError
            For rows that `predict` refuses, and for an output that there is not.
        """
        check_is_fitted(self)
        mu = np.atleast_2d(self.weights_)[:, self._active]
        scales = self._column_scale * np.sqrt(mu[numbered(output, len(mu), "output")])
        rows = checked_rows(self, X, reset=False)
        with naming_z():
            others = None if Z is None else checked_rows(self, Z, reset=False)
        points = np.asarray(self.support_vectors_) if self._is_precomputed else self.support_vectors_
        kernel = SumOfColumns(self._kernel(), points, scales)
        return kernel_of_rows(kernel, rows, others, lazy=lazy, is_precomputed=False)
