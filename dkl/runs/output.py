"""What a run's learner makes of the rows of a file, written to another: all of it, or nothing."""

from __future__ import annotations

import csv
import io
import os
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dkl._object_paths import AnyPath
from dkl._table_options import TableOptions
from dkl.blocks.plan import Plan
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.linalg.column_scale import ColumnScale
from dkl.runs.files import check_new
from dkl.stores.private_files import create_private

SUFFIXES = {"predict": (".npy", ".npz", ".csv"), "transform": (".npz", ".npy")}
"""Kinds of files that each verb writes."""


FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet takes for a formula."""


@dataclass(frozen=True)
class Request:
    """Which rows, beside which targets, and how. decision: decision values in place of labels; rows: themselves, where they
    were read and looked at already; scale: by which their columns are standardized before anything is computed of them; table:
    how delimited text is read."""

    data: str | AnyPath
    targets: str | AnyPath | None = None
    decision: bool = False
    memory_limit: int | None = None
    rows: RowSource | None = None
    scale: ColumnScale | None = None
    table: TableOptions = TableOptions()
    names: tuple[str, ...] | None = None
    """Names of the columns that were learned from."""


@dataclass(frozen=True)
class Output:
    """An array of `shape` and `dtype`, made block by block: rows of the first axis in their order.

    name: of the array in an .npz archive. summary: what it is, in a line. remarks: asked once all is written, as how good
    the predictions are. plan: bytes of a process, None for few; MemoryBudgetError where they do not fit.
    """

    shape: tuple[int, ...]
    dtype: Any
    name: str
    summary: str
    blocks: Callable[[Session], Iterator[NDArray]]
    remarks: Callable[[], list[str]] = list
    plan: Callable[[Session], Plan] | None = None


def check_output(out: str | Path, verb: str) -> Path:
    """`out`, absolute, if a new file of a kind that the verb writes can be made there."""
    target = check_new(out)
    if target.suffix not in SUFFIXES[verb]:
        wanted = " or ".join(SUFFIXES[verb])
        raise InputError("not a kind of file to write", where="--out", got=repr(target.suffix), wanted=wanted)
    return target


def write_rows(
    target: Path, shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: Any, name: str = "factor"
) -> None:
    """An array from blocks of its rows into a new .npy file, as `name` into a new .npz archive, or as lines of .csv."""
    with _appearing(target) as file:
        if target.suffix == ".npy":
            _write_array(file, shape, blocks, dtype)
            return
        if target.suffix == ".csv":
            for block in blocks:
                _write_lines(file, block)
            return
        with (
            zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
            archive.open(f"{name}.npy", "w", force_zip64=True) as member,
        ):
            _write_array(member, shape, blocks, dtype)


def _write_array(file: IO[bytes], shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: Any) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": tuple(shape)}
    np.lib.format.write_array_header_1_0(file, header)
    for block in blocks:
        file.write(np.ascontiguousarray(block).data)


def _write_lines(file: IO[bytes], block: NDArray) -> None:
    if block.dtype.kind != "U":
        np.savetxt(file, block, delimiter=",", fmt="%.17g" if block.dtype.kind == "f" else "%d")
        return
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([_as_text(cell)] for cell in block.tolist())
    file.write(text.getvalue().encode())


def _as_text(label: str) -> str:
    """A label as a spreadsheet shows it: one that it would run as a formula stands behind an apostrophe, as is usual."""
    if not label.startswith(FORMULAS):
        return label
    try:
        float(label)  # a signed number is no formula
    except ValueError:
        return f"'{label}"
    return label


@contextmanager
def _appearing(target: Path) -> Iterator[IO[bytes]]:
    """A file that stands at `target` once all is written, unless something has come there in the meantime."""
    partial = target.with_name(f".dkl-{uuid.uuid4().hex[:12]}.partial")  # not longer for a long name
    try:
        with create_private(partial) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, target)  # unlike a rename this never replaces
    except FileExistsError as error:
        raise InputError("exists already and is never overwritten", where=str(target)) from error
    except OSError as error:
        raise DiskError(f"cannot be written ({error.strerror})", where=str(target), remedy="free space") from error
    finally:
        partial.unlink(missing_ok=True)
