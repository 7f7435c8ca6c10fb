"""Dense work is done by one worker, that with the most room, and finds the same there as here; the scheduler's log says where."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import dask
import door_cases as doors
import numpy as np
import pytest
import zarr
from command_line import call
from dask.utils import key_split
from distributed import get_task_stream
from repeats import but_for
from sklearn.base import clone

import dkl
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import DensePlace, dense_places
from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.logdet.plan import LogDetSizes, plan_kernel
from dkl.estimators.logdet.settings import LogDetKernelSettings
from dkl.side_information import triplet_sources

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
X, Y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
X[:, 0] += 3 * Y
LEARNERS: dict[str, tuple[Any, str]] = {
    "logdet": (dkl.LogDetKernelLearner(n_in=3, n_out=3, n_jobs=1), "M_"),
    "laplacian": (dkl.LaplacianKernelLearner(n_basis=10, n_jobs=1, random_state=0), "embedding_"),
    "mvu": (dkl.MaximumVarianceUnfolding(n_basis=10, n_jobs=1), "embedding_"),
    "sqlp": (dkl.LaplacianKernelLearner(n_basis=6, solver="sqlp", n_jobs=1, random_state=0), "embedding_"),
    "scsdp": (dkl.MaximumVarianceUnfolding(n_basis=6, solver="scsdp", n_jobs=1), "embedding_"),
    "metric": (dkl.LogDetMetricLearner(n_in=3, n_out=3, n_jobs=1), "components_"),
}
"""Learners of dense work, and what they learn."""
ON_WORKERS = sorted(name for name, learner in doors.LEARNERS.items() if "client" in learner.make().get_params())
"""Learners that have some of their work done by workers."""


class Workers(Session):
    """A cluster as the scheduler tells of it."""

    def __init__(self, **limits: int) -> None:
        super().__init__("not started", own=True, threads=1)
        self.limits = limits

    def members(self) -> Any:
        return {a: {"name": a, "nthreads": 1, "memory_limit": limit} for a, limit in self.limits.items()}


def steps(history: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def ends_at_2(row: dict[str, Any]) -> bool:
    return bool(row["iteration"] >= 2)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits without client= stay in this process, though the tests' client is current."""
    monkeypatch.setattr("dkl.blocks.session._current_client", lambda: None)


@pytest.mark.parametrize("callbacks", [None, ends_at_2], ids=["whole", "ended"])
@pytest.mark.parametrize("name", LEARNERS)
def test_a_worker_finds_what_this_process_finds(
    cluster: Any, client: Any, alone: None, name: str, callbacks: Any
) -> None:
    """Byte by byte, with the same history, also where a callback ends the fit at a step of its choice."""
    learner, learned = LEARNERS[name]
    here = clone(learner).set_params(callbacks=callbacks).fit(X, Y)
    with get_task_stream(client) as tasks:
        there = clone(learner).set_params(callbacks=callbacks, client=client).fit(X, Y)
    assert getattr(there, learned).tobytes() == getattr(here, learned).tobytes()
    assert steps(there.result_.history) == steps(here.result_.history)
    assert there.result_.outcome is here.result_.outcome
    assert all(task["key"].startswith("dkl-") for task in tasks.data)
    (worker,) = {task["worker"] for task in tasks.data if "solve-there" in task["key"]}
    assert there.result_.placement.startswith(f"worker {worker} (")
    assert_in_span(cluster, type(learner).__name__, tasks.data)
    assert here.result_.placement == "this process"


def assert_in_span(cluster: Any, work: str, tasks: list[Any]) -> None:
    """Assert that the scheduler has all tasks of a fit in spans by its learner and run, with names that begin with the learner's."""
    learner = work.partition("-")[0]
    names = {key_split(task["key"]) for task in tasks}
    spans = cluster.scheduler.extensions["spans"].spans_search_by_name[f"dkl-{work}",]
    assert names and names <= {
        group.name for span in spans for group in span.groups
    }  # spans of earlier tests among them
    assert all(name.startswith(f"dkl-{learner}-") for name in names)


@pytest.mark.parametrize("name", but_for(set(ON_WORKERS) - {"KernelPCA", "OptimalNeighborhoodSVC"}, ON_WORKERS))
def test_the_scheduler_has_the_tasks_of_each_learner_in_its_span(cluster: Any, client: Any, name: str) -> None:
    with dask.config.set({"dkl.workers": "always"}), get_task_stream(client) as tasks:
        doors.LEARNERS[name].fit(doors.X)
    assert_in_span(cluster, name, tasks.data)


