"""Problem (3) of Li et al. 2009: a kernel, or a Mahalanobis matrix, near a given one in LogDet divergence.

    minimize over K psd   F(K) = w sum_t psi(tr(K A_t)) + LogDet(K, K0),   w = gamma / m, or gamma
    LogDet(K, K0) = tr(K K0^-1) - log det(K K0^-1) - n
    maximize over l       D(l) = -w sum_t psi*(l_t / w) + log det(I + K0 U(l)),   U(l) = sum_t l_t A_t
At the optimum l_t = w psi'(tr(K A_t)) and K^-1 = K0^-1 + U(l).

Every point here is a K(l) = (K0^-1 + U(l))^-1, so that tr(K K0^-1) - n = -<U(l), K> and
    F = w sum_t psi(a_t) - sum_t l_t a_t + log det(I + K0 U(l)),   a_t = tr(K A_t):
no inverse of K0 is in it, and nothing cancels where K is near K0. For any margins a, with l = w psi'(a), D needs no conjugate:
    D(l) = w sum_t (psi(a_t) - a_t psi'(a_t)) + log det(I + K0 U(l)).

The labelled block. U touches rows P alone, K = K0 - K0 U K0 + K0 U K U K0, so that K_PP solves the problem of K0_PP and
K = K0 + K0[:, P] M K0[P, :], M = U K_PP U - U (Jain, Kulis, Davis & Dhillon, JMLR 13, 2012).

Singular K0. LogDet is then over the range of K0 (the paper's footnotes 1 and 2), K = L W L' for K0 = L L'. Where no constraint
sees the null space, A_t N = 0, K + s N N' has the same margins and divergence to K0 + s N N': that one is inverted instead.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.linalg.inverse_forms import DenseInverse, FactoredInverse, KernelForm, psd_factor
from dkl.problems.logdet_constraints import ConstraintSet, Indices, Vector
from dkl.problems.logdet_losses import LinearLoss, Loss

Array = NDArray[np.float64]
SYMMETRY = 1e-10
"""Relative to the largest entry: how far K0 may be from its transpose."""
UNSEEN = 1e-10
"""Relative: A_t N below this is 0."""


@dataclass(frozen=True)
class LogDetCertificate:
    """What is proven of a kernel: F there, a lower bound of all F by the dual, and what lies between."""

    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """objective - bound."""
        return self.objective - self.bound

    @property
    def relative_gap(self) -> float:
        """gap / max(|objective|, |bound|); inf where nothing is proven."""
        if not (np.isfinite(self.objective) and np.isfinite(self.bound)):
            return float("inf")
        return max(self.gap, 0.0) / max(abs(self.objective), abs(self.bound), np.finfo(float).tiny)


@dataclass(frozen=True)
class LearnedKernel:
    """K = K0 + K0[:, P] M K0[P, :], for points seen and unseen.

    points  (p,) P, rows of the K0 that was given
    M       (p, p) symmetric
    block   (p, p) the learned K_PP
    """

    points: Indices
    M: Array
    block: Array

    def of(self, base: Array, left: Array, right: Array) -> Array:
        """k(x, z) = k0(x, z) + k0(x, P) M k0(P, z): base (a, b), left (a, p) = k0(x, P), right (b, p) = k0(z, P)."""
        return base + left @ self.M @ right.T


@dataclass(frozen=True)
class LogDetPoint:
    """K(l) and what is known there.

    multipliers  (c,) l
    margins      (c,) tr(K A_t)
    objective    F
    """

    multipliers: Vector
    margins: Vector
    objective: float


class LogDetProblem:
    """What the kernel's and the metric's problem share: values, forces and products at the current point."""

    def __init__(
        self, form: KernelForm, constraints: ConstraintSet, loss: Loss, gamma: float, normalize: bool, m: int | None
    ) -> None:
        self.form, self.constraints, self.loss = form, constraints, loss
        self._m = 1.0 if not normalize else float(len(constraints.points) if m is None else m)
        if not (np.isfinite(gamma) and gamma > 0):
            raise InputError("not a weight of the loss", where="gamma", got=gamma, wanted="more than 0")
        if not self._m > 0:
            raise InputError("not a number of labelled points", where="n_labelled", got=m, wanted="1 or more")
        self.gamma = float(gamma)

    def __len__(self) -> int:
        return len(self.constraints)

    @property
    def weight(self) -> float:
        """w."""
        return self.gamma / self._m

    def with_gamma(self, gamma: float) -> Self:
        """The same problem at another gamma; K0, its factors and the buffers are shared: solve one at a time."""
        other = copy(self)
        if not (np.isfinite(gamma) and gamma > 0):
            raise InputError("not a weight of the loss", where="gamma", got=gamma, wanted="more than 0")
        other.gamma = float(gamma)
        return other

    def point(self, multipliers: Vector) -> LogDetPoint | None:
        """K(l), the trial; None where K0^-1 + U(l) is not positive definite."""
        log_det = self.form.at(self._entries(multipliers))
        if log_det is None:
            return None
        margins = self.constraints.incidence @ self.form.entries(trial=True)
        loss = self.weight * float(np.sum(self.loss.value(margins)))
        return LogDetPoint(multipliers, margins, loss - float(multipliers @ margins) + log_det)

    def accept(self) -> None:
        """The last point becomes the current one, of which products are asked."""
        self.form.accept()

    def forces(self, margins: Vector) -> Vector:
        """(c,) w psi'(a)."""
        return self.weight * self.loss.first(margins)

    def curvatures(self, margins: Vector) -> Vector:
        """(c,) w psi''(a)."""
        return self.weight * self.loss.second(margins)

    def product(self, multipliers: Vector) -> Vector:
        """(c,) tr(A_t K U K), U of any multipliers: what margins lose when U is added to K^-1, to first order."""
        return np.asarray(self.constraints.incidence @ self.form.congruence(self._entries(multipliers)))

    def square_product(self, multipliers: Vector) -> Vector:
        """(c,) tr(A_t K^2 U K^2), for Frobenius norms: |K U(l) K|_F^2 = l' square_product(l)."""
        return np.asarray(self.constraints.incidence @ self.form.square_congruence(self._entries(multipliers)))

    def pattern_norm(self, multipliers: Vector) -> float:
        """|U(l)|_F."""
        share = self.constraints.pattern.share
        return float(np.sqrt(np.sum(share * self._entries(multipliers) ** 2)))

    def bound(self, margins: Vector) -> float:
        """D(w psi'(a)), a lower bound of F; -inf where K0^-1 + U is not positive definite there."""
        first = self.loss.first(margins)
        log_det = self.form.log_det(self._entries(self.weight * first))
        if log_det is None:
            return -np.inf
        return self.weight * float(np.sum(self.loss.value(margins) - margins * first)) + log_det

    def check(self) -> None:
        """InputError where a linear loss leaves F without a minimum: K0^-1 + U(w psi') is not positive definite."""
        if not isinstance(self.loss, LinearLoss) or np.isfinite(self.bound(np.zeros(len(self)))):
            return
        K0 = self.form.fresh()
        K0.at(np.zeros(len(self.constraints.rows)))
        K0.accept()
        U = self.constraints.weighted(np.ones(len(self)))
        top = float(np.linalg.eigvals(U @ K0.dense()).real.max())
        raise InputError(
            "no minimum under a linear loss", where="gamma", got=self.gamma, wanted=f"less than {self._m / top:.6g}"
        )

    @property
    def lowest(self) -> float:
        """A lower bound of F that needs no work: w c inf psi, where the loss tells it."""
        return self.weight * len(self) * float(getattr(self.loss, "lowest", -np.inf))

    def certificate(self, objective: float, bound: float) -> LogDetCertificate:
        """Of a point's objective and any lower bound."""
        return LogDetCertificate(objective, bound)

    def _entries(self, multipliers: Vector) -> Vector:
        return np.asarray(self.constraints.transposed @ multipliers)


