"""Execution backends: threads of this process, or the workers of a Dask cluster.

A session offers ordered maps over a few large pieces of work, one task a worker and phase: a Dask task costs
milliseconds, so the loop over blocks belongs inside the task, not in the graph.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from dkl.blocks.workers import waiting
from dkl.blocks.workers.waiting import AdaptiveHold, Ghosts, task_key
from dkl.errors import InputError, StateLost, WorkersLostError
from dkl.resources import n_cpus

if TYPE_CHECKING:
    from typing import SupportsIndex

    from distributed import Client

    from dkl.blocks.workers.waiting import Silence
    from dkl.stores.seals import Json

Item = TypeVar("Item")
Out = TypeVar("Out")

RECONNECT_SECONDS = 10.0
"""Seconds that a scheduler whose connection broke has to answer again."""

ALL = -1
"""Number of threads that stands for all processors, as in scikit-learn."""
LEAST_THREADS, THREADS_A_CPU = 64, 8
"""Upper limits of the number of threads, on any machine and a processor; the larger one holds."""

FEW, SMALL = 8, 1_000_000
"""Workers, and bytes, of which nothing is broadcast: Dask's scheduler broadcasts one item at a time, and where a worker is lost meanwhile
it tries for half a minute to reach it, while all others wait. Of what is large Dask would give tasks to those that have it."""

ASKED_AGAIN = 3
"""Times that the scheduler is asked for its workers, where the connection breaks meanwhile."""


class Session:
    """Ordered maps on threads (client=None) or on the workers of a `distributed.Client`.

    threads: of this process; by default, or where it is -1, the processors it may run on. own: whether the workers are those that
    the command started, by --workers, which errors advise by. work: what is done, for the name of the span that Dask's dashboard and
    scheduler group its tasks by: "dkl-" and this. The session does not own the client: nothing here closes it.
    """

    def __init__(self, client: Any = None, *, threads: int | None = None, own: bool = False, work: str = "") -> None:
        self.client, self.own, self._ghosts, self._hold = client, own, Ghosts(client), AdaptiveHold(client, self)
        self.work, self._span = work, None
        self._silent: dict[str, float] = {}
        """Addresses of workers that did not respond to what was sent, and when the scheduler had last heard of each."""
        self.threads = n_cpus() if threads is None or threads == ALL else checked_threads(threads)

    @classmethod
    def find(cls, client: Any = None, *, threads: int | None = None, work: str = "") -> Session:
        """Return a session on `client`; else on the current `distributed.Client`, if any; else on threads.

        Inside a Dask task the work stays on the threads that fall to it of its worker's, unless a client is given: then the
        task gives its place on the worker to others (`distributed.secede`), as it would wait for them. No cluster is ever
        started here. Raises InputError for a client that is not one of Dask's, or is asynchronous.
        """
        if client is None:
            # First: in a task `get_client` returns the worker's own client, and the work would wait for slots that such tasks hold.
            if (of_task := _threads_of_task()) is not None:
                return cls(None, threads=of_task if threads in (None, ALL) else threads)
            client = _current_client()
        elif not hasattr(client, "submit") or not hasattr(client, "scheduler_info"):
            raise InputError(
                "not a Dask client", where="client", got=type(client).__name__, wanted="distributed.Client"
            )
        elif client.asynchronous:  # its calls give coroutines, which are not awaited here
            raise InputError(
                "an asynchronous client",
                where="client",
                got="Client(asynchronous=True), or a call from within its event loop",
                wanted="distributed.Client(address)",
            )
        elif _threads_of_task() is not None:
            from distributed import secede

            secede()
        session = cls(client, threads=threads, work=work)
        if client is not None:
            from dkl.blocks.workers.worker_checks import require_alike

            require_alike(client, session.workers())
        return session

    def here(self) -> Session:
        """Return a session on the threads of this process alone."""
        return self if self.client is None else Session(None, threads=self.threads)

    @property
    def is_distributed(self) -> bool:
        """Return whether work runs on the workers of a cluster."""
        return self.client is not None

    def workers(self) -> list[str]:
        """Return the addresses of the cluster's workers, by name, then address; empty for threads.

        The order decides who gets which piece, so it must not follow from when workers joined.
        """
        if self.client is None:
            return []
        known = self.members().items()
        return [address for _, address in sorted((str(data.get("name")), address) for address, data in known)]

    def members(self) -> dict[str, Json]:
        """Return the scheduler's data on its workers by address ("name", "nthreads", "memory_limit", ...).

        Without those that have not been heard of since they did not respond. Asked of the scheduler itself:
        `client.scheduler_info()` answers from a cache that the client's own heartbeat replaces, now and then, by one without
        any worker. Raises WorkersLostError where the scheduler is gone.
        """
        for _ in range(ASKED_AGAIN):
            self.require_scheduler()
            try:
                found: dict[str, Json] = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
                ghosts = self._ghosts.among(found)
                known = self._silent.items()
                self._silent = {a: seen for a, seen in known if a in found and found[a]["last_seen"] == seen}
                out = ghosts | self._silent.keys()
                members = {address: member for address, member in found.items() if address not in out}
                self._hold.keep(len(members))
                return members
            except OSError:  # the connection broke in between: Dask reconnects, or the scheduler is gone
                continue
        raise _no_scheduler()

    @property
    def n_slots(self) -> int:
        """Return how many pieces of work run at a time: the number of threads, or of workers (1 at least)."""
        return self.threads if self.client is None else max(1, len(self.workers()))

    @property
    def most_threads(self) -> int:
        """Return the threads of this process, or the most that any worker has."""
        if self.client is None:
            return self.threads
        return max((int(member["nthreads"]) for member in self.members().values()), default=1)

    def map(self, function: Callable[..., Out], items: Iterable[Item], *shared: object) -> list[Out]:
        """Return [function(item, *shared) for item in items], in order, spread over the slots.

        `function` must be importable on the workers and keep no state: a lost worker has its items run again. Raises
        WorkersLostError where there is no worker, all have paused or the scheduler is gone, and whatever `function` raised.
        """
        pieces: Sequence[Item] = list(items)
        if self.client is None:
            if len(pieces) <= 1 or self.threads == 1:
                return [function(piece, *shared) for piece in pieces]
            with ThreadPoolExecutor(self.threads) as pool:
                return list(pool.map(lambda piece: function(piece, *shared), pieces))
        waiting.workers(self)
        # Not pinned: Dask never again looks at a pinned task whose worker died as the last one.
        futures = [self.submit(function, piece, *shared) for piece in pieces]
        try:
            return waiting.gather(self, futures)
        except CancelledError:
            self.require_scheduler()
            raise

    def submit(
        self,
        function: Callable[..., object],
        *arguments: object,
        named: Callable[..., object] | None = None,
        **how: object,
    ) -> Any:
        """Submit function(*arguments) to the cluster, in the session's span, and return its future.

        named: the function that the task's key has the name of, by default `function`. how: as in `Client.submit`.
        """
        if self._silent and "workers" not in how:
            # Dask would give tasks to those that do not respond, and wait for them. Not pinned; see `map`.
            how |= {"workers": waiting.workers(self), "allow_other_workers": True}
        with self.span():
            return self.client.submit(function, *arguments, key=self.key(named or function), **how)

    def key(self, function: Callable[..., object]) -> str:
        """Return a new task key that names the session's learner and `function`.

        By learner, because Dask counts all tasks of one name to one span.
        """
        return task_key(function, self.work.partition("-")[0])

    @contextmanager
    def span(self) -> Iterator[None]:
        """Have tasks that are submitted within belong to the session's span, inside of one of the caller's."""
        import dask

        if self._span is None:  # one for all tasks: each time that `distributed.span` is entered begins another
            from distributed import span

            with span(f"dkl-{self.work}" if self.work else "dkl"):
                self._span = dask.get_annotations()["span"]
        with dask.annotate(span=self._span):
            yield

    def send(
        self,
        item: object,
        workers: Sequence[str] | None = None,
        *,
        pinned: bool = False,
        silence: Silence | None = None,
    ) -> Any:
        """Copy `item` to one of `workers`, or to all; return its future, which is lost with them.

        What is small, or goes to `pinned` tasks alone, is copied to one of few that takes tasks: the others fetch it
        with their first task that takes it. Raises WorkersLostError where there are no workers or all of these have
        paused, and StateLost where the transfer fails: a worker that dies meanwhile is reported by the worker, the
        scheduler or the connection, each with different errors (among them a KeyError), and sending it again is the
        answer to all. What cannot be sent at all raises what it did (TypeError, AttributeError, MemoryError).

        silence: record of silent workers of the caller's, who then leaves them out (`Silence.answering`). Such workers count as
        lost, and are left out of this session until they are heard of again.
        """
        to = set(waiting.workers(self) if workers is None else workers)  # a cluster may have let all of them go
        silence = silence or waiting.Silence()
        how: Json = {"workers": list(workers or (to if self._silent else ())) or None}
        is_wide = workers is None and (len(to) > FEW or (not pinned and _is_large(item)))
        # The scheduler broadcasts one item at a time: a broadcast to a worker that does not respond holds up all that follow.
        how["broadcast"] = is_wide and not self._silent

        began = time.monotonic()

        def look() -> None:
            members = self.members()
            if gone := to - set(members):
                raise StateLost(f"worker {min(gone)} is gone")
            if silent := to & set(silence.look(members)):
                self._silent = {**self._silent, **{address: members[address]["last_seen"] for address in silent}}
                raise StateLost(f"worker {min(silent)} does not respond")
            paused = sorted(address for address in to if members[address].get("status") == "paused")
            if len(paused) == len(to) and (since := time.monotonic() - began) >= waiting.GIVE_UP_SECONDS:
                raise waiting.paused_error(self, paused, since)  # Dask sends such a worker nothing, and gives up later

        try:
            # hash=False, a new key each time: by content, what is sent again would have the key of the copy that was lost.
            return waiting.watched(
                self, lambda: self.client.scatter(item, hash=False, asynchronous=True, **how), to, look
            )
        except (TypeError, AttributeError, MemoryError):
            raise
        except Exception as error:
            self.require_scheduler()
            if isinstance(error, (StateLost, WorkersLostError)):
                raise
            raise StateLost(f"a worker was lost while it was sent to: {type(error).__name__}: {error}") from error

    def more_workers(self) -> str:
        """Return the remedy where workers are gone: those that we started died, and are not the user's to add."""
        again = "then try again, or `dkl resume` the run if there is one"
        return f"{self.more_memory()}, {again}" if self.own else f"start workers, {again}"

    def more_memory(self) -> str:
        """Return the advice on giving the workers more memory."""
        if self.own:
            return "give each worker more memory (a higher --memory-limit, or fewer --workers)"
        return "give workers more memory"

    def require_scheduler(self) -> None:
        """Raise WorkersLostError if the scheduler is gone, RECONNECT_SECONDS after its connection broke."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while self.client.status == "connecting" and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.client.status != "running":
            raise _no_scheduler()


def _is_large(item: object) -> bool:
    from dask.sizeof import sizeof

    return bool(sizeof(item) > SMALL)


def _current_client() -> Client | None:
    """Return the current `distributed.Client`, or None."""
    import sys

    # There can only be one if somebody has imported distributed.
    if "distributed" not in sys.modules:
        return None
    from distributed import get_client

    try:
        client = get_client()
    except ValueError:
        return None
    return None if client.asynchronous else client  # of no use to calls that wait


def _threads_of_task() -> int | None:
    """Return the threads of a task's worker, shared with its tasks now; None outside of tasks."""
    import sys

    if "distributed" not in sys.modules:
        return None
    from distributed import get_worker

    try:
        state = get_worker().state
    except ValueError:
        return None
    # The count leaves out tasks that have seceded, so it may be 0.
    return max(1, int(state.nthreads) // max(1, int(state.executing_count)))


def checked_threads(threads: int, where: str = "n_jobs") -> int:
    """Return `threads`; raise InputError, which names the argument `where`, for far more than there are processors.

    Each takes memory and a place in the system's tables, and none makes anything faster.
    """
    most = max(LEAST_THREADS, THREADS_A_CPU * n_cpus())
    if threads > most:
        got, wanted = f"{threads} on {n_cpus()} processors", f"at most {most}"
        raise InputError(
            "too many threads", where=where, got=got, wanted=wanted, remedy="leave it out: one a processor"
        )
    return threads


def _no_scheduler() -> WorkersLostError:
    remedy = "start a scheduler and workers, then try again, or `dkl resume` the run if there is one"
    return WorkersLostError("the scheduler is gone", where="client", remedy=remedy)


# -- values sent -------------------------------------------------------------------------------------------------------
# Values whose arrays are aligned in whatever process they arrive.
# What comes over a network may lie at any address: NumPy and compiled loops then take other paths, and the last bits differ from
# those of the process that sent it.

ALIGNMENT = 16
"""Alignment in bytes, as malloc gives it."""


class AlignedValue:
    """`value`, to be sent to another process: there its buffers are copied, but only those that are not aligned."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        from distributed.protocol import pickle  # which knows classes of a user's session

        # Buffers are kept apart from the pickle, and so are not copied here; before protocol 5, which Dask does without
        # in places, they are within it, and arrays made of them have new memory.
        buffers: list[Any] = []
        options = {"buffer_callback": buffers.append} if int(protocol) >= 5 else {}
        return _received, (pickle.dumps(self.value, **options), *buffers)


def _received(pickled: bytes, *buffers: object) -> AlignedValue:
    """Unpickle the value where it arrives, with aligned buffers."""
    from distributed.protocol import pickle

    return AlignedValue(pickle.loads(pickled, buffers=[_aligned(buffer) for buffer in buffers]))


def _aligned(buffer: Any) -> Any:
    """Return the buffer, or a copy of it if it is not aligned."""
    raw = np.frombuffer(buffer, dtype=np.uint8)
    return raw.copy() if raw.ctypes.data % ALIGNMENT else buffer


def require_sendable(value: object, where: str) -> None:
    """Raise InputError for a value that cannot be sent to workers, as it holds a lock, an open file or a connection."""
    from distributed.protocol import pickle

    try:
        pickle.dumps(value)
    except Exception as error:  # of any kind: objects may say themselves how they are pickled
        got, remedy = (
            f"{type(error).__name__}: {error}",
            "leave out what pickle does not store, or fit without a client",
        )
        raise InputError("cannot be sent to workers", where=where, got=got, remedy=remedy) from error
