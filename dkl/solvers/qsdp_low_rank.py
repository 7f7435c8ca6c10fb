"""A convex quadratic over the psd cone by factors Y = R R' of few columns: faces by an interior point, then Newton's method.

Two steps lower f, and each does what the other cannot:

    face     Y = V Z V' with V the columns of R and the eigenvectors of the gradient's lowest eigenvalues: a problem of q rows,
             convex, solved by an interior-point method. It finds the rank and the range, however far they are, but only
             linearly (Helmberg & Rendl, SIAM Journal on Optimization 10, 2000, with a quadratic in place of its model).
    Newton   of f(R R') in R, along which the range turns: quadratically, once the rank is right (Burer & Monteiro 2003).
             On a line f is a quartic, whose least value is exact.

Newton goes on while the proven gap falls by PACE a step; a face where it does not. Both work in coordinates in which the map sees
all directions alike (`scaling`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.psd_quadratic import psd_minimum, svec
from dkl.linalg.symmetric_maps import SymmetricMap
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Stall, Watch, verdict

Array = NDArray[np.float64]

FACE = 30
"""Rows of Z at most, but for a face that the factor's own columns fill: its interior-point steps take q^6 / 24 operations."""
FRESH = 12
"""Eigenvectors of the gradient that a face gets beside the factor's columns, at least."""
PACE = 3.0
OTHER = {"start": "face", "face": "newton", "newton": "face"}
LEAST = {"start": 0, "face": 1, "newton": 3}
"""Steps of a kind that are taken before another is tried."""
DIRECT = 3000
"""Entries of R up to which Newton's equations are factorized; beyond, conjugate gradients."""
CG_STEPS = 200
UNSEEN = 1e-12
IDLE = 8
CUTS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
"""Of the largest eigenvalue of Z: what is below is left out where that costs next to nothing."""
SLACK = 0.1
"""Of a face's progress: what leaving columns out may undo, so that later faces have room."""
SHIFT = 1e-12
"""Of the largest eigenvalue of the gradient: what keeps Newton's matrix definite along rotations of R, which change nothing."""


class Certificate(Protocol):
    """What is proven of a point."""

    @property
    def gap(self) -> float:
        """f - bound."""

    @property
    def relative_gap(self) -> float:
        """Of the objective's size."""


class Point(Protocol):
    """R R' and what is known there; the attributes of `dkl.problems.quadratic_sdp.QSDPPoint`."""

    @property
    def factor(self) -> Array:
        """(m, r)."""

    @property
    def seen(self) -> Any:
        """By the map."""

    @property
    def residual(self) -> Array:
        """(p,) B(Y) - t."""

    @property
    def gradient(self) -> Array:
        """(m, m) S."""

    @property
    def objective(self) -> float:
        """f."""


class Problem(Protocol):
    """min |B(Y) - t|^2 + <C, Y> over Y psd."""

    @property
    def map(self) -> SymmetricMap:
        """B."""

    @property
    def targets(self) -> Array:
        """(p,) t."""

    @property
    def C(self) -> Array:
        """(m, m)."""

    def at(self, factor: Array) -> Any:
        """The point of a factor (m, r)."""

    def certificate(self, point: Any) -> Any:
        """What is proven of it."""

    def scaling(self) -> Array:
        """J (m, m)."""

    def congruent(self, J: Array) -> Self:
        """The problem in Z, Y = J Z J'."""


@dataclass(frozen=True)
class QSDPSolution:
    """What a solver of the QSDP hands out: Y = factor factor', factor (m, r), its certificate, and how it came about.

    n_iter: steps of the method; n_products: Hessian products of conjugate gradients, where the method takes any.
    """

    outcome: Outcome
    factor: Array = field(repr=False)
    certificate: Any
    n_iter: int
    n_products: int = 0
    solver: str = "low-rank"


