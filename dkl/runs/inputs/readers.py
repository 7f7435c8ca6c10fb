"""Rows in files, read whole or by their shape alone, and pairs, triplets and constraints of them.

What is on disk as it would be in memory (zarr, .npy, .npz that is not packed) is read block by block. Packed .npz, .csv and
svmlight are read at once: how many bytes that takes is known before, from headers and counts, and what is too large for the
limit is refused before it is read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from dkl.blocks.memory_plan import PROCESS_BASE, check_size
from dkl.blocks.rows import row_pieces
from dkl.blocks.rows.row_blocks import MEMORY_SHARE
from dkl.blocks.rows.row_sources import RowSource, bytes_of_rows, row_source
from dkl.errors import InputError, MemoryBudgetError
from dkl.io.array_files import is_read, is_svmlight, read_array, unknown_kind
from dkl.io.npy_files import FileArray, array_in
from dkl.io.paths import AnyPath, is_packed, table_suffix
from dkl.io.reading import FileRoom, TableOptions, file_room, reading
from dkl.io.table_lines import DELIMITERS, Counts, counted, file_name, is_text
from dkl.io.tables import read_table
from dkl.resources import format_bytes, machine_memory
from dkl.runs.inputs.files import Files
from dkl.side_information.loading import pairs_in_file, triplets_in_file
from dkl.side_information.matrices import COLUMNS, ENTRY_BYTES, FEWER_ENTRIES, ConstraintMatrices, constraints_in_file
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets

# -- rows ---------------------------------------------------------------------------------------------------------------


CHECKED_BYTES = 2_000_000
"""Bytes of rows whose values are checked together."""
READ_AT_ONCE = 16_000_000
"""Bytes of an archive's array up to which streaming it is not worthwhile."""
CSV_CELL, SVMLIGHT_ENTRY, TEXT_CELL = 10, 24, 200
"""Bytes that parsing takes for a number of the text, at its peak: measured 8.7 and 16.3; and for an id or a class: 157."""


def load_rows(path: AnyPath, memory_limit: int | None = None, table: TableOptions | None = None) -> RowSource:
    """Return the rows in a file or zarr array; of delimited text as `table` says, with names and ids.

    Raises MemoryBudgetError for a file that must be read at once and does not fit, InputError for `table` with other kinds of files.
    """
    return _rows_in(path, memory_limit, table, peek=False)


def peek_rows(path: AnyPath, memory_limit: int | None = None, table: TableOptions | None = None) -> RowSource:
    """Load rows as `load_rows`, but only shape and dtype of a dense array in an .npz file."""
    return _rows_in(path, memory_limit, table, peek=True)


def _rows_in(path: AnyPath, memory_limit: int | None, table: TableOptions | None, *, peek: bool) -> RowSource:
    """Return the rows in a file or zarr array; its header is read once."""
    require_table(path, table)
    if path.is_dir():
        return row_source(str(path), where=str(path))
    found = array_in(path)
    if found is not None and _is_streamed(found, path):
        return row_source(found.raw, where=str(path))
    if peek and found is not None and found.header.dtype.kind in "biuf":
        # An array of the right shape in no memory: its strides are 0.
        rows = row_source(np.broadcast_to(np.zeros((), found.header.dtype), found.header.shape), where=str(path))
        rows.own_bytes = found.header.nbytes
        return rows
    with reading(path):
        needed = _bytes_at_once(path, found, table, max(READ_AT_ONCE, _limit(memory_limit) - PROCESS_BASE))
    what, remedy = (
        "the rows do not fit: such a file is read at once",
        "store the rows as .npy or zarr, which are read a few at a time",
    )
    _require(needed, memory_limit, what, path, f"raise memory_limit, or {remedy}")
    if table_suffix(path) is not None:
        return _table_rows(path, table)
    return _owned(row_source(read_array(path), where=str(path)))


def _table_rows(path: AnyPath, options: TableOptions | None) -> RowSource:
    """Return the rows of delimited text, with names, ids and a note of what was decided."""
    found = read_table(path, options)
    rows = _owned(row_source(found.values, where=str(path)))
    rows.names, rows.ids, rows.note = found.names, found.ids, found.note
    return rows


def require_table(path: AnyPath, table: TableOptions | None) -> None:
    """Raise InputError for options of delimited text where the file is of another kind, or of none that is read."""
    given = (table or TableOptions()).as_dict()
    if given and table_suffix(path) is None:
        if path.is_file() and not is_read(path):
            raise unknown_kind(path)
        got = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(
            "options of delimited text", where=str(path), got=got, wanted="a .csv or .tsv file, or none of these"
        )


