"""Reading of files: the bytes that one may take under a command's memory limit, and errors of any library as one `InputError`.

Readers ask before they allocate, by what headers and metadata claim: a file of some kilobytes may unpack to gigabytes. Outside of a
command no room is set, and they allocate what they are asked for.
"""

from __future__ import annotations

import csv
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

from dkl.errors import DklError, InputError, MemoryBudgetError
from dkl.io.paths import AnyPath, ObjectPath, require_file
from dkl.resources import format_bytes

SMALL = 16_000_000
"""Bytes that a file may take under any limit: of these the plan of the work has more to say."""
REMEDY = "raise memory_limit, or check the shape and type of what is in the file"


@dataclass(frozen=True)
class FileRoom:
    """limit: bytes that a process may use; base: those that it takes without data."""

    limit: int
    base: int

    def require(self, needed: int, where: str | AnyPath, what: str, remedy: str = REMEDY) -> None:
        """Raise MemoryBudgetError where a file that takes `needed` bytes is beyond the limit."""
        if needed > self.most:
            got, wanted = f"memory_limit {format_bytes(self.limit)}", f"at least {format_bytes(self.base + needed)}"
            raise MemoryBudgetError(what, where=str(where), got=got, wanted=wanted, remedy=remedy)

    @property
    def most(self) -> int:
        """Return the largest number of bytes that a file may take."""
        return max(SMALL, self.limit - self.base)


_room: ContextVar[FileRoom | None] = ContextVar("file_room", default=None)


@contextmanager
def file_room(room: FileRoom) -> Iterator[None]:
    """Hold the readers of files to this room."""
    before = _room.set(room)
    try:
        yield
    finally:
        _room.reset(before)


def require_room(needed: int, where: str | AnyPath, what: str = "the file does not fit") -> None:
    """Raise MemoryBudgetError where a file that takes `needed` bytes is beyond the room that was set; nothing without one."""
    room = _room.get()
    if room is not None:
        room.require(needed, where, what)


def most_bytes() -> int | None:
    """Return the bytes that a file may take; None where no room was set."""
    room = _room.get()
    return None if room is None else room.most


_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, OverflowError, NotImplementedError, MemoryError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)
"""Exceptions that libraries raise on damaged files; encrypted members of archives are RuntimeErrors."""


@contextmanager
def reading(path: str | AnyPath) -> Iterator[None]:
    """Turn any library's error on an absent, damaged or foreign file into an InputError that names it.

    DklErrors pass unchanged. Only ordinary files are read: of a pipe or a device there may be no end.
    """
    require_file(path)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message=".*required additional header parsing"
            )  # it was read all the same
            with path.telling() if isinstance(path, ObjectPath) else nullcontext():
                yield
    except DklError:
        raise
    except _UNREADABLE as error:
        # NumPy refuses to unpickle with a ValueError, which only its text distinguishes from others.
        objects = "pickle" in str(error) or "Python objects" in str(error)
        remedy = "arrays of objects are never read; store numbers" if objects else None
        if isinstance(error, UnicodeDecodeError):
            remedy = "save it as UTF-8"
        raise InputError("the file cannot be read", where=str(path), got=error, remedy=remedy) from error
