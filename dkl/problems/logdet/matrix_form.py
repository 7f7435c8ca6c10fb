"""Problem (3) in the entries of K itself, by dense matrices, for the paper's own algorithm.

K = B X B' for a fixed B (p, r), and X (r, r) is what is learned near X0:
    F(X) = w sum_t psi(tr(B X B' A_t)) + tr(X X0^-1) - log det(X X0^-1) - r.
Of a kernel B holds an orthonormal basis of K0's range (the identity where K0 is definite), so that norms of X are those of K, and
X^-1 is K^+ there (the paper's footnote 2). Of a metric B holds the rows, and X is W.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.problems.logdet.constraints import ConstraintSet, Vector
from dkl.problems.logdet.losses import Loss

Array = NDArray[np.float64]


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
