"""Choice of the process for dense work: the worker with the most free memory, or this one.

A dense factorization is not cut over workers: one of them takes it, with as many BLAS threads as it owns, or with one where
its matrices are small. Which one is chosen by what each has free now, so that work goes where it fits, and again to another
where that worker is lost.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from dkl.blocks.memory_plan import WORKER_SHARE
from dkl.blocks.session import AlignedValue, Session
from dkl.blocks.workers import waiting
from dkl.errors import StateLost, WorkersLostError
from dkl.resources import blas_controller, blas_thread_count, format_bytes, one_blas_thread

if TYPE_CHECKING:
    from distributed import Future

    from dkl.blocks.session import Out
    from dkl.stores.seals import Json

HERE = "this process"
"""Name of the process that made the call of `fit`, in results."""
SHARED_ROWS = 4000
"""Number of rows of a square matrix from which on BLAS shares it among its threads.

These wait for each other by spinning, hundreds of times in a factorization: where another process keeps one processor
busy, each wait is one for the scheduler. Of 1,700 rows two threads took 3 to 30 times as long as one next to two busy
processes. Of 2,007, with nothing else running, they save a quarter of the time of a factorization with its inverse, and
spin on after it: figure 2's path of LogDet kernels took 28.3 s by two and 24.7 s by one."""


@dataclass(frozen=True)
class DensePlace:
    """Place of dense work: a worker's address, or None for this process.

    threads: of BLAS there. limit: bytes it may use there, None for this process'.
    """

    worker: str | None
    threads: int
    limit: int | None = None

    @property
    def text(self) -> str:
        """Return the place in words: "this process", or "worker tcp://10.0.0.7:4000 (2.0 GB)", with what it may use."""
        if self.worker is None:
            return HERE
        return f"worker {self.worker}" + (f" ({format_bytes(self.limit)})" if self.limit else "")

    def for_rows(self, rows: int) -> Self:
        """Return the place with one thread if square matrices of `rows` rows are too small to share."""
        return self if rows >= SHARED_ROWS else replace(self, threads=1)


def dense_place(session: Session, needed: int, memory_limit: int | None) -> DensePlace:
    """Choose where `needed` bytes fit: the worker that may use the most memory, or else this process.

    needed: includes a process with its libraries. If no worker can hold it the place is this process, without a check:
    the caller compares its plan with `memory_limit`.
    """
    if not session.is_distributed:
        return DensePlace(None, session.threads)
    if not session.own:  # of our own we know how many will come
        waiting.workers(session)
    members = session.members()
    # `workers` asks the scheduler again, by when one more may have joined.
    known = [worker for worker in session.workers() if worker in members]
    found = [(_allowed(members[worker], memory_limit), worker) for worker in known]
    fitting = [(allowed, worker) for allowed, worker in found if allowed is None or allowed >= needed]
    if not fitting:
        return DensePlace(None, session.threads)
    # Of workers that have as much the first: their order is fixed.
    allowed, worker = max(fitting, key=lambda one: float("inf") if one[0] is None else one[0])
    return DensePlace(worker, max(1, int(members[worker]["nthreads"])), allowed)


def dense_places(
    session: Session, needed: Mapping[str, int], memory_limit: int | None
) -> Iterator[tuple[str, DensePlace]]:
    """Yield (method, place) in the order in which they are to be tried: each method on a worker that holds it, then here.

    needed: bytes of each method, the preferred one first, as of `dense_place`.
    """
    if session.is_distributed:
        found = ((method, dense_place(session, size, memory_limit)) for method, size in needed.items())
        yield from ((method, place) for method, place in found if place.worker is not None)
    yield from ((method, DensePlace(None, session.threads)) for method in needed)


def no_room(needed: Mapping[str, int]) -> str:
    """Return the reason why workers stay idle where none of them holds the least of what methods need."""
    return f"none of them has room for {format_bytes(min(needed.values()))}, and this process does the work"


def _allowed(member: Json, memory_limit: int | None) -> int | None:
    """Return the bytes a worker's process may use, without what Dask holds there; None without a limit."""
    limit = member.get("memory_limit")
    managed = int(((member.get("metrics") or {}).get("managed_bytes")) or 0)
    share = int(WORKER_SHARE * limit) - managed if limit else None
    return min((value for value in (memory_limit, share) if value is not None), default=None)


