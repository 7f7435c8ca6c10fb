"""Errors of readers: whatever a library raises on a file becomes one `InputError` that names it."""

from __future__ import annotations

import csv
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from dkl.errors import DklError, InputError
from dkl.io.object_paths import AnyPath, ObjectPath
from dkl.io.paths import require_file

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
