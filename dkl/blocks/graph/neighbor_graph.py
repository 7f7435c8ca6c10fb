"""The k-nearest-neighbor similarity graph of X and its Laplacian, for an X that need not fit in memory.

W_ij is the similarity of rows i and j where i is among the k nearest of j or j among those of i; see
`dkl.linalg.graph.laplacian` for the weights and for L.

The graph is the same to the bit for every block size, memory limit, number of threads and of workers, and whatever
holds X. The exact methods agree to the bit with each other too.
"""

from __future__ import annotations

import logging
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from dkl.blocks.graph.neighbor_search import TREE_FEATURES, NeighborSearch, graph_session, plan_graph
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError, MemoryBudgetError
from dkl.linalg.graph import neighbors_ivf
from dkl.linalg.graph.graph_parts import (
    component_labels,
    component_sizes,
    cut_rows,
    cut_text,
    directed_graph,
    joining_width,
    spanning_edges,
)
from dkl.linalg.graph.laplacian import (
    SIGMA_NEIGHBORS,
    Similarity,
    average_width,
    check_laplacian,
    joined,
    kth_width,
    laplacian_matrix,
    laplacian_of,
    similarity_graph,
)
from dkl.linalg.graph.neighbors import Lists
from dkl.resources import one_blas_thread, parse_bytes

LOG = logging.getLogger("dkl")
METHODS = ("auto", "exact", "approximate")
WIDTHS = ("local", "average", "kth")
_EXACT_UP_TO = 50_000  # patterns; beyond, "auto" tries an inverted file, where the features are too many for a tree
_DENSE_FEATURES = 4096  # of sparse rows, which the inverted file holds dense
_SIZES_KEPT = 10
_LARGEST_WIDTH = 1e150  # of which the square is finite


@dataclass(frozen=True, eq=False)
class Graph:
    """A similarity graph by its Laplacian, and what is worth knowing about it.

    laplacian        (n, n) csr_array, float64, sorted indices, symmetric to the bit
    kind             "normalized" or "unnormalized"
    similarity       weights of the edges, and of its rows for unseen ones
    n_components     connected components, isolated patterns included, before any are joined
    component_sizes  of the 10 largest, largest first
    n_joined         edges that join these, one fewer than there are, or 0
    isolated         patterns of degree 0: all their similarities underflow
    n_duplicates     rows that repeat an earlier row
    most_copies      rows that equal each other, at most
    method           "brute", "tree", "approximate" or "precomputed"
    recall           share of true neighbors found, measured on a sample (approximate), or None
    seconds          wall time
    """

    laplacian: csr_array
    kind: str
    similarity: Similarity
    n_components: int
    component_sizes: NDArray[np.int64]
    n_joined: int
    isolated: NDArray[np.int64]
    n_duplicates: int
    most_copies: int
    method: str
    recall: float | None
    seconds: float

    @property
    def n(self) -> int:
        """Return the number of patterns."""
        return self.laplacian.shape[0]

    @property
    def n_neighbors(self) -> int:
        """Return k, the number of neighbors; 0 of a graph that was given."""
        return self.similarity.n_neighbors

    @property
    def sigma(self) -> float:
        """Return the similarity's width, in units of X; the median of local ones; 0 if all are duplicates."""
        return float(np.median(self.similarity.widths))

    @property
    def parts(self) -> str:
        """Describe the number of components and the sizes of the largest."""
        sizes = ", ".join(f"{size:,}" for size in self.component_sizes[:5]) + ", ..." * (self.n_components > 5)
        return f"{self.n_components:,} component{'s' * (self.n_components > 1)} ({sizes} rows)"

    def describe(self) -> str:
        """Return a line on the graph: size, edges, width, components, odd rows, how built, how fast."""
        given = self.method == "precomputed"
        parts = [
            f"{'given' if given else f'{self.n_neighbors}-nearest-neighbor'} graph of {self.n:,} patterns",
            f"{(self.laplacian.nnz - self.n + self.isolated.size) // 2:,} edges",
            *([] if given else [f"sigma {'local, median ' if self.similarity.is_local else ''}{self.sigma:.4g}"]),
        ]
        if self.n_components > 1:
            parts.append(self.parts + (f", joined by {self.n_joined:,} edges" if self.n_joined else ""))
        if self.isolated.size:
            parts.append(f"{self.isolated.size:,} isolated")
        if self.n_duplicates:
            parts.append(f"{self.n_duplicates:,} duplicate rows")
        if given:
            return "; ".join([*parts, f"{self.seconds:.3g} s"])
        search = self.method if self.recall is None else f"{self.method}, recall {self.recall:.3f}"
        return "; ".join([*parts, f"{search} search", f"{self.seconds:.3g} s"])


