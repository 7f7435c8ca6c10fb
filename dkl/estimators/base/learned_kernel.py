"""Base of the learners of a kernel K = K0 + K0[:, P] M K0[P, :] near a prior one, by any solver for M."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.predictions import kernel_of_rows, naming_z
from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.session import Session
from dkl.estimators.base.mixins import KernelParameter, lazily
from dkl.estimators.base.prior_kernels import MOST_ROWS, SQUARES, PriorKernel, prior_kernel
from dkl.estimators.base.rules import check_kernel_params
from dkl.estimators.base.settings import Settings, check_parameters
from dkl.estimators.base.side_information import SideInformation, side_information
from dkl.estimators.base.validation import checked_rows
from dkl.linalg.eigen.principal_coordinates import principal_coordinates
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserKernel, UserLabels, UserRows
    from dkl.linalg.rows import Rows

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class LeadingComponents:
    """The leading principal components of a kernel, k of them: a row x has the coordinates
    k0(x, basis) weights + k0(x, P) weights_at_points - offset.

    basis (b,) rows that they are those of; weights (b, k); weights_at_points (p, k); offset (k,).
    """

    basis: Indices
    weights: Matrix
    weights_at_points: Matrix
    offset: Matrix


def components_of(
    prior: PriorKernel, n: int, points: Indices, M: Matrix, n_components: int, center: bool
) -> LeadingComponents:
    """Return the components of K = K0 + K0[:, P] M K0[P, :] on all n rows, or on P if n > MOST_ROWS."""
    basis = np.arange(n) if n <= MOST_ROWS else points
    K = prior.within(basis)
    # A copy, by the index array: K itself is added to in place.
    at_points = K[:, points if n <= MOST_ROWS else np.arange(len(points))]
    K += at_points @ M @ at_points.T
    weights, offset = principal_coordinates(0.5 * (K + K.T), n_components, center=center)
    # Their order in memory chooses the BLAS kernel: what is stored and loaded again is row by row.
    weights = np.ascontiguousarray(weights)
    # Both parts of k(x, basis) times the weights, so that the second costs p columns and not those of the basis.
    return LeadingComponents(basis, weights, np.ascontiguousarray(M @ (at_points.T @ weights)), offset)


class KernelLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameter):
    """Base of kernel learners: `fit` finds M; kernel values and coordinates of any rows follow from it.

    k(x, z) = k0(x, z) + k0(x, P) M k0(P, z), P the rows that triplets or pairs touch.
    """

    SETTINGS: ClassVar[type[Settings]]
    kernel: UserKernel
    kernel_params: dict[str, object] | None
    n_neighbors: int
    n_in: int
    n_out: int
    contradictions: str
    n_components: int
    center: bool
    memory_limit: int | str | None
    n_jobs: int | None
    points_: Indices
    M_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- what `fit` begins and ends with -------------------------------------------------------------------------------

    def _resolve(self, X: UserRows, y: UserLabels, **given: object) -> tuple[SideInformation, PriorKernel, Rows]:
        """Check the input and return (side information, K0, checked rows); InputError if it is invalid."""
        side, rows = self._given(X, y, **given)
        n, limit = int(rows.shape[0]), parse_bytes(self.memory_limit)
        # Comparing a callable to text may do anything.
        needs_all = self._is_precomputed or (isinstance(self.kernel, str) and self.kernel == "laplacian")
        if needs_all or n <= MOST_ROWS:
            remedy = 'choose a kernel of rows such as "rbf": the rows with side information alone count then'
            items = {f"the kernel matrix of all {n:,} rows": SQUARES * 8 * n * n}
            check_size(items, limit, remedy if n > MOST_ROWS else "raise memory_limit")
        return side, self._prior_of(rows, self._session()), rows

    def _given(self, X: UserRows, y: UserLabels, **given: object) -> tuple[SideInformation, Rows]:
        """Check the input and return (side information, checked rows); InputError if it is invalid."""
        check_parameters(self, self.SETTINGS)
        check_kernel_params(self.kernel, self.kernel_params)
        rows = checked_rows(self, X, reset=True, least=2)
        if self._is_precomputed:
            check_square(*rows.shape)
        side = side_information(
            type(self).__name__, rows, y=y, n_in=self.n_in, n_out=self.n_out, is_kernel=self._is_precomputed,
            contradictions=self.contradictions, memory_limit=parse_bytes(self.memory_limit),
            before_search=lambda codes: self._before_search(codes, int(rows.shape[1])), **given,
        )  # fmt: skip
        return side, rows

    def _before_search(self, codes: NDArray[np.int64], n_features: int) -> None:
        """Raise MemoryBudgetError where classes (n,) alone show that the fit has no room: neighbors take far longer to find."""

    def _prior_of(self, rows: Rows, session: Session) -> PriorKernel:
        """Return K0 of the rows."""
        return prior_kernel(
            self.kernel, rows, params=self.kernel_params, n_neighbors=self.n_neighbors, session=session,
            memory_limit=parse_bytes(self.memory_limit),
        )  # fmt: skip

    def _adopt(self, prior: PriorKernel, rows: Rows, points: Indices, M: Matrix) -> None:
        """Keep the kernel, and its principal components."""
        self._keep_kernel(
            prior, points, M, components_of(prior, int(rows.shape[0]), points, M, self.n_components, self.center)
        )

    def _keep_kernel(self, prior: PriorKernel, points: Indices, M: Matrix, components: LeadingComponents) -> None:
        self._prior, self.points_, self.M_ = prior, points, M
        self._basis, self._offset = components.basis, components.offset
        self._weights, self._weights_at_points = components.weights, components.weights_at_points

    # -- what a learned kernel does ----------------------------------------------------------------------------------

    def kernel_matrix(self, X: UserRows, Z: UserRows = None, *, lazy: bool = False) -> Any:
        """Return k(x, z) (m, l) of the rows X (m, d) with Z (l, d), or with X itself if Z is left out.

        Of a precomputed kernel X is (m, n), values of k0 with the n rows that were learned from, and the result their values of k.
        lazy: whether to return a dask array, whose blocks are computed when they are read.
        """
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        with naming_z():
            others = None if Z is None else checked_rows(self, Z, reset=False)
        return kernel_of_rows(self._kernel_between, rows, others, lazy=lazy, is_precomputed=self._is_precomputed)

    def _kernel_between(self, rows: Rows, others: Rows | None) -> Matrix:
        """Return k of checked rows (m, d) with others (l, d), or with themselves, symmetric to the bit."""
        base, left, right = self._prior.between(rows, others, self.points_)
        K: Matrix = base + (left @ self.M_) @ right.T
        return 0.5 * (K + K.T) if others is None and not self._is_precomputed else K

    def transform(self, X: UserRows) -> Matrix:
        """Return the leading `n_components` principal coordinates (m, k) of rows X (m, d) under the kernel.

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        return self._components_of(checked_rows(self, X, reset=False))

    def _components_of(self, rows: Rows) -> Matrix:
        """Return coordinates (m, k) of checked rows (m, d), standardized like those learned from."""
        basis, points = self._prior.across(rows, self._basis, self.points_)
        return basis @ self._weights + points @ self._weights_at_points - self._offset

    @property
    def _n_features_out(self) -> int:
        return int(self._weights.shape[1])
