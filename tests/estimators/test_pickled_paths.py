"""A path outlives its process: its models are made after it was pickled, also where workers have found it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import dkl

X, Y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
X[:, 0] += 2 * Y
LEARNERS: dict[str, tuple[Any, list[float], tuple[int, ...], str]] = {
    "logdet": (dkl.LogDetKernelLearner(n_in=3, n_out=3), [1.0, 4.0], (1,), "transform"),
    "metric": (dkl.LogDetMetricLearner(n_in=3, n_out=3), [1.0, 4.0], (1,), "transform"),
    "svc": (dkl.OptimalNeighborhoodSVC(kernel="rbf"), [1.0, 4.0], (1, 0), "decision_function"),
}
"""Learners with a path of models, its values, a point of it, and what its model answers by."""


@pytest.mark.parametrize("name", LEARNERS)
def test_models_of_a_path_are_the_same_from_a_pickle(client: Any, name: str) -> None:
    learner, values, point, answer = LEARNERS[name]
    path = clone(learner).set_params(client=client).path(X, Y, values)
    again = pickle.loads(pickle.dumps(path))
    expected, found = (getattr(one.model(*point), answer)(X) for one in (path, again))
    assert found.tobytes() == expected.tobytes() and np.ptp(found) > 0
