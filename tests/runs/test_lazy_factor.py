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
warnings.simplefilter("error")
import dask.array, numpy, zarr
one, other = zarr.open_array("run/factor", mode="r"), dask.array.from_zarr("run/factor")
assert not any(name.partition(".")[0] == "dkl" for name in sys.modules)
assert other.chunksize == one.chunks and (one[:] == other.compute()).all()
numpy.save("factor.npy", one[:])
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
    program = f"import sys; sys.path.append('packages')\n{PROGRAM}"
    subprocess.run([sys.executable, "-S", "-c", program], cwd=tmp_path, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "factor.npy"), V)


def test_a_run_of_predictions_has_no_factor(tmp_path):
    model = dkl.LowRankKernelRegressor(gamma=1.0, nu=0.1, work_dir=tmp_path, n_jobs=1, random_state=0)
    run = dkl.open_run(model.fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 0.0, -1.0]).run_path_)
    with pytest.raises(InputError, match="a run without a factor; got regression; wanted pairwise, laplacian or mvu"):
        run.kernel()
