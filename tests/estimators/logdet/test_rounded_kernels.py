"""Kernels that rounding makes worse than K0, which is handed out then."""

import numpy as np
import pytest

import dkl
from dkl.errors import ConvergenceWarning
from dkl.solvers.watch import Outcome


def test_a_prior_that_obeys_all_triplets_is_the_optimum_without_rounding():
    rng = np.random.default_rng(1)
    rows = np.repeat(np.eye(3) * 5, 8, axis=0) + rng.standard_normal((24, 3))
    triplets = np.array([[i, (i + 1) % 8, (i + 8) % 24] for i in range(5)])
    learner = dkl.LogDetKernelLearner(
        kernel="laplacian", loss="hinge", solver="pcg", gamma=0.2, holdout=0, standardize=True
    )
    learner.fit(rows, triplets=dkl.Triplets(triplets))
    assert learner.result_.outcome is Outcome.SOLVED
    # K0 has no loss and no distance to itself; an objective of 5e-31 would be 1 relative to itself.
    assert learner.certificate_.objective == 0 == learner.certificate_.gap


@pytest.mark.parametrize("seed", range(3))
def test_the_prior_stands_in_for_a_kernel_that_rounding_leaves_indefinite(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(40) % 4
    rows = 23525 + 1.5 * rng.standard_normal((4, 3))[y] + rng.standard_normal((40, 3))
    labels = np.where(rng.random(40) < 0.5, y, -1)
    learner = dkl.LogDetKernelLearner(kernel="poly", center=False, gamma=4.0, n_neighbors=12, holdout=0)
    with pytest.warns(ConvergenceWarning, match="stalled"):
        learner.fit(rows, labels)
    # Of the kernel that was learned it is infinite.
    assert np.isfinite(learner.certificate_.objective) and learner.certificate_.relative_gap <= 1
