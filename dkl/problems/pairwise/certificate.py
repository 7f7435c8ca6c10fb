"""Bound on the distance of a kernel from the optimum of the pairwise problem (Hu & Kwok 2013, (1)), by one extreme eigenvalue.

f(K) = tr(KL) + gamma/2 sum_ij W_ij (K - T)_ij^2 over T's pattern is convex, with gradient S = L + gamma W P_T(K - T) (by
entries), sparse; W >= 0 are the weights of the pairs, 1 on the diagonal. For every psd K'
    f(K') >= f(K) + <S, K' - K> >= f(K) - <S, K> + min(0, lambda_min(S)) tr(K'),
and at an optimum K* the loss on the diagonal alone bounds |diag(K*) - 1| by spread = sqrt(2 f(K)/gamma), so
    tr(K*) <= n + sqrt(n) spread.
Hence f(K) - f(K*) <= gap = <S, K> + max(0, -lambda_min(S)) (n + sqrt(n) spread).

The lift. The term in lambda_min counts every pattern with the worst direction, which often lives on a few patterns. Let M be any
symmetric matrix on T's pattern, which holds the diagonal, with S + M psd: a diagonal D >= 0, say, and a shift of all eigenvalues as a
part of it, or multipliers of the pairs too (problems/pairwise/dual_correction.py). Then <S, K*> >= -<M, K*>, and
<M, K*> = <M, T> + <M, K* - T>, the latter at most |W^(-1/2) M| spread, as spread bounds |W^(1/2) P_T(K* - T)|:
    gap <= <S, K> + <M, T> + |W^(-1/2) M| spread.
Or, by duality: Y = gamma W P_T(K - T) + M are multipliers of the targets, feasible where L + Y = S + M is psd, and of the value
-<Y, T> - |W^(-1/2) Y|^2 / (2 gamma). The difference from f(K) is
    gap <= <S, K> + <M, K> + |W^(-1/2) M|^2 / (2 gamma).
Neither bound is always the smaller one, which counts.

By Gershgorin D_i = |theta| |x_i| |x|_1 lifts an eigenpair (theta, x) to 0 for |theta| |x|_1^2 instead of |theta| n. `find_lift` does
that for the localized ones; the smaller of the bounds with and without it counts. lambda_min enters as a lower bound, residual
and rounding taken off.

The relative gap is gap / max(f(K), floor), as an optimum may be 0 (must-links only on an unnormalized Laplacian, cannot-links
between components), of which nothing is proven relative to itself: f is rounding there, and so is the gap. T holds the
diagonal, so that K = 0 has f >= gamma n / 2. A K whose entries on T are off by a root mean square of d a pattern has
f >= gamma n d^2 / 2. With floor = FLOOR gamma n / 2, FLOOR = sqrt(eps), an f below the floor is d < eps^(1/4), 1e-4: a kernel
that meets every target to three digits. What rounding leaves of the gap, some eps (gamma + |L|) n, stays far enough
below the floor to prove goals down to 1e-6 or so, where gamma is not far below |L|.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.eigen.extreme_eigenvalues import Product, Shifted, lowest_eigenpairs, min_eigenvalue
from dkl.linalg.rows.shared_rows import SharedRows, inner_product

WORTH_LIFTING = 1e-6
"""Relative gap below which no lift is sought."""
LIFTING_ROUNDS = 8
"""Most rounds of `find_lift`."""
LIFTED_AT_ONCE = 16
"""Eigenpairs that a round of it lifts."""
FLOOR = float(np.sqrt(np.finfo(float).eps))
"""Share of gamma n / 2, f of the zero kernel on n patterns, below which an objective counts as 0."""
Array = NDArray[np.float64]


def gap_scale(objective: float, n: int, gamma: float) -> float:
    """Return the scale of a gap: f(K), but at least the floor sqrt(eps) gamma n / 2 of this file's head."""
    # The floor keeps the ratio finite where the optimum itself is 0, of which nothing is proven relative to itself.
    return max(objective, FLOOR * 0.5 * gamma * n)


