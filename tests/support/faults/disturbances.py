"""What is done to a run that is under way, at moments drawn at random: processes killed, stopped, interrupted, links cut."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from preloaded import Forked
from separate_cluster import Cluster, family, servers_in, strike


@dataclass
class Running:
    """seconds: that the run takes undisturbed. hits: what has reached it, the last `at` that moment; kin: what has to be
    gone soon after the command has ended."""

    process: Forked
    out: Path
    cluster: Cluster | None
    rng: random.Random
    seconds: float
    hits: int = 0
    at: float | None = None
    kin: set[psutil.Process] = field(default_factory=set)

    def goes_on(self, seconds: float) -> bool:
        """Whether it still runs after so long."""
        then = time.monotonic() + seconds
        while time.monotonic() < then and self.process.poll() is None:
            time.sleep(0.002)
        return self.process.poll() is None

    def comes_to_a_moment(self) -> bool:
        return self.goes_on(self.rng.uniform(0, self.seconds))

    def has_workers(self) -> bool:
        """Whether it still runs when both have come; its own take most of the time. One that does not start is told by exit 5."""
        while len(self.servers()) < 2 and self.goes_on(0.02):
            pass
        return self.process.poll() is None

    def hit(self, processes: list[psutil.Process], number: int) -> bool:
        self.kin.update(family(self.process.pid))
        is_hit = strike(processes, number)
        self.count(is_hit)
        return is_hit

    def count(self, is_hit: bool) -> None:
        if is_hit:
            self.hits, self.at = self.hits + 1, time.monotonic()

    def servers(self) -> list[psutil.Process]:
        """Workers, and nannies that are processes, of its own or of the cluster."""
        return servers_in(self.process.pid, below=True) if self.cluster is None else self.cluster.servers()


def kill_tree(run: Running) -> None:
    """The command and all that it has started, by SIGKILL."""
    if run.comes_to_a_moment():
        run.hit(family(run.process.pid), signal.SIGKILL)


def kill_client(run: Running) -> None:
    """The command alone, by SIGKILL: tasks that it has sent go on, and may write."""
    if run.comes_to_a_moment():
        run.hit(family(run.process.pid)[:1], signal.SIGKILL)


def interrupt(run: Running) -> None:
    """By SIGTERM to the command or, as a terminal does, SIGINT to all of its group; Python's own start is over by then."""
    while not (run.out / "config.json").exists() and run.goes_on(0.01):
        pass
    if not run.goes_on(run.rng.uniform(0, run.seconds / 4)):
        return
    number = run.rng.choice([signal.SIGTERM, signal.SIGINT])
    everyone = family(run.process.pid)
    run.hit(everyone if number == signal.SIGINT else everyone[:1], number)


KILLS, LEAST, MOST = 8, 0.0, 1.0
"""Kills of workers in a run, at most, and the seconds between them."""


def kill_workers(run: Running) -> None:
    """One after the other, by SIGKILL; who has none that comes back by itself gets another."""
    run.has_workers()
    for _ in range(KILLS):
        if not run.goes_on(run.rng.uniform(LEAST, MOST)):
            return
        servers = run.servers()
        if servers:
            run.hit([run.rng.choice(servers)], signal.SIGKILL)
        if run.cluster is not None:
            run.cluster.start()


def kill_all_workers(run: Running) -> None:
    """Those of a cluster, by SIGKILL, and none comes until the command has ended."""
    if run.comes_to_a_moment() and (servers := run.servers()):
        run.hit(servers, signal.SIGKILL)


def kill_scheduler(run: Running) -> None:
    assert run.cluster is not None and run.cluster.scheduler is not None
    if run.comes_to_a_moment():
        run.hit(family(run.cluster.scheduler.pid)[:1], signal.SIGKILL)


def stop_worker(run: Running) -> None:
    """One that hangs from then on."""
    if run.has_workers() and run.goes_on(run.rng.uniform(0, run.seconds / 4)) and (servers := run.servers()):
        run.hit([run.rng.choice(servers)], signal.SIGSTOP)


def pause_worker(run: Running) -> None:
    """One that hangs for a while."""
    if run.has_workers() and run.goes_on(run.rng.uniform(0, run.seconds / 2)) and (servers := run.servers()):
        victim = run.rng.choice(servers)
        run.hit([victim], signal.SIGSTOP)
        time.sleep(run.rng.uniform(0.2, 3.0))
        strike([victim], signal.SIGCONT)


LONG_CUT = 45.0
"""Seconds, longer than Dask waits for what it has sent to be acknowledged (comm.timeouts.tcp, 30 s)."""


def cut_link(run: Running, *, seconds: float | None = None) -> None:
    """A worker's host cannot be reached for a while, or until its worker has been given up."""
    assert run.cluster is not None and run.cluster.hosts is not None
    if not run.comes_to_a_moment():
        return
    place = run.rng.choice(sorted(run.cluster.workers))
    run.kin.update(family(run.process.pid))
    run.cluster.hosts.cut(place)
    run.count(True)
    run.goes_on(run.rng.uniform(0.5, 5.0) if seconds is None else seconds)
    run.cluster.hosts.mend(place)
