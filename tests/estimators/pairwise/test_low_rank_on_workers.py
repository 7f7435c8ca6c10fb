"""The factored solver with its rows on workers: the bytes of one process, also where one is lost; callbacks, limits, memory."""

import logging
import signal

import numpy as np
import pytest
from distributed import Client
from on_workers import owners_held
from pairwise_cases import hard_rows
from repeats import but_for
from separate_cluster import Cluster, family, strike

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers.spmd import JointWork
from dkl.errors import DiskError, InputError, MemoryBudgetError
from dkl.estimators.pairwise import choice, fit, plan, stages
from dkl.estimators.pairwise.search_state import SearchStore
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise import terms
from dkl.solvers.watch import Watch

N = 450
HOW = {"solver": "factored", "rank": 8, "gamma": 10.0, "target_gap": 0.3, "random_state": 3, "holdout": 0.0}


@pytest.fixture
def shared(monkeypatch):
    """Small groups of rows, and how often lost workers sent each solve back that was shared out."""
    monkeypatch.setattr(terms, "LEAST_ROWS", 64)
    made, real = [], stages.solved_on_workers

    def noted(*given):
        found = real(*given)
        made.append(found[1])
        return found

    monkeypatch.setattr(stages, "solved_on_workers", noted)
    return made


def learned(client=None, **how):
    """By one process, or by the workers of a client as if the rows were many."""
    X, must, cannot = hard_rows(N, 1)
    learner = dkl.PairwiseKernelLearner(client=client, **HOW | how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            plan, "WORTHWHILE", 1e30 if client is None else 0
        )  # without one, a client that is current is found
        return learner.fit(X, must_link=must, cannot_link=cannot)


def same(one, other):
    """Factor, certificate and history."""
    assert one.factor_.tobytes() == other.factor_.tobytes() and one.factor_.dtype == other.factor_.dtype
    assert one.certificate_.as_dict() == other.certificate_.as_dict()
    for name in ("lift", "pair_lift", "direction"):
        assert getattr(one.certificate_, name).tobytes() == getattr(other.certificate_, name).tobytes()
    assert one.result_.outcome == other.result_.outcome
    assert [row | {"seconds": 0} for row in one.result_.history] == [
        row | {"seconds": 0} for row in other.result_.history
    ]


@pytest.mark.parametrize(
    "how",
    but_for(
        [{}, {"solver": "admm", "target_gap": 0.005}],
        [{}, {"dtype": "float32"}, {"solver": "admm", "target_gap": 0.005}],
    ),
)
def test_it_learns_what_one_process_learns(client, shared, how):
    held = client.run(owners_held)
    here, there = learned(**how), learned(client, **how)
    assert shared == [0] and here.result_.outcome.value == "solved" and len(here.result_.history) > 20
    same(here, there)
    assert client.run(owners_held) == held, "workers keep nothing of it"


def test_few_rows_stay_here(client, monkeypatch):
    monkeypatch.setattr(stages, "solved_on_workers", None)
    X, must, cannot = hard_rows(N, 1)
    found = dkl.PairwiseKernelLearner(client=client, **HOW).fit(X, must_link=must, cannot_link=cannot)
    assert found.result_.outcome.value == "solved"


