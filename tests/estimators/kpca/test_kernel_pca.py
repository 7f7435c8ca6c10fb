"""`KernelPCA`: scikit-learn's components of dense, sparse, stored and given kernels, on threads and workers; its plan; bad input."""

import warnings

import dask.array
import numpy as np
import pytest
import zarr
from repeats import but_for
from scipy import sparse
from sklearn import decomposition
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils.estimator_checks import parametrize_with_checks
from solved_oracles import components, exact

import dkl
from dkl.blocks.kernels import kernel_products
from dkl.blocks.rows import row_blocks
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError
from dkl.estimators.kpca import fit

TIGHT = {"tol": 1e-11, "random_state": 0}
KERNELS = {
    "rbf": {"gamma": 0.05},
    "poly": {"gamma": 0.1, "degree": 2, "coef0": 1.0},
    "linear": {},
    "cosine": {},
    "laplacian": {"gamma": 0.1},
    "sigmoid": {"gamma": 0.01, "coef0": 0.0},
}


@pytest.mark.exhaustive
@parametrize_with_checks([dkl.KernelPCA(), dkl.KernelPCA(kernel="linear")])
def test_scikit_learn_s_contract(estimator, check):
    check(estimator)


def test_scikit_learn_s_pipeline_contract():
    from sklearn.utils import estimator_checks

    for name in ("check_transformer_general", "check_fit2d_1sample", "check_n_features_in_after_fitting"):
        getattr(estimator_checks, name)("KernelPCA", dkl.KernelPCA())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, tiles and stretches of points even of few rows."""
    monkeypatch.setattr(kernel_products, "LEAST_ROWS", 40)
    monkeypatch.setattr(kernel_products, "TILE_COLUMNS", 90)
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 20_000)


@pytest.fixture(scope="module")
def digits():
    return load_digits().data[:700] / 16


def agrees(mine, X, new, kernel, **given):
    """Pairs and coordinates are scikit-learn's, by its dense solver."""
    count = len(mine.eigenvalues_)
    peer = decomposition.KernelPCA(count, kernel="precomputed", eigen_solver="dense")
    peer.fit(pairwise_kernels(X, metric=kernel, **given))
    np.testing.assert_allclose(mine.eigenvalues_, peer.eigenvalues_, rtol=1e-10)
    np.testing.assert_allclose(mine.eigenvectors_, peer.eigenvectors_, atol=1e-7)
    across = pairwise_kernels(new, X, kernel, **given)
    np.testing.assert_allclose(mine.transform(new), peer.transform(across), atol=1e-7 * np.sqrt(peer.eigenvalues_[0]))
    assert mine.residual_.shape == (count,) and mine.residual_.max() <= 1e-11
    assert mine.result_.outcome.converged and mine.n_iter_ == mine.result_.n_iter


@pytest.mark.parametrize("kernel", but_for(("laplacian", "cosine", "sigmoid"), KERNELS))
def test_components_are_scikit_learns(kernel, digits):
    X, new = digits[:600], digits[600:]
    mine = dkl.KernelPCA(5, kernel=kernel, n_jobs=2, **KERNELS[kernel], **TIGHT).fit(X)
    agrees(mine, X, new, kernel, **KERNELS[kernel])
    np.testing.assert_allclose(mine.transform(X), mine.fit_transform(X), atol=1e-8)
    assert list(mine.get_feature_names_out()) == [f"kernelpca{k}" for k in range(5)]


def test_a_given_kernel_and_a_function_are_as_the_name(digits):
    X, new = digits[:300], digits[300:400]
    K, across = (pairwise_kernels(rows, X, "rbf", gamma=0.05) for rows in (X, new))
    given = dkl.KernelPCA(4, kernel="precomputed", **TIGHT).fit(K)
    named = dkl.KernelPCA(4, gamma=0.05, **TIGHT).fit(X)
    thin = dkl.KernelPCA(4, gamma=0.05, **TIGHT).fit(sparse.csr_array(X))
    np.testing.assert_allclose(thin.transform(sparse.csr_array(new)), named.transform(new), atol=1e-9)
    np.testing.assert_allclose(given.transform(across), named.transform(new), atol=1e-9)
    function = dkl.KernelPCA(4, kernel=lambda x, z: float(x @ z), **TIGHT).fit(X[:100])
    np.testing.assert_allclose(
        function.transform(new), dkl.KernelPCA(4, kernel="linear").fit(X[:100]).transform(new), atol=1e-7
    )


