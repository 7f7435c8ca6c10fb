"""`KernelPCA`: principal components of a kernel whose matrix need not fit anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.blocks.kernels.kernel_products import RowsKernel, rows_times
from dkl.blocks.rows.predictions import KeptPoints, rows_to_predict
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import require_finite
from dkl.blocks.rows.row_sources import RowSource, is_dask, row_source
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.kernel_width import width_by_blocks, width_of
from dkl.estimators.base.map_quality import ADVICE, is_map, rows_to_measure, with_quality
from dkl.estimators.base.mixins import CoordinateKernel, KernelParameter, lazily
from dkl.estimators.base.progress import warn_of, watch_for
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.standardize import has_variance_width
from dkl.estimators.base.validation import checked_rows, given_rows, is_large, random_stream
from dkl.estimators.kpca.fit import ComponentsSettings, fit_components
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import parse_bytes
from dkl.solvers.watch import Result, Watch

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserCallbacks, UserKernel, UserLabels, UserRows, UserSeed


class KernelPCA(CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelParameter):
    """Coordinates of rows by the leading eigenvectors of the centered kernel matrix, H K H v = lambda v.

    What differs from scikit-learn's: K is never held where it does not fit. Each product computes a tile of it once for a whole block
    of vectors, on threads or on the workers of a Dask cluster, and as much of K stays in memory as `memory_limit` allows; a few products
    are enough, from Nystrom's vectors, by block Krylov spaces. A linear kernel takes the covariance of the columns and two passes over
    the rows: so it is for a factor V of a kernel K = V V'. Rows may be on disk. The residual of each eigenpair is reported.

    Parameters
    ----------
    n_components : int
    kernel : a kernel's name in scikit-learn, "precomputed", or a function of two rows
        With "precomputed" X is K (n, n); of a factor V pass V and "linear".
    gamma : float, "scale" for 1 / (n_features * variance of X), "auto" or None for 1 / n_features
        "scale" is the same in every unit of X; scikit-learn's is None, which is the same on standardized columns.
    degree, coef0, kernel_params : as in sklearn.decomposition.KernelPCA
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), for later rows too. "auto" does so, with a
        warning, where some of far larger spread decide all distances, or where gamma="scale" would be the width of their means.
    tol : float
        The residual |H K H v - lambda v| to end at, of each pair, relative to the largest eigenvalue.
    max_iter : int
        Most products with K.
    holdout : float
        0: `result_.quality` is not measured: how well at most 1,000 of the rows keep their neighbors (trustworthiness), next to PCA with
        as many components. Nothing is held out for it. A DataWarning says where PCA is better, of a map alone: up to three components,
        and fewer than columns. Nor is it measured of kernel="linear", which is PCA, of "precomputed", which has no rows, or after a stop.
    dtype : "float64" or "float32"
        Of K: in single precision it takes half the time and memory, and residuals of about 1e-6 are the least.
    memory_limit : int, str or None
        Bytes a process may use; what needs more is refused before it starts. By default three quarters of the machine's.
    client, n_jobs, random_state
        Where the products are computed; threads; the seed of the search's start, on which results depend to `tol` alone. What is dense
        and small is left to this process: the kernel of at most 1,000 rows that the search starts from, a covariance of at most 1,000
        columns, and matrices of six blocks of vectors. Next to the products with K, of n^2 (d + k) operations each, it is little.
    callbacks, verbose
        Called with a row of the history after each product, True ends the fit; 1 shows progress.

    Attributes
    ----------
    eigenvalues_ : (n_components,) descending; 0 for those that are not above rounding
    eigenvectors_ : (n, n_components) of unit length, the largest entry of each positive
    residual_ : (n_components,) of each pair, relative to the largest eigenvalue: some eigenvalue is as near as that
    gamma_ : the kernel's width
    n_iter_ : products with K
    X_fit_ : the rows, for a kernel of rows other than the linear
    result_ : Result; outcome, history, seconds, peak_bytes, quality
    scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    SpectralEmbedding : Coordinates of a neighbor graph.
    KernelKMeans : Clusters of a kernel.
    sklearn.decomposition.KernelPCA : The same of a matrix in memory.

    References
    ----------
    B. Schölkopf, A. Smola, K.-R. Müller, Nonlinear component analysis as a kernel eigenvalue problem, Neural Computation 10,
    1998. doi:10.1162/089976698300017467
    C. Musco, C. Musco, Randomized block Krylov methods for stronger and faster approximate singular value decomposition,
    NIPS 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import dkl
    >>> dkl.KernelPCA(3, n_jobs=1, random_state=0).fit_transform(load_iris().data).shape
    (150, 3)
    """

    SENT = ("kernel", "kernel_params")

    def __init__(
        self,
        n_components: int = 2,
        *,
        kernel: UserKernel = "rbf",
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1.0,
        kernel_params: dict[str, object] | None = None,
        standardize: bool | str = "auto",
        tol: float = 1e-6,
        max_iter: int = 100,
        holdout: float = 0.1,
        dtype: str = "float64",
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int | bool = 0,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.standardize = standardize
        self.tol = tol
        self.max_iter = max_iter
        self.holdout = holdout
        self.dtype = dtype
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: UserRows, y: UserLabels = None) -> KernelPCA:
        """Find the components of the rows X (n, d), or of the kernel X (n, n); y is not looked at.

        Warns with ConvergenceWarning where the residuals are above `tol` when the search ends, with DataWarning where PCA is a better map.

        Parameters
        ----------
        X : (n, d) rows, or a kernel matrix (n, n)
        y : not used

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters or rows that are not valid, and for a precomputed kernel that is not symmetric.
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        check_parameters(self, ComponentsSettings)
        settings = gathered(ComponentsSettings, self, memory_limit=parse_bytes(self.memory_limit))
        watch, random = watch_for(self.callbacks, self.verbose), random_stream(self.random_state)
        # Large rows are not looked at whole here: a fit looks at their values block by block.
        rows = given_rows(self, X, reset=True) if is_large(X) else checked_rows(self, X, reset=True, least=2)
        source = row_source(rows)
        self._check_shape(source)
        session = self._session()
        self.gamma_ = self._width(source, settings, session)
        self._kernel = Kernel(self.kernel, self.gamma_, settings.degree, settings.coef0, dict(self.kernel_params or {}))
        with watch:
            found = fit_components(source, self._kernel, settings, session, watch, random)
        self.eigenvalues_, self.eigenvectors_, self.residual_ = found.eigenvalues, found.eigenvectors, found.residual
        self._weights, self._offset, self._is_linear = found.weights, found.offset, found.is_linear
        # A linear kernel's components are weights of features, and a precomputed one's of kernel values: neither takes the rows.
        self.X_fit_: Any = None if self._is_precomputed or found.is_linear else rows
        self._kept_points = KeptPoints(self.X_fit_)
        self.result_, self.n_iter_ = self._with_quality(found.result, source, watch), found.result.n_iter
        worst = f"the largest residual is {float(found.residual.max()):.2g} of the largest eigenvalue"
        warn_of(self.result_, stacklevel=2, more=worst)
        return self

    def fit_transform(self, X: UserRows, y: UserLabels = None, **given: object) -> NDArray[np.float64]:
        """Fit, then return the coordinates of the same rows: eigenvectors_ times the roots of eigenvalues_."""
        self.fit(X, y, **given)
        return np.asarray(self.eigenvectors_ * np.sqrt(self.eigenvalues_))

    def transform(self, X: UserRows) -> NDArray[np.float64]:
        """Return coordinates (m, k) of the rows X (m, d), or of kernel values X (m, n) with those fitted.

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        given = given_rows(self, X, reset=False)
        session = self._session()
        rows = rows_to_predict(given, session, parse_bytes(self.memory_limit))
        if self._is_precomputed or self._is_linear:
            found = np.concatenate(rows.map(rows_times, self._weights))
        else:
            found = RowsKernel(self._kernel, row_source(self.X_fit_), self.dtype, self.memory_limit).times(
                rows, self._weights, self._kept()
            )
        found -= self._offset
        if not np.isfinite(found).all():
            rows.map(require_finite)  # names the place, where it is the rows' fault
            raise InputError("the kernel is not finite", where=self._kernel.where, remedy="scale the columns of X")
        return np.asarray(found)

    def _with_quality(self, result: Result, source: RowSource, watch: Watch) -> Result:
        """Return the result with its quality, where there are rows that PCA would map otherwise."""
        if self._is_precomputed or self._is_linear:
            return result
        return with_quality(
            result, source, lambda chosen: self.eigenvectors_[chosen] * np.sqrt(self.eigenvalues_),
            "try a smaller gamma, or " + ADVICE if self.kernel == "rbf" else "try " + ADVICE, watch=watch,
            most=rows_to_measure(source, self.holdout, parse_bytes(self.memory_limit)),
            warns=is_map(int(self.n_components), source.n_features), stacklevel=3,
        )  # fmt: skip

    def _kept(self) -> KeptPoints | None:
        """Return the prepared X_fit_; None for a pickle by an earlier version, or rows set by hand."""
        kept: KeptPoints | None = self.__dict__.get("_kept_points")
        return kept if kept is not None and kept.points is self.X_fit_ else None

    @property
    def _n_features_out(self) -> int:
        return int(self.eigenvectors_.shape[1])

    def _width(self, source: RowSource, settings: ComponentsSettings, session: Session) -> float:
        """Return the kernel's gamma: by a pass where the rows are, if they are not in memory and it is that of their variance."""
        if source.is_in_memory or not has_variance_width(self):
            return width_of(self.kernel, self.gamma, source)
        rows = RowBlocks(source, session, settings.memory_limit)
        width = width_by_blocks(self.kernel, self.gamma, rows, memory_limit=settings.memory_limit)
        assert width is not None
        return width

    def _check_shape(self, source: RowSource) -> None:
        """Raise InputError for fewer rows than components, and for a kernel matrix that is not square."""
        n = source.n
        if self._is_precomputed:
            check_square(n, source.n_features)
        if n < 2:
            raise InputError("a single row has no components", where="X", got="n_samples=1", wanted="a minimum of 2")
        if self.n_components > n:
            got, wanted = f"{self.n_components} components", f"at most {n}, the number of rows"
            raise InputError("more components than rows", where="n_components", got=got, wanted=wanted)
