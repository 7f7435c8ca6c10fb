"""Kernel k-means: clusters of patterns from a factor of a kernel, a learner, or the patterns."""

from __future__ import annotations

import time
import warnings
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.kernels.kernel_checks import check_matrix, check_square
from dkl.blocks.rows.predictions import rows_to_predict
from dkl.blocks.rows.row_blocks import RowBlocks, machine_memory
from dkl.blocks.rows.row_sources import RowSource, is_dask
from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError
from dkl.estimators.base.mixins import KernelParameter, lazily
from dkl.estimators.base.progress import warn_of, watch_for
from dkl.estimators.base.validation import checked_rows, given_rows, random_stream
from dkl.estimators.kmeans.plot_data import plot_data, view_of
from dkl.io.plain_arrays import largest_value, refuse_promise, refuse_too_large, with_short_indices
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.kernels.kernel_operators import MATRICES_HELD, exact_factor
from dkl.plotting.figures import draw_plot
from dkl.problems.kmeans import Centers, KMeansProblem, label_rows
from dkl.resources import format_bytes, parse_bytes, peak_rss
from dkl.solvers.kmeans import at_random, lloyd, plus_plus
from dkl.solvers.watch import Outcome, Result, Watch, remedies

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.validation import UserCallbacks, UserKernel, UserLabels, UserParams, UserRows, UserSeed
    from dkl.plotting.figures import Axes

ROWS_ARE_FEATURES = ("factor", "linear")
SAME_INERTIA = 1e-10
"""Relative difference of inertia below which restarts found the same clustering; the first counts."""
SHIFT = "squared shift of the centers"
REMEDIES = remedies(
    iteration_limit="raise max_iter or tol",
    stalled="raise tol",
    numerical_error="a value is not finite: scale the rows",
)


