"""The prior kernel K0, of rows, a given matrix, or the neighbor graph, for points seen and unseen.

Li et al. 2009 are transductive: what is said of unseen points is ours.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.kernels.kernel_checks import check_matrix, check_square
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError
from dkl.estimators.base.kernel_width import WITH_WIDTH, variance_of, width_by_variance
from dkl.estimators.base.rules import SHARPNESS, width_rule
from dkl.io.plain_arrays import largest_value, refuse_overflow, refuse_too_large
from dkl.linalg.graph.graph_parts import strong_labels
from dkl.linalg.graph.laplacian import Similarity, laplacian_pseudo_inverse
from dkl.linalg.graph.neighbors import nearest_rows
from dkl.linalg.kernels.kernel_columns import Kernel

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserParams, UserRows
    from dkl.linalg.rows import Rows

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
MOST_ROWS = 5000
"""Maximum rows whose kernel matrix is decomposed whole; of more, the rows with side information are."""
SQUARES = 3
"""n x n arrays alive while a Laplacian is inverted, or a given matrix is checked."""


class PriorKernel(Protocol):
    """Interface of the kernel K0 of n training rows."""

    @property
    def n(self) -> int:
        """Return the number of training rows."""

    @property
    def training_rows(self) -> Rows:
        """Return the training rows (n, d), or the matrix (n, n)."""

    def within(self, points: Indices) -> Matrix:
        """Return K0 (p, p) among the training rows `points`; symmetric to the bit."""

    def across(self, X: UserRows, *points: Indices) -> list[Matrix]:
        """Return k0 (m, p) of rows X, like the training rows, with each set `points` of training rows."""

    def between(self, X: UserRows, Z: UserRows, points: Indices) -> tuple[Matrix, Matrix, Matrix]:
        """Return k0 of X with Z, or with X itself, (m, l); of X (m, p) and of Z (l, p) with `points`."""


@dataclass(frozen=True)
class RowKernel:
    """Kernel function k(x, z); its rows (n, d), dense or CSR, are the training rows."""

    kernel: Kernel
    rows: Rows

    @property
    def n(self) -> int:
        """Return the number of training rows."""
        return int(self.rows.shape[0])

    @property
    def training_rows(self) -> Rows:
        """Return the training rows (n, d)."""
        return self.rows

    def within(self, points: Indices) -> Matrix:
        """Return K0 (p, p) among the training rows `points`."""
        return self._symmetric(self.rows[points])

    def across(self, X: UserRows, *points: Indices) -> list[Matrix]:
        """Return k0 (m, p) of rows X with each set of training rows."""
        return [self._values(X, self.rows[some]) for some in points]

    def between(self, X: UserRows, Z: UserRows, points: Indices) -> tuple[Matrix, Matrix, Matrix]:
        """Return k0 of X with Z (m, l), or with X itself, of X (m, p) and of Z (l, p) with `points`."""
        (left,) = self.across(X, points)
        if Z is None:
            return self._symmetric(X), left, left
        return self._values(X, Z), left, self.across(Z, points)[0]

    def _symmetric(self, rows: Rows) -> Matrix:
        found = self._values(rows, rows)
        # A function's k(x, z) and k(z, x) may round apart; symmetric to the bit, as LAPACK reads one triangle.
        return 0.5 * (found + found.T)

    def _values(self, X: UserRows, Z: UserRows) -> Matrix:
        found = np.asarray(self.kernel.columns(X, Z), np.float64)
        refuse_overflow(found, X, Z)
        return found


@dataclass(frozen=True)
class PrecomputedPrior:
    """Given matrix K0 (n, n); further rows (m, n) are their kernel values with the training rows."""

    matrix: Matrix

    @classmethod
    def of(cls, X: Any) -> PrecomputedPrior:
        """Check and wrap the matrix; InputError if not square, not symmetric, or with a negative eigenvalue."""
        check_square(*X.shape)
        # In double precision from here on: a given matrix in single would lose the digits of its small eigenvalues.
        found = cls(np.ascontiguousarray(X, np.float64))
        check_matrix(found.matrix)
        return found

    @property
    def n(self) -> int:
        """Return the number of training rows."""
        return len(self.matrix)

    @property
    def training_rows(self) -> Rows:
        """Return the matrix (n, n)."""
        return self.matrix

    def within(self, points: Indices) -> Matrix:
        """Return K0 (p, p) among the training rows `points`."""
        return _symmetric_part(self.matrix, points)

    def across(self, X: Any, *points: Indices) -> list[Matrix]:
        """Return k0 (m, p) of rows X with each set of training rows."""
        return [np.ascontiguousarray(X[:, some], np.float64) for some in points]

    def between(self, X: UserRows, Z: UserRows, points: Indices) -> tuple[Matrix, Matrix, Matrix]:
        """Return kernels (m, n), (m, p), (n, p): X with the training rows, X with P, training rows with P.

        Raises InputError if Z is given: the kernel of two sets of new rows is unknown.
        """
        if Z is not None:
            remedy = "kernel(X) is the kernel of the rows X with those that were learned from"
            raise InputError("a precomputed kernel of two sets of new rows is not known", where="Z", remedy=remedy)
        (left,), (right,) = self.across(X, points), self.across(self.matrix, points)
        return np.asarray(X, np.float64), left, right


@dataclass(frozen=True)
class GraphKernel:
    """The pseudo-inverse of the Laplacian of the k-nearest-neighbor graph of the training rows (n, d).

    An unseen row is the mean of its nearest training rows, weighted by their similarities; one that is equal to a training row is
    that row. graph_laplacian: D - W; similarity: the graph's; laplacian: the kind that is inverted.
    """

    rows: Rows
    graph_laplacian: sp.csr_array = field(repr=False)
    similarity: Similarity = field(repr=False)
    laplacian: str = "normalized"

    @cached_property
    def matrix(self) -> Matrix:
        """Return the pseudo-inverse (n, n), computed on first use in n^3 operations."""
        return laplacian_pseudo_inverse(self.graph_laplacian, self.laplacian)

    @classmethod
    def of(
        cls, rows: Rows, n_neighbors: int, params: UserParams, session: Session, memory_limit: int | None
    ) -> GraphKernel:
        """Build from rows (n, d); params: `sigma` (default: local widths of SHARPNESS) and graph `laplacian`."""
        graph = build_graph(
            rows, n_neighbors=min(n_neighbors, int(rows.shape[0]) - 1),
            sigma=width_rule(params.get("sigma", "auto"), "local"), sharpness=SHARPNESS, laplacian="unnormalized",
            session=session, memory_limit=memory_limit,
        )  # fmt: skip
        return cls(rows, graph.laplacian, graph.similarity, params.get("laplacian", "normalized"))

    def warn_of_untouched(self, points: Indices) -> None:
        """Warn (DataWarning) if components of the graph hold no `points`: K0 is 0 between components."""
        count, labels = strong_labels(-self.graph_laplacian, self.graph_laplacian.diagonal())
        outside = np.flatnonzero(~np.isin(labels, labels[points]))
        if outside.size:
            warnings.warn(
                f"{len(np.unique(labels[outside])):,} of the {count:,} components of the neighbor graph, {outside.size:,} of {self.n:,} "
                f"rows (first: row {outside[0]}), hold no row with side information: nothing is learned of them; raise n_neighbors",
                DataWarning,
                stacklevel=2,
            )

    @property
    def n(self) -> int:
        """Return the number of training rows."""
        return int(self.rows.shape[0])

    @property
    def training_rows(self) -> Rows:
        """Return the training rows (n, d)."""
        return self.rows

    def within(self, points: Indices) -> Matrix:
        """Return K0 (p, p) among the training rows `points`."""
        return _symmetric_part(self.matrix, points)

    def across(self, X: UserRows, *points: Indices) -> list[Matrix]:
        """Return k0 (m, p) of rows X with each set of training rows."""
        means = neighbor_means(X, self.rows, self.similarity)
        return [np.asarray(means @ self.matrix[:, some]) for some in points]

    def between(self, X: UserRows, Z: UserRows, points: Indices) -> tuple[Matrix, Matrix, Matrix]:
        """Return k0 of X with Z (m, l), or with X itself, of X (m, p) and of Z (l, p) with `points`."""
        left = neighbor_means(X, self.rows, self.similarity)
        right = left if Z is None else neighbor_means(Z, self.rows, self.similarity)
        columns = self.matrix[:, points]
        # left K0 right^T, with the sparse matrix first in either product.
        base = np.asarray((right @ (left @ self.matrix).T).T)
        return base, np.asarray(left @ columns), np.asarray(right @ columns)


def neighbor_means(X: Any, rows: Rows, similarity: Similarity) -> sp.csr_array:
    """Return the weights (m, n) of the graph's rows (n, d) whose mean each row of X (m, d) is.

    Of its nearest, weighted by their similarities; a row that is equal to one of them is that; of all n rows, I.
    InputError for rows so far away that distances overflow.
    """
    n = int(rows.shape[0])
    if sp.issparse(X) != sp.issparse(rows):
        X = sp.csr_array(X) if sp.issparse(rows) else X.toarray()
    if X.shape == rows.shape and not _apart(X, rows).any():  # where rows repeat, each is itself
        return sp.eye_array(n, format="csr")
    m, k = int(X.shape[0]), min(similarity.n_neighbors, n)
    refuse_too_large(X, largest_value(rows.shape[1]))
    squares, neighbors = nearest_rows(X, rows, k)
    weights = similarity.weights(squares, neighbors)
    weights[squares[:, 0] == 0] = np.eye(k)[0]
    weights /= weights.sum(axis=1, keepdims=True)
    return sp.csr_array((weights.ravel(), neighbors.ravel(), np.arange(0, m * k + 1, k)), shape=(m, n))


def _apart(X: Any, Z: Any) -> NDArray[np.float64]:
    """Return the largest difference (m,) of each row of X from the row of Z in its place."""
    difference = abs(X - Z).max(axis=1)
    return difference.toarray().ravel() if sp.issparse(difference) else difference


def _symmetric_part(matrix: Matrix, points: Indices) -> Matrix:
    """Return the submatrix (p, p) of `points`, symmetric to the bit."""
    found = matrix[np.ix_(points, points)]
    return 0.5 * (found + found.T)


def prior_kernel(
    kernel: UserKernel, rows: Rows, *, params: UserParams | None, n_neighbors: int, session: Session,
    memory_limit: int | None = None,
) -> PriorKernel:  # fmt: skip
    """Return K0 of rows (n, d): "laplacian", "precomputed" (rows are K0), scikit-learn's, or a function.

    params: checked by `check_kernel_params`. InputError for a precomputed matrix that is no kernel.
    """
    given = dict(params or {})
    if isinstance(kernel, str) and kernel == "laplacian":
        return GraphKernel.of(rows, n_neighbors, given, session, memory_limit)
    if isinstance(kernel, str) and kernel == "precomputed":
        return PrecomputedPrior.of(rows)
    if not isinstance(kernel, str):
        return RowKernel(Kernel(kernel, params=given), rows)
    gamma = given.pop("gamma", None)
    if gamma is None and kernel in WITH_WIDTH:
        gamma = width_by_variance(
            rows.shape[1], variance_of(rows), rows.min(), rows.max(), remedy="scale X, or give gamma in kernel_params"
        )
    return RowKernel(Kernel(kernel, gamma, given.pop("degree", 3), given.pop("coef0", 1), given), rows)
