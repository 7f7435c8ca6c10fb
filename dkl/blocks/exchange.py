"""Sums handed round between the workers of a run, straight from each to each.

Were a phase a task, its sums would go to the next one by way of the scheduler: several milliseconds, where a phase on
10^4 patterns takes 30. So Dask places the owners, starts some iterations at a time and notices deaths, and in between the
owners talk by a handler of their own on the workers' servers, as Dask's shuffle does.
"""

from __future__ import annotations

import threading
import time
from typing import Any

PATIENCE = 900.0
"""Seconds to wait for the others: a slow disk is no failure, and a dead worker is noticed by the driver."""
OP = "dkl_exchange"

_inboxes: dict[str, Inbox] = {}


class StateLost(RuntimeError):
    """Slabs went with a worker; the state must be rebuilt from the last commit."""


class Inbox:
    """What the other owners of a run have sent to this one, by (step, owner)."""

    def __init__(self) -> None:
        self._parts: dict[tuple[int, int], Any] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, step: int, owner: int, part: Any) -> None:
        with self._changed:
            self._parts[step, owner] = part
            self._changed.notify_all()

    def take(self, step: int, owner: int, patience: float = PATIENCE) -> Any:
        """The part, once it is there; StateLost where it will not come."""
        deadline = time.monotonic() + patience
        with self._changed:
            while (step, owner) not in self._parts:
                if self._closed or not self._changed.wait(deadline - time.monotonic()):
                    raise StateLost(f"nothing came from owner {owner} of the slabs")
            return self._parts.pop((step, owner))

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._parts.clear()
            self._changed.notify_all()


class Exchange:
    """One owner's line to the others: `addresses` of all of them in order, this one being the `index`-th."""

    def __init__(self, key: str, index: int, addresses: list[str]) -> None:
        from distributed import get_worker

        self.key, self.index, self.addresses = key, index, addresses
        self.worker, self.inbox = get_worker(), Inbox()
        self.worker.handlers[OP] = _receive
        _inboxes[key] = self.inbox

    def __call__(self, step: int, part: Any) -> list[Any]:
        """The parts of all owners at this step, in their order; returns when the others have this one's, too."""
        from distributed.utils import sync

        others = [k for k in range(len(self.addresses)) if k != self.index]
        if others:
            sync(self.worker.loop, self._send, [self.addresses[k] for k in others], step, part)
        return [part if k == self.index else self.inbox.take(step, k) for k in range(len(self.addresses))]

    async def _send(self, addresses: list[str], step: int, part: Any) -> None:
        import asyncio

        from distributed.protocol import to_serialize

        message = {"key": self.key, "step": step, "owner": self.index, "part": to_serialize(part)}
        calls = [getattr(self.worker.rpc(address), OP)(**message) for address in addresses]
        try:
            answers = await asyncio.gather(*calls)
        except OSError as error:  # distributed's own are among them
            raise StateLost(f"another owner of the slabs does not answer: {error}") from error
        if not all(answers):
            raise StateLost("another owner has forgotten its slabs")


def close_inbox(key: str) -> None:
    """End the waiting of the owner of this run, and take nothing more."""
    inbox = _inboxes.pop(key, None)
    if inbox is not None:
        inbox.close()


def _receive(key: str, step: int, owner: int, part: Any) -> bool:
    """Runs on the receiving worker's event loop."""
    inbox = _inboxes.get(key)
    if inbox is not None:
        inbox.put(step, owner, part)
    return inbox is not None
