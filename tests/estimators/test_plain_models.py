"""The plain alternatives predict what scikit-learn's do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.preprocessing import StandardScaler

from dkl.estimators.base.plain_models import linear_predictions


def rows(rng, m, d):
    X = rng.standard_normal((m, d)) * rng.uniform(0.1, 1e4, d) + 1e3
    X[:, 0] = 0.0  # constant
    return X, rng.uniform(0.2, 2.0, m)


@pytest.mark.parametrize(("m", "d"), [(60, 7), (20, 33)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8])
def test_targets(m, d, dtype, rng):
    X, weights = rows(rng, m + 9, d)
    X = X.astype(dtype) if dtype != np.uint8 else rng.integers(0, 255, X.shape).astype(dtype)
    for y in (rng.standard_normal(m), rng.standard_normal((m, 3))):
        scaler = StandardScaler().fit(X[:m].astype(float), sample_weight=weights[:m])
        model = Ridge().fit(scaler.transform(X[:m].astype(float)), y, sample_weight=weights[:m])
        found = linear_predictions(X[:m], y, weights[:m], X[m:])
        assert_allclose(found, model.predict(scaler.transform(X[m:].astype(float))), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_classes(n_classes, form, rng):
    X, weights = rows(rng, 120, 5)
    y = 3 * (np.arange(120) % n_classes) + 1
    X[:, 1] += 1e4 * y
    scaler = StandardScaler(with_mean=form is np.asarray).fit(form(X)[:100], sample_weight=weights[:100])
    model = RidgeClassifier().fit(scaler.transform(form(X)[:100]), y[:100], sample_weight=weights[:100])
    found = linear_predictions(form(X)[:100], y[:100], weights[:100], form(X)[100:], of_classes=True)
    assert_array_equal(found, model.predict(scaler.transform(form(X)[100:])))
