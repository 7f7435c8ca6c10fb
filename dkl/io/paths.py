"""Checks of a user's paths: looked up by the system; files that end. Imports neither NumPy nor zarr."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dkl.errors import InputError
from dkl.io.object_paths import AnyPath, ObjectPath, is_address, is_shortened

_SHOWN = 40  # characters of a name that is too long to be shown


def as_path(path: object, where: str = "path") -> Path:
    """Return `path` as a Path, which need not exist; InputError for others, and names no file can have.

    >>> as_path("X" * 300 + ".npz")
    Traceback (most recent call last):
    dkl.errors.InputError: path: a name that is too long for a file; got XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX...
    """
    if not isinstance(path, (str, os.PathLike)):
        raise InputError("not a path", where=where, got=repr(path), wanted="a string or pathlib.Path")
    if is_shortened(path):
        raise InputError("an address is no pathlib.Path", where=where, got=path, remedy="pass it as a string")
    if is_address(path):
        wanted, remedy = "a path on this machine", "copy it from or to there with the store's own tools"
        raise InputError("an address of a store", where=where, got=path, wanted=wanted, remedy=remedy)
    named = Path(os.fsdecode(path))
    try:
        # The system is asked: how long a name may be differs from one file system to the next.
        os.lstat(named.absolute())
    except ValueError as error:  # a zero byte
        raise InputError("not a path", where=where, got=ascii(str(named))[:_SHOWN]) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise InputError(
                "a name that is too long for a file", where=where, got=f"{str(named)[:_SHOWN]}..."
            ) from error
    return named


def as_source(path: object, where: str = "path") -> AnyPath:
    """Return `path`, which is to be read, as a Path, or as an ObjectPath for an address in a store.

    Raises InputError as `as_path` does, and for addresses that are not read.

    >>> as_source("ftp://bucket/X.npy", "--data")
    Traceback (most recent call last):
    dkl.errors.InputError: --data: not a kind of store that is known; got ftp://; wanted s3://, gs:// or memory://
    """
    return ObjectPath.of(path, where) if is_address(path) else as_path(path, where)


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
