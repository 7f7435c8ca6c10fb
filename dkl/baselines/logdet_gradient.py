"""The LogDet problem (Li et al. 2009, (3)) by nonlinear conjugate gradients, the paper's method of comparison.

    minimize over K psd   F(K) = w sum_t psi(tr(K A_t)) + tr(K K0^-1) - log det(K K0^-1) - n
    D = -G + beta D,   beta = max(<G, G - G_before> / <G_before, G_before>, 0)

G is the gradient (4), in the Frobenius inner product; beta Polak and Ribiere's, not below zero (Nocedal and Wright 2006, (5.45)). Along D
F is convex, and costs a few numbers once the eigenvalues of D relative to K are known: the step is the least point.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cholesky, eigh, eigvalsh, lapack, solve_triangular

from dkl.blocks.memory_plan import check_size
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning
from dkl.estimators.base.learned_kernel import KernelLearner
from dkl.estimators.base.metric_constraints import KernelDistances, check_loss_choice, constraints_and_loss
from dkl.estimators.base.rules import (
    DICTIONARY,
    KERNEL,
    KERNEL_FUNCTION,
    LOSS_OBJECT,
    SMOOTH_LOSS_NAME,
    Either,
    Flag,
    Integer,
    Real,
)
from dkl.estimators.base.settings import IN_ALL, PriorSettings
from dkl.linalg.eigen.principal_coordinates import above_rounding
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import Loss
from dkl.problems.logdet.problem import LogDetCertificate
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserLoss, UserPairs, UserRows, UserSeed

Matrix = NDArray[np.float64]
SQUARES = 12
"""Number of p x p arrays alive at the peak."""
LINE_STEPS = 60
"""Most Newton steps of a line search."""


@dataclass(frozen=True)
class GradientSettings(PriorSettings):
    """Settings of conjugate gradients: gamma, the loss, and when to end."""

    gamma: Annotated[float, Real(above=0), "Weight of the loss against the divergence."] = 16.0
    loss: Annotated[Any, Either(SMOOTH_LOSS_NAME, LOSS_OBJECT), "Of triplets, or of pairs; a smooth one."] = "log"
    normalize_gamma: Annotated[bool, Flag(), "Divide gamma by the number of labeled rows."] = True
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most steps."] = 10_000
    kernel: Annotated[Any, Either(KERNEL, KERNEL_FUNCTION), "K0."] = "laplacian"

    in_python = {"loss_params": (None, DICTIONARY), "kernel_params": (None, DICTIONARY), **IN_ALL}


@dataclass(frozen=True)
class Objective:
    """Objective F on the range of K0 (p, p), so that a singular K0 has an inverse there.

    K = Q B Q', Q (p, r) orthonormal.
    """

    Q: Matrix
    inverse: Matrix  # (r, r) of Q'K0 Q, which is diagonal
    constraints: ConstraintSet
    loss: Loss
    weight: float

    @classmethod
    def of(cls, K0: Matrix, constraints: ConstraintSet, loss: Loss, weight: float) -> Objective:
        """Build the objective; eigenvectors of K0 with eigenvalues within rounding of zero are its null space."""
        values, vectors = eigh(K0)
        kept = above_rounding(values, len(K0), float(values[-1]))
        return cls(vectors[:, kept], np.diag(1.0 / values[kept]), constraints, loss, weight)

    def margins(self, B: Matrix) -> Matrix:
        """Return tr(K A_t) of each constraint, (c,)."""
        return self.constraints.values(self.Q @ B @ self.Q.T)

    def pulled(self, weights: Matrix) -> Matrix:
        """Return Q' (sum_t weights_t A_t) Q, (r, r)."""
        return np.asarray(self.Q.T @ (self.constraints.weighted(weights) @ self.Q))

    def certified(self, B: Matrix, margins: Matrix) -> LogDetCertificate:
        """Certify B: F, and the dual's value at l = w psi'(margins).

        The dual is w sum(psi - x psi') + log det(I + K0 U(l)), -inf where U is too negative.
        """
        first = self.loss.first(margins)
        values = self.loss.value(margins)
        logdet0 = -_logdet(self.inverse)
        F = self.weight * values.sum() + np.sum(B * self.inverse) - _logdet(B) + logdet0 - len(B)
        bound = self.weight * (values - margins * first).sum() + logdet0
        bound += _logdet(self.inverse + self.pulled(self.weight * first))
        return LogDetCertificate(float(F), float(bound))


