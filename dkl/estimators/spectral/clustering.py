"""`SpectralClustering`: clusters of rows that few edges of their neighbor graph join."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.graph.neighbor_graph import Graph, parts_text
from dkl.blocks.rows.row_sources import is_dask
from dkl.errors import ConvergenceWarning, DataWarning, InputError
from dkl.estimators.base.mixins import ClientParameter, lazily
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.settings import check_parameters
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.estimators.spectral.embedding import ClusteringSettings, eigenmaps

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed


class SpectralClustering(ClusterMixin, ClientParameter):
    """Clusters by k-means on the lowest eigenvectors of L f = lambda D f of the neighbor graph: a relaxation of normalized cuts.

    What differs from scikit-learn's: the graph and its eigenvectors are those of `dkl.SpectralEmbedding`, k-means is `dkl.KernelKMeans`,
    both on threads or on the workers of a Dask cluster; and unseen rows have a cluster too. More components of the graph than clusters
    are joined by the shortest edges between them (DataWarning), where eigenvectors would merge them at random.

    Parameters
    ----------
    n_clusters : int
    n_components : int or None
        Eigenvectors, the first included; by default as many as clusters.
    affinity, n_neighbors, sigma
        The graph, as in `dkl.SpectralEmbedding`.
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    n_init : int
        Starts of k-means, of which the best counts.
    memory_limit, client, n_jobs, random_state
        Bytes a process may use; where the graph, large eigenvectors and k-means work; threads of the graph's search; the seed of k-means.

    Attributes
    ----------
    labels_ : (n,) clusters of the rows
    embedding_ : (n, n_components) what k-means was on; eigenvalues_, residual_ as in `dkl.SpectralEmbedding`
    kmeans_ : the fitted `dkl.KernelKMeans`
    scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    SpectralEmbedding : The coordinates alone.
    PairwiseKernelLearner : Clusters that pairs are to decide.
    sklearn.cluster.SpectralClustering : The same of a graph in memory, without unseen rows.

    References
    ----------
    J. Shi, J. Malik, Normalized cuts and image segmentation, IEEE Transactions on Pattern Analysis and Machine Intelligence 22,
    2000. doi:10.1109/34.868688

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import dkl
    >>> X, y = make_moons(200, noise=0.05, random_state=0)
    >>> dkl.adjusted_rand_index(y, dkl.SpectralClustering(2, n_jobs=1, random_state=0).fit_predict(X))
    1.0
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_components: int | None = None,
        affinity: str = "neighbors",
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        standardize: bool | str = "auto",
        n_init: int = 10,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_components = n_components
        self.affinity = affinity
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.standardize = standardize
        self.n_init = n_init
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = self.affinity == "precomputed"
        return tags

    def fit(self, X: UserRows, y: UserLabels = None) -> SpectralClustering:
        """Cluster the rows X (n, d), or those of the affinity X (n, n); y is not looked at.

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
        check_parameters(self, ClusteringSettings)
        count = int(self.n_clusters if self.n_components is None else self.n_components)
        # With no more components than clusters the components themselves are good clusters, and are not joined.
        found = eigenmaps(self, X, count, joined_above=int(self.n_clusters))
        _warn_of_islands(found.graph, int(self.n_clusters))
        kmeans = KernelKMeans(
            int(self.n_clusters), n_init=int(self.n_init), random_state=self.random_state, client=self.client,
            memory_limit=self.memory_limit,
        )  # fmt: skip
        with warnings.catch_warnings():
            # It blames duplicate rows of X, which here are coordinates: we give our own reason below.
            warnings.filterwarnings("ignore", "[0-9]+ distinct clusters found")
            self.kmeans_ = kmeans._fit_on(found.coordinates, self._session())
        distinct = len(np.unique(self.kmeans_.labels_))
        if distinct < self.n_clusters:
            text = (
                f"{distinct} distinct clusters found, n_clusters={self.n_clusters}: the eigenvectors tell no more apart"
            )
            warnings.warn(text, ConvergenceWarning, stacklevel=2)
        self.labels_, self.embedding_, self.eigenvalues_ = self.kmeans_.labels_, found.coordinates, found.eigenvalues
        self.residual_, self._rows, self._graph = found.residual, found.rows, found.graph
        return self

    def predict(self, X: UserRows) -> NDArray[np.int32]:
        """Return the clusters (m,) of rows X (m, d): unseen ones by the mean of their neighbors' coordinates.

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if self.affinity == "precomputed":
            raise InputError(
                "new rows have no neighbors here", where="predict", remedy="use labels_, or fit on features"
            )
        if is_dask(X):
            return lazily(self, "predict", X, np.empty(0, np.int32))
        rows = checked_rows(self, X, reset=False)
        return self.kmeans_.predict(neighbor_means(rows, self._rows, self._graph.similarity) @ self.embedding_)


def _warn_of_islands(graph: Graph, n_clusters: int) -> None:
    """Warn (DataWarning) if the clusters can only be components, one as small as neighbors alone make it."""
    # So few rows are a component by their neighbors alone: duplicates, or outliers next to each other.
    island = 2 * graph.n_neighbors
    if graph.n_components == n_clusters > 1 and graph.component_sizes[-1] <= island:
        warnings.warn(parts_text(graph, "these are the clusters"), DataWarning, stacklevel=3)
