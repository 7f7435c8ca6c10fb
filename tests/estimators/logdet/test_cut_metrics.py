"""`LogDetMetricLearner(n_components=K)`: the learned metric cut to K columns, which all methods and runs follow."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import call
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import dkl
from dkl.errors import InputError
from dkl.linalg.eigen.principal_coordinates import leading_components

X, Y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.fixture(scope="module")
def whole():
    return dkl.LogDetMetricLearner(standardize=False).fit(X, Y)


@pytest.fixture(scope="module")
def cut():
    return dkl.LogDetMetricLearner(standardize=False, n_components=3).fit(X, Y)


def test_columns_are_principal_components_of_the_learned_rows(whole, cut):
    """By scikit-learn's PCA of what the whole metric makes of the rows; what is proven is of the whole metric."""
    wanted = PCA(3).fit_transform(whole.transform(X))
    found = cut.transform(X)
    assert found.shape == (len(X), 3) and cut.components_.shape == (3, X.shape[1])
    assert_allclose(np.abs(found - found.mean(axis=0)), np.abs(wanted), rtol=1e-8, atol=1e-8)
    assert (cut.components_.max(axis=1) == np.abs(cut.components_).max(axis=1)).all()
    assert cut.certificate_ == whole.certificate_ and cut.result_.outcome == whole.result_.outcome


def test_it_keeps_most_of_all_metrics_of_that_rank(whole, cut, rng):
    """Of the sum of squared distances: more than the first eigenvectors of W, or than axes at random."""
    kept = np.square(pdist(cut.transform(X))).sum()
    others = [np.eye(X.shape[1]), *(np.linalg.qr(rng.standard_normal(2 * X.shape[1:]))[0] for _ in range(20))]
    rows = whole.transform(X)
    assert all(np.square(pdist(rows @ axes[:, :3])).sum() < kept for axes in others)
    assert kept < np.square(pdist(rows)).sum()


def test_all_that_the_learner_says_is_of_these_columns(cut):
    rows, ends = cut.transform(X), np.stack([X[:20], X[50:70]], axis=1)
    apart = np.linalg.norm(rows[:20] - rows[50:70], axis=1)
    assert_allclose(cut.pair_distance(ends), apart, rtol=1e-9)
    assert_allclose([cut.get_metric()(u, v) for u, v in ends], apart, rtol=1e-9)
    assert_allclose(cut.kernel_matrix(X[:5], X), rows[:5] @ rows.T, rtol=1e-9, atol=1e-9)
    W = cut.get_mahalanobis_matrix()
    assert np.linalg.matrix_rank(W) == 3
    assert_allclose(cdist(rows[:9], rows[9:]), cdist(X[:9], X[9:], "mahalanobis", VI=W), rtol=1e-8)
    assert list(cut.get_feature_names_out()) == [f"logdetmetriclearner{k}" for k in range(3)]
    model = pickle.loads(pickle.dumps(cut)).calibrate_threshold(ends, np.where(Y[:20] == Y[50:70], 1, -1))
    assert_array_equal(model.predict_pairs(ends), np.where(apart <= model.threshold_, 1, -1))
    assert model.plot().axes


def test_as_many_as_columns_is_a_turn(whole):
    turned = clone(whole).set_params(n_components=X.shape[1]).fit(X, Y)
    assert_allclose(turned.get_mahalanobis_matrix(), whole.get_mahalanobis_matrix(), rtol=1e-9, atol=1e-12)


def test_along_a_path_and_in_a_run(tmp_path):
    """A model of a path and a run's learner are cut alike; a metric of fewer rows than columns is cut, too."""
    options = {"n_components": 2, "n_in": 2, "n_out": 2, "standardize": True, "n_jobs": 1}
    model = dkl.LogDetMetricLearner(**options).path(X, Y, [1.0, 16.0]).model(1)
    np.savez(tmp_path / "X.npz", X=X, y=Y)
    words = ["--n-components", "2", "--n-in", "2", "--n-out", "2", "--standardize", "--gamma", "1", "--gamma", "16"]
    files = ["--data", tmp_path / "X.npz", "--out", tmp_path / "run.zarr", "--threads", "1", "--no-picture"]
    answer = call("fit", "metric", *files, *words)
    assert answer.code == 0, answer.err
    assert_array_equal(dkl.load(tmp_path / "run.zarr").components_, model.components_)
    one = dkl.LogDetMetricLearner(n_components=1, loss="log").fit(X[::60, :5], triplets=[[0, 1, 2]])
    assert one.transform(X[:, :5]).shape == (len(X), 1) and one.plot().axes


def test_in_a_pipeline_that_chooses_the_columns():
    steps = make_pipeline(dkl.LogDetMetricLearner(standardize=False, holdout=0.0), LogisticRegression())
    found = GridSearchCV(steps, {"logdetmetriclearner__n_components": [1, 4, None]}, cv=3).fit(X, Y)
    assert (found.cv_results_["mean_test_score"] > 0.6).all() and found.best_score_ > 0.95


@pytest.mark.parametrize("count", [0, -1, 2.5, "2", True, 14])
@pytest.mark.parametrize("rows", [X, sp.csr_array(X)], ids=["dense", "sparse"])
def test_refused_before_any_work(count, rows, monkeypatch):
    monkeypatch.setattr("dkl.estimators.base.mahalanobis.side_information", lambda *_, **__: pytest.fail("work"))
    with pytest.raises(InputError, match="n_components"):
        dkl.LogDetMetricLearner(n_components=count, standardize=False).fit(rows, Y)


def test_neither_scale_plays_a_part():
    """Metrics near 0 and rows whose squares are not finite have the same axes."""
    C, T = np.linalg.cholesky(np.cov(X, rowvar=False)).T, X - X.mean(axis=0)
    wanted = leading_components(C, T, 4)
    assert_allclose(leading_components(C * 2.0**-100, T * 2.0**600, 4) * 2.0**100, wanted, rtol=1e-12)
