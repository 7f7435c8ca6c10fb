"""The LogDet problem (Li et al. 2009, (3)) at points K(l) = (K0^-1 + U(l))^-1, for any K0: values, forces, products, dual bound.

The formulas are in `problems/logdet/problem.py`; K0 is met as a `KernelForm`. `LeadingPreconditioner` is for Newton systems that a few
eigenvectors of K make stiff: those, one or so a class, have eigenvalues that grow with gamma.

With S S' = K on its k leading eigenvectors and h = sqrt(w psi''), the dual's system I + diag(h) H diag(h), H_st = tr(A_s K A_t K), is
nearly
    I + B B',   B (c, k (k + 1) / 2):   B y = h A(S Y S'),   B' r = S'U(h r)S,
Y symmetric and y its coordinates, those off the diagonal times the root of 2. Its inverse is I - B (I + B'B)^-1 B'. Of the digits' ten
classes 10 eigenvectors of K, 100 to 800 where the next is 4, make the system's largest eigenvalues, 2,000 to 4,000, to a per cent.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Self, cast

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.eigen.extreme_eigenvalues import lowest_relative
from dkl.linalg.symmetric.inverse_forms import FactoredInverse, KernelForm
from dkl.problems.logdet.constraints import ConstraintSet, Indices, Vector
from dkl.problems.logdet.losses import (
    HingeLoss,
    InvertibleLoss,
    ItmlLoss,
    LinearLoss,
    Loss,
    SmoothedHingeLoss,
    SoftenedLoss,
)
from dkl.problems.logdet.plan import DIRECT_BYTES, INCIDENCE, LEADING, PIECE, direct_bytes, is_preconditioned

Array = NDArray[np.float64]
HALF = 0.5
"""|S - I|_F from which on the eigenvalues of S are found."""
FACTOR_SPEED = 6.0
"""Operations of a factorization in the time of one of a sampled product, which waits for memory."""


@dataclass(frozen=True)
class LogDetCertificate:
    """Certificate of a kernel: F there, a lower bound of all F by the dual, and the gap between them."""

    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """Return objective - bound."""
        return self.objective - self.bound

    @property
    def relative_gap(self) -> float:
        """Return |gap| / max(|objective|, |bound|); inf where nothing is proven.

        A bound above the objective is so by rounding, the size of which the gap then says.
        """
        if not (np.isfinite(self.objective) and np.isfinite(self.bound)):
            return float("inf")
        return abs(self.gap) / max(abs(self.objective), abs(self.bound), np.finfo(float).tiny)


@dataclass(frozen=True)
class LogDetPoint:
    """K(l) and what is known there.

    multipliers  (c,) l
    margins      (c,) tr(K A_t)
    objective    F
    log_det      log det(I + K0 U(l))
    losses       sum of psi(a_t)
    """

    multipliers: Vector
    margins: Vector
    objective: float
    log_det: float
    losses: float


class LogDetProblem:
    """Base of the kernel's and the metric's problem: values, forces and products at the current point."""

    def __init__(
        self, form: KernelForm, constraints: ConstraintSet, loss: Loss, gamma: float, normalize: bool, m: int | None
    ) -> None:
        self.form, self.constraints, self.loss = form, constraints, loss
        # The paper divides the loss by the number of labeled points, so that gamma means the same for any of them.
        self._m = float(len(constraints.points) if m is None else m) if normalize else None
        if not (np.isfinite(gamma) and gamma > 0):
            raise InputError("not a weight of the loss", where="gamma", got=gamma, wanted="more than 0")
        if self._m is not None and not self._m > 0:
            raise InputError("not a number of labeled points", where="n_labelled", got=m, wanted="1 or more")
        self.gamma = float(gamma)

    def __len__(self) -> int:
        return len(self.constraints)

    @property
    def has_corner(self) -> bool:
        """Return whether the loss is a hinge: it has no curvature, and is approached by `softened` ones."""
        return isinstance(self.loss, HingeLoss)

    @property
    def has_bend(self) -> bool:
        """Return whether the loss has curvature only in places, and can be approached by `softened` ones."""
        return isinstance(self.loss, SmoothedHingeLoss)

    def softened(self, width: float) -> Self:
        """Return the same problem with a smooth loss of `width`; it shares as in `with_gamma`."""
        assert isinstance(self.loss, SoftenedLoss)
        # A shallow copy shares K0, its factors and all buffers: only the loss differs.
        other = copy(self)
        other.loss = self.loss.softened(width)
        return other

    def softened_certificate(self, multipliers: Vector) -> LogDetCertificate:
        """Return the certificate of K(l) for the loss itself; the trial is lost.

        l / w are slopes of a softened loss, and so in the domain of psi*."""
        assert isinstance(self.loss, SoftenedLoss)
        point = self.point(multipliers)
        if point is None:
            return LogDetCertificate(np.inf, -np.inf)
        return LogDetCertificate(
            # The multipliers of a smooth loss are slopes of the loss itself, so its conjugate is finite there.
            point.objective,
            self.dual_objective(point, self.loss.supports(multipliers / self.weight)),
        )

    @property
    def weight(self) -> float:
        """Return the weight w of the losses."""
        return self.gamma if self._m is None else self.gamma / self._m

    def with_gamma(self, gamma: float) -> Self:
        """Return the same problem at another gamma, sharing K0, its factors and buffers: solve one at a time."""
        # K0's factors are the large arrays, and none of them depends on gamma.
        other = copy(self)
        if not (np.isfinite(gamma) and gamma > 0):
            raise InputError("not a weight of the loss", where="gamma", got=gamma, wanted="more than 0")
        other.gamma = float(gamma)
        return other

    def some(self, chosen: NDArray[np.bool_], n_labelled: int | None) -> Self:
        """Return the problem of the chosen constraints (c,) alone; K0's inverse or factor is shared.

        n_labelled: the number that gamma is divided by, if it is divided, None: of the points that these constraints touch.
        """
        other = copy(self)
        other.constraints = self.constraints.some(chosen)
        # The form works on the entries that these constraints read, so its pattern is narrowed with them.
        other.form = self.form.with_pattern(other.constraints.pattern)
        if self._m is not None:
            other._m = float(len(other.constraints.points) if n_labelled is None else n_labelled)
        if isinstance(self.loss, ItmlLoss):
            # ITML's loss holds one label a constraint, which must follow the choice.
            other.loss = self.loss.some(chosen)
        return other

    def point(self, multipliers: Vector) -> LogDetPoint | None:
        """Return K(l), the trial; None where K0^-1 + U(l) is not positive definite."""
        log_det = self.form.at(self._entries(multipliers))
        if log_det is None:
            return None
        # Margins are read from the trial's K on the pattern alone, without its other entries.
        margins = self.constraints.incidence @ self.form.entries(trial=True)
        # F in the form of `problems/logdet/problem.py`, in which no inverse of K0 appears and nothing cancels near K0.
        losses, rest = float(np.sum(self.loss.value(margins))), float(multipliers @ margins)
        return LogDetPoint(multipliers, margins, self.weight * losses - rest + log_det, log_det, losses)

    def make_current(self, multipliers: Vector) -> Vector:
        """Make K(l) current and return U's weights (q,). InputError where it is not positive definite."""
        weights = self._entries(multipliers)
        if self.form.at(weights) is None:
            raise InputError("no kernel: K0^-1 + U is not positive definite", where="multipliers")
        self.form.accept()
        return weights

    def objective(self, point: LogDetPoint) -> float:
        """Return F of a point made at another gamma."""
        return self.weight * point.losses - float(point.multipliers @ point.margins) + point.log_det

    def accept(self) -> None:
        """Make the last point the current one, whose K products are with."""
        self.form.accept()

    def forces(self, margins: Vector) -> Vector:
        """Return (c,) w psi'(a)."""
        return self.weight * self.loss.first(margins)

    def curvatures(self, margins: Vector) -> Vector:
        """Return (c,) w psi''(a)."""
        return self.weight * self.loss.second(margins)

    def product(self, multipliers: Vector, *, coarse: bool = False) -> Vector:
        """Return (c,) tr(A_t K U K), U of any multipliers; `coarse`: to six digits.

        This is what margins lose to first order when U is added to K^-1.
        """
        return np.asarray(self.constraints.incidence @ self.form.congruence(self._entries(multipliers), coarse=coarse))

    def square_product(self, multipliers: Vector) -> Vector:
        """Return (c,) tr(A_t K^2 U K^2), for Frobenius norms: |K U(l) K|_F^2 = l' square_product(l)."""
        return np.asarray(self.constraints.incidence @ self.form.square_congruence(self._entries(multipliers)))

    def hessian(self, active: Indices) -> Array:
        """Return (a, a) tr(A_s K A_t K) of these constraints."""
        # Entries that no active constraint touches are left out of the Gram matrix.
        part = self.constraints.incidence[active]
        used = np.unique(part.indices)
        part = part[:, used]
        return np.asarray(part @ (part @ self.constraints.pattern.gram(self.form.dense(), used)).T)

    def direct_cost(self, active: Indices) -> float | None:
        """Return the cost of `hessian` and its factorization, in products; None if over DIRECT_BYTES."""
        a, q = len(active), len(self.constraints.rows)
        widest = max(INCIDENCE, self.constraints.widest)
        if direct_bytes(a, q, widest) > DIRECT_BYTES:
            return None
        # Constraints share few entries, so the rows of H are cheaper than their number suggests.
        q = min(q, widest * a)
        b = self.constraints.n
        # In products: the operations of the Cholesky factor and of the entries over those of one product, 6 q b: V K by V's
        # 2 q numbers, and a dot product for each of q entries.
        return (a**3 / 3 / FACTOR_SPEED + 4.0 * q**2 + 10.0 * a * q) / (6.0 * len(self.constraints.rows) * b)

    def preconditioner(self, roots: Vector) -> LeadingPreconditioner | None:
        """Return a preconditioner of the current K for the dual's Newton systems, or None.

        None where making one takes as many operations as the products it saves, or rounding is all that is left."""
        b = self.constraints.n
        if not is_preconditioned(b, len(self), len(self.constraints.rows)):
            return None
        try:
            return LeadingPreconditioner(self.constraints, self.form.leading(min(LEADING, b)), roots)
        except np.linalg.LinAlgError:
            return None

    def pattern_norm(self, multipliers: Vector) -> float:
        """Return |U(l)|_F."""
        share = self.constraints.pattern.share
        return float(np.sqrt(np.sum(share * self._entries(multipliers) ** 2)))

    def bound(self, margins: Vector) -> float:
        """Return D(w psi'(a)), a lower bound of F; -inf where K0^-1 + U is not positive definite there."""
        first = self.loss.first(margins)
        log_det = self.form.log_det(self._entries(self.weight * first))
        if log_det is None:
            return -np.inf
        return _proven(self.weight * float(np.sum(self.loss.value(margins) - margins * first)) + log_det)

    @property
    def has_central_path(self) -> bool:
        """Return whether a metric can be stepped itself, and should: False, unless a metric's problem differs."""
        return False

    def inner(self, multipliers: Vector) -> Array:
        """Return L'U(l)L (r, r), for K0 = L L' in factored form."""
        assert isinstance(self.form, FactoredInverse)
        return self.form.weighted(self._entries(multipliers))

    def inner_margins(self, X: Array) -> Vector:
        """Return (c,) tr(L X L' A_t) of a symmetric X (r, r)."""
        assert isinstance(self.form, FactoredInverse)
        return np.asarray(self.constraints.incidence @ self.form.sampled(X))

    def coordinates(self, G: Array) -> Array:
        """Return (c, r (r + 1) / 2) of G'L'A_t L G, off-diagonals times the root of 2."""
        assert isinstance(self.form, FactoredInverse)
        return self.form.coordinates(G, self.constraints.incidence)

    @property
    def has_dual_margins(self) -> bool:
        """Return whether the loss has the inverse of its slope, for `dual_margins`."""
        # An InvertibleLoss, of which None says no: isinstance of a protocol takes 0.3 ms, a tenth of a small step.
        return getattr(self.loss, "margins_of", None) is not None

    def dual_margins(self, multipliers: Vector) -> Vector:
        """Return (c,) x with w psi'(x) = l; not finite where l is no multiplier of the loss."""
        loss = cast(InvertibleLoss, self.loss)  # as `has_dual_margins` says; another check would take 0.1 ms of a step
        return loss.margins_of(multipliers / self.weight)

    def dual_objective(self, point: LogDetPoint, dual_margins: Vector) -> float:
        """Return D(l) of a point of any gamma, -inf where it is not finite."""
        of_loss = float(np.sum(self.loss.value(dual_margins)))
        return _proven(self.weight * of_loss - float(point.multipliers @ dual_margins) + point.log_det)

    def lowest_growth(self, multipliers: Vector) -> float:
        """Return at most the lowest eigenvalue of K^1/2 U(l) K^1/2: K(l + s step) exists if 1 + s of it > 0."""
        return lowest_relative(self.constraints.pattern.matrix(self._entries(multipliers)), self.form.times)

    def check(self) -> None:
        """Raise InputError if a linear loss leaves F no minimum: K0^-1 + U(w psi') is not positive definite."""
        if not isinstance(self.loss, LinearLoss) or np.isfinite(self.bound(np.zeros(len(self)))):
            return
        self.form.at(np.zeros(len(self.constraints.rows)))
        # K0 becomes current, of which the largest eigenvalue of U K0 is asked.
        self.form.accept()
        # gamma must stay below the first one at which the bound becomes infinite, named in the error.
        U = self.constraints.weighted(np.ones(len(self)))
        top = float(np.linalg.eigvals(U @ self.form.dense()).real.max())
        raise InputError(
            "no minimum under a linear loss",
            where="gamma",
            got=self.gamma,
            wanted=f"less than {self.gamma / self.weight / top:.6g}",
        )

    @property
    def lowest(self) -> float:
        """Return a lower bound of F that needs no work: w c inf psi, or -inf if the loss has no `lowest`."""
        # Of a loss without an infimum nothing is proven without work.
        return self.weight * len(self) * float(getattr(self.loss, "lowest", -np.inf))

    def certificate(self, objective: float, bound: float) -> LogDetCertificate:
        """Return the certificate of a point's objective and any lower bound."""
        return LogDetCertificate(objective, bound)

    def handed_out(self, multipliers: Vector, bound: float) -> LogDetCertificate:
        """Return the certificate of the result of `learned`, rounding included, by a lower bound of all F."""
        raise NotImplementedError

    def _certificate_near(self, multipliers: Vector, margins: Vector, S: Array, bound: float) -> LogDetCertificate:
        """Return the certificate of a K' near K = K(l), by its margins a' (c,) and S = K^-1/2 K' K^-1/2, which is overwritten:

        F(K') = w sum psi(a'_t) - l'a' + log det(I + K0 U(l)) + LogDet(K', K),   LogDet(K', K) = tr(S - I) - log det S.
        """
        log_det = self.form.log_det(self._entries(multipliers))
        losses = float(np.sum(self.loss.value(margins)))
        objective = self.weight * losses - float(multipliers @ margins) + (np.nan if log_det is None else log_det)
        return self.certificate(objective + _divergence(S), bound)

    def _entries(self, multipliers: Vector) -> Vector:
        return np.asarray(self.constraints.transposed @ multipliers)


