"""`work_dir`: where an estimator keeps its runs, and a run what is too large for memory."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from dkl.errors import DiskError, InputError
from dkl.stores.disk import disk_errors


def next_run(work_dir: Any, kind: str) -> Path:
    """The first free `<kind>-NNN.zarr` in the work folder."""
    if not isinstance(work_dir, (str, os.PathLike)) or not os.fspath(work_dir):
        raise InputError("not a folder", where="work_dir", got=repr(work_dir), wanted="a path")
    folder = Path(work_dir)
    if not folder.is_dir():
        raise InputError("no such folder", where="work_dir", got=str(folder), remedy="create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiskError("the folder cannot be written to", where="work_dir", got=str(folder), remedy="choose another")
    number = 1
    while os.path.lexists(folder / f"{kind}-{number:03d}.zarr"):
        number += 1
    return folder / f"{kind}-{number:03d}.zarr"


def checked_folder(work_dir: Any) -> str:
    """The folder as an absolute path; InputError or DiskError where nothing can be made in it."""
    next_run(work_dir, "checked")
    return str(Path(work_dir).absolute())


@contextmanager
def folder_of(run: Path, work_dir: str | None, kind: str) -> Iterator[Path | None]:
    """A folder in `work_dir` that is the run's alone while this is entered; what a killed attempt has left in it goes, as
    all does at the end. None of None. Raises DiskError."""
    if work_dir is None:
        yield None
        return
    folder = Path(work_dir) / f"dkl-{kind}-{zlib.crc32(str(run).encode()):08x}"
    shutil.rmtree(folder, ignore_errors=True)
    with disk_errors("cannot be made", folder):
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, which a run's JSON can hold."""
    if isinstance(value, (str, bool)):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, np.floating) else value
