"""Reading of files: bytes that one may take under a memory limit, errors of any library as one `InputError`, options of tables.

Readers ask before they allocate, by what headers and metadata claim: a file of some kilobytes may unpack to gigabytes. Outside of a
command no room is set, and they allocate what they are asked for.
"""

from __future__ import annotations

import csv
import os
import stat
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from dkl.errors import DklError, InputError, MemoryBudgetError
from dkl.io.paths import AnyPath, ObjectPath
from dkl.resources import format_bytes

SMALL = 16_000_000
"""Bytes that a file may take under any limit: whether so few fit is left to the plan of the work."""
REMEDY = "raise memory_limit, or check the shape and type of what is in the file"


@dataclass(frozen=True)
class FileRoom:
    """Memory that files may take. limit: bytes that a process may use; base: those that it takes without data."""

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
    """Limit the readers of files to `room` inside the context."""
    # A context variable, not an argument: readers are called from many places, and each thread of a command has its own.
    before = _room.set(room)
    try:
        yield
    finally:
        _room.reset(before)


def require_room(needed: int, where: str | AnyPath, what: str = "the file does not fit") -> None:
    """Raise MemoryBudgetError where a file that takes `needed` bytes is beyond the room that was set, if one was."""
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


def require_file(path: str | AnyPath) -> None:
    """Raise InputError for anything but an ordinary file: of a pipe reading might never end."""
    if isinstance(path, ObjectPath):
        path.require_file()
        return
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError as error:
        raise InputError("no such file", where=str(path)) from error
    except OSError as error:
        raise InputError("the file cannot be read", where=str(path), got=error.strerror) from error
    if stat.S_ISDIR(mode):
        raise InputError("a folder cannot be read as a file", where=str(path))
    if not stat.S_ISREG(mode):
        raise InputError("a device or pipe, not a file", where=str(path))


@contextmanager
def reading(path: str | AnyPath) -> Iterator[None]:
    """Turn any library's error on an absent, damaged or foreign file into an InputError that names it.

    DklErrors pass unchanged. Only ordinary files are read: of a pipe or a device there may be no end.
    """
    require_file(path)
    try:
        with warnings.catch_warnings():
            # A header of Python 2, which NumPy reads all the same.
            warnings.filterwarnings("ignore", message=".*required additional header parsing")
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


# -- options of tables -------------------------------------------------------------------------------------------------
# Of delimited text; commands take them before any work.


@dataclass(frozen=True)
class TableOptions:
    """Options of reading delimited text; what is None is decided by the file, or refused where two readings are possible.

    header: whether the first line holds names of columns. delimiter: between cells. decimal: "," or ".", in numbers. features: columns
    to learn from, in this order; None: all that are not otherwise used. drop: columns to leave out. target_column: the column to
    learn. id_column: the column of the rows' ids. Columns are given by name, or by number from 1.
    """

    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    features: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    target_column: str | None = None
    id_column: str | None = None
    like_before: bool = False
    """True for new rows where those learned from were a table: their names, if any, were text, and no column was taken for ids."""
    may_lack: bool = False
    """True where columns to leave out, of targets or of ids may be absent, as in new rows."""
    takes_targets: bool = True
    """True if a column can be named as targets; remedies name only options that exist."""

    def as_dict(self) -> dict[str, object]:
        """Return what differs from the defaults, as JSON keeps it."""
        default = TableOptions()
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value != getattr(default, name) and name not in ("may_lack", "like_before", "takes_targets")
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> TableOptions:
        """Return the options that `as_dict` has kept; TypeError for anything else."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
        }
        for name, value in found.items():
            is_right = isinstance(value, bool) if name == "header" else all(isinstance(each, str) for each in value)
            if not is_right or isinstance(value, tuple) != (name in ("features", "drop")) or isinstance(value, dict):
                raise TypeError(f"{name}: {value!r}")
        return cls(**found)

    def for_new_rows(self, given: TableOptions) -> TableOptions:
        """Return the options for other rows than those learned from: `given`, else the same; columns that are not needed may lack."""
        chosen = {
            field.name: getattr(given, field.name)
            for field in fields(self)
            if getattr(given, field.name) != field.default
        }
        return replace(self, **{**chosen, "may_lack": True})

    def for_targets(self) -> TableOptions:
        """Return the options for a separate file of targets, which has other columns."""
        return replace(self, features=None, drop=(), id_column=None)
