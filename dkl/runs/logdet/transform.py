"""`dkl transform` of a learned kernel: principal coordinates of any rows, block by block, from what the run keeps of K0."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.estimators.base.run_arrays import read_points, trained_on
from dkl.estimators.logdet.model import check_model, kept_kernel, settings_in, stored_similarity
from dkl.problems.column_predict import predict_block
from dkl.runs.inputs.graph_rows import GraphRows
from dkl.runs.output.prediction_plan import Needs, kernel_needs
from dkl.runs.output.predictions import Predictor
from dkl.stores.run import RunStore


def predictor(run: RunStore) -> Predictor:
    """Return a predictor by the stored kernel; StoreError for parts that do not fit together."""
    settings, found = settings_in(run), run.read_arrays("model")
    check_model(run, found)
    n_features, k = trained_on(run)[1], len(found["offset"])
    if settings.kernel == "laplacian":
        where = f"{run.path}/model"
        similarity = stored_similarity(settings, found, where)
        kept = GraphRows(read_points(found, where), found["coordinates"], similarity)
        return kept.predictor(_summary(k))
    weights = found["weights"].copy()
    weights[np.searchsorted(found["basis"], found["touched"])] += found["weights_at_points"]
    kernel, folded = kept_kernel(settings, found), np.ascontiguousarray(weights.T)
    points = found["basis"] if kernel.is_precomputed else read_points(found, f"{run.path}/model")
    given = (predict_block, kernel, points, folded, -found["offset"])
    needs, of_kernel = kernel_needs(points, folded), kernel.is_precomputed
    return _predictor(n_features, k, lambda rows, some: rows.map(*given, only=some), needs, of_kernel)


def _predictor(n_features: int, k: int, blocks: Any, needs: Needs, of_kernel: bool) -> Predictor:
    def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
        return np.concatenate(blocks(rows, some))

    return Predictor(
        (k,), np.float64, lambda found: n_features, together, None, _summary(k), needs, "factor", of_kernel
    )


def _summary(k: int) -> str:
    return f"rows of {k} principal coordinates under the learned kernel"
