"""Fits too small for the workers of a cluster: this process does them, says so in one line, and learns the same bytes."""

import logging
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from command_line import FIT, call, write_inputs
from distributed import Client, LocalCluster
from scipy import sparse

import dkl
from dkl.blocks import memory_plan as plans
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.memory_plan import Place, idle_workers
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.plan import admm_plan
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.terms import PairwiseTerms
from dkl.runs.backends import Unstarted
from dkl.side_information.pairs import Pairs
from dkl.solvers.watch import Watch

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
LINE = "the workers stay idle: "
SETTINGS = PairwiseSettings(solver="admm", rank=40, max_iter=12, tol=0.0, target_gap=None)


@pytest.fixture(autouse=True)
def by_size():
    """As for users: all other tests have workers work at any size (`conftest.py`)."""
    with dask.config.set({"dkl.workers": ""}):
        yield


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith(LINE)]


def question(n: int = 300) -> Any:
    X = np.random.default_rng(0).standard_normal((n, 5))
    return make_problem(build_graph(X).laplacian, Pairs.from_labels(np.arange(n) % 3, random_state=0), 100.0)


def planned(n: int, rank: int, workers: int, limit: int | None = None) -> Any:
    """The plan of ADMM with workers of one thread beside two threads here."""
    pairs = Pairs.from_labels(np.arange(n) % 3, 500, 500, random_state=0)
    targets = PairwiseTerms.of(sparse.csr_array((n, n)), pairs, 100.0).targets
    session = Unstarted(workers, 4_000_000_000)
    session.threads = 2
    settings = PairwiseSettings(solver="admm", rank=rank, memory_limit=limit)
    return admm_plan(session, rank, 20 * n, targets, settings, has_store=True)


@pytest.mark.parametrize("solver", ["admm", pytest.param("factored", marks=pytest.mark.exhaustive)])
def test_idle_and_working_workers_learn_the_same_bytes(
    client: Any, caplog: pytest.LogCaptureFixture, solver: str
) -> None:
    settings = {"solver": solver, "max_iter": 12, "random_state": 0, "rank": 40, "holdout": 0.0}
    X, y = np.random.default_rng(1).standard_normal((120, 4)), np.arange(120) % 3
    caplog.set_level(logging.WARNING, "dkl")
    idle = dkl.PairwiseKernelLearner(**settings, client=client).fit(X, y)
    assert len(said(caplog)) == 1
    assert idle.result_.plan["processes"] == 1
    with dask.config.set({"dkl.workers": "always"}):
        working = dkl.PairwiseKernelLearner(**settings, client=client).fit(X, y)
    here = dkl.PairwiseKernelLearner(**settings, n_jobs=1).fit(X, y)
    assert working.result_.plan["processes"] == (1 if solver == "factored" else 2)
    assert len({learner.factor_.tobytes() for learner in (idle, working, here)}) == 1
    assert len({learner.graph_.laplacian.data.tobytes() for learner in (idle, working, here)}) == 1


OTHERS = {
    "svc": (dkl.OptimalNeighborhoodSVC, {}, "the workers stay idle: the kernel matrix fits in this process"),
    "logdet": (dkl.LogDetKernelLearner, {"n_in": 3, "n_out": 3}, "1 of 2 workers stay idle: a kernel is found by one process"),
    "laplacian": (dkl.LaplacianKernelLearner, {}, "1 of 2 workers stay idle: a kernel is found by one process"),
    "mvu": (dkl.MaximumVarianceUnfolding, {}, "1 of 2 workers stay idle: a kernel is found by one process"),
}  # fmt: skip
"""Learners whose plans leave workers idle, some settings, and the line of it."""


