"""Limit of BLAS to one thread while work is cut over our own threads or workers.

BLAS on several threads cuts sums differently, so results would differ in their last bits with the number of cores; and
threads times BLAS threads would be more than the processors. The limit belongs to the process, not to the thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from threading import RLock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = RLock()  # a generator within the context may be collected, and so leave it, while this thread has the lock
_inside = 0
_limits: list[tuple[Any, int]] = []


def blas_controller() -> ThreadpoolController:
    """Return the controller of the process' BLAS libraries.

    Finding them takes some 10 ms, setting a limit 0.1 ms: they are looked for again only when something has been imported, as
    Faiss, which brings its own BLAS."""
    # SciPy brings one too, which is found only once it is loaded.
    import scipy.linalg.blas  # noqa: F401

    return _controller_beside(len(sys.modules))


@lru_cache(maxsize=1)
def _controller_beside(modules: int) -> ThreadpoolController:
    return ThreadpoolController()


def blas_thread_count() -> int:
    """Return how many threads BLAS takes now, and so what dense work of ours may take."""
    return max((int(one["num_threads"]) for one in blas_controller().info() if one["user_api"] == "blas"), default=1)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on the calling thread alone within the context, which may be nested.

    Several threads may enter. The first to enter sets the limit and the last to leave lifts it: were each to restore what it found,
    the first to leave would lift it for the others too.
    """
    global _inside, _limits
    with _lock:
        if _inside == 0:
            found = (one for one in blas_controller().lib_controllers if one.user_api == "blas")
            # Not by threadpoolctl's limiter, which asks each library for all that it can say: a fifth of a prediction of one row.
            _limits = [(one, count) for one in found if (count := one.num_threads) != 1]
            for library, _ in _limits:
                library.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                for library, count in _limits:
                    library.set_num_threads(count)
                _limits = []
