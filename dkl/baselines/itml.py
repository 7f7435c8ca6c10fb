"""ITML by Bregman projections: of a kernel matrix, and of a Mahalanobis metric.

    minimize over K psd, xi   LogDet(K, K0) + gamma LogDet(diag xi, diag xi0)
    subject to                d^2(i, j) <= xi_ij of must-links, d^2(i, j) >= xi_ij of cannot-links;   xi0 = u or l

J. Davis, B. Kulis, P. Jain, S. Sra, I. Dhillon, Information-theoretic metric learning, ICML 2007, Algorithm 1; of kernels
B. Kulis, M. Sustik, I. Dhillon, Learning low-rank kernel matrices, ICML 2006. With the best xi this is the LogDet problem
(Li et al. 2009, (3)) with the ITML loss and weight gamma, which is not divided by anything.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from dkl.baselines.bregman_projections import Constraints, ProjectionResult, project
from dkl.blocks.memory_plan import check_size
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning
from dkl.estimators.base.learned_kernel import KernelLearner
from dkl.estimators.base.mahalanobis import MahalanobisLearner, prior_metric
from dkl.estimators.base.metric_constraints import (
    KernelDistances,
    MetricDistances,
    PriorDistances,
    check_loss_params,
    itml_bounds,
    without_equal_rows,
)
from dkl.estimators.base.rules import DICTIONARY, Integer, Real, Word
from dkl.estimators.base.settings import IN_ALL, LabelSettings, PriorSettings
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.validation import random_stream
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserKernel, UserLabels, UserPairs, UserRows, UserSeed

Matrix = NDArray[np.float64]
Indices = NDArray[np.intp]
FEWER = "give fewer pairs, or label fewer rows"


@dataclass(frozen=True)
class ITMLSettings(LabelSettings):
    """Settings of ITML: the slack's weight gamma, the prior, and when to end."""

    gamma: Annotated[float, Real(above=0), "Weight of the slack."] = 1.0
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most sweeps over the pairs."] = 1000
    prior: Annotated[str, Word("identity", "covariance"), "W0."] = "identity"

    in_python = {"loss_params": (None, DICTIONARY), **IN_ALL}


@dataclass(frozen=True)
class ITMLKernelSettings(PriorSettings):
    """Settings of ITML of a kernel matrix."""

    gamma: Annotated[float, Real(above=0), "Weight of the slack."] = 1.0
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most sweeps over the pairs."] = 1000

    in_python = {"loss_params": (None, DICTIONARY), "kernel_params": (None, DICTIONARY), **IN_ALL}


def constraints_of(side: SideInformation, params: dict[str, object] | None, distances: PriorDistances) -> Constraints:
    """Return the constraints of the pairs, with the bounds in `params` or percentiles of the distances."""
    check_loss_params("itml", params)
    pairs = without_equal_rows(side.labelled_pairs, distances)
    # Only rows of pairs: ITML of a kernel changes no other entry of K than by these.
    points, ends = np.unique(np.stack([pairs.i, pairs.j], axis=1), return_inverse=True)
    upper, lower = itml_bounds(params, distances, points)
    return Constraints(points, ends.reshape(-1, 2), pairs.sign.astype(float), np.where(pairs.sign > 0, upper, lower))