@pytest.mark.parametrize("task", OTHERS)
def test_other_learners_say_once_that_workers_are_idle(
    cluster: Any,
    client: Any,
    task: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In Python, by command, and in the plan of a command whose workers are not there yet."""
    kind, settings, line = OTHERS[task]
    X, y = np.random.default_rng(1).standard_normal((60, 4)), np.arange(60) % 2
    X[:, 0] += 3 * y
    said: list[str] = []
    monkeypatch.setattr(plans.LOG, "warning", said.append)
    kind(**settings, max_iter=2, client=client).fit(X, y)
    assert said == [line]
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=y)
    np.savetxt("pairs.csv", [[i, i + 1, -1] for i in range(0, 40, 2)], "%d", ",", header="i,j,label", comments="")
    words = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    given = (task, "--data", "X.npz", *(("--pairs", "pairs.csv") if task == "laplacian" else ()), *words, "--out", "r")
    answer = call("fit", *given, "--max-iter", "2", "--no-picture", "--scheduler", cluster.scheduler_address)
    assert answer.code in (0, 3) and said[1:] == [line], answer.err
    planned = call("plan", *given[:-1], "other", "--workers", "64", "--memory-limit", "1GB").out
    assert line.replace("1 of 2", "63 of 64") in planned
    assert "idle" not in call("plan", *given[:-1], "other").out


def test_a_fit_without_workers_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "dkl")
    fit_problem(question(60), SETTINGS, Session(None, threads=1))
    assert not said(caplog)


def test_no_task_runs_on_idle_workers(cluster: Any, client: Any) -> None:
    before = cluster.scheduler.transition_counter
    X = np.random.default_rng(0).standard_normal((300, 5))
    build_graph(X, session=Session(client))
    fit_problem(question(), SETTINGS, Session(client))
    assert cluster.scheduler.transition_counter == before


@pytest.mark.parametrize(
    ("n", "rank", "workers", "works"), [(2000, 64, 2, False), (2000, 64, 8, False), (200_000, 1024, 8, True)]
)
def test_the_size_decides(n: int, rank: int, workers: int, works: bool) -> None:
    plan = planned(n, rank, workers)
    assert (plan.processes > 1, plan.idle_workers == "") == (works, works)
    assert (LINE in plan.describe()) is not works


def test_workers_idle_only_where_they_are_no_faster_and_memory_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = Place(2, 1, distributed=True)
    assert idle_workers(workers, 1.0, 1.0, 0)
    assert not idle_workers(workers, 1.0, 0.9, 0)
    assert not idle_workers(replace(workers, distributed=False), 1.0, 1.0, 0)
    monkeypatch.setattr(plans, "machine_memory", lambda: 100)
    assert idle_workers(workers, 1.0, 1.0, 25)
    assert not idle_workers(workers, 1.0, 1.0, 26)


def test_a_limit_that_is_too_small_for_this_process_goes_to_the_workers(client: Any) -> None:
    """Each of two takes less than this process would, which has the graph and the result as well."""
    problem = question(3000)
    whole = admm_plan(Session(client), 64, problem.laplacian.nnz, problem.targets, SETTINGS, has_store=False)
    assert whole.processes == 1
    settings = replace(SETTINGS, rank=64, max_iter=2, memory_limit=whole.process_bytes - 1)
    there = fit_problem(problem, settings, Session(client))
    here = fit_problem(problem, replace(settings, memory_limit=None), Session(client))
    assert (there.result.plan["processes"], here.result.plan["processes"]) == (2, 1)
    assert there.factor is not None and here.factor is not None
    assert there.factor.tobytes() == here.factor.tobytes()


def test_rows_on_disk_and_a_limit_keep_the_graph_on_the_workers(cluster: Any, client: Any) -> None:
    X = np.random.default_rng(0).standard_normal((300, 5))
    before = cluster.scheduler.transition_counter
    build_graph(X, session=Session(client), memory_limit="1 GB")
    assert cluster.scheduler.transition_counter > before


def test_an_idle_worker_may_be_killed() -> None:
    problem, pids = question(), []
    undisturbed = fit_problem(problem, SETTINGS, Session(None, threads=1))
    how: dict[str, Any] = {"scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}, "dashboard_address": None}
    with LocalCluster(n_workers=1, threads_per_worker=1, host="127.0.0.1", **how) as own, Client(own) as client:

        def kill(row: dict[str, Any]) -> None:
            if row["iteration"] == 3:
                pids.extend(client.run(os.getpid).values())
                os.kill(pids[0], signal.SIGKILL)

        fitted = fit_problem(problem, SETTINGS, Session(client), watch=Watch([kill]))
    assert pids
    assert fitted.result.restarts == 0
    assert fitted.factor is not None and undisturbed.factor is not None
    assert fitted.factor.tobytes() == undisturbed.factor.tobytes()


def test_the_command_says_so(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plans.LOG, "warning", lines.append)  # Dask's cluster silences pytest's handlers
    write_inputs(tmp_path)
    assert LINE in call("plan", *FIT[1:], "--workers", "2").out
    assert LINE not in call("plan", *FIT[1:]).out
    assert call(*FIT, "--workers", "2", "--max-iter", "4").code in (0, 3)
    assert [line for line in lines if line.startswith(LINE)] == lines
    assert len(lines) == 1
