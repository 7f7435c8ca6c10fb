"""Ridge regression on chosen kernel columns, penalized by the norm of the kernel's function space.

    minimize over w, c    R(w) = |y - C_S w - c|^2 + lambda w'P w,        P = K_SS + delta I,    w = (B_SS + lambda P)^-1 b_S

K holds the kernel between the columns' points, scaled as the columns are: K_ij = k(x_i, x_j) / sqrt(k(x_i, x_i) k(x_j, x_j)).
So f = C_S w is the kernel ridge regression of the Nystrom approximation on S (C. Williams, M. Seeger, Using the Nystrom
method to speed up kernel machines, NIPS 2001); delta lies at K's rounding, and makes P definite. B and b = C'y are about the
means where a constant c is fitted. For any theta R is at least 2 y'theta - |theta|^2 - (C_S'theta)'P^-1 (C_S'theta) / lambda,
and at the residual r

    gap = q'P^-1 q / lambda,    q = C_S'r - lambda P w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, lapack, solve_triangular

from dkl.linalg.lasso import upper_submatrix
from dkl.linalg.rows.column_moments import Moments
from dkl.problems.regression.column_gram import EPS, ROUNDED, CenteredGram, DenseGram, Vector
from dkl.problems.regression.column_lasso import ColumnLasso, output_problems

Matrix = NDArray[np.float64]

DELTA = 1e-13
"""delta / M: a few hundred roundings of K's largest eigenvalue, which is at most its trace, M."""
MOST_REFINEMENTS = 3
"""Corrections of a solution by its own residual."""


def penalty(kernel: Matrix) -> Matrix:
    """Turn K (M, M) into P (M, M), in place: symmetric to the last bit, whatever the kernel rounds."""
    kernel += kernel.T.copy()
    kernel /= 2
    kernel.flat[:: len(kernel) + 1] += DELTA * len(kernel)
    return kernel


def is_definite(P: Matrix) -> bool:
    """Return whether P is positive definite, so that a ridge can be fitted: not of a sigmoid kernel, say."""
    try:
        np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        return False
    return True


@dataclass(frozen=True)
class ColumnRidge:
    """R on the columns `chosen` (s,) of the sums that all outputs share, with P (M, M)."""

    shared: CenteredGram
    P: Matrix
    chosen: NDArray[np.intp]

    def solve(self, lam: float) -> Matrix | None:
        """Return weights (T, M), zeros outside `chosen`; None if rounding leaves it indefinite. O(s^3)."""
        assert isinstance(self.shared.gram, DenseGram)  # folds are summed up in memory alone
        # The chosen columns alone, as the system costs their number cubed.
        part = np.ix_(self.chosen, self.chosen)
        system = self.shared.gram.matrix[part]
        system += lam * self.P[part]
        try:
            # NumPy's leaves the interpreter's lock, which SciPy's keeps: folds are solved side by side on threads.
            factor = (np.linalg.cholesky(system), True)
        except np.linalg.LinAlgError:
            return None
        right = self.shared.cross[self.chosen]
        w = cho_solve(factor, right, check_finite=False)
        left = right - system @ w
        for _ in range(MOST_REFINEMENTS):
            better = w + cho_solve(factor, left, check_finite=False)
            then = right - system @ better
            # Refinement is worth a step while it halves the residual, and no more.
            if not np.abs(then).max(initial=0.0) < np.abs(left).max(initial=0.0) / 2:
                break
            w, left = better, then
        weights = np.zeros(self.shared.cross.shape[::-1])
        weights[:, self.chosen] = w.T
        return weights if np.isfinite(weights).all() else None

    def evaluate(self, weights: Matrix, lam: float) -> tuple[Vector, Vector]:
        """Return (R, gap) (T,) each, at weights (T, M) that are zero outside `chosen`; rounding of the sums counts in the gap."""
        assert isinstance(self.shared.gram, DenseGram)
        part = np.ix_(self.chosen, self.chosen)
        w, b, P = weights[:, self.chosen].T, self.shared.cross[self.chosen], self.P[part]
        # The gap of a ridge is a norm of its gradient, so it needs no dual solver.
        correlations = b - self.shared.gram.matrix[part] @ w
        pull = P @ w
        fitted = (w * b).sum(axis=0)
        residual = np.maximum(self.shared.squares - fitted - (w * correlations).sum(axis=0), 0.0)
        factor = np.linalg.cholesky(P)
        half = solve_triangular(factor, correlations - lam * pull, lower=True, check_finite=False)
        # Rounding e of q adds e'P^-1 e, of which e_m^2 times the diagonal of P^-1 is to be expected.
        of_outputs = zip(weights, residual, strict=True)
        sums = np.array([self.shared.spread(k, one, r)[2][self.chosen] for k, (one, r) in enumerate(of_outputs)]).T
        e = sums + ROUNDED * EPS * lam * (np.abs(P) @ np.abs(w))
        inverse, _ = lapack.dtrtri(factor, lower=1)
        stretched = (inverse**2).sum(axis=0) @ e**2
        gap = (np.linalg.norm(half, axis=0) + np.sqrt(stretched)) ** 2 / lam
        return residual + lam * (w * pull).sum(axis=0), gap


