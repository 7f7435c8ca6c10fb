"""The small systems of KL-ADMM: one for each pattern, over the patterns it is paired with.

With P_i = [u_j : j in T_i] (r x t) the update is v_i = (c_i - P_i w_i) / rho, where w_i solves the t x t system
    (rho/gamma I + P_i' P_i) w_i = P_i' c_i,                        (Hu & Kwok 2013, (13) with SMW (25))
or, where the pair (i, j) has the weight d_j^2 and D = diag(d), w_i = D x_i with
    (rho/gamma I + D P_i' P_i D) x_i = D P_i' c_i,
so r appears only in dot products, which `SmallSystems` lists. A hub's system is built from the gathered rows u_j instead, r x r where
t >= r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.late_functions import njit
from dkl.resources import one_blas_thread


def filled_here(function: Callable[[int, int], None], vector: NDArray, ends: NDArray[np.int64]) -> None:
    """Call `function` on all items at once: a `Filled` of one range."""
    function(0, ends.size - 1)


def solve(
    systems: SmallSystems,
    pair: NDArray[np.float64],
    edge: NDArray[np.float64],
    rho: float,
    gamma: float,
    weights: NDArray[np.floating],
    rows: NDArray[np.float64] | None,
    filled: Filled = filled_here,
) -> None:
    """Compute weights[k] <- -w_i[j] for each k = (i, j) of T, w_i the solution of pattern i's system.

    pair : (p,) u_left . u_right;  edge : (nnz of T,) u_j . (c_i - rho u_i);  rows : (gathered, r) the rows of U
    that the hubs need, None without hubs. The bits do not depend on how `filled` cuts the patterns: each system
    is solved by itself.
    """
    # The largest triangle has t (t + 1) / 2 entries: t from that, for the threads' work arrays.
    limit = int(np.diff(systems.slot_ptr).max(initial=0))
    size = int((np.sqrt(8 * limit + 1) - 1) / 2 + 0.5)

    def part(lo: int, hi: int) -> None:
        work = np.empty((size + 1, max(size, 1)))
        _solve_range(
            lo, hi, systems.indptr, systems.slot_ptr, systems.slots, systems.edge_pair, systems.roots,
            pair, edge, rho, gamma, work, weights,
        )  # fmt: skip

    filled(part, weights, systems.indptr)
    if systems.hubs.size:
        assert rows is not None
        _solve_hubs(systems, pair, edge, rho, gamma, weights, rows)


def _solve_hubs(
    systems: SmallSystems,
    pair: NDArray[np.float64],
    edge: NDArray[np.float64],
    rho: float,
    gamma: float,
    weights: NDArray[np.floating],
    rows: NDArray[np.float64],
) -> None:
    """Solve the systems of patterns with over hub_size pairs, from their rows: t x t, or r x r if t >= r."""
    # One BLAS thread: the bits must not depend on how many processors the machine has.
    with one_blas_thread():
        for i in systems.hubs:
            span = slice(systems.indptr[i], systems.indptr[i + 1])
            root = systems.roots[span]
            p = rows[np.searchsorted(systems.gathered, systems.indices[span])]  # (t, r), P_i' of the paper
            p *= root[:, None]
            # edge holds u_j . (c_i - rho u_i), so rho u_j . u_i is added back.
            right_side = root * (edge[span] + rho * pair[systems.edge_pair[span]])
            t, r = p.shape
            # The smaller of both systems; both give the same w by the push-through identity.
            if t < r:
                system = p @ p.T
                system.flat[:: t + 1] += rho / gamma
                solved = scipy.linalg.solve(system, right_side, assume_a="pos", overwrite_a=True)
                weights[span] = -(root * solved)
            else:  # the push-through identity: (a I + P'P)^-1 b = (b - P' (a I + P P')^-1 P b) / a
                system = p.T @ p
                system.flat[:: r + 1] += rho / gamma
                inner = scipy.linalg.solve(system, p.T @ right_side, assume_a="pos", overwrite_a=True)
                weights[span] = -(gamma / rho) * (root * (right_side - p @ inner))


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_range(lo, hi, indptr, slot_ptr, slots, edge_pair, roots, pair, edge, rho, gamma, work, weights):  # type: ignore[no-untyped-def]
    """Solve every small system in [lo, hi) by Cholesky, in `work` (t_max + 1, t_max), the right side last.

    By hand: systems are 3 x 3 or so, where a call of LAPACK costs more than its arithmetic.
    """
    shift = rho / gamma
    last = work.shape[0] - 1
    for i in range(lo, hi):
        # A hub has no slots: `_solve_hubs` does it.
        if slot_ptr[i + 1] == slot_ptr[i]:
            continue
        start = indptr[i]
        t = indptr[i + 1] - start
        at = slot_ptr[i]
        for a in range(t):
            for b in range(a + 1):
                work[a, b] = pair[slots[at]] * (roots[start + a] * roots[start + b])
                at += 1
            work[a, a] += shift
            # One more row of the matrix: Cholesky's loop makes of it the forward substitution.
            work[last, a] = roots[start + a] * (edge[start + a] + rho * pair[edge_pair[start + a]])
        for a in range(t):
            for b in range(a + 1):
                value = work[a, b]
                for c in range(b):
                    value -= work[a, c] * work[b, c]
                work[a, b] = np.sqrt(value) if a == b else value / work[b, b]
            value = work[last, a]
            for c in range(a):
                value -= work[a, c] * work[last, c]
            work[last, a] = value / work[a, a]
        for a in range(t - 1, -1, -1):
            value = work[last, a]
            for c in range(a + 1, t):
                value -= work[c, a] * work[last, c]
            work[last, a] = value / work[a, a]
            # Minus, so that the update is one more sparse product to add.
            weights[start + a] = -(roots[start + a] * work[last, a])


# Terms of the small systems of KL-ADMM: one for each pattern, over the patterns it is paired with.
#
# With P_i = [u_j : j in T_i] (r x t) each asks for dot products u_j . u_k alone, which are sums over rank slabs.
# `SmallSystems` lists once which are needed; `solve` assembles and solves all systems from them. A hub (t above
# `hub_size`) would need t^2/2 dot products: its system is built from the gathered rows u_j instead.
#
# Plans ask for these lists too, so nothing here takes Numba to import.

HUB_SIZE = 64
"""Pairs of a pattern above which its system is built from the gathered rows u_j: t^2 / 2 dot products would be too many."""

Filled = Callable[[Callable[[int, int], None], NDArray, NDArray[np.int64]], None]
"""filled(function, vector, ends): function(lo, hi) sets vector[ends[lo] : ends[hi]], for ranges that together are all items, perhaps on
threads and by others."""


@dataclass(frozen=True, eq=False)
class SmallSystems:
    """Which dot products the systems of the pattern T (CSR, n x n, with its whole diagonal) need.

    left, right : (p,) int32, the distinct pairs of rows whose dot products are needed, left >= right
    slots       : for pattern i at slot_ptr[i], its Gram matrix's lower triangle by rows, as positions in the pair list
    edge_pair   : (nnz of T,) position in the pair list of the entry (i, j)
    roots       : (nnz of T,) square roots of the entries' weights, the d above
    hubs        : patterns with t > hub_size; gathered: the rows they need, sorted
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    left: NDArray[np.int32]
    right: NDArray[np.int32]
    slot_ptr: NDArray[np.int64]
    slots: NDArray[np.int32]
    edge_pair: NDArray[np.int32]
    roots: NDArray[np.float64]
    hubs: NDArray[np.int64]
    gathered: NDArray[np.int64]

    @cached_property
    def diagonal(self) -> NDArray[np.bool_]:
        """Return which entries of T are on the diagonal."""
        return self.indices == np.repeat(np.arange(self.indptr.size - 1), np.diff(self.indptr))

    @property
    def n_pairs(self) -> int:
        """Return the number of dot products that are needed, one a pair of rows."""
        return int(self.left.size)

    @classmethod
    def of(
        cls, pattern: sparse.csr_array, weights: NDArray[np.float64] | None = None, *, hub_size: int = HUB_SIZE
    ) -> SmallSystems:
        """Build the systems of `pattern`, CSR (n, n) with its whole diagonal, symmetric, entries sorted.

        weights: (nnz of `pattern`,) above 0, None for ones. hub_size: largest t that is solved from dot products.
        O(sum of t_i^2) time and memory over the patterns up to that.
        """
        indptr = pattern.indptr.astype(np.int64)
        indices = pattern.indices.astype(np.int32)
        n = indptr.size - 1
        counts = np.diff(indptr)
        hubs = np.flatnonzero(counts > hub_size)
        sizes = np.where(counts > hub_size, 0, counts)
        slot_ptr = np.concatenate(([0], np.cumsum(sizes * (sizes + 1) // 2))).astype(np.int64)
        # Patterns that share two neighbors share a dot product: each is listed once, and computed once an iteration.
        rows = np.repeat(np.arange(n), counts)
        wanted = np.concatenate((_triangles(indptr, indices, sizes, slot_ptr), _codes(n, rows, indices)))
        distinct, position = np.unique(wanted, return_inverse=True)
        gathered = np.unique(indices[np.isin(rows, hubs)]).astype(np.int64)
        return cls(
            indptr,
            indices,
            (distinct // n).astype(np.int32),
            (distinct % n).astype(np.int32),
            slot_ptr,
            position[: slot_ptr[-1]].astype(np.int32),
            position[slot_ptr[-1] :].astype(np.int32),
            np.ones(indices.size) if weights is None else np.sqrt(weights),
            hubs,
            gathered,
        )


def _codes(n: int, p: NDArray, q: NDArray) -> NDArray[np.int64]:
    """Return n * max(p, q) + min(p, q): one number for a pair of rows, whichever comes first."""
    return n * np.maximum(p, q).astype(np.int64) + np.minimum(p, q)


def _triangles(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], sizes: NDArray[np.int64], slot_ptr: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return (slots,) codes of the products in the lower triangle of each pattern's Gram matrix, by rows."""
    found = np.empty(slot_ptr[-1], np.int64)
    # Patterns of one size at a time, which make one array.
    for t in np.unique(sizes[sizes > 0]):
        of_size = np.flatnonzero(sizes == t)
        neighbors = indices[indptr[of_size, None] + np.arange(t)]
        later, earlier = np.tril_indices(t)
        slots = slot_ptr[of_size, None] + np.arange(later.size)
        found[slots] = _codes(indptr.size - 1, neighbors[:, later], neighbors[:, earlier])
    return found
