"""Lock of a run's folder: a system lock on a file in it, released with the process however that ends.

The lock is on a file and not on a path: a folder that is renamed, or deleted and recreated, leaves the path to others.
Every write in a run's folder first compares the file at the path with the one that is locked.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from pathlib import Path

from dkl.errors import DiskError, InputError
from dkl.stores.private_files import MODE

TAKEN = re.compile(r"pid (\d{1,9}) on (\S+), attempt ")
LOOKS, LOOK_SECONDS = 40, 0.05
"""Number of looks at a lock that is held, until it names its holder, and the pause between them."""
_held: dict[int, Path] = {}
"""Folders whose locks this process holds, by the descriptors of these."""


def take(folder: Path) -> int:
    """Take the lock; return the descriptor that holds it. Raises InputError that names its holder."""
    descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(descriptor)
        os.close(descriptor)
        raise InputError(
            "another process works on this run",
            where=str(folder),
            got=holder or "a lock",
            remedy="wait for it to end, or end it",
        ) from error
    _held[descriptor] = folder
    return descriptor


def release(descriptor: int) -> None:
    """Give up a lock."""
    del _held[descriptor]
    os.close(descriptor)


def follow(old: Path, new: Path) -> None:
    """Take note that this process has renamed a folder that it holds."""
    _held.update({descriptor: new for descriptor, folder in _held.items() if folder == old})


def require_place(path: str | os.PathLike[str]) -> None:
    """Raise DiskError if `path` is in a folder that this process holds, and that is no longer where it was."""
    text = os.fspath(path)
    for descriptor, folder in tuple(_held.items()):
        if f"{text}/".startswith(f"{folder}/") and not _is_there(folder, descriptor):
            raise DiskError(
                "the run's folder was renamed or deleted while it was worked on",
                where=str(folder),
                got=_place_of(descriptor),
                remedy="`dkl resume` it where it is now, or begin a new run",
            )


def _is_there(folder: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder / "LOCK"), os.fstat(descriptor))
    except OSError:
        return False


def _place_of(descriptor: int) -> str:
    """Return the present path of the folder with an open file, as far as the system says."""
    if not os.fstat(descriptor).st_nlink:
        return "a deleted folder"
    try:
        return os.path.dirname(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # a system without /proc
        return "another path"


def sign(descriptor: int, attempt: str) -> None:
    """Say that this process has the lock. OSError where the disk has no space for it: the lock is held all the same."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, attempt {attempt}".encode(), 0)


def _holder(descriptor: int) -> str:
    """Return the lock's holder as it has written itself, waiting a moment for one that has just taken it.

    Until that has written, the file is empty or names a process that died with the lock.
    """
    for _ in range(LOOKS):
        text = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        if (named := TAKEN.match(text)) and (named[2] != socket.gethostname() or _lives(int(named[1]))):
            break
        time.sleep(LOOK_SECONDS)
    return text


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another account's
        return True
    return True
