"""`work_dir`: where an estimator keeps its runs."""

from __future__ import annotations

import os
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from dkl._paths import as_path
from dkl.errors import DiskError, InputError


def next_run(work_dir: Any, kind: str) -> Path:
    """The first free `<kind>-NNN.zarr` in the work folder."""
    if not isinstance(work_dir, (str, os.PathLike)) or not os.fspath(work_dir):
        raise InputError("not a folder", where="work_dir", got=repr(work_dir), wanted="a path")
    folder = as_path(work_dir, "work_dir")
    if not folder.is_dir():
        raise InputError("no such folder", where="work_dir", got=str(folder), remedy="create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DiskError("the folder cannot be written to", where="work_dir", got=str(folder), remedy="choose another")
    number = 1
    while os.path.lexists(folder / f"{kind}-{number:03d}.zarr"):
        number += 1
    return folder / f"{kind}-{number:03d}.zarr"


def plain(value: Any) -> Any:
    """Numbers of NumPy as Python's, which a run's JSON can hold."""
    if isinstance(value, (str, bool)):
        return value
    return int(value) if isinstance(value, Integral) else float(value) if isinstance(value, np.floating) else value