class Locked:
    """A loss of one's own, max(0, 1 - x)^2, and a kernel, with a lock, which pickle does not store."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def value(self, x: Any) -> Any:
        return np.square(np.maximum(0.0, 1.0 - x))

    def first(self, x: Any) -> Any:
        return -2.0 * np.maximum(0.0, 1.0 - x)

    def second(self, x: Any) -> Any:
        return 2.0 * (x < 1.0)

    def __call__(self, x: Any, z: Any) -> Any:
        return x @ z.T


NOT_SENT: dict[str, tuple[Any, str]] = {
    "logdet": (dkl.LogDetKernelLearner(loss=Locked(), n_in=3, n_out=3, holdout=0), "loss"),
    "metric": (dkl.LogDetMetricLearner(loss=Locked(), n_in=3, n_out=3, holdout=0), "loss"),
    "kpca": (dkl.KernelPCA(kernel=Locked(), holdout=0), "kernel"),
    "regression": (dkl.LowRankKernelRegressor(kernel=Locked(), nu=0.1, holdout=0), "kernel"),
    "svc": (dkl.OptimalNeighborhoodSVC(kernel=[Locked(), "rbf"], holdout=0), "kernel"),
}


@pytest.mark.parametrize("name", NOT_SENT)
def test_what_cannot_be_sent_is_refused_before_any_work(client: Any, alone: None, name: str) -> None:
    learner, parameter = NOT_SENT[name]
    learner.fit(X, Y)
    with (
        get_task_stream(client) as tasks,
        pytest.raises(InputError, match=f"^{parameter}: cannot be sent to workers; got .*lock"),
    ):
        learner.set_params(client=client).fit(X, Y)
    assert not tasks.data


@pytest.mark.parametrize("name", ["logdet", "metric"])
def test_a_path_is_solved_by_the_workers_of_its_client(client: Any, alone: None, name: str) -> None:
    with get_task_stream(client) as tasks:
        path = clone(LEARNERS[name][0]).set_params(client=client).path(X, Y, [1.0, 4.0])
    assert sum("solve-there" in task["key"] for task in tasks.data) == 2
    assert path.model(0).result_.placement.startswith("worker ")


def test_each_method_is_tried_on_workers_before_this_process_is() -> None:
    """The first on the worker with the most room, then the next that takes less."""
    needed = {"direct": 600, "pcg": 300}
    assert list(dense_places(Workers(a=1000, b=2000), needed, None))[0] == ("direct", DensePlace("b", 1, 1500))
    assert list(dense_places(Workers(a=500, b=700), needed, None)) == [
        ("pcg", DensePlace("b", 1, 525)),
        ("direct", DensePlace(None, 1)),
        ("pcg", DensePlace(None, 1)),
    ]


def test_a_kernel_whose_direct_step_fits_no_worker_is_solved_there_by_conjugate_gradients() -> None:
    sizes = LogDetSizes(n=9000, d=10, p=1000, c=9000, q=10_000)
    settings = LogDetKernelSettings()
    roomy = plan_kernel(sizes, settings, Workers(a=20 << 30))
    assert roomy.solver == "auto" and roomy.place.worker == "a"
    least = plan_kernel(sizes, settings.changed(solver="pcg"), Workers(a=20 << 30)).plan.process_bytes
    tight = plan_kernel(sizes, settings, Workers(a=int(1.01 * least / 0.75)))
    assert tight.solver == "pcg" and tight.place.worker == "a" and tight.plan.fits
    none = plan_kernel(sizes, settings, Workers(a=least // 2))
    assert none.place.worker is None and "none of them has room for" in none.plan.idle_workers


def refused(*given: object, **more: object) -> None:
    raise AssertionError("neighbors are searched")


@pytest.mark.parametrize("kind", [dkl.LogDetKernelLearner, dkl.LogDetMetricLearner])
def test_what_does_not_fit_is_refused_before_neighbors_are_searched(
    alone: None, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(triplet_sources, "triplets_of_labels", refused)
    n = 20_000
    rows, classes = np.random.default_rng(0).standard_normal((n, 3)), np.arange(n) % 2
    with pytest.raises(MemoryBudgetError, match=r"2,000,000 constraints on 20,000 rows"):
        kind(memory_limit=PROCESS_BASE + 100_000_000, standardize=False).fit(rows, classes)
    with pytest.raises(AssertionError, match="neighbors are searched"):  # these would fit
        kind(standardize=False).fit(rows[:100], classes[:100])


def test_a_run_keeps_the_states_of_a_worker_and_ends_in_the_same_bytes(
    cluster: Any, client: Any, tmp_path: Path
) -> None:
    """Fit by command, with a commit each second step; `dkl info` says where it was solved."""
    data, pairs, chosen = (
        tmp_path / "X.npy",
        tmp_path / "pairs.csv",
        np.random.default_rng(1).integers(0, 240, (300, 2)),
    )
    np.save(data, np.random.default_rng(1).standard_normal((240, 3)))
    signs = np.where(np.random.default_rng(2).random(300) < 0.5, 1, -1)
    rows = np.column_stack([chosen, signs])[chosen[:, 0] != chosen[:, 1]]
    np.savetxt(pairs, rows, "%d", ",", header="i,j,label", comments="")
    words = (
        "fit",
        "laplacian",
        "--data",
        str(data),
        "--pairs",
        str(pairs),
        "--n-basis",
        "60",
        "--tol",
        "1e-9",
        "--no-picture",
    )
    words += ("--checkpoint-every", "2")
    assert call(*words, "--out", str(tmp_path / "here")).code in (0, 3)
    with get_task_stream(client) as tasks:
        assert call(*words, "--scheduler", cluster.scheduler_address, "--out", str(tmp_path / "there")).code in (0, 3)
    here, there = (dkl.open_run(tmp_path / name) for name in ("here", "there"))
    (worker,) = {task["worker"] for task in tasks.data if "solve-there" in task["key"]}
    assert_in_span(cluster, "laplacian-there", tasks.data)
    assert there.report["placement"].startswith(f"worker {worker} (") and worker in call("info", str(there.path)).out
    assert steps(there.history) == steps(here.history) and len(here.history) > 4
    found = [zarr.open_array(run.path / "model" / "embedding", mode="r")[:].tobytes() for run in (here, there)]
    assert found[0] == found[1]
    commits = [(run.path / "events.jsonl").read_text().count('"commit"') for run in (here, there)]
    assert commits[0] == commits[1] > 1
