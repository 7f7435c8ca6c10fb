"""Fitted learners are loaded, from a run's folder and from a pickle, without what only a fit or a prediction needs."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from run_cases import CASES

import dkl

LOADED = """
import pickle, sys
from pathlib import Path
import dkl

def read(path):
    return pickle.loads(path.read_bytes()) if path.suffix == ".pickle" else dkl.load(path)

for learner in [read(Path(path)) for path in sys.argv[2:]]:
    values = [name for name in dir(learner) if name.endswith("_") and not name.startswith("_") and hasattr(learner, name)]
    assert len(values) > 3, learner
print(set(sys.argv[1].split()) & sys.modules.keys())
"""
NUMBA, FITS = "numba llvmlite", "sklearn.model_selection sklearn.metrics dask distributed matplotlib"


def imported(modules: str, *paths: Path) -> str:
    """Which of some modules a process has imported that has loaded what is at these paths, and read all their attributes."""
    command = [sys.executable, "-c", LOADED, modules, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def learners() -> dict[str, Any]:
    """All learners, fitted to 60 rows."""
    rng = np.random.default_rng(7)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 4)) + 3 * np.eye(3, 4)[y]
    ends = rng.permutation(60).reshape(-1, 2)
    alike = y[ends[:, 0]] == y[ends[:, 1]]
    pairs: dict[str, Any] = {"must_link": ends[alike], "cannot_link": ends[~alike]}
    given: dict[str, dict[str, Any]] = {
        "LaplacianKernelLearner": pairs,
        "LogDetKernelLearner": {"y": y},
        "LogDetMetricLearner": {"y": y},
        "LowRankKernelRegressor": {"y": X[:, 0]},
        "OptimalNeighborhoodSVC": {"y": y},
        "PairwiseKernelLearner": pairs,
    }
    names = [name for name in dkl.__all__ if hasattr(getattr(dkl, name), "fit")]
    assert len(names) >= 11
    return {name: getattr(dkl, name)().fit(X, **given.get(name, {})) for name in names}


@pytest.mark.exhaustive  # a new process imports what it may for a second or two
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_a_pickled_learner(learners: dict[str, Any], tmp_path: Path) -> None:
    for name, learner in learners.items():
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(learner))
    assert imported(f"{NUMBA} {FITS}", *tmp_path.iterdir()) == "set()"


@pytest.mark.exhaustive
def test_a_run_s_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task, case in CASES.items():
        (folder := tmp_path / task).mkdir()
        monkeypatch.chdir(folder)
        case.write(folder)
        assert call("fit", task, *case.files, *case.options, "--threads", "1", "--out", "run.zarr").code in (0, 3)
    assert imported(f"{NUMBA} {FITS}", *tmp_path.glob("*/run.zarr")) == "set()"


@pytest.mark.exhaustive
def test_what_is_applied_imports_it(learners: dict[str, Any], tmp_path: Path) -> None:
    """Or the tests above could not fail."""
    path = tmp_path / "clusters.pickle"
    path.write_bytes(pickle.dumps(learners["KernelKMeans"]))
    program = LOADED.replace("    values =", "    learner.predict([[1.0, 2.0, 3.0, 4.0]])\n    values =")
    done = subprocess.run([sys.executable, "-c", program, NUMBA, str(path)], capture_output=True, text=True)
    assert "numba" in done.stdout, done.stderr