def build_graph(
    X: object,
    *,
    n_neighbors: int = 10,
    sigma: float | str = "average",
    sharpness: float = 1.0,
    laplacian: str = "normalized",
    method: str = "auto",
    joined_above: int | None = None,
    warns_of_cuts: bool = True,
    memory_limit: int | float | str | None = None,
    bytes_used: int = 0,
    session: Session | None = None,
    random_state: int | np.random.Generator | None = 0,
) -> Graph:
    """Build the graph of rows of `X` (n, features) and their `n_neighbors` nearest, by Euclidean distance.

    X: ndarray, memory map, scipy sparse, dask or zarr array, a path to .npy or zarr, or any object with shape, dtype
    and slices of rows. Rows in memory are sent to the workers of a cluster, each of which gets them all; rows on disk
    and dask arrays are read by the workers, once for each range of queries: one a thread, more under a tight limit.
    No pattern is its own neighbor; duplicates are neighbors at distance 0; ties go to the lower row number.
    sigma: "local", the width of each row its distance to the last of its neighbors; "average", half the average distance to the
    10 nearest, whatever `n_neighbors` is; "kth", the mean distance to the last of `n_neighbors`; or a positive number. sharpness: c of
    local widths; 0: all edges weigh 1.
    method: "exact" looks at all pairs, by matrix products, or for up to 8 dense features by a k-d tree.
    "approximate" searches with faiss (`pip install 'dkl[knn]'`) until it finds 0.99 of the neighbors of 1,000 sampled rows.
    "auto" is exact up to n = 50,000, with a tree, without faiss, and where approximating would take longer.
    joined_above: where there are more components than this, they are joined by the shortest edges between them, each of the least
    local weight, exp(-sharpness).
    warns_of_cuts: whether rows that weights of one width all but cut off are worth a warning.
    memory_limit: bytes that a process may use for this, without X; bytes_used: those taken already; see `plan_graph`.
    random_state: for the samples of "approximate".

    Raises InputError (arguments; NaN, infinity or overflow in X, with its row and column), MemoryBudgetError. Warns
    (DataWarning) of rows that are cut off, of components that are joined and of a recall below 0.99.
    """
    start = time.perf_counter()
    session = session or Session.find()
    source = row_source(X)
    _check_arguments(source.n, n_neighbors, sigma, laplacian, method)
    # Workers cannot open what only this process knows how to read.
    if source.is_foreign and session.is_distributed:
        source = source.load([(0, source.n)])
    limit = parse_bytes(memory_limit)
    session = graph_session(source, session, limit)
    way, plan = _way(source, n_neighbors, method, limit, session, bytes_used, joined_above is not None)
    search = NeighborSearch(source, session, plan["query_rows"], plan["reference_rows"], sum(_threads(session)))
    n_duplicates, most_copies = search.check()
    # The average width needs 10 neighbors even where the graph has fewer.
    k = max(n_neighbors, min(SIGMA_NEIGHBORS, source.n - 1)) if sigma == "average" else n_neighbors
    lists, way, recall = _neighbors(search, way, k, np.random.default_rng(random_state), method == "auto")
    _check_distances(lists.dist2, n_duplicates)
    similarity, affinity = _affinity(lists, n_neighbors, sigma, sharpness)
    cut = _cut_off(lists, affinity, similarity) if warns_of_cuts and not similarity.is_local else ""
    del lists  # the plan counts them together with W, but not with L
    count, labels = component_labels(affinity)
    top, n_joined = component_sizes(labels)[:_SIZES_KEPT], 0
    if joined_above is not None and count > joined_above:
        with one_blas_thread():
            edges = spanning_edges(source.read(0, source.n), labels, Session(threads=session.threads).map)
        affinity, n_joined = joined(affinity, edges, float(np.exp(-sharpness))), len(edges)
    matrix, isolated = laplacian_matrix(affinity, laplacian)
    seconds = time.perf_counter() - start
    graph = Graph(
        matrix, laplacian, similarity, count, top, n_joined, isolated, n_duplicates, most_copies, way, recall, seconds
    )
    for text in (cut or isolated_text(graph), joined_text(graph)):
        if text:
            warnings.warn(text, DataWarning, stacklevel=2)
    return graph


