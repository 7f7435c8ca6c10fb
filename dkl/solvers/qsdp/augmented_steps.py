"""Steps in R of the augmented Lagrangian of K = R R': Newton's directions, the quartic on a line, and the preconditioner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.optimize import brentq

from dkl.linalg.eigen.laplacian_eigenmaps import factor_bytes
from dkl.linalg.eigen.lowest_by_factor import DENSE, factored
from dkl.linalg.symmetric.psd_quadratic import lowest_of_quartic

Array = NDArray[np.float64]
NEWTON, PRODUCTS, SLOW, FEW = 60, 200, 50, 6
"""Newton's steps in a round and Hessian products in a step, at most; products after which the preconditioner is recomputed, by columns and
together."""
NUMBER_BYTES = 24
"""Bytes of a number of a factor, and of those that it is made of."""
GAUGES = (500, 1_000)
"""Rows of two neighborhoods, at most, from whose factors the whole one's is foreseen."""
FILLED = 0.1
"""Share of numbers that are not 0 in a triangle of a sparse factor, beyond which the dense matrix is factored in less time."""
LONGEST = 2.0**20
"""Length of a step, in directions, at most."""
PATIENCE = 5
"""Steps of PRODUCTS products by rows after which a factor is made: one such step may come far from an optimum, where factors fail, too."""
SOFTEST = 0.5
"""Least entry of S's diagonal in a block of a row, in its mean size."""
FORCING = 1e-3
"""Share of the squared residual that a Newton step leaves."""


class ConstrainedCone(Protocol):
    """min <C, K> over K psd with <A_s, K> = b_s, or <= b_s; the methods of `dkl.problems.qsdp.linear.LinearSDP` that are called."""

    @property
    def C(self) -> sparse.csr_array:
        """Return C (n, n)."""

    @property
    def b(self) -> Array:
        """Return b (p,)."""

    @property
    def i(self) -> NDArray[np.int64]:
        """Return the rows (e,) of the distinct entries (i, j), i <= j, that constraints read."""

    @property
    def j(self) -> NDArray[np.int64]:
        """Return their columns (e,)."""

    @property
    def forms(self) -> sparse.csr_array:
        """Return the coefficients (p, e) of these entries."""

    @property
    def is_upper(self) -> NDArray[np.bool_]:
        """Return whether b_s is an upper bound (p,)."""

    @property
    def trace(self) -> float:
        """Return a number that no feasible K's trace exceeds."""

    @property
    def is_centered(self) -> bool:
        """Return whether K 1 = 0 is asked for."""

    @property
    def n(self) -> int:
        """Return the number of rows of K."""

    @property
    def is_variance(self) -> bool:
        """Return whether C = -I."""

    def slack(self, y: Array, *, with_cost: bool = True) -> sparse.csr_array:
        """Return C - sum_s y_s A_s, or without C."""

    def pattern(self) -> sparse.csr_array:
        """Return a positive definite matrix with the pattern of C and all A_s."""

    def images(self, R: Array) -> Array:
        """Return A(R R') (p,)."""

    def crossed(self, R: Array, D: Array) -> Array:
        """Return A(R D' + D R') (p,)."""

    def rows_of(self, R: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], Array]:
        """Return (row, s, values) of the rows of all A_s R."""

    def projected(self, R: Array) -> Array:
        """Return R, less its mean where the problem is centered."""

    def infeasibility(self, images: Array) -> float:
        """Return |A(K) - b| / |b|."""

    def certify(self, R: Array, y: Array, lowest: float) -> Any:
        """Return the certificate of R R' and y, `lowest` at most the least eigenvalue of S(y)."""

    def in_units(self) -> tuple[Any, float, float]:
        """Return (the problem in K / k and y / c, k, c)."""


@dataclass(frozen=True)
class Point:
    """The Lagrangian at R: A(R R') - b - y / sigma, and the multipliers, S, gradient and value that follow."""

    R: Array
    shifted: Array
    active: NDArray[np.bool_]
    dual: Array
    S: sparse.csr_array
    gradient: Array
    value: float

    @classmethod
    def of(cls, problem: ConstrainedCone, R: Array, y: Array, sigma: float) -> Point:
        """Compute L at R (n, r) of multipliers y (p,)."""
        shifted = problem.images(R) - problem.b - y / sigma
        active = ~problem.is_upper | (shifted > 0)
        # An upper bound that is met with room to spare has no term, and no multiplier.
        on = np.where(active, shifted, 0.0)
        S = problem.slack(-sigma * on)
        value = float(np.sum((problem.C @ R) * R)) + 0.5 * sigma * float(on @ on)
        return cls(R, shifted, active, -sigma * on, S, 2.0 * problem.projected(S @ R), value)


