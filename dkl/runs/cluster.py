"""Where a command works: threads of this process, worker processes of its own on 127.0.0.1, or a cluster that runs."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkl._paths import as_path, require_file
from dkl.blocks.place import Place
from dkl.blocks.plan import PROCESS_BASE
from dkl.blocks.session import Session, checked_threads
from dkl.blocks.waiting import called_for
from dkl.errors import InputError, WorkersLostError
from dkl.resources import format_bytes, machine_memory, n_cpus
from dkl.runs.own_workers import own_workers

CONNECT_SECONDS = 10
WORKER_SECONDS = 30
TLS = "distributed.comm.tls in Dask's configuration"
DASK = {
    "distributed.scheduler.worker-ttl": "30 s",  # a worker that hangs is given up after this
    "distributed.scheduler.allowed-failures": 10,
}


@dataclass(frozen=True)
class Cluster:
    """The options of the place. No address and no workers: threads."""

    address: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory_limit: int | None = None

    @classmethod
    def of(
        cls,
        *,
        workers: int | None = None,
        threads: int | None = None,
        scheduler: str | None = None,
        scheduler_file: str | None = None,
        insecure: bool = False,
        memory_limit: int | None = None,
    ) -> Cluster:
        """From the command's options; InputError for an address that is none, or too many workers for the memory."""
        address = scheduler if scheduler_file is None else _address_in(as_path(scheduler_file, "--scheduler-file"))
        if address is not None:
            where = "--scheduler" if scheduler_file is None else f"--scheduler-file {scheduler_file}"
            _check_address(address, insecure, where)
        if threads is not None:
            checked_threads(threads, "--threads")
        chosen = cls(address, workers, threads, memory_limit)
        # A limit is no promise: however high it is, the machine has what it has.
        each = min(chosen.worker_bytes, machine_memory() // (workers or 1))
        if workers is not None and workers > n_cpus() and each < PROCESS_BASE:
            got, wanted = f"{workers} of {format_bytes(each)}", f"{format_bytes(PROCESS_BASE)} a worker"
            raise InputError("too many workers for the memory", where="--workers", got=got, wanted=f"at least {wanted}")
        return chosen

    @property
    def worker_bytes(self) -> int:
        """What a worker of our own may use, unless it is said: an equal share of the machine."""
        return self.memory_limit or machine_memory() // (self.workers or 1)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """A session there. What is started is ended; what ran already runs on."""
        if self.address is None and self.workers is None:
            yield Session(None, threads=self.threads)
            return
        with ExitStack() as stack:
            import dask
            import distributed.config  # noqa: F401  # its defaults come first, or ours would take them along at the end

            stack.enter_context(dask.config.set(DASK))
            reached = self._own() if self.address is None else _connected(self.address)
            client = stack.enter_context(reached)
            yield Session(client, own=self.address is None)

    @contextmanager
    def planned(self) -> Iterator[Session]:
        """A session for plans to ask: workers of our own are not started for it, a cluster that runs is connected to."""
        if self.address is None and self.workers is not None:
            yield _Unstarted(self.workers, self.worker_bytes)
            return
        with self.session() as session:
            yield session

    def place(self) -> Place:
        """Where a session would work."""
        with self.planned() as session:
            return Place.of(session)

    @contextmanager
    def _own(self) -> Iterator[Any]:
        count = self.workers or 1
        with own_workers(count, self.worker_bytes) as client:
            _wait_for_workers(client, count, "--workers", "take fewer: this machine starts them too slowly")
            yield client


class _Unstarted(Session):
    """Workers as they would be: how many, and what each may use."""

    def __init__(self, count: int, worker_bytes: int) -> None:
        super().__init__("not started", own=True)
        self.count, self.worker_bytes = count, worker_bytes

    def members(self) -> dict[str, dict[str, Any]]:
        worker = {"nthreads": 1, "memory_limit": self.worker_bytes}
        return {f"worker {k}": {**worker, "name": k} for k in range(self.count)}


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    import logging

    from distributed import Client

    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # each has a level of its own
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what it means for the user, we say in one line
    try:
        client = Client(address, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        remedy = "start it, or mend the address" + (", or the certificates" if address.startswith("tls") else "")
        raise WorkersLostError(
            f"no scheduler answers within {CONNECT_SECONDS} s", where=address, remedy=remedy
        ) from error
    with client:
        _wait_for_workers(client, 1, address, "start workers")
        yield client


def _wait_for_workers(client: Any, count: int, where: str, remedy: str) -> None:
    """Until the first `count` are there. Raises WorkersLostError after WORKER_SECONDS."""
    if len(Session(client).workers()) >= count:
        return
    with called_for(client, count, WORKER_SECONDS):
        try:
            client.wait_for_workers(count, timeout=WORKER_SECONDS)
        except TimeoutError as error:
            got = len(Session(client).workers())
            raise WorkersLostError(
                f"too few workers after {WORKER_SECONDS} s", where=where, got=got, wanted=count, remedy=remedy
            ) from error


def _address_in(file: Path) -> str:
    """The address in a file that `dask scheduler --scheduler-file` wrote."""
    require_file(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("cannot be read as JSON", where=str(file), got=error) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise InputError("not a scheduler's file", where=str(file), wanted='an "address" in it')
    return str(content["address"])


def _check_address(address: str, insecure: bool, where: str) -> None:
    match = re.fullmatch(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        wanted = "tls://host:port, or tcp://127.0.0.1:port"
        raise InputError("not a scheduler's address", where=where, got=repr(address), wanted=wanted)
    if match[1] == "tls":
        _check_certificate(address, where)
    elif not insecure and not _is_loopback(match[2].strip("[]")):
        raise InputError(
            "plain tcp:// to another machine: whoever reaches that port can run code as you",
            where=where,
            got=address,
            wanted="tls://",
            remedy="set up TLS (see cluster/README.md), or say --insecure",
        )


def _check_certificate(address: str, where: str) -> None:
    """InputError where Dask's configuration names no certificates to show and to trust, or none that can be read."""
    from distributed import Security

    try:
        context = Security().get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise InputError(
            "certificates that cannot be read", where=TLS, got=error, remedy="mend the paths or the files there"
        ) from error
    if context is None:
        wanted = f"{TLS}: ca-file, client.cert and client.key"
        remedy = "name your certificates there, as cluster/README.md shows"
        raise InputError("tls:// without certificates", where=where, got=address, wanted=wanted, remedy=remedy)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
