"""Waiting for workers and futures, but not for ever.

When the last worker of a cluster dies, Dask sets aside the tasks that are pinned to workers. It only looks at them again
when a worker with the old address comes back, even where other workers were allowed: such tasks would never run.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent import futures as concurrent
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, finalize

from dkl.errors import WorkersLostError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from distributed import Adaptive, Client, Future

    from dkl.blocks.session import Out, Session
    from dkl.stores.seals import Json

LOG = logging.getLogger("dkl")

LOOK_SECONDS, MOST_LOOK_SECONDS = 0.05, 0.5
"""Seconds between two looks at which workers are there, while certain workers' results are waited for.

At first, for up to ten workers; and at most, for a hundred and more, or after ten seconds. The answer takes the
scheduler 0.5 ms, and 0.04 for each worker."""
LOOK_AGAIN_SECONDS = 5.0
"""Seconds after which `gather` asks the scheduler again whether its tasks can still run."""
GIVE_UP_SECONDS = 25.0
"""Seconds that a cluster may be without any worker: with a look more, half a minute until the end."""
RESEND_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Seconds before each further attempt at a pass whose rows were lost.

They grow, for a busy scheduler may notice a worker's end only after seconds: until then it names that worker, and
whatever is sent there fails at once."""


def attempts(reached: Callable[[], object] = lambda: None) -> Iterator[int]:
    """Yield 0, 1, ... for each attempt at work that lost workers break, with RESEND_PAUSES between.

    reached: what the next attempt would continue from. Where it has changed since the last attempt, the work gets on, and losses
    are counted from one again: it may lose any number of workers. Raises WorkersLostError when there have been enough.
    """
    before, in_a_row = reached(), 0
    for attempt in itertools.count():
        yield attempt
        now = reached()
        in_a_row = in_a_row + 1 if now == before else 1
        if in_a_row > len(RESEND_PAUSES):
            break
        before = now
        time.sleep(RESEND_PAUSES[in_a_row - 1])
    raise WorkersLostError(
        "workers were lost with their rows", got=f"{in_a_row} times in a row", wanted="workers that stay"
    )


def workers(session: Session) -> list[str]:
    """Wait for at least one worker, and return the addresses of the session's, in their fixed order.

    Raises WorkersLostError after GIVE_UP_SECONDS without any.
    """
    if found := session.workers():
        return found
    began = time.monotonic()
    with called_for(session.client, 1, GIVE_UP_SECONDS):
        while not (found := session.workers()):
            if (waited := time.monotonic() - began) >= GIVE_UP_SECONDS:
                raise _no_workers(session, GIVE_UP_SECONDS)
            time.sleep(pause(1, waited))
    return found


def task_key(function: Callable[..., object] | str, learner: str = "") -> str:
    """Return a new key of a task by its learner and function: Dask groups and colors tasks by the words before the last hyphen.

    A key is given to each task, so that Dask neither hashes the arguments nor answers a repeated call from what it still holds.
    """
    name = function if isinstance(function, str) else getattr(function, "__name__", type(function).__name__)
    return "-".join(filter(None, ("dkl", learner, name.strip("_").replace("_", "-"), uuid.uuid4().hex)))


@contextmanager
def called_for(client: Client, count: int, seconds: float) -> Iterator[None]:
    """Log that `count` workers are waited for, `seconds` at most, and have a task wait for them.

    A cluster that adapts to its load (`cluster.adapt(minimum=0)`) starts its first worker for a task that waits.
    """
    LOG.warning("waiting for %d worker(s) of the cluster, %g s at most", count, seconds)
    task = client.submit(bool, key=task_key("wait"))
    try:
        yield
    finally:
        task.release()


def all_done(client: Client, futures: Sequence[Future], seconds: float) -> bool:
    """Wait until all futures have ended, with results or errors; return False after `seconds` seconds."""
    from distributed import wait

    try:
        with client.as_current():  # `wait` takes no client
            wait(futures, timeout=seconds)
    except TimeoutError as error:
        forget_frames(error)
        return False
    return True


