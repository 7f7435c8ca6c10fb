"""Rows far from 0 are learned from as the same rows near it: times in seconds, years and coordinates have no other neighbors.

Rows are multiples of 2^-10, and stay so when 1e9 is added: what is learned of both has the same bits wherever distances come from
differences. Kernels of inner products (linear, poly, sigmoid, cosine) depend on the origin by definition, as transformed rows of a metric
do; of these distances are compared.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from command_line import call
from repeats import but_for
from run_cases import CASES as RUNS
from scipy.spatial.distance import cdist

import dkl
from dkl import baselines

pytestmark = [
    pytest.mark.filterwarnings("ignore::dkl.errors.DataWarning"),
    pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning"),
]
OFFSET = 1e9
N, D = 90, 20  # of so many features scikit-learn's own neighbors are by products
COORDINATES = {"support_vectors_", "X_fit_"}


def rows(rng: np.random.Generator, n: int = N, unit: int = 1024) -> Any:
    return np.round((rng.standard_normal((n, D)) + 2 * np.eye(3, D)[np.arange(n) % 3]) * unit) / unit


CODES = np.arange(N) % 3
SOME = np.where(np.arange(N) % 2 == 0, CODES, -1)
ENDS = np.stack([np.repeat(np.arange(40), 2), np.repeat(np.arange(40), 2) + np.tile([3, 4], 40)], axis=1)
PAIRS = {"must_link": ENDS[::2], "cannot_link": ENDS[1::2]}


def of_targets(learner: Any) -> Callable[[Any], Any]:
    return lambda X: learner.fit(X, np.sin(np.arange(N)) + CODES)


CASES: dict[str, Callable[[Any], Any]] = {
    "KernelKMeans": lambda X: dkl.KernelKMeans(3, kernel="rbf", gamma=0.05, random_state=0).fit(X),
    "KernelKMeans, laplacian": lambda X: dkl.KernelKMeans(3, kernel="laplacian", random_state=0).fit(X),
    "KernelPCA": lambda X: dkl.KernelPCA(3, standardize=False, n_jobs=1, random_state=0).fit(X),
    "LaplacianKernelLearner": lambda X: dkl.LaplacianKernelLearner(n_jobs=1).fit(X, **PAIRS),
    "LaplacianKernelLearner, labels": lambda X: dkl.LaplacianKernelLearner(n_jobs=1, random_state=0).fit(X, SOME),
    "LogDetKernelLearner": lambda X: dkl.LogDetKernelLearner(n_in=3, n_out=3, n_jobs=1).fit(X, SOME),
    "LogDetKernelLearner, graph": lambda X: dkl.LogDetKernelLearner(kernel="laplacian", n_in=3, n_out=3, n_jobs=1).fit(
        X, SOME
    ),
    "LogDetKernelLearner, pairs": lambda X: dkl.LogDetKernelLearner(loss="itml", n_jobs=1).fit(X, **PAIRS),
    "LogDetMetricLearner": lambda X: dkl.LogDetMetricLearner(n_in=3, n_out=3, n_jobs=1).fit(X, SOME),
    "LogDetMetricLearner, pairs": lambda X: dkl.LogDetMetricLearner(loss="itml", prior="covariance", n_jobs=1).fit(
        X, **PAIRS
    ),
    "LowRankKernelRegressor": of_targets(dkl.LowRankKernelRegressor(n_columns=20, n_jobs=1, random_state=0)),
    "LowRankKernelRegressor, nu": of_targets(
        dkl.LowRankKernelRegressor(n_columns=20, columns="rpcholesky", nu=0.1, n_jobs=1, random_state=0)
    ),
    "MaximumVarianceUnfolding": lambda X: dkl.MaximumVarianceUnfolding(n_basis=20, n_neighbors=8, n_jobs=1).fit(X),
    "OptimalNeighborhoodSVC": lambda X: dkl.OptimalNeighborhoodSVC(n_jobs=1).fit(X, CODES),
    "PairwiseKernelLearner": lambda X: dkl.PairwiseKernelLearner(n_jobs=1, random_state=0).fit(X, **PAIRS),
    "SpectralClustering": lambda X: dkl.SpectralClustering(3, n_jobs=1, random_state=0).fit(X),
    "SpectralEmbedding": lambda X: dkl.SpectralEmbedding(n_jobs=1, random_state=0).fit(X),
    "BCDNPKL": lambda X: baselines.BCDNPKL(tol=0.1, random_state=0, n_jobs=1).fit(X, **PAIRS),
    "COPKMeans": lambda X: baselines.COPKMeans(3, random_state=0).fit(X, **PAIRS),
    "ConjugateGradientKernelLearner": lambda X: baselines.ConjugateGradientKernelLearner(n_in=3, n_out=3, n_jobs=1).fit(
        X, SOME
    ),
    "FirstOrderRegressor": of_targets(baselines.FirstOrderRegressor(n_columns=20, n_jobs=1, random_state=0)),
    "FirstOrderSVC": lambda X: baselines.FirstOrderSVC(max_iter=20, n_jobs=1).fit(X, CODES),
    "E2CP": lambda X: baselines.E2CP(3, random_state=0).fit(X, **PAIRS),
    "HybridSDP": lambda X: baselines.HybridSDP(random_state=0, n_jobs=1).fit(X, **PAIRS),
    "ITMLKernelLearner": lambda X: baselines.ITMLKernelLearner(random_state=0, n_jobs=1).fit(X, **PAIRS),
    "ITMLMetricLearner": lambda X: baselines.ITMLMetricLearner(random_state=0, n_jobs=1).fit(X, **PAIRS),
    "KernelRidgeRegressor": of_targets(baselines.KernelRidgeRegressor(n_jobs=1, random_state=0)),
    "LMNNMetricLearner": lambda X: baselines.LMNNMetricLearner().fit(X, SOME),
    "LaplacianEigenmaps": lambda X: baselines.LaplacianEigenmaps(n_jobs=1, random_state=0).fit(X),
    "NystromClassifier": lambda X: baselines.NystromClassifier(n_columns=20, n_jobs=1, random_state=0).fit(X, CODES),
    "MFPC": lambda X: baselines.MFPC(n_jobs=1).fit(X, **PAIRS),
    "NystromRegressor": of_targets(baselines.NystromRegressor(n_columns=20, n_jobs=1, random_state=0)),
    "PCKMeans": lambda X: baselines.PCKMeans(3, random_state=0).fit(X, **PAIRS),
    "SimpleNPKL": lambda X: baselines.SimpleNPKL(n_jobs=1).fit(X, **PAIRS),
    "UniformWeightsRegressor": of_targets(baselines.UniformWeightsRegressor(n_columns=20, n_jobs=1, random_state=0)),
}


def test_every_learner_and_baseline_has_a_case() -> None:
    public = {name: getattr(place, name) for place in (dkl, baselines) for name in place.__all__}
    learners = {name for name, thing in public.items() if hasattr(thing, "get_params")}
    assert learners == {case.partition(",")[0] for case in CASES}


def numbers_of(model: Any, new: Any, offset: float) -> dict[str, Any]:
    """What was learned, what is said of new rows, how good it is, and what is drawn of it."""
    found = {name: getattr(model, name) for name in vars(model) if name.endswith("_") and name[0] != "_"}
    found = {name: np.asarray(value) for name, value in found.items() if isinstance(value, (np.ndarray, float, int))}
    for name in COORDINATES & found.keys():
        found[name] = found[name].astype(np.float64) - offset
    if "factor_" not in found and "embedding_" not in found and hasattr(model, "factor_"):
        found["factor_"] = np.asarray(model.factor_)
    for verb in ("predict", "decision_function", "transform"):
        if hasattr(model, verb):
            said = np.asarray(getattr(model, verb)(new))
            found[verb] = cdist(said, said) if "components_" in found else said
    if hasattr(model, "pair_distance"):
        found["pair_distance"] = model.pair_distance(np.stack([new[::2], new[1::2]], axis=1))
    quality = getattr(getattr(model, "result_", None), "quality", None)
    if quality is not None:
        found["quality"] = np.array([quality.value, quality.alternative_value, quality.standard_error])
        found |= {f"quality, {name}": np.asarray(value) for name, value in quality.others.items()}
    if hasattr(model, "plot"):
        found |= drawn(model.plot())
    return found


def drawn(figure: Any) -> dict[str, Any]:
    """The points, lines and images of a picture."""
    found = {}
    for k, axis in enumerate(figure.axes):
        parts = [np.asarray(dots.get_offsets(), float) for dots in axis.collections if hasattr(dots, "get_offsets")]
        parts += [np.asarray(line.get_xydata()) for line in axis.lines]
        parts += [np.asarray(image.get_array(), float) for image in axis.images]
        found |= {f"panel {k}, {j}": part for j, part in enumerate(parts)}
    return found


def assert_same(near: dict[str, Any], far: dict[str, Any]) -> None:
    assert near.keys() == far.keys() and len(near) > 2
    for name, value in near.items():
        if name == "transform" and "components_" in near:  # products with W of coordinates as they are
            np.testing.assert_allclose(far[name], value, rtol=0, atol=1e-5)
        else:
            np.testing.assert_array_equal(far[name], value, err_msg=name)


@pytest.mark.parametrize("case", but_for(baselines.__all__, CASES))
def test_rows_far_from_0_give_the_same_bytes(case: str, rng: np.random.Generator) -> None:
    X, new = rows(rng), rows(rng, 12)
    near, far = (numbers_of(CASES[case](X + shift), new + shift, shift) for shift in (0.0, OFFSET))
    assert_same(near, far)


@pytest.mark.parametrize("case", but_for([*list(CASES)[::2], *baselines.__all__], CASES))
def test_rows_in_single_precision_give_what_the_same_values_give_in_double(case: str, rng: np.random.Generator) -> None:
    X, new = (part + 1024 for part in (rows(rng, unit=64), rows(rng, 12, unit=64)))
    double, single = (numbers_of(CASES[case](X.astype(t)), new.astype(t), 1024.0) for t in (np.float64, np.float32))
    assert_same(double, single)


@pytest.mark.parametrize(("dtype", "offset", "unit"), [(np.float64, OFFSET, 1024), (np.float32, 1024.0, 64)])
def test_k_means_of_rows_far_from_0(dtype: Any, offset: float, unit: int, rng: np.random.Generator) -> None:
    X = rows(rng, unit=unit)
    near = dkl.KernelKMeans(3, random_state=0).fit(X)
    far = dkl.KernelKMeans(3, random_state=0).fit((X + offset).astype(dtype))
    assert np.array_equal(far.labels_, near.labels_) and np.array_equal(
        far.predict((X + offset).astype(dtype)), near.labels_
    )
    centers = np.array([X[near.labels_ == k].mean(axis=0) for k in range(3)])
    wanted = np.square(X - centers[near.labels_]).sum()
    assert far.inertia_ == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(
        far.cluster_centers_ - dtype(offset), centers, rtol=0, atol=2 * float(np.spacing(dtype(offset)))
    )
    assert np.sum(far._view_kept.squares) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_standardized_rows_far_from_0(dtype: Any, rng: np.random.Generator) -> None:
    offset, unit = (OFFSET, 1024) if dtype is np.float64 else (1024.0, 64)
    X, new = rows(rng, unit=unit), rows(rng, 12, unit=unit)
    for make, verb in (
        (lambda X: dkl.KernelPCA(3, standardize=True, n_jobs=1, random_state=0).fit(X), "transform"),
        (of_targets(dkl.LowRankKernelRegressor(standardize=True, n_columns=20, n_jobs=1, random_state=0)), "predict"),
        (lambda X: dkl.OptimalNeighborhoodSVC(standardize=True, n_jobs=1).fit(X, CODES), "decision_function"),
    ):
        found = []
        for shift in (0.0, offset):
            model = make((X + shift).astype(dtype))
            found.append((model.scale_.spreads, getattr(model, verb)((new + shift).astype(dtype))))
        np.testing.assert_array_equal(found[1][0], found[0][0])
        np.testing.assert_allclose(found[1][1], found[0][1], rtol=0, atol=1e-9 if dtype is np.float64 else 1e-4)


@pytest.mark.parametrize("task", RUNS)
def test_a_run_of_rows_far_from_0_is_verified(task: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    RUNS[task].write(tmp_path)
    with np.load("X.npz") as held:
        given = dict(held)
    np.savez("X.npz", **{**given, "X": np.round(given["X"] * 1024) / 1024 + OFFSET})
    answer = call("fit", task, *RUNS[task].files, *RUNS[task].options, "--threads", "1", "--out", "run.zarr")
    assert answer.code in (0, 3), answer.err
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.out + answer.err


@pytest.mark.parametrize("n_cities", [1, 20])
def test_a_run_of_coordinates_in_degrees_is_verified(n_cities: int, rng: Any, tmp_path: Any, monkeypatch: Any) -> None:
    """The width is that of a few hundred meters: of cities far apart, and of one that is far from 0, digits would be lost."""
    monkeypatch.chdir(tmp_path)
    cities = rng.uniform(-60, 60, (n_cities, 2)) if n_cities > 1 else np.array([[52.52, 13.40]])
    X = cities[np.arange(200) % n_cities] + rng.normal(scale=[0.03, 0.05], size=(200, 2))
    np.savez("X.npz", X=X, y=np.sin(20 * X[:, 0]) + 0.1 * rng.standard_normal(200))
    answer = call("fit", "regression", "--data", "X.npz", "--gamma", "5000", "--n-columns", "80", "--out", "run.zarr")
    assert answer.code in (0, 3), answer.err
    answer = call("verify", "run.zarr")
    assert answer.code == 0, answer.out + answer.err
