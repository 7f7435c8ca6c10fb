"""Clusters without workers: called for where the cluster adapts to its load, given up in time where none come."""

import gc
import logging
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, Status
from numpy.testing import assert_allclose
from scipy import sparse

from dkl import LowRankKernelRegressor, PairwiseKernelLearner
from dkl.blocks.graph.distributed_products import WorkerMatrix
from dkl.blocks.memory_plan import Place
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import Workspace, wait_for_workers
from dkl.blocks.workers import waiting
from dkl.blocks.workers.dense_work import dense_place
from dkl.errors import WorkersLostError
from dkl.runs import backends as cluster


def gram_of(block: Any) -> tuple[Any]:
    return (block.rows.T @ block.rows,)


DOORS: dict[str, Any] = {
    "map": lambda session: session.map(abs, [1]),
    "send": lambda session: session.send(bytes(10)),
    "addresses": waiting.workers,
    "place": Place.of,
    "dense place": lambda session: dense_place(session, 1, None),
    "rows": lambda session: RowBlocks(np.eye(3), session).sum(gram_of),
    "shared matrix": lambda session: WorkerMatrix(sparse.eye_array(9, format="csr"), session).product(np.ones(9)),
}
"""What asks workers of a cluster first."""


@pytest.fixture(scope="module")
def nobody() -> Iterator[Any]:
    """A cluster that has no workers, and would start them in this process, whose memory is not theirs to be paused by."""
    with (
        dask.config.set({"distributed.worker.memory.pause": False}),
        LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            memory_limit=10**9,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def session(nobody: Any) -> Iterator[Session]:
    with Client(nobody, set_as_default=False) as client:
        yield Session(client)


@pytest.fixture
def one_paused(nobody: Any, session: Session, monkeypatch: Any) -> Iterator[Session]:
    """Two workers, the first of which begins no task, as one whose memory is nearly full."""
    monkeypatch.setattr(waiting, "LOOK_AGAIN_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.3)
    nobody.scale(2)
    session.client.wait_for_workers(2)
    pause(session, session.workers()[:1])
    yield session
    nobody.scale(0)
    while session.workers():
        time.sleep(0.01)


def pause(session: Session, addresses: list[str]) -> None:
    def change(dask_worker: Any) -> None:
        dask_worker.status = Status.paused

    session.client.run(change, workers=addresses)
    while any(session.members()[address]["status"] != "paused" for address in addresses):
        time.sleep(0.01)


@pytest.fixture
def adaptive(nobody: Any, session: Session) -> Iterator[Session]:
    """It starts a worker once work waits, and lets it go when there is none."""
    adapting = nobody.adapt(minimum=0, maximum=1, interval="100 ms")
    yield session
    adapting.stop()
    nobody.scale(0)
    nobody.sync(nobody._correct_state)  # one that was asked for before may be starting
    while session.workers():
        time.sleep(0.1)
        nobody.scale(0)


def test_the_limit_is_told_and_kept(session: Session, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.2)
    for call in DOORS.values():
        with (
            caplog.at_level(logging.WARNING, "dkl"),
            pytest.raises(WorkersLostError, match="the cluster has no workers; got none for 0.2 s; start workers"),
        ):
            call(session)
        assert caplog.messages.pop() == "waiting for 1 worker(s) of the cluster, 0.2 s at most"


def test_workers_of_our_own_are_nobody_s_to_start(session: Session, monkeypatch: Any) -> None:
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.1)
    monkeypatch.setattr(waiting, "bring_back", lambda cluster, count: None)  # none comes
    own = Session(session.client, own=True)
    for call in (lambda: waiting.workers(own), lambda: wait_for_workers(own, 2, 0.1)):
        with pytest.raises(WorkersLostError, match="--memory-limit") as caught:
            call()
        assert "start workers" not in str(caught.value)
    with pytest.raises(WorkersLostError, match="start workers") as caught:
        wait_for_workers(session, 2, 0.1)
    assert "--" not in str(caught.value)


def test_a_run_that_lost_all_workers_waits_no_longer(nobody: Any, monkeypatch: Any, caplog: Any) -> None:
    """One limit for whoever waits: with a look at what is under way and the command's end, half a minute."""
    assert waiting.GIVE_UP_SECONDS + waiting.LOOK_AGAIN_SECONDS <= 30
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.1)
    with Client(nobody.scheduler_address, set_as_default=False) as client:
        lost: Any = Workspace(Session(client), SimpleNamespace(processes=2), None)  # type: ignore[arg-type]
        with caplog.at_level(logging.WARNING, "dkl"), pytest.raises(WorkersLostError, match="none came back"):
            lost.bring_back_workers()
        with pytest.raises(WorkersLostError, match="too few workers after 0.1 s"):
            cluster._wait_for_workers(client, 1, "--scheduler", "start workers", waiting.GIVE_UP_SECONDS)
    assert set(caplog.messages) <= {f"waiting for {count} worker(s) of the cluster, 0.1 s at most" for count in (1, 2)}