def _affinity(lists: Lists, n_neighbors: int, sigma: float | str, sharpness: float) -> tuple[Similarity, csr_array]:
    """Return (similarity, W) of the first `n_neighbors` of each list."""
    dist2, rows = lists.dist2[:, :n_neighbors], lists.rows[:, :n_neighbors]
    if sigma == "local":
        similarity = Similarity(np.sqrt(dist2[:, -1]), n_neighbors, sharpness)
        return similarity, similarity_graph(dist2, rows, None, sharpness)
    width = kth_width(dist2) if sigma == "kth" else average_width(lists.dist2) if sigma == "average" else float(sigma)
    return Similarity(np.array([width]), n_neighbors), similarity_graph(dist2, rows, width)


def _cut_off(lists: Lists, affinity: csr_array, similarity: Similarity) -> str:
    """Return the warning where one width for all rows cuts some from the others, or ""."""
    dist2, rows = lists.dist2[:, : similarity.n_neighbors], lists.rows[:, : similarity.n_neighbors]
    pattern = directed_graph(rows, np.ones(rows.shape, np.int8))
    cut = cut_rows(affinity, np.asarray(affinity.sum(axis=1)).ravel(), pattern)
    if not cut.size:
        return ""
    sigma, least = float(similarity.widths[0]), joining_width(dist2, rows)
    return f'sigma={sigma:.4g} cuts {cut_text(cut, len(rows))}; take sigma="local", or at least {least:.3g}'


def graph_of(affinity: object, laplacian: str = "normalized", *, warns_of_cuts: bool = True) -> Graph:
    """Build the graph of a user's `affinity` (n, n), in memory, stored or dask; see `laplacian_of`.

    It has no width and no number of neighbors: both are 0. Warns (DataWarning) of isolated patterns, and of others that are all but
    cut off if `warns_of_cuts`.
    """
    start = time.perf_counter()
    if not issparse(affinity):
        source = row_source(affinity, where="affinity")
        affinity = source.read(0, source.n)
    matrix = laplacian_of(affinity, laplacian)
    # L has an entry for every edge of W, so its components are W's; a zero on the diagonal is a degree of 0.
    count, labels = component_labels(matrix)
    isolated = np.flatnonzero(matrix.diagonal() == 0)
    cut = cut_rows(-matrix, matrix.diagonal(), matrix) if warns_of_cuts else np.empty(0, np.int64)
    seconds = time.perf_counter() - start
    top = component_sizes(labels)[:_SIZES_KEPT]
    none = Similarity(np.zeros(1), 0)
    graph = Graph(matrix, laplacian, none, count, top, 0, isolated, 0, 1, "precomputed", None, seconds)
    cuts = f"the affinity cuts {cut_text(cut, graph.n)}; raise these weights" if cut.size else ""
    for text in (isolated_text(graph), cuts):
        if text:
            warnings.warn(text, DataWarning, stacklevel=2)
    return graph


def _neighbors(
    search: NeighborSearch, way: str, k: int, rng: np.random.Generator, worth_it: bool
) -> tuple[Lists, str, float | None]:
    """Return (lists, method, recall) by `way`, or by "brute" where `worth_it` is set and that is faster."""
    if way == "approximate":
        found = search.approximate(k, rng, worth_it=worth_it)
        if found is not None:
            return found[0], way, found[1]
        way = "brute"
    tree = None
    if way == "tree":
        from sklearn.neighbors import KDTree

        source = search.source
        tree = KDTree(np.asarray(source.read(0, source.n), dtype=np.float64))
    return search.exact(k, tree), way, None


def _check_distances(dist2: NDArray[np.float64], n_duplicates: int) -> None:
    """Raise InputError if distances underflow: all rows would be duplicates, though few or none are.

    dist2 (n, k): squared distances to the nearest rows, in ascending order.
    """
    largest = float(dist2.max())
    # Of g equal rows g - 1 are duplicates, and g <= 2 (g - 1) have one at distance 0.
    alike = int(np.count_nonzero(dist2[:, 0] == 0))
    if largest < np.finfo(float).tiny / np.finfo(float).eps and (largest > 0 or alike > 2 * n_duplicates):
        what = "rows differ, but by so little that their squared distances underflow"
        raise InputError(what, where="X", remedy="scale X")