def solve_low_rank(
    problem: Problem, *, tol: float = 1e-6, max_iter: int = 200, face: int = FACE, watch: Watch | None = None
) -> QSDPSolution:
    """Until the proven relative gap is at most `tol`. From Y = 0, without anything random; face: rows of Z at most.

    Rows of the history: iteration, objective, gap, relative_gap, rank, step ("face", "newton").
    InputError where f has no lower bound over the psd cone.
    """
    watch = Watch() if watch is None else watch
    _check_bounded(problem)
    J = problem.scaling()
    engine = _Engine(problem.congruent(J), tol, face)
    point = engine.problem.at(np.zeros((len(J), 1)))
    best, certificate, step, gap_before = point, engine.problem.certificate(point), "start", 0.0
    proven, stall, taken = certificate, Stall(IDLE), 0
    for iteration in range(max_iter + 1):
        told = watch.record({
            "iteration": iteration, "objective": point.objective, "gap": certificate.gap,
            "relative_gap": certificate.relative_gap, "rank": point.factor.shape[1], "step": step,
        })  # fmt: skip
        if certificate.gap <= proven.gap:
            best, proven = point, certificate
        ended = verdict(
            told, solved=proven.relative_gap <= tol, at_limit=iteration == max_iter, stalled=stall.is_passed
        )
        if ended is not None:
            break
        # Newton's first step from a face's optimum leaves its dual point, and tells nothing about the next.
        taken += 1
        if certificate.gap * PACE > gap_before and taken >= LEAST[step]:
            step, taken = OTHER[step], 0
        gap_before = certificate.gap
        following = engine.newton(point) if step == "newton" else engine.face(point, certificate.gap)
        stall.check(following.objective < point.objective - 1e-14 * abs(point.objective))
        point = following
        certificate = engine.problem.certificate(point)
    factor = J @ best.factor
    return QSDPSolution(
        ended or Outcome.ITERATION_LIMIT, factor, problem.certificate(problem.at(factor)), iteration, engine.products
    )


