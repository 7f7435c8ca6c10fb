"""`LogDetMetricLearner`: a Mahalanobis distance near a given one, from triplets, pairs, labels or constraints."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.workers.dense_work import DenseWork, blas_threads_for
from dkl.estimators.base.mahalanobis import MahalanobisLearner, prior_metric
from dkl.estimators.base.metric_constraints import check_loss_choice
from dkl.estimators.base.plot_rows import labels_at, sampled
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.settings import gathered
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.logdet.fit import (
    GammaProblem,
    LogDetPath,
    Matrix,
    place_metric,
    pose_metric,
    solved,
    values_of_gamma,
)
from dkl.estimators.logdet.plan import sizes_of, sizes_of_labels
from dkl.estimators.logdet.plot_data import plot_data
from dkl.estimators.logdet.quality import HeldOutPart
from dkl.estimators.logdet.settings import LogDetMetricSettings
from dkl.linalg.rows.column_moments import middle_row
from dkl.plotting.figures import PlotData, draw_plot
from dkl.resources import parse_bytes
from dkl.solvers.logdet.solve import LogDetSolution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.estimators.base.validation import (
        UserCallbacks,
        UserConstraints,
        UserLabels,
        UserLoss,
        UserPairs,
        UserRows,
        UserSeed,
    )
    from dkl.plotting.figures import Axes
    from dkl.solvers.watch import Result


class LogDetMetricLearner(MahalanobisLearner):
    """Learn a Mahalanobis distance from triplets, pairs, labels or constraints: ITML's problem and others, to a proven gap.

    Minimizes, over positive definite W (d, d),

        gamma/m * sum over constraints t of psi(tr(W A_t)) + tr(W W0^-1) - log det(W W0^-1) - d         (Li et al. 2009, (3))

    with tr(W A_t) made of squared distances (x - z)' W (x - z) of the pair or triplet t, or tr(Z W Z' A_t) of symmetric matrices A_t
    of the user's own (`constraints` of `fit`), Z the rows that these touch, about their mean.

    Parameters
    ----------
    gamma, normalize_gamma, loss, loss_params, n_in, n_out, contradictions, solver, tol, max_iter, holdout, memory_limit
        As in `dkl.LogDetKernelLearner`. "hoi" and "hoi_hinge" are of inner products, here x'Wz of rows about their mean.
    prior : "identity" or "covariance"
        W0: the identity, or the inverse of the rows' covariance.
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    n_components : int, optional
        Columns that `transform` returns; by default all d. W itself is learned whole, and that it is solved, the gap and `certificate_`
        are statements about it. Of its components those are handed out that keep most of the learned distances of the rows: their
        leading principal axes in the coordinates that W gives them, which for d components is a turn of them. All that the learner
        says of rows and pairs, and the quality on what is held out, is by these alone.
    client, n_jobs, random_state, callbacks, verbose
        Of no effect, as the next two; functions called with each row of the history; progress on standard error.

    Attributes
    ----------
    components_ : (d, d) L, W = L'L, in descending order of W's eigenvalues; with `n_components` (n_components, d), in descending
        order of the spread of the rows along them
    threshold_ : distance up to which `predict_pairs` takes pairs as alike, after `calibrate_threshold` or `set_threshold`
    certificate_ : objective of (3), bound, gap, relative_gap; result_ ; n_iter_, solver_, method_,
        scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    LogDetKernelLearner : The same problem of a kernel of rows.
    dkl.baselines.ITMLMetricLearner : Bregman projections, of loss="itml".
    sklearn.neighbors.NeighborhoodComponentsAnalysis : A distance from labels alone, without a proven gap.

    References
    ----------
    F. Li, Y. Fu, Y.-H. Dai, C. Sminchisescu, J. Wang, Kernel learning by unconstrained optimization, AISTATS 2009.
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, Information-theoretic metric learning, ICML 2007.
    doi:10.1145/1273496.1273523

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import LogDetMetricLearner
    >>> X = np.array([[0.0, 0.0], [0.0, 4.0], [1.0, 0.0], [1.0, 4.0]])
    >>> model = LogDetMetricLearner(loss="log", gamma=10.0).fit(X, triplets=[[0, 1, 2], [2, 3, 0]])
    >>> near, far = model.pair_distance([[X[0], X[1]], [X[0], X[2]]])
    >>> bool(near < far)
    True
    """

    SETTINGS = LogDetMetricSettings
    SENT = ("loss",)

    def __init__(
        self,
        gamma: float = 16.0,
        *,
        loss: UserLoss = "itml",
        loss_params: dict[str, object] | None = None,
        prior: str = "identity",
        standardize: bool | str = "auto",
        n_components: int | None = None,
        normalize_gamma: bool = True,
        n_in: int = 10,
        n_out: int = 10,
        contradictions: str = "keep",
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int = 200,
        holdout: float = 0.1,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
    ) -> None:
        self.gamma = gamma
        self.loss = loss
        self.loss_params = loss_params
        self.prior = prior
        self.standardize = standardize
        self.n_components = n_components
        self.normalize_gamma = normalize_gamma
        self.n_in = n_in
        self.n_out = n_out
        self.contradictions = contradictions
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.holdout = holdout
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self,
        X: UserRows,
        y: UserLabels = None,
        *,
        triplets: UserPairs = None,
        must_link: UserPairs = None,
        cannot_link: UserPairs = None,
        pairs: UserPairs = None,
        constraints: UserConstraints = None,
        sample_ids: UserLabels = None,
    ) -> LogDetMetricLearner:
        """Learn from rows X (n, d) and side information as in `LogDetKernelLearner.fit`, or from tuples.

        Metric-learn's tuples of points come alone: X (m, 2, d) with y (m,) of +1 and -1, or X (m, 3, d), triplets
        (anchor, similar, dissimilar).

        Parameters
        ----------
        X : (n, d) rows, or tuples of points
        y : (n,) labels, or (m,) signs of tuples, optional
        triplets, must_link, cannot_link, pairs, constraints, sample_ids : as in `LogDetKernelLearner.fit`

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
        given["constraints"] = constraints
        with watch_for(self.callbacks, self.verbose) as watch:
            side, work = self._posed(X, y, **given, sample_ids=sample_ids)
            gamma = work.data.settings.gamma
            held = HeldOutPart.of(work.data, side, gamma, watch, work.call)
            (solution,), result = solved(work, [gamma], watch, held.start)
            self._keep(work.data, work.call(GammaProblem.learned, solution), solution)
            self.result_ = held.added_to(result, watch)
        return self

    def path(
        self,
        X: UserRows,
        y: UserLabels = None,
        gammas: object = None,
        *,
        triplets: UserPairs = None,
        must_link: UserPairs = None,
        cannot_link: UserPairs = None,
        pairs: UserPairs = None,
        constraints: UserConstraints = None,
        sample_ids: UserLabels = None,
    ) -> LogDetPath:
        """Return the metrics at each of `gammas`, as `LogDetKernelLearner.path`.

        Parameters
        ----------
        X, y, triplets, must_link, cannot_link, pairs, constraints, sample_ids : as in `fit`
        gammas : numbers above 0; by default 2^-12, 2^-8, ... 2^16, as in the paper

        Returns
        -------
        LogDetPath
            `model(i)` is the learner of gammas[i], fitted.
        """
        values = values_of_gamma(gammas)
        given = {"triplets": triplets, "must_link": must_link, "cannot_link": cannot_link, "pairs": pairs}
        given["constraints"] = constraints
        # Posing sets attributes: those of this learner stay as they are.
        model = copy.copy(self)
        with watch_for(self.callbacks, self.verbose) as watch:
            _, work = model._posed(X, y, **given, sample_ids=sample_ids)
            found, result = solved(work, [float(gamma) for gamma in values], watch)

        return LogDetPath.of(values, found, result, partial(model._at, values, found, result, work.data))

    def _at(
        self, gammas: NDArray[np.float64], found: list[LogDetSolution], result: Result, posed: GammaProblem, i: int
    ) -> LogDetMetricLearner:
        """Return the fitted learner of solution i, wherever this runs: the workers of the path may be gone."""
        made = copy.copy(self)
        made.gamma, made.result_ = float(gammas[i]), result
        with blas_threads_for(len(self._prior_metric)):
            made._keep(posed, posed.learned(found[i]), found[i])
        return made

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the metric: a new matplotlib Figure with all panels, or `ax` with the rows in two dimensions.

        X (m, d): rows to show in place of at most 2,000 of those that were learned from; y: labels, -1 for none.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: self._plot_data(X, y))

    def _plot_data(self, X: Any, y: Any) -> PlotData:
        if X is None and y is not None and len(y) == self._n_rows:
            y = labels_at(y, self._n_rows, sampled(self._n_rows))
        given: Any = self._rows_kept if X is None else checked_rows(self, X, reset=False)
        n = int(given.shape[0])
        chosen = sampled(n)
        labels = labels_at(y, n, chosen)
        rows = np.asarray(given[chosen].toarray() if sp.issparse(given) else given[chosen], np.float64)
        rows = rows - middle_row(rows)
        return plot_data(
            rows, rows @ self.components_.T, labels, self._prior_metric, self.components_.T @ self.components_,
            n=self._n_rows if X is None else n, what="metric", result=self.result_,
            relative_gap=self.certificate_.relative_gap,
        )  # fmt: skip

    def _posed(self, X: UserRows, y: UserLabels, **given: object) -> tuple[SideInformation, DenseWork]:
        rows, side = self._resolve(X, y, **given)
        check_loss_choice(side, self.loss, self.loss_params)
        settings = gathered(LogDetMetricSettings, self, memory_limit=parse_bytes(self.memory_limit))
        self._prior_metric, self._n_rows = prior_metric(self.prior, rows), len(rows)
        self._rows_kept = rows[sampled(len(rows))]
        session = self._session()
        sizes = sizes_of(side, "linear", self.loss, int(rows.shape[1]))
        solver, place = place_metric(sizes, settings, session)
        posed = pose_metric(rows, self._prior_metric, side, settings.changed(solver=solver), self.loss_params)
        return side, DenseWork(session, posed, place, lambda: place_metric(sizes, settings, session)[1])

    def _check_columns(self, d: int) -> None:
        gathered(LogDetMetricSettings, self, memory_limit=None).check_columns(d, "n_components")

    def _before_search(self, codes: NDArray[np.int64], n_features: int) -> None:
        if codes.max(initial=-1) < 1:
            return  # the search refuses what has no two classes
        settings = gathered(LogDetMetricSettings, self, memory_limit=parse_bytes(self.memory_limit))
        # By the name of no loss: triplets are counted.
        found = sizes_of_labels(codes, self.n_in, self.n_out, "linear", "", n_features, least=True)
        place_metric(found, settings, self._session())

    def _keep(self, posed: GammaProblem, metric: Matrix, solution: LogDetSolution) -> None:
        self._adopt(metric)
        with blas_threads_for(len(metric)):
            self.components_ = posed.cut(self.components_)
        self.certificate_, self.n_iter_ = solution.certificate, solution.n_iter
        self.solver_, self.method_ = solution.solver, solution.method