def minimized(
    problem: ConstrainedCone,
    R: Array,
    y: Array,
    sigma: float,
    goal: float,
    conditioned: ColumnPreconditioner,
    least: int,
) -> tuple[Point, int, bool]:
    """Return (point, Newton's steps, whether |gradient| |R| / 2, a bound of <S, K>, is at most `goal`).

    least: steps that are taken in any case, as from a saddle, where the gradient is small.
    """
    point, solved = Point.of(problem, R, y, sigma), None
    for step in range(NEWTON):
        slope = float(np.linalg.norm(point.gradient))
        # The gradient is 2 S R, so that |<S, R R'>| is at most half of |gradient| |R|.
        if step >= least and 0.5 * slope * float(np.linalg.norm(point.R)) <= goal:
            return point, step, True
        if solved is None:
            solved = conditioned.at(point, sigma)
        direction, products = _direction(problem, point, sigma, solved)
        following = _searched(problem, point, y, sigma, direction)
        # Below rounding of the value the gradient says whether it is progress.
        is_lower = following.value < point.value - 1e-13 * abs(point.value)
        if not is_lower and not float(np.linalg.norm(following.gradient)) < 0.9 * slope:
            return point, step, False
        if products > SLOW:
            conditioned.slow(R.shape[1], products)
        # Recomputed where it serves no longer: the full one is the Hessian, by which a few products should do.
        if products > (FEW if conditioned.is_full else SLOW):
            solved = None
        point = following
    return point, NEWTON, False


def _direction(
    problem: ConstrainedCone, point: Point, sigma: float, solved: Callable[[Array], Array]
) -> tuple[Array, int]:
    """Return (-H^-1 gradient as far as curvature is positive, Hessian products)."""
    R, S, active = point.R, point.S, point.active

    def product(D: Array) -> Array:
        seen = np.where(active, problem.crossed(R, D), 0.0)
        # A slack without C is -A*.
        return 2.0 * problem.projected(S @ D - sigma * (problem.slack(seen, with_cost=False) @ R))

    residual = -point.gradient
    image = solved(residual)
    direction, size = image, float(np.sum(residual * image))
    step, enough = np.zeros_like(R), FORCING * size
    for k in range(1, PRODUCTS + 1):
        bent = product(direction)
        bend = float(np.sum(direction * bent))
        if bend <= 0:
            # Along it L falls: the quartic's least point is taken, which may be far.
            return (direction if k == 1 else step), k
        length = size / bend
        step = step + length * direction
        residual = residual - length * bent
        image = solved(residual)
        following = float(np.sum(residual * image))
        if following <= enough:
            return step, k
        direction, size = image + (following / size) * direction, following
    return step, PRODUCTS


def _searched(problem: ConstrainedCone, point: Point, y: Array, sigma: float, D: Array) -> Point:
    """Return the point of the least L found on the line R + t D."""
    R, first, second = point.R, problem.crossed(point.R, D), problem.images(D)
    linear = problem.C @ D
    slope, bend = 2.0 * float(np.sum(linear * R)), float(np.sum(linear * D))
    # Upper bounds switch on and off along the line: L is a quartic in pieces, whose slope has no jumps.
    if problem.is_upper.any():
        t = _rising(
            lambda t: (
                slope + 2.0 * t * bend + sigma * _slope_of_squares(problem.is_upper, point.shifted, first, second, t)
            )
        )
    else:
        # L along the line, but for a constant: <C, .> and sigma / 2 |u + t v + t^2 w|^2.
        u, v, w = point.shifted, first, second
        quartic = (
            slope + sigma * float(u @ v),
            bend + sigma * float(0.5 * (v @ v) + u @ w),
            sigma * float(v @ w),
            0.5 * sigma * float(w @ w),
        )
        t = lowest_of_quartic(*quartic)[0]
    return Point.of(problem, R + t * D, y, sigma)


def _slope_of_squares(is_upper: NDArray[np.bool_], u: Array, v: Array, w: Array, t: float) -> float:
    """Return the slope at t of |u + t v + t^2 w|^2 / 2, where entries of upper bounds count if positive."""
    at = u + t * (v + t * w)
    at[is_upper & (at < 0)] = 0.0
    return float(at @ (v + 2.0 * t * w))


