"""Worker processes of our own on this machine, closed to its other accounts.

Any process that reaches a Dask scheduler, worker or nanny can run code in it, and every account of a machine reaches
its 127.0.0.1. Hence TLS, with a key that is made for this cluster alone and handed to its processes through pipes: a
client without a certificate is refused at each of their ports. Dask reads keys from files only, so for the moment of
reading it is in a folder of mode 700.

Dask also keeps what does not fit in memory in a folder that it imports from; by default one of a well-known name in
/tmp, which any account may have made. Ours are the owner's alone.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from dkl.errors import DiskError, ResourceError
from dkl.estimators.base.work_folder import locked_folder

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

    from dkl.stores.seals import Json

QUIET = "ignore:resource_tracker:UserWarning"
NO_PAGES: dict[str, list[str]] = {f"distributed.{role}.http.routes": [] for role in ("scheduler", "worker")}
"""Setting of Dask for web pages that show nothing: every scheduler and worker has them, without login."""
KEPT = 100
"""Entries of each of Dask's logs."""
UNSEEN: Json = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.log-length": KEPT,
    "distributed.admin.low-level-log-length": KEPT,
    "distributed.admin.system-monitor.log-length": KEPT,
    "distributed.diagnostics.computations.max-history": 1,
}
"""Settings of Dask that switch off measurements and logs which only those pages show.
By default Dask measures 100 and 50 times a second: two workers that wait and their scheduler take 12 % of a processor, and 4 %
with these settings. Logs of 1,000 to 10,000 entries take hours to fill."""

FORKED = (
    "distributed",
    "sklearn.metrics.pairwise",
    "dkl.blocks.slabs.slab_worker",
    "dkl.blocks.graph.neighbor_search",
    "dkl.blocks.rows.row_groups",
    "dkl.problems.regression.column_pass",
    "dkl.problems.pairwise.terms",
    "dkl.problems.pairwise.admm",
    "dkl.stores.kernels",
    "dkl.stores.local_stores",
    "dkl.estimators.pairwise.loaded_kernels",
)
"""Modules that are imported once in the process from which workers are forked.
They are what tasks of any learner import, and what these import when they are first called."""
START_SECONDS = 120.0
"""Seconds after which a worker that has not come up is killed."""


@contextmanager
def own_workers(count: int, worker_bytes: int) -> Iterator[Client]:
    """Yield a Client of `count` new workers of one thread and `worker_bytes` each; end them at the end.

    Raises ResourceError where they do not start.
    """
    import dask
    from distributed import Client

    with ExitStack() as stack:
        try:
            folder = stack.enter_context(_private_folder(dask.config.get("temporary-directory")))
            ours = {**NO_PAGES, **UNSEEN, **_started_by(), "temporary-directory": folder}
            stack.enter_context(dask.config.set(ours))
            with _shielded(), _given_up():
                cluster = _cluster(count, worker_bytes)
        except (DiskError, OSError, RuntimeError, TimeoutError) as error:
            raise ResourceError("worker processes did not start", where="--workers", got=error) from error
        stack.enter_context(cluster)
        # Data sent through the scheduler, as is usual, would be in this process twice, and encrypted twice.
        yield stack.enter_context(Client(cluster, direct_to_workers=True))


def _started_by() -> dict[str, str]:
    """Return settings of Dask that fork workers from one process with all imports done; {} if impossible.

    A new Python takes seconds to import that, in each worker and again when one was lost; a fork has it. The pages of
    what is imported are held once for all of them.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return {}
    from distributed import utils

    # Dask would import all that it knows the name of, pandas and more, here and there.
    utils._forkserver_preload_set = True
    multiprocessing.get_context("forkserver").set_forkserver_preload(list(FORKED))
    return {"distributed.worker.multiprocessing-method": "forkserver"}


@contextmanager
def _private_folder(where: str | None) -> Iterator[str]:
    """Yield a folder of mode 700, which is removed at the end, also from the paths of imports.

    Dask's servers put theirs on sys.path, and some leave it there; anybody may make another of that name in /tmp. What a command of ours
    that was killed has left there, gigabytes that did not fit in memory perhaps, goes when the next begins.
    """
    where = tempfile.gettempdir() if where is None else where
    os.makedirs(where, exist_ok=True)  # as Dask does
    with locked_folder(where, f"dkl-workers-{os.getuid()}", uuid.uuid4().hex[:8]) as made:
        folder = str(made)
        try:
            yield folder
        finally:
            sys.path[:] = [path for path in sys.path if not path.startswith(folder)]


def _cluster(count: int, worker_bytes: int) -> LocalCluster:
    import logging

    from distributed import LocalCluster, Nanny, Security, Status

    class StartsOnce(Nanny):
        """Older Dask starts a worker again that was ended before it had come up, again and again (`_given_up`)."""

        async def _on_worker_exit(self, exitcode: int) -> None:
            if self.status not in (Status.init, Status.starting):
                await super()._on_worker_exit(exitcode)

    cluster: Any = LocalCluster(
        worker_class=StartsOnce,
        n_workers=count,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        security=Security.temporary(),
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # else it takes the default port, and warns
        memory_limit=worker_bytes,
        silence_logs=logging.CRITICAL,
    )
    cluster.scheduler.extensions["spans"] = NoSpans()
    return cluster


class NoSpans:
    """Replacement of Dask's record of who submitted which tasks, which grows by some kB with every task."""

    def observe_tasks(self, *_tasks: object, **_more: object) -> dict[object, object]:
        """Return no annotations for new tasks of the scheduler."""
        return {}

    def heartbeat(self, _worker: object, _measured: object) -> None:
        """Ignore the seconds by task that workers report."""


@contextmanager
def _given_up() -> Iterator[None]:
    """Kill processes that are started within and do not come up in START_SECONDS.
    Dask then raises RuntimeError. By itself it waits for ever, with its `death_timeout` too, and no signal is answered
    in the meantime."""
    others, done = set(multiprocessing.active_children()), threading.Event()

    def end() -> None:
        while not done.wait(START_SECONDS):
            for process in set(multiprocessing.active_children()) - others:
                process.kill()

    threading.Thread(target=end, daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextmanager
def _shielded() -> Iterator[None]:
    """Shield processes and threads that start within from Ctrl-C, which a terminal sends to a whole group.

    Nor does Python's tracker of semaphores complain where we end in the middle.
    """
    # By the options that a new interpreter inherits: the tracker is another process.
    sys.warnoptions.append(QUIET)
    resource_tracker.ensure_running()  # or its start would let the signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        sys.warnoptions.remove(QUIET)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
