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

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.linalg.late_functions import njit
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.linalg.slabs.small_system_terms import Filled, SmallSystems


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
