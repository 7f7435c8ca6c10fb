"""`dkl warmup` compiles what first fits would wait for; a fit that compiles says so, once."""

import os
import subprocess
import sys

import numba
import numpy as np
import pytest

from dkl.estimators.base.progress import Progress

FITS = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np, dkl
from dkl.linalg.late_functions import LateFunction
from numba.core.dispatcher import Dispatcher
rng = np.random.default_rng(7)
y = rng.integers(5, size=210)
X = rng.standard_normal((210, 7)) + 3 * rng.standard_normal((5, 7))[y]
ends = rng.permutation(210).reshape(-1, 2)
alike = y[ends[:, 0]] == y[ends[:, 1]]
pairs = dict(must_link=ends[alike], cannot_link=ends[~alike])
given = {
    "PairwiseKernelLearner": pairs, "LaplacianKernelLearner": pairs,
    "LowRankKernelRegressor": dict(y=X[:, 0] ** 2), "OptimalNeighborhoodSVC": dict(y=y),
    "LogDetKernelLearner": dict(y=np.where(y > 3, -1, y)), "LogDetMetricLearner": dict(y=np.where(y > 3, -1, y)),
}
learners = [name for name in dkl.__all__ if hasattr(getattr(dkl, name), "fit")]
assert set(given) < set(learners) and len(learners) >= 11, learners
for name in learners:
    getattr(dkl, name)().fit(X, **given.get(name, {}))
functions = {
    id(thing.func): thing.func
    for name, module in list(sys.modules.items()) if name.split(".")[0] == "dkl"
    for thing in vars(module).values() if isinstance(thing, LateFunction) and isinstance(thing.func, Dispatcher)
}.values()
assert sum(sum(one.stats.cache_hits.values()) for one in functions) > 30
missed = [str(one) for one in functions if sum(one.stats.cache_misses.values())]
assert not missed, missed
"""


def run(*words, cache):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, *map(str, words)], env=environment, capture_output=True, text=True)


@pytest.mark.slow  # compiles everything once more: some five minutes where a machine is busy
def test_after_warmup_no_learner_compiles(tmp_path):
    X = np.random.default_rng(0).standard_normal((60, 3))
    np.savez(tmp_path / "X.npz", X=X, y=X[:, 0])
    fit = ("-m", "dkl.cli.main", "fit", "regression", "--nu", "1", "--data", tmp_path / "X.npz", "--out")
    cold = run(*fit, tmp_path / "cold.zarr", cache=tmp_path / "cold")
    again = run(*fit, tmp_path / "again.zarr", cache=tmp_path / "cold")
    assert (cold.returncode, again.returncode) == (0, 0), cold.stderr
    assert cold.stderr.count("`dkl warmup`") == 1 and "compil" not in again.stderr

    warm = run("-m", "dkl.cli.main", "warmup", cache=tmp_path / "warm")
    assert (warm.returncode, warm.stderr) == (0, ""), warm.stderr
    assert f"kept in {tmp_path / 'warm'}" in warm.stdout and "\n0 functions" not in warm.stdout
    answer = run("-c", FITS, cache=tmp_path / "warm")
    assert answer.returncode == 0, answer.stderr


@pytest.mark.exhaustive
def test_a_cache_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").touch()
    answer = run("-m", "dkl.cli.main", "warmup", cache=tmp_path / "file" / "cache")
    assert answer.returncode == 5 and answer.stdout == ""
    assert len(answer.stderr.splitlines()) == 1 and "NUMBA_CACHE_DIR" in answer.stderr


def test_the_first_compilation_of_a_fit_is_reported(capsys):
    def compiled(module):
        def function(x):
            return x + 1

        function.__module__ = module
        numba.njit(function)(1)

    show = Progress()
    compiled("mine")
    assert capsys.readouterr().err == ""
    compiled("dkl.mine")
    compiled("dkl.mine")
    assert capsys.readouterr().err.count("`dkl warmup`") == 1
    show.close()
    unclosed = Progress()
    del unclosed
    compiled("dkl.mine")
    assert capsys.readouterr().err == ""
