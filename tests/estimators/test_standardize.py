"""`standardize`: every learner's results are those of a StandardScaler put before it; what "auto" does, says and leaves alone."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from repeats import but_for
from sklearn.base import clone
from sklearn.datasets import load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import dkl
from dkl import baselines
from dkl.errors import ConvergenceWarning, DataWarning, InputError
from dkl.estimators.base.standardize import hiding_columns, uneven_columns

N, NEW = 90, 30


@pytest.fixture(scope="module")
def table():
    """(rows, labels, new rows): three groups, told apart by columns of small units beside one of large numbers."""
    rng = np.random.default_rng(0)
    y = np.arange(N + NEW) % 3
    X = rng.standard_normal((N + NEW, 5))
    X[:, :3] += 2.5 * np.eye(3)[y]
    X = X * [1, 0.1, 3, 1, 2e4] + [0, 5, 100, 0, 1e5]
    return X[:N], y[:N], X[N:]


def pairs(y):
    ends = np.random.default_rng(1).permutation(len(y)).reshape(-1, 2)
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return {"must_link": ends[same], "cannot_link": ends[~same]}


def gram(V):
    return np.asarray(V) @ np.asarray(V).T


def targets(y):
    return np.sin(y) + 0.1 * np.arange(len(y)) / len(y)


BY_PAIRS = (lambda model, X, y: model.fit(X, **pairs(y)),)
BY_LABELS = (lambda model, X, y: model.fit(X, y),)
BY_TARGETS = (lambda model, X, y: model.fit(X, targets(y)),)
UNSUPERVISED = (lambda model, X, y: model.fit(X),)
PREDICTED = (lambda model, X: model.predict(X),)
TRANSFORMED = (lambda model, X: gram(model.transform(X)),)
ONE = {"n_jobs": 1}

# name: (class, parameters, how it is fitted, what is compared of new rows)
LEARNERS = {
    "pairs": (dkl.PairwiseKernelLearner, {**ONE, "random_state": 0}, *BY_PAIRS, *TRANSFORMED),
    "laplacian": (dkl.LaplacianKernelLearner, {**ONE, "n_basis": 10}, *BY_PAIRS, *TRANSFORMED),
    "unfolding": (dkl.MaximumVarianceUnfolding, {**ONE, "n_neighbors": 12}, *UNSUPERVISED, *TRANSFORMED),
    "clusters": (dkl.SpectralClustering, {**ONE, "n_clusters": 3, "random_state": 0}, *UNSUPERVISED, *PREDICTED),
    "maps": (dkl.SpectralEmbedding, {**ONE, "n_components": 3}, *UNSUPERVISED, *TRANSFORMED),
    "logdet graph": (dkl.LogDetKernelLearner, {**ONE, "kernel": "laplacian", "tol": 1e-10}, *BY_LABELS, *TRANSFORMED),
    "logdet rows": (dkl.LogDetKernelLearner, {**ONE, "kernel": "rbf", "tol": 1e-13}, *BY_LABELS, *TRANSFORMED),
    "metric": (dkl.LogDetMetricLearner, {}, *BY_LABELS, *TRANSFORMED),
    "svc": (dkl.OptimalNeighborhoodSVC, ONE, *BY_LABELS, lambda model, X: model.decision_function(X)),
    "regression": (dkl.LowRankKernelRegressor, {**ONE, "n_columns": 30, "random_state": 0}, *BY_TARGETS, *PREDICTED),
    "components": (dkl.KernelPCA, {**ONE, "n_components": 4, "random_state": 0}, *UNSUPERVISED, *TRANSFORMED),
    "polynomial": (dkl.KernelPCA, {**ONE, "kernel": "poly", "random_state": 0}, *UNSUPERVISED, *TRANSFORMED),
    "eigenmaps": (baselines.LaplacianEigenmaps, {**ONE, "n_components": 3}, *UNSUPERVISED, *TRANSFORMED),
    "nystrom": (baselines.NystromRegressor, {**ONE, "n_columns": 30, "random_state": 0}, *BY_TARGETS, *PREDICTED),
    "uniform": (
        baselines.UniformWeightsRegressor, {**ONE, "n_columns": 30, "random_state": 0}, *BY_TARGETS, *PREDICTED,
    ),
    "nystrom classes": (
        baselines.NystromClassifier, {**ONE, "n_columns": 30, "random_state": 0}, *BY_LABELS, lambda model, X: model.decision_function(X),
    ),
    "first order": (
        baselines.FirstOrderSVC, {**ONE, "solver": "subgradient", "max_iter": 20}, *BY_LABELS,
        lambda model, X: model.decision_function(X),
    ),
    "gradients": (baselines.FirstOrderRegressor, {**ONE, "n_columns": 30, "random_state": 0}, *BY_TARGETS, *PREDICTED),
    "ridge": (baselines.KernelRidgeRegressor, ONE, *BY_TARGETS, *PREDICTED),
    "itml": (baselines.ITMLMetricLearner, {"random_state": 0}, *BY_LABELS, *TRANSFORMED),
    "lmnn": (baselines.LMNNMetricLearner, {}, *BY_LABELS, *TRANSFORMED),
    "itml kernel": (baselines.ITMLKernelLearner, {"kernel": "rbf", "random_state": 0}, *BY_LABELS, *TRANSFORMED),
    "gradient": (baselines.ConjugateGradientKernelLearner, {"kernel": "rbf", "max_iter": 5}, *BY_LABELS, *TRANSFORMED),
}  # fmt: skip
LEARNERS_FIRST = but_for(
    [name for name in LEARNERS if LEARNERS[name][0].__module__.startswith("dkl.baselines")], LEARNERS
)
"""All; the baselines among them, which have the learners' way of it, as exhaustive."""
LARGE = ["pairs", "svc", "regression", "components", "nystrom", "uniform", "ridge"]
"""Those that take rows where they stand."""


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fitted(name, X, y, **more):
    learner, parameters, fit, _ = LEARNERS[name]
    return fit(learner(**parameters, **more), X, y)