@dataclass(frozen=True)
class Certificate:
    """A bound on the distance to the optimum of (1) over all psd kernels.

    objective       f(K)
    gap             f(K) - f(K*) is at most this
    relative_gap    gap / f(K), or gap / (sqrt(eps) gamma n / 2) where f(K) is less: see `gap_scale`
    min_eigenvalue  a lower bound on lambda_min(S + M), M the lift below; of `certify` on lambda_min(S), which M >= 0 only raises
    residual        norm of S x - theta x for the Ritz pair behind `direction`
    inner_product   <S, K>: 0 at a stationary point
    trace_bound     tr(K*) is at most this
    direction       (n,) unit Ritz vector of the lowest Ritz value of S: where x'S x is negative, K + t x x' is better for a small t
    lift            (n,) the diagonal of M, with which the gap is proven; zeros where lambda_min(S) alone proves as much
    pair_lift       M's entries on T's pairs (i, j), i < j, row by row; (0,) for zeros
    """

    objective: float
    gap: float
    relative_gap: float
    min_eigenvalue: float
    residual: float
    inner_product: float
    trace_bound: float
    direction: Array = field(repr=False)
    lift: Array = field(repr=False)
    pair_lift: Array = field(repr=False, default_factory=lambda: np.zeros(0))

    def as_dict(self) -> dict[str, float]:
        """Return the numbers, for a report; lift is the trace of M."""
        names = ("objective", "gap", "relative_gap", "min_eigenvalue", "residual", "inner_product", "trace_bound")
        return {name: float(getattr(self, name)) for name in names} | {"lift": float(self.lift.sum())}


@dataclass(frozen=True)
class OffDiagonal:
    """Costs of multipliers E on the pairs: <E, K>, <E, T> and size = |W^(-1/2) E|^2, both triangles."""

    with_kernel: float = 0.0
    with_targets: float = 0.0
    size: float = 0.0

    def times(self, share: float) -> OffDiagonal:
        """Return the numbers of share E."""
        # <E, K> and <E, T> are linear in E, and the squared norm is quadratic.
        return OffDiagonal(share * self.with_kernel, share * self.with_targets, share**2 * self.size)


@dataclass(frozen=True)
class TraceBound:
    """Cost of multipliers M in addition to those of S.

    Of K*, |W^(1/2) P_T(K* - T)| <= spread = sqrt(2 f(K) / gamma) for any K, as f(K*) <= f(K); of K, its diagonal (n,)."""

    rows: SharedRows
    """Rows that arrays (n,) have here: all, or an owner's."""
    spread: float
    scale: float
    """Number that a gap is relative to: see `gap_scale`."""
    gamma: float
    diagonal: Array = field(repr=False)
    pairs: OffDiagonal = OffDiagonal()
    """Multipliers of M on the pairs, which do not change while M's diagonal is sought."""

    @classmethod
    def of(cls, objective: float, gamma: float, diagonal: Array, rows: SharedRows | None = None) -> TraceBound:
        """Return the bound from f at a kernel and its diagonal in these rows; a lower f makes it tighter."""
        rows = rows or SharedRows.alone(diagonal.size)
        # Rounding may leave f a little below 0 where the optimum is 0, and its root would be NaN.
        spread = float(np.sqrt(2 * max(objective, 0.0) / gamma))
        return cls(rows, spread, gap_scale(objective, rows.n, gamma), gamma, diagonal)

    def beside(self, pairs: OffDiagonal) -> TraceBound:
        """Return the bound with multipliers on the pairs."""
        return replace(self, pairs=pairs)

    @property
    def trace_bound(self) -> float:
        """Return the bound n + sqrt(n) spread on tr(K*), by Cauchy-Schwarz."""
        return self.rows.n + float(np.sqrt(self.rows.n)) * self.spread

    def gap_term(self, low: float, lift: Array | None = None) -> float:
        """Return the gap beyond <S, K>: the lesser of the two bounds at the head of this file.

        low: a lower bound on lambda_min(S + M); lift: M's diagonal (n,), None for zeros.
        """
        # In this order: of a NaN, max is the NaN then, and nothing is proven.
        shift = max(-low, 0.0)
        # A shift of all eigenvalues is the diagonal shift I, so it costs as any other part of D does.
        whole = np.full(self.diagonal.size, shift) if lift is None else lift + shift
        own, trace, with_kernel = map(float, self.rows.sum(lambda lo, hi: _price(whole[lo:hi], self.diagonal[lo:hi])))
        size = own + self.pairs.size
        # First the bound by |P_T(K* - T)| <= spread, then the one by duality; both are valid, so the lesser is.
        return min(
            self.pairs.with_targets + trace + float(np.sqrt(size)) * self.spread,
            self.pairs.with_kernel + with_kernel + size / (2 * self.gamma),
        )


def _price(lift: Array, diagonal: Array) -> tuple[float, float, float]:
    """Return (|D|^2, tr D, <D, K>) of some rows."""
    return inner_product(lift, lift), float(lift.sum()), inner_product(lift, diagonal)


def weighted(values: Array, weights: Array | None) -> Array:
    """Return weights * values, entry by entry; None are ones."""
    return values if weights is None else weights * values