def is_peeked(rows: RowSource) -> bool:
    """Return whether the entries are yet to be read."""
    # By its strides: `peek_rows` broadcasts a single number.
    return isinstance(rows.array, np.ndarray) and not any(rows.array.strides)


def check_values(rows: RowSource) -> None:
    """Read all rows once; InputError for the first value that is not finite or too large to square."""
    # In this thread: reading takes longer than checking, and each thread would need its own memory to read and unpack.
    row_pieces.check_values(rows, max(1, CHECKED_BYTES // rows.row_bytes))


def require_room_for_targets(path: AnyPath, memory_limit: int | None) -> None:
    """Raise MemoryBudgetError if a packed y, once unpacked, exceeds what a process may use."""
    found = array_in(path, "y") if path.suffix.lower() == ".npz" else None
    # Twice: as read, and in the type that a fit takes.
    needed = 0 if found is None else 2 * found.header.nbytes
    remedy = "raise memory_limit, or check the shape and type of y"
    _require(needed, memory_limit, "the targets do not fit", path, remedy)


def _owned(rows: RowSource) -> RowSource:
    """Mark the rows' array in memory as this run's alone, and return the rows."""
    if rows.is_sparse or rows.is_in_memory:
        rows.own_bytes = bytes_of_rows(rows.array)
    return rows


def _limit(memory_limit: int | None) -> int:
    return int(MEMORY_SHARE * machine_memory()) if memory_limit is None else memory_limit


@contextmanager
def files_within(memory_limit: int | None) -> Iterator[None]:
    """Limit the readers of all files of a command to the memory that the process leaves of its limit."""
    with file_room(FileRoom(_limit(memory_limit), PROCESS_BASE)):
        yield


def _require(needed: int, memory_limit: int | None, what: str, where: AnyPath, remedy: str) -> None:
    """Raise MemoryBudgetError if `needed` bytes exceed the limit; few bytes are left to the plan's error."""
    limit = _limit(memory_limit)
    if needed > READ_AT_ONCE and PROCESS_BASE + needed > limit:
        raise _too_little(what, where, limit, PROCESS_BASE + needed, remedy)


def _too_little(what: str, where: AnyPath, limit: int, needed: int, remedy: str) -> MemoryBudgetError:
    got, wanted = f"memory_limit {format_bytes(limit)}", f"at least {format_bytes(needed)}"
    return MemoryBudgetError(what, where=str(where), got=got, wanted=wanted, remedy=remedy)


def reading_bytes(path: AnyPath) -> int:
    """Return the peak bytes of reading a file at once, from headers or counts; 0 if streamed or refused."""
    found = None if path.is_dir() else array_in(path)
    if path.is_dir() or (found is not None and _is_streamed(found, path)):
        return 0
    with reading(path):
        return _bytes_at_once(path, found)


def _bytes_at_once(
    path: AnyPath, found: FileArray | None, table: TableOptions | None = None, most: int | None = None
) -> int:
    """Return the peak bytes of reading a file at once. found: its array, if that has a header.

    What is counted is not counted further once it is beyond `most` bytes.
    """
    if path.suffix.lower() == ".npz":
        return _csr_bytes(path) if found is None else found.header.nbytes
    if table_suffix(path) is not None:
        texts = 0 if table is None else (table.id_column is not None) + (table.target_column is not None)

        def of_table(counts: Counts) -> int:
            width = max(counts.first.count(mark.encode()) for mark in DELIMITERS) + 1
            least = counts.size if is_packed(path) else 0  # a line may be all that is in it
            return max(least, (counts.lines + 1) * (CSV_CELL * width + TEXT_CELL * texts))

        return of_table(counted(path, b"\n", of_table, most))
    return _of_svmlight(counted(path, b":", _of_svmlight, most)) if is_svmlight(path) else 0


def _of_svmlight(counts: Counts) -> int:
    return max(SVMLIGHT_ENTRY * (counts.marks + counts.lines), counts.size)


def _is_streamed(found: FileArray, path: AnyPath) -> bool:
    """Return whether the rows of an array are read from the file a few at a time."""
    return found.raw is not None and (path.suffix.lower() == ".npy" or found.header.nbytes > READ_AT_ONCE)


def _csr_bytes(path: AnyPath) -> int:
    """Return twice the bytes of a sparse matrix in an archive: scipy may copy its indices. 0 if invalid."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            return 2 * sum(info.file_size for info in archive.infolist())
    except (OSError, ValueError, zipfile.BadZipFile):  # ValueError: an object too short for the end of an archive
        return 0


# -- pairs, triplets and constraints -------------------------------------------------------------------------------------------------


ARGUMENTS = ("must_link", "cannot_link", "must_link, cannot_link", "pairs", "triplets", "constraints")
"""Names by which errors of side information call the arguments of `fit` that a file stands for."""
OTHER_ROWS = "is this a file of other rows? rows are numbered from 0, in the order of --data"


@contextmanager
def naming_the_file(file: AnyPath) -> Iterator[None]:
    """Add the file to an error of side information that names an argument of `fit`, and give a remedy for files."""
    try:
        yield
    except InputError as error:
        if error.where not in ARGUMENTS and not str(error.where).startswith("constraints"):
            raise
        remedy = OTHER_ROWS if error.remedy and "sample_ids" in error.remedy else error.remedy
        where = f"{error.where} of {file}"
        raise type(error)(error.what, where=where, got=error.got, wanted=error.wanted, remedy=remedy) from error


def read_pairs(files: Files, rows: RowSource) -> Pairs:
    """Return the pairs in a file, by the ids of rows that have any; InputError as of `dkl.load_pairs`."""
    file, table = files["pairs"], files.table
    pairs, named = pairs_in_file(
        file, header=_header(files), delimiter=table.delimiter, decimal=table.decimal, ids=rows.ids
    )
    _note(f"{len(pairs.must_link) + len(pairs.cannot_link):,} pairs", file, named, rows)
    return pairs


def read_triplets(files: Files, rows: RowSource) -> Triplets:
    """Return the triplets in a file, by the ids of rows that have any; InputError as of `dkl.load_triplets`.

    Raises InputError for a first line of numbers below a table of which --header was said: it may be names as well.
    """
    file, header = files["triplets"], _header(files)
    _refuse_unclear_header(files, file, "a triplet", "anchor,similar,dissimilar above the triplets")
    triplets, named = triplets_in_file(file, header=header, delimiter=files.table.delimiter, ids=rows.ids)
    _note(f"{len(triplets.triplets):,} triplets", file, named, rows)
    return triplets


def read_constraints(files: Files, rows: RowSource, memory_limit: int | None) -> ConstraintMatrices:
    """Return the constraint matrices in a file, checked, by the ids of rows that have any.

    Raises InputError as `constraints_in_file` and `ConstraintMatrices`, MemoryBudgetError for entries that do not fit.
    """
    file, table = files["constraints"], files.table
    _refuse_unclear_header(files, file, "an entry", f"{','.join(COLUMNS)} above the entries")
    found, named = constraints_in_file(
        file, header=_header(files), delimiter=table.delimiter, decimal=table.decimal, ids=rows.ids
    )
    check_size({"the constraints' entries": ENTRY_BYTES * len(found)}, memory_limit, FEWER_ENTRIES)
    made = ConstraintMatrices.of_table(rows.n, found)
    _note(f"{made.count:,} constraints", file, named, rows)
    return made


def _refuse_unclear_header(files: Files, file: AnyPath, what: str, names: str) -> None:
    """Raise InputError for a first line of numbers where --header was said of the table of rows."""
    if not files.table.header or _header(files) is not None or table_suffix(file) is None:
        return
    with reading(file):
        is_clear = is_text(file)
    if not is_clear:
        where, remedy = f"{file}, line 1, --header", f"write {names}, or store them as .npy"
        raise InputError(f"names of columns, or {what}?", where=where, remedy=remedy)


def _header(files: Files) -> bool | None:
    """Return --header for a file of side information; None if the data are text and it is for these."""
    return None if table_suffix(files["data"]) is not None else files.table.header


def _note(count: str, file: AnyPath, named: int, rows: RowSource) -> None:
    """Add to the rows' note what was decided of a file of pairs or triplets. named: its line of names that are not ours, 0 for none."""
    decided = [f"line {named} names the columns"] if named else []
    if rows.ids is not None:
        decided.append("rows by these ids")
    if decided:
        note = f"{file_name(file)}: {count}, {', '.join(decided)}"
        rows.note = f"{rows.note}; {note}" if rows.note else note
