"""Constraints, losses, and F with its bound for `dkl verify`, from the data, M and the multipliers alone: see verify.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.estimators.base.rules import HINGES, SIMILARITY_LOSSES, TRIPLET_LOSSES
from dkl.estimators.base.side_information import SideInformation

if TYPE_CHECKING:
    from dkl.runs.logdet.inputs import AnyRunSettings
    from dkl.side_information.matrices import ConstraintMatrices

# -- constraints and losses --------------------------------------------------------------------------------------------
# The constraints and losses of Li et al. 2009, Table 2, once more: entries of K, and psi with its slope.

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Psi = Callable[[Vector], tuple[Vector, Vector]]
Apart = Callable[[Rows, Rows], Vector]
PIECE = 2_000_000
"""Numbers of the rows of constraints whose margins are summed up at a time."""
BEND = 0.7
"""Default of t in (8)."""
PERCENTILES, MOST_POINTS = (5, 95), 1000
"""Percentiles of squared distances that are ITML's bounds, and the most points to take them from."""
EQUAL, TIE = 1e-13, 1e-10
"""Share of the largest squared distance up to which K0 takes rows as equal."""


@dataclass(frozen=True)
class Terms:
    """tr(K A_t) = sum_k signs[k] K[i[t, k], j[t, k]], rows by their place among those touched; A_t is made symmetric.

    touched (p,) rows of the data; m: what gamma is divided by; loss: psi and psi' of margins; has_corner: whether it is a hinge itself.
    """

    touched: Rows
    i: Rows
    j: Rows
    signs: Matrix
    m: float
    loss: Psi
    has_corner: bool = False

    @property
    def lowest(self) -> float:
        """Return a lower bound of F that needs no work: 0 for losses nowhere negative, else -inf."""
        return float("-inf") if float(self.loss(np.full(self.count, 1e6))[0].min()) < 0 else 0.0

    @property
    def count(self) -> int:
        """Return the number of constraints."""
        return len(self.i)

    def margins(self, K: Matrix) -> Vector:
        """Return the margins (c,) of the constraints."""
        return np.asarray((self.signs * K[self.i, self.j]).sum(axis=1))

    def sizes(self, K: Matrix) -> Vector:
        """Return bounds (c,) on what margins are summed of: |K_ij| <= sqrt(K_ii K_jj) for a psd K."""
        D = np.sqrt(np.abs(np.diagonal(K)))
        return np.asarray((np.abs(self.signs) * D[self.i] * D[self.j]).sum(axis=1))

    def of_entries(self, bounds: Matrix) -> Vector:
        """Return bounds (c,) on margins from `bounds` (p, p) on the entries of K."""
        return np.asarray((np.abs(self.signs) * bounds[self.i, self.j]).sum(axis=1))

    def some(self, chosen: NDArray[np.bool_], n_labelled: int | None) -> Terms:
        """Return the chosen terms (c,) alone.
        n_labelled: what gamma is divided by; None: the number of rows that they touch."""

        def loss(margins: Vector) -> tuple[Vector, Vector]:
            # A loss is of all terms in their places, as ITML's bounds are; 1 is a margin that every psi takes.
            whole = np.ones(self.count)
            whole[chosen] = margins
            value, slope = self.loss(whole)
            return value[chosen], slope[chosen]

        i, j = self.i[chosen], self.j[chosen]
        m = len(np.unique([i, j])) if n_labelled is None else n_labelled
        return Terms(self.touched, i, j, self.signs[chosen], float(m), loss, self.has_corner)

    def dual_point(self, margins: Vector, given: Vector) -> tuple[Vector, Vector]:
        """Return (y, -psi*(y)) (c,) for the dual bound: y = psi'(margins), or the `given` y where psi' jumps."""
        if self.has_corner:
            y = np.clip(given, -1.0, 0.0)
            return y, -y
        value, slope = self.loss(margins)
        return slope, value - margins * slope

    def matrix(self, weights: Vector) -> Matrix:
        """Return sum over t of weights_t A_t, (p, p)."""
        U = np.zeros((len(self.touched),) * 2)
        np.add.at(U, (self.i, self.j), 0.5 * weights[:, None] * self.signs)
        return U + U.T

    def within(self, weights: Vector, L: Matrix) -> Matrix:
        """Return L' (sum over t of weights_t A_t) L, (d, d), of L (p, d)."""
        entries = (0.5 * weights[:, None] * self.signs).ravel(), (self.i.ravel(), self.j.ravel())
        half = L.T @ (sp.coo_array(entries, shape=(len(L),) * 2).tocsr() @ L)
        return np.asarray(half + half.T)

    def margins_of_rows(self, B: Matrix) -> tuple[Vector, Vector]:
        """Return (margins (c,) of K = B B', bounds (c,) on what they are summed of), B (p, d)."""
        margins, sizes, lengths = np.empty(self.count), np.empty(self.count), np.linalg.norm(B, axis=1)
        step = max(1, PIECE // (self.i.shape[1] * B.shape[1]))
        for lo in range(0, self.count, step):
            i, j, signs = (part[lo : lo + step] for part in (self.i, self.j, self.signs))
            margins[lo : lo + step] = (signs * np.einsum("tkd,tkd->tk", B[i], B[j])).sum(axis=1)
            sizes[lo : lo + step] = (np.abs(signs) * lengths[i] * lengths[j]).sum(axis=1)
        return margins, sizes


def terms_of(side: SideInformation, points: Rows, apart_of: Apart, settings: AnyRunSettings) -> Terms:
    """Return constraints and loss of the settings.

    apart_of: squared distances (c,) under K0 between the rows i (c,) and j (c,) of the stored `points`, which give ITML's bounds.
    """
    name = settings.loss
    if side.matrices is not None:
        return _of_matrices(side.matrices, name, _named(name, settings.t))
    if name in TRIPLET_LOSSES:
        assert side.triplets is not None
        a, s, d = side.triplets.triplets.T
        return _terms(side, ((a, s, 2.0), (a, d, -2.0), (s, s, -1.0), (d, d, 1.0)), name, _named(name, settings.t))
    assert side.pairs is not None
    i, j, sign = side.pairs.i, side.pairs.j, side.pairs.sign.astype(float)
    if name in SIMILARITY_LOSSES:
        return _terms(side, ((i, j, 2.0 * sign),), name, _named(name, settings.t))
    places = np.searchsorted(points, np.stack([i, j])).clip(max=len(points) - 1)
    # Rows of a cannot-link that are equal may be in no other pair, and so at no point.
    apart = np.where((points[places] == [i, j]).all(axis=0), apart_of(*places), 0.0)
    kept = (sign > 0) | ~(apart[sign < 0].max(initial=0.0) * EQUAL >= apart)
    i, j, similar = i[kept], j[kept], sign[kept] > 0
    some = np.unique(np.linspace(0, len(points) - 1, min(len(points), MOST_POINTS)).astype(np.intp))
    among = apart_of(*(some[k] for k in np.triu_indices(len(some), 1)))
    distinct = among[among > EQUAL * among.max(initial=0.0)]
    least = float(distinct.min()) if distinct.size else 1.0
    near, far = np.percentile(among, PERCENTILES)
    upper, lower = max(float(near) * (1.0 + TIE), least), max(float(far) * (1.0 - TIE), least)
    bounds = settings.upper or upper, settings.lower or lower
    return _terms(side, ((i, i, 1.0), (i, j, -2.0), (j, j, 1.0)), name, _itml(similar, *bounds))


def _terms(side: SideInformation, parts: tuple[tuple[Rows, Rows, float | Vector], ...], name: str, loss: Psi) -> Terms:
    i, j = np.stack([one for one, _, _ in parts], 1), np.stack([other for _, other, _ in parts], 1)
    signs = np.stack([np.broadcast_to(weight, len(i)) for _, _, weight in parts], 1)
    touched, places = np.unique(np.concatenate([i, j], axis=1), return_inverse=True)
    i, j = np.split(places.reshape(len(i), -1), 2, axis=1)
    return Terms(touched, i, j, signs, float(side.n_labelled or len(touched)), loss, name in HINGES)


def _of_matrices(given: ConstraintMatrices, name: str, loss: Psi) -> Terms:
    """Return terms of as many entries as the largest matrix has; those that another lacks are its first, times 0."""
    counts = np.bincount(given.constraint, minlength=given.count)
    first = np.cumsum(counts) - counts
    places = given.constraint, np.arange(len(given.constraint)) - first[given.constraint]
    i, j = (np.repeat(ends[first, None], counts.max(), axis=1) for ends in (given.i, given.j))
    signs = np.zeros(i.shape)
    i[places], j[places], signs[places] = given.i, given.j, np.where(given.i == given.j, 1.0, 2.0) * given.value
    touched = np.unique([i, j])
    i, j = np.searchsorted(touched, i), np.searchsorted(touched, j)
    return Terms(touched, i, j, signs, float(len(touched)), loss, name in HINGES)


def apart_under(K: Matrix) -> Apart:
    """Return the squared distances under a kernel K (p, p), as a function of rows."""

    def apart(i: Rows, j: Rows) -> Vector:
        return np.asarray(np.maximum(K[i, i] + K[j, j] - 2 * K[i, j], 0.0))

    return apart


def _named(name: str, t: float | None) -> Psi:
    """Return psi of a loss other than ITML's, by its name; t: where it bends (None: BEND). A hinge itself is (8) at t = 1."""
    corner, bend = _hinge(1.0), _hinge(BEND if t is None else t)
    return {"log": _log, "linear": _linear, "lmnn": bend, "hoi": bend, "hinge": corner, "hoi_hinge": corner}[name]


def _log(a: Vector) -> tuple[Vector, Vector]:
    """Return log(1 + exp(-2 a)) and its slope -2 / (1 + exp(2 a))."""
    value = np.maximum(-2 * a, 0.0) + np.log1p(np.exp(-2 * np.abs(a)))
    # Above 709 exp overflows.
    return value, -2.0 / (1.0 + np.exp(np.minimum(2 * a, 700.0)))


def _linear(a: Vector) -> tuple[Vector, Vector]:
    """Return -a and its slope."""
    return -a, np.full_like(a, -1.0)


def _hinge(t: float) -> Psi:
    """Return psi of (8): linear up to t, quadratic to 1, then 0."""

    def psi(a: Vector) -> tuple[Vector, Vector]:
        steep, quadratic = a <= t, (a > t) & (a < 1)
        value, slope = np.zeros_like(a), np.zeros_like(a)
        value[steep], slope[steep] = (2 + 2 * t - 4 * a[steep]) / (3 + t), -4 / (3 + t)
        rest = 1 - a[quadratic]
        value[quadratic], slope[quadratic] = 2 * rest**2 / ((1 - t) * (3 + t)), -4 * rest / ((1 - t) * (3 + t))
        return value, slope

    return psi


def _itml(similar: NDArray[np.bool_], upper: float, lower: float) -> Psi:
    """Return ITML's psi: x/b - log(x/b) - 1 for a similar pair over b = upper, or another under b = lower."""
    b = np.where(similar, upper, lower)

    def psi(a: Vector) -> tuple[Vector, Vector]:
        counts = np.where(similar, a > b, a < b)
        ratio = np.where(counts, a / b, 1.0)
        return ratio - np.log(ratio) - 1.0, np.where(counts, 1.0 / b - 1.0 / np.where(counts, a, 1.0), 0.0)

    return psi


# -- proof -------------------------------------------------------------------------------------------------------------


AGREE = 1e-8
"""Tolerance relative to the sizes that are summed up."""
KNOWN = 8 * float(np.finfo(float).eps)
"""Relative difference of K0's entries between two ways to a kernel of rows."""
FURTHEST, BISECTIONS = 1e6, 120
"""Largest margin that a slope is searched at, and steps of that search."""


def proven(
    K: Matrix, w: float, M: Matrix, multipliers: Matrix, L: Matrix, terms: Terms
) -> tuple[float, float, float, float]:
    """Return (F, its bound, rounding of F, scale of a gap) of K = K0 + K0 M K0 (p, p), K0 = L L'.

    The bound is the largest of the dual's at the slopes of the margins and at the multipliers, and that by the gradient.
    """
    a, inner = terms.margins(K), L.T @ M @ L
    value, steep = terms.loss(a)
    slope, conjugate = terms.dual_point(a, multipliers / w)
    size = log_det(inner)
    objective = w * float(value.sum()) + float(np.trace(inner)) - size
    bound = w * float(conjugate.sum()) + log_det(L.T @ terms.matrix(w * slope) @ L)
    y = in_domain(terms, multipliers / w)
    by_multipliers = w * conjugate_sum(terms, y) + log_det(L.T @ terms.matrix(w * y) @ L)
    by_gradient = objective - gradient_bound(terms.matrix(w * terms.loss(a)[1] - multipliers), K)
    bound = max(bound, terms.lowest, by_multipliers, by_gradient)
    sizes = w * float(np.abs(value).sum() + np.abs(a * slope).sum()) + abs(float(np.trace(inner))) + abs(size)
    # Each entry of K0 is known to some last digits, whose differences are margins, and of ITML's loss all the steeper where small.
    # Where K0 is all but singular M is huge, and the terms of K0 M K0 cancel.
    K0 = L @ L.T
    np.abs(K0, out=K0)
    sizes_of_K = terms.sizes(K0) + terms.of_entries(K0 @ np.abs(M) @ K0)
    rounding = KNOWN * w * float(np.abs(steep) @ sizes_of_K)
    # Each eigenvalue of L'M L is known to some last digits of the largest: where gamma is tiny, or all constraints hold, F is as tiny.
    # Of that by which a kernel differs from K0 by rounding alone, F has the square. log det magnifies it where 1 + an eigenvalue is small.
    least = np.maximum(1.0 + np.linalg.eigvalsh(inner), KNOWN)
    rounding += KNOWN * float(np.maximum(1.0, 1.0 / least).sum()) * min(1.0, float(np.linalg.norm(inner)) + KNOWN)
    # The same of L'M L.
    lengths = np.abs(L).sum(axis=1)
    rounding += KNOWN * float(lengths @ np.abs(M) @ lengths)
    scale = max(abs(objective), abs(bound) if np.isfinite(bound) else 0.0, float(np.finfo(float).tiny))
    return objective, bound, AGREE * sizes + rounding, scale


# ITML's psi of a number below 0 is NaN, by which it is recognized: its margins are squared distances.
@np.errstate(invalid="ignore")
def _ends(terms: Terms) -> tuple[Vector, Vector]:
    """Return the least and largest margins (c,) that slopes are searched at."""
    low, high = np.full(terms.count, -FURTHEST), np.full(terms.count, FURTHEST)
    return np.where(np.isnan(terms.loss(low)[0]), np.finfo(float).tiny, low), high


def in_domain(terms: Terms, y: Matrix) -> Matrix:
    """Return the nearest slopes (c,) that psi has: multipliers are some, but for rounding, and any prove a bound."""
    low, high = _ends(terms)
    return np.asarray(np.clip(y, terms.loss(low)[1], np.maximum(terms.loss(high)[1], 0.0)))


def conjugate_sum(terms: Terms, y: Matrix) -> float:
    """Return the sum of -psi*(y), the least of psi(a) - a y over a, by bisection of psi'(a) = y (c,).
    -inf without such an a."""
    low, high = _ends(terms)
    slack = AGREE * np.abs(y)
    if (y < terms.loss(low)[1] - slack).any() or (y > np.maximum(terms.loss(high)[1], 0.0) + slack).any():
        return float("-inf")
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        is_below = terms.loss(middle)[1] < y
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return float(np.sum(terms.loss(high)[0] - high * y))


def gradient_bound(G: Matrix, K: Matrix) -> float:
    """Return -s - log(1 - s), s = |K^1/2 G K^1/2|_F < 1 of F's gradient G at K: F less that is a bound, as -log det K is self-concordant
    (Nesterov, Lectures on Convex Optimization, 2018, theorem 5.1.13)."""
    product = G @ K
    size = float(np.sqrt(max((product * product.T).sum(), 0.0)))
    return -size - float(np.log1p(-size)) if size < 1 else float("inf")


def root_of(K0: Matrix) -> Matrix:
    """Return L (p, r), K0 = L L', over nonzero eigenvalues of D^-1 K0 D^-1, D the roots of the diagonal."""
    D = np.sqrt(np.maximum(np.diagonal(K0), 0.0))
    D[D == 0] = 1.0
    values, vectors = np.linalg.eigh(K0 / np.outer(D, D))
    kept = values > len(K0) * np.finfo(float).eps * max(float(values[-1]), 0.0)
    return np.asarray(D[:, None] * vectors[:, kept] * np.sqrt(values[kept]))


def pivoted_root(K0: Matrix) -> Matrix:
    """Return L (p, r), K0 = L L', by pivoted Cholesky: another root than `root_of`, with other rounding."""
    lower, pivots, rank, _ = scipy.linalg.lapack.dpstrf(K0, lower=1)
    L = np.zeros((len(K0), rank))
    # LAPACK counts from 1.
    L[pivots - 1] = np.tril(lower)[:, :rank]
    return L


def log_det(S: Matrix) -> float:
    """Return log det(I + S) of a symmetric S; -inf if I + S is not positive definite."""
    values = np.linalg.eigvalsh(0.5 * (S + S.T))
    return float(np.log1p(values).sum()) if values[0] > -1.0 else float("-inf")  # those of a tiny S are lost next to 1


def inner_of(L: Matrix, U: Matrix) -> Matrix:
    """Return L'M L (r, r) of K^-1 = K0^-1 + U: (I + L'U L)^-1 - I, which is -(I + L'U L)^-1 L'U L."""
    S = L.T @ U @ L
    return np.asarray(-symmetric(np.linalg.solve(np.eye(len(S)) + S, S)))


def of_inner(L: Matrix, inner: Matrix) -> tuple[Matrix, Matrix]:
    """Return (an M with L'M L = `inner`, K = L (I + L'M L) L')."""
    D = np.linalg.norm(L, axis=1)
    D[D == 0] = 1.0
    Q, T = np.linalg.qr(L / D[:, None])
    half = scipy.linalg.solve_triangular(T, inner, trans="T")
    M = Q @ scipy.linalg.solve_triangular(T, half.T, trans="T") @ Q.T / np.outer(D, D)
    return symmetric(M), symmetric(L @ (np.eye(len(inner)) + inner) @ L.T)


def symmetric(S: NDArray) -> Matrix:
    """Return the symmetric part of a square matrix."""
    return np.asarray(0.5 * (S + S.T))
