"""What is kept of a classifier's fit: the machines in between, all at once; classes; the model."""

import numpy as np
import pytest

import dkl
from dkl import OptimalNeighborhoodSVC
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.base.classes import describe_classes, read_classes
from dkl.estimators.svm.checkpoint import CachedColumns, MachineCheckpointer, MachineResult, ReportedPoint
from dkl.estimators.svm.decisions import Training, kernels_of
from dkl.estimators.svm.settings import SVCSettings
from dkl.estimators.svm.store import fit_in_run
from dkl.solvers.svm.interface import GradientState, PointState, WalkState
from dkl.solvers.watch import Outcome, Watch
from dkl.stores.checkpoints import COMMIT_SECONDS
from dkl.stores.codec import encode
from dkl.stores.run import RunStore


@pytest.fixture
def run(tmp_path):
    run = RunStore.create(tmp_path / "run.zarr", {"task": "svc"})
    yield run
    run.close()


def result(alpha, outcome=Outcome.SOLVED, max_iter=10):
    point = ReportedPoint(np.asarray(alpha, float), -1.5, 0.25, np.pi)
    cached = [CachedColumns(np.arange(len(alpha))[:2], "float64")]
    return MachineResult(point, np.array([0.25, 0.75]), 7, 9, outcome, max_iter, cached, [])


def state(size, iteration=0):
    alpha, face = np.arange(float(size)), np.zeros(size, np.int8)
    walk = WalkState(alpha, alpha + 1, alpha, alpha + 1, 1.0, 0.5, np.inf, 3)
    return GradientState(walk, face, iteration, 0, 2, PointState(alpha, alpha, alpha, -1.0, 0.5, 0.0))


def resumed(checkpointer, number, n):
    return checkpointer.resume(number, n, "gradient", is_refined=False)


def is_same(found, wanted):
    (arrays, notes), (others, more) = encode(found), encode(wanted)
    assert notes == more
    for name, values in arrays.items():
        assert values.dtype == others[name].dtype and np.array_equal(values, others[name]), name


def row(number, iteration):
    return {"machine": number, "stage": "machine", "iteration": iteration, "objective": np.pi, "seconds": 0.5}


def test_machines_of_all_sizes_come_back(run, rng):
    checkpointer = MachineCheckpointer(run, 1)
    alphas = {0: rng.random(5), 2: rng.random(9), 1: rng.random(1)}
    for number, alpha in alphas.items():
        assert resumed(checkpointer, number, len(alpha)) is None
        for iteration in range(number):
            checkpointer(row(number, iteration))
            checkpointer.on_state(number, len(alpha), state(len(alpha), iteration), [])
        if number != 2:
            checkpointer.on_result(number, len(alpha), result(alpha))
    later = MachineCheckpointer(run, 1)
    assert resumed(later, 3, 5) is None
    for number in (0, 1):
        found = resumed(later, number, len(alphas[number]))
        assert found.state is None and found.history == []
        is_same(found.result, result(alphas[number]))
        assert found.result.point.relative_gap == 0.25 / 1.5
    found = resumed(later, 2, 9)
    assert found.result is None
    is_same(found.state, state(9, 1))
    assert found.state.walk.alpha.flags.aligned and found.state.walk.alpha.base is None  # as arithmetic has it
    own = {"objective": np.pi, "seconds": 0.5}  # its stage gives it the rest
    assert found.history == [{"iteration": 0, **own}, {"iteration": 1, **own}]
    later.on_result(2, 9, result(alphas[2]))
    assert all(machine.state is None and machine.result for machine in MachineCheckpointer(run, 1).state.values())


def test_a_machine_of_another_size_or_solver_restarts(run):
    checkpointer = MachineCheckpointer(run, 1)
    checkpointer(row(0, 0))
    checkpointer.on_state(0, 4, state(4), [])
    for wrong in ((5, "gradient", False), (4, "level", False), (4, "gradient", True)):
        later = MachineCheckpointer(run, 1)
        n, solver, is_refined = wrong
        assert later.resume(0, n, solver, is_refined=is_refined) is None
        assert later.state == {} and later.rows[0] == []


def test_rows_after_the_last_check_are_told_again(run):
    checkpointer = MachineCheckpointer(run, 1)
    resumed(checkpointer, 0, 2)
    checkpointer(row(0, 0))
    checkpointer.on_state(0, 2, state(2), [])
    checkpointer(row(0, 10))
    checkpointer(row(0, 20))
    checkpointer.commit_rest()
    for _ in range(2):  # asked for once or more
        for found in (resumed(checkpointer, 0, 2), resumed(MachineCheckpointer(run, 1), 0, 2)):
            assert [row["iteration"] for row in found.history] == [0]


def test_a_machine_at_its_limit_keeps_where_it_stood(run):
    checkpointer = MachineCheckpointer(run, 1)
    for number, outcome in enumerate((Outcome.ITERATION_LIMIT, Outcome.STALLED, Outcome.ITERATION_LIMIT)):
        resumed(checkpointer, number, 2)
        if number < 2:
            checkpointer.on_state(number, 2, state(2), [])
        checkpointer.on_result(number, 2, result([1.0, 2.0], outcome))
    found = MachineCheckpointer(run, 1)
    assert [resumed(found, number, 2).state is not None for number in range(3)] == [True, False, False]
    assert [resumed(found, number, 2).result.is_final(10) for number in range(3)] == [True] * 3
    assert [resumed(found, number, 2).result.is_final(11) for number in range(3)] == [False, True, False]
    assert resumed(found, 2, 2).result.point.alpha.tolist() == [1.0, 2.0]
    found.on_result(2, 2, result([3.0, 2.0], Outcome.ITERATION_LIMIT))  # which has kept no state this time either
    assert found.state[2].state is None


def commits(run):
    return [event for event in run.events() if event["event"] == "commit"]


def test_commits_come_by_rounds_or_by_time(run):
    checkpointer = MachineCheckpointer(run, 3)
    for _ in range(7):
        checkpointer.on_state(0, 2, state(2), [])
    assert len(commits(run)) == 2
    checkpointer.commit_rest()
    checkpointer.commit_rest()  # nothing has come since
    assert len(commits(run)) == 3
    by_time = MachineCheckpointer(run, "auto")
    for waited in (0.0, 0.5 * COMMIT_SECONDS, 1.5 * COMMIT_SECONDS, 0.0):
        by_time.rule.last -= waited
        by_time.on_state(0, 2, state(2), [])
    assert len(commits(run)) == 4
    by_time.rule.cost, by_time.rule.last = COMMIT_SECONDS, by_time.rule.last - 2 * COMMIT_SECONDS
    by_time.on_state(0, 2, state(2), [])  # too dear to come so soon
    assert len(commits(run)) == 4


def test_a_round_that_was_too_early_to_commit_is_committed_in_the_next_one(run):
    """Which may be long: progress within it is enough."""
    checkpointer = MachineCheckpointer(run, "auto")
    checkpointer({})
    checkpointer.on_state(0, 2, state(2), [])
    checkpointer({})
    assert commits(run) == []
    checkpointer.rule.last -= 2 * COMMIT_SECONDS
    checkpointer({})
    checkpointer({})
    assert len(commits(run)) == 1
    is_same(resumed(MachineCheckpointer(run, "auto"), 0, 2).state, state(2))


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
