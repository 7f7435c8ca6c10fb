"""Candidates for nearest neighbors from an inverted-file index (faiss): rows of the nearest cells.

The index holds float32 copies of all rows, less their center. It only proposes; the distances that count are taken
afterwards from the rows themselves. Searches go in pieces of a fixed size on one thread each, since the shape of
a matrix product may decide its rounding, hence a tie between two cells.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.graph.neighbors import Rows

if TYPE_CHECKING:
    from types import ModuleType

PIECE = 1024  # query rows that are searched for together
SAMPLE_PER_CELL = 64  # training rows a cell; faiss wants 39 at least
_ADD_PIECE = 8192


def n_cells(n: int) -> int:
    """Return the number of cells of an inverted file: 2 sqrt(n), or fewer where a cell would starve."""
    # Measured best of 1, 2, 4 times sqrt(n) at n = 300,000.
    return max(1, min(int(2 * np.sqrt(n)), n // 40))


def sample_size(n: int) -> int:
    """Return how many of n rows an inverted file should be trained on: 64 a cell."""
    return min(n, SAMPLE_PER_CELL * n_cells(n))


@dataclass(frozen=True, eq=False)
class InvertedFile:
    """A faiss index over all rows less `center` (features,), the mean of the training sample."""

    index: Any
    center: NDArray[np.float64]


def faiss_available() -> bool:
    """Return whether faiss is installed, without importing it."""
    return importlib.util.find_spec("faiss") is not None


def require_faiss() -> ModuleType:
    """Return the faiss module. Raises InputError with how to install it where it is missing."""
    if not faiss_available():
        raise InputError(
            "approximate neighbors need faiss, which is not installed",
            where='method="approximate"',
            remedy="pip install 'dkl[knn]', or take method=\"exact\"",
        )
    import faiss

    return faiss


def train(sample: Rows, n: int) -> InvertedFile:
    """Return an empty index for `n` rows, its cells found by k-means on `sample` (rows, features).

    Raises InputError where faiss is missing. The seed is faiss's own constant, and k-means runs on one thread, so equal
    samples give equal cells.
    """
    faiss = require_faiss()
    dense = _dense(sample)
    center = dense.mean(axis=0)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dense.shape[1]), dense.shape[1], n_cells(n))
    index.cp.max_points_per_centroid = 2 * SAMPLE_PER_CELL  # no second sample from our sample
    with _one_thread(faiss):
        # Less their center: float32 keeps 7 digits, which a common offset of the rows would use up.
        index.train((dense - center).astype(np.float32))
    return InvertedFile(index, center)


def add(inverted: InvertedFile, rows: Rows) -> None:
    """Add the next rows; they are numbered as they come."""
    with _one_thread(require_faiss()):
        for start in range(0, rows.shape[0], _ADD_PIECE):
            inverted.index.add((_dense(rows[start : start + _ADD_PIECE]) - inverted.center).astype(np.float32))


def candidates(inverted: InvertedFile, queries: Rows, m: int, n_probes: int) -> NDArray[np.int64]:
    """Return (rows, m) int64: the m rows nearest to each query among those in its `n_probes` nearest cells; -1 where there are fewer.

    Near in float32 only. A query's own row is mostly among them, so ask for one more than is wanted.
    """
    faiss = require_faiss()
    found = np.empty((queries.shape[0], m), dtype=np.int64)
    parameters = faiss.SearchParametersIVF(nprobe=n_probes)
    with _one_thread(faiss):
        for start in range(0, len(found), PIECE):
            piece = (_dense(queries[start : start + PIECE]) - inverted.center).astype(np.float32)
            found[start : start + PIECE] = inverted.index.search(piece, m, params=parameters)[1]
    return found


def _dense(rows: Rows) -> NDArray[np.float64]:
    """Return the rows as an ndarray: faiss takes no sparse ones."""
    return rows if isinstance(rows, np.ndarray) else rows.toarray()


@contextmanager
def _one_thread(faiss: ModuleType) -> Iterator[None]:
    """Run OpenMP on one thread within; the setting is the calling thread's, others are not disturbed."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