@pytest.mark.filterwarnings("ignore:sigma=.*cuts:dkl.errors.DataWarning")
def test_rows_are_shared_out_where_memory_asks(client, monkeypatch):
    """Of this process by its memory or by the limit, which workers keep to as well."""
    X, must, cannot = hard_rows(N, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", session=Session(None, threads=1), warns_of_cuts=False
    )
    problem, sessions = (
        fit.make_problem(graph.laplacian, dkl.Pairs(must, cannot), 10.0),
        (Session(client), Session(None)),
    )

    def planned(session, limit=None):
        return plan.SharedPlan.of(problem, PairwiseSettings(memory_limit=limit), session)

    assert planned(sessions[0]) is None
    monkeypatch.setattr(plan, "machine_memory", lambda: 4 * 8 * N * plan._columns(16, 0))
    assert planned(sessions[1]) is None and planned(sessions[0]).rank == 64
    monkeypatch.setattr(terms, "LEAST_ROWS", 64)
    cut, entries = (0, N // 2, N), (problem.laplacian.nnz, problem.targets.nnz)
    met = max(plan.sizes_of(problem.laplacian, problem.targets, cut, k)[1] for k in (0, 1))
    base, needed = (
        plan.PROCESS_BASE + plan.WORKER_EXTRA,
        plan.owner_bytes((N // 2, met, *entries), 16),
    )
    assert 0 < met <= N // 2 and needed < plan.owner_bytes((N, 0, *entries), 16)
    monkeypatch.setattr(plan, "WORTHWHILE", 0)
    assert planned(sessions[0], base + needed).rank in (16, 32) and planned(sessions[0], base).rank == 0


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore:.*pairs look wrong:dkl.errors.DataWarning")
def test_folds_of_pairs_are_learned_there_too(client, monkeypatch):
    """And the pairs that look wrong are those of one process."""
    monkeypatch.setattr(terms, "LEAST_ROWS", 64)
    made, real = [], choice.solved_on_workers
    monkeypatch.setattr(choice, "solved_on_workers", lambda *given: made.append(given[1]) or real(*given))
    here, there = (
        learned(which, gamma="cv", cv=2, n_gammas=2, wrong_pairs="find", rank="auto") for which in (None, client)
    )
    assert len(made) == 4 and all(start.shape[1] == 1 for start in made[:2])
    same(here, there)
    assert np.array_equal(here.cv_.scores, there.cv_.scores) and here.gamma_ == there.gamma_
    assert np.array_equal(here.result_.wrong_pairs.probability, there.result_.wrong_pairs.probability)


PLACES = ["before any state", "after one", "where no disk takes one"]


@pytest.mark.parametrize("place", but_for(["before any state", "where no disk takes one"], PLACES))
def test_a_lost_part_costs_what_came_after_the_state_that_was_kept(client, shared, monkeypatch, caplog, place):
    """In a temporary folder, as there is no run."""
    how = {"checkpoint_every": 100 if place == "before any state" else 4, "callbacks": [lambda row: None]}
    here, real, asked = learned(), JointWork.advance, []

    def losing(work, *given):
        asked.append(work)
        if len(asked) == 11:  # of an iteration each, as there is a callback that minds
            client.run(slab_worker.forget, work.key, workers=[work.addresses[1]])
        return real(work, *given)

    def full(store, state):
        raise DiskError("no space left", where="disk")

    monkeypatch.setattr(JointWork, "advance", losing)
    if place == "where no disk takes one":
        monkeypatch.setattr(SearchStore, "write", full)
    with caplog.at_level(logging.WARNING, "dkl"):
        there = learned(client, **how)
    assert shared == [1] and there.result_.restarts == 1 and len({id(work) for work in asked}) == 2
    assert caplog.text.count(f"continues from {'iteration 8' if place == 'after one' else 'its start'}") == 1
    assert caplog.text.count("no space left") == (place == "where no disk takes one")
    same(here, there)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_a_callback_ends_it_where_it_ends_one_process(client, shared):
    def seen_by(client):
        rows = []
        found = learned(
            client, target_gap=1e-6, callbacks=[lambda row: rows.append(row["iteration"]) or len(rows) == 17]
        )
        return found, rows

    (here, one), (there, other) = seen_by(None), seen_by(client)
    assert (
        one == other == list(range(1, 18))
        and here.result_.outcome.value == there.result_.outcome.value == "stopped_by_callback"
    )
    same(here, there)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:sigma=.*cuts:dkl.errors.DataWarning")
def test_a_limit_of_time_is_told_as_one(client, shared, monkeypatch):
    X, must, cannot = hard_rows(N, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", session=Session(None, threads=1), warns_of_cuts=False
    )
    problem = fit.make_problem(graph.laplacian, dkl.Pairs(must, cannot), 10.0)
    monkeypatch.setattr(plan, "WORTHWHILE", 0)
    settings = PairwiseSettings(solver="factored", rank=8, target_gap=0.05)
    found = fit.fit_problem(problem, settings, Session(client), watch=Watch(time_limit=1e-9))
    assert shared == [0] and found.result.outcome.value == "time_limit" and np.isfinite(found.factor).all()


def test_an_error_on_workers_is_raised_here(client, shared, monkeypatch):
    """And the workers are free again."""
    held = client.run(owners_held)
    with pytest.raises(InputError, match="too far from"):
        learned(client, gamma=1e300)
    monkeypatch.setattr(stages, "LowRankRequest", lambda **how: (_ for _ in ()).throw(RuntimeError("made up")))
    with pytest.raises(RuntimeError, match="made up"):
        learned(client)
    assert client.run(owners_held) == held


def test_workers_without_room_are_refused(client, shared, monkeypatch):
    """By the plan, or when the rows are sent to fewer workers than it was made for."""
    monkeypatch.setattr(plan, "owner_bytes", lambda sizes, width: 10**12)
    with pytest.raises(MemoryBudgetError, match=r"a worker's rows, and those they meet takes 1 TB .* solver='admm'"):
        learned(client, memory_limit="2 GB")
    monkeypatch.setattr(plan.SharedPlan, "largest_part", lambda *given: 0)
    with pytest.raises(MemoryBudgetError, match=r"^tcp://.*the rows of 2 workers, .* at least 1 TB"):
        learned(client, memory_limit="2 GB")


@pytest.mark.exhaustive
def test_a_worker_is_killed_and_the_others_learn_the_same(shared, tmp_path, monkeypatch):
    """A process of its own, in the middle of iterations; what is left of the cluster takes all rows."""
    monkeypatch.chdir(tmp_path)
    here, cluster, real, asked = learned(), Cluster("worker"), JointWork.advance, []

    def struck(work, *given):
        asked.append(work)
        if len(asked) == 5:
            assert len(work.addresses) == 2 and strike(family(cluster.workers[1].pid), signal.SIGKILL)
        return real(work, *given)

    monkeypatch.setattr(JointWork, "advance", struck)
    try:
        cluster.start()
        with Client(cluster.address) as client:
            client.wait_for_workers(2)
            there = learned(client, callbacks=[lambda row: None])  # one that minds: an iteration at a time
            assert len(asked[-1].addresses) == 1 and list(client.run(owners_held).values()) == [0]
    finally:
        cluster.stop()
    assert shared == [1]
    same(here, there)
