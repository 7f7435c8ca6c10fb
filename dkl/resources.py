"""Memory, processors and seconds: what a process may use, and what it did use. Imports neither Dask nor zarr.

BLAS is held to one thread while work is cut over our own threads or workers: on several it cuts sums differently, so that results
would differ in their last bits with the number of cores; and threads times BLAS threads would be more than the processors. The limit
belongs to the process, not to the thread.
"""

from __future__ import annotations

import math
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, wraps
from numbers import Real
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def parse_bytes(text: int | float | str | None, *, where: str = "memory_limit") -> int | None:
    """Parse bytes: an integer, or a string such as "750 MB", "4GB" or "1.5 GiB". None stays None.

    Powers of ten for kB, MB, GB, TB; powers of two for KiB, MiB, GiB, TiB. Errors: `InputError`, which names the option
    `where`, for anything else and for what is not positive.

    >>> parse_bytes("750 MB"), parse_bytes("1.5 GiB")
    (750000000, 1610612736)
    """
    if text is None:
        return None
    if isinstance(text, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:[eE]\d+)?)\s*([kKmMgGtT]?i?)[bB]?\s*", text)
        if match is None or match[2].lower() not in _UNITS:
            raise InputError("not a size in bytes", where=where, got=repr(text), wanted='a size such as "750 MB"')
        value = float(match[1]) * _UNITS[match[2].lower()]
    elif isinstance(text, bool) or not isinstance(text, Real) or text != text:
        raise InputError("not a size in bytes", where=where, got=repr(text), wanted='a size such as "750 MB"')
    else:
        value = float(text) if abs(text) < 2**64 else float("inf")  # an integer may be beyond every float
    if not 0 < value < 2**63:
        raise InputError("a size must be positive and finite", where=where, got=repr(text), wanted="more than 0 bytes")
    return int(value)


def format_bytes(count: float) -> str:
    """Format `count` bytes with three digits in units of ten.

    >>> format_bytes(1_234_567_890), format_bytes(789)
    ('1.23 GB', '789 B')
    """
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{int(count)} B"


def peak_rss() -> int:
    """Return the peak resident memory of this process since it started, in bytes.

    Linux counts into `ru_maxrss` what the parent held when it started the process, so /proc is read first.
    """
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def current_rss() -> int:
    """Return this process' resident memory now, in bytes; its peak where the system has no /proc."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return peak_rss()


def n_cpus() -> int:
    """Return the number of processors that this process may use, by affinity and control groups too."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, cgroup_cpus() or count)


def physical_memory() -> int:
    """Return the bytes of memory that the machine has, which all its processes share."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def machine_memory() -> int:
    """Return the bytes this process may use: the machine's, or less by control groups or RLIMIT_RSS."""
    whole = physical_memory()
    limits = (cgroup_memory(), resource.getrlimit(resource.RLIMIT_RSS)[1])
    return min([whole, *(limit for limit in limits if limit is not None and limit > 0)])


# -- control groups of Linux -------------------------------------------------------------------------------------------
# Memory and processor limits of this process by Linux control groups (containers, batch systems).
# dask.system and distributed.system read these files too, but to import them takes most of a second, which a wrong option
# or a fit on threads does not wait for; and they look at some of the groups alone, not at all that enclose this process.

ROOT, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
KEPT_SECONDS = 5.0
"""Seconds for which a limit is not looked up again: a dozen files take as long as a prediction of one row, and a limit may change."""

Limit = Callable[..., int | None]


def _kept(limit: Limit) -> Limit:
    """Wrap `limit` so that this process' own is read from the system every KEPT_SECONDS at most."""
    found: list[tuple[float, int | None]] = []

    @wraps(limit)
    def kept(root: Path = ROOT, own: Path = OWN) -> int | None:
        if (root, own) != (ROOT, OWN):
            return limit(root, own)
        now = time.monotonic()
        if not found or not 0 <= now - found[0][0] <= KEPT_SECONDS:
            found[:] = [(now, limit(root, own))]
        return found[0][1]

    return kept


