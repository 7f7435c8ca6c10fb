"""Memory and processors: what a process may use, and what it did use. Imports neither Dask nor zarr."""

from __future__ import annotations

import os
import re
import resource
import sys
from numbers import Real

from dkl._cgroups import cgroup_cpus, cgroup_memory
from dkl.errors import InputError

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
