"""`SpectralEmbedding`: coordinates of rows by the smoothest functions on their neighbor graph, Laplacian eigenmaps.

They are f = D^-1/2 u, L_sym u = lambda u, L_sym = I - D^-1/2 W D^-1/2: L f = lambda D f.

M. Belkin, P. Niyogi, Laplacian eigenmaps for dimensionality reduction and data representation, Neural Computation 15, 2003; for
clusters J. Shi, J. Malik, Normalized cuts and image segmentation, IEEE PAMI 22, 2000.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.graph.distributed_products import Room, passes_on
from dkl.blocks.graph.neighbor_graph import Graph, build_graph, graph_of, parts_text
from dkl.blocks.memory_plan import Place, check_size
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.rows.row_sources import is_dask, row_source
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError, MemoryBudgetError
from dkl.estimators.base.map_quality import ADVICE, is_map, rows_to_measure, with_quality
from dkl.estimators.base.mixins import ClientParameter, lazily
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.progress import warn_of
from dkl.estimators.base.rules import WIDTH, Either, Integer, NotGiven, Size, Word, width_rule
from dkl.estimators.base.settings import IN_ALL, SHARE_HELD_OUT, Settings, Standardize, check_parameters
from dkl.estimators.base.validation import checked_rows
from dkl.linalg.eigen.laplacian_eigenmaps import TOL, basis_bytes, smoothest
from dkl.linalg.eigen.principal_coordinates import with_signs
from dkl.linalg.graph.laplacian import laplacian_matrix
from dkl.resources import format_bytes, parse_bytes, peak_rss
from dkl.solvers.watch import Outcome, Result, Watch, remedies

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed
    from dkl.linalg.rows import Rows


SEPARATE = "its eigenvectors tell components apart and nothing else"
BASES = 6
"""Arrays (n, m) alive at the peak of the search for eigenvectors, with their guards."""
GRAPHS = 3
"""Matrices of the graph alive then: two Laplacians and the affinity."""


@dataclass(frozen=True)
class Maps:
    """Laplacian eigenmaps of a graph.

    rows: as given, checked. coordinates: f (n, m), each column with its largest entry positive. eigenvalues: (m,), ascending.
    residual: the largest |L_sym u - lambda u| over |L_sym|.
    """

    rows: Rows = field(repr=False)
    graph: Graph = field(repr=False)
    coordinates: NDArray[np.float64] = field(repr=False)
    eigenvalues: NDArray[np.float64]
    residual: float


def eigenmaps(learner: BaseEstimator, X: UserRows, count: int, joined_above: int) -> Maps:
    """Find the lowest `count` eigenmaps of a learner's rows X (n, d), or of an affinity X (n, n).

    learner: with the parameters of `GraphSettings`.
    joined_above: number of components above which those of a graph of local widths are joined; other graphs cause a warning.
    Raises InputError for fewer rows, MemoryBudgetError for what does not fit.
    """
    rows = checked_rows(learner, X, reset=True, least=2)
    n, limit = int(rows.shape[0]), parse_bytes(learner.memory_limit)
    if count > n:
        got, wanted = f"{count} eigenvectors", f"at most {n}, the number of rows"
        raise InputError("more eigenvectors than the graph has", where="n_components", got=got, wanted=wanted)
    check_size({f"{count:,} eigenvectors": BASES * 8 * n * count}, limit, "take fewer components")
    session = learner._session()
    allowed = Place(1, 1).allowed(limit) or int(MEMORY_SHARE * machine_memory())
    if learner.affinity == "precomputed":
        graph = graph_of(rows, laplacian="unnormalized")
    else:
        sigma = width_rule(learner.sigma, "local")
        graph = build_graph(
            rows, n_neighbors=min(learner.n_neighbors, n - 1), sigma=sigma, laplacian="unnormalized",
            joined_above=joined_above if sigma == "local" else None, memory_limit=limit, session=session,
        )  # fmt: skip
    if graph.n_components > joined_above and not graph.n_joined:
        warnings.warn(parts_text(graph, SEPARATE), DataWarning, stacklevel=3)
    degrees = graph.laplacian.diagonal()
    affinity = sparse.csr_array(sparse.diags_array(degrees) - graph.laplacian)
    matrix = laplacian_matrix(affinity)[0]
    # 12 bytes an entry: a double and a 32-bit column number of CSR.
    room = Room.of(Place.of(session), allowed, limit, GRAPHS * 12 * matrix.nnz)
    _check_room(room, session, count, matrix)
    found = smoothest(matrix, count, passes=passes_on(session, room=room), room=room.here)
    coordinates = found.vectors / np.sqrt(np.where(degrees > 0, degrees, 1.0))[:, None]
    return Maps(rows, graph, with_signs(coordinates), found.values, found.residual)


def _check_room(room: Room, session: Session, count: int, matrix: sparse.csr_array) -> None:
    """Raise MemoryBudgetError if the search exceeds this process by the leanest method, without workers."""
    needed = basis_bytes(matrix.shape[0], count, matrix.nnz, room=0)
    if not room.has(needed) and not session.is_distributed:
        assert room.here is not None
        raise MemoryBudgetError(
            f"the search for {count:,} eigenvectors does not fit", where="memory_limit", got=f"{format_bytes(max(0, room.here))} left",
            wanted=f"at least {format_bytes(needed)}", remedy="raise memory_limit, or take fewer components",
        )  # fmt: skip


# The settings of `SpectralEmbedding` and `SpectralClustering`.


@dataclass(frozen=True)
class GraphSettings(Settings):
    """Settings of the graph, and limits on what may be used."""

    affinity: Annotated[str, Word("neighbors", "precomputed"), "Of rows, or X itself."] = "neighbors"
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 10
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: local."] = (
        "auto"
    )
    standardize: Standardize = "auto"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = IN_ALL


@dataclass(frozen=True)
class EmbeddingSettings(GraphSettings):
    """Settings of a spectral embedding: the number of coordinates."""

    n_components: Annotated[int, Integer(1), "Eigenvectors after the first."] = 2
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1


@dataclass(frozen=True)
class ClusteringSettings(GraphSettings):
    """Settings of spectral clustering: the number of clusters and of coordinates."""

    n_clusters: Annotated[int, Integer(1), "Clusters."] = 8
    n_components: Annotated[
        int | None, Either(Integer(1), NotGiven()), "Eigenvectors; by default as many as clusters."
    ] = None
    n_init: Annotated[int, Integer(1), "Starts of k-means."] = 10


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
