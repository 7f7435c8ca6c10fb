"""Clusters under must-links and cannot-links, by the methods that are compared with most: COP-KMeans, PCKMeans and E2CP."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from sklearn.base import ClusterMixin
from sklearn.cluster import SpectralClustering
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from dkl.baselines.constrained_kmeans import Found, Labels, Matrix, cop_kmeans, pck_means, squared_distances
from dkl.baselines.pair_base import LearnsFromPairs
from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.row_pieces import refuse_extreme
from dkl.blocks.rows.row_sources import is_dask
from dkl.datasets import generator
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.mixins import lazily
from dkl.estimators.base.rules import CONTRADICTIONS, Either, Integer, NotGiven, Real, Size, Word
from dkl.estimators.base.settings import ANYTHING, Settings
from dkl.estimators.base.validation import checked_rows, random_stream
from dkl.io.plain_arrays import largest_value, refuse_too_large
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed
    from dkl.side_information.pairs import Pairs

FEWER = "learn from fewer rows, or by dkl.PairwiseKernelLearner and dkl.KernelKMeans"


@dataclass(frozen=True)
class ClusterSettings(Settings):
    """Settings that all methods share."""

    n_clusters: Annotated[int, Integer(1), "Number of clusters."] = 8
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = {"random_state": (None, ANYTHING)}


@dataclass(frozen=True)
class COPKMeansSettings(ClusterSettings):
    """Settings of COP-KMeans."""

    n_init: Annotated[int, Integer(1), "Starts, the best of which counts."] = 5
    contradictions: Annotated[str, Word("drop", "raise"), "Contradictory pairs: leave them out, or refuse."] = "raise"
    max_iter: Annotated[int, Integer(1), "Most iterations of a start."] = 30


@dataclass(frozen=True)
class PCKMeansSettings(ClusterSettings):
    """Settings of PCKMeans."""

    weight: Annotated[
        float | None, Either(Real(least=0), NotGiven()), "Cost of a violated pair; None: by the rows."
    ] = None
    contradictions: Annotated[str, CONTRADICTIONS, "Contradictory pairs: keep them, leave out, or refuse."] = "keep"
    max_iter: Annotated[int, Integer(1), "Most iterations."] = 100


@dataclass(frozen=True)
class E2CPSettings(ClusterSettings):
    """Settings of E2CP."""

    alpha: Annotated[float, Real(above=0, below=1), "How far pairs are propagated."] = 0.8
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 10
    contradictions: Annotated[str, CONTRADICTIONS, "Contradictory pairs: keep them, leave out, or refuse."] = "keep"


class ConstrainedClusters(ClusterMixin, LearnsFromPairs):
    """Base of the methods: rows about the first of them, so that those far from 0 lose no digits."""

    n_clusters: int
    memory_limit: int | str | None
    labels_: Labels

    def _learn(self, rows: Any, pairs: Pairs) -> None:
        n, d = rows.shape
        if n < self.n_clusters:
            got = f"n_samples={n}, n_clusters={self.n_clusters}"
            raise InputError("fewer samples than clusters", where="X", got=got, wanted="n_samples >= n_clusters")
        check_size(self._bytes(n, d), parse_bytes(self.memory_limit), FEWER)
        X = _dense(rows)
        refuse_extreme(X)
        # The first row, not the mean: it is exact, and the same for rows that are shifted by any number.
        self._origin = X[:1].copy()
        self._cluster(X - self._origin, pairs)

    def fit_predict(self, X: UserRows, y: UserLabels = None, **given: Any) -> Labels:
        """Return the clusters (n,) of the rows X (n, d), learned from what `fit` takes: scikit-learn's own would leave out y."""
        return self.fit(X, y, **given).labels_

    def predict(self, X: UserRows) -> Labels:
        """Return the clusters (m,) of the rows X (m, d), by the nearest center, or else row; for X of Dask, a dask array."""
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, np.empty(0, np.intp))
        rows = _dense(checked_rows(self, X, reset=False))
        refuse_too_large(rows, largest_value(rows.shape[1]))
        return np.asarray(self._nearest(rows - self._origin), np.intp)

    def _bytes(self, n: int, d: int) -> dict[str, int]:
        """Return the bytes of the largest arrays, by name."""
        return {"the rows": 16 * n * d, "distances to centers": 16 * n * self.n_clusters}

    def _cluster(self, X: Matrix, pairs: Pairs) -> None:
        """Set the fitted attributes."""
        raise NotImplementedError

    def _nearest(self, X: Matrix) -> Labels:
        """Return the clusters of rows about the origin."""
        raise NotImplementedError


class ConstrainedKMeans(ConstrainedClusters):
    """Base of the methods with centers."""

    max_iter: int

    @property
    def cluster_centers_(self) -> Matrix:
        """Return the centers (k, d): the means of the clusters' rows."""
        check_is_fitted(self)
        return np.asarray(self._centers + self._origin)

    def _keep(self, found: Found) -> None:
        """Keep the clusters found; warn where the limit of iterations came first."""
        self.labels_, self._centers, self.n_iter_, settled = found
        if not settled:
            text = f"labels still change after {self.max_iter} iterations: raise max_iter"
            warnings.warn(text, ConvergenceWarning, stacklevel=5)

    def _nearest(self, X: Matrix) -> Labels:
        return squared_distances(X, self._centers).argmin(axis=1)


