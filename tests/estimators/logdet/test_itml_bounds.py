"""ITML's bounds that are percentiles of distances: of rows that are equal to rounding, and of distances that are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import dkl
from dkl.baselines import ITMLKernelLearner, ITMLMetricLearner


@pytest.mark.filterwarnings("ignore:.*rows at distance 0:dkl.errors.DataWarning")
@pytest.mark.parametrize("noise", [1e-8, 1e-12])
@pytest.mark.parametrize(
    "model",
    [
        dkl.LogDetMetricLearner(standardize=False, holdout=0),
        dkl.LogDetKernelLearner(loss="itml", standardize=False, holdout=0),
        ITMLMetricLearner(standardize=False, random_state=0),
        ITMLKernelLearner(standardize=False, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_rows_that_are_given_twice_but_for_rounding_set_no_bound(model, noise, rng):
    """Their distances were more than 5 % of all: the least bound was 1e-17 of the others, and the metric infinite.

    As of rows that are equal, the least bound is the least distance that is more than rounding.
    """
    rows, y = rng.normal(size=(12, 3)), np.tile([0, 1], 12)
    X = np.vstack([rows, rows])
    model.fit(X + noise * rng.normal(size=X.shape), y)  # a ConvergenceWarning is an error here
    found = model.certificate_
    assert found.relative_gap <= 1e-6
    assert found.objective == pytest.approx(model.fit(X, y).certificate_.objective, rel=1e-3)


@pytest.mark.parametrize("gamma", [1.0, 1e3, 1e6])
@pytest.mark.parametrize("model", [dkl.LogDetMetricLearner(holdout=0), ITMLMetricLearner()], ids=["newton", "itml"])
def test_distances_that_are_equal_are_within_their_bounds(model, gamma, rng):
    """Of d + 1 rows all distances are equal under the inverse of their covariance: no pair asks for another metric.

    Rounding alone was beyond the percentiles: F of 1e-28 with a relative gap of 1, and up to 1,000 sweeps.
    """
    X = 3 * np.vstack([np.zeros(4), np.eye(4)]) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    model.set_params(gamma=gamma, prior="covariance", standardize=False).fit(X, [0, 1, 0, 1, 0])
    assert model.certificate_.relative_gap == 0 and model.certificate_.objective == 0
    assert_allclose(model.get_mahalanobis_matrix(), np.linalg.inv(np.cov(X.T)), rtol=1e-9, atol=1e-9)
