"""What is kept of a classifier's fit: coefficients in between, of all machines at once; classes; the model."""

import numpy as np
import pytest

from dkl import OptimalNeighborhoodSVC
from dkl.blocks.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.svc.model import describe_classes, load_classifier, read_classes
from dkl.estimators.svc.settings import SVCRunSettings
from dkl.estimators.svc.store import COMMIT_SECONDS, StoredMachines, fit_in_run
from dkl.stores.run import RunStore


@pytest.fixture
def run(tmp_path):
    run = RunStore.create(tmp_path / "run.zarr", {"task": "svc"})
    yield run
    run.close()


def test_coefficients_of_machines_of_all_sizes_come_back(run, rng):
    keeper = StoredMachines(run, 1)
    alphas = {0: rng.random(5), 2: rng.random(9), 1: rng.random(1)}
    for machine, alpha in alphas.items():
        assert keeper.begun(machine) is None
        keeper.keep(machine, alpha, machine != 2)
    later = StoredMachines(run, 1)
    for machine, alpha in alphas.items():
        assert np.array_equal(later.begun(machine), alpha)
    assert later.begun(3) is None and later.solved == {0, 1}
    later.keep(2, alphas[2] + 1, True)
    later.keep(0, alphas[0] - 1, False)  # it is gone on with
    assert StoredMachines(run, 1).solved == {1, 2}
    assert np.array_equal(StoredMachines(run, 1).begun(2), alphas[2] + 1)


def test_what_is_kept_is_a_copy(run):
    keeper, alpha = StoredMachines(run, 2), np.ones(3)
    keeper.keep(0, alpha, False)
    alpha[:] = 7.0
    keeper.keep(1, np.zeros(2), False)
    assert np.array_equal(StoredMachines(run, 2).begun(0), np.ones(3))


def commits(run):
    return [event for event in run.events() if event["event"] == "commit"]


def test_commits_come_by_rounds_or_by_time(run):
    keeper = StoredMachines(run, 3)
    for _ in range(7):
        keeper.keep(0, np.ones(2), False)
    assert len(commits(run)) == 2
    keeper.commit()
    keeper.commit()  # nothing has come since
    assert len(commits(run)) == 3
    by_time = StoredMachines(run, "auto")
    for waited in (0.0, 0.5 * COMMIT_SECONDS, 1.5 * COMMIT_SECONDS, 0.0):
        by_time.last -= waited
        by_time.keep(0, np.ones(2), False)
    assert len(commits(run)) == 4
    by_time.cost, by_time.last = COMMIT_SECONDS, by_time.last - 2 * COMMIT_SECONDS
    by_time.keep(0, np.ones(2), False)  # too dear to come so soon
    assert len(commits(run)) == 4


def test_a_round_that_was_too_early_to_commit_is_committed_in_the_next_one(run):
    """Which may be long: progress within it is enough."""
    keeper = StoredMachines(run, "auto")
    keeper({})
    keeper.keep(0, np.ones(2), False)
    keeper({})
    assert commits(run) == []
    keeper.last -= 2 * COMMIT_SECONDS
    keeper({})
    keeper({})
    assert len(commits(run)) == 1
    assert np.array_equal(StoredMachines(run, "auto").begun(0), np.ones(2))


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
        "settings": SVCRunSettings(C=3.0, kernel=["rbf", "poly"]).as_dict(),
    }
    run = RunStore.create(tmp_path / "run.zarr", config)
    settings = SVCRunSettings(**config["settings"])
    with pytest.raises(StoreError, match="no model"):
        load_classifier(run.path)
    fitted = fit_in_run(run, row_source(X), y, settings, Session(None, threads=1), callbacks=[])
    run.close()
    own = OptimalNeighborhoodSVC(C=3.0, kernel=["rbf", "poly"], n_jobs=1).fit(X, y)
    found = load_classifier(run.path)
    for name in ("support_", "dual_coef_", "intercept_", "kernel_weights_", "support_vectors_"):
        assert np.array_equal(getattr(found, name), getattr(own, name)), name
        assert np.array_equal(getattr(fitted, name), getattr(own, name)), name
    assert np.array_equal(found.decision_function(X), own.decision_function(X))


def test_only_a_classifiers_run_is_one(tmp_path):
    RunStore.create(tmp_path / "run.zarr", {"task": "regression"}).close()
    with pytest.raises(StoreError, match="dkl fit svc"):
        load_classifier(tmp_path / "run.zarr")
    with pytest.raises(InputError, match="no such run"):
        load_classifier(tmp_path / "none.zarr")
