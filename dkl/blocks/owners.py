"""State that is shared out over the workers of a cluster, seen from the process that asks for it: tasks of owners, and their end.

Each owner is one object in the memory of one worker (`slab_worker`), outside Dask's own bookkeeping. So a lost worker is not
repaired in place: what is asked of its owner raises StateLost, and the caller makes new owners.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dkl.blocks import slab_worker, waiting
from dkl.blocks.session import Session
from dkl.errors import MemoryBudgetError, StateLost, WorkersLostError
from dkl.resources import format_bytes


def check_room(needed: int, room: int | None, owners: int, what: str, where: str, remedy: str) -> None:
    """MemoryBudgetError where the worker at `where` has no room for its rows of so many owners; room: bytes, None for any."""
    if room is not None and needed > room:
        raise MemoryBudgetError(
            f"the rows of {owners} workers, for {what}, do not fit",
            where=where,
            got=f"{format_bytes(max(room, 0))} beside the process",
            wanted=f"at least {format_bytes(needed)}",
            remedy=remedy,
        )


class Owners:
    """Owners on these workers, one each, under the name `key`; whoever derives from this makes them.

    silence: what is known of workers that stand still, where one that does so is lost.
    """

    def __init__(
        self, session: Session, key: str, addresses: Sequence[str], silence: waiting.Silence | None = None
    ) -> None:
        self.session, self.client, self.key, self.addresses = session, session.client, key, list(addresses)
        self.silence = silence

    def _submit(self, k: int, function: Any, *arguments: Any) -> Any:
        """One task on the worker of share k, and on no other: only that one has the slabs. Never retried by Dask."""
        return self.client.submit(
            function, *arguments, pure=False, workers=[self.addresses[k]], allow_other_workers=False, retries=0
        )

    def _all(self, function: Any, *arguments: Any) -> list[Any]:
        """The same task on every owner, as they wait for each other."""
        return [self._submit(k, function, self.key, *arguments) for k in range(len(self.addresses))]

    def _wait(self, futures: list[Any]) -> list[Any]:
        """Results of `futures` in order; StateLost as soon as one of our workers is gone or has forgotten its slabs,
        or once it has been silent for GIVE_UP_SECONDS.

        Raises WorkersLostError where one has paused and does not begin its task (`waiting.HeldUp`).
        """
        held_up, began = waiting.HeldUp(self.session, futures), time.monotonic()
        looked = began
        while True:
            self.session.require_scheduler()
            try:
                waiting.all_done(self.client, futures, waiting.pause(len(self.addresses), time.monotonic() - began))
                # Where one has failed the others may wait for it; `forget` closes their inboxes and ends that.
                for future in futures:
                    if future.status == "error":
                        raise future.exception()
                    if future.status in ("cancelled", "lost"):
                        raise StateLost(f"a result was lost with its worker: {future.status}")
                if all(future.done() for future in futures):
                    return self._gathered(futures)
            except Exception as error:
                raise self._lost(error) from error
            self._look()
            if (since := time.monotonic() - looked) >= waiting.LOOK_AGAIN_SECONDS:
                held_up.look(since)
                looked = time.monotonic()

    def _look(self) -> None:
        """StateLost where one of our workers is gone, or stands still."""
        members = self.session.members()
        if gone := set(self.addresses) - set(members):
            raise StateLost(f"worker {min(gone)} is gone")
        if self.silence is not None and (silent := set(self.addresses) & set(self.silence.look(members))):
            raise StateLost(f"worker {min(silent)} stands still")

    def _gathered(self, futures: list[Any]) -> list[Any]:
        """The results themselves. A worker may die with some that are done: Dask schedules these again on that worker, which
        never comes back."""
        found = waiting.watched(
            self.session, lambda: self.client.gather(futures, asynchronous=True), self.addresses, self._look, futures
        )
        return list(found)

    def _lost(self, error: Exception) -> Exception:
        """What to raise for `error`: StateLost where the cluster failed, WorkersLostError where the scheduler is gone, else itself."""
        if isinstance(error, StateLost) or not slab_worker.is_cluster_failure(error):
            return error
        try:
            self.session.require_scheduler()
        except WorkersLostError as gone:
            return gone
        return StateLost(f"lost with a worker: {type(error).__name__}: {' '.join(str(error).split())}")

    def close(self) -> None:
        """Have the workers forget the slabs; not an error where they are gone, or where one stands still."""
        if self.client.status != "running":
            return
        try:
            # All are told at once; of one that does not answer the lease runs out, or it hears of it when it goes on.
            self.client.sync(
                lambda: self.client.run(slab_worker.forget, self.key, on_error="ignore"),
                callback_timeout=waiting.LOOK_AGAIN_SECONDS,
            )
        except Exception as error:
            if not slab_worker.is_cluster_failure(error):  # else no worker is left, or its lease runs out (LEASE)
                raise