@pytest.mark.parametrize("most", [1000, 10], ids=["covariance", "products"])
def test_a_factor_dense_sparse_or_far_from_the_origin(most, digits, monkeypatch):
    monkeypatch.setattr(fit, "MOST_COLUMNS", most)
    X, new = digits[:600], digits[600:]
    agrees(dkl.KernelPCA(5, kernel="linear", **TIGHT).fit(sparse.csr_array(X)), X, new, "linear")
    far = dkl.KernelPCA(5, kernel="linear", **TIGHT).fit(X + 1e4)
    np.testing.assert_allclose(far.transform(new + 1e4), far.fit(X).transform(new), atol=1e-6)


@pytest.mark.parametrize("far", [1e3, 1e5, 1e7, 1e10])
@pytest.mark.parametrize("given", [np.asarray, sparse.csr_array])
def test_no_residual_of_rows_far_from_the_origin_is_less_than_in_60_digits(given, far, rng):
    X = rng.standard_normal((30, 3)) + far * rng.standard_normal(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of sparse rows at 1e10, of which nothing is left
        try:
            fitted = dkl.KernelPCA(2, kernel="linear", standardize=False, holdout=0, random_state=0).fit(given(X))
        except InputError as error:
            assert "rounding hides how rows differ" in str(error) and given is sparse.csr_array and far == 1e10
            return
    true, _ = components(exact(X) @ exact(X).T, fitted.eigenvalues_, fitted.eigenvectors_, 0.0)
    if fitted.result_.outcome.converged:
        assert true <= 1e-6
        assert true <= 2 * fitted.result_.proven + 1e-12
    assert fitted.result_.outcome.converged or (given is sparse.csr_array and far == 1e10)


def test_what_is_held_ready_or_stored_makes_no_difference(digits, tmp_path, monkeypatch):
    X, new = digits[:600], digits[600:]
    whole = dkl.KernelPCA(3, gamma=0.05, **TIGHT).fit(X)
    assert whole.result_.plan["placement"] == "memory"

    class OfLittle(kernel_products.KernelProducts):
        def __init__(self, *given, held, **more):
            super().__init__(*given, held=held // 3, **more)

    class InParts(kernel_products.KernelProducts):
        def __init__(self, *given, points, held, **more):
            super().__init__(*given, points=128, held=0, **more)

    stored = zarr.create_array(tmp_path / "X.zarr", shape=X.shape, chunks=(70, 64), dtype="f8")
    stored[:] = X
    for rows in (stored, str(tmp_path / "X.zarr"), dask.array.from_array(X, chunks=(111, 64))):
        found = dkl.KernelPCA(3, gamma=0.05, n_jobs=2, **TIGHT).fit(rows)
        assert found.eigenvectors_.tobytes() == whole.eigenvectors_.tobytes()
        assert np.array_equal(found.transform(new), whole.transform(new))
    monkeypatch.setattr(fit, "KernelProducts", OfLittle)
    part = dkl.KernelPCA(3, gamma=0.05, **TIGHT).fit(X)
    assert part.eigenvectors_.tobytes() == whole.eigenvectors_.tobytes()
    monkeypatch.setattr(fit, "KernelProducts", InParts)
    agrees(dkl.KernelPCA(3, gamma=0.05, **TIGHT).fit(stored), X, new, "rbf", gamma=0.05)


def test_workers_give_the_same_bytes(client, digits):
    X, new = digits[:600], digits[600:]
    for given in ({"gamma": 0.05}, {"kernel": "linear"}):
        here = dkl.KernelPCA(3, n_jobs=1, random_state=0, **given).fit(X)
        there = dkl.KernelPCA(3, client=client, random_state=0, **given).fit(dask.array.from_array(X, chunks=(200, 64)))
        assert there.eigenvectors_.tobytes() == here.eigenvectors_.tobytes()
        assert np.array_equal(there.transform(new), here.transform(new))


def test_the_end_is_told(digits):
    with pytest.warns(ConvergenceWarning, match=r"iteration_limit\): raise max_iter or tol \(the largest residual is"):
        model = dkl.KernelPCA(5, gamma=0.05, max_iter=2, tol=1e-9, random_state=0).fit(digits)
    centred = pairwise_kernels(digits, metric="rbf", gamma=0.05)
    centred = centred - centred.mean(axis=0) - centred.mean(axis=1)[:, None] + centred.mean()
    rest = centred @ model.eigenvectors_ - model.eigenvectors_ * model.eigenvalues_
    wanted = np.linalg.norm(rest, axis=0) / np.linalg.eigvalsh(centred)[-1]
    np.testing.assert_allclose(model.residual_, wanted, rtol=1e-2)
    rows = []
    dkl.KernelPCA(2, callbacks=lambda row: rows.append(row) or len(rows) == 1, tol=0).fit(digits)
    assert len(rows) == 1 and rows[0]["iteration"] == 1
    with pytest.warns(ConvergenceWarning, match="stalled"):
        single = dkl.KernelPCA(3, gamma=0.05, dtype="float32", tol=1e-12).fit(digits)
    assert single.residual_.max() <= 2e-6


@pytest.mark.parametrize("unit", [1e-120, 1e-8, 1e8])
def test_components_do_not_depend_on_the_unit(unit, rng, tmp_path):
    X = rng.standard_normal((60, 3)) * [1, 2, 3]
    given = {"n_jobs": 1, "random_state": 0, "holdout": 0, "standardize": False}
    wanted = np.abs(decomposition.KernelPCA(2, kernel="rbf", gamma=1 / (3 * X.var())).fit_transform(X))
    np.testing.assert_allclose(np.abs(dkl.KernelPCA(2, **given).fit_transform(X * unit)), wanted, atol=1e-6)
    np.save(tmp_path / "X.npy", X * unit)
    stored = dkl.KernelPCA(2, **given).fit(tmp_path / "X.npy")
    np.testing.assert_allclose(stored.gamma_ * unit**2, 1 / (3 * X.var()))
    np.testing.assert_allclose(np.abs(stored.transform(X * unit)), wanted, atol=1e-6)


def test_fewer_eigenvalues_than_components(rng):
    X = np.repeat(rng.standard_normal((3, 2)), 10, axis=0)
    for kernel in ("rbf", "linear"):
        model = dkl.KernelPCA(5, kernel=kernel, random_state=0).fit(np.hstack([X, np.zeros((30, 4))]))
        assert (model.eigenvalues_[:2] > 0.1).all() and (model.eigenvalues_[2:] == 0).all()
        np.testing.assert_allclose(model.transform(np.ones((1, 6)))[:, 2:], 0)
    alike = dkl.KernelPCA(2).fit(np.ones((30, 2)))
    assert (alike.eigenvalues_ == 0).all() and (alike.transform(np.ones((4, 2))) == 0).all()
    for kernel in ("rbf", "poly"):  # a kernel of equal rows is rounded, and so is what centering leaves of it
        for dtype in ("float64", "float32"):
            equal = dkl.KernelPCA(2, kernel=kernel, dtype=dtype).fit(np.tile(rng.standard_normal(7), (57, 1)))
            assert equal.result_.outcome.converged and not equal.eigenvalues_.any() and not equal.residual_.any()
    for kernel, same in (
        ("linear", np.tile(rng.standard_normal(300), (200, 1))),
        ("precomputed", np.full((57, 57), 0.1)),
    ):
        equal = dkl.KernelPCA(2, kernel=kernel, standardize=False).fit(same)
        assert equal.result_.outcome.converged and not equal.eigenvalues_.any() and not equal.residual_.any()
    full = dkl.KernelPCA(6, gamma=1.0, **TIGHT).fit(rng.standard_normal((6, 2)))
    assert full.eigenvalues_[4] > 0 and full.eigenvalues_[5] == 0


def test_bad_input_is_refused(digits, tmp_path):
    with pytest.raises(InputError, match="n_components: more components than rows; got 701 components"):
        dkl.KernelPCA(701).fit(digits)
    with pytest.raises(InputError, match="X: a precomputed kernel must be square"):
        dkl.KernelPCA(kernel="precomputed").fit(digits)
    with pytest.raises(InputError, match="X: not symmetric"):
        dkl.KernelPCA(kernel="precomputed").fit(digits[:60, :60])
    np.save(tmp_path / "K.npy", digits[:60, :60])
    with pytest.raises(InputError, match="X: not symmetric"):
        dkl.KernelPCA(kernel="precomputed").fit(tmp_path / "K.npy")
    bad = digits.copy()
    bad[33, 2] = np.nan
    np.save(tmp_path / "X.npy", bad)
    for kernel in ("rbf", "linear"):
        with pytest.raises(InputError, match=r"X\[33, 2\]"):
            dkl.KernelPCA(kernel=kernel).fit(tmp_path / "X.npy")
    for far in (1e200 * digits, digits + 1e308, sparse.csr_array(1e200 * digits), 1e200 * np.eye(30, 1100)):
        with pytest.raises(InputError, match="kernel='linear': the kernel is not finite"):
            dkl.KernelPCA(kernel="linear").fit(far)
    with pytest.raises(InputError, match="the kernel is not finite"):
        dkl.KernelPCA(kernel="poly", degree=300, gamma=1e3).fit(digits)
    with pytest.raises(MemoryBudgetError, match="Krylov space takes"):
        dkl.KernelPCA(30, memory_limit=321_000_000).fit(digits)
