"""Predictions of few rows are those of a pass over many, to the bit, and a block's are the formula's."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from odd_addresses import at_odd_address
from sklearn.metrics.pairwise import rbf_kernel

import dkl
from dkl.blocks.rows import predictions
from dkl.blocks.rows.predictions import FewRows, KeptPoints, predict_block, rows_to_predict
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.kernels.kernel_columns import Kernel

X = np.random.default_rng(0).standard_normal((90, 4))
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
HERE = Session(None, threads=1)
FITTED = {
    "svc": lambda: dkl.OptimalNeighborhoodSVC(holdout=0).fit(X, Y),
    "svc, two kernels": lambda: dkl.OptimalNeighborhoodSVC(kernel=["rbf", "linear"], holdout=0).fit(X, Y),
    "svc, precomputed": lambda: dkl.OptimalNeighborhoodSVC(kernel="precomputed", holdout=0).fit(X @ X.T, Y),
    "regression": lambda: dkl.LowRankKernelRegressor(n_columns=20, holdout=0).fit(X, X[:, :2]),
    "kernel PCA": lambda: dkl.KernelPCA(2).fit(X),
    "kernel k-means": lambda: dkl.KernelKMeans(3, random_state=0).fit(X),
    "kernel PCA, linear": lambda: dkl.KernelPCA(2, kernel="linear").fit(X),
}


def answer(model, rows):
    names = [name for name in ("decision_function", "predict", "transform") if hasattr(model, name)]
    return getattr(model, names[0])(rows)


@pytest.mark.parametrize("name", FITTED)
def test_bytes_are_those_of_a_pass(name, monkeypatch):
    model = FITTED[name]()
    new = (X @ X.T)[:5] if "precomputed" in name else X[:5] + 0.1
    few = [answer(model, rows) for rows in (new, np.asfortranarray(new), new[::2])]
    monkeypatch.setattr(predictions, "FEW", 0)
    for found, rows in zip(few, (new, np.asfortranarray(new), new[::2]), strict=True):
        assert_array_equal(found, answer(model, rows))


@pytest.mark.parametrize("name", ["svc", "regression", "kernel PCA"])
def test_copies_and_pickles_have_the_points_alone(name):
    model = FITTED[name]()
    before = len(pickle.dumps(model))
    wanted = answer(model, X[:3])
    assert model._kept_points._prepared and len(pickle.dumps(model)) == before
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert_array_equal(answer(other, X[:3]), wanted)
    del model._kept_points  # as of an earlier version
    assert_array_equal(answer(model, X[:3]), wanted)


def test_points_and_kernels_that_change_are_prepared_again():
    model = FITTED["regression"]()
    model.predict(X[:1])
    model.gamma_ = 3.0
    wanted = rbf_kernel(X[:1], model.support_vectors_, gamma=3.0) @ model.coef_.T + model.intercept_
    assert_allclose(model.predict(X[:1]), wanted, rtol=1e-10)
    model.support_vectors_ = model.support_vectors_ + 1.0
    wanted = rbf_kernel(X[:1], model.support_vectors_, gamma=3.0) @ model.coef_.T + model.intercept_
    assert_allclose(model.predict(X[:1]), wanted, rtol=1e-10)


def test_what_is_large_is_not_kept(monkeypatch):
    kernel, kept, rows = Kernel("rbf", 0.5), KeptPoints(X), FewRows(X[:1])
    assert kept.for_rows(rows, kernel) is kept.for_rows(rows, Kernel("rbf", 0.5))
    monkeypatch.setattr(predictions, "KEPT_BYTES", 0)
    assert kept.for_rows(rows, Kernel("rbf", 0.7)) is not kept.for_rows(rows, Kernel("rbf", 0.7))
    assert kept.for_rows(RowBlocks(X, HERE), kernel) is X


def test_which_rows_are_few():
    assert isinstance(rows_to_predict(X[: predictions.FEW], HERE, None), FewRows)
    assert isinstance(rows_to_predict(X[: predictions.FEW + 1], HERE, None), RowBlocks)
    assert isinstance(rows_to_predict(np.zeros((1, predictions.FEW_BYTES)), HERE, None), RowBlocks)
    with pytest.raises(InputError, match="memory_limit"):
        rows_to_predict(X[:1], HERE, "much")


def test_a_value_that_is_not_finite_is_named():
    model = FITTED["svc"]()
    with pytest.raises(InputError, match=r"X\[0, 2\]"):
        model.predict(np.array([[0.0, 0.0, np.nan, 0.0]]))


@pytest.mark.parametrize(("n", "m", "T"), [(40, 155, 6), (200, 30, 3), (7, 90, 45), (300, 60, 1)])
def test_weights_in_any_order_give_the_same_bits(n, m, T, rng):
    rows, points = rng.standard_normal((n, 3)), rng.standard_normal((m, 3))
    weights, intercepts = rng.standard_normal((T, m)), rng.standard_normal(T)
    forms = {
        "rows": weights,
        "columns": np.asfortranarray(weights),
        "every other": np.repeat(weights, 2, axis=1)[:, ::2],
        "misaligned": at_odd_address(weights),
    }
    assert not forms["misaligned"].flags.aligned

    def predicted(given):
        blocks = RowBlocks(rows, Session(None, threads=1))
        return np.concatenate(blocks.map(predict_block, Kernel("rbf", 0.3), points, given, intercepts))

    wanted = predicted(weights)
    for name, form in forms.items():
        np.testing.assert_array_equal(predicted(form), wanted, err_msg=name)
    np.testing.assert_allclose(wanted, Kernel("rbf", 0.3).columns(rows, points) @ weights.T + intercepts, rtol=1e-9)
