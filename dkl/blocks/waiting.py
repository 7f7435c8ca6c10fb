"""Waiting for workers and futures, but not for ever.

When the last worker of a cluster dies, Dask sets aside the tasks that are pinned to workers. It only looks at them again
when a worker with the old address comes back, even where other workers were allowed: such tasks would never run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dkl.errors import WorkersLostError

if TYPE_CHECKING:
    from dkl.blocks.session import Session

LOG = logging.getLogger("dkl")

LOOK_AGAIN_SECONDS = 5.0
"""How often `gather` asks the scheduler whether its tasks can still run."""
GIVE_UP_SECONDS = 60.0
"""How long a cluster may be without any worker."""
RESEND_PAUSES = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Seconds before each further attempt at a pass whose rows were lost. They grow, for a busy scheduler may be told of a
worker's end only after seconds: until then it names that worker, and whatever is sent there fails at once."""


def attempts() -> Iterator[int]:
    """0, 1, ...: one for each attempt at a pass that loses its rows when workers die, with RESEND_PAUSES between them.

    Raises WorkersLostError when there have been enough.
    """
    yield 0
    for attempt, pause in enumerate(RESEND_PAUSES, start=1):
        time.sleep(pause)
        yield attempt
    got = f"{1 + len(RESEND_PAUSES)} times"
    raise WorkersLostError("workers were lost with their rows", got=got, wanted="workers that stay")


def workers(session: Session) -> list[str]:
    """Addresses of the session's workers, in their fixed order, once there is at least one.

    Raises WorkersLostError after GIVE_UP_SECONDS without any.
    """
    if not session.workers():
        with called_for(session.client, 1, GIVE_UP_SECONDS):
            try:
                session.client.wait_for_workers(1, timeout=GIVE_UP_SECONDS)
            except TimeoutError:
                raise _no_workers(session, GIVE_UP_SECONDS) from None
    return session.workers()


@contextmanager
def called_for(client: Any, count: int, seconds: float) -> Iterator[None]:
    """Says in the log "dkl" that `count` workers are waited for, `seconds` at most, and has a task wait for them meanwhile.

    A cluster that adapts to its load (`cluster.adapt(minimum=0)`) starts its first worker for a task that waits.
    """
    LOG.warning("waiting for %d worker(s) of the cluster, %g s at most", count, seconds)
    task = client.submit(bool, pure=False)
    try:
        yield
    finally:
        task.release()


def gather(session: Session, futures: Sequence[Any], inputs: Sequence[Any] = ()) -> list[Any]:
    """Results of `futures`, in order, once all are there. `inputs` are the futures that these wait for.

    Raises CancelledError when one of them will never run: the caller submits them again. Raises WorkersLostError after
    GIVE_UP_SECONDS without a worker, and whatever a future raised.
    """
    from distributed import wait

    client = session.client
    keys = {future.key for future in [*futures, *inputs]}
    alone = 0.0
    while True:
        try:
            with client.as_current():  # `wait` takes no client
                wait(futures, timeout=LOOK_AGAIN_SECONDS)
            return list(client.gather(list(futures)))
        except TimeoutError:
            n_workers, n_set_aside = client.run_on_scheduler(_look, keys)
        # Without any worker everything is set aside: that is for the time limit below to judge.
        if n_workers and n_set_aside:
            client.cancel(list(futures))
            raise CancelledError(f"{n_set_aside} tasks were set aside when all workers were lost")
        alone = 0.0 if n_workers else alone + LOOK_AGAIN_SECONDS
        if alone >= GIVE_UP_SECONDS:
            raise _no_workers(session, alone)


def _no_workers(session: Session, seconds: float) -> WorkersLostError:
    got = f"none for {seconds:g} s"
    return WorkersLostError("the cluster has no workers", where="client", got=got, remedy=session.more_workers())


def _look(keys: set[str], dask_scheduler: Any = None) -> tuple[int, int]:
    """(workers that take tasks, tasks that `keys` wait for and that will never run); runs on the scheduler.

    Those are tasks that were set aside, and data that was scattered and lost with its worker: it has no task to compute it
    again.
    """
    waiting, seen, lost = [dask_scheduler.tasks.get(key) for key in keys], set(), 0
    while waiting:
        task = waiting.pop()
        if task is None or (task.run_spec is None and task.state != "memory"):
            lost += 1
        elif task.key not in seen:
            seen.add(task.key)
            lost += task in dask_scheduler.unrunnable
            waiting.extend(task.waiting_on or ())
    return len(dask_scheduler.running), lost
