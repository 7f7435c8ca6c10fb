"""State shared out over the workers of a cluster, as the client sees it: its owners and their tasks.

Each owner is one object in the memory of one worker (`slab_worker`), outside Dask's bookkeeping. So a lost worker is
not repaired in place: calls to its owner raise StateLost, and the caller makes new owners.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.errors import MemoryBudgetError, StateLost, WorkersLostError
from dkl.resources import format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed import Future


def check_room(needed: int, room: int | None, owners: int, what: str, where: str, remedy: str) -> None:
    """Raise MemoryBudgetError if the rows of a worker, `needed` bytes, do not fit into `room` bytes.

    room: None for any. owners: number of workers that share the rows; where: the worker, for the error.
    """
    if room is not None and needed > room:
        raise MemoryBudgetError(
            f"the rows of {owners} workers, for {what}, do not fit",
            where=where,
            got=f"{format_bytes(max(room, 0))} in addition to the process",
            wanted=f"at least {format_bytes(needed)}",
            remedy=remedy,
        )


class Owners:
    """Owners on the workers at `addresses`, one each, under the name `key`; subclasses create them.

    silence: record of silent workers, which count as lost; None: silence is no loss.
    """

    def __init__(
        self, session: Session, key: str, addresses: Sequence[str], silence: waiting.Silence | None = None
    ) -> None:
        self.session, self.client, self.key, self.addresses = session, session.client, key, list(addresses)
        self.silence = silence

    def _submit(self, k: int, function: Callable[..., object], *arguments: object) -> Any:
        """Submit a task to the worker of share k alone, which has the slabs; it is never retried by Dask."""
        return self.client.submit(
            function, *arguments, pure=False, workers=[self.addresses[k]], allow_other_workers=False, retries=0
        )

    def _all(self, function: Callable[..., object], *arguments: object) -> list[Any]:
        """Submit the same task to every owner, as they wait for each other; return the futures."""
        return [self._submit(k, function, self.key, *arguments) for k in range(len(self.addresses))]

    def _wait(self, futures: list[Future]) -> list[Any]:
        """Return results of `futures` in order; raise StateLost as soon as one of our workers is lost.

        That is one that is gone, has forgotten its slabs or has been silent for GIVE_UP_SECONDS. Raises
        WorkersLostError where one has paused and does not begin its task (`waiting.HeldUp`).
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
        """Raise StateLost if one of our workers is gone or silent."""
        members = self.session.members()
        if gone := set(self.addresses) - set(members):
            raise StateLost(f"worker {min(gone)} is gone")
        if self.silence is not None and (silent := set(self.addresses) & set(self.silence.look(members))):
            raise StateLost(f"worker {min(silent)} does not respond")

    def _gathered(self, futures: list[Future]) -> list[Any]:
        """Return the results of futures that are done, or raise StateLost if a worker is lost meanwhile.

        Dask would schedule results that died with a worker again on that worker, which never comes back.
        """
        found = waiting.watched(
            self.session, lambda: self.client.gather(futures, asynchronous=True), self.addresses, self._look, futures
        )
        return list(found)

    def _lost(self, error: Exception) -> Exception:
        """Return the error to raise for `error`: itself, unless the cluster failed.

        Then StateLost, or WorkersLostError where the scheduler is gone.
        """
        if isinstance(error, StateLost) or not slab_worker.is_cluster_failure(error):
            return error
        try:
            self.session.require_scheduler()
        except WorkersLostError as gone:
            return gone
        return StateLost(f"lost with a worker: {type(error).__name__}: {' '.join(str(error).split())}")

    def close(self) -> None:
        """Release the slabs on all workers; ignores workers that are gone or unresponsive."""
        if self.client.status != "running":
            return
        try:
            # Sent to all at once; if one does not answer, its lease runs out, or it receives this when it continues.
            self.client.sync(
                lambda: self.client.run(slab_worker.forget, self.key, on_error="ignore"),
                callback_timeout=waiting.LOOK_AGAIN_SECONDS,
            )
        except Exception as error:
            if not slab_worker.is_cluster_failure(error):  # else no worker is left, or its lease runs out (LEASE)
                raise