def _rising(slope: Callable[[float], float]) -> float:
    """Return a t > 0 at which the slope, negative at 0, is zero; 0 where it is not negative there or never rises."""
    if slope(0.0) >= 0:
        return 0.0
    high = 1.0
    while slope(high) < 0:
        high *= 2.0
        if high > LONGEST:
            return 0.0
    return float(brentq(slope, 0.0, high, xtol=1e-12 * high, rtol=1e-10))


class ColumnPreconditioner:
    """Preconditioner of L's Hessian: by rows and, where that takes many products, by columns or of all columns together.

    by rows     blocks (r, r) of the Hessian, of S its diagonal alone: what serves first, as a step costs no more than a product
    by columns  P = 2 S + (4 sigma / r) sum_s (A_s R)(A_s R)' + shift, (n, n): what the Hessian does to a column on average
    together    the Hessian itself, (n r, n r), plus the shift: where sigma is large, columns that a constraint does not turn are far
                softer than others. By a sparse factor, or, where that takes more memory, by dense ones of 2 S + shift, (n, n), which all
                columns share, and of what constraints add to it, of rank p (Woodbury)

    The shift is about the least that makes it positive definite. Without room for a factor, bytes, blocks by rows are all.
    """

    def __init__(self, problem: ConstrainedCone, room: float) -> None:
        self.problem, self.room, n = problem, room, problem.n
        # Few rows have no neighborhoods of their own; else small ones are factored, which costs little even without any zeros.
        gauges = (min(GAUGES[0], n // 8), min(GAUGES[1], n // 4)) if n > DENSE else (n, n)
        foreseen = factor_bytes(problem.pattern(), gauges)
        self.is_dense = n > DENSE and foreseen > FILLED * NUMBER_BYTES * n**2 / 2
        self.may_factor = (8.0 * n**2 if self.is_dense else foreseen) <= room
        # Distances couple rows so much that blocks of them serve less than a sparse factor.
        self.is_by_rows = self.is_dense or not self.may_factor or not problem.is_centered
        self.n_slow, self.is_full, self.shift, self.fill = 0, False, 0.0, 0
        self.shared_bytes = 8.0 * (3 * n**2 + 4 * len(problem.i) ** 2)

    def slow(self, columns: int, products: int) -> None:
        """Take a factor by columns from now on, or of all columns together, where that fits in memory."""
        if self.is_by_rows:
            # A dense factor by columns takes as many products as blocks do, each several times as long.
            fits = self.shared_bytes <= self.room if self.is_dense else self.may_factor
            self.n_slow += products >= PRODUCTS
            self.is_by_rows = not (fits and self.n_slow >= PATIENCE)
            self.is_full = self.is_dense and not self.is_by_rows
        elif self.fill and not self.is_full:
            self.is_full = min(self.shared_bytes, NUMBER_BYTES * self.fill * columns**2) <= self.room
            self.shift = 0.0 if self.is_full else self.shift

    def at(self, point: Point, sigma: float) -> Callable[[Array], Array]:
        """Return the solution (n, r) of right sides (n, r) at a point."""
        problem, (n, r) = self.problem, point.R.shape
        row, s, values = problem.rows_of(point.R)
        kept = point.active[s]
        row, s, values = row[kept], s[kept], values[kept]
        if self.is_by_rows:
            return self._by_rows(point, sigma, row, s, values)
        if self.is_full and (self.is_dense or self.shared_bytes <= NUMBER_BYTES * self.fill * r**2):
            shared = self._shared(point, sigma)
            return self._by_rows(point, sigma, row, s, values) if shared is None else shared
        columns, p = np.arange(r), len(problem.b)
        if self.is_full:
            # Columns vec(A_s R): what constraints add to the Hessian has rank p.
            places = ((row[:, None] * r + columns).ravel(), np.repeat(s, r))
            seen, own = sparse.csr_array((values.ravel(), places), shape=(n * r, p)), sparse.eye_array(r)
            P = sparse.csr_array(2.0 * sparse.kron(point.S, own) + 4.0 * sigma * (seen @ seen.T))
        else:
            # The columns of all A_s R next to each other, whose products sum over them.
            places = (np.repeat(row, r), (s[:, None] * r + columns).ravel())
            seen = sparse.csr_array((values.ravel(), places), shape=(n, p * r))
            P = sparse.csr_array(2.0 * point.S + (4.0 * sigma / r) * (seen @ seen.T))
        diagonal = np.abs(P.diagonal())
        for shift in self._shifts(diagonal):
            found = factored(sparse.csr_array(P + shift * sparse.eye_array(P.shape[0])))
            # Constant vectors, which a centered problem leaves out, may have a negative eigenvalue.
            spare = P.shape[0] // n if problem.is_centered else 0
            if found is not None and found.below <= spare:
                if not self.is_full:
                    self.fill = found.numbers
                solve, shape = found.solve, (n, r) if not self.is_full else (-1,)
                return lambda residual: problem.projected(
                    solve(problem.projected(residual).reshape(shape)).reshape(n, r)
                )
        # Not definite at any shift.
        self.is_full = False
        return self._by_rows(point, sigma, row, s, values)

    def _shifts(self, diagonal: Array) -> Iterator[float]:
        """Yield shifts to try, rising; the last one is kept."""
        # The shift that served before is tried a hundred times smaller, as S nears a psd matrix.
        self.shift = max(1e-8 * float(diagonal.mean()) + 1e-300, 0.01 * self.shift)
        while self.shift < 1e3 * float(diagonal.max()):
            yield self.shift
            self.shift *= 10.0

    def _by_rows(
        self, point: Point, sigma: float, row: NDArray[np.int64], s: NDArray[np.int64], values: Array
    ) -> Callable[[Array], Array]:
        """Return the solution by blocks of rows, of the sums over equal (row, s) of `values` (., r)."""
        problem, r = self.problem, point.R.shape[1]
        order = np.lexsort((s, row))
        row, s, values = row[order], s[order], values[order]
        first = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (s[1:] != s[:-1])][: len(row)])
        seen = np.add.reduceat(values, first, axis=0) if len(first) else values
        own = 2.0 * point.S.diagonal()
        # S's diagonal may be 0 or less, where its rows are not soft for that.
        own = np.maximum(own, SOFTEST * float(np.abs(own).mean()))
        blocks = own[:, None, None] * np.eye(r)
        # Column by column, so that there is never a block for each constraint.
        for k in range(r):
            np.add.at(blocks[:, k], row[first], 4.0 * sigma * seen[:, k, None] * seen)
        # Nothing but rounding keeps a block of constraints alone from being singular.
        blocks += (1e-12 * float(np.abs(blocks).max()) + 1e-300) * np.eye(r)
        inverse = np.linalg.inv(blocks)
        return lambda residual: problem.projected((inverse @ problem.projected(residual)[:, :, None])[:, :, 0])

    def _shared(self, point: Point, sigma: float) -> Callable[[Array], Array] | None:
        """Return the solution with the Hessian by dense factors; None where 2 S is not positive definite with any shift."""
        problem, R, i, j = self.problem, point.R, self.problem.i, self.problem.j
        matrix = 2.0 * point.S.toarray()
        diagonal = np.abs(matrix.diagonal())
        if problem.is_centered:
            matrix += float(diagonal.max()) / len(R)
        for shift in self._shifts(diagonal):
            shifted = np.asfortranarray(matrix)
            shifted[np.diag_indices(len(R))] += shift
            root, info = linalg.lapack.dpotrf(shifted, lower=1, overwrite_a=0)
            if not info:
                break
        else:
            return None
        below = np.tril(linalg.lapack.dpotri(root, lower=1)[0])
        inverse, K = below + np.tril(below, -1).T, R @ R.T
        # (A_s R)'(2 S + shift)^-1 (A_t R), summed over columns, by the entries (i, j) that A_s and A_t read.
        entries = sum(inverse[np.ix_(a, c)] * K[np.ix_(b, d)] for a, b in ((i, j), (j, i)) for c, d in ((i, j), (j, i)))
        forms = problem.forms[point.active]
        inner = forms @ (0.25 * entries) @ forms.T
        inner[np.diag_indices(len(inner))] += 1.0 / (4.0 * sigma)
        try:
            factor = linalg.cho_factor(inner, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            return None

        def solved(residual: Array) -> Array:
            image = inverse @ problem.projected(residual)
            weights = np.zeros(len(problem.b))
            seen = 0.5 * problem.crossed(R, image)[point.active]
            weights[point.active] = linalg.cho_solve(factor, seen, check_finite=False)
            # A slack without C is -A*.
            return problem.projected(image + inverse @ (problem.slack(weights, with_cost=False) @ R))

        return solved


def reduced(R: Array, share: float) -> Array:
    """Return R R' by orthogonal columns (n, r), largest first, without those of a square below `share` of the largest."""
    vectors, sizes, _ = np.linalg.svd(R, full_matrices=False)
    kept = sizes**2 > share * sizes[0] ** 2
    kept[0] = True
    vectors = vectors[:, kept]
    largest = vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])]
    return np.ascontiguousarray(vectors * np.where(largest < 0, -1.0, 1.0) * sizes[kept])
