"""Rank of a factor: superfluous columns are dropped, and directions of descent become new ones."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.principal_coordinates import NEGLIGIBLE, truncate_rank
from dkl.linalg.rows.shared_rows import Halo, SharedRows
from dkl.linalg.symmetric.psd_quadratic import congruence, psd_minimum, smat, svec
from dkl.resources import one_blas_thread

Array = NDArray[np.float64]
MIXING_RANK = 32
"""Largest rank at which the quadratic in Y is worth forming: it has r (r + 1) / 2 unknowns."""
CHUNK = 512
"""Entries of T at a time, whose products of columns stay in the cache."""
NEW = 1e-6
"""Least share of a column's length that it must add to the ones before it to count."""
WIDER, LITTLE_WIDER = 24, 8
"""Maximum columns that `mix_in` adds to V's, and if few are asked for: (r + WIDER)^2 / 2 unknowns."""
WEAK = 1e-8
"""Least share of K's largest eigenvalue: weaker columns of `mix_in` only slow down what follows.

One on all patterns that takes a curvature of -theta out of S has a weight of about theta n / (3 gamma), and without it the proof costs
theta n.
"""
MIXING_TOL, LEAST_TOL = 1e-7, 1e-10
"""Accuracy of `mix_in` as a share of the gap aimed at, and its least value: below is rounding."""


class RankedProblem(Protocol):
    """f(V V') = tr(V'LV) + gamma/2 |W^(1/2) P_T(V V' - T)|^2 at factors V of any rank, padded for loops."""

    @property
    def n(self) -> int:
        """Return the number of rows of V."""

    @property
    def gamma(self) -> float:
        """Return gamma, the weight of the pairs."""

    @property
    def rows(self) -> SharedRows:
        """Return how the rows are shared: all are here, or one owner's."""

    @property
    def halo(self) -> Halo:
        """Return the halo: the others' rows that are met."""

    def product(self, x: Array) -> Array:
        """Return L X (n_own, k)."""

    def upper_entries(self) -> tuple[NDArray, NDArray, Array, Array]:
        """Return (i, j, T_ij, c) of T's entries with i <= j, by rows, and the roots of how much they count."""

    def scale(self, objective: float) -> float:
        """Return the scale of changes of the objective: `objective`, or more if it is next to nothing."""

    def padded(self, factor: Array) -> Array:
        """Return a copy of `factor` (n, r) with zero columns up to that width."""

    def at(self, v: Array) -> Any:
        """Return the point of a padded factor, which it keeps: `objective`, `gradient`, `gradient_norm`."""

    def optimal_scale(self, point: Any) -> float:
        """Return the t >= 0 for which f(t K) is least."""

    def rescale(self, point: Any, t: float) -> None:
        """Compute K <- t K, in place."""

    def line(self, point: Any, direction: Array, out: Any = None) -> Any:
        """Return f along `direction`, with its `minimizer()`; the buffers of `out` are used again."""


def minimize_over_mixing(problem: RankedProblem, factor: Array) -> Array:
    """Lower f over K = Q Y Q', Y psd, Q an orthonormal basis of the columns of `factor`; principal columns.

    f is a quadratic in Y, minimized exactly. Where its minimum is not psd, Y goes as far as the boundary, loses the
    column that vanishes there, and continues: f never rises.
    """
    rows = problem.rows
    # Principal columns are orthogonal, so dividing by their lengths gives an orthonormal basis at no cost.
    factor = truncate_rank(factor, factor.shape[1], rows)
    # Above MIXING_RANK the normal matrix, of r (r + 1) / 2 unknowns squared, costs more than the iterations that it
    # saves.
    if not 0 < factor.shape[1] <= MIXING_RANK:
        return factor
    scale = _lengths(rows, factor)
    basis = factor / scale
    # Summed over T's pattern once: of fewer columns, basis @ turn, the quadratic is that of Y = turn Y' turn'.
    quadratic, turn = _quadratic(problem, basis), np.eye(factor.shape[1])
    with one_blas_thread():
        while turn.shape[1] > 0:
            # In the basis Q the present kernel is Y = diag(length^2).
            y0 = np.diag(scale**2)
            change = _quadratic_minimum(*quadratic, turn) - y0
            # Y0 + t change is singular first where t = 1 / (largest eigenvalue of -Y0^-1/2 change Y0^-1/2).
            steepest = np.linalg.eigvalsh(-change / np.outer(scale, scale))[-1]
            inside = steepest < 1.0
            values, vectors = np.linalg.eigh(y0 + (1.0 if inside else 1.0 / steepest) * change)
            # Directions below rounding are dropped with the column that vanishes, or the next quadratic would be
            # singular.
            keep = values > NEGLIGIBLE * values[-1]
            # On the boundary an eigenvalue is 0 by construction: rounding may leave it above the threshold.
            if not inside:
                keep[np.argmin(values)] = False
            turn, scale = turn @ vectors[:, keep][:, ::-1], np.sqrt(values[keep])[::-1]
            if inside:
                break
    return rows.times(basis, turn * scale)


