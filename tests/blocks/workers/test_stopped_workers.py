"""What is sent to a worker whose process stands still: it is left out once that is known, and is used again when it goes on."""

import os
import signal

import pytest
import scipy.sparse as sp
from distributed import Client
from on_workers import describe
from separate_cluster import Cluster, wait

from dkl.blocks.graph.distributed_products import WorkerMatrix
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.blocks.workers import waiting


def product(matrix, x, session):
    return WorkerMatrix(matrix, session).product(x) if session.is_distributed else matrix @ x


@pytest.mark.exhaustive
def test_rows_operators_and_searches_leave_a_stopped_worker_out(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 6.0)
    X = rng.standard_normal((3000, 60))
    matrix, x = sp.random_array((3000, 3000), density=0.1, rng=rng, format="csr"), X[:, 0].copy()
    works = {
        "rows": lambda session: RowBlocks(X, session).map(describe),
        "an operator": lambda session: product(matrix, x, session).tolist(),
        "a search": lambda session: build_graph(X, n_neighbors=5, session=session).laplacian.data.tolist(),
    }
    cluster = Cluster("worker")
    try:
        cluster.start()
        with Client(cluster.address) as client:
            client.wait_for_workers(2)
            for name, work in works.items():
                session = Session(client)
                first = session.workers()[0]  # of few rows all are sent there
                pid = client.run(os.getpid, workers=[first])[first]
                os.kill(pid, signal.SIGSTOP)
                assert work(session) == work(Session(threads=1)), name
                # It is still one of the scheduler's.
                assert first not in session.workers() and first in Session(client).workers(), name
                os.kill(pid, signal.SIGCONT)
                wait(lambda held=session: len(held.workers()) == 2)
                assert work(session) == work(Session(threads=1)), name
    finally:
        cluster.stop()
