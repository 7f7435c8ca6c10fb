"""Columns of a kernel matrix, k(x_i, z_m) for a block of rows x_i and a set of points z_m.

Names and parameters are scikit-learn's (`sklearn.metrics.pairwise`). Kernels that are a function of inner products are
computed here, by one GEMM and in the rows' own precision; all others by scikit-learn.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from dkl.errors import InputError
from dkl.io.plain_arrays import largest_value, with_short_indices
from dkl.linalg.late_functions import njit
from dkl.linalg.rows.column_moments import middle_row

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows


TILE_BYTES = 4_000_000
"""Bytes of columns computed at a time: they stay in cache between the product and the exponential."""
MOST_BY_PRODUCTS = 1e3
"""Largest gamma |z|^2, about a point amid them, for exponents by products: beyond, an exponent by products is off by 1e-12 in double
precision, and by differences it costs what it is then worth."""
FARTHEST_EXPONENT = 30
"""Largest exponent of 2 that rows are left unscaled for: a gamma from 2^-60 to 2^60."""
POINTS_AT_A_TIME = 1024
"""Points prepared together in double precision, whatever dtype they are kept in."""
DENSE_POINTS_BYTES = 64_000_000
"""Sparse points are made dense up to this size: their product with sparse rows is faster then."""
BLOCK_BYTES = 16_000_000
"""Bytes of kernel columns computed at a time by a thread."""
SMALLEST_BLOCK, LARGEST_BLOCK = 256, 8192
"""Bounds on the rows of a block."""

OF_ROWS = "a function of two rows is functools.partial(sklearn.metrics.pairwise.pairwise_kernels, metric=function)"


def block_rows(n_columns: int, n_features: int, dtype: DTypeLike) -> int:
    """Return the number of rows of a block: 256 to 8192, by 16 MB of columns and twice that of features."""
    size = np.dtype(dtype).itemsize
    rows = min(BLOCK_BYTES // (n_columns * size), 2 * BLOCK_BYTES // (max(1, n_features) * 8))
    return int(max(SMALLEST_BLOCK, min(LARGEST_BLOCK, rows)))


@dataclass(frozen=True)
class Kernel:
    """Kernel k(x, z): a scikit-learn name, "precomputed" (rows are rows of the matrix), or a callable.

    gamma=None is scikit-learn's default, 1 / n_features where the kernel has one at all. A callable gets two rows, as in
    `pairwise_kernels`, or both matrices, as in SVC: where it is `of_matrices`, or one of scikit-learn's own functions.
    """

    name: str | Callable[..., Any] = "rbf"
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    params: dict[str, Any] = field(default_factory=dict)
    of_matrices: bool = False

    @property
    def is_precomputed(self) -> bool:
        """Return whether rows are rows of the kernel matrix, so that points are column numbers."""
        return self.name == "precomputed"

    @property
    def where(self) -> str:
        """Return the kernel as error messages name it, e.g. kernel='rbf'."""
        return f"kernel={self.name if callable(self.name) else repr(self.name)}"

    def not_finite(self, got: str) -> InputError:
        """Return the InputError for values that overflow; `got` says where."""
        remedy = "scale the features, or choose other parameters of the kernel"
        return InputError("the kernel is too large", where=self.where, got=got, remedy=remedy)

    def columns(
        self, rows: Rows, points: Any, dtype: DTypeLike = np.float64, buffer: NDArray[np.floating] | None = None
    ) -> NDArray[np.floating]:
        """Return (t, M) of k(rows_i, points_m), C-contiguous, in `dtype`. For "precomputed", `points` are column numbers of the rows.

        Where the same points meet many blocks of rows, pass what `prepared` made of them, and a `buffer` (t or more, M) for
        the result. Raises InputError where scikit-learn's function rejects the rows, or returns values that are not finite.
        """
        if isinstance(points, GaussianPoints):
            if not sp.issparse(rows):
                return points.columns(rows, buffer)
            points = points.points
        dtype = np.dtype(dtype)
        if self.is_precomputed:
            return np.ascontiguousarray(rows[:, points], dtype=dtype)
        if sp.issparse(points) and not sp.issparse(rows):
            points = points.toarray()
        if self.name == "rbf":
            return self._rbf(rows, points, dtype)
        if isinstance(self.name, str) and self.name in _OF_PRODUCTS:
            return self._of_products(rows, points, dtype)
        return self._by_sklearn(rows, points).astype(dtype, copy=False)

    def prepared(self, points: Rows, dtype: DTypeLike = np.float64) -> Any:
        """Return the points with all that `columns` can prepare of them; themselves if there is nothing."""
        if self.name == "rbf" and not (sp.issparse(points) or isinstance(points, GaussianPoints)):
            return GaussianPoints(points, self._width(points), np.dtype(dtype))
        return points

    def _width(self, rows: Rows) -> float:
        """Return gamma, or its default 1 / n_features."""
        return 1.0 / rows.shape[1] if self.gamma is None else self.gamma

    def diagonal(self, points: Rows, indices: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
        """Return (M,) k(z, z) of each point. Raises InputError where one is negative, which no positive semidefinite kernel has.

        For "precomputed", `points` are rows of the matrix and `indices` (M,) the columns of the points.
        """
        count = points.shape[0]
        if self.is_precomputed:
            assert indices is not None
            found = np.array([points[k, indices[k]] for k in range(count)], dtype=float)
        elif self.name in ("rbf", "laplacian"):
            found = np.ones(count)
        elif self.name == "cosine":
            found = (_largest(points) > 0).astype(float)
        elif isinstance(self.name, str) and self.name in _OF_PRODUCTS:
            found = self._function(_squared_norms(points).astype(float), points.shape[1])
        else:
            # One at a time: scikit-learn has no function for the diagonal, and all pairs would be M x M.
            found = np.array([self._by_sklearn(points[k : k + 1], points[k : k + 1])[0, 0] for k in range(count)])
        bad = np.flatnonzero(~(found >= 0))
        if bad.size:
            got = f"k(x, x) = {found[bad[0]]:.6g} at candidate {bad[0]}"
            raise InputError("not a positive semidefinite kernel", where=self.where, got=got, wanted="k(x, x) >= 0")
        return found

    # -- kinds --------------------------------------------------------------------------------------------------------

    def _rbf(self, rows: Rows, points: Rows, dtype: np.dtype) -> NDArray[np.floating]:
        """Return exp(-gamma |x - z|^2)."""
        if not sp.issparse(rows):
            return GaussianPoints(points, self._width(rows), dtype).columns(rows)
        gamma, unit = _near_one(self._width(rows))
        rows, points = _scaled(rows, unit), _scaled(points, unit)
        with np.errstate(over="ignore", invalid="ignore"):  # of rows so far from the points that their kernel is 0
            norms, largest = _squared_norms(rows), np.finfo(dtype).max
            near = gamma * _squared_norms(points) <= MOST_BY_PRODUCTS
            out = _sparse_gaussian(rows, points if near.all() else points[near], gamma, norms, dtype)
            out[~(norms < largest)] = 0
        if not near.all():
            by_products, out = out, np.empty((rows.shape[0], len(near)), dtype)
            out[:, near] = by_products
            out[:, ~near] = _sparse_gaussian_by_differences(rows, points[~near], gamma)
        out[_without_squares(rows)] = np.nan
        out[:, _without_squares(points)] = np.nan
        return out

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused by who asked
    def _of_products(self, rows: Rows, points: Rows, dtype: np.dtype) -> NDArray[np.floating]:
        """Compute a kernel that is a function of inner products (and norms, for cosine): a product, then k."""
        if self.name != "cosine":
            return self._function(_products(rows, points, dtype), rows.shape[1])
        rows, points = _of_ordinary_size(rows), _of_ordinary_size(points)
        out = _products(rows, points, dtype)
        for norms, shape in ((_squared_norms(rows), (-1, 1)), (_squared_norms(points), (1, -1))):
            out /= np.sqrt(np.where(norms == 0, 1, norms)).reshape(shape)
        return out

    def _function(self, products: NDArray[np.floating], n_features: int) -> NDArray[np.floating]:
        """Return k of inner products, in place: linear, polynomial and sigmoid."""
        if self.name == "linear":
            return products
        products *= 1.0 / n_features if self.gamma is None else self.gamma
        products += self.coef0
        if self.name == "sigmoid":
            return np.tanh(products, out=products)
        return np.power(products, self.degree, out=products)

    def _by_sklearn(self, rows: Rows, points: Rows) -> NDArray[np.floating]:
        """Compute any other kernel, by scikit-learn or the user's function; checked to be finite."""
        from sklearn.metrics.pairwise import (  # a second, which plans do not need
            PAIRWISE_KERNEL_FUNCTIONS,
            pairwise_kernels,
        )

        given = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0, **self.params}
        if callable(self.name):
            given = dict(self.params)
        elif self.gamma is None and "gamma" not in self.params:
            del given["gamma"]  # each kernel has its own default
        if sp.issparse(rows) and not sp.issparse(points):
            points = sp.csr_array(points)  # some kernels take both alike alone
        rows, points = with_short_indices(rows), with_short_indices(points)
        try:
            if callable(self.name) and (self.of_matrices or self.name in PAIRWISE_KERNEL_FUNCTIONS.values()):
                found = self._as_matrix(self.name(rows, points, **given), (rows.shape[0], points.shape[0]))
            else:
                found = pairwise_kernels(rows, points, metric=self.name, filter_params=not callable(self.name), **given)
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            remedy = OF_ROWS if self.of_matrices else None
            raise InputError("the kernel cannot be evaluated", where=self.where, got=error, remedy=remedy) from error
        if not np.isfinite(found).all():
            i, m = np.argwhere(~np.isfinite(found))[0]
            raise InputError("the kernel is not finite", where=self.where, got=f"{found[i, m]} at ({i}, {m})")
        return np.ascontiguousarray(found)

    def _as_matrix(self, found: Any, shape: tuple[int, int]) -> NDArray[np.floating]:
        """Return the result of a function of matrices, dense; raises InputError unless it has `shape`."""
        matrix = np.asarray(found.toarray() if sp.issparse(found) else found, dtype=np.float64)
        if matrix.shape != shape:
            got, wanted = f"shape {matrix.shape}", f"{shape}: a function of two matrices"
            raise InputError("not a kernel matrix", where=self.where, got=got, wanted=wanted, remedy=OF_ROWS)
        return matrix


