"""Laplacian eigenmaps f = D^-1/2 u, L_sym u = lambda u, L_sym = I - D^-1/2 W D^-1/2: L f = lambda D f.

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

from dkl.blocks.graph.distributed_products import Room, passes_on
from dkl.blocks.graph.neighbor_graph import Graph, build_graph, graph_of, parts_text
from dkl.blocks.memory_plan import Place, check_size
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.session import Session
from dkl.errors import DataWarning, InputError, MemoryBudgetError
from dkl.estimators.base.rules import WIDTH, Either, Integer, NotGiven, Size, Word, width_rule
from dkl.estimators.base.settings import IN_ALL, SHARE_HELD_OUT, Settings, Standardize
from dkl.estimators.base.validation import checked_rows
from dkl.linalg.eigen.laplacian_eigenmaps import basis_bytes, smoothest
from dkl.linalg.eigen.principal_coordinates import with_signs
from dkl.linalg.graph.laplacian import laplacian_matrix
from dkl.resources import format_bytes, parse_bytes

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.user_types import UserRows
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
