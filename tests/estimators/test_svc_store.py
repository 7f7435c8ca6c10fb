"""What is kept of a classifier's fit: the machines in between, all at once; classes; the model."""

import numpy as np
import pytest

import dkl
from dkl import OptimalNeighborhoodSVC
from dkl.blocks.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.common.classes import describe_classes, read_classes
from dkl.estimators.svc.arrays import states_of
from dkl.estimators.svc.kept import Ended, EndedPoint
from dkl.estimators.svc.kernels import kernels_of
from dkl.estimators.svc.settings import SVCSettings
from dkl.estimators.svc.store import StoredMachines, fit_in_run
from dkl.estimators.svc.training import Training
from dkl.solvers.result import Outcome
from dkl.solvers.watch import Watch
from dkl.stores.keeper import COMMIT_SECONDS
from dkl.stores.run import RunStore


@pytest.fixture
def run(tmp_path):
    run = RunStore.create(tmp_path / "run.zarr", {"task": "svc"})
    yield run
    run.close()


def ended(alpha, outcome=Outcome.SOLVED, max_iter=10):
    point = EndedPoint(np.asarray(alpha, float), -1.5, 0.25, np.pi)
    return Ended(
        point, np.array([0.25, 0.75]), 7, 9, outcome, max_iter, {"0.rows": np.arange(2), "0.dtype": "float64"}, []
    )


def state(size, **more):
    return {"alpha": np.arange(float(size)), "rows": np.arange(3), "lower": -np.inf, "ended": "solved", **more}


def is_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.array_equal(found[name], value), name


def test_machines_of_all_sizes_come_back(run, rng):
    keeper = StoredMachines(run, 1)
    alphas = {0: rng.random(5), 2: rng.random(9), 1: rng.random(1)}
    for machine, alpha in alphas.items():
        assert keeper.begun(machine) is None
        for iteration in range(machine):
            keeper({"machine": machine, "stage": "machine", "iteration": iteration, "objective": np.pi, "seconds": 0.5})
            keeper.keep(machine, state(len(alpha), iteration=iteration))
        if machine != 2:
            keeper.ended(machine, ended(alpha))
    later = StoredMachines(run, 1)
    assert later.begun(3) is None
    for machine in (0, 1):
        found = later.begun(machine)
        assert found.state is None and found.rows == []
        point, wanted = found.ended.point, ended(alphas[machine])
        assert np.array_equal(point.alpha, alphas[machine]) and point.relative_gap == wanted.point.relative_gap
        assert (point.objective, point.gap, point.intercept) == (-1.5, 0.25, np.pi)
        assert np.array_equal(found.ended.shares, wanted.shares) and found.ended.outcome is Outcome.SOLVED
        assert (found.ended.n_iter, found.ended.products, found.ended.max_iter) == (7, 9, 10)
        is_same(found.ended.held, wanted.held)
    found = later.begun(2)
    assert found.ended is None and found.start is None
    is_same(found.state, state(9, iteration=1))
    assert found.state["alpha"].flags.aligned and found.state["alpha"].base is None  # as arithmetic has it
    row = {"objective": np.pi, "seconds": 0.5}  # its stage gives it the rest
    assert found.rows == [{"iteration": 0, **row}, {"iteration": 1, **row}]
    later.ended(2, ended(alphas[2]))
    assert all(kept.state is None and kept.ended for kept in StoredMachines(run, 1).machines.values())


def test_rows_after_the_last_check_are_told_again(run):
    keeper = StoredMachines(run, 1)
    keeper.begun(0)
    keeper({"machine": 0, "iteration": 0})
    keeper.keep(0, state(2))
    keeper({"machine": 0, "iteration": 10})
    keeper({"machine": 0, "iteration": 20})
    keeper.commit_rest()
    for _ in range(2):  # asked for once or more
        assert [row["iteration"] for row in keeper.begun(0).rows] == [0]
        assert StoredMachines(run, 1).begun(0).rows == [{"iteration": 0}]


def test_a_machine_at_its_limit_keeps_where_it_stood(run):
    keeper = StoredMachines(run, 1)
    for machine, outcome in enumerate((Outcome.ITERATION_LIMIT, Outcome.STALLED, Outcome.ITERATION_LIMIT)):
        keeper.begun(machine)
        if machine < 2:
            keeper.keep(machine, state(2))
        keeper.ended(machine, ended([1.0, 2.0], outcome))
    found = StoredMachines(run, 1)
    assert [found.begun(machine).state is not None for machine in range(3)] == [True, False, False]
    assert [found.begun(machine).ended.stands(10) for machine in range(3)] == [True] * 3
    assert [found.begun(machine).ended.stands(11) for machine in range(3)] == [False, True, False]
    assert found.begun(2).start.tolist() == [1.0, 2.0]
    found.ended(2, ended([3.0, 2.0], Outcome.ITERATION_LIMIT))  # which has kept no state this time either
    assert found.machines[2].state is None