class GaussianPoints:
    """Points z_m (M, d) for exp(-gamma |x - z|^2), the exponent as one product:

        [x, |x|^2, 1] [2 gamma z, -gamma, -gamma |z|^2]'

    about a point amid them, or coordinates far from the origin would cancel. Where points are so far from it that near ones among
    them would cancel all the same, the exponent is summed from differences.
    """

    def __init__(self, points: Rows, gamma: float, dtype: np.dtype) -> None:
        self.points, self.dtype = points, dtype
        self._gamma, self._unit = _near_one(gamma)
        points = _scaled(points, self._unit)
        # A point, as differences to it are exact; in double precision where the points are.
        self._center = middle_row(points).astype(np.result_type(points.dtype, dtype))
        self._right = np.empty((points.shape[1] + 2, len(points)), dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # by differences then
            for lo in range(0, len(points), POINTS_AT_A_TIME):
                part = slice(lo, lo + POINTS_AT_A_TIME)
                shifted = np.subtract(points[part], self._center, dtype=np.float64)
                self._right[:-2, part] = (2 * self._gamma * shifted).T
                self._right[-1, part] = -self._gamma * np.einsum("md,md->m", shifted, shifted)
        self._right[-2] = -self._gamma
        self._by_differences = not self._right[-1].min(initial=0.0) >= -MOST_BY_PRODUCTS
        if self._by_differences:
            self._right = np.ascontiguousarray(points.T)

    def since(self, first: int, last: int | None = None) -> GaussianPoints:
        """Return the points from number `first` on, before `last` if given, as a view of what is prepared."""
        found = copy.copy(self)
        found.points, found._right = self.points[first:last], self._right[:, first:last]
        return found

    def __len__(self) -> int:
        return len(self.points)

    @property
    def nbytes(self) -> int:
        """Return the bytes of what is prepared, without the points."""
        return self._right.nbytes

    def columns(self, rows: NDArray[np.floating], buffer: NDArray[np.floating] | None = None) -> NDArray[np.floating]:
        """Return (t, M) of exp(-gamma |x - z|^2), a tile at a time; written into the first t rows of `buffer`, if given.

        The largest exponent after rounding is cut at 0, so k <= 1 always.
        """
        out = np.empty((len(rows), len(self)), self.dtype) if buffer is None else buffer[: len(rows)]
        with np.errstate(over="ignore", invalid="ignore"):  # of rows so far from the points that their kernel is 0
            return self._of_differences(rows, out) if self._by_differences else self._of_products(rows, out)

    def _of_products(self, rows: NDArray[np.floating], out: NDArray[np.floating]) -> NDArray[np.floating]:
        left = np.empty((0, 0), self.dtype)
        for lo, hi in _tiles(out):
            # Allocated once: only the last tile has another height.
            if len(left) != hi - lo:
                left = np.empty((hi - lo, len(self._center) + 2), self.dtype)
            x = left[:, :-2]
            np.subtract(_scaled(rows[lo:hi], self._unit), self._center, out=x, casting="same_kind")
            squares = np.einsum("td,td->t", x, x, out=left[:, -2])
            far = np.flatnonzero(~np.isfinite(squares))
            if far.size:
                x[far] = 0
                squares[far] = np.where(
                    _without_squares(_scaled(rows[lo:hi][far], self._unit)), np.nan, np.finfo(self.dtype).max
                )
            left[:, -1] = 1
            np.matmul(left, self._right, out=out[lo:hi])
            np.minimum(out[lo:hi], 0, out=out[lo:hi])  # what rounding left above it
            np.exp(out[lo:hi], out=out[lo:hi])
        return out

    def _of_differences(self, rows: NDArray[np.floating], out: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the columns, each exponent exact to the rounding of one sum."""

        of_points = _without_squares(self._right.T)
        for lo, hi in _tiles(out):
            scaled = np.ascontiguousarray(_scaled(rows[lo:hi], self._unit))
            squared_distances(scaled, self._right, out[lo:hi])
            np.multiply(out[lo:hi], -self._gamma, out=out[lo:hi])
            np.exp(out[lo:hi], out=out[lo:hi])
            out[lo:hi][_without_squares(scaled)] = np.nan
            out[lo:hi, of_points] = np.nan
        return out


_OF_PRODUCTS = ("linear", "poly", "polynomial", "sigmoid", "cosine")


def _near_one(gamma: float) -> tuple[float, float]:
    """Return (gamma / unit^2, unit): the power of 2 to scale rows by, 1 but for a gamma so far from 1 that squares of rows of about
    its width could leave single precision."""
    exponent = math.frexp(gamma)[1] // 2
    unit = math.ldexp(1.0, exponent) if abs(exponent) > FARTHEST_EXPONENT else 1.0
    return gamma / unit / unit, unit


def _scaled(rows: Any, unit: float) -> Any:
    """Return rows (m, d), dense or CSR, times a power of 2, in double precision; themselves for 1."""
    if unit == 1.0:
        return rows
    with np.errstate(over="ignore"):  # to rows without squares
        values = np.multiply(rows.data if sp.issparse(rows) else rows, unit, dtype=np.float64)
    return sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape) if sp.issparse(rows) else values


def _without_squares(rows: Any) -> NDArray[np.bool_]:
    """Return (t,) whether a row (t, d) has a value that cannot be squared, NaN or infinity: its kernel is NaN, which callers refuse."""
    values = rows.data if sp.issparse(rows) else rows
    bad = ~(np.abs(values) <= np.float64(largest_value(rows.shape[1])))
    if not sp.issparse(rows):
        return np.asarray(bad.any(axis=1))
    return np.bincount(np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[bad], minlength=rows.shape[0]) > 0


def _sparse_gaussian(
    rows: Rows, points: Rows, gamma: float, norms: NDArray[np.floating], dtype: np.dtype
) -> NDArray[np.floating]:
    """Return exp(-gamma |x - z|^2) (t, M) by products, for sparse rows with squared norms (t,)."""
    out = _products(rows, points, dtype)
    out *= 2 * gamma
    out -= gamma * norms[:, None]
    out -= gamma * _squared_norms(points)
    np.minimum(out, 0, out=out)
    return np.exp(out, out=out)


def _sparse_gaussian_by_differences(rows: Rows, points: Rows, gamma: float) -> NDArray[np.float64]:
    """Return exp(-gamma |x - z|^2) (t, M) by differences, each exponent exact to the rounding of a sum."""

    out = np.empty((rows.shape[0], points.shape[0]))
    x, z = (sp.csr_array(some, copy=True) for some in (rows, points))
    for some in (x, z):
        some.sum_duplicates()  # in the order of columns
    sparse_squared_distances(x.indptr, x.indices, x.data, z.indptr, z.indices, z.data, out)
    with np.errstate(over="ignore"):
        return np.exp(-gamma * out)


def _tiles(out: NDArray[np.floating]) -> list[tuple[int, int]]:
    """Cut the rows of `out` into tiles of TILE_BYTES, and at least 16 rows: [(lo, hi)]."""
    step = max(16, TILE_BYTES // max(1, out.shape[1] * out.itemsize))
    return [(lo, min(lo + step, len(out))) for lo in range(0, len(out), step)]


def _products(rows: Any, points: Any, dtype: np.dtype) -> NDArray[np.floating]:
    """Return the inner products (t, M)."""
    if not sp.issparse(rows):
        return np.asarray(rows, dtype) @ np.asarray(points, dtype).T
    if not sp.issparse(points):
        return np.ascontiguousarray(rows.astype(dtype) @ np.asarray(points, dtype).T)
    if points.shape[0] * points.shape[1] * dtype.itemsize <= DENSE_POINTS_BYTES:
        return np.ascontiguousarray(rows.astype(dtype) @ points.toarray().astype(dtype).T)
    return np.ascontiguousarray((rows @ points.T).toarray().astype(dtype, copy=False))


def _largest(rows: Rows) -> NDArray[np.floating]:
    """Return (t,) the largest absolute value of each row, dense or sparse."""
    found = abs(rows).max(axis=1)
    return found.toarray().ravel() if sp.issparse(found) else np.asarray(found)


def _of_ordinary_size(rows: Any) -> Any:
    """Return rows (t, d), dense or sparse, each times a power of 2 where its squares could underflow or overflow, which its cosines
    do not show: else itself, to the bit."""
    exponents = np.frexp(_largest(rows))[1]
    exponents[np.abs(exponents) <= FARTHEST_EXPONENT] = 0
    if not exponents.any():
        return rows
    if not sp.issparse(rows):
        return np.ldexp(rows, -exponents[:, None])
    values = np.ldexp(rows.data, -np.repeat(exponents, np.diff(rows.indptr)))
    return sp.csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _squared_norms(rows: Any) -> NDArray[np.floating]:
    """Return (t,) |x|^2 of each row, dense or sparse."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.einsum("td,td->t", rows, rows)


_TILE = 512  # distances of a row that stay in the first cache while features are added


@njit(nogil=True, cache=True)
def squared_distances(rows: NDArray[np.floating], columns: NDArray[np.floating], out: NDArray[np.floating]) -> None:
    """Compute out[i, m] = |rows_i - point_m|^2 for rows (t, d) and points (M, d) given as columns (d, M).

    Features are added in their order, so that the bits depend on the two rows alone. O(t M d), some two to three times a matrix
    product.
    """
    for lo in range(0, columns.shape[1], _TILE):
        for i in range(rows.shape[0]):
            some = out[i, lo : lo + _TILE]
            some[:] = 0
            for f in range(rows.shape[1]):
                value, others = np.float64(rows[i, f]), columns[f, lo : lo + _TILE]
                for k in range(some.shape[0]):
                    difference = value - others[k]
                    some[k] += difference * difference


@njit(nogil=True, cache=True)
def sparse_squared_distances(indptr, indices, data, z_indptr, z_indices, z_data, out):  # type: ignore[no-untyped-def]
    """Compute out[i, m] = |x_i - z_m|^2 for rows x (t, d) and points z (M, d), both CSR, columns in order.

    Features are added in their order, so that the bits depend on the two rows alone. O(t M) times the entries of two rows.
    """
    for i in range(indptr.size - 1):
        for m in range(z_indptr.size - 1):
            k, last, j, z_last, total = indptr[i], indptr[i + 1], z_indptr[m], z_indptr[m + 1], 0.0
            while k < last or j < z_last:
                difference = 0.0
                at_x = k < last and (j == z_last or indices[k] <= z_indices[j])
                at_z = j < z_last and (k == last or z_indices[j] <= indices[k])
                if at_x:
                    difference += np.float64(data[k])
                    k += 1
                if at_z:
                    difference -= np.float64(z_data[j])
                    j += 1
                total += difference * difference
            out[i, m] = total