class LogDetKernelProblem(LogDetProblem):
    """(3) for a kernel K0 (n, n) psd; what is solved is its block on `constraints.points`, of which the optimum is the whole's.

    normalize_gamma: w = gamma / m, m the number of labelled points: `n_labelled`, by default `len(constraints.points)`.
    InputError: K0 not symmetric, not finite, with a negative eigenvalue; gamma <= 0; of another size than the constraints.
    """

    def __init__(
        self,
        K0: ArrayLike,
        constraints: ConstraintSet,
        loss: Loss,
        gamma: float,
        *,
        normalize_gamma: bool = True,
        n_labelled: int | None = None,
    ) -> None:
        base = np.asarray(K0, dtype=np.float64)
        if base.shape != (constraints.n, constraints.n):
            raise InputError("of another size", where="K0", got=base.shape, wanted=(constraints.n, constraints.n))
        self.points, local = constraints.points, constraints.on_points()
        block = np.ascontiguousarray(base if local.n == len(base) else base[np.ix_(self.points, self.points)])
        _check_symmetric(block)
        form, self._null = _form_of(block, local)
        super().__init__(form, local, loss, gamma, normalize_gamma, n_labelled)

    def learned(self, multipliers: Vector) -> LearnedKernel:
        """The kernel of a solution's `multipliers` (c,): K^-1 = K0^-1 + U(multipliers)."""
        form = self.form.fresh()
        if form.at(self._entries(multipliers)) is None:
            raise InputError("no kernel: K0^-1 + U is not positive definite", where="multipliers")
        form.accept()
        U, K = self.constraints.weighted(multipliers), form.dense()
        M = U @ (U @ K).T - U.toarray()
        return LearnedKernel(self.points, (M + M.T) / 2.0, K - self._null @ self._null.T)


