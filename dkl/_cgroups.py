"""Memory and processor limits of this process by Linux control groups (containers, batch systems).

dask.system and distributed.system read these files too, but to import them takes most of a second, which a wrong option
or a fit on threads does not wait for; and they look at some of the groups alone, not at all that enclose this process.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path, PurePosixPath

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
