"""Counters of the seconds that a process spends on reading, writing and waiting for other workers.

They are of the whole process; a caller compares them at two moments. A block of a file or an exchange of sums
costs far more than the two looks at a clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

DISK, EXCHANGE = "disk", "communication"
KINDS = (DISK, EXCHANGE)

_lock = threading.Lock()
_totals = dict.fromkeys(KINDS, (0.0, 0.0))
_inside = threading.local()


@contextmanager
def spending(kind: str) -> Iterator[None]:
    """Count the seconds of this block, of all threads together; of blocks inside each other the outermost counts."""
    if getattr(_inside, "any", False):
        yield
        return
    _inside.any = True
    wall, cpu = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        _inside.any = False
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        with _lock:
            before = _totals[kind]
            _totals[kind] = before[0] + wall, before[1] + cpu


def spent() -> dict[str, float]:
    """Return seconds by kind since the process started; "cpu": processor seconds in none of them."""
    with _lock:
        totals = dict(_totals)
    kinds = {kind: wall for kind, (wall, _) in totals.items()}
    return {**kinds, "cpu": time.process_time() - sum(cpu for _, cpu in totals.values())}
