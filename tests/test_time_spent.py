"""Counters of what a process' seconds go into."""

import threading
import time
from typing import Any

import on_workers
import pytest

from dkl.blocks.session import Session
from dkl.resources import DISK, EXCHANGE, spending, spent
from dkl.runs.report import Spending
from dkl.solvers.watch import Watch

WAITED = 0.02


def waited() -> None:
    """The disk is slow, and asks another worker, which is slow too."""
    with spending(DISK):
        time.sleep(WAITED)
        with spending(EXCHANGE):
            time.sleep(WAITED)


def test_the_outermost_counts_in_every_thread() -> None:
    before = spent()
    threads = [threading.Thread(target=waited) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after = spent()
    assert after[DISK] - before[DISK] >= 3 * 2 * WAITED
    assert after[EXCHANGE] == before[EXCHANGE]


def test_processor_seconds_are_counted_once() -> None:
    before, used = spent(), time.process_time()
    with spending(DISK), pytest.raises(ZeroDivisionError):
        while time.process_time() < used + WAITED:
            sum(range(1000))
        1 / 0  # noqa: B018
    with spending(DISK):  # it is counted again after an error
        pass
    grown = {kind: value - before[kind] for kind, value in spent().items()}
    assert grown["cpu"] < WAITED <= time.process_time() - used
    assert grown[DISK] >= WAITED


def test_parts_add_up_to_the_seconds_of_a_thread() -> None:
    spending_, watch = Spending(Session(None, threads=2)), Watch()
    waited()
    split = spending_.split(watch.seconds)
    assert split is not None and split["slots"] == 2 and split["communication"] is None
    assert split["disk"] >= WAITED  # of both threads the mean
    assert split["compute"] + split["disk"] + split["other"] == pytest.approx(split["seconds"], rel=1e-6)


def test_parts_add_up_where_more_threads_work_than_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """BLAS and numba start threads of their own: 100 processor seconds and 50 of the disk in far less time."""
    spending_, watch = Spending(Session(None, threads=1)), Watch()
    for busy in ({"cpu": 100.0}, {"cpu": 100.0, DISK: 50.0}):
        monkeypatch.setattr(
            "dkl.runs.report.spent", lambda busy=busy: spent() | {k: spent()[k] + v for k, v in busy.items()}
        )
        split = spending_.split(watch.seconds)
        assert split is not None and split["other"] >= 0 and split["compute"] <= split["seconds"]
        assert split["compute"] + split["disk"] + split["other"] == pytest.approx(split["seconds"], rel=1e-9)


def test_workers_are_asked(client: Any) -> None:
    spending_, watch = Spending(Session(client)), Watch()
    client.submit(on_workers.wait_for_the_disk, 2 * WAITED, pure=False).result()
    split = spending_.split(watch.seconds)
    assert split is not None and split["slots"] == 2 and split["disk"] >= WAITED
    assert split["communication"] >= 0 and split["client"] > 0
