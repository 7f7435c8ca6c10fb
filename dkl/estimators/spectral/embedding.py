"""`SpectralEmbedding`: coordinates of rows by the smoothest functions on their neighbor graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.row_sources import is_dask, row_source
from dkl.errors import InputError
from dkl.estimators.base.map_quality import ADVICE, is_map, rows_to_measure, with_quality
from dkl.estimators.base.mixins import ClientParameter, lazily
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.progress import warn_of
from dkl.estimators.base.settings import check_parameters
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.spectral.maps import EmbeddingSettings, eigenmaps
from dkl.linalg.eigen.laplacian_eigenmaps import TOL
from dkl.resources import parse_bytes, peak_rss
from dkl.solvers.result import Outcome, Result, remedies
from dkl.solvers.watch import Watch

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import UserLabels, UserRows, UserSeed

REMEDIES = remedies(
    iteration_limit="take fewer components, or more neighbors",
    stalled="rounding ends all progress: take fewer components, or more neighbors",
    numerical_error="a value is not finite: scale the rows, or the affinity",
)


class SpectralEmbedding(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Coordinates of rows by the lowest eigenvectors of L f = lambda D f of their neighbor graph, but the constant one.

    What differs from scikit-learn's: the graph has similarities where that has ones, is built block by block, on
    threads or on the workers of a Dask cluster; the eigenvectors are found by whichever method is less work on the graph, a factor that
    fits or a filter that needs products alone, on workers where this process would hold half a gigabyte for it; and unseen
    rows have coordinates too. Components of the graph are joined by the shortest edges between them (DataWarning): they would be all that
    the lowest eigenvectors show. Of the same affinity, by affinity="precomputed", the coordinates are the same.

    Parameters
    ----------
    n_components : int
        Eigenvectors after the first.
    affinity : "neighbors" or "precomputed"
        "precomputed": X is a symmetric matrix (n, n) of similarities >= 0, dense or sparse.
    n_neighbors, sigma
        The graph, as in `dkl.PairwiseKernelLearner`, but "auto" is "local": exp(-d^2 / max(s_i, s_j)^2), s_i the distance of row i to
        the last of its neighbors, so that every edge weighs from 1/e to 1, also those of rows that are far from all others.
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    holdout : float
        0: `result_.quality` is not measured: how well at most 1,000 of the rows keep their neighbors (trustworthiness), next to PCA with
        as many components. Nothing is held out for it. A DataWarning says where PCA is better, of a map alone: up to three components,
        and fewer than columns. Nor is it measured of affinity="precomputed", which has no rows.
    memory_limit : int, str or None
        Bytes a process may use; what needs more is refused before it starts.
    client, n_jobs, random_state
        Where the graph is built and large eigenvectors are found, but for dense matrices of as many rows as there are eigenvectors, which
        are left to this process; its threads; not used, as nothing here is random.

    Attributes
    ----------
    embedding_ : (n, n_components) coordinates of the rows that were given to `fit`
    eigenvalues_ : (n_components,) lambda, ascending; residual_ : of the eigenvectors, relative to the Laplacian's norm
    result_ : Result; outcome, seconds, peak_bytes, quality
    scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    SpectralClustering : Clusters of these coordinates.
    KernelPCA : Coordinates of a kernel, without a graph.
    dkl.baselines.LaplacianEigenmaps : The same by scikit-learn's solver, in memory.
    sklearn.manifold.SpectralEmbedding : The same of a graph in memory, without unseen rows.

    References
    ----------
    M. Belkin, P. Niyogi, Laplacian eigenmaps for dimensionality reduction and data representation, Neural Computation 15, 2003.
    doi:10.1162/089976603321780317

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import SpectralEmbedding
    >>> angle = np.linspace(0, 4, 60)
    >>> spiral = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    >>> line = SpectralEmbedding(n_components=1, n_jobs=1).fit_transform(spiral)[:, 0]
    >>> bool(abs(np.corrcoef(line, angle)[0, 1]) > 0.95)
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        affinity: str = "neighbors",
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        standardize: bool | str = "auto",
        holdout: float = 0.1,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.standardize = standardize
        self.holdout = holdout
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: UserRows, y: UserLabels = None) -> SpectralEmbedding:
        """Find the coordinates of the rows X (n, d), or of the affinity X (n, n); y is not looked at.

        Warns with DataWarning where PCA is a better map.

        Parameters
        ----------
        X : (n, d) rows, or an affinity (n, n)
        y : not used

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters or rows that are not valid, before any work.
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        check_parameters(self, EmbeddingSettings)
        watch = Watch()
        found = eigenmaps(self, X, int(self.n_components) + 1, joined_above=1)
        self.embedding_, self.eigenvalues_ = found.coordinates[:, 1:], found.eigenvalues[1:]
        self.residual_, self._rows, self._graph = found.residual, found.rows, found.graph
        outcome = Outcome.SOLVED if found.residual <= TOL else Outcome.STALLED
        result = Result(
            outcome, 1, [], {"total": watch.seconds}, peak_rss(), remedy=REMEDIES[outcome],
            proven=found.residual, asked=TOL, measure="residual",
        )  # fmt: skip
        warn_of(result, stacklevel=2)
        self.result_ = self._with_quality(result, watch)
        return self

    def _with_quality(self, result: Result, watch: Watch) -> Result:
        """Return the result with its quality, where there are rows."""
        if self.affinity == "precomputed":
            return result
        source = row_source(self._rows)
        most = rows_to_measure(source, self.holdout, parse_bytes(self.memory_limit))
        warns = is_map(int(self.n_components), source.n_features)
        return with_quality(
            result,
            source,
            self.embedding_.__getitem__,
            "try " + ADVICE,
            watch=watch,
            most=most,
            warns=warns,
            stacklevel=3,
        )

    def fit_transform(self, X: UserRows, y: UserLabels = None, **given: object) -> NDArray[np.float64]:
        """Fit, then return the coordinates of the same rows, `embedding_`."""
        return np.asarray(self.fit(X, y, **given).embedding_)

    def transform(self, X: UserRows) -> NDArray[np.float64]:
        """Return coordinates (m, k) of the rows X (m, d).

        Those of unseen rows are the mean of their neighbors', weighted by similarity. For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if self.affinity == "precomputed":
            remedy = "use embedding_, or fit on features"
            raise InputError("new rows have no neighbors here", where="transform", remedy=remedy)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        rows = checked_rows(self, X, reset=False)
        return np.asarray(neighbor_means(rows, self._rows, self._graph.similarity) @ self.embedding_)

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])
