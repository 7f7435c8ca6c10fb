"""Where a run works, as memory plans see it."""

from __future__ import annotations

from dataclasses import dataclass

from dkl.blocks.session import Session
from dkl.blocks.workspace import worker_memory

WORKER_SHARE = 0.75
"""Of a Dask worker's limit: it pauses at 0.8 of it."""


@dataclass(frozen=True)
class Place:
    """Where a run works: processes and their threads, what each may use, and whether these are a cluster's workers."""

    processes: int
    threads: int
    limit: int | None = None
    distributed: bool = False

    @classmethod
    def of(cls, session: Session) -> Place:
        """The place of a session: this process and its threads, or the cluster's workers with the smallest one's memory limit.

        Asks the scheduler once; workers that join later are not counted.
        """
        if not session.is_distributed:
            return cls(1, session.threads)
        return cls(session.n_slots, session.most_threads, worker_memory(session), True)

    def allowed(self, memory_limit: int | None) -> int | None:
        """Bytes a process may use: the smaller of `memory_limit` and WORKER_SHARE of a worker's limit; None where there is neither."""
        share = None if self.limit is None else int(WORKER_SHARE * self.limit)
        return min((value for value in (memory_limit, share) if value is not None), default=None)
