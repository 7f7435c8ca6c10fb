"""Harmonic extension of the learned factor to new points over the neighbor graph, by blocks of rows.

Each block finds its neighbors in one pass over the rows that were learned from, in memory or not; in few dimensions by
a k-d tree of them, if there is memory for one. Lists of neighbors are exact, and so the same either way and for any cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.blocks.graph.neighbor_search import TREE_FEATURES, tree_bytes
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block, blocks, first_bad, opened, refuse_first
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.blocks.session import Session
from dkl.linalg.graph.laplacian import Similarity
from dkl.linalg.graph.neighbors import QUERY_TILE, REFERENCE_TILE, Lists, absorb, empty_lists, search_tree

if TYPE_CHECKING:
    from sklearn.neighbors import KDTree

    from dkl.linalg.rows import Rows

LEAST_ROWS = 512
"""Minimum new rows that share a pass over the learned ones, whose reading and conversion it repays."""
REFERENCE_BYTES = 4_000_000
"""Bytes of learned rows that are read at a time."""


@dataclass(frozen=True)
class Extension:
    """Extension of a factor to new points.

    learned: the rows that were learned from, n of them; factor (n, rank), theirs; similarity: the graph's; tree: of the rows, or
    None.
    """

    learned: RowSource
    factor: Any
    similarity: Similarity
    tree: KDTree | None = None

    @classmethod
    def of(cls, learned: RowSource, factor: object, similarity: Similarity, most: float = np.inf) -> Extension:
        """Build the extension, with a k-d tree if that is useful and takes at most `most` bytes."""
        tree = None
        if index_bytes(learned, most) > 0:
            from sklearn.neighbors import KDTree

            # Checked before: scikit-learn's tree would take a value without finite distances, or name no row.
            tree = KDTree(_finite(learned.read(0, learned.n), 0))
        return cls(learned, factor, similarity, tree)

    @property
    def nbytes(self) -> int:
        """Return the bytes of the arrays in it; a session reads it to send them once."""
        held = 0 if not self.learned.is_in_memory else self.learned.n * self.learned.row_bytes
        return int(
            self.factor.nbytes + self.similarity.nbytes + held + (0 if self.tree is None else self.tree.data.nbytes)
        )

    def nearest(self, queries: Rows) -> Lists:
        """Return the neighbors of new rows among those learned from, ties by the lower number."""
        k = min(self.similarity.n_neighbors, self.learned.n)
        ids = np.full(queries.shape[0], -1)  # which no row has: none is left out
        if self.tree is not None:
            return search_tree(self.tree, np.require(queries, np.float64, ["C", "A"]), ids, k)
        lists = empty_lists(queries.shape[0], k)
        for first, rows in blocks(opened(self.learned), reference_rows(self.learned)):
            absorb(lists, queries, ids, _finite(rows, first), first)
        return lists

    def mean(self, lists: Lists) -> NDArray:
        """Return sum_j w_j v_j (m, rank) of the neighbors j, scaled to norm 1; of a learned row its own.

        w_j by the graph's similarity; a learned row is one that equals a row that was learned from.
        """
        with np.errstate(over="ignore"):
            weights = self.similarity.weights(lists.dist2, lists.rows)
        ids, place = np.unique(lists.rows, return_inverse=True)
        known, place = np.asarray(self.factor[ids]), place.reshape(lists.rows.shape)
        mean = np.zeros((len(place), known.shape[1]))
        for weight, row in zip(weights.T, place.T, strict=True):
            mean += weight[:, None] * known[row]
        # T asks K(x, x) = 1 of every row; a mean that is 0 stays so.
        norms = np.linalg.norm(mean, axis=1, keepdims=True)
        mean /= np.where(norms > 0, norms, 1.0)
        exact = lists.dist2[:, 0] == 0
        mean[exact] = known[place[exact, 0]]
        return mean.astype(known.dtype)


def index_bytes(learned: RowSource, most: float) -> int:
    """Return the bytes of a k-d tree of these rows; 0 if products are as fast or it exceeds `most`."""
    size = tree_bytes(learned.n, learned.n_features)
    return size if not learned.is_sparse and learned.n_features <= TREE_FEATURES and size <= most else 0


def reference_rows(learned: RowSource) -> int:
    """Return the number of learned rows that are read at a time."""
    return max(1, REFERENCE_BYTES // learned.row_bytes)


def work_bytes(learned: RowSource, rank: int, n_neighbors: int, block_rows: int) -> int:
    """Return the bytes that a thread takes for a block of new rows, without those rows.

    Counted are a block of references, its working copies with a table of products, the lists, and the mean with what is
    added to it.
    """
    references, entries = reference_rows(learned), max(1, learned.row_bytes // learned.dtype.itemsize)
    chunks = 0 if learned.is_in_memory else references + 2 * learned.rows_per_chunk
    tiles = 16 * (entries + 1) * (QUERY_TILE + min(REFERENCE_TILE, references)) + 8 * QUERY_TILE * REFERENCE_TILE
    lists = block_rows * 8 * (6 * n_neighbors + 5 * rank)
    return (references + chunks) * learned.row_bytes + tiles + lists


def extend_factor(rows: Rows, learned: Rows, factor: object, similarity: Similarity, threads: int | None = None) -> Any:
    """Return the factor's rows (m, rank): of learned rows theirs, else the weighted mean of neighbors'.

    Weights are those of the graph's similarity over its number of neighbors. The mean is scaled to norm 1: K(x, x) = 1 is what T
    asks of every pattern. Of one width, a new point that is far from all (the weights underflow) takes its nearest neighbor's row.
    """
    new, old = row_source(rows), row_source(learned)
    if is_same(new, old):
        return factor
    # What only this process can read is read by one thread: who made it may not expect several.
    session = Session(None, threads=threads if old.is_in_memory or old.is_stored else 1)
    cut = RowBlocks(new, session, once=True, least_rows=LEAST_ROWS)
    return np.concatenate(cut.map(extend_block, Extension.of(old, factor, similarity)))


def extend_block(block: Block, extension: Extension) -> NDArray:
    """Return the factor's rows (t, rank) for a block; InputError for a value without finite distances."""
    queries = _finite(block.rows, block.start)
    if extension.learned.is_sparse != sparse.issparse(queries):
        queries = sparse.csr_array(queries) if extension.learned.is_sparse else queries.toarray()
    return extension.mean(extension.nearest(queries))


def is_same(new: RowSource, old: RowSource) -> bool:
    """Return whether both hold the same rows, compared a block at a time."""
    if new.array is old.array:
        return True
    if new.array.shape != old.array.shape or new.is_sparse != old.is_sparse:
        return False
    for lo in range(0, new.n, step := reference_rows(old)):
        a, b = (source.read(lo, min(lo + step, new.n)) for source in (new, old))
        if (a != b).nnz if sparse.issparse(a) else not np.array_equal(a, b):
            return False
    return True


def _finite(rows: Rows, first: int) -> Any:
    """Return the rows; InputError for a value without finite distances: NaN, infinity, or too large."""
    refuse_first([first_bad(rows, first)], rows.shape[1])
    return rows
