"""Memory that a search for eigenvectors may take, in this process and in workers."""

from __future__ import annotations

from dataclasses import dataclass

from dkl.blocks.kernels.column_plan import WORKER_EXTRA
from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import PROCESS_BASE


@dataclass(frozen=True)
class Room:
    """Bytes that the search for eigenvectors may take in this process, and in each worker; None: whatever it needs."""

    here: int | None = None
    worker: int | None = None

    @classmethod
    def of(cls, place: Place, allowed: int, memory_limit: int | None, held: int) -> Room:
        """Compute the memory left in this process and in workers.

        This process may use `allowed` bytes and holds `held` on top of its base; memory_limit binds workers as well.
        """
        worker = place.allowed(memory_limit) if place.distributed else None
        return cls(allowed - PROCESS_BASE - held, None if worker is None else worker - PROCESS_BASE - WORKER_EXTRA)

    def has(self, needed: int) -> bool:
        """Return whether `needed` bytes fit in this process."""
        return self.here is None or needed <= self.here

    def workers_have(self, needed: int) -> bool:
        """Return whether `needed` bytes fit in each worker."""
        return self.worker is None or needed <= self.worker
