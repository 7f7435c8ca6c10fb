"""`LogDetKernelLearner`: the estimator of LogDet kernel learning from triplets, pairs, labels or constraints."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from dkl.blocks.memory_plan import note_idle_workers
from dkl.blocks.workers.dense_work import DenseWork, blas_threads
from dkl.estimators.base.learned_kernel import Indices, KernelLearner, Matrix
from dkl.estimators.base.metric_constraints import check_loss_choice
from dkl.estimators.base.plot_rows import labels_at, sampled
from dkl.estimators.base.prior_kernels import PriorKernel
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.settings import gathered
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.logdet import plot_data
from dkl.estimators.logdet.fit import GammaProblem, LogDetPath, learned_matrix, pose_kernel, solved, values_of_gamma
from dkl.estimators.logdet.plan import KernelPlan, plan_kernel, sizes_of, sizes_of_labels
from dkl.estimators.logdet.quality import HeldOutPart
from dkl.estimators.logdet.settings import LogDetKernelSettings
from dkl.linalg.eigen.principal_coordinates import principal_coordinates
from dkl.plotting.figures import PlotData, draw_plot
from dkl.resources import parse_bytes
from dkl.solvers.logdet.solve import LogDetSolution

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dkl.estimators.base.validation import (
        CheckedRows,
        UserCallbacks,
        UserConstraints,
        UserKernel,
        UserLabels,
        UserLoss,
        UserPairs,
        UserRows,
        UserSeed,
    )
    from dkl.linalg.rows import Rows
    from dkl.plotting.figures import Axes
    from dkl.solvers.watch import Result


class LogDetKernelLearner(KernelLearner):
    """Learn a kernel near a given one from triplets, pairs, labels, or any constraints on its entries.

    Minimizes, over positive semidefinite K,

        gamma/m * sum over constraints t of psi(tr(K A_t)) + tr(K K0^-1) - log det(K K0^-1) - n         (Li et al. 2009, (3))

    with tr(K A_t) = d^2(anchor, dissimilar) - d^2(anchor, similar) of a triplet, d^2(i, j) = K_ii + K_jj - 2 K_ij, or with
    symmetric matrices A_t of the user's own (`constraints` of `fit`). The optimum
    is K = K0 + K0[:, P] M K0[P, :], P the rows that constraints touch: it is found from K0 at P alone, whatever n is, and it
    extends to unseen rows by k(x, z) = k0(x, z) + k0(x, P) M k0(P, z), where the paper is transductive.

    Parameters
    ----------
    gamma : float
        Weight of the loss; divided by the number m of labeled rows where `normalize_gamma` (without labels, of rows that
        constraints touch). On digits, wine and USPS errors hardly change from 16 to 256 (benchmarks/logdet/logdet_accuracy.md).
    loss : "log", "lmnn", "hinge", "linear", "itml", "hoi", "hoi_hinge" or an object
        psi: log(1 + exp(-2 x)), the hinge smoothed by (8), the hinge max(1 - x, 0) itself, -x, all of triplets; ITML's of pairs'
        squared distances; Hoi's hinge of their kernel values, smoothed or itself. All but ITML's are of constraints, too. An object
        has value, first and second, functions of margins (c,), and is convex; with `margins_of`, the inverse of its slope, it is solved
        on the dual, as "log" is.
    loss_params : dict or None
        `t` of "lmnn" and "hoi"; `upper` and `lower` of "itml", bounds of squared distances, by default the 5th and 95th
        percentile of those under K0.
    kernel : str or function
        K0: "rbf" or another name of `sklearn.metrics.pairwise.pairwise_kernels`; "laplacian", the paper's: the
        pseudo-inverse of the Laplacian of the neighbor graph, of which unseen rows are the means of their nearest neighbors,
        weighted by similarity, and which takes memory for n x n numbers; a function of two rows; or "precomputed": X is K0
        (n, n), and unseen rows are (m, n).
    kernel_params : dict or None
        Of the kernel: `gamma` (by default SVC's "scale"), `degree`, `coef0`; of "laplacian": `sigma`, a number, "average", "kth" or
        "local" as in `dkl.PairwiseKernelLearner`, by default local widths with sharper weights, exp(-3 d^2 / max(s_i, s_j)^2); and
        `laplacian`. The paper has the "unnormalized" one (table 5 in benchmarks/logdet/logdet_accuracy.md).
    n_neighbors : int
        Neighbors of a row in the graph of "laplacian".
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), for later rows too. "auto" does so, with a
        warning, where some of far larger spread decide all distances, or where the default width would be that of their means.
    normalize_gamma : bool
    n_in, n_out : int
        From labels: nearest rows of the same class, and of others, that each labeled row is compared with.
    contradictions : "keep", "drop" or "raise"
        Pairs, or triplets, that contradict each other: kept, as the loss weighs them, with a DataWarning; left out; or refused.
        See `Pairs.check` and `Triplets.check`.
    n_components, center
        Principal components that `transform` returns, about the mean of the training rows or not; the paper has 10. Of more
        than 5,000 rows they are those of the rows that constraints touch.
    solver : "auto", "pcg", "direct" or "paper"
        How the systems of Newton's method are solved: by the paper's preconditioned conjugate gradients, by a factorization of
        the constraints that count, or by whichever takes less (reported as `solver_`). The method goes up the dual for "log" and
        the hinges themselves, which ever narrower smooth hinges approach. For the others it is a trust region as in the paper,
        but of the local norm |K^-1/2 D K^-1/2|, and a step is halved where the paper solves (7) again.
        "paper": the paper's own, on the entries of K, by (6), (7) and rho_k, for every loss but the hinges.
    tol, max_iter
        Relative duality gap, or with solver="paper" the gradient's norm |G|_F; Newton steps.
    holdout : float
        Share of the labeled rows of each class, of triplets, pairs or constraints, that `result_.quality` is measured on, at most 0.5;
        0: it is not measured, as it is not by `path`. The final fit is on all, and starts from what was learned without that share.
    memory_limit : int, str or None
        Bytes this process may use; what needs more is refused before it starts.
    client, n_jobs, random_state, callbacks, verbose
        Where the graph is built; its threads; of no effect, nothing is random; functions called with each row of the history
        (True ends the fit: the kernel so far is the result, with its certificate); progress on standard error.

    Attributes
    ----------
    points_ : (p,) P, rows that constraints touch; M_ : (p, p) symmetric
    certificate_ : objective of (3), bound, gap, relative_gap: how far from the optimum it can be
    result_ : Result; outcome, n_iter, history, seconds
    method_ : whose Newton steps were taken, "primal", "dual" or "central path", or one after another, "dual, primal"
    n_iter_ : their number; solver_ : "pcg", "direct" or "paper", or "auto" where both were taken, or no step was; scale_, n_features_in_

    See Also
    --------
    LogDetMetricLearner : The same problem of a distance (d, d).
    PairwiseKernelLearner : Kernels from pairs alone, by a neighbor graph.
    dkl.baselines.ITMLKernelLearner : Bregman projections, of loss="itml".
    dkl.baselines.ConjugateGradientKernelLearner : The same problem by gradients.
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    F. Li, Y. Fu, Y.-H. Dai, C. Sminchisescu, J. Wang, Kernel learning by unconstrained optimization, AISTATS 2009.
    S. C. H. Hoi, R. Jin, M. R. Lyu, Learning non-parametric kernel matrices from pairwise constraints, ICML 2007.
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon, Information-theoretic metric learning, ICML 2007.
    doi:10.1145/1273496.1273523

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import LogDetKernelLearner
    >>> X = np.array([[0.0, 0.0], [0.0, 4.0], [1.0, 0.0], [1.0, 4.0]])
    >>> model = LogDetKernelLearner(kernel="linear", gamma=10.0).fit(X, triplets=[[0, 1, 2], [2, 3, 0]])
    >>> K = model.kernel_matrix(X)
    >>> bool(K[0, 0] + K[1, 1] - 2 * K[0, 1] < K[0, 0] + K[2, 2] - 2 * K[0, 2])
    True
    """

    SETTINGS = LogDetKernelSettings
    SENT = ("kernel", "loss")

    def __init__(
        self,
        gamma: float = 16.0,
        *,
        loss: UserLoss = "log",
        loss_params: dict[str, object] | None = None,
        kernel: UserKernel = "rbf",
        kernel_params: dict[str, object] | None = None,
        n_neighbors: int = 10,
        standardize: bool | str = "auto",
        normalize_gamma: bool = True,
        n_in: int = 10,
        n_out: int = 10,
        contradictions: str = "keep",
        n_components: int = 30,
        center: bool = True,
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
        self.kernel = kernel
        self.kernel_params = kernel_params
        self.n_neighbors = n_neighbors
        self.standardize = standardize
        self.normalize_gamma = normalize_gamma
        self.n_in = n_in
        self.n_out = n_out
        self.contradictions = contradictions
        self.n_components = n_components
        self.center = center
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
    ) -> LogDetKernelLearner:
        """Learn from rows X (n, d) and one of: labels, triplets, pairs, or constraints.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse, or K0 (n, n)
        y : (n,) labels, optional; -1, None or NaN for unlabeled
        triplets : dkl.Triplets or (m, 3) integer array, optional
        must_link, cannot_link : (m, 2) integer arrays of row numbers, optional
        pairs : dkl.Pairs, optional
            Instead of `must_link` and `cannot_link`.
        constraints : list of symmetric matrices A_t (n, n), sparse or dense, or (m, 4) table, optional
            Any constraints tr(K A_t), which the losses that have names want to be large. A row of the table is an entry: t, counted
            from 0, i, j and A_t[i, j], of both halves. A triplet (a, s, d) is A[a, s] = A[s, a] = 1, A[a, d] = A[d, a] = -1,
            A[s, s] = -1, A[d, d] = 1. Equal matrices count each, and `contradictions` plays no part.
        sample_ids : (n,) distinct integers, optional
            Identifiers of the rows, in cross-validation: side information is then of these.

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
            side, prior, rows, work, plan = self._posed(X, y, **given, sample_ids=sample_ids)
            gamma = work.data.settings.gamma
            # First: the kernel without the held-out part is where the fit of all of it starts.
            held = HeldOutPart.of(work.data, side, gamma, watch, work.call)
            (solution,), result = solved(work, [gamma], watch, held.start)
            # Where the constraints are: M is p x p, and K0 may be on a worker alone.
            M = work.call(learned_matrix, solution)
            with blas_threads(plan.threads):
                self._keep(prior, rows, work.data.points, M, solution)
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
        """Return the kernels at each of `gammas` in the given order, each started where those before predict.

        The learner's own gamma plays no part.

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
            _, prior, rows, work, plan = model._posed(X, y, **given, sample_ids=sample_ids)
            found, result = solved(work, [float(gamma) for gamma in values], watch)

        at = partial(model._at, values, found, result, prior, rows, work.data, plan.threads)
        return LogDetPath.of(values, found, result, at)

    def _at(
        self,
        gammas: NDArray[np.float64],
        found: list[LogDetSolution],
        result: Result,
        prior: PriorKernel,
        rows: UserRows,
        posed: GammaProblem,
        threads: int,
        i: int,
    ) -> LogDetKernelLearner:
        """Return the fitted learner of solution i, wherever this runs: the workers of the path may be gone."""
        made = copy.copy(self)
        made.gamma, made.result_ = float(gammas[i]), result
        with blas_threads(threads):
            made._keep(prior, rows, posed.points, learned_matrix(posed, found[i]), found[i])
        return made

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the kernel: a new matplotlib Figure with all panels, or `ax` with the rows in two dimensions.

        X (m, d): rows to show in place of those that were learned from; y (m,): their labels, -1, None or NaN for none.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: self._plot_data(X, y))

    def _plot_data(self, X: UserRows, y: UserLabels) -> PlotData:
        given = self._prior.training_rows if X is None else checked_rows(self, X, reset=False)
        n, points, most = int(given.shape[0]), self.points_, plot_data.MOST_DECOMPOSED
        chosen = sampled(n)
        # Some of the basis: a picture shows a few thousand rows, and its matrices are of those alone.
        rows, basis, at = given[chosen], self._basis[sampled(len(self._basis), most)], sampled(len(points), most)
        K0 = self._prior.within(points)[at]
        (at_basis,) = self._prior.across(rows, basis)
        weights, offset = principal_coordinates(self._prior.within(basis), self.n_components, center=self.center)
        prior, learned = K0[:, at], K0[:, at] + K0 @ self.M_ @ K0.T
        return plot_data.plot_data(
            at_basis @ weights - offset, self._components_of(rows), labels_at(y, n, chosen), prior, learned, n=n, what="kernel",
            n_matrix=len(points), result=self.result_, relative_gap=self.certificate_.relative_gap,
            path=getattr(self, "_path", ()),
        )  # fmt: skip

    def _posed(
        self, X: UserRows, y: UserLabels, **given: object
    ) -> tuple[SideInformation, PriorKernel, Rows, DenseWork, KernelPlan]:
        side, rows = self._given(X, y, **given)
        check_loss_choice(side, self.loss, self.loss_params)
        settings = gathered(LogDetKernelSettings, self, memory_limit=parse_bytes(self.memory_limit))
        sizes = sizes_of(side, settings.kernel, settings.loss, int(rows.shape[1]))
        session = self._session()
        plan = plan_kernel(sizes, settings, session)
        note_idle_workers(plan.plan)
        with blas_threads(plan.threads):
            prior = self._prior_of(rows, session)
            posed = pose_kernel(prior, side, settings.changed(solver=plan.solver), self.loss_params)
        work = DenseWork(session, posed, plan.place, lambda: plan_kernel(sizes, settings, session).place)
        return side, prior, rows, work, plan

    def _before_search(self, codes: NDArray[np.int64], n_features: int) -> None:
        if codes.max(initial=-1) < 1:
            return  # the search refuses what has no two classes
        settings = gathered(LogDetKernelSettings, self, memory_limit=parse_bytes(self.memory_limit))
        sizes = sizes_of_labels(codes, self.n_in, self.n_out, self.kernel, self.loss, n_features, least=True)
        # By the least size that these classes can lead to: what is refused then would be refused in any case, minutes later.
        plan_kernel(sizes, settings, self._session())

    def _keep(
        self, prior: PriorKernel, rows: CheckedRows, points: Indices, M: Matrix, solution: LogDetSolution
    ) -> None:
        self._adopt(prior, rows, points, M)
        self.certificate_, self.n_iter_ = solution.certificate, solution.n_iter
        self.solver_, self.method_ = solution.solver, solution.method