@contextmanager
def blas_threads(count: int, *, raising: bool = False) -> Iterator[None]:
    """Limit BLAS, within, to `count` threads, and to no more than before, as the user's environment says.

    raising: more than before, on a worker, whose nanny has set one thread for tasks that share it. Several threads at a
    time may ask for one, but not for more.
    """
    if count == 1 and not raising:
        with one_blas_thread():
            yield
        return
    limits = count if raising else min(count, blas_thread_count())
    with blas_controller().limit(limits=limits, user_api="blas"):
        yield


def blas_threads_for(rows: int) -> AbstractContextManager[None]:
    """Limit BLAS to one thread, within, if square matrices of `rows` rows are small; else change nothing."""
    return nullcontext() if rows >= SHARED_ROWS else one_blas_thread()


class DenseWork:
    """Calls of functions in one place, on data that is sent there once: function(data, *arguments).

    Functions must be importable on workers and keep no state. The call of a worker that is lost is repeated elsewhere:
    `choose` says where, and its MemoryBudgetError is raised where it fits nowhere else.
    """

    def __init__(self, session: Session, data: Any, place: DensePlace, choose: Callable[[], DensePlace]) -> None:
        self.session, self.data, self.place, self._choose = session, data, place, choose
        self._sent: Any = None

    @property
    def is_here(self) -> bool:
        """Return whether the work is done by this process."""
        return self.place.worker is None

    def call(self, function: Callable[..., Out], *arguments: object) -> Out:
        """Return function(data, *arguments), computed there.

        Raises WorkersLostError where workers are lost in each of `waiting.attempts()`.
        """
        return self._anywhere(function, arguments, None)

    def follow(self, follower: Follower, function: Callable[..., Out], *arguments: object) -> Out:
        """Return function(data, report, *arguments), computed there; the follower shows here each row given to `report`."""
        return self._anywhere(function, arguments, follower)

    def _anywhere(self, function: Callable[..., Out], arguments: Sequence[object], follower: Follower | None) -> Out:
        for attempt in waiting.attempts():
            if attempt:
                self.place, self._sent = self._choose(), None
            if self.is_here:
                with blas_threads(self.place.threads):
                    report = () if follower is None else (follower.show,)
                    return function(self.data, *report, *arguments)
            try:
                return self._on_worker(function, arguments, follower)
            except (CancelledError, StateLost):
                continue
            except Exception as error:
                if type(error).__name__ != "KilledWorker":  # distributed is not imported where there is no cluster
                    raise
                remedy = self.session.more_memory()
                raise WorkersLostError("several workers died in one task", where=str(error), remedy=remedy) from error
        raise AssertionError("waiting.attempts() ends with WorkersLostError")

    def _on_worker(
        self, function: Callable[..., Out], arguments: Sequence[object], follower: Follower | None = None
    ) -> Out:
        worker = self.place.worker
        assert worker is not None
        if worker not in self.session.workers():
            raise StateLost("the worker that was chosen is gone")
        if self._sent is None:
            self._sent = self.session.send(AlignedValue(self.data), [worker])
        given = function, self._sent, self.place.threads, AlignedValue(arguments)
        if follower is None:
            task = self.session.submit(_called, *given, named=function, workers=[worker])
        else:
            how = follower.token, follower.waits, follower.seen, follower.answer
            task = self.session.submit(_followed, *given, *how, named=function, workers=[worker])
            follower.until_done(self.session, task, worker)
        (found,) = waiting.gather(self.session, [task], [self._sent])
        if follower is None:
            return found.value
        out, rows = found.value
        follower.take(rows[follower.seen :])
        return out


def _called(function: Callable[..., object], data: AlignedValue, threads: int, arguments: AlignedValue) -> AlignedValue:
    """Make the call on a worker."""
    with blas_threads(threads, raising=True):
        return AlignedValue(function(data.value, *arguments.value))


def _followed(
    function: Callable[..., object], data: AlignedValue, threads: int, arguments: AlignedValue, token: str, *how: Any
) -> AlignedValue:
    """Make the call on a worker, and return its rows, too. how: as of `CallRows`."""
    with KeptCall(token, *how) as kept, blas_threads(threads, raising=True):
        return AlignedValue((function(data.value, kept.report, *arguments.value), kept.rows))


