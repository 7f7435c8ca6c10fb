"""A few of the trials of tests/solved_trials.py: no "solved" is false at any scale, and a false one is seen."""

import numpy as np
import pytest
from solved_oracles import components, exact
from solved_trials import LEARNERS, trial

FEW = {
    "kmeans": 2,
    "kpca": 3,
    "laplacian": 1,
    "logdet": 1,
    "metric": 2,
    "mvu": 1,
    "regression": 2,
    "spectral": 2,
    "svc": 2,
}


@pytest.mark.parametrize(
    ("learner", "seed"), [*((name, seed) for name, count in FEW.items() for seed in range(count)), ("metric", 12)]
)
def test_what_is_solved_is_so(learner, seed):
    found = trial(learner, seed)
    assert not found.is_false and found.outcome != "error", found.what


@pytest.mark.exhaustive
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_tenth_of_them(learner):
    wrong = [one for one in (trial(learner, seed) for seed in range(10)) if one.is_false or one.outcome == "error"]
    assert not wrong, wrong


def test_the_oracle_sees_what_is_no_eigenpair():
    K = exact(np.diag([4.0, 1.0, 1.0]) + 1e-5)
    left, allowed = components(K, np.array([4.0]), np.array([[1.0], [0.0], [0.0]]), 1e-6)
    assert left > allowed
