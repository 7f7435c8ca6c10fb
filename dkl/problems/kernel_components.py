"""Kernel principal components: eigenpairs of the centered kernel matrix, and coordinates of any row.

    H K H v = lambda v,    H = I - 1 1'/n,    |v| = 1;    a row x has the coordinate (k(x, .) - means)' a,    a = v / sqrt(lambda)

with means = K 1 / n, as the entries of a sum to zero: B. Schoelkopf, A. Smola, K.-R. Mueller, Nonlinear component analysis as a kernel
eigenvalue problem, Neural Computation 10, 1998. Of a factor K = X X' the same pairs follow from the covariance of its columns,

    C w = lambda w,  C = (H X)'(H X),    v = H X w / sqrt(lambda),    a row x has the coordinate (x - mean)' w

The start of the search is Nystrom's: eigenvectors of the kernel of some rows, extended to all (C. Williams, M. Seeger, Using the
Nystrom method to speed up kernel machines, NeurIPS 2000), and random vectors, which no eigenvector is orthogonal to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import DTypeLike, NDArray

from dkl.blocks.kernels.kernel_operator import finite
from dkl.blocks.kernels.kernel_products import OVERFLOWING, KernelProducts, first_means, rows_times, shifted
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block, refuse_tiny
from dkl.linalg.eigen.principal_coordinates import power_of_two
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import one_blas_thread

Matrix = NDArray[np.float64]

LANDMARKS = 1000
"""Maximum rows that the start is made of: n * LANDMARKS kernel values, where a product takes n^2 / 2."""
RANDOM = 4
"""Random vectors of a start."""


class Products(Protocol):
    """K (n, n)."""

    n: int

    def times(self, V: Matrix) -> Matrix:
        """Return K V for V (n, b)."""


class CentredKernel:
    """H K H by the products of K; means (n,) = K 1 / n comes with the first of them."""

    means: Matrix

    def __init__(self, products: Products) -> None:
        self.products, self.n = products, products.n

    def times(self, V: Matrix) -> Matrix:
        """Return (n, b) H K H V."""
        # V is centered first: H V, then H K (H V).
        V = V - V.mean(axis=0)
        if hasattr(self, "means"):
            image = self.products.times(V)
        else:
            # The means come as one more column of the first product, and save a pass over K.
            image = self.products.times(np.column_stack([V, np.full(self.n, 1 / self.n)]))
            self.means, image = image[:, -1].copy(), image[:, :-1]
        return np.asarray(image - image.mean(axis=0))


@dataclass(frozen=True)
class FactorComponents:
    """Values (k,) descending, axes w (d, k), mean (d,), vectors v (n, k), residuals (k,) / largest value."""

    values: Matrix
    axes: Matrix = field(repr=False)
    mean: Matrix = field(repr=False)
    vectors: Matrix = field(repr=False)
    residuals: Matrix


def random_start(n: int, size: int, random: np.random.RandomState) -> Matrix:
    """Return standard normal numbers (n, size), centered."""
    start = random.standard_normal((n, size))
    return np.asarray(start - start.mean(axis=0))


@one_blas_thread()  # the same bits on any machine
def nystroem_start(products: KernelProducts, size: int, random: np.random.RandomState) -> Matrix:
    """Return Nystrom's leading vectors and RANDOM random ones (n, size), centered; all random if n is low."""
    n, count = products.n, min(LANDMARKS, products.n // 8)
    if count < 2 * size:
        return random_start(n, size, random)
    chosen = np.sort(random.choice(n, count, replace=False))
    K = products.block(chosen)
    means = K.mean(axis=0)
    # The leading ones alone; `subset_by_index` counts from the smallest.
    kept = (count - size + RANDOM, count - 1)
    # The kernel of some rows, centered on both sides.
    _, vectors = scipy.linalg.eigh(K - means - means[:, None] + means.mean(), subset_by_index=kept)
    # K[:, chosen] u: each eigenvector of the small kernel, extended to all rows.
    found = products.thin(chosen, vectors - vectors.mean(axis=0))
    found = found / power_of_two(float(np.abs(found).max()))  # squares are numbers then
    found = found - found.mean(axis=0)
    lengths = np.linalg.norm(found, axis=0)
    # Random vectors, as the start may be orthogonal to an eigenvector that few rows show.
    return np.hstack([found / np.where(lengths > 0, lengths, 1.0), random_start(n, RANDOM, random) / np.sqrt(n)])


def factor_components(rows: RowBlocks, count: int) -> FactorComponents:
    """Return the `count` <= d leading pairs of K = X X' from the covariance of X (n, d).

    In one pass over the rows of X, and one for v. InputError where the covariance is not finite.
    """
    shift = first_means(rows)  # coordinates far from the origin would cancel
    gram, sums = rows.sum(shifted_moments, shift)
    with OVERFLOWING():
        offset = sums / rows.n
        covariance = finite(gram - rows.n * np.outer(offset, offset), Kernel("linear"))
    refuse_tiny(rows, float(np.trace(covariance)))
    d = rows.n_features
    with one_blas_thread():
        # d x d, whatever n is: LAPACK on one thread, so that the bits are the same everywhere.
        values, axes = scipy.linalg.eigh(covariance, subset_by_index=(d - count, d - 1))
    values, axes, mean = values[::-1], np.ascontiguousarray(axes[:, ::-1]), shift + offset
    # Eigenvalues of rounding get the root 0: their vectors are zeros, not noise divided by next to nothing.
    roots = inverse_roots(values, rounding(values, rows.n, float(np.trace(covariance)), np.float64))
    # |H K H v - lambda v| by C alone: H X (C w - lambda w) / sqrt(lambda), relative to the largest lambda, in units whose cubes are
    # within double precision: a power of 4, by which nothing is rounded.
    unit = 4.0 ** (np.frexp(values[0])[1] // 2) if values[0] > 0 else 1.0
    scaled = covariance / unit
    rest = scaled @ axes - axes * (values / unit)
    squares = np.einsum("dk,dk->k", rest, scaled @ rest)
    residuals = (
        np.sqrt(np.maximum(squares, 0.0)) * (roots * np.sqrt(unit)) / (values[0] / unit if values[0] > 0 else 1.0)
    )
    # Rounding of the sums, relative to the squares that were added up: of sparse rows far from the origin more than is left of them.
    residuals += float(np.finfo(float).eps * np.trace(gram)) * roots / np.sqrt(values[0] if values[0] > 0 else 1.0)
    vectors = np.concatenate(rows.map(rows_times, axes * roots, shift)) - offset @ (axes * roots)
    return FactorComponents(values, axes, mean, vectors, residuals)


def rounding(values: Matrix, n: int, scale: float, dtype: DTypeLike) -> float:
    """Return the bound below which an eigenvalue of H K H is rounding; scale: at least K's largest eigenvalue."""
    return float(np.sqrt(n) * np.finfo(dtype).eps * max(scale, float(values[0]), 0.0))


def inverse_roots(values: Matrix, least: float) -> Matrix:
    """Return (k,) 1 / sqrt(lambda), 0 for those that are no larger than `least`."""
    kept = values > least
    return np.where(kept, 1.0 / np.sqrt(np.where(kept, values, 1.0)), 0.0)


def handed_out(found: Matrix, values: Matrix, residuals: Matrix) -> Matrix:
    """Return the residuals (k,) with eigenvalues `values` (k,), some of them 0, in the place of those found, over the largest.

    residuals: with those found, over the largest of them, orthogonal to the vectors as Ritz pairs' are.
    """
    largest = float(found[0]) if found[0] > 0 else float(np.abs(found).max())
    return np.asarray(np.hypot(residuals, (found - values) / (largest or 1.0)))


def residuals_of(operator: CentredKernel, values: Matrix, vectors: Matrix) -> Matrix:
    """Return |H K H v - lambda v| (k,) over the largest lambda, by a product; infinite where no lambda is above 0."""
    image = operator.times(vectors)
    unit = float(values[0])
    if not unit > 0:
        return np.full(len(values), np.inf)
    return np.asarray(np.linalg.norm(image / unit - vectors * (values / unit), axis=0))


def ends_of_columns(block: Block) -> tuple[Matrix, Matrix]:
    """Return the least and the largest value (d,) of each column of a block."""
    found = block.rows.min(axis=0), block.rows.max(axis=0)
    least, largest = (end.toarray().ravel() if sp.issparse(end) else np.asarray(end) for end in found)
    return least, largest


def are_equal(rows: RowBlocks) -> bool:
    """Return whether all rows, or those of K, are equal, in one pass: K is one number, and H K H is 0 whatever rounding makes of it."""
    least, largest = map(np.stack, zip(*rows.map(ends_of_columns), strict=True))
    return bool((least.min(axis=0) == largest.max(axis=0)).all())


def shifted_moments(block: Block, shift: Matrix) -> tuple[Matrix, Matrix]:
    """Return (X'X (d, d), X'1 (d,)) of the rows of a block less `shift`, which is 0 where they are sparse."""
    with OVERFLOWING():
        rows = shifted(block.rows, shift)
        if sp.issparse(rows):
            gram, sums = (rows.T @ rows).toarray(), np.asarray(rows.sum(axis=0)).ravel()
        else:
            gram, sums = rows.T @ rows, rows.sum(axis=0)
    return np.asarray(finite(gram, Kernel("linear"))), np.asarray(sums)
