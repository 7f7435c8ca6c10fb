"""Every learner that takes a client, on a cluster that begins without a worker: one that adapts to its load, and one that has none."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from door_cases import FRESH, LEARNERS, X, Y, answer
from repeats import but_for

from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.errors import WorkersLostError

WITH_CLIENT = [name for name, one in LEARNERS.items() if "client" in one.make().get_params()]


SOME = ("PairwiseKernelLearner", "LogDetKernelLearner", "SpectralClustering")


@contextmanager
def local_cluster(processes: bool) -> Iterator[Any]:
    """A cluster without workers."""
    with LocalCluster(
        n_workers=0,
        threads_per_worker=1,
        processes=processes,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        yield cluster


@contextmanager
def adapting(cluster: Any) -> Iterator[Any]:
    """A client of a cluster that has up to two workers while there is work, and soon none where there is none."""
    with Client(cluster, set_as_default=False) as client:
        rule = cluster.adapt(minimum=0, maximum=2, interval="100 ms")
        yield client
        rule.stop()
        cluster.scale(0)
        cluster.sync(cluster._correct_state)  # one that was asked for before may be starting
        while cluster.scheduler.workers:  # one that was asked for before may come after
            cluster.scale(0)
            sleep(0.05)


@pytest.fixture(scope="module")
def nobody() -> Iterator[Any]:
    """A cluster whose workers, if any, are in this process, whose memory is not theirs to be paused by."""
    with dask.config.set({"distributed.worker.memory.pause": False}), local_cluster(processes=False) as cluster:
        yield cluster


def fitted(name: str, **given: Any) -> Any:
    learner = LEARNERS[name].make(**given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return learner.fit(X, *([Y] if LEARNERS[name].takes else []))


@pytest.mark.parametrize("name", but_for(set(WITH_CLIENT) - set(SOME), WITH_CLIENT))
def test_the_first_workers_are_called_for(name: str, nobody: Any) -> None:
    """By work that would wait for them; the answer is that of a fit without a cluster."""
    with adapting(nobody) as client:
        compare(name, client)


@pytest.mark.exhaustive
def test_the_first_processes_are_called_for() -> None:
    with local_cluster(processes=True) as cluster, adapting(cluster) as client:
        for name in SOME:
            compare(name, client)
            while cluster.scheduler.workers:
                sleep(0.05)


def compare(name: str, client: Any) -> None:
    learner = fitted(name, client=client)
    assert client.cluster._adaptive.minimum == 0  # no longer held than the fit takes
    there = answer(learner, FRESH)
    np.testing.assert_allclose(there, answer(fitted(name), FRESH), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", WITH_CLIENT)
def test_that_none_comes_is_said_after_a_while(name: str, nobody: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "GIVE_UP_SECONDS", 0.2)
    with (
        Client(nobody, set_as_default=False) as client,
        pytest.raises(WorkersLostError, match="the cluster has no workers; got none for 0.2 s; start workers"),
    ):
        fitted(name, client=client)


def test_workers_stay_for_as_long_as_a_session_and_no_longer(nobody: Any) -> None:
    with adapting(nobody) as client:
        rule = nobody._adaptive
        first, second = Session(client), Session(client)
        seen = waiting.workers(first)
        sleep(1)  # ten looks of the rule, which retires after three what has no task
        assert set(seen) <= set(first.workers()) and rule.minimum >= 1
        second.workers()
        del first
        assert rule.minimum >= 1
        del second
        assert rule.minimum == 0
        while nobody.scheduler.workers:
            sleep(0.05)
