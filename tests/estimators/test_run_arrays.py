"""What runs of several learners keep alike: lengths that agree, a history by columns, settings made estimators again."""

import sys
from types import ModuleType

import numpy as np
import pytest

from dkl import LowRankKernelRegressor, OptimalNeighborhoodSVC, PairwiseKernelLearner
from dkl.errors import DiskError, InputError, StoreError
from dkl.estimators.base.run_arrays import (
    CERTIFICATE,
    ITERATION,
    check_lengths,
    declared_history,
    read_history,
    result_in,
    trained_on,
    write_history,
)
from dkl.estimators.base.settings import parameters, remade
from dkl.estimators.base.work_folder import checked_folder, folder_of
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.regression.settings import RegressionSettings
from dkl.estimators.svm.settings import SVCSettings
from dkl.stores import registry
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore

TABLE = StoredArray("model/table", ("row", "column"), ("float64",), "A table.")
LIST = StoredArray("model/list", ("row",), ("int64",), "A list.", optional=True)
POINTS = StoredArray("model/points", ("column", "feature"), ("float64",), "Points.", may_lack_last=True, optional=True)


@pytest.fixture
def run(tmp_path, monkeypatch):
    module = ModuleType("somebodys_arrays")
    module.ARRAYS = Arrays(TABLE, LIST, POINTS, *declared_history({**ITERATION, "part": "Which."}, CERTIFICATE))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry._CONTRIBUTED, "theirs", module.__name__)
    made = RunStore.create(tmp_path / "run.zarr", {"task": "theirs", "inputs": {"data": {"shape": [7, 3]}}})
    yield made
    made.close()


FITTING = {"table": np.ones((4, 3)), "list": np.arange(4), "points": np.ones((3, 9))}


@pytest.mark.parametrize(
    ("changes", "known", "fits"),
    [
        ({}, {}, True),
        ({}, {"column": 3, "row": 4, "else": 8}, True),
        ({"points": np.ones(3)}, {}, True),  # without its last dimension
        ({}, {"column": 2}, False),
        ({"list": np.arange(5)}, {}, False),
        ({"points": np.ones((4, 9))}, {}, False),
    ],
)
def test_lengths_of_dimensions_agree(changes, known, fits, run):
    run.write_arrays("model", FITTING | changes)
    found = run.read_arrays("model")
    if fits:
        check_lengths(run, "model", found, "parts that differ", "here", **known)
        return
    with pytest.raises(StoreError, match="here: parts that differ"):
        check_lengths(run, "model", found, "parts that differ", "here", **known)


def test_a_history_keeps_the_declared_columns_that_all_rows_have(run):
    row = {"iteration": 1, "objective": np.pi, "seconds": 0.5}
    write_history(run, [row | {"gap": 1.0}, row | {"iteration": 2}])
    assert read_history(run) == [{"iteration": 1, "objective": np.pi}, {"iteration": 2, "objective": np.pi}]
    write_history(run, [row | {"part": 3, "gap": 1.0}])  # in place of the other
    assert read_history(run) == [{"gap": 1.0, "iteration": 1, "objective": np.pi, "part": 3}]


def test_columns_of_a_history_that_differ_are_damage(run):
    run.write_arrays("history", {"iteration": np.arange(3), "objective": np.ones(2)})
    with pytest.raises(StoreError, match="columns of different lengths"):
        read_history(run)


def test_what_a_run_was_trained_on(run, tmp_path):
    assert trained_on(run) == (7, 3)
    with pytest.raises(StoreError, match="no shape of the training rows"):
        trained_on(RunStore(tmp_path, {"inputs": {"data": {"shape": 7}}}))
    with pytest.raises(StoreError, match="no result yet"):
        result_in(run)


@pytest.mark.parametrize(
    ("estimator", "kind", "changes"),
    [
        (OptimalNeighborhoodSVC, SVCSettings, {"C": 3.0, "kernel": ["rbf", "poly"], "memory_limit": 10**9}),
        (LowRankKernelRegressor, RegressionSettings, {"nu": 0.5, "columns": "given", "cv": 3}),
        (PairwiseKernelLearner, PairwiseSettings, {"rank": 4, "gamma": 2.0}),
    ],
)
def test_settings_make_the_estimator_again(estimator, kind, changes):
    stored = kind(**changes).as_dict()
    made = remade(estimator, kind, stored, verbose=1)
    wanted = {name: stored.get(name, default) for name, (default, _) in parameters(kind).items()}
    assert made.get_params() == wanted | {"verbose": 1} and wanted.items() >= changes.items()


def test_a_work_folder_is_the_runs_alone(tmp_path):
    assert checked_folder(str(tmp_path)) == str(tmp_path)
    with pytest.raises(InputError, match="work_dir: no such folder"):
        checked_folder(str(tmp_path / "none"))
    with folder_of(tmp_path / "run", None, "tiles", "aaaa") as folder:
        assert folder is None
    with folder_of(tmp_path / "run", str(tmp_path), "tiles", "aaaa") as first:
        with folder_of(tmp_path / "other", str(tmp_path), "tiles", "aaaa") as other:
            assert other != first and first.parent == other.parent == tmp_path
        with folder_of(tmp_path / "run", str(tmp_path), "tiles", "bbbb") as again:
            assert again != first and first.is_dir()
    assert not list(tmp_path.iterdir())
    missing = str(tmp_path / "none")
    with pytest.raises(DiskError, match="cannot be made"), folder_of(tmp_path, missing, "tiles", "aaaa"):
        pass