def drop_weak_columns(problem: RankedProblem, factor: Array, point: Any, share: float) -> tuple[Array, Any]:
    """Return (principal columns without the weakest, at their best scale, the point there), f rising by less than a share.

    A column that should vanish does so slowly; one that was needed comes back by the certificate, which asks for a K of the best scale.
    """
    # Relative to the scale of the objective, which is positive even where f is 0.
    limit = point.objective + share * problem.scale(point.objective)
    # The columns are in descending order, so the last one is always the one that matters least.
    while factor.shape[1] > 1:
        fewer = problem.at(problem.padded(factor[:, :-1]))
        if fewer.objective > limit:
            break
        factor, point = factor[:, :-1], fewer
    scale = problem.optimal_scale(point)
    if not scale > 0:  # of nothing left, or not a number
        return factor, point
    problem.rescale(point, scale)
    return np.sqrt(scale) * factor, point


def _quadratic_minimum(normal: Array, linear: Array, turn: Array) -> Array:
    """Return the symmetric Y of the least 1/2 x'N x + c'x, x = svec(turn Y turn')."""
    inside = congruence(turn)
    # Least squares, as the normal matrix is singular where T's pattern does not see a direction of Y.
    solution = np.linalg.lstsq(inside.T @ normal @ inside, -(linear @ inside), rcond=1e-14)[0]
    return smat(np.asarray(solution, dtype=np.float64), turn.shape[1])


def _quadratic(problem: RankedProblem, q: Array) -> tuple[Array, Array]:
    """Return (N, c) of f / gamma = 1/2 y'N y + c'y + a constant, at K = Q Y Q', y = svec(Y)."""
    rows, (n, k) = problem.rows, q.shape
    a, b = np.triu_indices(k)
    # svec scales off-diagonals by the root of 2, so that <A, B> is the dot product of the vectors.
    weight = np.where(a == b, 1.0, np.sqrt(2.0))
    i, j, wanted, count = problem.upper_entries()
    met = np.empty((n + problem.halo.size, k))
    met[:n] = q
    # Rows of others are needed at one end of a pair that crosses owners.
    problem.halo.fill(met)

    def summed(lo: int, hi: int) -> Array:
        """Return [normal, right side] of the entries of some rows."""
        out = np.zeros((a.size, a.size + 1))
        first, last = np.searchsorted(i, [lo, hi])
        # In chunks that stay in the cache: all products at once would take r^2 / 2 numbers for each entry of T.
        for at in range(first, last, CHUNK):
            part = slice(at, min(at + CHUNK, last))
            x, y = (np.ascontiguousarray(np.take(met, ends[part], axis=0).T) for ends in (i, j))
            products = x[a] * y[b]
            products += x[b] * y[a]
            products *= 0.5 * count[part]
            out[:, :-1] += products @ products.T
            out[:, -1] += products @ (count[part] * wanted[part])
        return out

    # One BLAS thread for each group of rows, since the groups are already shared out over threads.
    with one_blas_thread():
        whole = rows.sum(summed)
    smooth = svec(rows.gram(q, problem.product(q)))
    return weight[:, None] * whole[:, :-1] * weight, smooth / problem.gamma - weight * whole[:, -1]


def _lengths(rows: SharedRows, x: Array) -> Array:
    """Return the columns' lengths (k,)."""
    return np.sqrt(rows.sum(lambda lo, hi: np.einsum("ij,ij->j", x[lo:hi], x[lo:hi])))


