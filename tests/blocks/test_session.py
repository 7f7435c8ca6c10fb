"""What a session knows of the cluster that it runs on."""

import time
from typing import Any

import dask
import joblib
import numpy as np
import pytest
from on_workers import labels_in_a_task
from patience import PATIENCE
from repeats import but_for
from sklearn.model_selection import cross_val_score

from dkl import KernelKMeans, LowRankKernelRegressor
from dkl.blocks import session as session_module
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


@pytest.mark.parametrize("given", but_for([True], [False, True]))
def test_a_fit_in_a_task_does_not_wait_for_the_thread_that_it_holds(given: bool, client: Any, rng: Any) -> None:
    X = rng.standard_normal((300, 4))
    wanted = KernelKMeans(3, random_state=0, client=client).fit(X).labels_
    futures = [client.submit(labels_in_a_task, X, 3, given, pure=False) for _ in range(2)]  # all threads
    for future in futures:
        assert np.array_equal(future.result(timeout=PATIENCE), wanted)
    assert np.array_equal(KernelKMeans(3, random_state=0, client=client).fit(X).labels_, wanted)


def test_cross_validation_by_joblib_on_dask(client: Any, rng: Any) -> None:
    X = rng.standard_normal((120, 4))
    learner = LowRankKernelRegressor(n_columns=10, nu=0.5, random_state=0)
    wanted = cross_val_score(learner, X, X[:, 0], cv=3)
    with joblib.parallel_config(backend="dask"):
        assert np.array_equal(cross_val_score(learner, X, X[:, 0], cv=3), wanted)


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


def test_minus_one_is_all_processors(monkeypatch):
    monkeypatch.setattr(session_module, "n_cpus", lambda: 5)
    assert Session(None, threads=-1).threads == Session(None).threads == 5
    monkeypatch.setattr(session_module, "_threads_of_task", lambda: 2)
    assert Session.find(None, threads=-1).threads == 2