def pause(workers: int, waited: float) -> float:
    """Return seconds until the next look at which of `workers` workers are there, after `waited` seconds.

    A twentieth of the time waited is soon enough.
    """
    return min(max(LOOK_SECONDS * max(1.0, workers / 10), waited / 20), MOST_LOOK_SECONDS)


def watched(
    session: Session,
    begin: Callable[[], Coroutine[object, object, Out]],
    addresses: Collection[str],
    look: Callable[[], object],
    futures: Sequence[Future] = (),
) -> Out:
    """Return the result of the Dask client's coroutine begin(), calling look() until then; it may raise.

    By itself Dask waits for ever for results that were lost with these workers, and for half a minute to connect to one that is gone.
    futures: that it waits for, cancelled where look() raises.
    """
    task, began = asyncio.run_coroutine_threadsafe(begin(), session.client.loop.asyncio_loop), time.monotonic()
    try:
        while True:
            done, _ = concurrent.wait([task], pause(len(addresses), time.monotonic() - began))
            if done:
                return task.result()
            look()
    except BaseException:
        if futures and not task.done():
            # Or what waits for each of them would stay, and be logged one day as an error that was never retrieved.
            session.client.cancel(list(futures))
            concurrent.wait([task], MOST_LOOK_SECONDS)
        raise
    finally:
        task.cancel()


def forget_frames(error: BaseException) -> None:
    """Remove the traceback of an error, so that it holds no frames and their arrays.

    One that comes from Dask is held by a future of Dask's, which it holds itself: until the next full collection of
    garbage, and these are rare where few objects are made, all frames on its way live on, with the arrays in them. A
    driver at n = 10^6 that waited through four fits grew to 7.5 GB by that.
    """
    error.__traceback__ = None


def gather(session: Session, futures: Sequence[Future], inputs: Sequence[Future] = ()) -> list[Any]:
    """Return the results of `futures`, in order, once all are there. inputs: futures that these wait for.

    Raises CancelledError when one of them will never run: the caller submits them again. Raises WorkersLostError after
    GIVE_UP_SECONDS without a worker that would run them, and whatever a future raised.
    """
    client = session.client
    waits = HeldUp(session, [*futures, *inputs])
    while True:
        # One that has failed is raised while others are still under way.
        if all_done(client, futures, LOOK_AGAIN_SECONDS) or any(future.status == "error" for future in futures):
            return list(client.gather(list(futures)))
        n_set_aside = waits.look(LOOK_AGAIN_SECONDS)
        if n_set_aside:
            client.cancel(list(futures))
            raise CancelledError(f"{n_set_aside} tasks were set aside when all workers were lost")


class HeldUp:
    """Clock of how long tasks have waited for workers that are not there, or that have paused.

    Dask pauses a worker at 80 % of its memory limit: it begins no task until it has less. What it holds for a fit stays, so
    that it may never have.
    """

    def __init__(self, session: Session, futures: Sequence[Future]) -> None:
        self.session, self.keys, self.seconds = session, {future.key for future in futures}, 0.0

    def look(self, since: float) -> int:
        """Return how many of the tasks will never run, though workers do. since: seconds since the last look.

        Raises WorkersLostError where some have been held up at every look for GIVE_UP_SECONDS.
        """
        # In one call on the scheduler, which alone knows of each task why it does not run.
        running, paused, held_up, set_aside = self.session.client.run_on_scheduler(_look, self.keys)
        if running and set_aside:
            return int(set_aside)
        # Without any worker everything is set aside: that is for the time limit to judge.
        self.seconds = self.seconds + since if held_up or not running else 0.0
        if self.seconds >= GIVE_UP_SECONDS:
            raise (
                paused_error(self.session, paused, self.seconds) if paused else _no_workers(self.session, self.seconds)
            )
        return 0