def mix_in(
    problem: RankedProblem,
    factor: Array,
    values: Array,
    vectors: Array,
    max_rank: int,
    *,
    relative: float,
    few: bool = False,
) -> Array:
    """Return a factor of lower f, by adding to V some of S's lowest Ritz vectors, values (k,), vectors (n, k).

    relative: the relative gap that is aimed at; `few` adds few columns to those of V, which costs far less.

    f is minimized over K = Q Y Q', Y psd, Q the columns of V and some of the vectors: near the optimum S vanishes on all of
    K's range, so that its lowest vectors hold what V lacks. Where V has too many columns for that, or nothing is won, those of
    the most negative curvature are added by a line search.
    """
    # A wide V has no affordable quadratic; its directions are added by a line search below.
    if 0 < factor.shape[1] <= MIXING_RANK:
        mixed = _mixed(problem, factor, vectors, max_rank, LITTLE_WIDER if few else WIDER, relative)
        before, after = (problem.at(problem.padded(one)).objective for one in (factor, mixed))
        # f is compared exactly, as the quadratic's solution is only as good as its tolerance.
        if after < before:
            return mixed
    # Modes of less than a tenth of the steepest curvature gain little and would widen V.
    down = values < min(0.0, 0.1 * float(values[0]))
    return add_descent_columns(problem, factor, vectors[:, down] * np.sqrt(-values[down]), max_rank)


def _mixed(problem: RankedProblem, factor: Array, vectors: Array, max_rank: int, wider: int, relative: float) -> Array:
    """Return principal columns of the K = Q Y Q' of least f, without the weak ones.

    Q spans V and the first of the vectors that add to it, at most `wider`.
    """
    rows = problem.rows
    factor = truncate_rank(factor, factor.shape[1], rows)
    rank = factor.shape[1]
    q = independent(rows, np.hstack([factor / _lengths(rows, factor), vectors[:, : rank + wider]]), rank + wider)
    inside = rows.gram(q, factor)
    point = problem.at(problem.padded(factor))
    # The tolerance is of f / gamma, in which the quadratic is written.
    tol = max(MIXING_TOL * relative, LEAST_TOL) * problem.scale(point.objective) / problem.gamma
    quadratic = _quadratic(problem, q)
    with one_blas_thread():
        mixed = psd_minimum(*quadratic, inside @ inside.T, tol)
        values, turn = np.linalg.eigh(mixed)
    # Weak columns slow down the next round's conjugate gradients more than they lower f.
    keep = np.flatnonzero(values > WEAK * values[-1])[::-1][:max_rank]
    return rows.times(q, turn[:, keep] * np.sqrt(values[keep]))


def independent(rows: SharedRows, block: Array, most: int) -> Array:
    """Return an orthonormal basis of the first `most` unit columns of a block that add to those before."""
    gram: Array = rows.gram(block, block)
    chosen: list[int] = []
    factor = np.zeros(gram.shape)  # Cholesky's, of the chosen columns
    # Gram-Schmidt on the Gram matrix, which is small: the block itself, of n rows, is read once.
    for k in range(len(gram)):
        row = np.linalg.solve(factor[: len(chosen), : len(chosen)], gram[chosen, k])
        rest = gram[k, k] - row @ row
        # V's range is near those vectors: what they add to it, and to those before them, may be next to nothing.
        if rest > NEW**2 and len(chosen) < most:
            factor[len(chosen), : len(chosen)], factor[len(chosen), len(chosen)] = row, np.sqrt(rest)
            chosen.append(k)
    triangle = factor[: len(chosen), : len(chosen)]
    basis = rows.times(np.ascontiguousarray(block[:, chosen]), np.linalg.inv(triangle).T.astype(float))
    # The Gram matrix squares the condition, so one more pass over the block restores orthogonality.
    rows.orthonormalize(basis)
    return basis


def add_descent_columns(problem: RankedProblem, factor: Array, vectors: Array, max_rank: int) -> Array:
    """Return `factor` with columns of negative curvature added as far as an exact line search takes them."""
    # The solver's bound on the rank limits memory, and holds for new columns as well.
    room = max_rank - factor.shape[1]
    new = vectors[:, : max(room, 0)]
    if new.shape[1] == 0:
        return factor
    # The new columns start at 0, where f does not change to first order: the line search goes along their curvature.
    wide = problem.padded(np.hstack([factor, np.zeros_like(new)]))
    direction = problem.padded(np.hstack([np.zeros_like(factor), new]))
    point = problem.at(wide)
    t, _ = problem.line(point, direction).minimizer()
    # The quartic is even in t here, so the sign of the minimizer does not matter.
    return np.hstack([factor, abs(t) * new])
