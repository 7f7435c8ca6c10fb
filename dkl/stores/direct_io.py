"""Files read and written past the system's cache, for state that is larger than it.

Such state is never found in the cache, so what the system copies into it, and drops again for the next, is work for
nothing: to write 10 GB through the cache takes 7 s of a processor on top of the disk's time, past it 0.4 s. Where the
cache could hold the files they are better left to it: they then come at the memory's speed.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from numpy.typing import NDArray

from dkl.stores.folders import write_all

BLOCK = 4096
"""Bytes of the unit that files are read and written in, and that buffers are aligned to."""
DIRECT = getattr(os, "O_DIRECT", 0)
"""Flag of direct I/O; 0 where the system has none."""


def supported(folder: Path) -> bool:
    """Return whether files in `folder` can bypass the cache, as tried on one (file systems differ)."""
    probe, page = folder / ".uncached", mmap.mmap(-1, BLOCK)
    try:
        for flags in (os.O_WRONLY | os.O_CREAT, os.O_RDONLY):
            descriptor = os.open(probe, flags | DIRECT, 0o600)
            try:
                moved = os.pwrite(descriptor, page, 0) if flags & os.O_WRONLY else os.preadv(descriptor, [page], 0)
            finally:
                os.close(descriptor)
            if moved != BLOCK:
                return False
        return bool(DIRECT)
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)


def aligned(values: NDArray) -> bool:
    """Return whether the array starts at an address that is aligned as direct I/O requires."""
    return values.ctypes.data % BLOCK == 0


def read(path: Path, buffer: memoryview) -> int:
    """Fill `buffer`, which starts at a multiple of BLOCK, from the start of the file; how many bytes there were. Raises OSError."""
    whole = len(buffer) // BLOCK * BLOCK
    done = _read(path, os.O_RDONLY | DIRECT, buffer[:whole], 0)
    return done if done < whole else done + _read(path, os.O_RDONLY, buffer[whole:], whole)


def _read(path: Path, flags: int, buffer: memoryview, offset: int) -> int:
    """Return the number of bytes read before the file's end."""
    if not buffer:
        return 0
    descriptor = os.open(path, flags)
    try:
        done = 0
        while done < len(buffer):
            count = os.preadv(descriptor, [buffer[done:]], offset + done)
            done += count
            if count == 0 or done % BLOCK:  # the end; a call more at such an offset would be refused
                break
        return done
    finally:
        os.close(descriptor)


def write(path: Path, buffer: memoryview) -> None:
    """Write `buffer`, which starts at a multiple of BLOCK, over the start of the file. Raises OSError."""
    whole = len(buffer) // BLOCK * BLOCK
    for flags, part, offset in ((DIRECT, buffer[:whole], 0), (0, buffer[whole:], whole)):
        if part:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o600)
            try:
                write_all(descriptor, part, offset)
            finally:
                os.close(descriptor)