def _dense(rows: Any) -> Matrix:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, np.float64)


class COPKMeans(ConstrainedKMeans):
    """COP-KMeans: k-means that violates no must-link and no cannot-link (Wagstaff et al. 2001).

    Whole must-link components go to the nearest center that no cannot-link forbids. The paper takes rows in the order of the data; here
    components with the fewest clusters left come first, as most draws of pairs have no assignment by any other order. In memory.

    Parameters
    ----------
    n_clusters : int
    n_init, max_iter : int
        Starts by k-means++, the best of which by the sum of squared distances counts, and most iterations of each. Of four times as many
        starts `n_init` have to succeed at most, and one at least.
    contradictions : "raise" or "drop"
        Pairs that contradict each other are an error, or left out.
    memory_limit, random_state
        Bytes a process may use; the seed of starts and orders.

    Attributes
    ----------
    labels_ : (n,) clusters
    cluster_centers_ : (k, d) means of their rows
    n_iter_, n_features_in_ : int

    See Also
    --------
    PCKMeans : The same with pairs that may be violated.
    dkl.PairwiseKernelLearner : A kernel from pairs, to cluster by `dkl.KernelKMeans`.
    sklearn.cluster.KMeans : The same without pairs.

    References
    ----------
    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl, Constrained k-means clustering with background knowledge, ICML 2001.

    Examples
    --------
    >>> from dkl.baselines import COPKMeans
    >>> X = [[0.0], [0.1], [9.0], [9.1]]
    >>> labels = COPKMeans(2, random_state=0).fit(X, must_link=[[1, 2]], cannot_link=[[0, 1]]).labels_
    >>> bool(labels[1] == labels[2] != labels[0])
    True
    """

    SETTINGS: ClassVar[type[Settings]] = COPKMeansSettings

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        n_init: int = 5,
        contradictions: str = "raise",
        max_iter: int = 30,
        memory_limit: int | str | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.contradictions = contradictions
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.random_state = random_state

    def _cluster(self, X: Matrix, pairs: Pairs) -> None:
        rng = generator(self.random_state)
        self._keep(cop_kmeans(X, pairs, self.n_clusters, rng, self.n_init, self.max_iter))


class PCKMeans(ConstrainedKMeans):
    """PCKMeans: k-means with a cost for each violated pair (Basu et al. 2004).

        minimize over labels and centers    1/2 sum_i |x_i - center of i|^2 + weight (violated must-links + violated cannot-links)

    From the means of must-link components, the farthest first, rows go to their best cluster one by one. In memory.

    Parameters
    ----------
    n_clusters : int
    weight : float or None
        Cost of a violated pair; None: 0.3 of the mean squared distance of a row to the mean, whatever the unit of the columns.
    max_iter : int
        Most iterations.
    contradictions
        As in `dkl.PairwiseKernelLearner`.
    memory_limit, random_state
        Bytes a process may use; the seed of the rows' order and of centers where must-links are few.

    Attributes
    ----------
    labels_ : (n,) clusters
    cluster_centers_ : (k, d) means of their rows
    n_iter_, n_features_in_ : int

    See Also
    --------
    COPKMeans : The same with pairs that may not be violated.
    dkl.PairwiseKernelLearner : A kernel from pairs, to cluster by `dkl.KernelKMeans`.
    sklearn.cluster.KMeans : The same without pairs.

    References
    ----------
    S. Basu, A. Banerjee, R. Mooney, Active semi-supervision for pairwise constrained clustering, SDM 2004.

    Examples
    --------
    >>> from dkl.baselines import PCKMeans
    >>> X = [[0.0], [0.1], [9.0], [9.1]]
    >>> labels = PCKMeans(2, random_state=0).fit(X, must_link=[[0, 1]], cannot_link=[[1, 2]]).labels_
    >>> bool(labels[0] == labels[1] != labels[2])
    True
    """

    SETTINGS: ClassVar[type[Settings]] = PCKMeansSettings

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        weight: float | None = None,
        max_iter: int = 100,
        contradictions: str = "keep",
        memory_limit: int | str | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.weight = weight
        self.max_iter = max_iter
        self.contradictions = contradictions
        self.memory_limit = memory_limit
        self.random_state = random_state

    def _cluster(self, X: Matrix, pairs: Pairs) -> None:
        rng = generator(self.random_state)
        self._keep(pck_means(X, pairs, self.n_clusters, rng, self.max_iter, self.weight))


