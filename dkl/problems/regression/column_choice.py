"""Choice of the rows that become candidate columns.

Uniform draws are the paper's. Randomly pivoted Cholesky (Y. Chen, E. Epperly, J. Tropp, R. Webber, Randomly pivoted
Cholesky, CPAM 2024) draws each next row with probability proportional to what the columns so far leave of k(x, x), and
so covers the data with fewer. It is done here in rounds, each one pass over the rows: several candidates are drawn at a
time and each is accepted with the share of its residual that the ones before it left, which gives the same distribution
(E. Epperly, J. Tropp, R. Webber, Embrace rejection, arXiv 2410.03969).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.symmetric.growing_cholesky import with_ridge

if TYPE_CHECKING:
    from dkl.linalg.rows import Rows

FIRST_ROUND = 32
"""Candidates of the first round; later rounds draw as many as are chosen already."""
MOST_IDLE = 20
"""Rounds in a row without an accepted row after which what is left of the kernel counts as rounding."""
EXHAUSTED = 1e-13
"""Share of the trace that is left when the columns so far reproduce the kernel to rounding."""
TILE_ROWS = 1024
"""Rows whose residual is computed at a time, each with all columns so far."""


def uniform(n: int, count: int, stream: np.random.Generator, allowed: NDArray[np.bool_] | None = None) -> NDArray:
    """Draw `count` different row numbers (or all, if fewer), ascending, where `allowed` (n,) is True."""
    rows = np.arange(n) if allowed is None else np.flatnonzero(allowed)
    return np.sort(stream.choice(rows, size=min(count, len(rows)), replace=False))


def pivoted_cholesky(
    rows: RowBlocks,
    kernel: Kernel,
    count: int,
    stream: np.random.Generator,
    allowed: NDArray[np.bool_] | None = None,
) -> NDArray[np.intp]:
    """Choose up to `count` row numbers by randomly pivoted Cholesky, in the order drawn.

    Fewer where the kernel has less rank. allowed (n,): rows that may be drawn. Takes about log(count) passes over the rows, each
    O(n |chosen|^2). Raises InputError for a kernel whose diagonal is negative, or positive where that of its columns is 0.
    """
    chosen = np.empty(0, np.intp)
    points: Any = None
    factor: NDArray[np.float64] = np.empty((0, 0))
    first, idle = 0.0, 0
    while len(chosen) < count and idle < MOST_IDLE:
        # One pass over the rows: the residual of all of them, by the columns chosen so far.
        residual = np.concatenate(rows.map(residual_diagonal, kernel, points, chosen, factor))
        if allowed is not None:
            residual[~allowed] = 0.0
        residual[chosen] = 0.0  # but for rounding it is 0: a row must not be drawn twice
        mass = float(residual.sum())
        # The first round's trace is the scale by which later ones are judged.
        first = first or mass
        if mass <= EXHAUSTED * first:
            break
        # Up to twice of what is still wanted, as some are rejected.
        size = min(max(FIRST_ROUND, len(chosen)), 2 * (count - len(chosen)) + 8)
        # Proportional to the residual, so that a row that is reproduced already is never drawn again.
        drawn = stream.choice(len(residual), size=size, p=residual / mass)
        candidates = rows.take(drawn)
        kept = _accepted(kernel, points, chosen, factor, candidates, drawn, residual[drawn], stream)
        kept = kept[: count - len(chosen)]
        idle = 0 if len(kept) else idle + 1
        if not len(kept):
            continue
        chosen = np.concatenate([chosen, drawn[kept]])
        points = candidates[kept] if points is None else _stacked(points, candidates[kept])
        # From scratch each round: rounds are few, and an update would carry their rounding.
        factor = with_ridge(_between(kernel, points, points, chosen), 1e-14)  # chosen rows may be dependent to rounding
    if idle and not len(chosen):
        what, remedy = "k(x, x) > 0 by itself, and 0 in a matrix of rows", "give a kernel of x and z alone"
        raise InputError(what, where=kernel.where, remedy=remedy)
    return chosen


def residual_diagonal(
    block: Block, kernel: Kernel, points: Rows, chosen: NDArray[np.intp], factor: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return k(x, x) - |L^-1 k(P, x)|^2 (t,) of a block, cut at 0; P: chosen points, L L' = k(P, P)."""
    indices = np.arange(block.start, block.stop)
    out = kernel.diagonal(block.rows, indices)
    if not len(chosen):
        return out
    for lo in range(0, len(out), TILE_ROWS):
        rows = block.rows[lo : lo + TILE_ROWS]
        columns = kernel.columns(rows, chosen if kernel.is_precomputed else points)
        half = solve_triangular(factor, columns.T, lower=True, check_finite=False)
        # |L^-1 k(P, x)|^2 is what the chosen columns explain of k(x, x).
        out[lo : lo + TILE_ROWS] -= np.einsum("pt,pt->t", half, half)
    return np.maximum(out, 0.0)


def _accepted(
    kernel: Kernel,
    points: Rows,
    chosen: NDArray[np.intp],
    factor: NDArray[np.float64],
    candidates: Rows,
    drawn: NDArray[np.intp],
    proposed: NDArray[np.float64],
    stream: np.random.Generator,
) -> NDArray[np.intp]:
    """Return positions of the candidates accepted one after the other, by the residual left of each.

    A candidate drawn by the residual of the round's start is accepted with the share of it that is left: rejection sampling
    from the residual that sequential drawing would have seen (Epperly, Tropp and Webber).
    """
    left = _between(kernel, candidates, candidates, drawn)
    # What the columns chosen before this round have explained of the candidates.
    if len(chosen):
        half = solve_triangular(factor, _between(kernel, candidates, points, chosen).T, lower=True)
        left = left - half.T @ half
    kept = []
    for k, chance in enumerate(stream.random(len(drawn))):
        # `proposed` is what its draw was proportional to; the earlier ones of this round have taken the rest.
        if left[k, k] > 0 and chance * proposed[k] < left[k, k]:
            kept.append(k)
            # The accepted candidate takes its share of the others, as a column of the Cholesky factor does.
            left = left - np.outer(left[:, k], left[k]) / left[k, k]
            left[k] = left[:, k] = 0.0
            # The same row drawn twice: nothing is left of it but rounding.
            left[drawn == drawn[k]] = 0.0
            left[:, drawn == drawn[k]] = 0.0
    return np.array(kept, np.intp)


def _between(kernel: Kernel, rows: Rows, points: Rows, indices: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return k(rows, points); the points are rows `indices` of the whole."""
    return np.asarray(kernel.columns(rows, indices if kernel.is_precomputed else points), np.float64)


def _stacked(above: Rows, below: Rows) -> Rows:
    """Return two sets of rows, one above the other, dense or CSR."""
    return sp.vstack([above, below], format="csr") if sp.issparse(above) else np.concatenate([above, below])


def column_scale(kernel: Kernel, points: Rows, indices: NDArray[np.intp] | None = None) -> NDArray[np.float64]:
    """Return 1 / sqrt(k(x_m, x_m)) (M,), or 0 where k(x_m, x_m) is 0: then the whole column is 0.

    `indices`: of the points, if precomputed. Raises InputError where k(x_m, x_m) is negative or not finite.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        diagonal = kernel.diagonal(points, indices)
    if not np.isfinite(diagonal).all():
        raise kernel.not_finite(f"k(x, x) = {diagonal[~np.isfinite(diagonal)][0]}")
    return np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