def _logdet(A: Matrix) -> float:
    """Return log det A; -inf if A is not positive definite."""
    try:
        return 2.0 * float(np.log(cholesky(A, lower=True, check_finite=False).diagonal()).sum())
    except LinAlgError:
        return -np.inf


@dataclass(frozen=True)
class DescentResult:
    """Result of the descent: B (r, r), the margins at B, and the certificate of its gap."""

    B: Matrix
    margins: Matrix
    certificate: LogDetCertificate
    n_iter: int
    is_converged: bool


def descend(problem: Objective, tol: float, max_iter: int, start: Matrix | None = None) -> DescentResult:
    """Minimize by conjugate gradients to a relative duality gap, from `start` (B of another weight) or K0."""
    B = np.asarray(np.linalg.inv(problem.inverse), np.float64) if start is None else start
    margins = problem.margins(B)
    G_before, D, L = np.zeros_like(B), np.zeros_like(B), cholesky(B, lower=True)
    for k in range(max_iter + 1):
        certificate = problem.certified(B, margins)
        is_converged = certificate.relative_gap <= tol
        if is_converged or k == max_iter:
            break
        G = problem.pulled(problem.weight * problem.loss.first(margins)) + problem.inverse - _inverse(L)
        before = np.sum(G_before**2)
        beta = max(float(np.sum(G * (G - G_before)) / before), 0.0) if before > 0 else 0.0
        D = beta * D - G
        # Not downhill, by rounding or a beta of long ago: conjugacy starts again from the gradient.
        if np.sum(D * G) >= 0:
            D = -G
        along, relative = problem.margins(D), _relative(L, D)
        step = line_minimum(problem, margins, along, float(np.sum(D * problem.inverse)), relative)
        if step == 0.0:
            break  # rounding ends all progress
        following = B + step * D
        try:
            L = cholesky(following, lower=True)
        except LinAlgError:
            break  # singular to rounding, which is no kernel: the last one stays
        B, margins, G_before = following, margins + step * along, G
    return DescentResult(B, margins, certificate, k, bool(is_converged))


def _inverse(L: Matrix) -> Matrix:
    # dpotri fills one triangle alone; it takes fewer operations than cho_solve of the identity.
    found = np.tril(lapack.dpotri(L, lower=1)[0])
    return found + np.tril(found, -1).T


def _relative(L: Matrix, D: Matrix) -> Matrix:
    """Return the eigenvalues (r,) of L^-1 D L^-T: log det(B + s D) = log det B + sum log(1 + s mu)."""
    half = solve_triangular(L, D, lower=True, check_finite=False)
    whole = solve_triangular(L, half.T, lower=True, check_finite=False)
    return np.asarray(eigvalsh(0.5 * (whole + whole.T), check_finite=False))


def line_minimum(problem: Objective, margins: Matrix, along: Matrix, slope0: float, mu: Matrix) -> float:
    """Return the s > 0 where F(B + s D) is least, by Newton's steps within a bracket; 0 if none is found.

    It is the root of the slope, which rises.
    """

    def slopes(s: float) -> tuple[float, float]:
        x, ratio = margins + s * along, mu / (1.0 + s * mu)
        first = problem.weight * float(along @ problem.loss.first(x)) + slope0 - float(ratio.sum())
        return first, problem.weight * float(along**2 @ problem.loss.second(x)) + float((ratio**2).sum())

    # K is positive definite while all 1 + s mu are above 0.
    low, high = 0.0, (-1.0 / float(mu.min()) if mu.min() < 0 else np.inf)
    first, second = slopes(0.0)
    # The slope at 0 sets the scale by which the root is found to ten digits.
    start, s = abs(first), 0.0
    # Not downhill beyond rounding: the caller ends.
    if first >= 0:
        return 0.0
    for _ in range(LINE_STEPS):
        s = s - first / second
        if not low < s < high:
            # Newton's point has left the bracket: half of it, or twice as far where nothing bounds the step.
            s = 0.5 * (low + high) if np.isfinite(high) else 2.0 * low + 1.0
        first, second = slopes(s)
        if abs(first) <= 1e-10 * start:
            return s
        low, high = (s, high) if first < 0 else (low, s)
    return low