def _divergence(S: Array) -> float:
    """Return an upper bound of tr(S - I) - log det S; S is overwritten.

    s^2 / (2 - 2 s) for s = |S - I|_F below HALF, else the divergence itself, from the eigenvalues.
    """
    S[np.diag_indices_from(S)] -= 1.0
    size = float(np.linalg.norm(S))
    if size < HALF:
        # For S near I the series sums to s^2 / (2 - 2 s), which needs no eigenvalue.
        return size**2 / (2.0 - 2.0 * size)
    # LAPACK is not asked of a matrix that is not finite: nothing is proven of it.
    values = np.linalg.eigvalsh(S) if np.isfinite(size) else np.array([np.nan])
    return float(np.sum(values - np.log1p(values))) if values[0] > -1.0 else np.inf


def _proven(bound: float) -> float:
    """Return the bound; -inf, which proves nothing, where it is not finite."""
    return bound if np.isfinite(bound) else -np.inf


class LeadingPreconditioner:
    """r -> (I + B B')^-1 r, for S (n, k) and h (c,)."""

    def __init__(self, constraints: ConstraintSet, S: Array, roots: Vector) -> None:
        self._constraints, self._S, self._roots = constraints, S, roots
        # An off-diagonal coordinate of Y counts for two entries, so its column of B carries the root of 2.
        self._places = np.triu_indices(S.shape[1])
        self._scale = np.where(self._places[0] == self._places[1], 1.0, np.sqrt(2.0))
        gram = self._gram()
        # I + B'B is positive definite whatever S is, so a Cholesky factor always exists.
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, r: Vector) -> Vector:
        """Return (I + B B')^-1 r."""
        # (I + B B')^-1 r = r - B (I + B'B)^-1 B' r: one small solve an application.
        return r - self._out(scipy.linalg.cho_solve(self._factor, self._inner(r), check_finite=False))

    def _inner(self, r: Vector) -> Vector:
        """Return B' r."""
        # S'U(h r)S needs U on the pattern alone: one sparse product with k columns.
        U = self._constraints.weighted(self._roots * r)
        return self._scale * (self._S.T @ (U @ self._S))[self._places]

    def _out(self, y: Vector) -> Vector:
        """Return B y."""
        Y = np.zeros((self._S.shape[1],) * 2)
        Y[self._places] = y / self._scale
        Y = Y + np.triu(Y, 1).T
        pattern = self._constraints.pattern
        # K's entries on the pattern from S Y S', without its other entries.
        entries = np.einsum("ek,ek->e", (self._S @ Y)[pattern.rows], self._S[pattern.columns])
        return self._roots * (self._constraints.incidence @ entries)

    def _gram(self) -> Array:
        """Return B'B, by pieces of the constraints."""
        # B'B is added up by pieces of the constraints, as B itself has one row each.
        k = len(self._scale)
        gram, (i, j), pattern = np.zeros((k, k)), self._places, self._constraints.pattern
        for lo in range(0, len(self._roots), PIECE):
            part = self._constraints.incidence[lo : lo + PIECE]
            used = np.unique(part.indices)
            left, right = self._S[pattern.rows[used]], self._S[pattern.columns[used]]
            entries = left[:, i] * right[:, j]
            # The product of both factors is symmetric, so each pair of columns is added in both orders.
            entries += left[:, j] * right[:, i]
            B = (part[:, used] @ entries) * self._roots[lo : lo + PIECE, None]
            gram += B.T @ B
        return gram * np.outer(self._scale, self._scale) / 4.0
