"""Writing to the disk, with the system's errors turned into ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkl.errors import DiskError
from dkl.stores.run_lock import require_place

REMEDY = "free space on that disk, then `dkl resume` the run"


@contextmanager
def disk_errors(what: str, path: Path | str, remedy: str = REMEDY) -> Iterator[None]:
    """Turn the system's errors (OSError) into DiskErrors that name `what` failed, path and remedy.

    DiskError, before anything is done, for a path in a run's folder that is no longer where this process has locked it.
    """
    require_place(path)
    try:
        yield
    except OSError as error:
        require_place(path)
        raise DiskError(f"{what} ({error.strerror})", where=str(path), remedy=remedy) from error


def write_all(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Write bytes at `offset` of an open file, in however many calls it takes. Raises OSError."""
    done = 0
    while done < len(buffer):
        done += os.pwrite(descriptor, buffer[done:], offset + done)