def gradient_matrix(
    laplacian: sparse.csr_array, targets: sparse.csr_array, gamma: float, entries: Array, weights: Array | None = None
) -> sparse.csr_array:
    """Return S = L + gamma W P_T(K - T), sparse (n, n).

    entries, weights (nnz of T,): K_ij and W_ij (None: ones) at T's stored entries, in their order.
    """
    # Only T's pattern carries the loss, so S has the sparsity of L and T together whatever the rank of K is.
    pull = weighted(entries - targets.data, weights)
    residual = sparse.csr_array((gamma * pull, targets.indices, targets.indptr), shape=targets.shape)
    return sparse.csr_array(laplacian + residual)


def certify(
    gradient: sparse.csr_array,
    targets: sparse.csr_array,
    gamma: float,
    entries: Array,
    smooth: float,
    *,
    weights: Array | None = None,
    product: Product | None = None,
    seed: int = 0,
) -> Certificate:
    """Certify K, given K on T (`entries`), smooth = tr(KL) and the gradient matrix S there.

    `product` computes S x elsewhere (on a cluster, say); by default it is scipy's. `seed` starts Lanczos, so that equal
    input gives equal bits. Some hundred products with S; some thousand where a lift is sought.
    """
    # <S, K> = tr(KL) + gamma <W P_T(K - T), K>: T's pattern is all that is needed of K.
    difference = entries - targets.data
    pull = weighted(difference, weights)
    # The factor 1/2 of the loss cancels in its gradient: hence it is in f, and not in <S, K>.
    objective = smooth + 0.5 * gamma * float(pull @ difference)
    inner = smooth + gamma * float(pull @ entries)
    matrix = Shifted.of(gradient, product)
    low, residual, direction = min_eigenvalue(matrix, seed=seed)
    diagonal = sparse.csr_array((entries, targets.indices, targets.indptr), shape=targets.shape).diagonal()
    return certificate_from_eigenvalue(
        matrix, TraceBound.of(objective, gamma, diagonal), objective, inner, low, residual, direction
    )


def certificate_from_eigenvalue(
    matrix: Shifted,
    bound: TraceBound,
    objective: float,
    inner: float,
    low: float,
    residual: float,
    direction: Array,
) -> Certificate:
    """Return the certificate by <S, K> (`inner`) and a lower bound on lambda_min(S) (`low`).

    With a lift where it proves more. residual, direction: of the Ritz pair behind `low`.
    """
    # Without a lift lambda_min counts for every pattern, by the bound on the trace.
    term, lift = bound.gap_term(low), np.zeros(bound.diagonal.size)
    # Below this share the term is small next to any goal, and a lift would cost thousands of products for nothing.
    if term > WORTH_LIFTING * bound.scale:
        found = find_lift(matrix, term)
        # The lift is a guess; what it proves is computed from S + D itself.
        lifted = bound.gap_term(min_eigenvalue(matrix.plus(found))[0], found) if found.any() else term
        if lifted < term:
            term, lift = lifted, found
    # A negative <S, K> is rounding or a K that is not scaled: it must not lower the bound.
    gap = max(inner, 0.0) + term
    return Certificate(
        objective,
        gap,
        float(gap / bound.scale),
        low,
        residual,
        inner,
        bound.trace_bound,
        direction=direction,
        lift=lift,
    )


def find_lift(matrix: Shifted, budget: float) -> Array:
    """Return D >= 0 (n,) of a sum below `budget` that lifts S's localized negative directions, or zeros.

    Localized: |x|_1^2 below n / 2 for a unit eigenvector x, so that lifting it costs less than half of what it costs in the
    trace term. In rounds, as lifting some directions uncovers others.
    """
    n = matrix.shift.size
    lift = np.zeros(n)
    for _ in range(LIFTING_ROUNDS):
        values, vectors = lowest_eigenpairs(matrix.plus(lift), LIFTED_AT_ONCE)
        # |x|_1^2 is about the number of patterns that a unit vector x lives on: 1 on one, n where it is spread out.
        spans = np.abs(vectors).sum(axis=0)
        localized = (values < 0) & (spans**2 < 0.5 * n)
        # Gershgorin: adding |theta| |x_i| |x|_1 to the diagonal makes theta x x' + D psd.
        added = (np.abs(vectors[:, localized]) * (-values * spans)[localized]).sum(axis=1)
        # A lift of a sum beyond the term that it is to replace cannot lower the gap.
        if not localized.any() or float((lift + added).sum()) > budget:
            break
        lift += added
    return lift


def optimal_scale(with_targets: float, square: float, gamma: float, smooth: float) -> float:
    """Return the t >= 0 of least f(t K) = gamma/2 (t K - T) . W (t K - T) + t tr(KL), from W K . T and W K . K; then <S, K> = 0."""
    # f(t K) is a quadratic in t, so the root of its slope is exact; t < 0 would leave the psd cone.
    curvature = gamma * square
    return max((gamma * with_targets - smooth) / curvature, 0.0) if curvature > 0 else 0.0