@_kept
def cgroup_memory(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Return the bytes that the tightest group around this process may hold; None without a limit.

    root, own: where the system mounts the groups, and lists those of this process.
    """
    found = [_number(folder / name) for folder, name in _files(root, own, "memory", "memory.max", "limit_in_bytes")]
    return min((value for value in found if value is not None and value > 0), default=None)


def memory_group(root: Path = ROOT, own: Path = OWN) -> tuple[str, int] | None:
    """Return the folder and the bytes of the tightest group around this process; None without a limit.

    Processes with the same folder share these bytes; those of another job have another group, of the same size perhaps.
    """
    files = _files(root, own, "memory", "memory.max", "limit_in_bytes")
    found = [(value, str(folder)) for folder, name in files if (value := _number(folder / name))]
    return min(found)[::-1] if found else None


@_kept
def cgroup_cpus(root: Path = ROOT, own: Path = OWN) -> int | None:
    """Return the processors, rounded up, that the tightest group leaves to this process; None: no limit."""
    shares = []
    for folder, name in _files(root, own, "cpu", "cpu.max", "cfs_quota_us"):
        if name == "cpu.max":
            quota, _, period = _text(folder / name).partition(" ")
        else:
            quota, period = _text(folder / name), _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period):  # no limit: "max", or -1
            shares.append(int(quota) / int(period))
    return math.ceil(min(shares)) if shares else None


def _files(root: Path, own: Path, controller: str, second: str, first: str) -> Iterator[tuple[Path, str]]:
    """Yield (folder, file) of a limit in every group around this process, in versions 2 and 1 of groups."""
    for line in _text(own).splitlines():
        number, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if number == "0" and not controllers:
            bases, name = [root], second
        elif controller in controllers.split(","):
            bases, name = [root / controllers, root / controller], f"{controller}.{first}"
        else:
            continue
        # In a container the path may be the host's, of which nothing is mounted here except what is at the root.
        inner = PurePosixPath(path.lstrip("/") or ".")
        for folder in dict.fromkeys((inner, *inner.parents)):
            yield from ((base / folder, name) for base in bases)


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    """Return the stripped text of a system file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


# -- seconds spent -----------------------------------------------------------------------------------------------------
# Counters of the seconds that a process spends on reading, writing and waiting for other workers.
# They are of the whole process; a caller compares them at two moments. A block of a file or an exchange of sums
# costs far more than the two looks at a clock.

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


_blas_lock = RLock()  # a generator within the context may be collected, and so leave it, while this thread has the lock
_blas_depth = 0
_blas_limits: list[tuple[Any, int]] = []


def blas_controller() -> ThreadpoolController:
    """Return the controller of the process' BLAS libraries.

    Finding them takes some 10 ms, setting a limit 0.1 ms: they are looked for again only when something has been imported, as
    Faiss, which brings its own BLAS."""
    # SciPy brings one too, which is found only once it is loaded.
    import scipy.linalg.blas  # noqa: F401

    return _controller_beside(len(sys.modules))


@lru_cache(maxsize=1)
def _controller_beside(modules: int) -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

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
    global _blas_depth, _blas_limits
    with _blas_lock:
        if _blas_depth == 0:
            found = (one for one in blas_controller().lib_controllers if one.user_api == "blas")
            # Not by threadpoolctl's limiter, which asks each library for all that it can say: a fifth of a prediction of one row.
            _blas_limits = [(one, count) for one in found if (count := one.num_threads) != 1]
            for library, _ in _blas_limits:
                library.set_num_threads(1)
        _blas_depth += 1
    try:
        yield
    finally:
        with _blas_lock:
            _blas_depth -= 1
            if _blas_depth == 0:
                for library, count in _blas_limits:
                    library.set_num_threads(count)
                _blas_limits = []