def test_alphas_of_an_earlier_version_are_begun_at(run):
    arrays = {"alphas": np.arange(5.0), "machines": np.array([[0, 2, 1], [1, 3, 0]])}
    states_of(run).write(1, arrays, {})
    keeper = StoredMachines(run, 1)
    assert [keeper.begun(machine).start.tolist() for machine in (0, 1)] == [[0.0, 1.0], [2.0, 3.0, 4.0]]
    assert all(keeper.begun(machine).ended is None and keeper.begun(machine).state is None for machine in (0, 1))
    keeper.keep(0, state(2))  # the other one is kept as it was
    later = StoredMachines(run, 1)
    assert later.begun(0).start is None and later.begun(1).start.tolist() == [2.0, 3.0, 4.0]


def test_a_state_of_another_version_is_not_gone_on_from(run, monkeypatch):
    keeper = StoredMachines(run, 1)
    keeper.keep(0, state(4))
    keeper.ended(1, ended([1.0, 0.5]))
    monkeypatch.setattr("dkl.estimators.svc.kept.VERSION", 2)
    found = StoredMachines(run, 1)
    assert found.begun(0).state is None and found.begun(0).rows == []
    assert found.begun(1).ended.point.alpha.tolist() == [1.0, 0.5]


def commits(run):
    return [event for event in run.events() if event["event"] == "commit"]


def test_commits_come_by_rounds_or_by_time(run):
    keeper = StoredMachines(run, 3)
    for _ in range(7):
        keeper.keep(0, state(2))
    assert len(commits(run)) == 2
    keeper.commit_rest()
    keeper.commit_rest()  # nothing has come since
    assert len(commits(run)) == 3
    by_time = StoredMachines(run, "auto")
    for waited in (0.0, 0.5 * COMMIT_SECONDS, 1.5 * COMMIT_SECONDS, 0.0):
        by_time.rule.last -= waited
        by_time.keep(0, state(2))
    assert len(commits(run)) == 4
    by_time.rule.cost, by_time.rule.last = COMMIT_SECONDS, by_time.rule.last - 2 * COMMIT_SECONDS
    by_time.keep(0, state(2))  # too dear to come so soon
    assert len(commits(run)) == 4


def test_a_round_that_was_too_early_to_commit_is_committed_in_the_next_one(run):
    """Which may be long: progress within it is enough."""
    keeper = StoredMachines(run, "auto")
    keeper({})
    keeper.keep(0, state(2))
    keeper({})
    assert commits(run) == []
    keeper.rule.last -= 2 * COMMIT_SECONDS
    keeper({})
    keeper({})
    assert len(commits(run)) == 1
    is_same(StoredMachines(run, "auto").begun(0).state, state(2))


@pytest.mark.parametrize(
    "labels", [[1, -1], [0.0, 2.0], ["b", "a"], [True, False], [2**60 + 1, 2**60], ["", "ü", "long name"]]
)
def test_classes_keep_their_values_and_kind(labels, tmp_path):
    classes = np.unique(np.array(labels))
    RunStore.create(tmp_path / "run.zarr", {"classes": describe_classes(classes)}).close()
    found = read_classes(RunStore.open(tmp_path / "run.zarr"))
    assert np.array_equal(found, classes) and found.dtype == classes.dtype


def test_a_fit_in_a_run_is_the_fit(tmp_path, rng):
    X, y = rng.standard_normal((60, 2)), np.arange(60) % 3
    config = {
        "task": "svc",
        "classes": describe_classes(np.arange(3)),
        "inputs": {"data": {"shape": [60, 2]}},
        "settings": SVCSettings(C=3.0, kernel=["rbf", "poly"]).as_dict(),
    }
    run = RunStore.create(tmp_path / "run.zarr", config)
    settings = SVCSettings(**config["settings"])
    with pytest.raises(StoreError, match="no result|no model"):
        dkl.load(run.path)
    source = row_source(X)
    training = Training.of(source, np.arange(3), y, kernels_of(settings, source), settings.C)
    fitted = fit_in_run(run, training, settings, Session(None, threads=1), Watch())
    run.close()
    own = OptimalNeighborhoodSVC(C=3.0, kernel=["rbf", "poly"], n_jobs=1).fit(X, y)
    found = dkl.load(run.path)
    for name in ("support_", "dual_coef_", "intercept_", "kernel_weights_", "support_vectors_"):
        assert np.array_equal(getattr(found, name), getattr(own, name)), name
    assert np.array_equal(fitted.machines.coefficients, own.dual_coef_)
    assert np.array_equal(found.decision_function(X), own.decision_function(X))


def test_a_run_of_an_unknown_kind_is_refused(tmp_path):
    RunStore.create(tmp_path / "run.zarr", {"task": "magic", "settings": {}}).close()
    with pytest.raises(StoreError, match="kind that is not understood"):
        dkl.load(tmp_path / "run.zarr")
    with pytest.raises(InputError, match="no such run"):
        dkl.load(tmp_path / "none.zarr")