def _way(
    source: RowSource,
    n_neighbors: int,
    method: str,
    limit: int | None,
    session: Session,
    bytes_used: int = 0,
    is_joined: bool = False,
) -> tuple[str, dict[str, int]]:
    """Return ("brute", "tree" or "approximate", its plan) for `method`, within the limit.

    There is a task a thread; where rows come from memory, four, which evens out their times.
    """
    n, n_features, sparse = source.n, source.n_features, source.is_sparse
    density = min(1.0, source.entries / (n * n_features)) if sparse else 1.0
    threads = _threads(session)

    def plan(index: str) -> dict[str, int]:
        return plan_graph(
            n,
            n_features,
            source.dtype.itemsize,
            n_neighbors,
            limit,
            n_slots=max(threads),
            n_tasks=sum(threads) * (4 if source.is_in_memory and not session.is_distributed else 1),
            chunk_rows=source.rows_per_chunk,
            density=density,
            in_place=source.is_in_place,
            index=index,
            is_joined=is_joined,
            bytes_used=bytes_used,
        )

    wishes = []
    tree = not sparse and n_features <= TREE_FEATURES
    if method == "approximate":
        neighbors_ivf.require_faiss()
        if sparse and n_features > _DENSE_FEATURES:
            wanted = f"at most {_DENSE_FEATURES} features"
            raise InputError("too many sparse features for faiss", where="X", got=n_features, wanted=wanted)
        return "approximate", plan("ivf")
    if tree:
        wishes.append(("tree", "tree"))
    elif method == "auto" and n > _EXACT_UP_TO and (not sparse or n_features <= _DENSE_FEATURES):
        if neighbors_ivf.faiss_available():
            wishes.append(("approximate", "ivf"))
        else:
            LOG.warning("faiss is missing: each of %s rows is compared with all; pip install 'dkl[knn]'", f"{n:,}")
    # An index only saves time: where it does not fit the limit, all pairs are compared, which needs the least memory.
    for way, index in wishes:
        try:
            return way, plan(index)
        except MemoryBudgetError:
            continue
    return "brute", plan("none")


def _threads(session: Session) -> list[int]:
    """Return the number of threads of each process that does the work."""
    if not session.is_distributed:
        return [session.threads]
    return list(session.client.nthreads().values()) or [1]


def _check_arguments(n: int, n_neighbors: object, sigma: Any, laplacian: str, method: str) -> None:
    """Raise InputError for the first argument of `build_graph` out of range, before X is read."""
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, (int, np.integer)) or not 1 <= n_neighbors < n:
        raise InputError(
            "as many neighbors as that cannot be found",
            where="n_neighbors",
            got=repr(n_neighbors),
            wanted=f"an integer from 1 to {n - 1}, the number of other rows",
        )
    is_word = isinstance(sigma, str) and sigma in WIDTHS
    is_number = isinstance(sigma, (int, float, np.number)) and not isinstance(sigma, bool)
    if not is_word and not (is_number and 0 < sigma < _LARGEST_WIDTH):
        wanted = f'"local", "average", "kth", or a positive number below {_LARGEST_WIDTH:g}'
        raise InputError("not a width", where="sigma", got=repr(sigma), wanted=wanted)
    if method not in METHODS:
        raise InputError("unknown method", where="method", got=repr(method), wanted=METHODS)
    check_laplacian(laplacian)


# -- texts of warnings -------------------------------------------------------------------------------------------------


def isolated_text(graph: Graph) -> str:
    """Return the warning of rows without edges, or ""."""
    if not graph.isolated.size:
        return ""
    what = f"{graph.isolated.size:,} of {graph.n:,} patterns are isolated"
    first = f"first: row {graph.isolated[0]}"
    if graph.method == "precomputed":
        return f"{what}: they have no affinity ({first})"
    return f"{what}: all their similarities underflow at sigma = {graph.sigma:.4g} ({first}); scale X, or set sigma"


def joined_text(graph: Graph) -> str:
    """Return the warning that components were joined, or ""."""
    if not graph.n_joined:
        return ""
    edges = f"{graph.n_joined:,} shortest edges" if graph.n_joined > 1 else "shortest edge"
    return f"the neighbor graph had {graph.parts}, joined by the {edges} between them; {parts_remedy(graph)}"


def parts_text(graph: Graph, so: str) -> str:
    """Return the warning that a graph has several components. so: the consequence of that, as text."""
    return f"the neighbor graph has {graph.parts}: {so}; {parts_remedy(graph)}"


def parts_remedy(graph: Graph) -> str:
    """Return the advice on how to get fewer components."""
    if graph.method == "precomputed":
        return "give affinities between them"
    if graph.most_copies > graph.n_neighbors:
        return f"take n_neighbors above {graph.most_copies - 1:,}, the copies of a row, or drop these"
    return "raise n_neighbors"