# -- rows reported from there ------------------------------------------------------------------------------------------
# Rows that a function reports while it runs on a worker, shown here as they come.
# The process that waits asks for them now and then, and answers. A function whose rows may each end it (`waits`) continues once its
# row is answered: so it takes the steps that it would take here.

Answer = str | None
"""Reason why a function is to end, in its caller's words; None where it is to continue."""
ReportRow = Callable[[Any], Answer]
"""Function that a step's row is given to, and that answers."""

ASK_SECONDS, ASK_PASSIVE_SECONDS = 0.01, 0.2
"""Seconds between two questions for rows, where a function waits for answers and where it does not."""
LOOK_SECONDS = 1.0
"""Seconds after which a function that waits for an answer checks that the result is still waited for."""
CANCELLED = "cancelled"
"""Answer where the result is no longer waited for."""


@dataclass
class Follower:
    """Reader of a call's rows: `show` is called with each, once and in order, whatever the number of attempts.

    answer: to the last row, or to all where the call is to end as it begins; waits: whether each row may end it.
    """

    show: ReportRow
    waits: bool = False
    answer: Answer = None
    seen: int = 0
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def take(self, rows: list[Any]) -> None:
        """Show rows that follow those seen."""
        for row in rows:
            self.seen += 1
            self.answer = self.show(row)

    def until_done(self, session: Session, task: Future, worker: str) -> None:
        """Show rows as they come, until the task has ended or its worker is gone. Cancels it where this is interrupted."""
        seconds = ASK_SECONDS if self.waits else ASK_PASSIVE_SECONDS
        pause = seconds
        try:
            while not waiting.all_done(session.client, [task], pause) and worker in session.workers():
                given = self.token, self.seen, self.answer
                # A worker lost in the meantime is no error of this call: the loop's condition notices it.
                rows = session.client.run(rows_of, *given, workers=[worker], on_error="ignore").get(worker)
                self.take(rows or [])
                pause = 0.0 if rows and self.waits else seconds  # it is answered at once
        except BaseException:
            # At Ctrl-C, too: the worker would compute what is not waited for.
            session.client.cancel([task])
            raise


class CallRows:
    """Rows of a call under way on a worker, and the last answer."""

    def __init__(self, waits: bool, seen: int, answer: Answer) -> None:
        """Begin a call; seen: rows of an attempt before, the last of which had this answer."""
        self.rows: list[Any] = []
        self._waits, self._answered, self._answer = waits, seen, answer
        self._changed = threading.Condition()

    def report(self, row: Any) -> Answer:
        """Keep a row; return the answer to it, or to one before."""
        with self._changed:
            self.rows.append(row)
            while self._waits and self._answer is None and self._answered < len(self.rows):
                if _is_cancelled():
                    return CANCELLED
                self._changed.wait(LOOK_SECONDS)
            if self._answered > len(self.rows):  # rows of an attempt before, which continued
                return None
            return CANCELLED if _is_cancelled() else self._answer

    def after(self, seen: int, answer: Answer) -> list[Any]:
        """Return the rows after the first `seen`, which are answered."""
        with self._changed:
            self._answered, self._answer = seen, answer
            self._changed.notify_all()
            return self.rows[seen:]


_CALLS: dict[str, CallRows] = {}
"""Calls under way in this process, by their tokens."""


def rows_of(token: str, seen: int, answer: Answer) -> list[Any]:
    """Return the rows of a call after the first `seen`, and answer these; [] where it is not under way here."""
    kept = _CALLS.get(token)
    return [] if kept is None else kept.after(seen, answer)


class KeptCall:
    """A call's rows, under their token while it is entered."""

    def __init__(self, token: str, *how: Any) -> None:
        self.token, self.kept = token, CallRows(*how)

    def __enter__(self) -> CallRows:
        _CALLS[self.token] = self.kept
        return self.kept

    def __exit__(self, *error: object) -> None:
        _CALLS.pop(self.token, None)


def _is_cancelled() -> bool:
    """Return whether the result of this thread's task is wanted no more; False outside of tasks."""
    from distributed import get_worker

    try:
        # Dask interrupts no thread: the function of a cancelled task runs on unless it asks.
        worker = get_worker()
        task = worker.state.tasks.get(worker.get_current_task())
    except (ValueError, AttributeError):
        return False
    return task is None or task.state == "cancelled"