class Silence:
    """Clock of how long the scheduler has not heard from each worker.

    A worker whose process is stopped, or whose host hangs, is one of the scheduler's for five minutes by Dask's default. It still takes
    what is sent to it, and answers nothing.
    """

    def __init__(self) -> None:
        self.looked = time.monotonic()
        self.heard: dict[str, tuple[float, float]] = {}
        """Per worker address: time last heard of, by the scheduler's clock; seconds observed since then."""

    def look(self, members: Mapping[str, Json]) -> list[str]:
        """Return addresses of `members` (`Session.members`) not heard of for GIVE_UP_SECONDS."""
        # Where this process itself stood still, and the scheduler with it, that says nothing of the workers.
        now, most = time.monotonic(), LOOK_AGAIN_SECONDS
        since, self.looked = min(now - self.looked, most), now
        before, self.heard = self.heard, {}
        for address, data in members.items():
            at, seconds = before.get(address, (None, 0.0))
            self.heard[address] = data["last_seen"], seconds + since if at == data["last_seen"] else 0.0
        return [address for address, (_, seconds) in self.heard.items() if seconds >= GIVE_UP_SECONDS]

    def answering(self, session: Session) -> list[str]:
        """Return `workers(session)` without the silent ones, once it is known of each whether it is silent.

        What is sent to a silent one waits for it. Raises WorkersLostError where all are silent.
        """
        found = workers(session)
        while True:
            silent = self.look(session.members())
            if not any(self.heard[a][1] >= LOOK_AGAIN_SECONDS for a in self.heard if a not in silent):
                break
            time.sleep(0.1)
        if not (left := [address for address in found if address in self.heard and address not in silent]):
            raise _no_workers(session, GIVE_UP_SECONDS)
        return left


def _no_workers(session: Session, seconds: float) -> WorkersLostError:
    got = f"none for {seconds:g} s"
    return WorkersLostError("the cluster has no workers", where="client", got=got, remedy=session.more_workers())


def paused_error(session: Session, addresses: Sequence[str], seconds: float) -> WorkersLostError:
    """Return the error for paused workers that have been waited for `seconds` seconds."""
    return WorkersLostError(
        "workers have paused, since their memory is nearly full, and tasks wait for them",
        where=", ".join(addresses),
        got=f"paused for {seconds:.2g} s",
        remedy=session.more_memory(),
    )


def _look(keys: set[str], dask_scheduler: Any = None) -> tuple[int, list[str], int, int]:
    """Count the tasks, among `keys` and those they wait for, that are held up or will never run.

    Runs on the scheduler. Returns (number of workers that take tasks, addresses of the paused ones, tasks that these
    hold up, tasks that will never run). Never run those that were set aside, and data that was scattered and lost with
    its worker: it has no task to compute it again. Held up is what a paused worker has not started, or what waits for
    that worker and no other.
    """
    waiting, seen, held_up, lost = [dask_scheduler.tasks.get(key) for key in keys], set(), 0, 0
    while waiting:
        task = waiting.pop()
        if task is None or (task.run_spec is None and task.state != "memory"):
            lost += 1
        elif task.key not in seen:
            seen.add(task.key)
            worker = task.processing_on
            if task in dask_scheduler.unrunnable:
                if any(address in dask_scheduler.workers for address in task.worker_restrictions or ()):
                    held_up += 1
                else:
                    lost += 1
            held_up += worker is not None and worker.status.name == "paused" and task not in worker.executing
            waiting.extend(task.waiting_on or ())
    paused = [worker.address for worker in dask_scheduler.workers.values() if worker.status.name == "paused"]
    return len(dask_scheduler.running), sorted(paused), held_up, lost


# Workers of a cluster in this process (`LocalCluster`): those its nannies know, their restart, and keeping them in a
# fit.
#
# Workers that are killed while they start leave Dask in odd states. One that had said to the scheduler that it is
# there, but not yet to its nanny, stays among the scheduler's workers until it has been silent for `worker-ttl`:
# sending to it takes half a minute. And the nanny of one that could not start ends, and is counted as a worker for 15
# s.
#
# A cluster that adapts to its load (`cluster.adapt(minimum=0)`) retires workers without tasks, whatever they hold for a
# fit, and a fit has no task on them while this process computes between its steps.

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
        # Not at the interpreter's exit, when the cluster may be closed already.
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
        # Nannies do not always come back (distributed#7312), and `scale` counts those that ended until they are dropped.
        for name, one in list(getattr(cluster, "workers", {}).items()):
            if getattr(getattr(one, "status", None), "name", "") in OVER:
                cluster.workers.pop(name, None)
        cluster.scale(max(wanted, len(getattr(cluster, "worker_spec", {}))))
