"""One function that all workers run at a time, each on its part, while this process watches the rows of its history.

The function is a solver as it runs in one process; what it sums over the parts it exchanges with the others, so that all take the same way.
On a worker it runs on a thread of its own, which stands still after as many rows as this process has allowed: in between,
callbacks and limits here may end it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from dkl.blocks import slab_worker, waiting
from dkl.blocks.aligned import Aligned
from dkl.blocks.exchange import Exchange
from dkl.blocks.owners import Owners
from dkl.blocks.session import Session
from dkl.errors import StateLost

Row = dict[str, Any]


class Told(Protocol):
    """Where a function stands: small notes, and arrays by name."""

    @property
    def notes(self) -> Any:
        """The same for all parts."""

    def arrays(self) -> dict[str, Any]:
        """Of this part."""


class Tell(Protocol):
    """To be called with each row of the history; True ends the work."""

    def __call__(self, row: Row) -> bool:
        """Keep a row, and wait until the next one may be worked on. Whether that is over."""

    def offer(self, state: Callable[[], Told]) -> None:
        """What tells where the function stands, for whoever asks during the next row."""


class Joint(Protocol):
    """What workers run together; importable on them."""

    def __call__(self, part: Any, others: Exchange, threads: int, tell: Tell, /) -> Any:
        """The result for this part."""


class JointWork(Owners):
    """function(part, ...) on as many workers as there are parts. Raises StateLost where one is lost, from its making on.

    cut: makes the parts for so many workers at most, each when it is about to be sent, as this process need not hold them all.
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
                sent = session.send(Aligned(make(address)), [address])
                self._wait([self._submit(index, _begin, self.key, sent, index, self.addresses, function)])
        except BaseException:
            self.close()
            raise

    def advance(self, steps: int, is_over: bool) -> tuple[list[Row], bool]:
        """(rows, whether it has ended) after so many rows more at most; is_over: what the next row is to be answered."""
        (rows, is_done), *_ = self._wait(self._all(_more, steps, is_over))
        return rows, is_done

    def notes(self) -> tuple[Any, tuple[str, ...]]:
        """(the first part's notes on where it stands, the names of its arrays), after an `advance` that has not ended it."""
        return self._wait([self._submit(0, _notes, self.key)])[0]

    def pieces(self, name: str) -> Iterator[Any]:
        """An array of where each part stands, one after the other."""
        for k in range(len(self.addresses)):
            yield self._wait([self._submit(k, _piece, self.key, name)])[0]

    def results(self) -> Iterator[Any]:
        """The result of each part, one after the other."""
        for k in range(len(self.addresses)):
            yield self._wait([self._submit(k, _result, self.key)])[0]


class _Turns:
    """A function on a thread of its own, which waits in `tell` for leave to go on."""

    def __init__(self, function: Joint, part: Any, others: Exchange, threads: int) -> None:
        self.rows: list[Row] = []
        self.is_first = others.index == 0
        self.allowed, self.is_over, self.is_closed, self.is_done = 0, False, False, False
        self.result: Any = None
        self.state: Callable[[], Told] | None = None
        self.told: Told | None = None
        self.error: BaseException | None = None
        self.changed = threading.Condition()
        self.thread = threading.Thread(
            target=self._run, args=(function, part, others, threads), name="joint work", daemon=True
        )

    def _run(self, function: Joint, part: Any, others: Exchange, threads: int) -> None:
        try:
            self.result = function(part, others, threads, self)
        except BaseException as error:  # of whatever kind: it is raised where the result is asked for
            self.error = error
        with self.changed:
            self.is_done = True
            self.changed.notify_all()

    def offer(self, state: Callable[[], Told]) -> None:
        """See `Tell`."""
        self.state, self.told = state, None

    def stands(self) -> Told:
        """Where the function stands, which waits meanwhile; asked for once a row."""
        with self.changed:
            if self.told is None:
                assert self.state is not None
                self.told = self.state()
            return self.told

    def __call__(self, row: Row) -> bool:
        """See `Tell`."""
        with self.changed:
            self.rows.append(row)
            self.allowed -= 1
            self.changed.notify_all()
            self.changed.wait_for(lambda: self.allowed > 0 or self.is_closed)
            self.state, self.told = None, None  # they hold arrays that may be needed no more
            if self.is_closed:
                raise StateLost("this worker no longer holds its part")
            return self.is_over

    def more(self, steps: int, is_over: bool) -> tuple[list[Row], bool]:
        """The rows of so many steps, and whether these were the last; raises what the function did."""
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


def _begin(key: str, part: Aligned, index: int, addresses: list[str], function: Joint) -> None:
    """Task: hold the part, and what is to be done with it, with as many threads as the worker has."""
    from distributed import get_worker

    others = Exchange(key, index, addresses)
    slab_worker.keep(key, _Turns(function, part.value, others, get_worker().state.nthreads))


def _more(key: str, steps: int, is_over: bool) -> tuple[list[Row], bool]:
    """Task: go on, together with the other owners. Rows are the same on all of them, and the first one's are read."""
    with slab_worker.using(key) as turns:
        slab_worker.leave_the_slot()
        rows, is_done = turns.more(steps, is_over)
        return rows if turns.is_first else [], is_done


def _notes(key: str) -> tuple[Any, tuple[str, ...]]:
    """Task: of where the function stands, and the names of its arrays."""
    with slab_worker.using(key) as turns:
        told = turns.stands()
        return told.notes, tuple(told.arrays())


def _piece(key: str, name: str) -> Any:
    """Task: an array of where the function stands."""
    with slab_worker.using(key) as turns:
        return turns.stands().arrays()[name]


def _result(key: str) -> Any:
    """Task: what the function returned."""
    with slab_worker.using(key) as turns:
        return turns.result