@pytest.mark.parametrize("door", DOORS)
def test_an_adaptive_cluster_is_called_for_workers(door: str, adaptive: Session) -> None:
    """It may have let all of them go wherever a fit has been busy in its own process."""
    assert not adaptive.workers()
    DOORS[door](adaptive)
    assert len(adaptive.workers()) == 1


def test_rows_are_sent_again_to_workers_that_come(nobody: Any, adaptive: Session, rng: np.random.Generator) -> None:
    X = rng.standard_normal((60, 3))
    rows = RowBlocks(X, adaptive)
    for _ in range(2):
        (gram,) = rows.sum(gram_of)
        assert_allclose(gram, X.T @ X, rtol=1e-12)
        nobody.scale(0)
        while adaptive.workers():
            time.sleep(0.01)


def test_a_plan_is_that_of_the_workers_that_come(adaptive: Session) -> None:
    assert Place.of(adaptive) == Place(1, 1, 10**9, True, "give workers more memory")


def test_workers_are_called_back(adaptive: Session) -> None:
    wait_for_workers(adaptive, 1, 60.0)
    assert len(adaptive.workers()) == 1


def test_a_fit_on_an_adaptive_cluster(adaptive: Session, rng: np.random.Generator) -> None:
    X = rng.standard_normal((60, 3))
    y = np.sin(X).sum(axis=1)
    here, there = (
        LowRankKernelRegressor(n_columns=20, random_state=0, client=client, n_jobs=1).fit(X, y)
        for client in (None, adaptive.client)
    )
    assert there.result_.plan["processes"] == 1
    assert_allclose(there.predict(X), here.predict(X), rtol=1e-6)


def test_paused_workers_are_waited_for_no_longer_than_absent_ones(
    one_paused: Session, rng: np.random.Generator
) -> None:
    X = rng.standard_normal((60, 3))
    assert one_paused.map(abs, [-1, 2]) == [1, 2]  # by the other one
    learner = PairwiseKernelLearner(rank=4, solver="admm", client=one_paused.client)
    first = one_paused.workers()[0]
    with pytest.raises(WorkersLostError, match=f"{first}: .*paused, since their memory is nearly full.*more memory"):
        learner.fit(X, must_link=[[0, 1]], cannot_link=[[0, 2]])  # its columns live on both
    with pytest.raises(WorkersLostError, match=f"{first}: .*paused, since their memory is nearly full"):
        one_paused.send(bytes(10), [first])
    pause(one_paused, one_paused.workers())
    for call in (lambda: one_paused.map(abs, [-1, 2]), lambda: one_paused.send(bytes(10))):
        with pytest.raises(WorkersLostError, match="paused, since their memory is nearly full"):
            call()


class Held:
    """What who waits for futures holds."""


def test_waiting_holds_nothing_of_who_has_waited(client):
    """Dask's errors are held by what they hold: without a collection of garbage all frames on their way would stay."""

    def waited_for() -> weakref.ref:
        held, futures = Held(), [client.submit(time.sleep, 0.3, pure=False)]
        assert not waiting.all_done(client, futures, 0.05)
        assert waiting.all_done(client, futures, 30)
        return weakref.ref(held)

    gc.collect()
    gc.disable()
    try:
        assert waited_for()() is None
    finally:
        gc.enable()
