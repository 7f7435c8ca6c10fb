"""Arrays in files: .npy, .npz, .csv, .tsv and svmlight. Nothing is unpickled, and whatever is wrong is an `InputError`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dkl.errors import InputError
from dkl.io.npy_files import check_npy, member_header
from dkl.io.paths import TABLES, AnyPath, as_source, table_suffix
from dkl.io.reading import TableOptions, reading, require_room
from dkl.io.table_lines import (
    WITHOUT_INDEX,
    found_delimiter,
    is_missing,
    is_number,
    is_unnamed,
    named_delimiter,
    open_bytes,
    open_text,
    require_text_room,
    rows_of,
    sample,
)
from dkl.io.tables import TableLayout, read_table, read_texts

SUFFIXES = (".libsvm", ".svm", ".svmlight")
"""Suffixes of files in svmlight's format, which .gz may follow."""
OTHERS = (".npy", ".npz", ".csv", ".tsv", ".zarr", ".json", ".yaml", ".py", ".txt.gz", ".csv.gz", ".tsv.gz")
"""Suffixes of files of other formats, which are not looked into."""
MOST_COMMENTS, MOST_BYTES = 100, 1 << 16
"""Maximum numbers of comment lines passed over, and of bytes looked at in a line."""
_NUMBER = rb"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
_LINE = re.compile(rb"%s(?:,%s)*(?:\s+qid:[0-9]+)?(?:\s+[0-9]+:%s)+(?:\s.*)?" % (_NUMBER, _NUMBER, _NUMBER), re.DOTALL)


def is_svmlight(path: AnyPath) -> bool:
    """Return whether a file is of this format: by its suffix, or where that says nothing by its first line with a label."""
    name = path.name.lower()
    if name.removesuffix(".gz").endswith(SUFFIXES):
        return True
    if name.endswith(OTHERS) or not path.is_file():
        return False
    try:
        with open_bytes(path) as file:
            lines = (file.readline(MOST_BYTES).strip() for _ in range(MOST_COMMENTS))
            first = next((line for line in lines if line and not line.startswith(b"#")), b"")
    except (OSError, EOFError):
        return False
    # A line that was cut off at MOST_BYTES may end within a pair, which is left out.
    return _LINE.fullmatch(first.rpartition(b" ")[0] if len(first) >= MOST_BYTES - 1 else first) is not None


def read_svmlight(path: AnyPath, n_features: int | None = None) -> tuple[csr_array, NDArray[np.float64]]:
    """Return rows (n, d) and labels (n,). n_features: d, of which a file names the last that is not 0 in any of its rows.

    Raises InputError for more features than these, ValueError for a malformed file.
    """
    from sklearn.datasets import load_svmlight_file

    with open_bytes(path) as file:
        X, y = load_svmlight_file(file)
    return with_features(csr_array(X), n_features, path), y


def with_features(X: csr_array, n_features: int | None, where: AnyPath) -> csr_array:
    """Return sparse rows with as many features as wanted: what the format leaves out is 0. Raises InputError for more."""
    if n_features is None or n_features == X.shape[1]:
        return X
    if X.shape[1] > n_features:
        remedy = f"features {n_features + 1} to {X.shape[1]} were in no row that was learned from: leave them out, or fit with them"
        raise InputError(
            "another number of features", where=str(where), got=X.shape[1], wanted=n_features, remedy=remedy
        )
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], n_features))


_CSR_PARTS = frozenset({"data", "indices", "indptr", "shape"})
NOT_FITTING = "the array does not fit"
_KINDS = f".npy, .npz, .csv, .tsv, {', '.join(SUFFIXES)}, or lines of label index:value"


def unknown_kind(path: AnyPath) -> InputError:
    """Return the error for a file of a kind that is not read."""
    remedy = "write the table as text, for example by pandas' DataFrame.to_csv(path, index=False)"
    if path.is_dir():
        remedy = "open a zarr array with zarr.open_array(path, mode='r') and pass that"
    got = repr(path.suffix.lower())
    return InputError("not a kind of file to read", where=str(path), got=got, wanted=_KINDS, remedy=remedy)


def is_read(path: AnyPath) -> bool:
    """Return whether a file is of a kind that is read, by its name or by its first line."""
    return table_suffix(path) is not None or path.suffix.lower() in (".npy", ".npz") or is_svmlight(path)