class LogDetMetricProblem(LogDetProblem):
    """(3) for a Mahalanobis matrix W (d, d) near W0: constraints are on the kernel X W X' of the rows of X (n, d).

    d2(x, y) = (x - y)' W (x - y) is a distance of that kernel, so the same `ConstraintSet`s serve, of n = len(X): with K0 = L L',
    L = X R' and W0 = R'R, the kernel's problem and the metric's are one. W0: (d, d) positive definite, by default the identity.
    """

    def __init__(
        self,
        X: ArrayLike,
        constraints: ConstraintSet,
        loss: Loss,
        gamma: float,
        *,
        W0: ArrayLike | None = None,
        normalize_gamma: bool = True,
        n_labelled: int | None = None,
    ) -> None:
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or len(rows) != constraints.n or not np.isfinite(rows).all():
            raise InputError(
                "not finite rows of the constraints", where="X", got=rows.shape, wanted=f"({constraints.n}, d)"
            )
        self._root = np.eye(rows.shape[1]) if W0 is None else _root_of(np.asarray(W0, dtype=np.float64), rows.shape[1])
        L = np.ascontiguousarray(rows[constraints.points] @ self._root.T)
        local = constraints.on_points()
        super().__init__(FactoredInverse(local.pattern, L), local, loss, gamma, normalize_gamma, n_labelled)

    def learned(self, multipliers: Vector) -> Array:
        """W (d, d) of a solution's `multipliers` (c,): W^-1 = W0^-1 + X'U(multipliers)X."""
        assert isinstance(self.form, FactoredInverse)
        return np.asarray(self._root.T @ self.form.inner(self._entries(multipliers)) @ self._root)


def _form_of(block: Array, constraints: ConstraintSet) -> tuple[KernelForm, Array]:
    """(form, s^1/2 N): N spans the null space where K + s N N' is what the form works on, else it has no columns."""
    nothing = np.zeros((len(block), 0))
    direct = DenseInverse.of(block, constraints.pattern)
    if direct is not None:
        return direct, nothing
    factor = psd_factor(block)
    if factor is None:
        lowest = float(np.linalg.eigvalsh(block)[0])
        raise InputError(
            "not positive semidefinite", where="K0", got=f"an eigenvalue of {lowest:.3g}", wanted="0 or more"
        )
    L, N = factor
    if N.shape[1] and all(_is_unseen(constraints, vector) for vector in N.T):
        lifted = N * np.sqrt(float(np.trace(block)) / max(1, L.shape[1]))
        direct = DenseInverse.of(block + lifted @ lifted.T, constraints.pattern)
        if direct is not None:
            return direct, lifted
    return FactoredInverse(constraints.pattern, L), nothing


def _is_unseen(constraints: ConstraintSet, vector: Vector) -> bool:
    """Whether A_t vector = 0 for all t."""
    seen = constraints.incidence @ constraints.pattern.times(vector)
    size = abs(constraints.incidence).max() * float(np.abs(vector).max())
    return bool(abs(seen).max() <= UNSEEN * size)


def _root_of(W0: Array, d: int) -> Array:
    """R (d, d) with W0 = R'R."""
    if W0.shape != (d, d):
        raise InputError("of another size", where="W0", got=W0.shape, wanted=(d, d))
    _check_symmetric(W0, "W0")
    try:
        return np.linalg.cholesky(W0).T
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh(W0)[0])
        raise InputError(
            "not positive definite", where="W0", got=f"an eigenvalue of {lowest:.3g}", wanted="more than 0"
        ) from None


def _check_symmetric(K0: Array, name: str = "K0") -> None:
    if not np.isfinite(K0).all():
        raise InputError("not finite", where=name)
    off = float(np.abs(K0 - K0.T).max(initial=0.0))
    if off > SYMMETRY * float(np.abs(K0).max(initial=0.0)):
        raise InputError("not symmetric", where=name, got=f"entries {off:.3g} from those of the transpose")
