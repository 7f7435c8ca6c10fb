"""Output of a run's learner for the rows of a file: a new file, complete or not there at all."""

from __future__ import annotations

import csv
import io
import math
import os
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Plan
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.estimators.base.work_folder import locked_folder
from dkl.io.paths import AnyPath, ObjectPath, is_address
from dkl.io.reading import TableOptions
from dkl.io.table_lines import DELIMITERS
from dkl.linalg.rows.column_moments import ColumnScale
from dkl.runs.inputs.files import check_new
from dkl.runs.interrupt import echo
from dkl.stores.folders import create_private
from dkl.stores.object_commits import PROBE, create_object, require_conditional_puts

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

SUFFIXES = (".npy", ".npz", ".csv")
"""Kinds of files that rows are written to."""
EXISTS = "exists already and is never overwritten"
"""First clause of the error for a target that exists."""
FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""First characters of a cell that a spreadsheet takes for a formula."""


@dataclass(frozen=True)
class RowIds:
    """The ids (n,) of rows as text, and the name of their column."""

    name: str
    ids: NDArray[np.str_]


@dataclass(frozen=True)
class OutputRequest:
    """Rows to apply a run to, targets to compare with, and options.
    decision: decision values instead of labels. rows: the rows, where they were read and checked already; scale: by
    which their columns are standardized before anything is computed of them; table: how delimited text is read."""

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

    name: of the array in an .npz archive; column: of its columns in a .csv file, or all their names. summary: what it is, in a line.
    remarks: asked once all is written, as how good the predictions are. plan: bytes of a process, None for few; MemoryBudgetError where
    they do not fit.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    name: str
    summary: str
    blocks: Callable[[Session], Iterator[NDArray]]
    remarks: Callable[[], list[str]] = list
    plan: Callable[[Session], Plan] | None = None
    column: str | tuple[str, ...] = "c"


def check_output(out: str | Path) -> AnyPath:
    """Return `out` as an absolute path or address, if a new file of one of SUFFIXES can be made there."""
    target = ObjectPath.of(out, "--out") if is_address(out) else check_new(out)
    if target.suffix not in SUFFIXES:
        wanted = " or ".join(SUFFIXES)
        raise InputError("not a kind of file to write", where="--out", got=repr(target.suffix), wanted=wanted)
    if isinstance(target, ObjectPath):
        if target.exists():
            raise InputError(EXISTS, where=str(target), remedy="choose another --out")
        # Before any work: a store that would overwrite is found out now, not after an hour of predictions.
        require_conditional_puts(ObjectPath(f"{target}.{PROBE}{uuid.uuid4().hex[:8]}"), target)
    return target


def write_rows(
    target: AnyPath,
    shape: tuple[int, ...],
    blocks: Iterator[NDArray],
    dtype: DTypeLike,
    name: str = "factor",
    column: str | tuple[str, ...] = "c",
    row_ids: RowIds | None = None,
) -> None:
    """Write an array from blocks of its rows to a new file or object: .npy, .npz (as `name`) or .csv.

    A .csv file has a line a row. With `row_ids` each begins with the row's id, and the first line holds names: that of the ids and
    `column`, followed by a number where there are several columns, or the names of all of them; without ids it has neither.
    """
    with appearing(target) as file:
        if target.suffix == ".npy":
            _write_array(file, shape, blocks, dtype)
        elif target.suffix == ".csv":
            _write_csv(file, shape, blocks, column, row_ids)
        else:
            with (
                zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
                # zip64 at once, as zipfile does not know yet how much will be written.
                archive.open(f"{name}.npy", "w", force_zip64=True) as member,
            ):
                _write_array(member, shape, blocks, dtype)


def _write_array(file: IO[bytes], shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: DTypeLike) -> None:
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": tuple(shape)}
    # The header first and then blocks, as numpy.save would want the whole array.
    np.lib.format.write_array_header_1_0(file, header)
    for block in blocks:
        file.write(np.ascontiguousarray(block).data)


def _write_csv(
    file: IO[bytes],
    shape: tuple[int, ...],
    blocks: Iterator[NDArray],
    column: str | tuple[str, ...],
    row_ids: RowIds | None,
) -> None:
    start, formulas = 0, 0
    if row_ids is not None:
        several = column if isinstance(column, tuple) else [f"{column}{k}" for k in range(math.prod(shape[1:]))]
        names = [column] if len(shape) == 1 and isinstance(column, str) else several
        _write_cells(file, [[row_ids.name, *names]])
    for block in blocks:
        if block.dtype.kind == "U":
            formulas += sum(map(_is_formula, block.tolist()))
        if row_ids is None and block.dtype.kind != "U":
            # 17 digits: enough that every double is read back to the bit.
            np.savetxt(file, block, delimiter=",", fmt="%.17g" if block.dtype.kind == "f" else "%d")
        else:
            cells = [[_as_text(cell) for cell in row] for row in block.reshape(len(block), -1).tolist()]
            if row_ids is not None:
                some = row_ids.ids[start : start + len(block)].tolist()
                cells = [[name, *row] for name, row in zip(some, cells, strict=True)]
            _write_cells(file, cells)
        start += len(block)
    if formulas:
        echo(f"note: a spreadsheet takes {formulas:,} of these labels for formulas: import them as text", err=True)


def _write_cells(file: IO[bytes], rows: list[list[str]]) -> None:
    text = io.StringIO(newline="")
    for row in rows:
        # A cell with a character that readers take for a delimiter is put in quotes, too.
        is_plain = not any(mark in cell for cell in row for mark in DELIMITERS)
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL if is_plain else csv.QUOTE_ALL).writerow(row)
    file.write(text.getvalue().encode())


def _as_text(cell: object) -> str:
    """Return a cell as text that reads back as the same value; labels are written unchanged."""
    return format(cell, ".17g") if isinstance(cell, float) else str(cell)


def _is_formula(label: str) -> bool:
    """Return whether a spreadsheet would run a label: it begins as a formula and is not a signed number."""
    if not label.startswith(FORMULAS):
        return False
    try:
        float(label)
    except ValueError:
        return True
    return False


@contextmanager
def appearing(target: AnyPath) -> Iterator[IO[bytes]]:
    """Open a file that is at `target` once all is written, unless another has appeared there."""
    with _object(target) if isinstance(target, ObjectPath) else _file(target) as file:
        yield file


@contextmanager
def _object(target: ObjectPath) -> Iterator[IO[bytes]]:
    """Open a file in a temporary folder, which is sent to a store once all is written."""
    with locked_folder(tempfile.gettempdir(), "dkl-out", uuid.uuid4().hex[:8]) as folder:
        with _file(folder / f"rows{target.suffix}") as file:
            yield file
        if not create_object(target, folder / f"rows{target.suffix}"):
            raise InputError(EXISTS, where=str(target))


@contextmanager
def _file(target: Path) -> Iterator[IO[bytes]]:
    """Open a file next to `target` that takes its place at the end; raise InputError if it exists then."""
    partial = target.with_name(f".dkl-{uuid.uuid4().hex[:12]}.partial")  # not longer for a long name
    try:
        with create_private(partial) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, target)  # unlike a rename this never replaces
    except FileExistsError as error:
        raise InputError(EXISTS, where=str(target)) from error
    except OSError as error:
        raise DiskError(f"cannot be written ({error.strerror})", where=str(target), remedy="free space") from error
    finally:
        partial.unlink(missing_ok=True)
