"""Checks of each worker of a user's cluster, its paths, disk and memory, before a fit starts there.

Workers of our own are this process' children, on this machine: they need no asking.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.errors import DiskError, DklError, InputError, MemoryBudgetError
from dkl.io.paths import AnyPath, as_source
from dkl.resources import format_bytes, machine_memory, memory_group, physical_memory

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

LEAST_FREE = 100_000_000
"""Bytes of a worker's local disk. One that is full holds its worker up, without an error."""
LATE_SECONDS = 5.0
"""Seconds within which new files must be seen on a shared file system."""


@dataclass(frozen=True)
class RequiredPaths:
    """Paths that workers must see as this process does: `files`, with bytes; `folders` to write to.

    token: what `LOCK` in the first folder says while it is ours; "" if it is not checked.
    """

    files: Mapping[str, int]
    folders: Sequence[str] = ()
    token: str = ""


@dataclass(frozen=True)
class WorkerAnswer:
    """Answer of a worker: the first thing that is amiss with a path, and what its machine has."""

    host: str
    amiss: tuple[str, str, str] | None
    local_directory: str
    local_free: int
    memory: int
    shared: Mapping[str, int]
    """Bytes that it shares with others on its host, by what bounds them: the machine, or a control group."""


def check_workers(session: Session, needed: RequiredPaths) -> None:
    """Ask every worker of a cluster that is not our own; the first that lacks something is named.

    InputError for a path that it does not see as this process does, or may not write to; DiskError for a local disk that is
    full; MemoryBudgetError where the workers of a machine may use more memory than it has.
    """
    if not session.is_distributed or session.own:
        return
    answers: dict[str, WorkerAnswer] = session.client.run(look, needed)
    for address, seen in sorted(answers.items()):
        _check_one(f"worker {address} on {seen.host}", seen)
    _check_memory(session.members(), answers)


def _check_one(where: str, seen: WorkerAnswer) -> None:
    if seen.amiss is not None:
        path, what, got = seen.amiss
        remedy = "mount it there under the same path, as the same user, or choose another path"
        raise InputError(f"{path} is {what}", where=where, got=got, remedy=remedy)
    if seen.local_free < LEAST_FREE:
        raise DiskError(
            "its local disk is full",
            where=f"{where}: {seen.local_directory}",
            got=f"{format_bytes(seen.local_free)} free",
            wanted=f"at least {format_bytes(LEAST_FREE)}",
            remedy="free space there, or start the worker with another --local-directory",
        )


def _check_memory(members: Mapping[str, Json], answers: Mapping[str, WorkerAnswer]) -> None:
    """Raise MemoryBudgetError for limits above what a worker has, or workers together above what they share.

    A batch system bounds each job's memory, by RLIMIT_RSS or a control group: jobs of one node do not share that bound.
    """
    for address, seen in sorted(answers.items()):
        bounds = [([address], seen.memory)]
        for name, size in seen.shared.items():
            bounds.append(
                ([one for one, other in answers.items() if other.host == seen.host and name in other.shared], size)
            )
        for mates, memory in bounds:
            limits = [int(members.get(mate, {}).get("memory_limit") or 0) for mate in mates]
            # A hundredth more is no fault: limits are rounded when they are typed.
            if sum(limits) > 1.01 * memory:
                raise MemoryBudgetError(
                    "workers may use more memory than there is",
                    where=f"worker {address} on {seen.host}",
                    got=f"{format_bytes(sum(limits))} for {len(mates)} worker(s)",
                    wanted=f"at most {format_bytes(memory)}",
                    remedy="start them with a lower --memory-limit, or fewer of them",
                )


def look(needed: RequiredPaths, dask_worker: Any = None) -> WorkerAnswer:
    """Return, on a worker, what it sees of the paths, and what its machine has."""
    local = str(dask_worker.local_directory)
    # A network file system may show new files some seconds late.
    end = time.monotonic() + LATE_SECONDS
    while (amiss := _amiss(needed)) is not None and time.monotonic() < end:
        time.sleep(0.5)
    return WorkerAnswer(socket.gethostname(), amiss, local, shutil.disk_usage(local).free, machine_memory(), _shared())


def _shared() -> dict[str, int]:
    group = memory_group()
    return {"machine": physical_memory(), **({} if group is None else dict([group]))}


def _amiss(needed: RequiredPaths) -> tuple[str, str, str] | None:
    """Return (path, what is wrong, what was found) of the first path not as it should be, or None."""
    for path, size in needed.files.items():
        try:
            found = bytes_of(as_source(path))
        except OSError as error:
            return path, "not to be read there", str(error.strerror)
        except DklError as error:  # of a store that it cannot reach, or has no package for
            return path, "not to be read there", error.what if error.got is None else f"{error.what}: {error.got}"
        if found != size:
            return path, "another file there", f"{found} bytes in place of {size}"
    for number, folder in enumerate(needed.folders):
        try:
            if number == 0 and needed.token and needed.token not in Path(folder, "LOCK").read_text(errors="replace"):
                return folder, "another folder there", "another LOCK"
            # By writing: modes say nothing of a file system that is mounted read-only, or of whom it takes root for.
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            return folder, "not to be written to there", str(error.strerror)
    return None


def bytes_of(path: AnyPath) -> int:
    """Return the bytes of a file, or of a folder's `zarr.json`. It must be readable."""
    file = path / "zarr.json" if path.is_dir() else path
    with file.open("rb"):
        return int(file.stat().st_size)
