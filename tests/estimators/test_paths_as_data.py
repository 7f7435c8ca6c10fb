"""X and y as paths of .npy files and zarr arrays: every learner takes them, and learns what it learns from the arrays."""

import numpy as np
import pytest
import zarr

import dkl
from dkl.errors import InputError

LEARNERS = {
    "svc": lambda: dkl.OptimalNeighborhoodSVC(random_state=0),
    "regression": lambda: dkl.LowRankKernelRegressor(n_columns=10, random_state=0),
    "logdet": lambda: dkl.LogDetKernelLearner(random_state=0),
    "metric": lambda: dkl.LogDetMetricLearner(random_state=0),
    "pairwise": lambda: dkl.PairwiseKernelLearner(random_state=0),
    "laplacian": lambda: dkl.LaplacianKernelLearner(random_state=0),
    "colored": lambda: dkl.MaximumVarianceUnfolding(colored=True, random_state=0),
    "ridge": lambda: dkl.baselines.KernelRidgeRegressor(gamma=0.5),
    "itml": lambda: dkl.baselines.ITMLKernelLearner(random_state=0),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with X and y (60 rows, 3 classes) as .npy, .zarr, and in a group as AnnData has them."""
    folder = tmp_path_factory.mktemp("paths")
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 4)) + 2 * np.eye(4)[y]
    for name, array in (("X", X), ("y", y)):
        np.save(folder / f"{name}.npy", array)
        zarr.save_array(folder / f"{name}.zarr", array)
    group = zarr.open_group(folder / "all.zarr", mode="w")
    group.create_array("X", data=X)
    group.create_group("obs").create_array("label", data=y)
    counts = group.create_group("layers").create_group("counts")
    counts.attrs.update({"encoding-type": "csr_matrix", "shape": [60, 4]})
    for name in ("data", "indices", "indptr"):
        counts.create_array(name, data=np.arange(61))
    return folder


def learned(model, X):
    """What a model makes of the rows."""
    return model.predict(X) if hasattr(model, "predict") else np.asarray(model.transform(X))


@pytest.mark.parametrize("kind", [".npy", ".zarr"])
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.filterwarnings("ignore::dkl.errors.DataWarning")
def test_paths_are_the_arrays_that_they_name(name, kind, folder):
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    wanted = LEARNERS[name]().fit(X, y)
    found = LEARNERS[name]().fit(str(folder / f"X{kind}"), folder / f"y{kind}")
    assert np.array_equal(learned(found, X), learned(wanted, X))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_group_is_refused_with_the_names_of_its_arrays(name, folder):
    y = np.load(folder / "y.npy")
    with pytest.raises(
        InputError,
        match=r"all\.zarr: not a zarr array; got a group of X \(60, 4\), obs/label \(60,\).*as .*all\.zarr/X",
    ):
        LEARNERS[name]().fit(folder / "all.zarr", y)
    with pytest.raises(InputError, match="not a zarr array.*save_npz as CSR"):
        LEARNERS[name]().fit(folder / "all.zarr" / "layers" / "counts", y)
    with pytest.raises(InputError, match="all.zarr: not a zarr array"):
        LEARNERS[name]().fit(np.load(folder / "X.npy"), folder / "all.zarr")
