"""k-means on rows v_i in R^r, and with it kernel k-means on K = V V':

    minimize over c_1 .. c_k in R^r:    inertia(c) = sum_i min_j |v_i - c_j|^2

On a kernel's factor this is kernel k-means: |phi(x_i) - mean of phi over cluster j|^2 = |v_i - mean of v over j|^2, as
both sides are the same sums of entries of K (I. Dhillon, Y. Guan, B. Kulis, Kernel k-means, spectral clustering and
normalized cuts, KDD 2004).

R sets of centers ("restarts") are carried together, so that one pass over the rows serves them all. Each pass is a
function of a `Block` that workers run; the sums over blocks have the same bits wherever they ran. Centers (R, k, r) are
float64 and relative to `offset`, the mean of the rows as their dtype has it (None for sparse rows, which would lose their zeros).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.predictions import FewRows
from dkl.blocks.rows.row_blocks import Block, RowBlocks
from dkl.blocks.rows.row_pieces import refuse_tiny, require_finite
from dkl.io.plain_arrays import largest_value, refuse_too_large
from dkl.linalg.rows import kmeans
from dkl.linalg.rows.kmeans import lower, lowered_sums

Centers = NDArray[np.float64]
"""(R, k, r)"""

Offset = NDArray[np.float64] | None

Draw = tuple[int, int, float]
"""(restart, trial, where in the block's cumulative potential)."""

MEMO = "k-means++"
"""Name under which a block keeps `closest`.
It follows from the rows and the centers so far, so where it is not kept, or when a worker is lost, it is recomputed by the
same products in the same order, to the same bits."""


class LloydStep(NamedTuple):
    """Lloyd's step: cluster means, and 128-bit digests of each restart's labels, (R, 2) uint64."""

    centers: Centers
    digests: NDArray[np.uint64]


class KMeansProblem:
    """Rows of one fit: n, n_features, offset, variance (the mean over columns of the rows' variance).

    Raises InputError for rows that are not finite; that costs the one pass that offset and variance need anyway.
    """

    def __init__(self, rows: RowBlocks) -> None:
        self.rows, self.n, self.n_features = rows, rows.n, rows.n_features
        parts = rows.map(block_moments)
        # Merged pairwise, without the cancellation of sums of squares.
        mean, variances = kmeans.merge_moments(parts)
        # Sparse rows keep their zeros, so they are not centered.
        self.offset: Offset = None if rows.is_sparse else _as_of_rows(mean, rows)
        self.variance = float(variances.mean())
        refuse_tiny(rows, self.n * float(variances.sum()))
        # The squared length that rounding alone gives to a difference of two rows.
        self._noise = 16 * float(np.finfo(rows.dtype).eps) ** 2 * float(variances.sum())

    def shifted(self, centers: NDArray, sign: int = -1) -> Centers:
        """Return centers (..., r) relative to the offset, from absolute ones (sign -1) or back (sign 1)."""
        return np.asarray(centers, np.float64) + (0.0 if self.offset is None else sign * self.offset)

    def take(self, indices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the rows (m, r) with these indices, float64, in their order, dense, relative to the offset."""
        return centered(self.rows.take(indices), self.offset)

    def step(self, centers: Centers) -> LloydStep:
        """Take a step of Lloyd's algorithm for all restarts, in one pass over the rows.

        Empty clusters move to the farthest rows. centers (R, k, r), relative to the offset, as are those returned.
        """
        # One pass for all restarts: the rows are read once whatever R is.
        sums, counts, digests = self.rows.sum(lloyd_sums, centers, self.offset)
        for s in np.flatnonzero((counts == 0).any(axis=1)):
            self._relocate(centers[s], sums[s], counts[s])
        # What is still empty has no row to itself; it joins the largest cluster, as in scikit-learn.
        means = sums / np.maximum(counts, 1)[:, :, None]
        largest = means[np.arange(len(means)), counts.argmax(axis=1)]
        return LloydStep(np.where((counts > 0)[:, :, None], means, largest[:, None, :]), digests)

    def _relocate(self, centers: Centers, sums: NDArray[np.float64], counts: NDArray[np.int64]) -> None:
        """Give each empty cluster of one restart one of the rows farthest from their centers, in place; one more pass.

        As scikit-learn does. Rows at equal distance are taken in their order. Rows that lie on their centers stay there.
        """
        empty = np.flatnonzero(counts == 0)
        parts = self.rows.map(farthest_rows, centers, self.offset, len(empty))
        distances, labels, rows = (np.concatenate(item) for item in zip(*parts, strict=True))
        farthest = np.argsort(-distances, kind="stable")[: len(empty)]
        # Rows that lie on their centers are equal to others: no more clusters are to be had.
        if distances[farthest[0]] <= self._noise:
            return
        for cluster, i in zip(empty, farthest, strict=False):
            sums[labels[i]] -= rows[i]
            counts[labels[i]] -= 1
            sums[cluster] = rows[i]
            counts[cluster] = 1

    def keeps_closest(self, restarts: int) -> bool:
        """Return whether memory allows keeping each row's distance to the centers so far, for each restart."""
        return self.rows.keeps(restarts * 8)

    def potentials(self, chosen: Centers, candidates: Centers | None, keep: bool) -> NDArray[np.float64]:
        """Return each block's sum of squared distances to the nearest center, (blocks, R, trials).

        chosen (R, c, r): the centers so far; candidates (R, trials, r): what they would be with one more of these. (blocks, R, 1)
        without candidates.
        """
        return np.stack(self.rows.map(block_potentials, chosen, candidates, self.offset, keep))

    def drawn_rows(
        self, chosen: Centers, draws: dict[int, list[Draw]], keep: bool
    ) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """Yield (restart, trial, row relative to the offset) of each draw from the blocks, {block: its draws}."""
        for part in self.rows.map(candidate_rows, chosen, draws, self.offset, keep, only=set(draws)):
            yield from part

    def forget_closest(self) -> None:
        """Release the distances kept of the rows."""
        self.rows.forget()

    def inertia(self, centers: Centers) -> NDArray[np.float64]:
        """Return the objective (R,) at each restart's centers, from differences, without cancellation."""
        (total,) = self.rows.sum(block_inertia, centers, self.offset)
        return total


def block_moments(block: Block) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
    """Return (rows, mean, spread) of a block. Raises InputError for the first row that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        mean, spread = kmeans.moments(block.rows)
        squares = float(spread.sum()) if np.isfinite(mean).all() else np.inf
    _refuse_overflow(block, squares)
    return block.rows.shape[0], mean, spread


def centered(rows: Any, offset: Offset) -> NDArray[np.float64]:
    """Return some rows (m, r), dense, relative to the offset."""
    dense = rows.toarray() if sp.issparse(rows) else rows
    return np.asarray(dense.astype(np.float64) - (0.0 if offset is None else offset))


def lloyd_sums(block: Block, centers: Centers, offset: Offset) -> tuple[NDArray, NDArray, NDArray]:
    """Return a block's part in Lloyd's step: sums (R, k, r), counts (R, k), digests (R, 2).

    Whether any label changed since the last pass is seen from a digest: it adds up over blocks, modulo 2^64, and neither
    the last labels nor the new ones have to be kept or sent. Equal sums of unequal digests have odds of 2^-128.
    """
    sums, counts, labels = kmeans.cluster_sums(block.rows, centers, offset)
    # In the smallest type: the time of a digest is that of its bytes.
    small = labels.astype(np.min_scalar_type(centers.shape[1] - 1))
    # Salted by the block, or two blocks that exchange their labels would leave the sum as it is.
    salt = block.index.to_bytes(8, "little")
    digests = [hashlib.blake2b(own.tobytes(), digest_size=16, salt=salt).digest() for own in small]
    return sums, counts, np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2).copy()


def farthest_rows(
    block: Block, centers: NDArray[np.float64], offset: Offset, count: int
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Return (squared distances, labels, rows) of `count` rows, farthest from their centers (k, r) first."""
    labels = kmeans.assign(block.rows, centers[None], offset)
    distances = kmeans.own_distances(block.rows, centers[None], labels, offset)[0]
    farthest = np.argsort(-distances, kind="stable")[:count]
    return distances[farthest], labels[0, farthest], centered(block.rows[farthest], offset)


def block_inertia(block: Block, centers: Centers, offset: Offset) -> tuple[NDArray[np.float64]]:
    """Return ((R,) sums of squared distances of a block's rows to their nearest centers,)."""
    labels = kmeans.assign(block.rows, centers, offset)
    return (kmeans.own_distances(block.rows, centers, labels, offset).sum(axis=1),)


def nearest(block: Block, centers: NDArray, offset: Offset) -> tuple[NDArray[np.int32], float]:
    """Return (labels (m,), inertia) of a block for centers (k, r), `offset` subtracted; checks finiteness."""
    with np.errstate(over="ignore", invalid="ignore"):  # refused below
        labels = kmeans.assign(block.rows, centers[None], offset)
        inertia = float(kmeans.own_distances(block.rows, centers[None], labels, offset).sum())
    _refuse_overflow(block, inertia)
    return labels[0], inertia


def _refuse_overflow(block: Block, squares: float) -> None:
    """Raise InputError for the first value of a block that is not finite, or too large to square in the precision of the rows.

    squares: the sum of the rows' squared distances; a small one proves that no value is too large.
    """
    if squares <= float(np.finfo(block.rows.dtype).max) / 64:
        return
    require_finite(block)
    m, r = block.rows.shape
    limit = largest_value(r, block.rows.dtype)
    if not np.isfinite(squares):  # even if it is many rows that make it so large
        # Half the largest value, so that at least one value is refused by name.
        limit = min(limit, largest_value(m * r), float(abs(block.rows).max()) / 2)
    refuse_too_large(block.rows, limit, first=block.start)


def label_rows(rows: RowBlocks | FewRows, centers: NDArray) -> tuple[NDArray[np.int32], float]:
    """Return (labels (n,), inertia) of any rows for absolute centers (k, r).

    A function of the rows and the centers alone, so that a fit's labels are what predict returns for the same rows.
    """
    # The centers' mean instead of the rows': that one depends on which rows are asked about.
    offset = None if rows.is_sparse else _as_of_rows(centers.mean(axis=0, dtype=np.float64), rows)
    relative = centers.astype(np.float64) - (0.0 if offset is None else offset)
    parts: Sequence[tuple[NDArray[np.int32], float]] = rows.map(nearest, relative, offset)
    return np.concatenate([labels for labels, _ in parts]), float(sum(inertia for _, inertia in parts))


def _as_of_rows(offset: NDArray[np.float64], rows: RowBlocks | FewRows) -> NDArray[np.float64]:
    """Return the offset (r,) rounded to the rows' dtype, which rows and centers must both be relative to."""
    return offset.astype(rows.dtype).astype(np.float64)


def _closest(block: Block, chosen: Centers, offset: Offset, keep: bool) -> NDArray[np.float64]:
    """Return the squared distance (R, m) of each row to the nearest of its restart's centers (R, c, r)."""
    known, closest = block.memo.get(MEMO, (chosen[:, :0], None))
    # What is kept is of the centers so far; of other centers it is recomputed from the first one on.
    if closest is None or not np.array_equal(known, chosen[:, : known.shape[1]]):
        known, closest = chosen[:, :0], np.full((len(chosen), block.stop - block.start), np.inf)
    for c in range(known.shape[1], chosen.shape[1]):
        lower(block.rows, chosen[:, c], closest, offset)
    if keep:
        block.memo[MEMO] = chosen, closest
    return closest


def block_potentials(
    block: Block, chosen: Centers, candidates: Centers | None, offset: Offset, keep: bool
) -> NDArray[np.float64]:
    """Return the block's sums of closest (R, trials), if a restart took that candidate (R, trials, r) too."""
    closest = _closest(block, chosen, offset, keep)
    if candidates is None:
        return closest.sum(axis=1)[:, None]
    return lowered_sums(block.rows, candidates, closest, offset)


def candidate_rows(
    block: Block, chosen: Centers, draws: dict[int, list[Draw]], offset: Offset, keep: bool
) -> list[tuple[int, int, NDArray[np.float64]]]:
    """Return [(restart, trial, row)] of the rows on which this block's draws fall."""
    ends = np.cumsum(_closest(block, chosen, offset, keep), axis=1)
    last = ends.shape[1] - 1
    own = draws[block.index]
    # At most the last row, as rounding of the cumulative sum may leave the point beyond it.
    picks = np.array([min(int(np.searchsorted(ends[restart], point)), last) for restart, _, point in own])
    rows = centered(block.rows[picks], offset)
    return [(restart, trial, row) for (restart, trial, _), row in zip(own, rows, strict=True)]
