"""Laplacian eigenmaps: coordinates by the neighbor graph without learning, for 1-NN as in the paper."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.manifold import spectral_embedding
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.rows.row_sources import is_dask
from dkl.estimators.base.mixins import ClientParameter, lazily
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.rules import WIDTH, Integer, Size, width_rule
from dkl.estimators.base.settings import IN_ALL, Settings, Standardize, check_parameters
from dkl.estimators.base.validation import checked_rows, random_stream
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed


@dataclass(frozen=True)
class EigenmapsSettings(Settings):
    """Settings of Laplacian eigenmaps: the graph, and its coordinates."""

    n_components: Annotated[int, Integer(1), "Eigenvectors that rows are shown by."] = 10
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 10
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: local."] = (
        "auto"
    )
    standardize: Standardize = "auto"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = IN_ALL


class LaplacianEigenmaps(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Coordinates of rows by the lowest eigenvectors of L f = lambda D f of their neighbor graph, but the constant one.

    The baseline of Li et al. 2009, table 5, is the nearest labeled row by these coordinates.

    Parameters
    ----------
    n_components : int
        Eigenvectors; fewer where there are fewer rows.
    n_neighbors, sigma, standardize
        The graph, as in `dkl.PairwiseKernelLearner`, but "auto" is "local".
    memory_limit, client, n_jobs, random_state
        Of the graph's search, where it runs and its threads; the seed of the eigenvectors' start, None for 0.

    Attributes
    ----------
    embedding_ : (n, k) coordinates of the rows that were given to `fit`
    scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.SpectralEmbedding : The same by other solvers, on workers where it is large.
    sklearn.manifold.SpectralEmbedding : The same of a graph of ones, without unseen rows.

    References
    ----------
    M. Belkin, P. Niyogi, Laplacian eigenmaps for dimensionality reduction and data representation, Neural Computation 15, 2003.
    doi:10.1162/089976603321780317
    F. Li, Y. Fu, Y.-H. Dai, C. Sminchisescu, J. Wang, Kernel learning by unconstrained optimization, AISTATS 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from dkl.baselines import LaplacianEigenmaps
    >>> X, y = load_iris(return_X_y=True)
    >>> model = make_pipeline(LaplacianEigenmaps(random_state=0, n_jobs=1), KNeighborsClassifier(1)).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        standardize: bool | str = "auto",
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.standardize = standardize
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(self, X: UserRows, y: UserLabels = None) -> LaplacianEigenmaps:
        """Find the coordinates of the rows X (n, d); y is not looked at.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse
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
        check_parameters(self, EigenmapsSettings)
        rows = checked_rows(self, X, reset=True, least=4)
        n = int(rows.shape[0])
        graph = build_graph(
            rows, n_neighbors=min(self.n_neighbors, n - 1), sigma=width_rule(self.sigma, "local"), laplacian="unnormalized",
            memory_limit=parse_bytes(self.memory_limit), session=self._session(),
        )  # fmt: skip
        L = graph.laplacian
        # L is D - W, of an empty diagonal of W.
        W = sp.csr_array(sp.diags_array(L.diagonal()) - L)
        with warnings.catch_warnings():
            # Several components are usual: their indicators are coordinates too.
            warnings.filterwarnings("ignore", "Graph is not fully connected")
            self.embedding_ = spectral_embedding(
                sp.csr_matrix(W), n_components=min(int(self.n_components), n - 3), eigen_solver="arpack",
                random_state=random_stream(0 if self.random_state is None else self.random_state), drop_first=True,
            )  # fmt: skip
        self._rows, self._graph = rows, graph
        return self

    def transform(self, X: UserRows) -> NDArray[np.float64]:
        """Return coordinates (m, k) of the rows X (m, d).

        Those of unseen rows are the mean of their neighbors', weighted by similarity. For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        return np.asarray(
            neighbor_means(checked_rows(self, X, reset=False), self._rows, self._graph.similarity) @ self.embedding_
        )

    @property
    def _n_features_out(self) -> int:
        return int(self.embedding_.shape[1])
