"""What only a cluster in this process tells of its workers (`LocalCluster`): which of them its nannies know, and who starts them again.

Workers that are killed while they start leave Dask in states of its own. One that had said to the scheduler that it is there, but not
yet to its nanny, stays among the scheduler's workers until it has been silent for `worker-ttl`: whoever sends to it waits for half a
minute. And the nanny of one that could not start ends, and is counted as a worker for 15 s.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any

UNKNOWN_SECONDS = 1.0
"""For which a worker may be the scheduler's and not its nanny's: a nanny is told some hundredths of a second later."""
OVER = ("closing", "closed", "failed")


class Ghosts:
    """Workers of the scheduler's that no nanny of a cluster in this process knows."""

    def __init__(self, client: Any) -> None:
        self.cluster = getattr(client, "cluster", None)
        self.since: dict[str, float] = {}

    def among(self, members: Mapping[str, Mapping[str, Any]]) -> set[str]:
        """Addresses of those of these (`Session.members`) that have a nanny which has known another, or none, for UNKNOWN_SECONDS,
        as far as was asked; nobody of a cluster elsewhere, or who joined by himself.
        """
        nannies = getattr(self.cluster, "workers", {})
        now, unknown = time.monotonic(), set()
        for address, member in members.items():
            nanny = nannies.get(member.get("name"))
            if getattr(nanny, "worker_address", address) != address:
                unknown.add(address)
        self.since = {address: self.since.get(address, now) for address in unknown}
        return {address for address, since in self.since.items() if now - since >= UNKNOWN_SECONDS}


def bring_back(cluster: Any, wanted: int) -> None:
    """Ask a cluster of our own for so many workers, in place of those whose nannies have ended too; nothing of another."""
    if cluster is None or not hasattr(cluster, "scale"):
        return
    with contextlib.suppress(Exception):
        for name, one in list(getattr(cluster, "workers", {}).items()):
            if getattr(getattr(one, "status", None), "name", "") in OVER:
                cluster.workers.pop(name, None)
        cluster.scale(max(wanted, len(getattr(cluster, "worker_spec", {}))))
