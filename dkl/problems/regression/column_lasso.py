"""SLKL: kernel regression that learns the weights of rank-1 kernels (P. Machart, T. Peel, L. Ralaivola, S. Anthoine,
H. Glotin, Stochastic low-rank kernel learning for regression, ICML 2011).

    minimize over mu >= 0   F(mu) = lambda y' (lambda I + C diag(mu) C')^-1 y + nu sum mu                        (14)

C is n x M; column m is k(., x_m) / sqrt(k(x_m, x_m)). As y'(I + K/lambda)^-1 y = min_w |y - C w|^2 + lambda sum w^2/mu,
and lambda w^2 / mu + nu mu is least at mu = sqrt(lambda/nu) |w|, this is the lasso on the columns:

    minimize over w         P(w) = |y - C w|^2 + 2 kappa |w|_1,    kappa = sqrt(lambda nu)

with the same value and mu = sqrt(lambda/nu) |w|. Its dual is to maximize D(theta) = |y|^2 - |y - theta|^2 where
|C' theta| <= kappa. P, D and the gap follow from B = C'C, b = C'y and y'y: n does not occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.lasso import subtract_rows, subtract_rows_precisely
from dkl.problems.regression.column_gram import CenteredGram, Gram, Vector

NEAR = 1e-2
"""A relative gap, below which the rounding of correlations may be what is left of it."""


@dataclass(frozen=True)
class Evaluation:
    """At weights w: P(w), the best dual value known from the residual r = y - C w, and C'r (M,).

    residual is |r|^2; theta = scale * r is the feasible dual point with that value.
    """

    objective: float
    dual: float
    correlations: Vector
    residual: float  # |r|^2
    scale: float  # theta = scale * r is dual feasible

    @property
    def gap(self) -> float:
        """Return P - D >= 0: P(w) is at most this above the optimum."""
        return max(self.objective - self.dual, 0.0)

    @property
    def relative_gap(self) -> float:
        """Return gap / P, or 0 where P is 0; NaN where either is."""
        return 0.0 if self.objective <= 0 else self.gap / self.objective


@dataclass(frozen=True)
class ColumnLasso:
    """The lasso (14) for one output: B, b (M,), y'y, lambda and nu."""

    gram: Gram
    cross: Vector
    square: float
    lam: float
    nu: float

    @classmethod
    def of(cls, shared: CenteredGram, output: int, lam: float, nu: float) -> ColumnLasso:
        """Return the lasso of output number `output`, from the sums that all outputs share."""
        return cls(shared.gram, np.ascontiguousarray(shared.cross[:, output]), float(shared.squares[output]), lam, nu)

    @property
    def n_columns(self) -> int:
        """Return the number of columns M."""
        return len(self.cross)

    @property
    def kappa(self) -> float:
        """Return sqrt(lambda nu), the bound on |C'theta| and half the weight of |w|_1."""
        return math.sqrt(self.lam * self.nu)

    def start(self, w: Vector | None) -> tuple[Vector, Evaluation]:
        """Return a copy of weights w (M,) to start at, or zeros, and `evaluate` there.

        Zeros where w is None or P is no lower there. Weights of another scale would drown b and y'y in rounding. Those of columns of
        zeros become 0.
        """
        if w is not None:
            w = np.where(self.gram.diagonal > 0, w, 0.0)
            found = self.evaluate(w)
            if found.objective < self.square:
                return w, found
        zeros = np.zeros(self.n_columns)
        return zeros, self.evaluate(zeros)

    def correlations(self, w: Vector, *, precisely: bool = False) -> Vector:
        """Return C'(y - C w) = b - B w (M,), in O(M |active|); precisely: rounded once, at the end."""
        found = self.cross.copy()
        active = w.nonzero()[0]
        rows, slots = self.gram.rows(active)
        (subtract_rows_precisely if precisely else subtract_rows)(found, rows, slots, w[active])
        return found

    def evaluate(self, w: Vector, correlations: Vector | None = None) -> Evaluation:
        """Evaluate P, and D at the residual scaled to be feasible: theta = s r, s best for D within bounds.

        correlations (M,): b - B w, where it is known already. Near the optimum they are computed precisely: their maximum is kappa then,
        while the terms of b - B w are as large as B |w|. Of 10^5 rows and 500 columns the rounding of these kept the gap above 2e-6.
        """
        if correlations is not None:
            return self._evaluation(w, correlations)
        # The plain sums first: the precise ones take longer and matter near the optimum alone.
        found = self._evaluation(w, self.correlations(w))
        if found.relative_gap > NEAR or not w.any():
            return found
        return self._evaluation(w, self.correlations(w, precisely=True))

    def _evaluation(self, w: Vector, g: Vector) -> Evaluation:
        """Evaluate the weights w at correlations g."""
        fitted = float(w @ self.cross)
        with_targets = self.square - fitted  # y'r
        residual = max(with_targets - float(w @ g), 0.0)  # |r|^2 = y'r - w'C'r
        dual, scale = self._dual(with_targets, residual, float(np.abs(g).max(initial=0.0)))
        return Evaluation(residual + 2 * self.kappa * float(np.abs(w).sum()), dual, g, residual, scale)

    def _dual(self, with_targets: float, residual: float, largest: float) -> tuple[float, float]:
        """Return (D, s) of theta = s r, the best s, from y'r, |r|^2 and the largest of |C'r|."""
        # D(s r) = 2 s y'r - s^2 |r|^2 is largest at s = y'r / |r|^2, feasible while |s| |C'r| <= kappa.
        best = with_targets / residual if residual > 0 else 0.0
        bound = self.kappa / largest if largest > 0 else np.inf
        scale = min(max(best, -bound), bound)
        return 2 * scale * with_targets - scale**2 * residual, scale

    def with_rounding(self, w: Vector, found: Evaluation, spread: tuple[float, float, Vector]) -> Evaluation:
        """Return the evaluation of w with the lowest bound that rounding of the sums by `spread` may leave of its dual value.

        spread: how far |r|^2, y'r and C'r may be off, as `CenteredGram.spread` has it.
        """
        on_residual, on_targets, on_correlations = spread
        with_targets = self.square - float(w @ self.cross)
        # Each number as far off as lowers the dual value most.
        least = float(np.copysign(max(abs(with_targets) - on_targets, 0.0), with_targets))
        largest = float((np.abs(found.correlations) + on_correlations).max(initial=0.0))
        dual, scale = self._dual(least, found.residual + on_residual, largest)
        return replace(found, dual=min(dual, found.dual) - on_residual, scale=scale)

    def may_be_active(self, found: Evaluation) -> NDArray[np.bool_]:
        """Return False for columns that are proven to be zero in every solution.

        D is 2-strongly concave, so the dual optimum is within sqrt(gap) of theta, and a column with
        |c'theta| + sqrt(gap) |c| < kappa stays at zero (E. Ndiaye, O. Fercoq, A. Gramfort, J. Salmon, Gap safe screening
        rules for sparsity enforcing penalties, JMLR 18, 2017).
        """
        reach = np.abs(found.scale * found.correlations) + np.sqrt(found.gap) * np.sqrt(self.gram.diagonal)
        # A margin of rounding: a column must not be dropped because of it.
        return np.asarray(reach >= self.kappa * (1 - 1e-12))

    def kernel_weights(self, w: Vector) -> Vector:
        """Return mu = sqrt(lambda/nu) |w| (M,): the weights of the rank-1 kernels, 0 where w is."""
        return np.sqrt(self.lam / self.nu) * np.abs(w)


def output_problems(shared: CenteredGram, lam: float, nu: float) -> list[ColumnLasso]:
    """Return the lasso of each output."""
    return [ColumnLasso.of(shared, output, lam, nu) for output in range(len(shared.squares))]


def largest_nu(cross: NDArray[np.float64], lam: float) -> float:
    """Return the least nu with all weights zero: (max |c'y|)^2 / lambda, cross = C'y (M,) or (M, T).

    A path of nu begins there.
    """
    largest = float(np.abs(cross).max(initial=0.0))
    return largest * largest / lam