@dataclass(frozen=True)
class RidgeFold:
    """A fold's ridge on its own columns, and the error on the rows that it holds out. T outputs."""

    rest: ColumnRidge
    moments: Moments
    fold: int

    @classmethod
    def of(cls, fold: ColumnFold, P: Matrix, chosen: NDArray[np.intp]) -> RidgeFold:
        """Make it from the lasso's fold; `chosen` (s,): columns that the fold's other rows have chosen."""
        return cls(ColumnRidge(fold.rest, P, chosen), fold.moments, fold.fold)

    def error(self, lam: float) -> Vector | None:
        """Return the mean squared errors (T,) on the rows held out; None if rounding leaves no solution."""
        weights = self.rest.solve(lam)
        if weights is None:
            return None
        return held_out_error(self.moments, self.fold, weights, self.rest.shared.intercepts(weights))


# Cross-validation without another pass: the error on rows that were held out follows from their own sums,
#
# |y - C w - c|^2 = y'y - 2 w'C'y + w'C'C w - 2 c (1'y - 1'C w) + c^2 1'1.


@dataclass(frozen=True)
class ColumnFold:
    """A fold's problem: `rest` are the sums of the rows to learn from, `moments[.][fold]` those of the rows held out."""

    rest: CenteredGram
    moments: Moments
    fold: int
    lam: float

    @property
    def variances(self) -> Vector:
        """Return the variances (T,) of the targets that are learned from."""
        return self.rest.squares / self.rest.weight

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (T, M) of weights."""
        return self.rest.cross.shape[1], self.rest.cross.shape[0]

    def problems(self, nu: float) -> list[ColumnLasso]:
        """Return the lasso of each output."""
        return output_problems(self.rest, self.lam, nu)

    def error(self, weights: NDArray[np.float64]) -> Vector:
        """Return the mean squared errors (T,) of weights (T, M) on the rows held out."""
        return held_out_error(self.moments, self.fold, weights, self.rest.intercepts(weights))


def held_out_error(moments: Moments, fold: int, weights: NDArray[np.float64], intercepts: Vector) -> Vector:
    """Return the weighted mean squared errors (T,) of weights (T, M) on the rows of a fold."""
    gram, cross, square = moments[0][fold], moments[1][fold], moments[2][fold]
    total = square[-1, -1]
    support = np.flatnonzero((weights != 0).any(axis=0))
    w, cross = weights[:, support], cross[support]
    upper = upper_submatrix(gram, support)  # of a raw sum the upper triangle counts
    # w'B w from B's upper triangle: twice that of the triangle, less the diagonal, which it counts twice.
    fitted = 2 * np.einsum("ts,ts->t", w @ upper, w) - w**2 @ np.diag(upper)
    # The last target is the column of ones: its products are sums, and its square the rows' total weight.
    with_targets = np.einsum("ts,st->t", w, cross[:, :-1])
    residual = np.diag(square)[:-1] - 2 * with_targets + fitted
    residual += -2 * intercepts * (square[:-1, -1] - w @ cross[:, -1]) + intercepts**2 * total
    return np.asarray(np.maximum(residual, 0.0) / total)