def found(name, model, X):
    return LEARNERS[name][3](model, X)


@pytest.mark.parametrize("name", LEARNERS_FIRST)
def test_results_are_those_behind_a_standard_scaler(name, table):
    X, y, new = table
    scaler = StandardScaler().fit(X)
    model = fitted(name, X, y, standardize=True)
    expected = fitted(name, scaler.transform(X), y, standardize=False)
    np.testing.assert_allclose(
        found(name, model, new), found(name, expected, scaler.transform(new)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(model.scale_.means, scaler.mean_)
    np.testing.assert_allclose(model.scale_.spreads, scaler.scale_)
    assert expected.scale_ is None


@pytest.mark.parametrize("name", LEARNERS_FIRST)
def test_auto_standardizes_with_one_warning_where_one_column_decides(name, table):
    X, y, new = table
    with pytest.warns(DataWarning, match="1 of 5 columns decide most of all distances: 4; .*standardize=False") as told:
        model = fitted(name, X, y)
    assert len([one for one in told if "columns decide" in str(one.message)]) == 1
    assert told[0].filename == __file__
    assert np.array_equal(found(name, model, new), found(name, fitted(name, X, y, standardize=True), new))


WIDTHS_BY_VARIANCE = [
    pytest.param(dkl.OptimalNeighborhoodSVC(n_jobs=1, holdout=0), id="svc"),
    pytest.param(
        dkl.LowRankKernelRegressor(n_columns=40, nu=0.1, n_jobs=1, random_state=0, holdout=0), id="regression"
    ),
    pytest.param(baselines.KernelRidgeRegressor(n_jobs=1, random_state=0), id="ridge"),
    pytest.param(baselines.NystromClassifier(n_columns=40, n_jobs=1, random_state=0), id="nystrom classes"),
]


@pytest.mark.filterwarnings("ignore:nu=0.1, but from")  # of rows as they are, of which the kernel sees nothing
@pytest.mark.parametrize("learner", WIDTHS_BY_VARIANCE)
def test_auto_standardizes_columns_that_are_far_apart_where_the_width_is_of_all_values(learner) -> None:
    """Degrees in Kelvin and years, of about one spread: the variance of all values is that of their offsets."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3)) * [5, 4, 6]
    y, away = (X[:, 0] * X[:, 1] > 0).astype(int), X + [300, 2010, 0]
    with pytest.warns(
        DataWarning, match=r'means of columns go from .* to 2010, and .*: gamma="scale" would be .*=False'
    ) as told:
        model = clone(learner).fit(away, y)
    assert told[0].filename == __file__
    as_asked = clone(learner).set_params(standardize=True).fit(away, y)
    np.testing.assert_array_equal(model.predict(away), as_asked.predict(away))
    np.testing.assert_allclose(model.scale_.means, away.mean(axis=0))
    # As they are: columns about one value, a width that is given, and where it is said.
    for changed, rows in (
        ({}, X + 300),
        ({"gamma": 0.01}, away),
        ({"standardize": False}, away),
        ({"kernel": "linear"}, away),
    ):
        assert clone(learner).set_params(**changed).fit(rows, y).scale_ is None


@pytest.mark.parametrize(
    "learner", [dkl.LogDetKernelLearner(n_jobs=1, holdout=0), baselines.ITMLKernelLearner(n_jobs=1)]
)
def test_auto_standardizes_columns_that_are_far_apart_where_a_prior_kernel_has_their_width(learner) -> None:
    """A prior kernel of the offsets is one of ones: no learned kernel near it tells rows apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) * [5, 4, 6]
    y, away = (X[:, 0] > 0).astype(int), X + [300, 2010, 0]
    with pytest.warns(
        DataWarning, match=r'means of columns go from .* to 2010, and .*: gamma="scale" would be .*=False'
    ):
        model = clone(learner).fit(away, y)
    np.testing.assert_allclose(model.scale_.means, away.mean(axis=0))
    for changed, rows in (
        ({}, X + 300),
        ({"kernel_params": {"gamma": 0.01}}, away),
        ({"standardize": False}, away),
        ({"kernel": "linear"}, away),
        ({"kernel": "laplacian"}, away),  # of the neighbor graph, which has no such width
    ):
        assert clone(learner).set_params(**changed).fit(rows, y).scale_ is None


@pytest.mark.parametrize(
    ("kernels", "is_scaled"),
    [
        (["linear", "rbf"], True),
        ([{"kernel": "rbf", "gamma": 0.1}, {"kernel": "poly", "gamma": "scale"}], True),
        ([{"kernel": "rbf", "gamma": 0.1}, "linear"], False),
    ],
)
def test_auto_standardizes_columns_that_are_far_apart_where_one_of_several_kernels_has_their_width(
    kernels, is_scaled
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = dkl.OptimalNeighborhoodSVC(kernel=kernels, n_jobs=1, holdout=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        model.fit(X + [300, 2010, 0], X[:, 0] > 0)
    assert (model.scale_ is not None) == is_scaled
    assert any("means of columns" in str(one.message) for one in caught) == is_scaled


@pytest.mark.parametrize("name", LEARNERS_FIRST)
def test_sparse_rows_are_divided_by_their_spreads(name, table):
    X, y, new = table
    wide = np.abs(X) * (np.abs(X - X.mean(axis=0)) > 0.7 * X.std(axis=0))
    S, other = sp.csr_array(wide), sp.csr_array(np.abs(new))
    scaler = StandardScaler(with_mean=False).fit(S)
    if name == "unfolding":
        S, y, scaler = sp.csr_array(np.abs(X)), y, StandardScaler(with_mean=False).fit(np.abs(X))
    model = fitted(name, S, y, standardize=True)
    expected = fitted(name, scaler.transform(S), y, standardize=False)
    np.testing.assert_allclose(
        found(name, model, other), found(name, expected, scaler.transform(other)), rtol=1e-4, atol=1e-5
    )
    assert model.scale_.means is None


@pytest.mark.parametrize("name", LARGE)
def test_rows_on_disk_and_of_dask_give_what_rows_in_memory_do(name, table, tmp_path):
    import dask.array as da

    X, y, new = table
    stored = zarr.create_array(str(tmp_path / "X.zarr"), shape=X.shape, chunks=(17, 5), dtype=X.dtype)
    stored[...] = X
    expected = found(name, fitted(name, X, y, standardize=True), new)
    for given in (str(tmp_path / "X.zarr"), da.from_array(X, chunks=(40, 3))):
        model = fitted(name, given, y, standardize=True)
        np.testing.assert_allclose(found(name, model, new), expected, rtol=1e-7, atol=1e-9)
        if name != "pairs":  # new rows in another array
            other = da.from_array(new, chunks=(11, 2)) if not isinstance(given, str) else given
            rows = new if not isinstance(given, str) else X
            np.testing.assert_allclose(found(name, model, other), found(name, model, rows), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("learner", "given"),
    [
        (dkl.PairwiseKernelLearner, "affinity"),
        (dkl.SpectralClustering, "affinity"),
        (dkl.OptimalNeighborhoodSVC, "kernel"),
        (dkl.LowRankKernelRegressor, "kernel"),
        (dkl.LogDetKernelLearner, "kernel"),
        (dkl.KernelPCA, "kernel"),
    ],
)
def test_a_precomputed_matrix_is_not_standardized(learner, given, table):
    X, y, _ = table
    K = np.exp(-((X[:, None, 0] - X[None, :, 0]) ** 2))
    with pytest.raises(InputError, match=rf'standardize: .* got True with {given}="precomputed"'):
        learner(**{given: "precomputed", "standardize": True}).fit(sp.csr_array(K) if given == "affinity" else K, y)


def test_auto_leaves_a_precomputed_matrix_alone(table):
    X, y, _ = table
    K = X @ X.T
    assert dkl.OptimalNeighborhoodSVC(kernel="precomputed").fit(K, y).scale_ is None


def rows_of(kind, rng):
    if kind == "images":
        return load_digits().data[:200]
    if kind == "components":
        return PCA(whiten=False).fit_transform(load_wine().data)
    if kind == "sparse":
        return sp.csr_array(load_wine().data)
    return np.ones((50, 4))


@pytest.mark.parametrize("kind", ["images", "components", "sparse", "constant"])
def test_auto_leaves_alone_what_standardizing_would_harm(kind, rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataWarning)
        assert dkl.KernelPCA(2, holdout=0).fit(rows_of(kind, rng)).scale_ is None


def test_counts_of_words_are_warned_of_and_left_alone(rng):
    X = rng.poisson(np.array([30.0, 25, 20, 25, *[0.01] * 40]), (200, 44)).astype(float)
    with pytest.warns(DataWarning, match="4 of 44 columns .* standardize=True brings all columns to spread 1"):
        assert dkl.KernelPCA(2, gamma="auto").fit(X).scale_ is None


def test_the_warning_has_the_columns_names_and_row_numbers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.random.default_rng(0).standard_normal((2000, 4)), columns=["a", "b", "c", "d"])
    frame["customer"] = np.random.default_rng(1).permutation(2000) + 17
    with pytest.warns(DataWarning, match=r"'customer' \(row numbers in 'customer'\?"):
        dkl.SpectralEmbedding(2).fit(frame)


@pytest.mark.parametrize("wide", [(1,), (1, 4), (0, 3, 4)])
def test_auto_standardizes_where_one_two_or_half_of_the_columns_hide_the_others(wide, rng):
    X = rng.standard_normal((100, 6)) * (1e3 ** np.isin(np.arange(6), wide))
    with pytest.warns(DataWarning, match=f"{len(wide)} of 6 columns decide .* all are standardized"):
        scale = dkl.KernelPCA(2, holdout=0).fit(X).scale_
    np.testing.assert_allclose(scale.spreads, X.std(axis=0))


def test_columns_that_others_are_seen_beside_hide_nothing(rng):
    assert hiding_columns(np.array([1, 1e3, 1, 1, 1e3])).tolist() == [1, 4]
    assert not hiding_columns(np.array([1.0, 50, 1, 1, 50])).size  # not far enough
    assert not hiding_columns(np.array([200.0, *[1] * 200, 200])).size  # the many others have a part of each distance
    assert not hiding_columns(
        np.array([1, 1e3, 1e3, 1e3, 1])
    ).size  # small spreads of less than half differ, as of rare pixels
    assert not hiding_columns(np.array([1e3, 1e3, 1, 1])).size  # components, in descending order
    assert not hiding_columns(np.zeros(3)).size


def test_columns_are_the_wider_ones_first():
    assert uneven_columns(np.array([1, 50, 0, 1.5, 70, 2, 0.5, 1])).tolist() == [4, 1]
    assert not uneven_columns(np.array([900, 9, 3, 1.0])).size  # components, in descending order
    assert not uneven_columns(np.zeros(3)).size


def test_a_metric_is_in_the_units_of_the_rows(table):
    X, y, new = table
    model = dkl.LogDetMetricLearner(standardize=True).fit(X, y)
    W, apart = model.get_mahalanobis_matrix(), new[0] - new[1]
    expected = np.sqrt(apart @ W @ apart)
    np.testing.assert_allclose(model.pair_distance([[new[0], new[1]]]), [expected])
    np.testing.assert_allclose(np.linalg.norm(np.subtract(*model.transform(new[:2]))), expected)


def test_pictures_of_new_rows_scale_them_once(table):
    pytest.importorskip("matplotlib")
    from dkl.linalg.eigen.principal_coordinates import Plane

    X, y, new = table
    model = fitted("pairs", X, y, standardize=True)
    axis, factor = model.plot(X=new).axes[1], model.transform(new)
    points = np.ma.filled(axis.collections[1].get_offsets(), np.nan)
    np.testing.assert_allclose(points, Plane.of(factor).project(factor), atol=1e-9)
    for name in ("laplacian", "logdet rows", "metric", "svc"):
        model = fitted(name, X, y, standardize=True)
        model.plot(X=new, **({} if name != "svc" else {"y": np.arange(NEW) % 3}))
    basis, scaler = fitted("laplacian", X, y, standardize=True), StandardScaler().fit(X)
    before = fitted("laplacian", scaler.transform(X), y, standardize=False)
    dots, expected = (
        np.ma.filled(model.plot(X=rows).axes[1].collections[0].get_offsets(), np.nan)
        for model, rows in ((basis, new), (before, scaler.transform(new)))
    )
    np.testing.assert_allclose(dots, expected, atol=1e-9)
