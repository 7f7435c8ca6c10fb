"""Processes, threads and memory limits that a run works with, for memory plans."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dkl.blocks.memory.plan import RAISE_LIMIT, Plan
from dkl.blocks.session import Session
from dkl.blocks.workers import waiting
from dkl.errors import MemoryBudgetError
from dkl.resources import format_bytes, machine_memory

LOG = logging.getLogger("dkl")
WORKER_SHARE = 0.75
"""Share of a Dask worker's memory limit that a plan may take: the worker pauses at 0.8 of it."""
OWN_SHARE = 0.25
"""Share of this machine's memory that this process may take for work that workers would do no sooner."""
ROUND_SECONDS = 0.001
"""Time of an exchange between workers, however small (benchmarks/system/million.md)."""
BYTES_A_SECOND = 5e8
"""Rate assumed of disk and network, which are not measured."""


@dataclass(frozen=True)
class Place:
    """Processes of a run, their threads and memory limit, and whether these are a cluster's workers."""

    processes: int
    threads: int
    limit: int | None = None
    distributed: bool = False
    more_memory: str = ""
    """Advice on how to give the workers more memory."""

    @classmethod
    def of(cls, session: Session) -> Place:
        """Return the place of a session: this process' threads, or the workers with their least memory limit.

        Waits for the first worker of a cluster that has none. Workers that join later are not counted.
        """
        if not session.is_distributed:
            return cls(1, session.threads)
        waiting.workers(session)
        return cls(session.n_slots, session.most_threads, _worker_memory(session), True, session.more_memory())

    def allowed(self, memory_limit: int | None) -> int | None:
        """Return the bytes a process may use: the lesser of `memory_limit` and a worker's share, or None."""
        share = self._share()
        return min((value for value in (memory_limit, share) if value is not None), default=None)

    def checked(self, plan: Plan, memory_limit: int | None) -> Plan:
        """Return the plan; raise MemoryBudgetError if it does not fit.

        A limit that is a share of a worker's is reported with the worker's.
        """
        share = self._share()
        if plan.fits or share is None or share == memory_limit or plan.limit != share:
            return plan.validate()
        try:
            return plan.validate()
        except MemoryBudgetError as error:
            got = f"{format_bytes(share)}, {WORKER_SHARE:.0%} of a worker's {format_bytes(self.limit or 0)}"
            remedy = (error.remedy or "").replace(RAISE_LIMIT, self.more_memory)
            raise MemoryBudgetError(
                error.what, where=error.where, got=got, wanted=error.wanted, remedy=remedy
            ) from None

    def _share(self) -> int | None:
        return None if self.limit is None else int(WORKER_SHARE * self.limit)


def idle_workers(place: Place, here: float, there: float, held: int) -> str:
    """Return the line on workers that are left idle; "" if they work or there are no workers.

    here, there: seconds of an iteration in this process and on the workers, by sizes alone; held: bytes that this process would take.
    Workers are idle where they are no faster and the work fits here; the bytes of the result are the same. The setting "dkl.workers"
    of Dask's configuration, "always", has them work at any size.
    """
    from dask import config

    always = config.get("dkl.workers", "") == "always"
    if not place.distributed or there < here or held > OWN_SHARE * machine_memory() or always:
        return ""
    return f"the workers stay idle: about {there:.2g} s an iteration on them, {here:.2g} s in this process"


def spare_workers(session: Session, used: int, why: str) -> str:
    """Return the line on idle workers, beyond the `used` ones of a plan; "" if no others exist.

    Unlike `idle_workers`, of plans that no number of workers makes faster. Waits for no worker.
    """
    count = len(session.workers())
    if count <= used:
        return ""
    return f"the workers stay idle: {why}" if not used else f"{count - used} of {count} workers stay idle: {why}"


def note_idle_workers(plan: Plan) -> None:
    """Log the line of a plan on workers that stay idle, where it has one."""
    if plan.idle_workers:
        LOG.warning(plan.idle_workers)


def _worker_memory(session: Session) -> int | None:
    """Return the least memory limit of the cluster's workers, in bytes; None if no worker has one."""
    limits = (data.get("memory_limit") for data in session.members().values())
    return min((limit for limit in limits if limit), default=None)
