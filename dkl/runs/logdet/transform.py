"""`dkl transform` of a learned kernel: principal coordinates of any rows, block by block, from what the run keeps of K0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_pieces import Block
from dkl.estimators.common.prior_kernels import neighbor_means
from dkl.estimators.common.run_arrays import read_points, trained_on
from dkl.estimators.logdet.model import check_model, kept_graph, kept_kernel, settings_in
from dkl.problems.column_pass import check_rows
from dkl.problems.column_predict import predict_block
from dkl.runs.prediction_plan import Needs, kernel_needs
from dkl.runs.predictions import Predictor
from dkl.stores.run import RunStore

TREE_COPIES = 3
"""Of the rows a graph is of: themselves, in double as a search has them, and its tree or the distances of some."""


@dataclass(frozen=True)
class GraphRows:
    """rows (n, d) of a graph with their coordinates (n, k): a new row has the mean of those of its neighbours."""

    rows: Any
    coordinates: NDArray[np.float64]
    sigma: float
    n_neighbors: int

    @property
    def nbytes(self) -> int:
        """For a session to send it once."""
        return int(self.coordinates.nbytes + getattr(self.rows, "nbytes", 0))


def predictor(run: RunStore) -> Predictor:
    """Of the stored kernel; StoreError for parts that do not fit together."""
    settings, found = settings_in(run), run.read_arrays("model")
    check_model(run, found)
    n_features, k = trained_on(run)[1], len(found["offset"])
    if settings.kernel == "laplacian":
        where = f"{run.path}/model"
        graph = kept_graph(settings, found, where)
        kept = GraphRows(read_points(found, where), found["coordinates"], graph.sigma, graph.n_neighbors)
        return _predictor(n_features, k, lambda rows, some: rows.map(extend_rows, kept, only=some), _graph_needs(kept))
    weights = found["weights"].copy()
    weights[np.searchsorted(found["basis"], found["touched"])] += found["weights_at_points"]
    kernel, folded = kept_kernel(settings, found), np.ascontiguousarray(weights.T)
    points = found["basis"] if kernel.is_precomputed else read_points(found, f"{run.path}/model")
    given = (predict_block, kernel, points, folded, -found["offset"])
    return _predictor(n_features, k, lambda rows, some: rows.map(*given, only=some), kernel_needs(points, folded))


def _predictor(n_features: int, k: int, blocks: Any, needs: Needs) -> Predictor:
    def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return np.concatenate(blocks(rows, some))

    summary = f"rows of {k} principal coordinates under the learned kernel"
    return Predictor((k,), np.float64, lambda found: n_features, together, None, summary, needs, "factor")


def extend_rows(block: Block, kept: GraphRows) -> NDArray[np.float64]:
    """(t, k): coordinates of a block of rows, means of their neighbours'; of a row that the graph is of its own."""
    check_rows(block)
    return np.asarray(neighbor_means(block.rows, kept.rows, kept) @ kept.coordinates)


def _graph_needs(kept: GraphRows) -> Needs:
    d = int(kept.rows.shape[1])

    def block(count: int) -> int:
        return 8 * (TREE_COPIES * int(np.prod(kept.rows.shape)) + count * (4 * d + 8 * kept.n_neighbors))

    return Needs(kept.nbytes, block, 8 * kept.coordinates.shape[1])
