"""What runs on a worker: its owner, kept in the process between tasks, and the tasks that use it.

State lives in the worker's memory and not in Dask's: a future's value can be spilled, copied or recomputed, and this must
not. A worker that has lost its owner says StateLost, and the run goes back to its last commit. An owner that no task has
used for `LEASE` seconds is dropped, so that a driver that died leaves no memory taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.exchange import Exchange, StateLost, close_inbox
from dkl.blocks.slab_owner import Carry, SlabOwner, SlabProgram

LEASE = 900.0

_owners: dict[str, SlabOwner] = {}
_used: dict[str, float] = {}
_lock = threading.Lock()


def is_cluster_failure(error: BaseException) -> bool:
    """Whether an error means that a worker or the scheduler went, rather than that our code failed."""
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    cancelled = (FutureCancelledError, FuturesCancelledError)
    kinds = (StateLost, *cancelled, CommClosedError, KilledWorker, NoValidWorkerError, ConnectionError, TimeoutError)
    return isinstance(error, kinds)


def make_owner(
    key: str,
    program: SlabProgram,
    n_slabs: int,
    shares: list[range],
    index: int,
    addresses: list[str],
    scratch: str | None,
) -> None:
    """Take the slabs of the groups in shares[index]; threads as many as the worker has."""
    from distributed import get_worker

    from dkl.blocks.placement import make_storage
    from dkl.linalg.tree_sum import group_bounds

    bounds, groups = group_bounds(n_slabs), shares[index]
    slabs = range(bounds[groups.start][0], bounds[groups.stop - 1][1])
    storage, exchange = make_storage(program, slabs, scratch), Exchange(key, index, addresses)
    owner = SlabOwner(program, n_slabs, groups, storage, get_worker().state.nthreads, exchange)
    with _lock:
        _owners[key], _used[key] = owner, time.monotonic()
    _drop_unused()


def _drop_unused() -> None:
    with _lock:
        expired = [key for key, at in _used.items() if time.monotonic() - at > LEASE]
        again = len(_owners) > len(expired)
    for key in expired:
        forget(key)
    if again:
        timer = threading.Timer(LEASE / 4, _drop_unused)
        timer.daemon = True
        timer.start()


@contextmanager
def _using(key: str) -> Iterator[SlabOwner]:
    """The owner, whose lease does not run out meanwhile."""
    with _lock:
        if key not in _owners:
            raise StateLost(f"this worker no longer holds the slabs of run {key}")
        owner, _used[key] = _owners[key], float("inf")
    try:
        yield owner
    finally:
        with _lock:
            if key in _used:
                _used[key] = time.monotonic()


def _leave_the_slot() -> None:
    """Owners wait for each other: were they to hold their workers' slots, two runs could wait for each other for ever."""
    from distributed import secede

    secede()


def open_state(key: str) -> None:
    with _using(key) as owner:
        _leave_the_slot()
        owner.open()


def iterate(key: str, steps: int) -> list[Carry]:
    with _using(key) as owner:
        _leave_the_slot()
        return owner.iterate(steps)


def sums(key: str) -> NDArray[np.float64]:
    with _using(key) as owner:
        return owner.sums()


def fill(key: str, make: Any, carry: Carry) -> None:
    with _using(key) as owner:
        owner.fill(make)
        owner.begin(carry)


def restore(key: str, folder: str, files: dict[str, tuple[int, int]], carry: Carry) -> None:
    with _using(key) as owner:
        owner.read_generation(Path(folder), files, carry)


def write_generation(key: str, folder: str) -> list[tuple[str, int, int]]:
    with _using(key) as owner:
        return owner.write_generation(Path(folder))


def read(key: str, name: str) -> list[NDArray]:
    with _using(key) as owner:
        return [owner.read(name, slab) for slab in owner.slabs]


def forget(key: str) -> None:
    """Let go of the slabs; a task that waits for other owners ends."""
    with _lock:
        owner = _owners.pop(key, None)
        _used.pop(key, None)
    close_inbox(key)
    if owner is not None:
        owner.close()
