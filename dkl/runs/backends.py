"""Backends of a command: threads of this process, worker processes on 127.0.0.1, or a running cluster by its address."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.session import Session, checked_threads
from dkl.blocks.workers import waiting
from dkl.blocks.workers.worker_checks import check_versions, require_alike
from dkl.errors import InputError, WorkersLostError
from dkl.io.paths import as_path
from dkl.io.reading import require_file
from dkl.resources import format_bytes, machine_memory, n_cpus
from dkl.runs.own_workers import own_workers

if TYPE_CHECKING:
    from distributed import Client, Security

    from dkl.blocks.memory_plan import Place
    from dkl.stores.seals import Json


TLS = "distributed.comm.tls in Dask's configuration"


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority that the cluster's certificates are signed by, and our own certificate with its key."""

    tls_ca: str
    tls_cert: str
    tls_key: str

    @classmethod
    def of(cls, given: Mapping[str, str | None]) -> Certificates | None:
        """Return the files of --tls-ca, --tls-cert and --tls-key; None if none is given.
        InputError for some of them, or no file."""
        paths = {field.name: given.get(field.name) for field in fields(cls)}
        missing = [flag(name) for name, path in paths.items() if path is None]
        if len(missing) == len(paths):
            return None
        if missing:
            raise InputError("certificates go together", where="--tls-ca, --tls-cert, --tls-key", wanted=missing[0])
        found = {name: as_path(path, flag(name)).absolute() for name, path in paths.items()}
        for path in found.values():
            require_file(path)
        return cls(**{name: str(path) for name, path in found.items()})

    def options(self) -> list[str]:
        """Return the options by which a command uses these certificates."""
        return [word for name, path in asdict(self).items() for word in (flag(name), path)]

    def security(self) -> Security:
        """Return the security of a Client: these files, and no connection without them."""
        from distributed import Security

        return Security(
            require_encryption=True,
            tls_ca_file=self.tls_ca,
            tls_client_cert=self.tls_cert,
            tls_client_key=self.tls_key,
        )


def flag(name: str) -> str:
    """Return the option of a name.

    >>> flag("tls_ca")
    '--tls-ca'
    """
    return f"--{name.replace('_', '-')}"


def address_in(file: Path, seconds: float = 0.0) -> str:
    """Return the address in a file of `dask scheduler --scheduler-file`, waiting `seconds` for it."""
    until = time.monotonic() + seconds
    while not _is_written(file) and time.monotonic() < until:
        time.sleep(0.1)
    require_file(file)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError("cannot be read as JSON", where=str(file), got=error) from error
    if not isinstance(content, dict) or not isinstance(content.get("address"), str):
        raise InputError("not a scheduler's file", where=str(file), wanted='an "address" in it')
    return str(content["address"])


def _is_written(file: Path) -> bool:
    """Return whether the file has anything to read, or to refuse."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def check_address(address: str, insecure: bool, where: str, certificates: Certificates | None = None) -> None:
    """Raise InputError for an invalid address, plain tcp:// to another machine, or wrong certificates."""
    match = re.fullmatch(r"(tcp|tls)://(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})", address)
    if match is None or not 0 < int(match[3]) < 65536:
        wanted = "tls://host:port, or tcp://127.0.0.1:port"
        raise InputError("not a scheduler's address", where=where, got=repr(address), wanted=wanted)
    if match[1] == "tls":
        _check_certificates(address, where, certificates)
    elif certificates is not None:
        raise InputError("certificates for a connection without", where=where, got=address, wanted="tls://")
    elif not insecure and not _is_loopback(match[2].strip("[]")):
        raise InputError(
            "plain tcp:// to another machine: anyone who reaches that port can run code as you",
            where=where,
            got=address,
            wanted="tls://",
            remedy="set up TLS (see cluster/README.md), or say --insecure",
        )


def _check_certificates(address: str, where: str, certificates: Certificates | None) -> None:
    """Raise InputError if neither options nor Dask's configuration name certificates that can be read."""
    from distributed import Security

    source = TLS if certificates is None else "--tls-ca, --tls-cert, --tls-key"
    if certificates is None:
        _expand_home()
    try:
        security = Security() if certificates is None else certificates.security()
        context = security.get_connection_args("client")["ssl_context"]
    except (OSError, ValueError) as error:  # SSLError is an OSError
        remedy = "mend the paths or the files there"
        raise InputError("certificates that cannot be read", where=source, got=error, remedy=remedy) from error
    if context is None:
        wanted = f"--tls-ca, --tls-cert and --tls-key, or {TLS}: ca-file, client.cert and client.key"
        remedy = "name your certificates there, as cluster/README.md shows"
        raise InputError("tls:// without certificates", where=where, got=address, wanted=wanted, remedy=remedy)


def _expand_home() -> None:
    """Expand `~` in paths of Dask's configuration, which Dask opens as written."""
    import dask

    tls = dask.config.get("distributed.comm.tls", {})
    for part in (tls, *(tls.get(role) or {} for role in ("scheduler", "worker", "client"))):
        for name, path in part.items():
            if isinstance(path, str) and path.startswith("~"):
                part[name] = os.path.expanduser(path)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


CONNECT_SECONDS = 10
PATIENT_SECONDS = 300
"""Seconds to wait for a requested number of workers: on many machines they start one after the other."""
DASK = {
    "distributed.scheduler.worker-ttl": "25 s",  # looked at as often: a worker that hangs is given up after this, or twice this
    "distributed.scheduler.allowed-failures": 10,  # a task that merely was on workers which were killed soon has Dask's 3
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
        # Few workers are left to the plan, whose error says what they need; many would not even start.
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
            import distributed.config  # noqa: F401  # first: loaded within `set`, its defaults would go with ours at its end

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
        from dkl.blocks.memory_plan import Place

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

        # Before the client: its first lines are written while it connects.
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
            # Once for all: results of workers with other versions would differ in their last bits.
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