def neighbor_weights(X: Matrix, k: int) -> Matrix:
    """Return the symmetric affinity (n, n) of the k nearest neighbors, exp(-d^2 / (s_i s_j)), s the distance to the last of them."""
    # In units of a power of two, which is exact: the least width below is absolute, and the rows' unit is not to decide.
    X = np.ldexp(X, -int(np.frexp(np.abs(X).max(initial=0.0))[1]))
    # One more than k, as each row is its own nearest.
    distances, found = NearestNeighbors(n_neighbors=min(k + 1, len(X))).fit(X).kneighbors(X)
    scale = np.maximum(distances[:, -1], 1e-12)
    W = np.zeros((len(X), len(X)))
    rows = np.repeat(np.arange(len(X)), found.shape[1])
    W[rows, found.ravel()] = np.exp(-(distances.ravel() ** 2) / (scale[rows] * scale[found.ravel()]))
    np.fill_diagonal(W, 0.0)
    return np.maximum(W, W.T)


def propagated(W: Matrix, pairs: Pairs, alpha: float) -> Matrix:
    """Return the affinity W (n, n) changed by the pairs, propagated down its columns and along its rows."""
    n = len(W)
    root = 1.0 / np.sqrt(np.maximum(W.sum(axis=1), 1e-12))
    # The inverse itself, once: Z is between two of them.
    inverse = np.linalg.inv(np.eye(n) - alpha * root[:, None] * W * root)
    Z = np.zeros((n, n))
    for ends, sign in ((pairs.must_link, 1.0), (pairs.cannot_link, -1.0)):
        Z[ends[:, 0], ends[:, 1]] = Z[ends[:, 1], ends[:, 0]] = sign
    F = inverse @ Z @ inverse
    # The factor (1 - alpha)^2 of the paper goes with the division.
    F /= max(float(np.abs(F).max()), 1e-300)
    return np.where(F >= 0, 1.0 - (1.0 - F) * (1.0 - W), (1.0 + F) * W)


def spectral_labels(W: Matrix, k: int, random: np.random.RandomState) -> Labels:
    """Return scikit-learn's spectral clusters of an affinity (n, n), which loses its diagonal."""
    if k in (1, len(W)):  # it finds no eigenvectors then
        return np.arange(len(W)) % k
    np.fill_diagonal(W, 0.0)
    model = SpectralClustering(k, affinity="precomputed", random_state=random)
    with warnings.catch_warnings():
        # Several components are usual: their indicators are coordinates too.
        warnings.filterwarnings("ignore", "Graph is not fully connected")
        # scikit-learn compares an affinity with its transpose, and warns of what rounding leaves between them.
        return np.asarray(model.fit_predict(0.5 * (W + W.T)), np.intp)


class E2CP(ConstrainedClusters):
    """E2CP: spectral clusters of an affinity through which the pairs have been propagated (Lu and Ip 2010).

        F = (1 - alpha)^2 (I - alpha S)^-1 Z (I - alpha S)^-1,    W+ = 1 - (1 - F)(1 - W) where F >= 0, (1 + F) W elsewhere

    with Z of +1 and -1, S = D^-1/2 W D^-1/2, and F divided by its largest entry. W joins each row to its nearest, by local widths, as the
    paper leaves open. By n x n matrices, in memory: for some thousand rows.

    Parameters
    ----------
    n_clusters : int
    alpha : float
        How far pairs are propagated, between 0 and 1.
    n_neighbors : int
        Neighbors of a row in W.
    contradictions
        As in `dkl.PairwiseKernelLearner`.
    memory_limit, random_state
        Bytes a process may use; the seed of scikit-learn's spectral clusters.

    Attributes
    ----------
    labels_ : (n,) clusters
    affinity_matrix_ : (n, n) W+
    n_features_in_ : int

    See Also
    --------
    dkl.PairwiseKernelLearner : A kernel from pairs, to cluster by `dkl.KernelKMeans`.
    sklearn.cluster.SpectralClustering : The same without pairs.

    References
    ----------
    Z. Lu, H. H. S. Ip, Constrained spectral clustering via exhaustive and efficient constraint propagation, ECCV 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import E2CP
    >>> X, y = load_iris(return_X_y=True)
    >>> model = E2CP(3, random_state=0).fit(X, must_link=[[0, 1], [60, 70]], cannot_link=[[0, 60], [60, 120]])
    >>> bool(model.labels_[0] == model.labels_[1])
    True
    """

    SETTINGS: ClassVar[type[Settings]] = E2CPSettings

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        alpha: float = 0.8,
        n_neighbors: int = 10,
        contradictions: str = "keep",
        memory_limit: int | str | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.contradictions = contradictions
        self.memory_limit = memory_limit
        self.random_state = random_state

    def _bytes(self, n: int, d: int) -> dict[str, int]:
        return {"the rows": 16 * n * d, f"matrices of all {n:,} rows": 7 * 8 * n * n}

    def _cluster(self, X: Matrix, pairs: Pairs) -> None:
        W = neighbor_weights(X, self.n_neighbors)
        self.affinity_matrix_ = propagated(W, pairs, self.alpha)
        self.labels_ = spectral_labels(self.affinity_matrix_, self.n_clusters, random_stream(self.random_state))
        self._rows = X

    def _nearest(self, X: Matrix) -> Labels:
        # A thousand rows at a time, as each has its distances to all rows learned from.
        near = [squared_distances(part, self._rows).argmin(axis=1) for part in np.array_split(X, 1 + len(X) // 1000)]
        return self.labels_[np.concatenate(near)]
