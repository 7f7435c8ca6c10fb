"""Eigenvectors with their rows on workers: the bytes of this process alone, also where a worker has lost its rows."""

import logging
import signal

import numpy as np
import pytest
from distributed import Client, LocalCluster
from on_workers import give_up_after, owners_held
from scipy import sparse
from separate_cluster import Cluster, family, strike, wait

from dkl.blocks.graph.distributed_products import Room, SharedPasses, passes_on
from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.errors import InputError, MemoryBudgetError
from dkl.linalg.eigen import laplacian_eigenmaps
from dkl.linalg.eigen.laplacian_eigenmaps import smoothest
from dkl.linalg.eigen.lowest_subspace import PassesHere


@pytest.fixture
def laplacian(rng):
    i, j = np.arange(900), rng.integers(0, 900, 900)
    ring = sparse.coo_array((np.ones(1800), (np.tile(i, 2), np.concatenate([(i + 1) % 900, j]))), shape=(900, 900))
    W = ring + ring.T
    return sparse.csr_array(sparse.diags_array(W.sum(axis=0)) - W)


def test_the_basis_is_that_of_this_process(laplacian, client, monkeypatch):
    monkeypatch.setattr(laplacian_eigenmaps, "FILL", 0)
    session, made, held = Session(client), [], client.run(owners_held)

    def make(matrix, k):
        made.append(passes_on(session, least=0)(matrix, k))
        return made[-1]

    there, here = smoothest(laplacian, 5, passes=make), smoothest(laplacian, 5)
    assert there.method == here.method == "filter" and isinstance(made[0], SharedPasses)
    assert there.vectors.tobytes() == here.vectors.tobytes() and there.values.tobytes() == here.values.tobytes()
    assert there.residual == here.residual <= 1e-8
    # Workers keep nothing of it.
    assert client.run(owners_held) == held
    assert isinstance(passes_on(session)(laplacian, 15), PassesHere)  # too small to be worth it


def test_lost_rows_are_sent_again_and_one_pass_is_made_again(laplacian, client, caplog):
    here, there = PassesHere(laplacian, 12), SharedPasses(laplacian, 12, Session(client))
    for step in range(4):
        if step == 2:
            first = there.owners.addresses[0]
            client.run(slab_worker.forget, there.owners.key, workers=[first])
        with caplog.at_level(logging.WARNING, "dkl"):
            one, other = here.advance(4), there.advance(4)
        assert one.values.tobytes() == other.values.tobytes()
    assert caplog.text.count("a pass for eigenvectors is made again") == 1
    assert there.vectors(12).tobytes() == here.vectors(12).tobytes()
    there.close()
    there.close()


def test_a_worker_is_killed_in_a_pass_which_alone_is_made_again(laplacian, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cluster, here, passes = Cluster("worker"), PassesHere(laplacian, 12), []
    try:
        cluster.start()
        with Client(cluster.address) as client:
            client.wait_for_workers(2)
            there = SharedPasses(laplacian, 12, Session(client))
            for step in range(4):
                if step == 2:
                    strike_when_asked(there.owners, cluster.workers[1].pid, signal.SIGKILL)
                one, other = here.advance(4), there.advance(4)
                passes.append(there.owners)
                assert one.values.tobytes() == other.values.tobytes()
            assert there.vectors(12).tobytes() == here.vectors(12).tobytes()
            assert [len(owners.addresses) for owners in passes] == [2, 2, 1, 1]
            there.close()
            assert list(client.run(owners_held).values()) == [0]
    finally:
        cluster.stop()


@pytest.mark.exhaustive
def test_a_worker_is_stopped_in_a_pass_which_alone_is_made_again(laplacian, tmp_path, monkeypatch, caplog):
    """It stays one of the scheduler's for five minutes, takes what is sent and answers nothing; once it goes on it is used again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 6.0)
    cluster, here, passes = Cluster("worker"), PassesHere(laplacian, 12), []
    try:
        cluster.start()
        with Client(cluster.address) as client:
            client.wait_for_workers(2)
            client.run(give_up_after, 6.0)
            session = Session(client)
            there = SharedPasses(laplacian, 12, session)
            for step in range(4):
                if step == 2:
                    strike_when_asked(there.owners, cluster.workers[1].pid, signal.SIGSTOP)
                with caplog.at_level(logging.WARNING, "dkl"):
                    one, other = here.advance(4), there.advance(4)
                passes.append(there.owners)
                assert one.values.tobytes() == other.values.tobytes()
            assert there.vectors(12).tobytes() == here.vectors(12).tobytes()
            assert [len(owners.addresses) for owners in passes] == [2, 2, 1, 1]
            assert passes[2] is passes[3] and "a pass for eigenvectors is made again" in caplog.text
            there.close()
            strike(family(cluster.workers[1].pid), signal.SIGCONT)
            wait(lambda: len(there.silence.answering(session)) == 2)
            wait(lambda: list(client.run(owners_held).values()) == [0, 0])
    finally:
        cluster.stop()


def strike_when_asked(owners, pid, number):
    """A worker that dies or is stopped as soon as the next pass is under way."""
    real = owners._all

    def asked(*given):
        futures = real(*given)
        strike(family(pid), number)
        return futures

    owners._all = asked


def test_rows_are_where_there_is_room(laplacian, client):
    session, n, k = Session(client), 900, 12
    here = laplacian_eigenmaps.filter_bytes(n, k, laplacian.nnz)
    most = laplacian_eigenmaps.most_owner_bytes(n, k, laplacian.nnz, 2)

    def made(room, least):
        return type(passes_on(session, room=room, least=least)(laplacian, k))

    assert made(Room(here, most), here + 1) is PassesHere and made(Room(here, most), here) is SharedPasses
    assert made(Room(here - 1, most), here + 1) is SharedPasses
    assert made(Room(here, most - 1), 0) is PassesHere  # workers may have no room
    held = client.run(owners_held)
    with pytest.raises(
        MemoryBudgetError, match=r"the rows of 2 workers, for eigenvectors, do not fit.*give workers more memory"
    ):
        passes_on(session, room=Room(here - 1, 10_000))(laplacian, k).advance(4)
    assert client.run(owners_held) == held


def test_workers_that_share_a_process_are_refused(laplacian):
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster) as client,
        pytest.raises(InputError, match="several workers in one process"),
    ):
        SharedPasses(laplacian, 12, Session(client)).advance(4)
