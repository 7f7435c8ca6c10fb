"""Learners of a kernel K = K0 + K0[:, P] M K0[P, :] near a prior one: what is the same whoever finds M."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.session import Session
from dkl.estimators.common.kernel_parameter import KernelParameter
from dkl.estimators.common.prior_kernels import PriorKernel, prior_kernel
from dkl.estimators.common.settings import Settings, check_parameters
from dkl.estimators.common.side_information import SideInformation, side_information
from dkl.estimators.common.size_guard import check_size
from dkl.estimators.common.validation import checked_rows
from dkl.linalg.principal_coordinates import principal_coordinates
from dkl.resources import parse_bytes

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]

MOST_ROWS = 5000
"""Rows whose kernel matrix is decomposed for principal components; of more, the rows P are taken."""
SQUARES = 3
"""n x n arrays alive while a Laplacian is inverted, or a given matrix is checked."""


class KernelLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameter):
    """`fit` finds M; kernel values and principal coordinates of any rows follow from it.

    k(x, z) = k0(x, z) + k0(x, P) M k0(P, z), P the rows that triplets or pairs touch.
    """

    SETTINGS: ClassVar[type[Settings]]
    kernel: Any
    kernel_params: dict[str, Any] | None
    n_neighbors: int
    n_in: int
    n_out: int
    n_components: int
    center: bool
    memory_limit: int | str | None
    n_jobs: int | None
    points_: Indices
    M_: Matrix

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- what `fit` begins and ends with -------------------------------------------------------------------------------

    def _begun(self, X: Any, y: Any, **given: Any) -> tuple[SideInformation, PriorKernel, Any]:
        """What is learned from, K0, and the checked rows; InputError for any of these that is not to be learned from."""
        check_parameters(self, self.SETTINGS)
        rows = checked_rows(self, X, reset=True, least=2)
        side = side_information(
            type(self).__name__, rows, y=y, n_in=self.n_in, n_out=self.n_out, is_kernel=self._is_precomputed, **given
        )
        n, limit = int(rows.shape[0]), parse_bytes(self.memory_limit)
        # A callable may compare to text in ways of its own.
        needs_all = self._is_precomputed or (isinstance(self.kernel, str) and self.kernel == "laplacian")
        if needs_all or n <= MOST_ROWS:
            remedy = 'choose a kernel of rows such as "rbf": the rows with side information alone count then'
            items = {f"the kernel matrix of all {n:,} rows": SQUARES * 8 * n * n}
            check_size(items, limit, remedy if n > MOST_ROWS else "raise memory_limit")
        prior = prior_kernel(
            self.kernel, rows, params=self.kernel_params, n_neighbors=self.n_neighbors,
            session=Session.find(self.client, threads=self.n_jobs), memory_limit=limit,
        )  # fmt: skip
        return side, prior, rows

    def _adopt(self, prior: PriorKernel, rows: Any, points: Indices, M: Matrix) -> None:
        """Keep the kernel, and its principal components."""
        self._prior, self.points_, self.M_ = prior, points, M
        n = int(rows.shape[0])
        self._basis = np.arange(n) if n <= MOST_ROWS else points
        basis = self._basis
        at_points = prior.across(rows[basis], points)[0]
        K = prior.within(basis)
        K += at_points @ M @ at_points.T
        self._weights, self._offset = principal_coordinates(0.5 * (K + K.T), self.n_components, center=self.center)
        # Both parts of k(x, basis) times the weights, so that the second costs p columns and not those of the basis.
        self._weights_at_points = M @ (at_points.T @ self._weights)

    # -- what a learned kernel does ----------------------------------------------------------------------------------

    def kernel_matrix(self, X: Any, Z: Any = None) -> Matrix:
        """(m, l) k(x, z) of the rows X (m, d) with the rows Z (l, d), or with X itself where Z is left out.

        Of a precomputed kernel X is (m, n), values of k0 with the n rows that were learned from, and the result their values of k.
        """
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        others = None if Z is None else checked_rows(self, Z, reset=False)
        base, left, right = self._prior.between(rows, others, self.points_)
        K = base + (left @ self.M_) @ right.T
        return 0.5 * (K + K.T) if Z is None and not self._is_precomputed else K

    def transform(self, X: Any) -> Matrix:
        """(m, k) the leading `n_components` principal coordinates of the rows X (m, d) under the learned kernel."""
        check_is_fitted(self)
        basis, points = self._prior.across(checked_rows(self, X, reset=False), self._basis, self.points_)
        return basis @ self._weights + points @ self._weights_at_points - self._offset

    @property
    def _n_features_out(self) -> int:
        return int(self._weights.shape[1])
