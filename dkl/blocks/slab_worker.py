"""What runs on a worker: its owner, kept in the process between tasks, and the tasks that use it.

State lives in the worker's memory and not in Dask's: a future's value can be spilled, copied or recomputed, and this must
not. A worker that has lost its owner says StateLost, and the run goes back to its last commit. An owner that no task has
used for `LEASE` seconds is dropped, so that a driver that died leaves no memory taken.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dkl.blocks.slab_owner import Carry, PhaseSums, SlabOwner, SlabProgram

LEASE = 900.0

_owners: dict[str, SlabOwner] = {}
_used: dict[str, float] = {}
_lock = threading.Lock()


class StateLost(RuntimeError):
    """Slabs went with a worker; the state must be rebuilt from the last commit."""


def is_cluster_failure(error: BaseException) -> bool:
    """Whether an error means that a worker or the scheduler went, rather than that our code failed."""
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    cancelled = (FutureCancelledError, FuturesCancelledError)
    kinds = (StateLost, *cancelled, CommClosedError, KilledWorker, NoValidWorkerError, ConnectionError, TimeoutError)
    return isinstance(error, kinds)


def make_owner(key: str, program: SlabProgram, n_slabs: int, groups: range, scratch: str | None) -> None:
    """Take the slabs of `groups`; threads as many as the worker has."""
    from distributed import get_worker

    from dkl.blocks.placement import make_storage
    from dkl.linalg.tree_sum import group_bounds

    bounds = group_bounds(n_slabs)
    slabs = range(bounds[groups.start][0], bounds[groups.stop - 1][1])
    storage = make_storage(program, slabs, scratch)
    owner = SlabOwner(program, n_slabs, groups, storage, get_worker().state.nthreads)
    with _lock:
        _owners[key], _used[key] = owner, time.monotonic()
    _drop_unused()


def _drop_unused() -> None:
    with _lock:
        for key in [key for key, at in _used.items() if time.monotonic() - at > LEASE]:
            _owners.pop(key).close()
            del _used[key]
        again = bool(_owners)
    if again:
        timer = threading.Timer(LEASE / 4, _drop_unused)
        timer.daemon = True
        timer.start()


def _owner(key: str) -> SlabOwner:
    with _lock:
        if key not in _owners:
            raise StateLost(f"this worker no longer holds the slabs of run {key}")
        _used[key] = time.monotonic()
        return _owners[key]


def run_phase(key: str, phase: str, parts: list[PhaseSums]) -> PhaseSums:
    return _owner(key).run(phase, parts)


def conclude(key: str, parts: list[PhaseSums]) -> Carry:
    return dict(_owner(key).conclude(parts))


def ready(key: str, parts: list[PhaseSums]) -> None:
    """Nothing: its completion says that the phase before it is done everywhere."""


def fill(key: str, make: Any, carry: Carry) -> None:
    owner = _owner(key)
    owner.fill(make)
    owner.begin(carry)


def restore(key: str, folder: str, files: dict[str, tuple[int, int]], carry: Carry) -> None:
    _owner(key).read_generation(Path(folder), files, carry)


def write_generation(key: str, folder: str) -> list[tuple[str, int, int]]:
    return _owner(key).write_generation(Path(folder))


def read(key: str, name: str) -> list[NDArray]:
    owner = _owner(key)
    return [owner.read(name, slab) for slab in owner.slabs]


def forget(key: str) -> None:
    with _lock:
        owner = _owners.pop(key, None)
        _used.pop(key, None)
    if owner is not None:
        owner.close()
