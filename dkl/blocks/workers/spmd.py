"""A function run by all workers at once, each on its part, with its history watched by this process.

The function is a solver as it runs in one process; what it sums over the parts it exchanges with the others, so that
all take the same way. On a worker it runs on a separate thread, which pauses after as many rows as this process has
allowed: in between, callbacks and limits here may end it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from dkl.blocks.session import AlignedValue, Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.blocks.workers.exchange import Exchange
from dkl.errors import MemoryBudgetError, StateLost, WorkersLostError
from dkl.resources import format_bytes

if TYPE_CHECKING:
    from distributed import Future

# State shared out over the workers of a cluster, as the client sees it: its owners and their tasks.
#
# Each owner is one object in the memory of one worker (`slab_worker`), outside Dask's bookkeeping. So a lost worker is
# not repaired in place: calls to its owner raise StateLost, and the caller makes new owners.


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
        # Without retries: the other owners would be past the step that a repeated task exchanges.
        return self.session.submit(
            function, *arguments, workers=[self.addresses[k]], allow_other_workers=False, retries=0
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


Row = dict[str, Any]


class StateSnapshot(Protocol):
    """State of a function that can be resumed: small notes, and arrays by name."""

    @property
    def notes(self) -> Any:
        """Return the notes, which are the same for all parts."""

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of this part, by name."""


class Tell(Protocol):
    """Callable that takes each row of the history; True ends the work."""

    def __call__(self, row: Row) -> bool:
        """Keep a row, wait until the next may be worked on, and return whether the work is to end."""

    def offer(self, state: Callable[[], StateSnapshot]) -> None:
        """Register a callable that returns the current state; it is valid until the next row."""


class Joint(Protocol):
    """Function that workers run together, each on its part; importable on them."""

    def __call__(self, part: Any, others: Exchange, threads: int, tell: Tell, /) -> Any:
        """Return the result for this part."""


class JointWork(Owners):
    """A run of function(part, ...) on as many workers as parts; raises StateLost as soon as one is lost.

    cut: called with the number of workers, returns at most as many callables, each of which makes a part when it is
    about to be sent: this process need not hold them all.
    """

    def __init__(
        self,
        session: Session,
        function: Joint,
        cut: Callable[[int], Sequence[Callable[[str], Any]]],
        silence: waiting.Silence,
    ) -> None:
        addresses = silence.answering(session)
        parts = cut(len(addresses))
        super().__init__(session, uuid.uuid4().hex, addresses[: len(parts)], silence)
        try:
            for index, (address, make) in enumerate(zip(self.addresses, parts, strict=True)):
                # Waited for one by one: a part is released here before the next one is made.
                sent = session.send(AlignedValue(make(address)), [address], silence=silence)
                self._wait([self._submit(index, _begin, self.key, sent, index, self.addresses, function)])
        except BaseException:
            self.close()
            raise

    def advance(self, steps: int, is_over: bool) -> tuple[list[Row], bool]:
        """Advance by at most `steps` rows; return (rows, whether it has ended). is_over: ask it to end."""
        (rows, is_done), *_ = self._wait(self._all(_more, steps, is_over))
        return rows, is_done

    def notes(self) -> tuple[Any, tuple[str, ...]]:
        """Return (notes of the current state, names of its arrays), of the first part.

        Called after an `advance` that has not ended the function.
        """
        return self._wait([self._submit(0, _notes, self.key)])[0]

    def pieces(self, name: str) -> Iterator[Any]:
        """Yield the array `name` of each part's current state, one after the other."""
        for k in range(len(self.addresses)):
            yield self._wait([self._submit(k, _piece, self.key, name)])[0]

    def results(self) -> Iterator[Any]:
        """Yield the result of each part, one after the other."""
        for k in range(len(self.addresses)):
            yield self._wait([self._submit(k, _result, self.key)])[0]


class _Turns:
    """A function on a separate thread, which waits at each row until it may continue."""

    def __init__(self, function: Joint, part: object, others: Exchange, threads: int) -> None:
        self.rows: list[Row] = []
        self.is_first = others.index == 0
        self.allowed, self.is_over, self.is_closed, self.is_done = 0, False, False, False
        self.result: Any = None
        self.state: Callable[[], StateSnapshot] | None = None
        self.snapshot: StateSnapshot | None = None
        self.error: BaseException | None = None
        self.changed = threading.Condition()
        # A daemon: a worker that shuts down must not wait for rows that no process asks for.
        self.thread = threading.Thread(
            target=self._run, args=(function, part, others, threads), name="joint work", daemon=True
        )

    def _run(self, function: Joint, part: object, others: Exchange, threads: int) -> None:
        try:
            self.result = function(part, others, threads, self)
        except BaseException as error:  # of whatever kind: it is raised where the result is asked for
            self.error = error
        with self.changed:
            self.is_done = True
            self.changed.notify_all()

    def offer(self, state: Callable[[], StateSnapshot]) -> None:
        """Register a callable that returns the current state; it is valid until the next row."""
        self.state, self.snapshot = state, None

    def current_state(self) -> StateSnapshot:
        """Return the current state of the function, which waits meanwhile; computed once a row."""
        with self.changed:
            if self.snapshot is None:
                assert self.state is not None
                self.snapshot = self.state()
            return self.snapshot

    def __call__(self, row: Row) -> bool:
        """Keep a row, wait until the next may be worked on, and return whether the work is to end."""
        with self.changed:
            self.rows.append(row)
            self.allowed -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.allowed > 0 or self.is_closed)
            self.state, self.snapshot = None, None  # they hold arrays that may be needed no more
            if self.is_closed:
                raise StateLost("this worker no longer holds its part")
            return self.is_over

    def more(self, steps: int, is_over: bool) -> tuple[list[Row], bool]:
        """Return the rows of up to `steps` steps and whether the function has ended; raises its error."""
        with self.changed:
            self.allowed, self.is_over = steps, is_over
            if not self.thread.is_alive() and not self.is_done:
                self.thread.start()
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.allowed <= 0 or self.is_done or self.is_closed)
            if self.error is not None:
                raise self.error
            if self.is_closed:
                raise StateLost("this worker no longer holds its part")
            rows, self.rows = self.rows, []
            return rows, self.is_done

    def close(self) -> None:
        """Let the thread end, without waiting."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


def _begin(key: str, part: AlignedValue, index: int, addresses: list[str], function: Joint) -> None:
    """Task: hold the part and the function to run on it, with as many threads as the worker has."""
    from distributed import get_worker

    others = Exchange(key, index, addresses)
    slab_worker.keep(key, _Turns(function, part.value, others, get_worker().state.nthreads))


def _more(key: str, steps: int, is_over: bool) -> tuple[list[Row], bool]:
    """Task: continue together with the other owners; return the rows and whether the function has ended.

    Rows are the same on all owners, so that only the first returns them.
    """
    with slab_worker.using(key) as turns:
        slab_worker.leave_the_slot()
        rows, is_done = turns.more(steps, is_over)
        return rows if turns.is_first else [], is_done


def _notes(key: str) -> tuple[Any, tuple[str, ...]]:
    """Task: return the notes of the function's state and the names of its arrays."""
    with slab_worker.using(key) as turns:
        snapshot = turns.current_state()
        return snapshot.notes, tuple(snapshot.arrays())


def _piece(key: str, name: str) -> Any:
    """Task: return the array `name` of the function's state."""
    with slab_worker.using(key) as turns:
        return turns.current_state().arrays()[name]


def _result(key: str) -> Any:
    """Task: return the result of the function."""
    with slab_worker.using(key) as turns:
        return turns.result
