"""Code that runs on a worker: its owner, kept in the process between tasks, and the tasks that use it.

State lives in the worker's memory and not in Dask's: a future's value can be spilled, copied or recomputed, and this must
not. A worker that has lost its owner raises StateLost, and the run restarts from its last commit. An owner that no task has
used for `LEASE` seconds is dropped, so that a driver that died leaves no memory taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.slabs.slab_owner import SlabOwner
from dkl.blocks.slabs.slab_program import Carry, SlabProgram, make_storage
from dkl.blocks.slabs.sums_exchange import AmongOwners
from dkl.blocks.workers.exchange import Exchange, close_inbox
from dkl.errors import StateLost
from dkl.linalg.rows.tree_sum import group_bounds

if TYPE_CHECKING:
    from dkl.stores.seals import Json

LEASE = 900.0
"""Seconds that an unused owner is kept, as long as owners wait for each other (exchange.TAKE_SECONDS)."""

_owners: Json = {}
_used: dict[str, float] = {}
_lock = threading.Lock()


def is_cluster_failure(error: BaseException) -> bool:
    """Return whether `error` means that a worker or the scheduler is lost, not that our code failed."""
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    # All that Dask and the sockets raise when the other end is gone, gathered in one place.
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
    ahead: int,
) -> None:
    """Task: make the owner of the groups in shares[index] under the name `key`, with as many threads as the worker has.

    scratch: the folder of a run out of core, or None; ahead: slabs of it that are on their way while others are computed. The slabs
    are empty until `fill` or `restore`.
    """
    from distributed import get_worker

    # Groups are contiguous ranges of slabs, and shares of groups: so are the slabs of an owner.
    bounds, groups = group_bounds(n_slabs), shares[index]
    slabs = range(bounds[groups.start][0], bounds[groups.stop - 1][1])
    storage, among = make_storage(program, slabs, scratch, ahead), AmongOwners(Exchange(key, index, addresses))
    keep(key, SlabOwner(program, n_slabs, groups, storage, get_worker().state.nthreads, among))


def keep(key: str, owner: Any) -> None:
    """Hold `owner`, which has a method `close`, under the name `key` until `forget`, or until its lease runs out."""
    with _lock:
        _owners[key], _used[key] = owner, time.monotonic()
    _drop_unused()


def _drop_unused() -> None:
    """Forget the owners whose lease has run out; look again every LEASE / 4 while there are others."""
    with _lock:
        # Looked for when owners come and by a timer, as no task may come to a driver that died.
        expired = [key for key, at in _used.items() if time.monotonic() - at > LEASE]
        again = len(_owners) > len(expired)
    for key in expired:
        forget(key)
    if again:
        timer = threading.Timer(LEASE / 4, _drop_unused)
        timer.daemon = True  # a worker that shuts down must not wait for it
        timer.start()


@contextmanager
def using(key: str) -> Iterator[Any]:
    """Yield the owner of run `key`, whose lease does not run out meanwhile. Raises StateLost without one."""
    with _lock:
        if key not in _owners:
            raise StateLost(f"this worker no longer holds the slabs of run {key}")
        # While a task uses it an owner has no lease, however long the task takes.
        owner, _used[key] = _owners[key], float("inf")
    try:
        yield owner
    finally:
        with _lock:
            if key in _used:
                _used[key] = time.monotonic()


def leave_the_slot() -> None:
    """Let the worker run other tasks meanwhile: of two runs, each could otherwise hold the slots that the other waits for."""
    from distributed import secede

    secede()


def open_state(key: str) -> None:
    """Task: run the opening phase, together with the other owners."""
    with using(key) as owner:
        leave_the_slot()
        owner.open()


def iterate(key: str, steps: int) -> list[Carry]:
    """Task: run up to `steps` iterations, together with the other owners; the carry after each."""
    with using(key) as owner:
        # The slot is given back: owners wait for each other, and must not block the worker meanwhile.
        leave_the_slot()
        carries: list[Carry] = owner.iterate(steps)
        return carries


def sums(key: str) -> NDArray[np.float64]:
    """Task: the sums of the last phase over all owners."""
    with using(key) as owner:
        return np.asarray(owner.sums())


def fill(key: str, make: object, carry: Carry) -> None:
    """Task: set the committed arrays of these slabs by make(name, slab, columns, out), and the carry."""
    with using(key) as owner:
        owner.fill(make)
        owner.begin(carry)


def restore(key: str, folder: str, files: dict[str, tuple[int, int]], carry: Carry) -> None:
    """Task: read these slabs of a commit. `files` is its manifest: (bytes, crc32c) by file. Raises StoreError."""
    with using(key) as owner:
        owner.read_generation(Path(folder), files, carry)


def write_generation(key: str, folder: str) -> list[tuple[str, int, int]]:
    """Task: write the committed arrays of these slabs into `folder`; (file, bytes, crc32c) of each chunk."""
    with using(key) as owner:
        written: list[tuple[str, int, int]] = owner.write_generation(Path(folder))
        return written


def read(key: str, name: str) -> list[NDArray]:
    """Task: copies of the array `name` on these slabs, in their order."""
    with using(key) as owner:
        return [owner.read(name, slab) for slab in owner.slabs]


def forget(key: str) -> None:
    """Drop the slabs of run `key`; a task that waits for other owners ends with StateLost. Harmless if repeated."""
    with _lock:
        owner = _owners.pop(key, None)
        _used.pop(key, None)
    # Before the owner's pool ends: a thread of it may be waiting for another owner's part.
    close_inbox(key)
    if owner is not None:
        owner.close()
