"""Workers that are killed while they start, or while something is sent to them or read from them: nobody waits for them."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
from dask_processes import wait_until
from distributed import Client, LocalCluster

from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import wait_for_workers
from dkl.blocks.workers import waiting
from dkl.blocks.workers.spmd import Owners
from dkl.blocks.workers.waiting import Ghosts
from dkl.errors import StateLost


@pytest.fixture
def two():
    """A cluster of two workers that a test may kill."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster, direct_to_workers=True, set_as_default=False) as client,
    ):
        yield client


def kill(client, address):
    """The worker's process, and not its nanny."""
    (nanny,) = (one for one in client.cluster.workers.values() if one.worker_address == address)
    os.kill(nanny.pid, signal.SIGKILL)


def test_a_worker_that_its_nanny_does_not_know_is_none(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    nannies = {0: SimpleNamespace(worker_address="a"), 1: SimpleNamespace(worker_address=None)}
    ghosts = Ghosts(SimpleNamespace(cluster=SimpleNamespace(workers=nannies)))
    members = {"a": {"name": 0}, "b": {"name": 1}, "c": {"name": 0}, "joined by itself": {"name": "joined by itself"}}
    assert ghosts.among(members) == set()
    now[0] = 0.9
    assert ghosts.among(members) == set()
    nannies[1].worker_address = "b"  # which it has been told by now
    now[0] = 1.1
    assert ghosts.among(members) == {"c"}
    del members["c"]
    assert ghosts.among(members) == set() and not ghosts.since
    assert Ghosts(SimpleNamespace()).among(members) == set()


def test_who_is_gone_is_not_waited_for_while_something_is_sent(two):
    session = Session(two)
    first, second = session.workers()
    kill(two, first)
    began = time.monotonic()
    with pytest.raises(StateLost):
        for _ in range(1000):
            session.send(bytes(1_000_000), [first])
    assert time.monotonic() - began < 10  # Dask tries to connect for 30 s
    wait_for_workers(session, 2, 60.0)
    assert second in session.workers()


def test_results_that_were_lost_with_a_worker_are_not_waited_for(two):
    session = Session(two)
    owners = Owners(session, "run", session.workers())
    done = [owners._submit(k, bytes, 10) for k in range(2)]
    wait_until(lambda: all(future.done() for future in done))
    kill(two, owners.addresses[1])
    wait_until(lambda: owners.addresses[1] not in session.members())
    with pytest.raises(StateLost):
        owners._wait(done)


def test_nannies_that_have_ended_are_replaced(two):
    session = Session(two)
    nanny = two.cluster.workers[0]
    two.cluster.sync(nanny.close)
    wait_for_workers(session, 2, 60.0)
    assert len(session.workers()) == 2 and nanny not in two.cluster.workers.values()


@pytest.mark.parametrize(("size", "pinned", "copies"), [(10, False, 1), (2_000_000, False, 2), (2_000_000, True, 1)])
def test_little_is_broadcast(two, size, pinned, copies):
    sent = Session(two).send(bytes(size), pinned=pinned)
    assert len(two.who_has(sent)[sent.key]) == copies
