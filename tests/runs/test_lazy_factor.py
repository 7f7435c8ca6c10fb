"""The factor of a run and the kernel's entries as dask arrays; and its arrays where there is no dkl."""

import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest

import dkl
from dkl.errors import InputError

PROGRAM = """
import sys, warnings
sys.path.append("packages")
warnings.simplefilter("error")
import dask.array, zarr
for name, found in zarr.open_group("run", mode="r").members(max_depth=None):
    if isinstance(found, zarr.Array):
        one, other = zarr.open_array(f"run/{name}", mode="r"), dask.array.from_zarr(f"run/{name}")
        assert other.chunksize == one.chunks and one[...].tobytes() == other.compute().tobytes()
        print(name, one.shape)
assert not any(name.partition(".")[0] == "dkl" for name in sys.modules)
"""


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_the_factor_and_the_kernel_are_read_when_they_are_computed(tmp_path):
    X, y = np.random.default_rng(0).standard_normal((90, 3)), np.arange(90) % 3
    learner = dkl.PairwiseKernelLearner(rank=4, max_iter=3, holdout=0.0, random_state=0, n_jobs=1, work_dir=tmp_path)
    model = learner.fit(X, y)
    (tmp_path / "run").symlink_to(model.run_path_)
    run = dkl.open_run(model.run_path_)
    V = np.asarray(model.factor_)
    assert dask.is_dask_collection(run.factor) and run.factor.shape == (90, V.shape[1])
    some = run.kernel(slice(3, 7), [0, 50])
    assert dask.is_dask_collection(some) and some.shape == (4, 2)
    np.testing.assert_array_equal(run.factor.compute(), V)
    np.testing.assert_allclose(some.compute(), V[3:7] @ V[[0, 50]].T, rtol=1e-12)
    (tmp_path / "packages").mkdir()  # an environment that has all packages of this one but dkl
    for package in {
        path for name in ("dask", "zarr", "numpy") for path in Path(sys.modules[name].__file__).parents[1].iterdir()
    }:
        if "dkl" not in package.name:
            (tmp_path / "packages" / package.name).symlink_to(package)
    command = [sys.executable, "-S", "-c", PROGRAM]
    told = subprocess.run(command, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True).stdout
    assert f"factor {V.shape}\n" in told and "pairs/must_link (" in told and "graph/" in told


def test_a_run_of_predictions_has_no_factor(tmp_path):
    model = dkl.LowRankKernelRegressor(gamma=1.0, nu=0.1, work_dir=tmp_path, n_jobs=1, random_state=0)
    run = dkl.open_run(model.fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 0.0, -1.0]).run_path_)
    with pytest.raises(InputError, match="a run without a factor; got regression; wanted pairwise, laplacian or mvu"):
        run.kernel()