class _Engine:
    """The two steps, and how many Hessian products they took."""

    def __init__(self, problem: Problem, tol: float, face: int) -> None:
        self.problem, self.tol, self.width, self.products = problem, tol, face, 0

    def face(self, point: Point, gap: float) -> Any:
        """The least f over Y = V Z V', of which `point` is one; truncated to the columns that count."""
        S, m = point.gradient, len(point.gradient)
        values, vectors = np.linalg.eigh(S)
        own = _range(point.factor)
        rank = own.shape[1]
        width = min(m, max(self.width, rank + max(min(FRESH, self.width // 2), rank // 4)))
        fresh = vectors[:, : width - rank] if rank < m else vectors[:, :0]
        V = np.linalg.qr(np.concatenate([own, fresh], axis=1))[0]
        face = self.problem.congruent(V)
        rows = face.map.rows()
        linear = svec(face.C) - 2.0 * rows.T @ self.problem.targets
        start = V.T @ point.factor
        # As exact as the gap calls for, which the face leaves behind in any case.
        least = 0.1 * self.tol * max(abs(point.objective), 1e-3 * float(self.problem.targets @ self.problem.targets))
        aim = max(1e-3 * gap, least) if width < m and np.isfinite(gap) else least
        normal = 2.0 * rows.T @ rows
        found = psd_minimum(normal, linear, self._begin(start @ start.T, normal, linear), aim)
        sizes, turn = np.linalg.eigh(found)
        columns = (V @ turn) * np.sqrt(np.maximum(sizes, 0.0))
        whole = self.problem.at(columns)
        if not whole.objective < point.objective:
            return point
        slack = max(aim, SLACK * (point.objective - whole.objective))
        for cut in CUTS:
            kept = sizes > cut * sizes[-1]
            if kept.all():
                break
            trial = self.problem.at(columns[:, kept])
            if trial.objective <= whole.objective + slack:
                return trial
        return whole

    def _begin(self, Z: Array, normal: Array, linear: Array) -> Array:
        """Z, or where it is zero the best multiple of the identity."""
        if np.any(Z):
            return Z
        identity = svec(np.eye(len(Z)))
        slope, bend = float(linear @ identity), float(identity @ normal @ identity)
        return np.eye(len(Z)) * (max(-slope, 1e-3 * abs(slope)) / bend if bend > 0 and slope else 1.0)

    def newton(self, point: Point) -> Any:
        """The least point on the line of Newton's step in R; the same point where there is none."""
        low, high = np.linalg.eigvalsh(point.gradient)[[0, -1]]
        # Its columns orthogonal, so that they trouble each other least.
        turned, sizes, _ = np.linalg.svd(point.factor, full_matrices=False)
        point = self.problem.at(turned * sizes)
        shift = max(0.0, -2.0 * float(low)) + SHIFT * max(float(high), -float(low))
        direct = point.factor.size <= DIRECT
        step = self._direct(point, shift) if direct else self._conjugate(point, shift)
        seen = self.problem.map.see(step)
        first, second = point.seen.crossed(seen), seen.squares()
        r, linear = point.residual, self.problem.C @ step
        quartic = (
            2.0 * float(r @ first) + 2.0 * float(np.sum(linear * point.factor)),
            float(first @ first) + 2.0 * float(r @ second) + float(np.sum(linear * step)),
            2.0 * float(first @ second),
            float(second @ second),
        )
        length = _least(*quartic)
        following = self.problem.at(point.factor + length * step)
        return following if following.objective <= point.objective else point

    def _direct(self, point: Point, shift: float) -> Array:
        """-H^-1 grad, H by its entries: 2 (S + shift) on the diagonal blocks and 2 J'J, J the derivative of B(R R')."""
        m, r = point.factor.shape
        J = point.seen.jacobian()
        H = 2.0 * (J.T @ J)
        for k in range(r):
            H[k * m : (k + 1) * m, k * m : (k + 1) * m] += 2.0 * point.gradient
        slope = -2.0 * (point.gradient @ point.factor).T.ravel()
        diagonal = np.diag_indices(m * r)
        entries = H[diagonal]
        for _ in range(60):
            H[diagonal] = entries + 2.0 * shift
            try:
                return scipy.linalg.cho_solve(scipy.linalg.cho_factor(H), slope).reshape(r, m).T
            except np.linalg.LinAlgError:
                shift *= 10.0
        return slope.reshape(r, m).T

    def _conjugate(self, point: Point, shift: float) -> Array:
        """The same by conjugate gradients, preconditioned by the diagonal blocks; as far as curvature is positive."""
        S, m = point.gradient, len(point.gradient)
        base = 2.0 * S + 2.0 * shift * np.eye(m)
        blocks = [scipy.linalg.cho_factor(_definite(2.0 * part + base)) for part in point.seen.curvatures()]

        def solved(residual: Array) -> Array:
            parts = zip(blocks, residual.T, strict=True)
            return np.stack([scipy.linalg.cho_solve(block, column) for block, column in parts], axis=1)

        residual = -2.0 * (S @ point.factor)
        step = np.zeros_like(residual)
        image = solved(residual)
        direction, size = image, float(np.sum(residual * image))
        # Eisenstat & Walker: as exact as the step is short.
        enough = min(0.01, size / max(abs(point.objective), 1e-300)) * size
        for k in range(CG_STEPS):
            self.products += 1
            crossed = point.seen.crossed(self.problem.map.see(direction))
            product = 2.0 * (S @ direction) + 4.0 * point.seen.pulled(crossed)
            bend = float(np.sum(direction * product))
            if bend <= 0:
                return direction if k == 0 else step
            length = size / bend
            step = step + length * direction
            residual = residual - length * product
            image = solved(residual)
            following = float(np.sum(residual * image))
            if following <= enough:
                break
            direction, size = image + (following / size) * direction, following
        return step


def _range(factor: Array) -> Array:
    """An orthonormal basis of the columns of a factor (m, r)."""
    vectors, sizes, _ = np.linalg.svd(factor, full_matrices=False)
    return vectors[:, sizes > 1e-8 * sizes[0]] if sizes[0] > 0 else vectors[:, :0]


def _definite(matrix: Array) -> Array:
    """The matrix, moved to be positive definite beyond rounding."""
    values = np.linalg.eigvalsh(matrix)
    floor = 1e-12 * max(float(values[-1]), 1e-300)
    return matrix + max(0.0, floor - float(values[0])) * np.eye(len(matrix))


def _least(c1: float, c2: float, c3: float, c4: float) -> float:
    """The t at which c1 t + c2 t^2 + c3 t^3 + c4 t^4 is least; 0 where it never falls."""
    roots = np.roots([4 * c4, 3 * c3, 2 * c2, c1])
    # A double root may come out as a complex pair, its imaginary part rounding.
    real = roots.real[np.abs(roots.imag) <= 1e-8 * np.abs(roots)]
    if real.size == 0:
        return 0.0
    return float(real[np.argmin(real * (c1 + real * (c2 + real * (c3 + real * c4))))])


def _check_bounded(problem: Problem) -> None:
    """InputError where C is negative in a direction that no B_t sees: along it f falls forever."""
    values, vectors = np.linalg.eigh(problem.map.size())
    unseen = vectors[:, values <= UNSEEN * max(float(values[-1]), 0.0)]
    if unseen.shape[1] and np.linalg.eigvalsh(unseen.T @ problem.C @ unseen)[0] < -UNSEEN * np.abs(problem.C).max():
        raise InputError(
            "the objective has no lower bound", where="C", got="a direction in which C is negative and A is zero",
            wanted="A that sees every direction in which C is negative", remedy="join the graph's components, or add pairs",
        )  # fmt: skip