class KernelKMeans(ClusterMixin, KernelParameter):
    """k-means in the feature space of a kernel K = V V', that is, k-means on the rows of V.

        minimize over labels:  sum_i |phi(x_i) - mean of phi over the cluster of i|^2  =  sum_i min_j |v_i - c_j|^2

    Lloyd's algorithm from greedy k-means++ starts, all restarts in one pass over the rows; the rows are processed block
    by block, on threads or on the workers of a Dask cluster, and may be larger than memory. The result has the same
    bits on any number of threads and workers.

    Parameters
    ----------
    n_clusters : int
    kernel : "factor", "linear", "precomputed", a kernel's name in scikit-learn, or a callable on two rows
        With "factor" or "linear" the rows given are the v_i: ndarray, sparse, np.memmap, dask or zarr array, path to a
        .npy file or zarr array, any 2-d object with shape, dtype and slices; or a fitted learner, an object with a
        `factor_`. With any other, the n x n kernel matrix of the patterns is decomposed, which takes 48 n^2 bytes and
        time of order n^3.
    gamma, degree, coef0, kernel_params : as in sklearn.metrics.pairwise.pairwise_kernels
        `kernel_params` is for callables and kernels with other parameters.
    init : "k-means++", "random" or array (n_clusters, r)
        An array makes a single start, whatever n_init.
    n_init : int, or "auto": one start with "k-means++", ten with "random"
        The start that ends with the least inertia counts.
    max_iter : int
        Most iterations of a start.
    tol : float
        A start has converged when no label changes, or when the squared shift of its centers is at most `tol` times the
        mean variance of the columns.
    random_state : int, RandomState or None
    client : distributed.Client, or None for the current one, or threads without any
        Where the rows are. A kernel of patterns is factored in this process: its factor, which is as large, is clustered from here.
    n_jobs : int or None
        Threads where there is no client; None: as many as processors.
    memory_limit : bytes, or a text such as "4 GB"
        How much of rows that are not in this process' memory already a process may hold. Default: a quarter of the
        machine's memory, or two fifths of a worker's. Below it stored rows are kept, above it they are read again in
        each iteration.
    callbacks : function or list of functions, or None
        Called with each row of the history: the centers of k-means++ one by one, then the iterations. True ends the fit: the
        centers so far are the result, with those that are still to be drawn taken at random.
    verbose : int
        1 shows progress on standard error.

    Attributes
    ----------
    labels_ : (n,) int32
    cluster_centers_ : (n_clusters, r)
        Means of the rows. With a kernel, in the coordinates of an exact factor of the kernel matrix about its means.
    inertia_ : float
        Sum of squared distances to the nearest center, in units of the kernel.
    n_iter_ : int
        Iterations of the start that counts.
    result_ : Result; outcome, history, seconds, peak_bytes
    n_features_in_ : int
    X_fit_ : the patterns, which `predict` needs, with a kernel other than "factor", "linear" and "precomputed"

    See Also
    --------
    PairwiseKernelLearner : A kernel to cluster, from pairs.
    SpectralClustering : Clusters of a neighbor graph.
    sklearn.cluster.KMeans : The same of rows in memory, without a kernel.

    References
    ----------
    I. Dhillon, Y. Guan, B. Kulis, Kernel k-means, spectral clustering and normalized cuts, KDD 2004.
    D. Arthur, S. Vassilvitskii, k-means++: the advantages of careful seeding, SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import KernelKMeans
    >>> KernelKMeans(2, random_state=0).fit_predict(np.array([[0.0], [0.1], [9.0], [9.1]])).tolist()
    [0, 0, 1, 1]
    """

    _projection: NDArray[np.float64]

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: UserKernel = "factor",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: UserParams | None = None,
        init: object = "k-means++",
        n_init: int | str = 10,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: UserSeed = None,
        client: object = None,
        n_jobs: int | None = None,
        memory_limit: int | float | str | None = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.client = client
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: UserRows, y: UserLabels = None) -> KernelKMeans:
        """Cluster the rows of a factor, a learner's patterns, or patterns under a kernel.

        Warns with ConvergenceWarning when max_iter came first, or when there are fewer distinct rows than clusters.

        Parameters
        ----------
        X : rows of a factor, a fitted learner, patterns, or a kernel matrix, as `kernel` asks
        y : not used

        Returns
        -------
        self

        Raises
        ------
        InputError
            For rows that are not finite numbers, fewer rows than clusters, or a kernel matrix that is not positive semidefinite.
        MemoryBudgetError
            When the work does not fit into memory_limit.
        """
        return self._fit_on(X, self._session())

    def _fit_on(self, X: UserRows, session: Session) -> KernelKMeans:
        """Implement `fit` on a session."""
        self._check_parameters()
        watch, started = watch_for(self.callbacks, self.verbose), time.perf_counter()
        rows = RowBlocks(self._rows(X, reset=True), session, self.memory_limit)
        problem = KMeansProblem(rows)
        with watch:
            starts = self._starts(problem, watch)
            # tol is relative to the rows' spread, as scikit-learn has it: a shift of centers has the unit of the rows.
            asked = self.tol * problem.variance
            found = lloyd(problem, starts, max_iter=self.max_iter, tol=asked, watch=watch)
        solved = time.perf_counter()
        inertias = problem.inertia(found.centers)
        # Of restarts that agree but for rounding always the first, or rounding could decide how clusters are numbered.
        best = int(np.flatnonzero(inertias <= inertias.min() * (1 + SAME_INERTIA))[0])
        self.cluster_centers_ = problem.shifted(found.centers[best], +1).astype(rows.dtype)
        # By the centers as they are handed out, in the rows' dtype: `predict` of the same rows gives these labels.
        self.labels_, self.inertia_ = label_rows(rows, self.cluster_centers_)
        self.n_iter_ = int(found.n_iter[best])
        outcome = Outcome.SOLVED if found.converged[best] else found.outcome
        seconds = {"solve": solved - started, "labels": time.perf_counter() - solved}
        seconds["total"] = watch.seconds
        self.result_ = Result(
            outcome, self.n_iter_, watch.history, seconds, peak_rss(), remedy=REMEDIES[outcome],
            proven=float(found.shifts[best]), asked=asked, measure=SHIFT,
        )  # fmt: skip
        self._view_kept = view_of(rows.source, self.labels_, self.cluster_centers_)
        self._warn()
        return self

    def predict(self, X: UserRows) -> NDArray[np.int32]:
        """Return labels (m,) of the nearest centers.

        X is of the kind that was fitted; with "precomputed", the kernel (m, n) between new patterns and those fitted. For X of Dask,
        a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, np.empty(0, np.int32))
        return self._labeled(X, self._session())[0]

    def _labeled(self, X: UserRows, session: Session) -> tuple[NDArray[np.int32], float]:
        """Return labels (m,) of the nearest centers and the sum of squared distances to these."""
        rows = rows_to_predict(self._rows(X, reset=False), session, self.memory_limit)
        return label_rows(rows, self.cluster_centers_)

    def plot(self, ax: Axes | None = None, *, X: UserRows = None, y: UserLabels = None) -> Any:
        """Plot the clusters: a new matplotlib Figure with all panels, or `ax` with the rows in two dimensions.

        X, as `predict` takes it: rows to show in place of a sample of those learned from. y (n,), or (m,) for X: classes
        to hold the clusters against, -1, None or NaN for unlabeled.
        """
        check_is_fitted(self)
        return draw_plot(ax, lambda: plot_data(self, X, y))

    def _rows(self, X: UserRows, *, reset: bool) -> Any:
        """Return an array with the v_i as rows: X, a learner's factor, or coordinates from the kernel of X."""
        refuse_promise(X, "X")
        if hasattr(X, "factor_") or hasattr(X, "get_params"):
            X = self._factor_of(X)
        check = checked_rows if self._is_kernel else given_rows  # a kernel is evaluated on patterns in memory
        rows = check(self, X, reset=reset)
        n = rows.n if isinstance(rows, RowSource) else rows.shape[0]
        if reset and n < self.n_clusters:
            got = f"n_samples={n}, n_clusters={self.n_clusters}"
            raise InputError("fewer samples than clusters", where="X", got=got, wanted="n_samples >= n_clusters")
        if reset and self._is_precomputed:
            check_square(*rows.shape)
            check_matrix(rows)
        return self._coordinates(rows, reset) if self._is_kernel else rows

    @property
    def _is_kernel(self) -> bool:
        return not (isinstance(self.kernel, str) and self.kernel in ROWS_ARE_FEATURES)

    def _factor_of(self, learner: BaseEstimator) -> Any:
        if not hasattr(learner, "factor_"):
            got = f"{type(learner).__name__} without factor_"
            raise InputError("not a fitted learner", where="X", got=got, remedy="fit it first")
        if self._is_kernel:
            got = f"kernel={self.kernel!r}"
            raise InputError("a learner has its own kernel", where="kernel", got=got, wanted='"factor"')
        return learner.factor_

    def _coordinates(self, X: Any, reset: bool) -> NDArray[np.float64]:
        """Return coordinates (m, p) whose inner products are the kernel; found at fit, applied at predict."""
        if not reset:
            return np.asarray(self._kernel_matrix(X, self.X_fit_) @ self._projection)
        _check_memory(X.shape[0], self.memory_limit)
        factor, self._projection = exact_factor(self._kernel_matrix(X, None), where=f"kernel={self.kernel!r}")
        self.X_fit_: Any = None if self._is_precomputed else X
        return factor

    def _kernel_matrix(self, X: Any, Z: Any) -> NDArray[np.floating]:
        from sklearn.metrics.pairwise import pairwise_kernels  # half a second, which a loaded model does without

        if self._is_precomputed:
            return X
        params = {"gamma": self.gamma, "degree": self.degree, "coef0": self.coef0, **(self.kernel_params or {})}
        if callable(self.kernel):
            params = self.kernel_params or {}
        where = f"kernel={self.kernel!r}"
        X, Z = (None if rows is None else with_short_indices(rows.astype(np.float64)) for rows in (X, Z))
        try:
            if self.kernel in ("rbf", "cosine"):
                refuse_too_large(X, largest_value(X.shape[1]))
                # scikit-learn's rbf cancels for rows far from 0, and its cosine takes short rows for 0
                return Kernel(str(self.kernel), params["gamma"]).columns(X, X if Z is None else Z)
            with np.errstate(over="ignore", invalid="ignore"):  # refused below
                K = pairwise_kernels(X, Z, metric=self.kernel, filter_params=not callable(self.kernel), **params)
        except (ValueError, TypeError) as error:
            raise InputError("the kernel cannot be evaluated", where=where, got=error) from error
        if not np.isfinite(K).all():
            i, j = np.argwhere(~np.isfinite(K))[0]
            raise InputError("the kernel is not finite", where=where, got=f"K[{i}, {j}] = {K[i, j]}")
        return K

    def _starts(self, problem: KMeansProblem, watch: Watch) -> Centers:
        """Return starting centers (R, k, r) relative to the problem's offset, each from its own random stream."""
        if not isinstance(self.init, str):
            centers = _numbers(self.init)
            wanted = (self.n_clusters, problem.n_features)
            if centers.shape != wanted or self._is_kernel or not np.isfinite(centers).all():
                remedy = "with a kernel, rows have no coordinates to start from" if self._is_kernel else None
                got = f"shape {centers.shape}"
                raise InputError(
                    "not starting centers", where="init", got=got, wanted=f"finite {wanted}", remedy=remedy
                )
            return problem.shifted(centers)[None]
        # scikit-learn's "auto": k-means++ rarely starts badly.
        n_init = (1 if self.init == "k-means++" else 10) if self.n_init == "auto" else int(self.n_init)
        # A stream a start: how many numbers one draws does not change the others.
        seeds = random_stream(self.random_state).randint(np.iinfo(np.int32).max, size=n_init)
        streams = [np.random.RandomState(seed) for seed in seeds]
        seeding = plus_plus if self.init == "k-means++" else at_random
        return seeding(problem, self.n_clusters, streams, watch)

    def _warn(self) -> None:
        distinct = len(np.unique(self.labels_))
        if distinct < self.n_clusters:
            text = f"{distinct} distinct clusters found, n_clusters={self.n_clusters}: X may have duplicate rows"
            warnings.warn(text, ConvergenceWarning, stacklevel=4)
        else:
            warn_of(self.result_, stacklevel=4, more=f"max_iter={self.max_iter}")

    def _check_parameters(self) -> None:
        from sklearn.metrics.pairwise import PAIRWISE_KERNEL_FUNCTIONS

        _check_number("n_clusters", self.n_clusters, Integral, 1)
        _check_number("max_iter", self.max_iter, Integral, 1)
        _check_number("tol", self.tol, Real, 0)
        if not isinstance(self.n_init, str) or self.n_init != "auto":
            _check_number("n_init", self.n_init, Integral, 1)
        if isinstance(self.init, str) and self.init not in ("k-means++", "random"):
            raise InputError(
                "unknown init", where="init", got=repr(self.init), wanted='"k-means++", "random" or an array'
            )
        known = {*ROWS_ARE_FEATURES, "precomputed", *PAIRWISE_KERNEL_FUNCTIONS}
        if not callable(self.kernel) and (not isinstance(self.kernel, str) or self.kernel not in known):
            wanted = f"a callable or one of {sorted(known)}"
            raise InputError("unknown kernel", where="kernel", got=repr(self.kernel), wanted=wanted)

        for name, value in (("gamma", self.gamma), ("degree", self.degree), ("coef0", self.coef0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(value)):
                raise InputError(f"bad {name}", where=name, got=repr(value), wanted="a finite number")
        if self.kernel_params is not None and not isinstance(self.kernel_params, dict):
            got = repr(self.kernel_params)
            raise InputError("bad kernel_params", where="kernel_params", got=got, wanted="a dictionary")


def _numbers(value: object) -> NDArray[np.float64]:
    """Convert starting centers to floats; an array of shape (0,) if they are not numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        return np.empty(0)


def _check_number(name: str, value: Any, kind: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, kind) or not value >= least:
        noun = "an integer" if kind is Integral else "a number"
        raise InputError(f"bad {name}", where=name, got=repr(value), wanted=f"{noun}, {least} or more")


def _check_memory(n: int, memory_limit: int | float | str | None) -> None:
    """Refuse, before any work, a kernel matrix whose decomposition does not fit."""
    need, limit = MATRICES_HELD * 8 * n * n, parse_bytes(memory_limit) or machine_memory() // 2
    if need > limit:
        raise MemoryBudgetError(
            f"an exact kernel on {n} patterns does not fit",
            where="KernelKMeans.fit",
            got=f"a limit of {format_bytes(limit)}",
            wanted=format_bytes(need),
            remedy='raise memory_limit, or pass a low-rank factor of the kernel with kernel="factor"',
        )
