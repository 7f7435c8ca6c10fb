"""Ranks of neighbors in another space, by sorting all distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from dkl.linalg.graph.neighbors import ranks_beyond


@pytest.mark.parametrize("decimals", [9, 0], ids=["distinct", "ties"])
@pytest.mark.parametrize(("m", "k"), [(2, 1), (25, 3), (120, 10)])
def test_sums_are_those_of_stable_sorting(m, k, decimals, rng):
    near, far = (cdist(X, X) for X in (np.round(rng.standard_normal((m, 3)), decimals) for _ in range(2)))
    for distances in (near, far):
        np.fill_diagonal(distances, -np.inf)
    order, ranks = np.argsort(near, axis=1, kind="stable"), np.argsort(np.argsort(far, axis=1, kind="stable"), axis=1)
    wanted = [np.maximum(ranks[i, order[i, 1 : k + 1]] - k, 0).sum() for i in range(m)]
    assert ranks_beyond(near, far, k).tolist() == wanted
