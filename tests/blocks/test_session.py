"""What a session knows of the cluster that it runs on."""

import time
from typing import Any

import dask
import pytest

from dkl.blocks.session import Session
from dkl.errors import InputError, WorkersLostError


def test_the_clients_heartbeat_does_not_hide_the_workers(cluster: Any) -> None:
    from distributed import Client

    with dask.config.set({"distributed.client.scheduler-info-interval": "1ms"}), Client(cluster) as client:
        session = Session(client)
        expected = session.workers()
        assert len(expected) == 2
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert session.workers() == expected


def test_a_scheduler_that_went_is_told(cluster: Any) -> None:
    from distributed import Client

    with Client(cluster) as client:
        session = Session(client)
    with pytest.raises(WorkersLostError, match="the scheduler is gone"):
        session.workers()


def test_an_asynchronous_client_is_refused():
    class Asynchronous:
        asynchronous = True

        def submit(self):
            """As a client has it."""

        scheduler_info = submit

    with pytest.raises(InputError, match="client: an asynchronous client; got .*asynchronous=True"):
        Session.find(Asynchronous())


def test_more_threads_than_help_are_refused():
    assert Session(None, threads=64).threads == 64
    with pytest.raises(InputError, match="n_jobs: too many threads; got 100000 on .* leave it out"):
        Session(None, threads=100_000)
