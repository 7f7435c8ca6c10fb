"""LMNN: a Mahalanobis metric by which rows of other classes are farther than the nearest of the own, by a margin.

    minimize over W psd    f(W) = (1 - mu) sum_ij d^2(i, j) + mu sum_ijl [1 + d^2(i, j) - d^2(i, l)]_+

over the rows i, their k nearest rows j of their class by Euclid (the targets) and all rows l of other classes; d^2(i, j) = tr(W C_ij),
C_ij = (x_i - x_j)(x_i - x_j)'. K. Weinberger, L. Saul, Distance metric learning for large margin nearest neighbor classification, JMLR
10, 2009, (13). They step along subgradients of W; here L-BFGS takes L, W = L'L, with the hinge rounded over a width h that is
narrowed until the dual proves the gap: with 0 <= a <= mu for each ijl

    S(a) = (1 - mu) sum_ij C_ij + sum_ijl a (C_ij - C_il) psd    =>    f >= sum_ijl a

since f(W) >= tr(W S(a)) + sum a. The rounded hinge's slopes are a; where S(a) is not psd they are taken times the largest share
from 0 to 1 at which it is.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize

from dkl.blocks.memory_plan import check_size
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.mahalanobis import MahalanobisLearner
from dkl.estimators.base.rules import Integer, Real, Size
from dkl.estimators.base.settings import IN_ALL, RESUMABLE, Settings, Standardize
from dkl.linalg.eigen.principal_coordinates import power_of_two
from dkl.linalg.rows.column_moments import middle_row
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed

Matrix = NDArray[np.float64]
WIDTHS = 0.25 ** np.arange(12)
"""Widths over which the hinge is rounded, in units of the margin."""
NEGLIGIBLE = 1e-10
"""Share of the largest eigenvalue below which a direction is one that the rows, or the targets, do not have."""
SMALLEST = float(np.sqrt(np.finfo(float).eps))
"""Share of f(0) below which an objective is 0."""


@dataclass(frozen=True)
class LMNNSettings(Settings):
    """Settings of LMNN: its targets, the weight of its two sums, and when to end."""

    n_targets: Annotated[int, Integer(1), "Nearest rows of its class that a row is to be near."] = 3
    mu: Annotated[float, Real(above=0, below=1), "Weight of the hinges; that of the targets' distances is 1 - mu."] = (
        0.5
    )
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at."] = 1e-2
    max_iter: Annotated[int, Integer(1), "Most steps of L-BFGS."] = 5000
    standardize: Standardize = "auto"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None

    in_python = IN_ALL


@dataclass(frozen=True)
class LMNNCertificate:
    """Bound on the distance to the optimum. objective: f(W); bound: at most the optimum; at_zero: f(0), the number of hinges times mu."""

    objective: float
    bound: float
    at_zero: float

    @property
    def relative_gap(self) -> float:
        """Return the gap over f(W), or over sqrt(eps) f(0) where f(W) is less: the optimum is 0 where a metric parts the classes."""
        scale = max(self.objective, SMALLEST * self.at_zero)
        return (self.objective - self.bound) / scale if scale else 0.0


@dataclass(frozen=True)
class LMNNProblem:
    """Rows X (n, d), all labeled; targets (n, k), -1 for none; others (n, n): whether two rows are of two classes; mu."""

    X: Matrix
    targets: NDArray[np.intp]
    others: NDArray[np.bool_]
    mu: float

    @classmethod
    def of(cls, X: Matrix, codes: NDArray[np.int64], n_targets: int, mu: float) -> LMNNProblem:
        """Find the targets by Euclid, the first row of those equally far."""
        others = codes[:, None] != codes
        distances = np.where(others, np.inf, squared_distances(X))
        np.fill_diagonal(distances, np.inf)
        targets = np.argsort(distances, axis=1, kind="stable")[:, :n_targets]
        return cls(X, np.where(np.isfinite(np.take_along_axis(distances, targets, axis=1)), targets, -1), others, mu)

    def at(self, L: Matrix, width: float) -> tuple[float, Matrix, Matrix, float]:
        """Return (f with the hinge rounded over `width`, P, Q, sum of a) at W = L'L: S(a) = P + Q, P that of the targets alone.

        width 0: of the hinge itself, of which P, Q and the sum are not to be used.
        """
        distances = squared_distances(self.X @ L.T)
        value, total = 0.0, 0.0
        near, hinges = np.zeros_like(distances), np.zeros_like(distances)
        for column in self.targets.T:
            rows = np.flatnonzero(column >= 0)
            to_target = distances[rows, column[rows]]
            value += (1 - self.mu) * float(to_target.sum())
            near[rows, column[rows]] += 1 - self.mu
            margins = np.where(self.others[rows], 1.0 + to_target[:, None] - distances[rows], 0.0)
            np.maximum(margins, 0.0, out=margins)
            slopes = self.mu * (np.minimum(margins / width, 1.0) if width else np.sign(margins))
            rounded = np.where(margins < width, margins**2 / (2 * width), margins - width / 2) if width else margins
            value += self.mu * float(rounded.sum())
            hinges[rows, column[rows]] += slopes.sum(axis=1)
            hinges[rows] -= slopes
            total += float(slopes.sum())
        return value, self._scatter(near), self._scatter(hinges), total

    def _scatter(self, weights: Matrix) -> Matrix:
        """Return the sum of weights_ij C_ij, (d, d)."""
        degrees = weights.sum(axis=0) + weights.sum(axis=1)
        product = self.X.T @ weights @ self.X
        return (self.X.T * degrees) @ self.X - product - product.T

    def certify(self, L: Matrix, width: float) -> LMNNCertificate:
        """Return f at W = L'L and the dual's bound by the slopes of the hinge rounded over `width`."""
        _, P, Q, total = self.at(L, width)
        share = largest_share(P, Q, self.X)
        return LMNNCertificate(self.at(L, 0.0)[0], total * share, self.mu * self.n_hinges)

    @property
    def n_hinges(self) -> int:
        """Return the number of triples ijl."""
        return int(((self.targets >= 0).sum(axis=1) * self.others.sum(axis=1)).sum())


def squared_distances(Z: Matrix) -> Matrix:
    """Return the squared distances (n, n) of rows about their middle, by one product, as each step computes them."""
    lengths = np.einsum("nd,nd->n", Z, Z)
    found = Z @ Z.T
    found *= -2.0
    found += lengths
    found += lengths[:, None]
    return np.maximum(found, 0.0, out=found)


def largest_share(P: Matrix, Q: Matrix, X: Matrix) -> float:
    """Return at most the largest share s, 0 <= s <= 1, with P + s Q psd in the directions that the rows X have; P is psd."""
    values, vectors = eigh(X.T @ X)
    basis = vectors[:, values > NEGLIGIBLE * values[-1]]
    P, Q = basis.T @ P @ basis, basis.T @ Q @ basis
    values = np.linalg.eigvalsh(P)
    # Where targets are equal rows in some direction no share above 0 is proven.
    if not values[0] > NEGLIGIBLE * values[-1]:
        return 0.0
    lowest = float(eigh(Q, P, eigvals_only=True)[0])
    return min(1.0, (1.0 - NEGLIGIBLE) / -lowest) if lowest < 0 else 1.0


class LMNNMetricLearner(MahalanobisLearner):
    """Large margin nearest neighbors: a Mahalanobis metric from labels (Weinberger and Saul 2009).

        minimize over W psd    (1 - mu) sum_ij d^2(i, j) + mu sum_ijl [1 + d^2(i, j) - d^2(i, l)]_+

    over rows i, their targets j, the nearest rows of their class by Euclid, and all rows l of other classes. In memory, with
    matrices of n x n.

    Parameters
    ----------
    n_targets : int
        Number of targets of a row; fewer in a class of no more rows.
    mu : float
        Weight of the second sum.
    tol, max_iter
        Relative duality gap to end at; most steps of L-BFGS.
    standardize, memory_limit, client, n_jobs, random_state
        As in `dkl.LogDetMetricLearner`; the last three have no effect.

    Attributes
    ----------
    components_ : (d, d) L, W = L'L
    threshold_ : as of `dkl.LogDetMetricLearner`
    certificate_ : objective, the dual's bound and the relative gap between them
    n_iter_ : steps; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.LogDetMetricLearner : A metric near a given one, with loss="hinge" of the same triplets, and from pairs too.
    sklearn.neighbors.NeighborhoodComponentsAnalysis : A metric from labels by the chance of the right neighbor.

    References
    ----------
    K. Q. Weinberger, L. K. Saul, Distance metric learning for large margin nearest neighbor classification, Journal of Machine
    Learning Research 10, 2009, 207-244. https://www.jmlr.org/papers/v10/weinberger09a.html

    Examples
    --------
    >>> from dkl.baselines import LMNNMetricLearner
    >>> X = [[0.0, 0.0], [1.0, 0.5], [4.0, 0.0], [0.0, 1.0], [1.5, 1.5], [4.0, 1.0]]
    >>> model = LMNNMetricLearner(n_targets=1).fit(X, [0, 0, 0, 1, 1, 1])
    >>> near, far = model.pair_distance([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    >>> bool(near < far)
    True
    """

    SETTINGS = LMNNSettings
    n_in = n_out = 1
    contradictions = "keep"

    def __init__(
        self,
        n_targets: int = 3,
        *,
        mu: float = 0.5,
        tol: float = 1e-2,
        max_iter: int = 5000,
        standardize: bool | str = "auto",
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_targets = n_targets
        self.mu = mu
        self.tol = tol
        self.max_iter = max_iter
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: UserRows, y: UserLabels = None) -> LMNNMetricLearner:
        """Learn from rows X (n, d) and labels.

        Parameters
        ----------
        X : (n, d)
        y : (n,) class labels; -1, None or NaN for rows without one, which are left out

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows or labels that are not valid, before any work.
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        rows, side = self._resolve(X, y)
        if side.codes is None:
            raise InputError(
                "a method of labels", where="X", got="tuples of points", wanted="rows (n, d), and labels y"
            )
        labeled = side.codes >= 0
        found = rows[labeled]
        centered = found - middle_row(found)
        # The margin is 1 in every unit of X: from I on, L-BFGS would go far to the metric of rows of 1e-8. A power of two rounds nothing.
        unit = power_of_two(float(np.abs(centered).max(initial=0.0)))
        problem = LMNNProblem.of(centered / unit, side.codes[labeled], int(self.n_targets), float(self.mu))
        with blas_threads_for(found.shape[1]):
            L, self.certificate_, self.n_iter_ = learned(problem, float(self.tol), int(self.max_iter))
        L /= unit
        self._adopt(L.T @ L)
        if not self.certificate_.relative_gap <= self.tol:
            gap = self.certificate_.relative_gap
            remedy = "raise max_iter" if self.n_iter_ >= self.max_iter else "rounding ends all progress: raise tol"
            text = f"not converged: relative gap {gap:.2g} after {self.n_iter_} steps; {remedy}"
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        return self

    def _before_search(self, codes: NDArray[np.int64], n_features: int) -> None:
        n = int(np.count_nonzero(codes >= 0))
        needed = {
            f"distances of {n:,} labeled rows": 56 * n**2,
            f"metrics of {n_features:,} columns": 64 * n_features**2,
        }
        check_size(needed, parse_bytes(self.memory_limit), "label fewer rows")


def learned(problem: LMNNProblem, tol: float, max_iter: int) -> tuple[Matrix, LMNNCertificate, int]:
    """Return (L (d, d), certificate, steps taken), from Euclid on, over ever narrower hinges."""
    d, taken = problem.X.shape[1], 0

    def rounded(flat: NDArray[np.float64], width: float) -> tuple[float, NDArray[np.float64]]:
        L = flat.reshape(d, d)
        value, P, Q, _ = problem.at(L, width)
        return value, (2 * L @ (P + Q)).ravel()

    L = np.eye(d)
    for width in WIDTHS:
        options = {
            "maxiter": max_iter - taken,
            "maxfun": 20 * max_iter,
            "ftol": 1e-3 * tol * width,
            "gtol": 0.0,
            "maxcor": 20,
        }
        end = minimize(rounded, L.ravel(), (width,), jac=True, method="L-BFGS-B", options=options)
        L, taken = end.x.reshape(d, d), taken + int(end.nit)
        certificate = problem.certify(L, width)
        if certificate.relative_gap <= tol or taken >= max_iter:
            break
    return L, certificate, taken
