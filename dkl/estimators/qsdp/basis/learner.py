"""Estimator interface shared by the learners in the basis of smooth eigenvectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.estimators.base.client_parameter import ClientParameter
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.qsdp.basis.fit import Basis
from dkl.estimators.qsdp.basis.plot_data import plot_data
from dkl.plotting.figures import draw_plot
from dkl.problems.qsdp.certificate import QSDPCertificate
from dkl.resources import parse_bytes
from dkl.solvers.result import Result

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import CheckedRows, UserLabels, UserRows
    from dkl.plotting.figures import Axes

Matrix = NDArray[np.float64]


class BasisLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Base of the learners in the basis of smooth eigenvectors: fitted attributes, embedding of new rows."""

    n_basis: int | None
    tol: float
    memory_limit: int | str | None
    basis_: Matrix
    basis_kernel_: Matrix
    embedding_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _keep(
        self,
        rows: CheckedRows,
        basis: Basis,
        Y: Matrix,
        embedding: Matrix,
        certificate: QSDPCertificate,
        result: Result,
    ) -> None:
        self._rows, self._basis = rows, basis
        self.basis_, self.basis_kernel_, self.embedding_ = basis.Q, Y, embedding
        self.certificate_, self.result_, self.n_iter_ = certificate, result, result.n_iter

    def transform(self, X: UserRows) -> Matrix:
        """Return coordinates (l, k) of the rows X (l, d).

        Those of unseen rows are the mean of their neighbors', weighted by similarity.
        """
        check_is_fitted(self)
        return self._extended(checked_rows(self, X, reset=False))

    def _extended(self, rows: CheckedRows) -> Matrix:
        """Return coordinates (l, k) of checked rows (l, d), standardized like those learned from."""
        return np.asarray(neighbor_means(rows, self._rows, self._basis.similarity) @ self.embedding_)

    def fit_transform(self, X: UserRows, y: UserLabels = None, **given: object) -> Matrix:
        """Fit, then return the coordinates of the same rows, `embedding_`."""
        return np.asarray(self.fit(X, y, **given).embedding_)

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the embedding: a new matplotlib Figure with all panels, or `ax` with the rows in the plane.

        X (l, d): rows to show in place of those that were learned from; y (l,): their labels, -1, None or NaN for none.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])

    def _limit(self) -> int | None:
        return parse_bytes(self.memory_limit)
