"""`PairwiseKernelLearner`: the estimator of kernel learning from must-link and cannot-link pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.slabs.export import as_dask
from dkl.errors import InputError
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel, lazily
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.side_information import given_labels, note_unused, resolve_pairs
from dkl.estimators.base.validation import checked_rows, is_large, random_stream, rows_in_place
from dkl.estimators.base.work_folder import next_run
from dkl.estimators.pairwise.choice import fit_pairs, problem_of, scale_of
from dkl.estimators.pairwise.extension import extend_factor
from dkl.estimators.pairwise.fit import PairwiseFit, graph_for
from dkl.estimators.pairwise.held_out import HeldOutPairs, check_pairs
from dkl.estimators.pairwise.plot_data import kept_pairs, plot_data
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import FitStorage, kept_in, notes_of, report_of, write_result
from dkl.plotting.figures import draw_plot
from dkl.resources import one_blas_thread, parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserCallbacks, UserFolder, UserLabels, UserPairs, UserRows, UserSeed
    from dkl.plotting.figures import Axes


class PairwiseKernelLearner(CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Learn a kernel K = V V' from must-link and cannot-link pairs and a neighbor graph.

    Minimizes, over positive semidefinite K,

        tr(K L) + gamma/2 * sum over (i,j) in T of W_ij (K_ij - T_ij)^2           (Hu & Kwok 2013, problem (1), has W = 1)

    with L the Laplacian of the k-nearest-neighbor similarity graph, and T = 1 on the diagonal and on must-link pairs, 0
    on cannot-link pairs. W_ij is the weight of a pair, 1 on the diagonal and where none is given.

    Parameters
    ----------
    rank : int or "auto"
        Columns of ADMM's factor; what proves a gap (`target_gap`) chooses its own. "auto" is for ADMM the paper's rule: the
        largest r with r (r + 1) / 2 <= m, m the entries of T.
    gamma : float or "cv"
        Weight of the pairs (the paper's gamma). The more of them are wrong, the less it should be: "cv" takes the one of 1, 10 and
        100 times the Laplacian's largest entry under which pairs held out are most likely, on one graph with warm starts.
    contradictions : "keep", "drop" or "raise"
        Cannot-links whose ends the must-links join: kept with a DataWarning, as gamma says how far each pair is trusted, left out,
        or refused. See `Pairs.check`, also for pairs given both ways.
    wrong_pairs : "auto", "find" or "trust"
        "find": pairs are held out in `cv` folds at gamma and less, and only where less makes them more likely the fit is there, with
        each pair's weight times 1 - P(wrong); `result_.wrong_pairs` says which pairs look wrong. That takes three to ten times
        as long. "auto": where pairs contradict each other, which proves that some are wrong. "trust": never. Right pairs give
        the same kernel, byte for byte.
    solver : "auto", "admm" or "factored"
        "admm" is the paper's Algorithm 1 (see `stopping`), out of core where memory asks for it. "factored" works on
        K = V V' at a low rank that it chooses itself, to a proven relative gap (`target_gap`, or `tol` if it is None), in memory.
        "auto" is "factored" where a gap is to be proven, no rank is given and it fits in `memory_limit`, else "admm".
    n_neighbors, sigma, laplacian, neighbors_method
        The graph: neighbors of each pattern; width of the similarity: a number, of exp(-d^2 / (2 sigma^2)), "average" or "auto", half
        the mean distance to the 10 nearest in its place, "kth", the mean distance to the last of `n_neighbors`, or "local",
        exp(-d^2 / max(s_i, s_j)^2) where s_i is the distance of row i to the last of its neighbors; "normalized" or "unnormalized";
        "exact", "approximate" (faiss) or "auto".
    affinity : "neighbors" or "precomputed"
        "precomputed": X is a sparse symmetric matrix of similarities (n, n), used in place of the graph.
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    rho, adapt_rho : float, bool or "paper"
        ADMM's penalty at the start, and whether (15) adapts it: down to 10 or, where larger, a bound of the Laplacian's eigenvalues, below
        which ADMM is not stable, with a guard against cycles. "paper": as printed, down to 10 whatever the Laplacian, without a guard.
    stopping, max_iter, tol
        ADMM ends when both residuals (14) are at most `tol`: "relative" to what they are differences of, or with stopping="paper"
        as they are, as in Algorithm 1; K is U U' then, otherwise its best multiple.
    target_gap : float, None or "none"
        The relative gap that the certificate is to prove, by default 1 %. The factored solver works until it does; after
        ADMM it continues where ADMM's own end does not prove it. That one works in this process, or with the rows shared
        out over the client's workers where it would take a quarter of the memory here, or more than `memory_limit`. Only what is
        proven is SOLVED: with None ADMM ends as STATIONARY, by `tol`, at whatever gap that leaves.
    cv, n_gammas : int
        Where pairs are held out: folds, and values of gamma on the path of two decades.
    holdout : float
        Share of the pairs that `result_.quality` is measured on, at most 0.5; 0: it is not measured. A kernel is learned without them
        first, to a loose gap, and the fit of all pairs starts from it; where folds choose gamma or find wrong pairs, theirs are used.
    dtype : "float64" or "float32"
    memory_limit : int, str or None
        Bytes a process may use in addition to an X in memory, as 4_000_000_000 or "4 GB". A larger state is kept on disk.
    work_dir : path or None
        Folder for the run's store (checkpoints, result). None: nothing is kept; a state on disk goes to a temporary folder.
    checkpoint_every : int or "auto"
        Iterations between commits; "auto" goes by time (about every 30 s). Only with `work_dir`.
    client : distributed.Client or None
        Where to run. None finds the current client, if there is one, else uses threads of this process.
    warm_start : bool
        Start from the factor of the fit before (a path over gamma, say). Not with gamma="cv", which has its own start.
    n_jobs, random_state, callbacks, verbose
        Threads; seed; functions called with each row of the history (True ends the fit: the factor so far is the result, with its
        certificate); progress on standard error.

    Attributes
    ----------
    factor_ : (n, rank_) ndarray, or dask array over zarr where the state was kept on disk; of ADMM sqrt(t) U, t that of the least
        objective
    certificate_ : Certificate; objective, gap, relative_gap, min_eigenvalue
    result_ : Result; outcome, n_iter, history, seconds, peak_bytes, wrong_pairs (`WrongPairs` where these were looked for)
    gamma_ : the gamma used; cv_ : GammaChoice, where pairs were held out: gammas and log_likelihood (k,), scores (k, m); else None
    solver_ : "admm" or "factored", the one that was used
    rank_, n_iter_, scale_ (means and spreads of the columns, or None), n_features_in_, graph_, run_path_

    See Also
    --------
    LogDetKernelLearner : Kernels near a given one, from triplets, pairs or labels.
    LaplacianKernelLearner : Kernels from pairs in a basis of smooth functions.
    KernelKMeans : Clusters of the learned kernel.
    sklearn.cluster.SpectralClustering : Clusters of such a graph, without pairs.

    References
    ----------
    E.-L. Hu, J. T. Kwok, Efficient kernel learning from side information using ADMM, IJCAI 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import dkl
    >>> X, y = load_iris(return_X_y=True)
    >>> pairs = dkl.Pairs.from_labels(y, n_must=60, n_cannot=60, random_state=0)
    >>> model = dkl.PairwiseKernelLearner(n_jobs=1, random_state=0).fit(X, pairs=pairs)
    >>> bool(model.certificate_.relative_gap <= 0.01)
    True
    >>> clusters = dkl.KernelKMeans(3, random_state=0).fit_predict(model.factor_)
    >>> bool(dkl.pair_accuracy(y, clusters) > 0.9)
    True
    """

    def __init__(
        self,
        rank: int | str = "auto",
        *,
        gamma: float | str = 100.0,
        contradictions: str = "keep",
        wrong_pairs: str = "auto",
        solver: str = "auto",
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        laplacian: str = "normalized",
        neighbors_method: str = "auto",
        affinity: str = "neighbors",
        standardize: bool | str = "auto",
        rho: float = 100.0,
        adapt_rho: bool | str = True,
        stopping: str = "relative",
        max_iter: int = 500,
        tol: float = 1e-4,
        target_gap: float | str | None = 1e-2,
        cv: int = 3,
        n_gammas: int = 3,
        holdout: float = 0.1,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        work_dir: UserFolder = None,
        checkpoint_every: int | str = "auto",
        client: object = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
    ) -> None:
        self.rank = rank
        self.gamma = gamma
        self.contradictions = contradictions
        self.wrong_pairs = wrong_pairs
        self.solver = solver
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.laplacian = laplacian
        self.neighbors_method = neighbors_method
        self.affinity = affinity
        self.standardize = standardize
        self.rho = rho
        self.adapt_rho = adapt_rho
        self.stopping = stopping
        self.max_iter = max_iter
        self.tol = tol
        self.target_gap = target_gap
        self.cv = cv
        self.n_gammas = n_gammas
        self.holdout = holdout
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.work_dir = work_dir
        self.checkpoint_every = checkpoint_every
        self.client = client
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(
        self, X: UserRows, y: UserLabels = None, *, must_link: UserPairs = None, cannot_link: UserPairs = None,
        pairs: UserPairs = None, pair_weights: object = None, sample_ids: UserLabels = None,
    ) -> PairwiseKernelLearner:  # fmt: skip
        """Learn the kernel of the rows of X.

        Side information is one of: `must_link` and `cannot_link`; `pairs`; or `y`, from which pairs are drawn: all of few labeled
        rows, else 5 of each kind a labeled row. With pairs y is not learned from, and a DataWarning says so, except in
        cross-validation, where scores need it.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse, or similarities (n, n)
        y : (n,) labels, optional; -1, None or NaN for unlabeled
        must_link, cannot_link : (m, 2) integer arrays of row numbers, optional
        pairs : dkl.Pairs, optional
            May have weights.
        pair_weights : (m,) finite numbers >= 0, optional
            With plain arrays: how sure one is of each pair, those of `must_link` first. A pair of weight 2 counts as if it were there
            twice, of weight 0 as if it were not. A pair that is repeated with the same weight counts once, and with another one is refused.
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
        DiskError
            Where `work_dir` cannot be written to.
        NumericalError
            Where a value stops being finite: lower `gamma`.
        """
        check_parameters(self, PairwiseSettings)
        watch, settings = watch_for(self.callbacks, self.verbose), self._settings()
        path = None if self.work_dir is None else next_run(self.work_dir, "pairwise")
        rows = self._rows(X, reset=True)
        n = int(rows.shape[0])
        if all(given is None for given in (y, must_link, cannot_link, pairs)):
            raise InputError(
                "PairwiseKernelLearner requires y to be passed, but the target y is None",
                remedy="pass must_link and cannot_link, or pairs, or y with -1, None or NaN for unlabeled",
            )
        note_unused(y, sample_ids, (must_link, cannot_link, pairs), "must_link, cannot_link or pairs")
        resolved = resolve_pairs(
            n,
            y=given_labels(y),
            must_link=must_link,
            cannot_link=cannot_link,
            pairs=pairs,
            weights=pair_weights,
            sample_ids=sample_ids,
            random_state=self.random_state,
            contradictions=settings.contradictions,
            takes_weights=True,
        )
        # Of a normalized Laplacian the scale is known before the graph is built: its diagonal is 1.
        check_pairs(n, resolved, settings, 1.0 if settings.laplacian == "normalized" else None)
        session = self._session(path)
        graph = graph_for(rows, session, settings, is_affinity=self.affinity == "precomputed")
        problem = problem_of(graph.laplacian, resolved, settings)
        warm = getattr(self, "factor_", None) if self.warm_start else None
        # A factor of other rows is no start; warm_start with new data begins afresh, as scikit-learn's learners do.
        if warm is not None and warm.shape[0] != n:
            warm = None
        is_affinity = self.affinity == "precomputed"
        names = getattr(self, "feature_names_in_", None)
        held = HeldOutPairs.of(rows, resolved, settings, scale_of(graph.laplacian), is_affinity=is_affinity)
        with (
            watch,
            kept_in(path, problem, resolved, graph, settings, session, held, self.scale_, names) as kept,
            one_blas_thread(),
        ):
            fitted = fit_pairs(
                problem,
                resolved,
                settings,
                session,
                held=held,
                run=kept.run,
                scratch=kept.scratch,
                watch=watch,
                warm_start=None if warm is None else np.asarray(warm),
                seconds={"graph": graph.seconds},
            )
            if kept.run is not None:
                write_result(kept.run, fitted, report_of(fitted, notes_of(graph)))
            self._keep(fitted, kept)
        self.graph_: Any = graph  # Any: `load` restores a part of a graph
        self._fit_rows = rows
        self._pairs_kept = kept_pairs(resolved.must_link), kept_pairs(resolved.cannot_link)
        return self

    def fit_transform(self, X: UserRows, y: UserLabels = None, **fit_params: object) -> Any:
        """Learn, and return the factor: row i belongs to row i of X."""
        return self.fit(X, y, **fit_params).factor_

    def transform(self, X: UserRows) -> Any:
        """Return the factor's rows for the rows of X.

        The rows that were learned from get their own. For others the factor is extended over the graph: the point that
        minimizes the smoothness term given its neighbors, v(x) = sum_j w_j v_j / sum_j w_j over the `n_neighbors`
        nearest learned rows, scaled to K(x, x) = 1 as T asks. For X of Dask, a dask array.
        """
        check_is_fitted(self)
        self._require_neighbors()
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out), self.factor_.dtype))
        return self._extended(self._rows(X, reset=False))

    def _extended(self, rows: Any) -> Any:
        """Return the factor's rows for checked rows, standardized like those learned from."""
        self._require_neighbors()
        learned = self._fit_rows() if callable(self._fit_rows) else self._fit_rows
        return extend_factor(rows, learned, self.factor_, self.graph_.similarity, self.n_jobs)

    def _require_neighbors(self) -> None:
        """Raise InputError where new rows have no neighbors among those learned from."""
        if self.affinity == "precomputed":
            raise InputError(
                "new rows have no neighbors here", where="transform", remedy="use factor_, or fit on features"
            )
        if getattr(self, "_fit_rows", None) is None:
            raise InputError(
                "a learner that was loaded does not have the patterns it learned from", where="transform",
                remedy="use factor_, or the learner that was fitted",
            )  # fmt: skip

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the kernel: a new matplotlib Figure with all panels, or `ax` with the patterns in the plane.

        y (n,): labels of the patterns, -1, None or NaN for unlabeled; without them the patterns are clustered by
        k-means on the factor, in as many clusters as K has eigenvalues before the largest drop. X (m, d): rows to show in
        place of those that were learned from, transformed; y (m,) are theirs then.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Return the names of the factor's columns, (rank_,)."""
        return super().get_feature_names_out(input_features)

    @property
    def _n_features_out(self) -> int:
        return int(self.rank_)

    # -- parts of fit -------------------------------------------------------------------------------------------------

    def _rows(self, X: UserRows, *, reset: bool) -> Any:
        """Return X for the graph builder: arrays in memory are checked by scikit-learn, others stay in place."""
        if not is_large(X):
            return checked_rows(self, X, reset=reset, least=2 if reset else 1)
        source = rows_in_place(self, X, reset=reset)
        if reset and source.n < 2:
            raise InputError("too few patterns", where="X", got=f"shape {source.array.shape}", wanted="2 or more")
        return source.array

    def _settings(self) -> PairwiseSettings:
        seed = int(random_stream(self.random_state).randint(np.iinfo(np.int32).max))
        return gathered(PairwiseSettings, self, seed=seed, memory_limit=parse_bytes(self.memory_limit))

    def _keep(self, fitted: PairwiseFit, kept: FitStorage) -> None:
        self.run_path_ = None if kept.run is None else str(kept.run.path)
        if fitted.factor is not None:
            self.factor_ = fitted.factor
        elif kept.run is not None:
            self.factor_ = as_dask(kept.run)
        else:
            # The state was too large for the limit and there is no folder to keep the result in: it comes into memory.
            assert kept.scratch is not None
            self.factor_ = np.asarray(kept.scratch.factor()[...])
        self.certificate_, self.result_ = fitted.certificate, fitted.result
        self.rank_, self.n_iter_, self.solver_ = fitted.rank, fitted.result.n_iter, fitted.solver
        self.gamma_, self.cv_ = fitted.gamma, fitted.choice
