"""Backends of a command: threads of this process, worker processes on 127.0.0.1, or a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dkl.blocks.memory.plan import PROCESS_BASE
from dkl.blocks.session import Session, checked_threads
from dkl.blocks.workers import waiting
from dkl.blocks.workers.worker_machines import check_versions, require_alike
from dkl.errors import InputError, WorkersLostError
from dkl.io.paths import as_path
from dkl.resources import format_bytes, machine_memory, n_cpus
from dkl.runs.backend.own_workers import own_workers
from dkl.runs.backend.scheduler_address import Certificates, address_in, check_address

if TYPE_CHECKING:
    from distributed import Client

    from dkl.blocks.memory.execution_limits import Place
    from dkl.stores.sealed_json import Json

CONNECT_SECONDS = 10
PATIENT_SECONDS = 300
"""Seconds to wait for a requested number of workers: on many machines they start one after the other."""
DASK = {
    "distributed.scheduler.worker-ttl": "25 s",  # looked at as often: a worker that hangs is given up after this, or twice this
    "distributed.scheduler.allowed-failures": 10,
}


@dataclass(frozen=True)
class Cluster:
    """Options of where a command works; without address and workers: threads."""

    address: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory_limit: int | None = None
    certificates: Certificates | None = None
    """Certificates for `address`; None: those of Dask's configuration."""
    wait_for: int | None = None
    """Workers that `address` has when work begins; None: one."""

    @classmethod
    def of(
        cls,
        *,
        workers: int | None = None,
        threads: int | None = None,
        scheduler: str | None = None,
        scheduler_file: str | None = None,
        insecure: bool = False,
        wait_for: int | None = None,
        memory_limit: int | None = None,
        **tls: str | None,
    ) -> Cluster:
        """Return the cluster of a command's options.
        Raises InputError for an invalid address, or too many workers for the memory."""
        certificates = Certificates.of(tls)
        address = scheduler
        if scheduler_file is not None:
            # Who waits for workers has just started them, and the scheduler before.
            seconds = 0 if wait_for is None else CONNECT_SECONDS
            address = address_in(as_path(scheduler_file, "--scheduler-file"), seconds)
        if address is not None:
            where = "--scheduler" if scheduler_file is None else f"--scheduler-file {scheduler_file}"
            check_address(address, insecure, where, certificates)
        if threads is not None:
            checked_threads(threads, "--threads")
        chosen = cls(address, workers, threads, memory_limit, certificates, wait_for)
        # A limit is no promise: however high it is, the machine has what it has.
        each = min(chosen.worker_bytes, machine_memory() // (workers or 1))
        if workers is not None and workers > n_cpus() and each < PROCESS_BASE:
            got, wanted = f"{workers} of {format_bytes(each)}", f"{format_bytes(PROCESS_BASE)} a worker"
            raise InputError("too many workers for the memory", where="--workers", got=got, wanted=f"at least {wanted}")
        return chosen

    @property
    def worker_bytes(self) -> int:
        """Return the memory limit of one of our own workers: as set, else an equal share of the machine."""
        return self.memory_limit or machine_memory() // (self.workers or 1)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Yield a session of the cluster; what was started is ended, a running cluster keeps running."""
        if self.address is None and self.workers is None:
            yield Session(None, threads=self.threads)
            return
        with ExitStack() as stack:
            import dask
            import distributed.config  # noqa: F401  # its defaults come first, or ours would take them along at the end

            stack.enter_context(dask.config.set(DASK))
            reached = self._own() if self.address is None else self._connected(self.address)
            client = stack.enter_context(reached)
            yield Session(client, own=self.address is None)

    @contextmanager
    def planned(self) -> Iterator[Session]:
        """Yield a session for plans: our own workers are not started, a running cluster is connected to."""
        if self.address is None and self.workers is not None:
            yield Unstarted(self.workers, self.worker_bytes)
            return
        with self.session() as session:
            yield session

    def place(self) -> Place:
        """Return the limits of where a session would work."""
        from dkl.blocks.memory.execution_limits import Place

        with self.planned() as session:
            return Place.of(session)

    @contextmanager
    def _own(self) -> Iterator[Client]:
        count = self.workers or 1
        with own_workers(count, self.worker_bytes) as client:
            _wait_for_workers(
                client, count, "--workers", "take fewer: this machine starts them too slowly", waiting.GIVE_UP_SECONDS
            )
            yield client

    @contextmanager
    def _connected(self, address: str) -> Iterator[Client]:
        from distributed import Client

        _silence()
        security = None if self.certificates is None else self.certificates.security()
        try:
            client = Client(address, timeout=CONNECT_SECONDS, security=security)
        except (OSError, TimeoutError, ValueError) as error:
            remedy = "start it, or mend the address" + (", or the certificates" if address.startswith("tls") else "")
            raise WorkersLostError(
                f"no scheduler answers within {CONNECT_SECONDS} s", where=address, remedy=remedy
            ) from error
        with client:
            seconds = waiting.GIVE_UP_SECONDS if self.wait_for is None else PATIENT_SECONDS
            _wait_for_workers(client, self.wait_for or 1, address, "start workers", seconds)
            check_versions(client)
            require_alike(client, Session(client).workers())
            yield client


class Unstarted(Session):
    """Backend of workers that are not started: how many, and what each may use."""

    def __init__(self, count: int, worker_bytes: int) -> None:
        super().__init__("not started", own=True)
        self.count, self.worker_bytes = count, worker_bytes

    def members(self) -> dict[str, Json]:
        """Return the workers in the form in which a scheduler lists them."""
        worker = {"nthreads": 1, "memory_limit": self.worker_bytes}
        return {f"worker {k}": {**worker, "name": k} for k in range(self.count)}


def _silence() -> None:
    """Silence Dask's own log: what it means for the user is reported in one line."""
    import logging

    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":  # each has its own level
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _wait_for_workers(client: Client, count: int, where: str, remedy: str, seconds: float) -> None:
    """Wait until the first `count` workers are there; raise WorkersLostError after `seconds`."""
    if len(Session(client).workers()) >= count:
        return
    with waiting.called_for(client, count, seconds):
        try:
            client.wait_for_workers(count, timeout=seconds)
        except TimeoutError as error:
            got = len(Session(client).workers())
            raise WorkersLostError(
                f"too few workers after {seconds:g} s", where=where, got=got, wanted=count, remedy=remedy
            ) from error
