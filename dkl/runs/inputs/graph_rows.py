"""Coordinates of new rows from a graph's rows, block by block: `dkl transform` of several learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.linalg.graph.similarity import Similarity
from dkl.runs.output.prediction_plan import Needs, graph_needs
from dkl.runs.output.predictions import Predictor

if TYPE_CHECKING:
    from dkl.linalg.rows.row_types import Rows


@dataclass(frozen=True)
class GraphRows:
    """Graph's rows (n, d) with their coordinates (n, k): a new row has the mean of its neighbors'."""

    rows: Rows
    coordinates: NDArray[np.float64]
    similarity: Similarity

    @property
    def nbytes(self) -> int:
        """Return the bytes of coordinates, similarity and rows, so that a session sends them once."""
        return int(self.coordinates.nbytes + self.similarity.nbytes + getattr(self.rows, "nbytes", 0))

    def predictor(self, summary: str) -> Predictor:
        """Return a predictor of coordinates; summary: what they are, in a line after their number."""
        d, k = int(self.rows.shape[1]), int(self.coordinates.shape[1])

        def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
            return np.concatenate(rows.map(extend_rows, self, only=some))

        return Predictor((k,), np.float64, lambda found: d, together, None, summary, self._needs(), "factor")

    def _needs(self) -> Needs:
        n, d = self.rows.shape
        return graph_needs(int(n), int(d), int(self.coordinates.shape[1]), self.similarity.n_neighbors)


def extend_rows(block: Block, kept: GraphRows) -> NDArray[np.float64]:
    """Return coordinates (t, k) of a block: means over a row's neighbors, or its own if the graph has it."""
    from dkl.estimators.base.prior_kernels import neighbor_means

    require_finite(block)
    return np.asarray(neighbor_means(block.rows, kept.rows, kept.similarity) @ kept.coordinates)
