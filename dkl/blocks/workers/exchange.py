"""Sums passed between the workers of a run, from each to each.

Were a phase a Dask task, its sums would reach the next one through the scheduler: several milliseconds, where a phase on
10^4 patterns takes 30. So Dask places the owners, starts some iterations at a time and notices deaths, and in between the
owners send by a handler of their own on the workers' servers, as Dask's shuffle does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from dkl.blocks.workers import waiting
from dkl.errors import InputError, StateLost
from dkl.resources import EXCHANGE, spending

TAKE_SECONDS = 900.0
"""Seconds to wait for another owner: a slow disk is no failure; the driver sees a dead worker sooner."""
ASK_SECONDS = 1.0
"""Seconds to wait for a part before its owner is asked whether it still has the run, and between two such questions."""
OP = "dkl_exchange"
"""Name of our handler among the worker's own."""
QUESTION = -1
"""The step of a message without a part: of a question."""

_inboxes: dict[str, Inbox] = {}


class Inbox:
    """Parts that the other owners of a run have sent to this one, by (step, owner).

    Written by the worker's event loop, read by the thread that iterates; hence the lock.
    """

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._parts: dict[tuple[int, int], Any] = {}
        self._changed = threading.Condition()
        self._closed = False

    def put(self, step: int, owner: int, part: object) -> None:
        """Store the part that `owner` has sent for `step`, and wake the thread that waits for it.

        A part may come before it is asked for: owners run ahead of each other by up to one phase.
        """
        with self._changed:
            self._parts[step, owner] = part
            self._changed.notify_all()

    def take(self, step: int, owner: int, ask: Callable[[], None], timeout: float = TAKE_SECONDS) -> Any:
        """Wait for the part of `owner` for `step`, and return it; it is removed.

        ask: called every ASK_SECONDS until then, and may raise. Raises StateLost where the inbox is closed meanwhile, or nothing
        comes within `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._changed:
                self._changed.wait_for(lambda: (step, owner) in self._parts or self._closed, ASK_SECONDS)
                if (step, owner) in self._parts:
                    return self._parts.pop((step, owner))
                if self._closed or time.monotonic() > deadline:
                    raise StateLost(f"nothing came from owner {owner} of the slabs")
            ask()

    def close(self) -> None:
        """Drop all parts and end the waiting in `take` with StateLost."""
        with self._changed:
            self._closed = True
            self._parts.clear()
            self._changed.notify_all()


class Exchange:
    """Connection of one owner, the `index`-th of all `addresses`, to the others.

    `key` names the run, as several may share a worker. Must be made inside a task of the worker. InputError where another owner
    has been made in this process.
    """

    def __init__(self, key: str, index: int, addresses: list[str]) -> None:
        from distributed import get_worker

        self.key, self.index, self.addresses = key, index, addresses
        if key in _inboxes and _inboxes[key].index != index:
            # State is found by the run's key in a process: of two owners each would wait for ever.
            remedy = "start workers as processes: LocalCluster(processes=True)"
            raise InputError("several workers in one process", where="client", remedy=remedy)
        self.worker, self.inbox = get_worker(), Inbox(index)
        # Registering again for each run is harmless: the handler finds the inbox by the run's key.
        self.worker.handlers[OP] = _receive
        _inboxes[key] = self.inbox

    def __call__(self, step: int, part: Any) -> list[Any]:
        """Exchange parts: send this owner's to all, and return those of all at this step, in their order.

        In their order, not as they arrive: sums over them must not depend on the network. Raises StateLost where the part of another
        owner is waited for that does not answer within waiting.GIVE_UP_SECONDS, or no longer knows the run. `part` is not to be
        changed until the others' parts of a later step are here, which says that they have it.
        """
        # All sends at once, then all receives: owners that waited for each other's sends one by one would add up latencies.
        others = [k for k in range(len(self.addresses)) if k != self.index]
        with spending(EXCHANGE):
            self._send_all(step, dict.fromkeys(others, part))
            return [part if k == self.index else self._take(step, k) for k in range(len(self.addresses))]

    def swap(self, step: int, parts: dict[int, Any]) -> dict[int, Any]:
        """Send each owner in `parts` its part at this step, and return theirs. Raises as a call does."""
        with spending(EXCHANGE):
            self._send_all(step, parts)
            return {k: self._take(step, k) for k in parts}

    def _take(self, step: int, owner: int) -> Any:
        """Return the part of `owner` for this step; if it is late, ask the owner whether it still has the run."""
        from distributed.utils import sync

        return self.inbox.take(step, owner, lambda: sync(self.worker.loop, self._send, QUESTION, {owner: None}))

    def _send_all(self, step: int, parts: dict[int, object]) -> None:
        """Send each owner its part, all at once, without a reply.

        An owner's next part says that it has this one, for half the messages.
        """
        from distributed.utils import sync

        if parts:
            sync(self.worker.loop, self._send, step, parts, False)

    async def _send(self, step: int, parts: dict[int, Any], reply: bool = True) -> None:
        """Send the parts to their owners at once, which answer if they are asked for a `reply`; on the worker's event loop."""
        import asyncio

        from distributed.protocol import to_serialize

        # to_serialize: arrays travel as raw frames, without a copy into msgpack.
        message = {"key": self.key, "step": step, "owner": self.index, "reply": reply}
        calls = {
            asyncio.ensure_future(
                getattr(self.worker.rpc(self.addresses[k]), OP)(**message, part=to_serialize(part))
            ): k
            for k, part in parts.items()
        }
        # Not `wait_for`, which waits for what it has cancelled: that for a connection whose other end takes nothing.
        done, late = await asyncio.wait(calls, timeout=waiting.GIVE_UP_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
        for call in late:
            call.cancel()
        for error in filter(None, [call.exception() for call in done]):
            if isinstance(error, OSError):  # distributed's own are among them
                raise StateLost(f"another owner of the slabs does not answer: {error}") from error
            raise error
        if late:
            silent = min(calls[call] for call in late)
            raise StateLost(f"owner {silent} of the slabs takes nothing: {waiting.GIVE_UP_SECONDS:g} s")
        if reply and not all(call.result() for call in done):
            raise StateLost("another owner has forgotten its slabs")


def close_inbox(key: str) -> None:
    """Close the inbox of run `key` on this worker: its owner stops waiting, and later parts are refused."""
    inbox = _inboxes.pop(key, None)
    if inbox is not None:
        inbox.close()


def _receive(key: str, step: int, owner: int, part: object) -> bool:
    """Store a received part, on the worker's event loop; return False if the run is unknown here."""
    # A late part of a run that is closed here is not an error of this worker's, but its sender must know: when it asks.
    inbox = _inboxes.get(key)
    if inbox is not None and step != QUESTION:
        inbox.put(step, owner, part)
    return inbox is not None