class ITMLKernelLearner(KernelLearner):
    """ITML of a kernel matrix, by Bregman projections.

    Parameters
    ----------
    gamma : float
        Weight of the slack: the problem of `dkl.LogDetKernelLearner` with loss="itml" and normalize_gamma=False.
    tol, max_iter
        Relative duality gap to end at; maximum number of sweeps over the pairs, each in a newly drawn order.
    loss_params : dict or None
        `upper` and `lower`, bounds of squared distances.
    kernel, kernel_params, n_neighbors, standardize, n_in, n_out, contradictions, n_components, center, memory_limit, client, n_jobs
        As in `dkl.LogDetKernelLearner`.
    random_state
        Seed of the orders of the pairs, which move the result by no more than the gap.

    Attributes
    ----------
    points_, M_ : the kernel, as in `dkl.LogDetKernelLearner`
    multipliers_ : (c,) of the pairs, must-links first
    certificate_ : objective, the dual's bound and the relative gap between them
    n_iter_ : sweeps; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    ITMLMetricLearner : The same of a distance (d, d).
    dkl.LogDetKernelLearner : The same problem, by Newton steps, with loss="itml".
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, Information-theoretic metric learning, ICML 2007.
    doi:10.1145/1273496.1273523

    Examples
    --------
    >>> from dkl.baselines import ITMLKernelLearner
    >>> model = ITMLKernelLearner(kernel="linear", loss_params={"upper": 1.0, "lower": 4.0})
    >>> model = model.fit([[0.0], [2.0], [3.0]], must_link=[[0, 1]], cannot_link=[[1, 2]])
    >>> model.n_iter_ > 1
    True
    """

    SETTINGS = ITMLKernelSettings

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
        loss_params: dict[str, object] | None = None,
        kernel: UserKernel = "rbf",
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
        self.tol = tol
        self.max_iter = max_iter
        self.loss_params = loss_params
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
        self, X: UserRows, y: UserLabels = None, *, must_link: UserPairs = None, cannot_link: UserPairs = None, pairs: UserPairs = None,
        sample_ids: UserLabels = None,
    ) -> ITMLKernelLearner:  # fmt: skip
        """Learn from rows X (n, d) and labels or pairs, as `dkl.LogDetKernelLearner.fit`.

        Parameters
        ----------
        X, y, must_link, cannot_link, pairs, sample_ids : as there

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
        given = {"must_link": must_link, "cannot_link": cannot_link, "pairs": pairs, "sample_ids": sample_ids}
        side, prior, rows = self._resolve(X, y, **given)
        size = {f"kernel matrices of {side.n_points:,} rows": 32 * side.n_points**2}
        check_size(size, parse_bytes(self.memory_limit), FEWER)
        constraints = constraints_of(side, self.loss_params, KernelDistances(prior))
        points = constraints.points
        # A copy goes to `project`, which works in place: K0 itself is needed for M below.
        K0 = prior.within(points)
        rng = random_stream(self.random_state)
        with blas_threads_for(len(K0)):
            found = project(K0.copy(), constraints, float(self.gamma), float(self.tol), int(self.max_iter), rng)
        _warn_of(found, float(self.tol))
        # U = sum of l_t s_t (e_i - e_j)(e_i - e_j)'; `add.at`, as pairs share entries.
        U = np.zeros_like(K0)
        for one, other, sign in ((0, 0, 1), (1, 1, 1), (0, 1, -1), (1, 0, -1)):
            at = (constraints.ends[:, one], constraints.ends[:, other])
            np.add.at(U, at, sign * constraints.sign * found.multipliers)
        M = -np.linalg.solve(np.eye(len(K0)) + U @ K0, U)  # of K^-1 = K0^-1 + U
        self._adopt(prior, rows, points, 0.5 * (M + M.T))
        self.multipliers_, self.certificate_, self.n_iter_ = found.multipliers, found.certificate, found.n_iter
        return self


class ITMLMetricLearner(MahalanobisLearner):
    """ITML of a Mahalanobis metric, by Bregman projections.

    Parameters
    ----------
    gamma, tol, max_iter, loss_params
        As in `ITMLKernelLearner`.
    prior : "identity" or "covariance"
        W0: the identity, or the inverse of the rows' covariance.
    standardize, n_in, n_out, contradictions, memory_limit, client, n_jobs
        As in `dkl.LogDetMetricLearner`; the last two have no effect.
    random_state
        As in `ITMLKernelLearner`.

    Attributes
    ----------
    components_ : (d, d) L, W = L'L; multipliers_ : (c,) of the pairs, must-links first
    threshold_ : as of `dkl.LogDetMetricLearner`
    certificate_ : objective, the dual's bound and the relative gap between them
    n_iter_ : sweeps; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    ITMLKernelLearner : The same of a kernel.
    dkl.LogDetMetricLearner : The same problem, by Newton steps, with loss="itml".
    sklearn.neighbors.NeighborhoodComponentsAnalysis : A distance from labels alone.

    References
    ----------
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, Information-theoretic metric learning, ICML 2007.
    doi:10.1145/1273496.1273523

    Examples
    --------
    >>> from dkl.baselines import ITMLMetricLearner
    >>> model = ITMLMetricLearner(loss_params={"upper": 1.0, "lower": 4.0})
    >>> model = model.fit([[0.0, 0.0], [2.0, 0.0], [2.0, 1.0]], must_link=[[0, 1]], cannot_link=[[1, 2]])
    >>> near, far = model.pair_distance([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]])
    >>> bool(near < far)
    True
    """

    SETTINGS = ITMLSettings

    def __init__(
        self,
        gamma: float = 1.0,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
        loss_params: dict[str, object] | None = None,
        prior: str = "identity",
        standardize: bool | str = "auto",
        n_in: int = 10,
        n_out: int = 10,
        contradictions: str = "keep",
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.gamma = gamma
        self.tol = tol
        self.max_iter = max_iter
        self.loss_params = loss_params
        self.prior = prior
        self.standardize = standardize
        self.n_in = n_in
        self.n_out = n_out
        self.contradictions = contradictions
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self, X: UserRows, y: UserLabels = None, *, must_link: UserPairs = None, cannot_link: UserPairs = None, pairs: UserPairs = None,
        sample_ids: UserLabels = None,
    ) -> ITMLMetricLearner:  # fmt: skip
        """Learn from rows X (n, d) and labels or pairs, or metric-learn's tuples, as `dkl.LogDetMetricLearner.fit`.

        Parameters
        ----------
        X, y, must_link, cannot_link, pairs, sample_ids : as there

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
        given = {"must_link": must_link, "cannot_link": cannot_link, "pairs": pairs, "sample_ids": sample_ids}
        rows, side = self._resolve(X, y, **given)
        count, d = len(side.labelled_pairs.sign), int(rows.shape[1])
        size = {f"differences of {count:,} pairs": 48 * count * d, f"metrics of {d:,} columns": 32 * d**2}
        check_size(size, parse_bytes(self.memory_limit), FEWER)
        W0 = prior_metric(self.prior, rows)
        constraints = constraints_of(side, self.loss_params, MetricDistances(rows, W0))
        rng = random_stream(self.random_state)
        tol, points = float(self.tol), rows[constraints.points]
        with blas_threads_for(len(W0)):
            # In place: W0 is the learned metric from here on.
            found = project(W0, constraints, float(self.gamma), tol, int(self.max_iter), rng, points)
        _warn_of(found, float(self.tol))
        self._adopt(W0)
        self.multipliers_, self.certificate_, self.n_iter_ = found.multipliers, found.certificate, found.n_iter
        return self


def _warn_of(found: ProjectionResult, tol: float) -> None:
    gap = found.certificate.relative_gap
    if not gap <= tol:
        text = f"not converged: relative gap {gap:.2g} after {found.n_iter} sweeps; raise max_iter, or lower gamma"
        warnings.warn(text, ConvergenceWarning, stacklevel=3)