def read_array(
    path: str | AnyPath, key: str | None = None, *, header: bool | None = None, n_features: int | None = None
) -> Any:
    """Read the array in a file, by the file's suffix.

    .npy : memory-mapped, read-only; of an object in a store (s3://bucket/key) in memory.
    .npz : the array `key`; without a key X, else the CSR matrix in data, indices, indptr and shape (also as
        `scipy.sparse.save_npz` writes it), else the only array there is.
    .csv, .tsv, .csv.gz, .tsv.gz : (n, d) float64, with or without a first line of names; by the rule of `read_table`, which chooses
        columns too. header: whether there is such a line, where both is possible.
    .svmlight, .svm, .libsvm, also with .gz, or a file of another or no suffix whose first line is of that format, as LIBSVM's own:
        (n, d) csr_array of float64; with key="y" the labels (n,). n_features: d, where the last features are 0 in all rows.

    A zarr array is not read here: it stays where it is, open it and pass it as it is.
    Errors: `InputError` for a missing, damaged or foreign file, an unknown key, and anything but numbers.
    """
    path = as_source(path)
    if not is_read(path):
        raise unknown_kind(path)
    suffix = table_suffix(path) or path.suffix.lower()
    is_sparse_text = is_svmlight(path)
    if key is not None and suffix != ".npz" and not (is_sparse_text and key == "y"):
        raise InputError("no keys in such a file", where=str(path), got=repr(key))
    if suffix == ".npz":
        return _from_npz(path, key)
    with reading(path):
        if suffix in TABLES:
            return read_table(path, TableOptions(header=header)).values
        if suffix == ".npy":
            found = _numbers(npy_array(path), path)
            require_room(found.nbytes, path, NOT_FITTING)
            return found
        X, y = read_svmlight(path, n_features)
        return y if key == "y" else X


def read_labels(
    path: str | AnyPath, n: int, table: TableOptions | None = None, *, header: bool | None = None
) -> NDArray:
    """Read the (n,) class labels in a file, numbers or text.

    From y of an .npz archive or its only array, .npy, y of svmlight, or a .csv or .tsv file: of one column, with or without a name in
    its first line; or of several, of which `table.target_column` names one. Labels in text are integers if all of them are written as
    integers, 1.0 too. With as many lines as labels the first is a label, with one more a name; but a line that occurs again, or a number
    above numbers, is no name, and text above numbers alone is no label: what has two readings is refused without `header`. An
    empty line is a missing label, but not at the end; a single one among text below a first line of text may as well separate labels.

    Errors: `InputError` for a missing, damaged or foreign file, and for anything but n labels.
    """
    path = as_source(path)
    suffix = table_suffix(path) or path.suffix.lower()
    if is_svmlight(path):
        found = read_array(path, "y")
    elif suffix == ".npz":
        with _archive(path) as archive:
            names = archive.files
            name = "y" if "y" in names or len(names) != 1 else names[0]
            if name not in names:
                raise _no_such_array(path, name, names)
            found = _members(archive, [name], path)[name]
    elif suffix == ".npy":
        with reading(path):
            mapped = npy_array(path)
            require_room(2 * mapped.nbytes, path, NOT_FITTING)
            found = np.array(mapped)
    elif suffix in TABLES:
        with reading(path):
            options = table or TableOptions()
            found = read_label_text(path, n, options if header is None else replace(options, header=header))
    else:
        raise unknown_kind(path)
    found = found[:, 0] if getattr(found, "ndim", 0) == 2 and found.shape[1] == 1 else found
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biufU":
        got = f"dtype {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
        raise InputError("not labels", where=str(path), got=got, wanted="integers or text")
    if found.shape != (n,):
        raise InputError("not labels of these rows", where=str(path), got=f"shape {found.shape}", wanted=f"({n},)")
    return found


def read_npz(path: str | AnyPath, *names: str) -> dict[str, NDArray]:
    """Read the arrays of an .npz file by name, all or `names`; raise InputError; nothing is unpickled."""
    with _archive(path) as archive:
        return _members(archive, [name for name in archive.files if not names or name in names], path)


def _members(archive: Any, names: list[str], path: str | AnyPath) -> dict[str, NDArray]:
    """Read arrays of an open .npz archive, if their headers promise no more than the file and memory hold."""
    require_room(sum(member_header(archive.zip, name, path).nbytes for name in names), path, NOT_FITTING)
    return {name: archive[name] for name in names}


