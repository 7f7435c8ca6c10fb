"""`work_dir`: where an estimator keeps its runs, and a run what is too large for memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import DiskError, InputError
from dkl.io.paths import as_path
from dkl.stores.folders import disk_errors

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserFolder

LOCK = "LOCK"


def next_run(work_dir: UserFolder, kind: str) -> Path:
    """Return the first free `<kind>-NNN.zarr` in the work folder."""
    if not isinstance(work_dir, (str, os.PathLike)) or not os.fspath(work_dir):
        raise InputError("not a folder", where="work_dir", got=repr(work_dir), wanted="a path")
    folder = as_path(work_dir, "work_dir")
    if not folder.is_dir():
        raise InputError("no such folder", where="work_dir", got=str(folder), remedy="create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiskError("the folder cannot be written to", where="work_dir", got=str(folder), remedy="choose another")
    number = 1
    # lexists: a dangling link is a name that is taken too.
    while os.path.lexists(folder / f"{kind}-{number:03d}.zarr"):
        number += 1
    return folder / f"{kind}-{number:03d}.zarr"


def checked_folder(work_dir: Any) -> str:
    """Return the folder as an absolute path; InputError or DiskError where nothing can be made in it."""
    next_run(work_dir, "checked")
    return str(Path(work_dir).absolute())


def claimed_folder(work_dir: UserFolder, kind: str) -> Path:
    """Create the folder of `next_run`; of concurrent callers each gets a different one."""
    while True:
        path = next_run(work_dir, kind)
        try:
            # mkdir decides between callers: of those that found the same name one makes it, the others look again.
            path.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise DiskError(f"cannot be made ({error.strerror})", where=str(path)) from error
        return path


@contextmanager
def folder_of(run: Path, work_dir: str | None, kind: str, attempt: str) -> Iterator[Path | None]:
    """Yield the `locked_folder` of a run, named after its path; None if `work_dir` is None."""
    if work_dir is None:
        yield None
        return
    # Named by the run's path, so that an attempt finds what earlier ones of the same run have left.
    with locked_folder(work_dir, f"dkl-{kind}-{zlib.crc32(str(run).encode()):08x}", attempt) as folder:
        yield folder


@contextmanager
def locked_folder(work_dir: Any, name: str, attempt: str) -> Iterator[Path]:
    """Yield a new folder `name`-`attempt` in the work folder, locked, and removed at the end.

    Raises DiskError.

    What attempts that died have left under the same name goes too. A locked one belongs to a live process, a run of the
    same path on another machine, or in another container.
    """
    root = Path(work_dir)
    for left in [root / name, *root.glob(f"{name}-*"), *root.glob(f".{name}-*")]:
        # A link could lead anywhere: what it points to is not ours to remove.
        if left.is_dir() and not left.is_symlink() and not _is_locked(left):
            shutil.rmtree(left, ignore_errors=True)
    folder, unlocked = root / f"{name}-{attempt}", root / f".{name}-{attempt}"
    with disk_errors("cannot be made", folder):
        unlocked.mkdir(mode=0o700)
        lock = os.open(unlocked / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        unlocked.rename(folder)  # other processes never see it without its lock
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _is_locked(folder: Path) -> bool:
    """Return whether a live process holds the folder's lock; without a lock it is of an earlier version."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def plain(value: object) -> Any:
    """Convert numbers of NumPy to Python's, which a run's JSON can hold."""
    if isinstance(value, (str, bool)):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, np.floating) else value
