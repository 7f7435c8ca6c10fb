"""The LogDet problem (Li et al. 2009, (3)): a kernel or Mahalanobis matrix near a given one in LogDet divergence.

    minimize over K psd   F(K) = w sum_t psi(tr(K A_t)) + LogDet(K, K0),   w = gamma / m, or gamma
    LogDet(K, K0) = tr(K K0^-1) - log det(K K0^-1) - n
    maximize over l       D(l) = -w sum_t psi*(l_t / w) + log det(I + K0 U(l)),   U(l) = sum_t l_t A_t
At the optimum l_t = w psi'(tr(K A_t)) and K^-1 = K0^-1 + U(l).

Every point here is a K(l) = (K0^-1 + U(l))^-1, so that tr(K K0^-1) - n = -<U(l), K> and
    F = w sum_t psi(a_t) - sum_t l_t a_t + log det(I + K0 U(l)),   a_t = tr(K A_t):
no inverse of K0 is in it, and nothing cancels where K is near K0. For any margins a, with l = w psi'(a), D needs no conjugate:
    D(l) = w sum_t (psi(a_t) - a_t psi'(a_t)) + log det(I + K0 U(l)).

The labeled block. U touches rows P alone, K = K0 - K0 U K0 + K0 U K U K0, so that K_PP solves the problem of K0_PP and
K = K0 + K0[:, P] M K0[P, :], M = U K_PP U - U (Jain, Kulis, Davis & Dhillon, JMLR 13, 2012).

Singular K0. LogDet is then over the range of K0 (the paper's footnotes 1 and 2), K = L W L' for K0 = L L'. Where no constraint
sees the null space, A_t N = 0, K + s N N' has the same margins and divergence to K0 + s N N': that one is inverted instead.

The paper's own algorithm has the problem in the entries of K, by dense matrices. K = B X B' for a fixed B (p, r), and X (r, r) is what is
learned near X0:
    F(X) = w sum_t psi(tr(B X B' A_t)) + tr(X X0^-1) - log det(X X0^-1) - r.
Of a kernel B holds an orthonormal basis of K0's range (the identity where K0 is definite), so that norms of X are those of K, and
X^-1 is K^+ there (the paper's footnote 2). Of a metric B holds the rows, and X is W.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.io.plain_arrays import refuse_too_large
from dkl.linalg.eigen.principal_coordinates import metric_components
from dkl.linalg.symmetric.inverse_forms import DenseInverse, FactoredInverse, KernelForm, psd_factor
from dkl.problems.logdet.constraints import ConstraintSet, Indices, Vector
from dkl.problems.logdet.core import LogDetCertificate as LogDetCertificate
from dkl.problems.logdet.core import LogDetProblem as LogDetProblem
from dkl.problems.logdet.losses import ItmlLoss, Loss
from dkl.problems.logdet.plan import DIRECT_BYTES, central_path_bytes
from dkl.problems.logdet.plan import LogDetPlan as LogDetPlan
from dkl.problems.logdet.plan import logdet_plan as logdet_plan


@dataclass(frozen=True)
class MatrixForm:
    """Problem (3) in X.

    sides  (p, r) B, None for the identity
    prior  (r, r) X0 positive definite
    weight w of the losses
    """

    constraints: ConstraintSet
    loss: Loss
    weight: float
    sides: Array | None = field(repr=False)
    prior: Array = field(repr=False)
    prior_inverse: Array = field(init=False, repr=False)
    prior_log_det: float = field(init=False)

    def __post_init__(self) -> None:
        """Invert X0."""
        object.__setattr__(self, "prior_inverse", np.linalg.inv(self.prior))
        object.__setattr__(self, "prior_log_det", float(np.linalg.slogdet(self.prior)[1]))

    def margins(self, X: Array) -> Vector:
        """Return (c,) tr(B X B' A_t) of a symmetric X (r, r)."""
        if self.sides is None:
            return self.constraints.values(X)
        left, right = self.sides[self.constraints.rows], self.sides[self.constraints.columns]
        return np.asarray(self.constraints.incidence @ np.einsum("qr,qr->q", left @ X, right))

    def weighted(self, multipliers: Vector) -> Array:
        """Return B'U(l)B (r, r)."""
        U = self.constraints.weighted(multipliers)
        return np.asarray(U.toarray() if self.sides is None else self.sides.T @ (U @ self.sides), dtype=np.float64)

    def objective(self, margins: Vector, X: Array, log_det: float) -> float:
        """Return F of X with its margins and log det X."""
        divergence = float(np.sum(X * self.prior_inverse)) - log_det + self.prior_log_det - len(X)
        return self.weight * float(np.sum(self.loss.value(margins))) + divergence

    def forces(self, margins: Vector) -> Vector:
        """Return (c,) w psi'(a)."""
        return self.weight * self.loss.first(margins)

    def curvatures(self, margins: Vector) -> Vector:
        """Return (c,) w psi''(a)."""
        return self.weight * self.loss.second(margins)

    def at(self, multipliers: Vector) -> Array:
        """Return X = (X0^-1 + B'U(l)B)^-1 of a solution's multipliers (c,)."""
        X = np.linalg.inv(self.prior_inverse + self.weighted(multipliers))
        return np.asarray((X + X.T) / 2.0)


Array = NDArray[np.float64]


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
        """Return k(x, z) = k0(x, z) + k0(x, P) M k0(P, z): base (a, b), left (a, p) = k0(x, P), right (b, p) = k0(z, P)."""
        return base + left @ self.M @ right.T


class LogDetKernelProblem(LogDetProblem):
    """The LogDet problem (3) for a psd kernel K0 (n, n), solved on its block of `constraints.points`: the whole's optimum.

    normalize_gamma: w = gamma / m, m the number of labeled points: `n_labelled`, by default `len(constraints.points)`.
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
        # Constraints touch some rows alone, and the problem of those rows is the whole problem.
        self.points, local = constraints.points, constraints.on_points()
        # A copy only where rows are left out: the caller's K0 may be larger than memory allows twice.
        block = np.ascontiguousarray(base if local.n == len(base) else base[np.ix_(self.points, self.points)])
        check_symmetric(block)
        self._base = block
        form, self._null = form_of(block, local)
        super().__init__(form, local, loss, gamma, normalize_gamma, n_labelled)

    def matrix_form(self) -> MatrixForm:
        """Return the problem in the entries of K, or of K on the range of a singular K0."""
        L, N = psd_factor(self._base) or _nearest_factor(self._base)
        sides = np.linalg.qr(L)[0] if N.shape[1] else None
        prior = self._base if sides is None else sides.T @ self._base @ sides
        return MatrixForm(self.constraints, self.loss, self.weight, sides, prior)

    def learned(self, multipliers: Vector) -> LearnedKernel:
        """Return the kernel of a solution's `multipliers` (c,): K^-1 = K0^-1 + U(multipliers)."""
        # U is zero outside of P, so M is U K U - U at P, which extends the kernel to rows not seen.
        M = self.form.update(self.make_current(multipliers))
        # Less the lift s N N', which only made K0 invertible.
        return LearnedKernel(self.points, M, self.form.dense() - self._null @ self._null.T)

    def handed_out(self, multipliers: Vector, bound: float) -> LogDetCertificate:
        """Return the certificate of K0 + K0 M K0 as computed from M: K(multipliers) may be a small part of K0."""
        if not multipliers.any():
            # M = 0, so that K0 itself is handed out, without rounding.
            losses = float(np.sum(self.loss.value(self.constraints.values(self._base))))
            return self.certificate(self.weight * losses, bound)
        weights = self.make_current(multipliers)
        M = self.form.update(weights)
        # K0 M K0 is computed as it will be handed out, so that the certificate covers its rounding.
        K = self._base @ M @ self._base
        K += self._base
        margins = self.constraints.values(K)
        # The form works on the lifted kernel, so that K is compared with it lifted.
        K += self._null @ self._null.T
        return self._certificate_near(multipliers, margins, self.form.relative(weights, M, K), bound)

    def block(self, multipliers: Vector) -> Array:
        """Return the block (p, p) of the kernel of `multipliers` (c,); read-only, lost with the next kernel."""
        self.make_current(multipliers)
        K = self.form.dense()
        return K - self._null @ self._null.T if self._null.shape[1] else K


class LogDetMetricProblem(LogDetProblem):
    """The LogDet problem (3) for a Mahalanobis matrix W (d, d) near W0: constraints on X W X' of the rows of X (n, d).

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
        self._root = np.eye(rows.shape[1]) if W0 is None else root_of(np.asarray(W0, dtype=np.float64), rows.shape[1])
        L = np.ascontiguousarray(rows[constraints.points] @ self._root.T)
        check_scale(L, "X")
        local = constraints.on_points()
        # A metric's rows are a factor of its kernel, so both problems are one, of a form with a factor.
        self._sides = L
        super().__init__(FactoredInverse(local.pattern, L), local, loss, gamma, normalize_gamma, n_labelled)

    def matrix_form(self) -> MatrixForm:
        """Return the problem in the entries of W."""
        rows = scipy.linalg.solve_triangular(self._root, self._sides.T).T
        return MatrixForm(self.constraints, self.loss, self.weight, rows, self._root.T @ self._root)

    @property
    def has_central_path(self) -> bool:
        """Return whether W itself can be stepped, and should: under ITML's loss, where memory allows."""
        fits = central_path_bytes(len(self), len(self._root)) <= DIRECT_BYTES
        return isinstance(self.loss, ItmlLoss) and fits

    def learned(self, multipliers: Vector) -> Array:
        """Return W (d, d) of a solution's `multipliers` (c,): W^-1 = W0^-1 + X'U(multipliers)X."""
        assert isinstance(self.form, FactoredInverse)
        return np.asarray(self._root.T @ self.form.inner(self._entries(multipliers)) @ self._root)

    def handed_out(self, multipliers: Vector, bound: float) -> LogDetCertificate:
        """Return the certificate of the W that its components give: these are handed out."""
        if not multipliers.any() and (prior := self.point(multipliers)) is not None:
            # W0 itself, of which the components are what it is given by: F may be 0 there, next to which rounding is all.
            return self.certificate(prior.objective, bound)
        # The components are what a metric is applied by, so its certificate must be of them.
        components, weights = metric_components(self.learned(multipliers)), self.make_current(multipliers)
        W = components.T @ components
        half = scipy.linalg.solve_triangular(self._root, W, trans="T")
        inner = scipy.linalg.solve_triangular(self._root, half.T, trans="T")
        assert isinstance(self.form, FactoredInverse)
        # Distances through the root alone: two triangular solves instead of an inverse.
        margins = self.constraints.incidence @ self.form.sampled(inner)
        return self._certificate_near(multipliers, margins, self.form.relative_inner(weights, inner), bound)

    def rows(self, multipliers: Vector) -> Array:
        """Return points (p, d) whose distances are those of the metric of `multipliers` (c,)."""
        self.make_current(multipliers)
        assert isinstance(self.form, FactoredInverse)
        return self.form.factor()


# K0 on the labeled block, in the form of its products: inverted, lifted off its null space, factored.

OTHER = "take another kernel or other parameters of it; of a matrix add to the diagonal, or drop negative eigenvalues"
SYMMETRY = 1e-10
"""Share of the largest entry by which K0 may differ from its transpose."""
LARGEST = 1e70
"""Largest entry of K0, or of a metric's rows: fourth powers are still finite."""
INDEFINITE = 1e-8
"""Share of b times the largest entry: eigenvalues this far below 0 are rounding's, as `check_psd` has it."""
UNSEEN = 1e-10
"""Share of the constraints' and N's largest entries below which A_t N is 0."""


def form_of(block: Array, constraints: ConstraintSet) -> tuple[KernelForm, Array]:
    """Return (form, s^1/2 N): N spans the null space if the form works on K + s N N', else is empty."""
    nothing = np.zeros((len(block), 0))
    direct = DenseInverse.of(block, constraints.pattern)
    if direct is not None:
        return direct, nothing
    # The factor of K0 or of the nearest psd matrix to rounding.
    L, N = psd_factor(block) or _nearest_factor(block)
    if not L.shape[1]:
        raise InputError("zero on all rows that constraints touch", where="K0", remedy=OTHER)
    if N.shape[1] and all(_is_unseen(constraints, vector) for vector in N.T):
        # The lift is of the kernel's own mean eigenvalue, so that the condition stays as it is.
        lifted = N * np.sqrt(float(np.trace(block)) / max(1, L.shape[1]))
        direct = DenseInverse.of(block + lifted @ lifted.T, constraints.pattern)
        # A lift that does not help leaves the factored form, which needs no inverse.
        if direct is not None:
            return direct, lifted
    return FactoredInverse(constraints.pattern, L), nothing


def _nearest_factor(block: Array) -> tuple[Array, Array]:
    """Return (L (b, r), N (b, b - r)) as `psd_factor`, for a block psd but for rounding."""
    values, vectors = np.linalg.eigh(block)
    if values[0] < -INDEFINITE * len(block) * float(np.abs(block).max()):
        got = f"an eigenvalue of {values[0]:.3g}"
        raise InputError("not positive semidefinite", where="K0", got=got, wanted="0 or more", remedy=OTHER)
    # The most negative eigenvalue is rounding, and shows its size: positive ones up to it are rounding too.
    counts = values > -values[0]
    return vectors[:, counts] * np.sqrt(values[counts]), vectors[:, ~counts]


def _is_unseen(constraints: ConstraintSet, vector: Vector) -> bool:
    """Return whether A_t vector = 0 for all t, to rounding."""
    seen = constraints.incidence @ constraints.pattern.times(vector)
    size = abs(constraints.incidence).max() * float(np.abs(vector).max())
    return bool(abs(seen).max() <= UNSEEN * size)


def root_of(W0: Array, d: int) -> Array:
    """Return R (d, d) with W0 = R'R; raises InputError where W0 is not symmetric positive definite."""
    if W0.shape != (d, d):
        raise InputError("of another size", where="W0", got=W0.shape, wanted=(d, d))
    check_symmetric(W0, "W0")
    try:
        return np.asarray(np.linalg.cholesky(W0).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh(W0)[0])
        raise InputError(
            "not positive definite", where="W0", got=f"an eigenvalue of {lowest:.3g}", wanted="more than 0"
        ) from None


def check_symmetric(K0: Array, name: str = "K0") -> None:
    """Raise InputError unless K0 is finite and its own transpose to rounding."""
    if not np.isfinite(K0).all():
        raise InputError(
            "not finite", where=name, remedy="scale the rows or the kernel, or take other parameters of it"
        )
    check_scale(K0, name)
    off = float(np.abs(K0 - K0.T).max(initial=0.0))
    if off > SYMMETRY * float(np.abs(K0).max(initial=0.0)):
        raise InputError("not symmetric", where=name, got=f"entries {off:.3g} from those of the transpose")


def check_scale(values: Array, name: str) -> None:
    """Raise InputError where squares of products of these values would overflow."""
    refuse_too_large(values, LARGEST, name, remedy=f"scale {name}")
