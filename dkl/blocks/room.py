"""How much memory a search for eigenvectors may take, here and in workers."""

from __future__ import annotations

from dataclasses import dataclass

from dkl.blocks.column_plan import WORKER_EXTRA
from dkl.blocks.place import Place
from dkl.blocks.plan import PROCESS_BASE


@dataclass(frozen=True)
class Room:
    """Bytes that the search for eigenvectors may take in this process, and in each worker; None: whatever it needs."""

    here: int | None = None
    worker: int | None = None

    @classmethod
    def of(cls, place: Place, allowed: int, memory_limit: int | None, held: int) -> Room:
        """In a process that may use `allowed` bytes and holds so many beside itself, and in workers that memory_limit binds as well."""
        worker = place.allowed(memory_limit) if place.distributed else None
        return cls(allowed - PROCESS_BASE - held, None if worker is None else worker - PROCESS_BASE - WORKER_EXTRA)

    def has(self, needed: int) -> bool:
        """Whether so many bytes are free here."""
        return self.here is None or needed <= self.here

    def workers_have(self, needed: int) -> bool:
        """The same of each worker."""
        return self.worker is None or needed <= self.worker
