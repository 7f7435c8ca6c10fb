"""Problem (3) of Li et al. 2009: a kernel, or a Mahalanobis matrix, near a given one in LogDet divergence.

minimize over K psd   F(K) = w sum_t psi(tr(K A_t)) + LogDet(K, K0),   w = gamma / m, or gamma
LogDet(K, K0) = tr(K K0^-1) - log det(K K0^-1) - n
maximize over l       D(l) = -w sum_t psi*(l_t / w) + log det(I + K0^1/2 U(l) K0^1/2),   U(l) = sum_t l_t A_t
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.problems.logdet_constraints import ConstraintSet, Indices, Vector
from dkl.problems.logdet_losses import Loss

Array = NDArray[np.float64]


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
        """gap / max(|objective|, |bound|); inf where the bound is -inf."""
        raise NotImplementedError


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


class LogDetKernelProblem:
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
        raise NotImplementedError

    def with_gamma(self, gamma: float) -> Self:
        """The same problem at another gamma; factors of K0 are shared."""
        raise NotImplementedError

    def learned(self, multipliers: Vector) -> LearnedKernel:
        """The kernel of a solution's `multipliers` (c,): K^-1 = K0^-1 + U(multipliers)."""
        raise NotImplementedError


class LogDetMetricProblem:
    """(3) for a Mahalanobis matrix W (d, d) near W0: constraints are on the kernel X W X' of the rows of X (n, d).

    d2(x, y) = (x - y)' W (x - y) is a distance of that kernel, so the same `ConstraintSet`s serve, of n = len(X).
    W0: (d, d) positive definite, by default the identity.
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
        raise NotImplementedError

    def with_gamma(self, gamma: float) -> Self:
        """The same problem at another gamma."""
        raise NotImplementedError

    def learned(self, multipliers: Vector) -> Array:
        """W (d, d) of a solution's `multipliers` (c,): W^-1 = W0^-1 + X'U(multipliers)X."""
        raise NotImplementedError


@dataclass(frozen=True)
class LogDetPlan:
    """What a fit needs: `bytes` at most at a time beside K0, `flops` of one Newton step with `products` Hessian products."""

    bytes: int
    flops: float


def logdet_plan(
    n_points: int, n_constraints: int, n_entries: int, *, rank: int | None = None, solver: str = "auto"
) -> LogDetPlan:
    """The need of |P| = n_points; rank: columns of the factor of K0_PP where it is singular, or d for a metric."""
    raise NotImplementedError
