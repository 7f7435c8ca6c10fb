"""Checks of each worker of a cluster: its versions and processor; and of a user's its paths, disk and memory, before a fit starts there.

Versions must be those of this process, and processors had better be. Workers of our own are this process' children, on this machine:
they need no asking about paths, disk and memory.
"""

from __future__ import annotations

import logging
import platform
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from dkl.errors import DiskError, DklError, InputError, MemoryBudgetError
from dkl.io.paths import AnyPath, as_source
from dkl.resources import blas_controller, format_bytes, machine_memory, memory_group, physical_memory

if TYPE_CHECKING:
    from distributed import Client

    from dkl.blocks.session import Session
    from dkl.stores.seals import Json


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


ALIKE = ("dkl", "numpy", "scipy", "zarr", "numba", "scikit-learn")
"""Packages that workers compute, read and write with; other versions may differ in bits or formats."""
ANSWER_SECONDS = 10.0
"""Seconds that workers have to report their versions and processors."""
LOG = logging.getLogger("dkl")
_asked: WeakKeyDictionary[Client, set[str]] = WeakKeyDictionary()
"""Addresses of workers that were asked what they are, by client."""


def check_versions(client: Any) -> None:
    """Raise InputError for a worker with another Python or package than here; Dask asks it."""
    here = _versions()
    for address, found in sorted(client.get_versions(packages=list(ALIKE))["workers"].items()):
        there = found["packages"]
        python = ".".join(str(there["python"]).split(".")[:2])
        for name, got, wanted in [("Python", python, here["python"]), *((one, there[one], here[one]) for one in ALIKE)]:
            if got != wanted:
                raise InputError(
                    f"another {name} than here",
                    where=f"worker {address}",
                    got=got or "none",
                    wanted=wanted,
                    remedy=f"install {name} {wanted} there, or run where it has {name} {got}",
                )


def require_alike(client: Client, workers: Sequence[str]) -> None:
    """Refuse workers with other versions than here, and note processors of other kinds; of each worker and client once.

    A worker that gives no answer is not judged: the fit finds out. Raises InputError as `check_versions`.
    """
    asked = _asked.setdefault(client, set())
    fresh = [worker for worker in workers if worker not in asked]
    if not fresh:
        return
    try:
        # By Dask's own coroutine, which alone takes a time limit: a worker may hang.
        found = client.sync(client._run, machine, workers=fresh, on_error="return", callback_timeout=ANSWER_SECONDS)
    except (OSError, TimeoutError):
        return
    here = machine()
    if any(
        isinstance(one, ImportError) or getattr(one, "versions", here.versions) != here.versions
        for one in found.values()
    ):
        check_versions(client)
    asked.update(fresh)
    kinds = {address: one.kernels for address, one in found.items() if isinstance(one, WorkerMachine)}
    other = {address: kind for address, kind in kinds.items() if kind != here.kernels}
    if other:
        address = min(other)
        LOG.warning(
            "processors of other kinds on %d of %d workers (BLAS for %s at %s, for %s here): last bits may differ from run to run",
            len(other), len(kinds), other[address], address, here.kernels,
        )  # fmt: skip


@dataclass(frozen=True)
class WorkerMachine:
    """Versions by package, and BLAS' kernels for the processor: the last bits of results depend on both."""

    versions: Mapping[str, str | None]
    kernels: str


def machine() -> WorkerMachine:
    """Return what computes here; runs on workers, too."""
    kernels = {str(one.get("architecture", "")) for one in blas_controller().info() if one["user_api"] == "blas"}
    return WorkerMachine(_versions(), ", ".join(sorted(filter(None, kernels))) or platform.machine())


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in ALIKE:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found