class ConjugateGradientKernelLearner(KernelLearner):
    """LogDet kernel learning by Polak-Ribiere+ conjugate gradients on the kernel's entries.

    Parameters
    ----------
    kernel
        K0, as in `dkl.LogDetKernelLearner`; by default the paper's. Near "rbf", whose eigenvalues fall fast, steps in the entries of K
        are so short that 3,000 of them may prove nothing.
    gamma, loss, loss_params, normalize_gamma, kernel_params, n_neighbors, standardize, n_in, n_out
        As in `dkl.LogDetKernelLearner`; the loss is not a hinge.
    contradictions, n_components, center, memory_limit, client, n_jobs, random_state
        As there.
    tol, max_iter
        Relative duality gap; steps.

    Attributes
    ----------
    points_, M_, certificate_ : as in `dkl.LogDetKernelLearner`
    n_iter_, scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.LogDetKernelLearner : The same problem by Newton steps.
    ITMLKernelLearner : Bregman projections, of loss="itml".
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    F. Li, Y. Fu, Y.-H. Dai, C. Sminchisescu, J. Wang, Kernel learning by unconstrained optimization, AISTATS 2009.
    J. Nocedal, S. J. Wright, Numerical Optimization, 2nd edition, Springer 2006, section 5.2.

    Examples
    --------
    >>> import numpy as np
    >>> from dkl.baselines import ConjugateGradientKernelLearner
    >>> X = np.array([[0.0, 0.0], [0.0, 4.0], [1.0, 0.0], [1.0, 4.0]])
    >>> model = ConjugateGradientKernelLearner(kernel="linear").fit(X, triplets=[[0, 1, 2], [2, 3, 0]])
    >>> bool(model.certificate_.relative_gap <= 1e-6)
    True
    """

    SETTINGS = GradientSettings

    def __init__(
        self,
        gamma: float = 16.0,
        *,
        loss: UserLoss = "log",
        loss_params: dict[str, object] | None = None,
        normalize_gamma: bool = True,
        tol: float = 1e-6,
        max_iter: int = 10_000,
        kernel: UserKernel = "laplacian",
        kernel_params: dict[str, object] | None = None,
        n_neighbors: int = 10,
        standardize: bool | str = "auto",
        n_in: int = 10,
        n_out: int = 10,
        contradictions: str = "keep",
        n_components: int = 30,
        center: bool = True,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.gamma = gamma
        self.loss = loss
        self.loss_params = loss_params
        self.normalize_gamma = normalize_gamma
        self.tol = tol
        self.max_iter = max_iter
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_neighbors = n_neighbors
        self.standardize = standardize
        self.n_in = n_in
        self.n_out = n_out
        self.contradictions = contradictions
        self.n_components = n_components
        self.center = center
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: UserRows, y: UserLabels = None, *, triplets: UserPairs = None, must_link: UserPairs = None, cannot_link: UserPairs = None,
        pairs: UserPairs = None, sample_ids: UserLabels = None,
    ) -> ConjugateGradientKernelLearner:  # fmt: skip
        """Learn from rows X (n, d) and labels, triplets or pairs, as `dkl.LogDetKernelLearner.fit`.

        Parameters
        ----------
        X, y, triplets, must_link, cannot_link, pairs, sample_ids : as there

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows or side information that are not valid, before any work.
        InconsistentPairsError
            For contradictions, with contradictions="raise".
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        given = {"triplets": triplets, "must_link": must_link, "cannot_link": cannot_link, "pairs": pairs}
        side, prior, rows = self._resolve(X, y, **given, sample_ids=sample_ids)
        check_loss_choice(side, self.loss, self.loss_params)
        size = {f"kernel matrices of {side.n_points:,} rows": SQUARES * 8 * side.n_points**2}
        check_size(size, parse_bytes(self.memory_limit), "label fewer rows")
        constraints, loss = constraints_and_loss(side, self.loss, self.loss_params, KernelDistances(prior))
        points = constraints.points
        K0, block = prior.within(points), constraints.on_points()
        weight = float(self.gamma) / ((side.n_labelled or len(points)) if self.normalize_gamma else 1)
        with blas_threads_for(len(K0)):
            found = descend(Objective.of(K0, block, loss, weight), float(self.tol), int(self.max_iter))
        if not found.is_converged:
            remedy = "raise max_iter" if found.n_iter >= self.max_iter else "rounding ends all progress: raise tol"
            text = (
                f"not converged: relative gap {found.certificate.relative_gap:.2g} after {found.n_iter} steps; {remedy}"
            )
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        # At the optimum K^-1 = K0^-1 + U(l), l = w psi'; elsewhere K itself is handed out: M = K0^+ (K - K0) K0^+.
        problem = Objective.of(K0, block, loss, weight)
        inner = problem.inverse @ found.B @ problem.inverse - problem.inverse
        self._adopt(prior, rows, points, problem.Q @ inner @ problem.Q.T)
        self.certificate_, self.n_iter_ = found.certificate, found.n_iter
        return self
