"""Largest eigenvalues of a symmetric matrix by its products with blocks of vectors (block Krylov).

    span[P, A P, A^2 P, ...],    Rayleigh-Ritz on all of it after each product,    A q - theta q for each pair that is wanted

A product is what costs: of a kernel matrix that is recomputed, nearly as much for one vector as for fifty. All earlier blocks are kept,
up to a bound, where the space restarts from its best Ritz vectors (K. Wu, H. Simon, Thick-restart Lanczos method for large
symmetric eigenvalue problems, SIAM J. Matrix Anal. Appl. 22, 2000); images are kept too, so that residuals are those of the products
themselves, of whatever precision. For few products from blocks larger than wanted: C. Musco, C. Musco, Randomized block Krylov
methods for stronger and faster approximate singular value decomposition, NeurIPS 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from dkl.linalg.eigen.principal_coordinates import power_of_two
from dkl.resources import one_blas_thread
from dkl.solvers.watch import Outcome, Stall, Watch, verdict

Matrix = NDArray[np.float64]

BLOCKS, KEPT_BLOCKS = 6, 2
"""Blocks that the space has at most, and those that it restarts from."""
LEAST_PRODUCTS = 2
"""Least number of products: a pair that the start has almost missed shows only after one."""
PROGRESS, IDLE = 0.9, 6
"""Factor by which residuals must fall to count as progress; products without progress after which the rest is rounding."""
NOTHING = 1e-14
"""Share of the largest eigenvalue up to which the part of an image outside the space counts as rounding."""


class BlockProducts(Protocol):
    """A symmetric matrix A (n, n), by its products."""

    def times(self, V: Matrix) -> Matrix:
        """Return A V for V (n, b)."""


@dataclass(frozen=True)
class Eigenpairs:
    """Values (k,) descending, orthonormal vectors (n, k), residuals (k,): |A q - theta q| / largest value."""

    values: Matrix
    vectors: Matrix = field(repr=False)
    residuals: Matrix
    outcome: Outcome
    n_iter: int


def block_size(count: int) -> int:
    """Return the number of vectors of a block for `count` wanted pairs; those beyond `count` speed up convergence."""
    return count + max(20, count // 2)


def space_columns(n: int, block: int) -> int:
    """Return the maximum number of columns of the space; as many images are kept."""
    return min(n, BLOCKS * block)


@one_blas_thread()  # the same bits on any machine
def leading_eigenpairs(
    operator: BlockProducts, start: Matrix, count: int, *, tol: float, max_iter: int, watch: Watch
) -> Eigenpairs:
    """Return the `count` algebraically largest pairs, from a start (n, b), b >= count or all of the space.

    Solved once all residuals are at most `tol`, stalled where no product adds to the space any more; max_iter: most products. Where the
    space has fewer than `count` dimensions pairs are filled up with zeros. The history has the largest residual, the largest eigenvalue,
    and the last one wanted.
    """
    n, most = len(start), space_columns(len(start), start.shape[1])
    # Column by column in memory, as blocks are appended and products take the first columns.
    basis, images, inner = np.empty((n, most), order="F"), np.empty((n, most), order="F"), np.zeros((most, most))
    unit = 0.0
    size, fresh, stall, best, n_iter = 0, _orthonormal(start, basis[:, :0], 0.0), Stall(IDLE), np.inf, 0
    while True:
        n_iter += 1
        image = operator.times(fresh)
        unit = unit or power_of_two(float(np.abs(image).max(initial=0.0)))
        image = image / unit  # so that squares of lengths neither overflow nor vanish
        new = slice(size, size + fresh.shape[1])
        size = new.stop
        basis[:, new], images[:, new] = fresh, image
        # Only the new columns of Q'A Q: the others are known from the rounds before.
        inner[:size, new] = basis[:, :size].T @ image
        inner[new, :size] = inner[:size, new].T
        values, turn = np.linalg.eigh(0.5 * (inner[:size, :size] + inner[:size, :size].T))
        values, turn = values[::-1], turn[:, ::-1]
        vectors = basis[:, :size] @ turn[:, :count]
        scale = float(values[0] if values[0] > 0 else np.abs(values).max())
        # A q is a combination of images that are kept, so residuals take no further product.
        distances = images[:, :size] @ turn[:, :count] - vectors * values[:count]
        residuals = np.linalg.norm(distances, axis=0) / (scale or 1.0)
        largest, last = float(values[0]), float(values[:count][-1])
        row = {
            "iteration": n_iter, "residual": float(residuals.max()), "largest": unit * largest, "smallest": unit * last,
        }  # fmt: skip
        stop_reason = watch.record(row | {"finite": bool(np.isfinite(unit * values[:count]).all())})
        # The next block of the Krylov space: what the newest images add to it.
        fresh = _orthonormal(image, basis[:, :size], NOTHING * scale)
        progressed = float(residuals.sum()) <= PROGRESS * best
        best = float(residuals.sum()) if progressed else best
        outcome = verdict(
            stop_reason,
            solved=(n_iter >= LEAST_PRODUCTS or not fresh.shape[1]) and residuals.max() <= tol,
            at_limit=n_iter >= max_iter,
            stalled=stall.check(progressed) or not fresh.shape[1],
        )
        if outcome is not None:
            return _filled_up(unit * values[:count], vectors, residuals, count, outcome, n_iter)
        # A full space is turned into its best vectors; the same rotation gives their images, without a product.
        if size + fresh.shape[1] > most:
            size = _restart(
                basis, images, inner, values, turn, size, max(1, min(KEPT_BLOCKS * start.shape[1], most // 2))
            )
            fresh = fresh[:, : most - size]


def _restart(basis: Matrix, images: Matrix, inner: Matrix, values: Matrix, turn: Matrix, size: int, kept: int) -> int:
    """Turn the space into its `kept` best Ritz vectors, in place; return `kept`."""
    for space in (basis, images):
        space[:, :kept] = space[:, :size] @ turn[:, :kept]
    inner[:kept, :kept] = np.diag(values[:kept])
    return kept


def _orthonormal(block: Matrix, basis: Matrix, floor: float) -> Matrix:
    """Return orthonormal columns of the part of `block` outside `basis`, without those up to `floor` or rounding."""
    rest, longest = block, float(np.linalg.norm(block, axis=0).max(initial=0.0))
    floor = max(floor, 10 * np.finfo(float).eps * longest)
    # What is left of a vector in the space is rounding before the first round's scaling, not after it.
    for _ in range(2):
        for _ in range(2):
            rest = rest - basis @ (basis.T @ rest)
        rest, corner, _ = qr(rest, mode="economic", pivoting=True, check_finite=False)
        lengths = np.abs(np.diag(corner))
        rest = rest[:, : int((lengths > floor).sum())]
        # Columns are of length 1 from here on: where less than half is left, it was rounding.
        floor = 0.5
    return np.ascontiguousarray(rest)


def _filled_up(
    values: Matrix, vectors: Matrix, residuals: Matrix, count: int, outcome: Outcome, n_iter: int
) -> Eigenpairs:
    """Return the pairs found, with zeros for those that the space has no room for."""
    missing = count - len(values)
    vectors = np.hstack([vectors, np.zeros((len(vectors), missing))])
    return Eigenpairs(
        np.append(values, np.zeros(missing)), vectors, np.append(residuals, np.zeros(missing)), outcome, n_iter
    )
