"""Who works on a run's folder: a lock of the system's on a file in it, which goes with the process however that ends."""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from pathlib import Path

from dkl.errors import InputError
from dkl.stores.private_files import MODE

TAKEN = re.compile(r"pid (\d{1,9}) on (\S+), attempt ")
LOOKS, LOOK_SECONDS = 40, 0.05
"""At a lock that is held, until it says by whom."""


def take(folder: Path) -> int:
    """The descriptor that holds the lock; InputError that says who has it."""
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
    return descriptor


def sign(descriptor: int, attempt: str) -> None:
    """Say that this process has the lock. OSError where the disk has no space for it: the lock is held all the same."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, attempt {attempt}".encode(), 0)


def _holder(descriptor: int) -> str:
    """As it has written itself; who took the lock a moment ago has not yet, and there is nobody, or who died with it before."""
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
