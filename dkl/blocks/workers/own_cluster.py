"""Workers of a cluster in this process (`LocalCluster`): those its nannies know, their restart, and keeping them in a fit.

Workers that are killed while they start leave Dask in odd states. One that had said to the scheduler that it is there,
but not yet to its nanny, stays among the scheduler's workers until it has been silent for `worker-ttl`: sending to it
takes half a minute. And the nanny of one that could not start ends, and is counted as a worker for 15 s.

A cluster that adapts to its load (`cluster.adapt(minimum=0)`) retires workers without tasks, whatever they hold for a fit,
and a fit has no task on them while this process computes between its steps.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, finalize

if TYPE_CHECKING:
    from distributed import Adaptive, Client

    from dkl.stores.sealed_json import Json

UNKNOWN_SECONDS = 1.0
"""Seconds for which the scheduler alone may know a worker: its nanny hears of it some 0.01 s later."""
OVER = ("closing", "closed", "failed")


class Ghosts:
    """Workers of the scheduler's that no nanny of a cluster in this process knows."""

    def __init__(self, client: Client | None) -> None:
        self.cluster = getattr(client, "cluster", None)
        self.since: dict[str, float] = {}

    def among(self, members: Mapping[str, Json]) -> set[str]:
        """Return addresses of `members` that their nannies have not known for UNKNOWN_SECONDS.

        members: as of `Session.members`. Such a nanny has known another worker, or none, at each call since. Workers of
        a cluster elsewhere, or that joined by themselves, are never among these.
        """
        nannies = getattr(self.cluster, "workers", {})
        now, unknown = time.monotonic(), set()
        for address, member in members.items():
            nanny = nannies.get(member.get("name"))
            if getattr(nanny, "worker_address", address) != address:
                unknown.add(address)
        self.since = {address: self.since.get(address, now) for address in unknown}
        return {address for address, since in self.since.items() if now - since >= UNKNOWN_SECONDS}


class AdaptiveHold:
    """Minimum of workers of a cluster that adapts to its load, raised while `owner` lives to as many as it has seen.

    The cluster is the client's, in this process; of one elsewhere nothing is known. Of several owners the largest counts.
    """

    _minimums: WeakKeyDictionary[Adaptive, dict[int, int]] = WeakKeyDictionary()
    """Minimums of each rule (`distributed.Adaptive`): its own under 0, and the workers held by each owner."""
    _lock = threading.RLock()  # an owner may be collected, and so released, while this thread has it

    def __init__(self, client: Client | None, owner: object) -> None:
        self.cluster, self._held = getattr(client, "cluster", None), 0
        finalize(owner, self.release).atexit = False

    def keep(self, count: int) -> None:
        """Keep at least `count` workers."""
        rule = getattr(self.cluster, "_adaptive", None)
        if rule is None or count <= self._held:
            return
        self._held = count
        with self._lock:
            minimums = self._minimums.setdefault(rule, {0: rule.minimum})
            minimums[id(self)] = min(count, rule.maximum)
            rule.minimum = max(minimums.values())

    def release(self) -> None:
        """Lower the minimum to what it is without this owner."""
        with self._lock:
            for rule, minimums in list(self._minimums.items()):
                if minimums.pop(id(self), None) is not None:
                    rule.minimum = max(minimums.values())
                    if len(minimums) == 1:  # the next owner asks for the rule's own minimum again
                        del self._minimums[rule]


def bring_back(cluster: Any, wanted: int) -> None:
    """Ask our own cluster for `wanted` workers, replacing those whose nannies ended; no-op for others."""
    if cluster is None or not hasattr(cluster, "scale"):
        return
    with contextlib.suppress(Exception):
        for name, one in list(getattr(cluster, "workers", {}).items()):
            if getattr(getattr(one, "status", None), "name", "") in OVER:
                cluster.workers.pop(name, None)
        cluster.scale(max(wanted, len(getattr(cluster, "worker_spec", {}))))
