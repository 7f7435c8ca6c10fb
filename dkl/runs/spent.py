"""Use of a fit's seconds: arithmetic, communication, the disk, and the rest, which is waiting."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from dkl.blocks.session import Session
from dkl.time_spent import DISK, EXCHANGE, spent

if TYPE_CHECKING:
    from distributed import Worker

    from dkl.stores.sealed_json import Json

NETWORK = ("gather-dep", "network", "seconds")
"""Dask's counter of the seconds that a worker has waited for data of others."""


class Spending:
    """Counters of all processes at the start of a fit, compared with those at its end."""

    def __init__(self, session: Session) -> None:
        self.session, self.before = session, _counted(session)

    def split(self, seconds: float) -> Json | None:
        """Return the mean seconds of a slot (thread or worker) by use; their sum is `seconds` since the start.

        disk: reading and writing that was waited for; communication: exchanging sums, and waiting for data of other workers;
        compute: processor seconds that went into neither, up to the seconds that these leave: threads that BLAS or numba start
        beyond the slots use more, which the processor seconds of the whole show; other: the rest, such as waiting for the
        scheduler, for the client, or for a part that runs on fewer slots. client: processor seconds of the process that has
        the cluster's client, its scheduler with it if that is our own, in addition. None for a part that cannot be
        measured, and for all where workers have come or gone meanwhile.
        """
        after = _counted(self.session)
        if not after or after.keys() != self.before.keys():
            return None
        grown = {
            process: {kind: count - self.before[process][kind] for kind, count in counts.items()}
            for process, counts in after.items()
        }
        is_cluster = self.session.is_distributed
        client = grown.pop("client") if is_cluster else None
        slots = len(grown) if is_cluster else self.session.threads
        mean = {kind: sum(counts[kind] for counts in grown.values()) / slots for kind in ("cpu", EXCHANGE, DISK)}
        parts, rest = {}, seconds
        for part, counted in (("disk", DISK), ("communication", EXCHANGE if is_cluster else None), ("compute", "cpu")):
            parts[part] = min(mean[counted], rest) if counted else None
            rest -= parts[part] or 0.0
        return {"seconds": seconds, "slots": slots, **parts, "other": rest, "client": client["cpu"] if client else None}


def _counted(session: Session) -> dict[str, dict[str, float]]:
    """Return counters by process; {} if workers cannot be asked."""
    if not session.is_distributed:
        return {"client": spent()}
    with suppress(Exception):  # figures for the report, no more
        return {"client": spent(), **session.client.run(_of_worker)}
    return {}


def _of_worker(dask_worker: Worker | None = None) -> dict[str, float]:
    """Return a worker's counters, called there, with Dask's seconds of waiting for data."""
    counts = spent()
    counts[EXCHANGE] += float(getattr(dask_worker, "digests_total", {}).get(NETWORK, 0.0))
    return counts