_OF_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06")
"""First bytes of an archive, and of an empty one."""


@contextmanager
def _archive(path: str | AnyPath) -> Iterator[Any]:
    """Open an .npz archive."""
    path = as_source(path)
    # NumPy leaves a file that it opened itself open where the archive is damaged.
    with reading(path), path.open("rb") as file:
        start = file.read(len(_OF_ARCHIVES[0]))
        # NumPy takes all else for pickled objects, and would advise to load them.
        if start and start not in _OF_ARCHIVES:
            wanted = "a file of numpy.savez; other kinds have another suffix"
            raise InputError(
                "not an .npz archive", where=str(path), got=f"a file that starts with {start!r}", wanted=wanted
            )
        file.seek(0)
        # allow_pickle=False: a pickle in a file may run any code.
        with np.load(file, allow_pickle=False) as archive:
            yield archive


def csr_from_parts(arrays: Mapping[str, NDArray], where: str | AnyPath) -> csr_array:
    """Return the CSR matrix of data, indices, indptr and shape, with every index checked.

    scipy would read beyond its arrays.

    `where` names the file in errors. Errors: `InputError` for missing parts, another format, and indices out of range.
    """
    if not arrays.keys() >= _CSR_PARTS:
        wanted = "X, or data, indices, indptr and shape of a CSR matrix"
        raise InputError("no X in the file", where=str(where), got=", ".join(sorted(arrays)), wanted=wanted)
    # scipy.sparse.save_npz writes bytes; a file made by hand has text.
    if "format" in arrays and arrays["format"].tolist() not in (b"csr", "csr"):
        raise InputError("not a CSR matrix", where=str(where), got=arrays["format"].tolist(), wanted="csr")
    data = _numbers(arrays["data"], where)
    try:
        matrix = csr_array((data, arrays["indices"], arrays["indptr"]), shape=tuple(map(int, arrays["shape"])))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InputError("damaged CSR matrix", where=str(where), got=error) from error
    return matrix


def _no_such_array(path: AnyPath, name: str, names: list[str]) -> InputError:
    """Return the error of an archive without an array.

    Its remedy is one for files, since commands have no option for a key.
    """
    remedy = f"save the array that is meant under the key {name}: numpy.savez(path, {name}=...)"
    return InputError("no such array", where=str(path), got=repr(name), wanted=", ".join(names), remedy=remedy)


def _from_npz(path: AnyPath, key: str | None) -> Any:
    """Read the array `key` of an archive, or without a key what `read_array` takes."""
    with _archive(path) as archive:
        names = archive.files
        if key is None and "X" not in names and _CSR_PARTS.issubset(names):
            return csr_from_parts(_members(archive, [*_CSR_PARTS, *({"format"} & {*names})], path), path)
        wanted = key or (names[0] if len(names) == 1 else "X")
        if wanted not in names:
            raise _no_such_array(path, wanted, names)
        return _numbers(_members(archive, [wanted], path)[wanted], path)


def npy_array(path: AnyPath) -> NDArray:
    """Return the array of a .npy file, mapped into memory where that can be."""
    header = check_npy(path)
    if isinstance(path, Path):
        return np.load(path, mmap_mode="r", allow_pickle=False)
    require_room(header.nbytes, path, NOT_FITTING)
    with path.open("rb") as file:
        return np.load(file, allow_pickle=False)


def _numbers(array: object, where: str | AnyPath) -> NDArray:
    """Return the array itself; raise InputError for objects, text, dates and complex numbers."""
    if not isinstance(array, np.ndarray):  # of a member that is no .npy file, numpy returns the bytes
        raise InputError("not an array", where=str(where), got=type(array).__name__, wanted="integers or floats")
    if array.dtype.kind not in "biuf":
        raise InputError("not numbers", where=str(where), got=f"dtype {array.dtype}", wanted="integers or floats")
    return array


# -- class labels in text ----------------------------------------------------------------------------------------------
# Class labels in delimited text: a file of one column, or one column of a table.

_INTEGER = re.compile(r"([+-]?(?:0|[1-9][0-9]*))(?:\.0*)?")  # 007 is a name, not a number


def read_label_text(path: AnyPath, n: int, options: TableOptions) -> NDArray:
    """Return the n labels in delimited text, by the rule of `dkl.datasets.read_labels`: integers if all are, else text; "" is missing."""
    require_text_room(path, a_column=options.target_column is not None)
    if options.target_column is not None:
        return _typed(read_texts(path, options).tolist())
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    return _typed(_labels(_only_column(path, delimiter), n, options.header, path))


