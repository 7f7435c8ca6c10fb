"""A function run by all workers at once, each on its part, with its history watched by this process.

The function is a solver as it runs in one process; what it sums over the parts it exchanges with the others, so that
all take the same way. On a worker it runs on a separate thread, which pauses after as many rows as this process has
allowed: in between, callbacks and limits here may end it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.blocks.workers.aligned import AlignedValue
from dkl.blocks.workers.exchange import Exchange
from dkl.blocks.workers.owners import Owners
from dkl.errors import StateLost

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
                sent = session.send(AlignedValue(make(address)), [address])
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

    def stands(self) -> StateSnapshot:
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
        snapshot = turns.stands()
        return snapshot.notes, tuple(snapshot.arrays())


def _piece(key: str, name: str) -> Any:
    """Task: return the array `name` of the function's state."""
    with slab_worker.using(key) as turns:
        return turns.stands().arrays()[name]


def _result(key: str) -> Any:
    """Task: what the function returned."""
    with slab_worker.using(key) as turns:
        return turns.result
