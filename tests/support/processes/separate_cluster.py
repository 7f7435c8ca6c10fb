"""A scheduler and two workers, each in a process of its own or below its nanny, on 127.0.0.1 or on several hosts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
from network_hosts import Hosts, enter
from patience import PATIENCE
from preloaded import Forked


def serve() -> None:
    """sys.argv: the host's process or 0; its address; "scheduler" and the file for its own, "worker" or "nanny" and the scheduler's."""
    enter(int(sys.argv[1]))
    asyncio.run(_serve(*sys.argv[2:5]))


async def _serve(host: str, what: str, where: str) -> None:
    import dask
    from distributed import Nanny, Scheduler, Worker

    # As its users' nannies start workers. The method of `preloaded` would have each nanny import all of the tests' libraries
    # for a process of its own, which takes ten seconds beside other programs; one that is killed goes on with it.
    dask.config.set({"distributed.worker.daemon": False, "distributed.worker.multiprocessing-method": "spawn"})
    given: dict[str, Any] = {"host": host, "dashboard_address": f"{host}:0"}
    if what == "scheduler":
        server: Any = Scheduler(port=0, **given)
    else:
        made: Any = Nanny if what == "nanny" else Worker
        server = made(where, nthreads=1, local_directory=tempfile.mkdtemp(dir=os.getcwd()), **given)
    async with server:
        if what == "scheduler":
            Path(where + ".partial").write_text(server.address)
            Path(where + ".partial").rename(where)
        await server.finished()


class Cluster:
    """hosts: the first is the scheduler's and the client's, each other one a worker's; None: all are on 127.0.0.1."""

    def __init__(self, worker: str = "nanny", hosts: Hosts | None = None) -> None:
        self.worker, self.hosts = worker, hosts
        self.address = ""
        self.scheduler: Forked | None = None
        self.workers: dict[int, Forked] = {}

    def start(self) -> None:
        """Those that are not there."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.stop()
            file = Path(tempfile.mkdtemp(dir=Path.cwd()), "address")
            self.scheduler = self._forked(0, "scheduler", str(file))
            wait(file.exists)
            self.address = file.read_text()
        for place in (1, 2):
            if place not in self.workers or self.workers[place].poll() is not None:
                self.workers[place] = self._forked(place, self.worker, self.address)

    def _forked(self, place: int, *given: str) -> Forked:
        if self.hosts is None:
            return Forked(serve, "0", "127.0.0.1", *given)
        return Forked(serve, str(self.hosts.pids[place]), self.hosts.address(place), *given)

    @property
    def options(self) -> tuple[str, ...]:
        """Of `dkl`; plain tcp:// to another host has to be allowed."""
        return ("--scheduler", self.address, *(() if self.hosts is None else ("--insecure",)))

    def servers(self) -> list[psutil.Process]:
        """Workers and nannies."""
        return [server for worker in self.workers.values() for server in servers_in(worker.pid)]

    def stop(self) -> None:
        """All of them."""
        for one in [*self.workers.values(), *([] if self.scheduler is None else [self.scheduler])]:
            strike(family(one.pid), signal.SIGKILL)
            one.communicate(PATIENCE)
        self.workers, self.scheduler = {}, None


def family(pid: int) -> list[psutil.Process]:
    """A process that was started here and all below it; none once it has ended."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def servers_in(pid: int, *, below: bool = False) -> list[psutil.Process]:
    """Those of a family that others connect to: workers and nannies; not what starts or tracks processes."""
    return [process for process in family(pid)[below:] if _listens(process)]


def _listens(process: psutil.Process) -> bool:
    try:
        return any(one.status == psutil.CONN_LISTEN for one in process.net_connections("tcp"))
    except psutil.NoSuchProcess:
        return False


def strike(processes: Iterable[psutil.Process], number: int) -> bool:
    """Whether the signal reached all of them, sent one right after the other."""
    reached = []
    for process in processes:
        try:
            process.send_signal(number)
            reached.append(True)
        except psutil.NoSuchProcess:
            reached.append(False)
    return bool(reached) and all(reached)


def wait(until: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Until it is so; TimeoutError if it never is."""
    deadline = time.monotonic() + seconds
    while not until():
        if time.monotonic() > deadline:
            raise TimeoutError("waited for in vain")
        time.sleep(0.005)