def first_is_name(path: AnyPath, n: int, options: TableOptions) -> bool:
    """Return whether a file of n labels or targets, which was read, has a line of names above them: it has one line more."""
    filled = last = width = 0
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    with open_text(path) as text:
        for place, (_, cells) in enumerate(rows_of(text, delimiter), 1):
            if cells:
                filled, last, width = filled + 1, place, len(cells)
    return (last if width == 1 else filled) > n  # in one column an empty line is a missing label


def label_line(path: AnyPath, n: int, row: int, options: TableOptions) -> int:
    """Return the number of the line, from 1, that holds label `row`, from 0, of a file of n labels that was read."""
    if options.target_column is not None:
        lines = [number for number, _ in islice(TableLayout.of(path, options).rows(), row + 1)]
        return lines[row]
    delimiter = named_delimiter(path, options.delimiter) or found_delimiter(path, sample(path))[0]
    header = first_is_name(path, n, options) if options.header is None else options.header
    with open_text(path) as text:
        lines = [number for number, _ in islice(rows_of(text, delimiter), row + 1 + header)]
    return lines[row + header]


def _only_column(path: AnyPath, delimiter: str) -> list[str]:
    """Return the cells of a file of one column, empty ones too, but not at the end. InputError for a line of several cells."""
    found: list[str] = []
    with open_text(path) as text:
        for number, cells in rows_of(text, delimiter):
            if len(cells) > 1:
                index = WITHOUT_INDEX if not found and len(cells) == 2 and is_unnamed(cells[0]) else None
                remedy = index or "name the column of labels by --target-column (TableOptions.target_column in Python)"
                where, got = f"{path}, line {number}", f"{len(cells)} cells"
                raise InputError("malformed line", where=where, got=got, wanted="1", remedy=remedy)
            found.append(cells[0].strip() if cells else "")
    while found and not found[-1]:
        found.pop()
    return found


def _labels(cells: list[str], n: int, header: bool | None, path: AnyPath) -> list[str]:
    """Return the cells that are labels of n rows; InputError where they are not n, or the first may be a name or a label."""
    if header is None:
        header = _is_name(cells, n, path)
    found = cells[1:] if header else cells
    if len(found) != n:
        below = " below its name" if header else ""
        got, wanted = f"{len(found):,} labels{below}", f"{n:,}"
        raise InputError("not labels of these rows", where=str(path), got=got, wanted=wanted)
    return found


def _is_name(cells: list[str], n: int, path: AnyPath) -> bool:
    """Return whether the first cell is the name of the labels below it; InputError where both is possible."""
    if not cells or len(cells) not in (n, n + 1):
        return False
    first, below = cells[0], [cell for cell in cells[1:] if cell]
    above_others = bool(below) and is_number(first) != is_number(below[0]) and len(set(map(is_number, below))) == 1
    above_numbers = above_others and not is_number(first)
    remedy = "leave out what is no label, or say whether the line is a name: --header or --no-header"
    where, got = f"{path}, line 1", f"{first!r} above {len(cells) - 1:,} lines, of {n:,} rows"
    if len(cells) == n:
        if above_numbers:
            raise InputError("text above numbers: a name, or a label?", where=where, got=got, remedy=remedy)
        return False
    # A single empty line may separate n labels, and would shift those below it, were it taken for one that is missing.
    is_certain = above_others or (not is_number(first) and len(cells) - 1 - len(below) != 1)
    if not first or first in below or not is_certain:
        raise InputError("one label too many, or a name above them?", where=where, got=got, remedy=remedy)
    return True


def _typed(cells: list[str]) -> NDArray:
    """Return labels as integers if all are written as such, 1.0 as 1, else as text; where some are missing, as text of integers."""
    found = [None if is_missing(cell) else _INTEGER.fullmatch(cell) for cell in cells]
    if not all(one or is_missing(cell) for one, cell in zip(found, cells, strict=True)):
        return np.array(cells, np.str_)
    if all(found):
        with suppress(OverflowError):
            # Labels beyond 64 bits stay text.
            return np.array([int(one[1]) for one in found if one], np.int64)
    return np.array([one[1] if one else cell for one, cell in zip(found, cells, strict=True)], np.str_)
