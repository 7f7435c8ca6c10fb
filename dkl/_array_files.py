"""Arrays in files: .npy, .npz, .csv and svmlight. Nothing is unpickled, and whatever is wrong is an `InputError`."""

from __future__ import annotations

import csv
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dkl._npy_headers import check_npy, member_header
from dkl._paths import as_path, require_file
from dkl.errors import DklError, InputError

_CSR_PARTS = frozenset({"data", "indices", "indptr", "shape"})
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")  # 007 is a name, not a number
_UNREADABLE = (
    *(OSError, ValueError, EOFError, KeyError, OverflowError, NotImplementedError, MemoryError, RuntimeError),
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)
"""What libraries raise on damaged files; encrypted members of archives are RuntimeErrors."""
_SVMLIGHT = frozenset({".svmlight", ".svm", ".libsvm"})


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turns whatever a library raises on an absent, damaged or foreign file into one `InputError` that names it.

    DklErrors pass unchanged. Only ordinary files are read: of a pipe or a device there may be no end.
    """
    require_file(path)
    try:
        yield
    except DklError:
        raise
    except _UNREADABLE as error:
        # NumPy refuses to unpickle with a ValueError, told from others by its text alone.
        objects = "pickle" in str(error) or "Python objects" in str(error)
        remedy = "arrays of objects are never read; store numbers" if objects else None
        raise InputError("the file cannot be read", where=str(path), got=error, remedy=remedy) from error


def read_array(path: str | Path, key: str | None = None) -> Any:
    """The array in a file, by the file's suffix.

    .npy : memory-mapped, read-only.
    .npz : the array `key`; without a key X, else the CSR matrix in data, indices, indptr and shape (also as
        `scipy.sparse.save_npz` writes it), else the only array there is.
    .csv : (n, d) float64, comma-separated, with or without a first line of names, none of them a number.
    .svmlight, .svm, .libsvm : (n, d) csr_array of float64; with key="y" the labels (n,).

    A zarr array is not read here: it stays where it is, open it and pass it as it is.
    Errors: `InputError` for a missing, damaged or foreign file, an unknown key, and anything but numbers.
    """
    path = as_path(path)
    suffix = path.suffix.lower()
    if suffix not in {".npy", ".npz", ".csv"} | _SVMLIGHT:
        remedy = "open a zarr array with zarr.open_array(path, mode='r') and pass that" if path.is_dir() else None
        wanted = ".npy, .npz, .csv, " + ", ".join(sorted(_SVMLIGHT))
        raise InputError("not a kind of file to read", where=str(path), got=repr(suffix), wanted=wanted, remedy=remedy)
    if key is not None and suffix != ".npz" and not (suffix in _SVMLIGHT and key == "y"):
        raise InputError("no keys in such a file", where=str(path), got=repr(key))
    if suffix == ".npz":
        return _from_npz(path, key)
    with reading(path):
        if suffix == ".npy":
            check_npy(path)
            return _numbers(np.load(path, mmap_mode="r", allow_pickle=False), path)
        return _from_csv(path) if suffix == ".csv" else _from_svmlight(path, key)


def read_labels(path: str | Path, n: int) -> NDArray[Any]:
    """The (n,) class labels in a file, numbers or text.

    From y of an .npz archive or its only array, .npy, y of svmlight, or a .csv file of one column, with or without a name in
    its first line. Labels in .csv are integers if all of them are written as integers.

    Errors: `InputError` for a missing, damaged or foreign file, and for anything but n labels.
    """
    path = as_path(path)
    suffix = path.suffix.lower()
    if suffix in _SVMLIGHT:
        found = read_array(path, "y")
    elif suffix == ".npz":
        with _archive(path) as archive:
            names = archive.files
            name = "y" if "y" in names or len(names) != 1 else names[0]
            if name not in names:
                raise InputError("no such array", where=str(path), got=repr(name), wanted=", ".join(names))
            found = _member(archive, name, path)
    elif suffix == ".npy":
        with reading(path):
            check_npy(path)
            found = np.load(path, allow_pickle=False)
    elif suffix == ".csv":
        with reading(path):
            found = _labels_from_csv(path, n)
    else:
        wanted = ".npy, .npz, .csv, " + ", ".join(sorted(_SVMLIGHT))
        raise InputError("not a kind of file to read", where=str(path), got=repr(suffix), wanted=wanted)
    found = found[:, 0] if getattr(found, "ndim", 0) == 2 and found.shape[1] == 1 else found
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "biufU":
        got = f"dtype {found.dtype}" if isinstance(found, np.ndarray) else type(found).__name__
        raise InputError("not labels", where=str(path), got=got, wanted="integers or text")
    if found.shape != (n,):
        raise InputError("not labels of these rows", where=str(path), got=f"shape {found.shape}", wanted=f"({n},)")
    return found


def _labels_from_csv(path: Path, n: int) -> NDArray[Any]:
    """The labels of a one-column file; one line more than n is a header."""
    with open(path, encoding="utf-8-sig", newline="") as text:
        rows = [row for row in csv.reader(text) if row]
    for number, row in enumerate(rows, 1):
        if len(row) != 1:
            raise InputError("malformed line", where=f"{path}, label {number}", got=f"{len(row)} cells", wanted="1")
    cells = [row[0].strip() for row in rows]
    # A header cannot be told from a label of text, but the number of rows is known.
    cells = cells[1:] if len(cells) == n + 1 else cells
    if all(map(_INTEGER.fullmatch, cells)):
        with suppress(OverflowError):
            return np.array([int(cell) for cell in cells], np.int64)
    return np.array(cells, np.str_)


def read_npz(path: str | Path, *names: str) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz file by name, or those of them among `names`. Errors: `InputError`; nothing is unpickled."""
    with _archive(path) as archive:
        return {name: _member(archive, name, path) for name in archive.files if not names or name in names}


def _member(archive: Any, name: str, path: str | Path) -> NDArray[Any]:
    """An array of an .npz archive, once its header is known to promise no more than there is."""
    member_header(archive.zip, name, path)
    found: NDArray[Any] = archive[name]
    return found


@contextmanager
def _archive(path: str | Path) -> Iterator[Any]:
    """An open .npz archive."""
    # NumPy leaves a file that it opened itself open where the archive is damaged.
    with reading(path), open(path, "rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError("not an .npz archive", where=str(path))
        with archive:
            yield archive


def csr_from_parts(arrays: Mapping[str, NDArray[Any]], where: str | Path) -> csr_array:
    """The CSR matrix in data, indices, indptr and shape, with every index checked: scipy would read beyond its arrays.

    `where` names the file in errors. Errors: `InputError` for missing parts, another format, and indices out of range.
    """
    if not arrays.keys() >= _CSR_PARTS:
        wanted = "X, or data, indices, indptr and shape of a CSR matrix"
        raise InputError("no X in the file", where=str(where), got=", ".join(sorted(arrays)), wanted=wanted)
    if "format" in arrays and arrays["format"].tolist() not in (b"csr", "csr"):
        raise InputError("not a CSR matrix", where=str(where), got=arrays["format"].tolist(), wanted="csr")
    data = _numbers(arrays["data"], where)
    try:
        matrix = csr_array((data, arrays["indices"], arrays["indptr"]), shape=tuple(map(int, arrays["shape"])))
        matrix.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise InputError("damaged CSR matrix", where=str(where), got=error) from error
    return matrix


def _from_npz(path: Path, key: str | None) -> Any:
    """The array `key` of an archive, or what `read_array` takes without a key."""
    with _archive(path) as archive:
        names = archive.files
    if key is None and "X" not in names and _CSR_PARTS.issubset(names):
        return csr_from_parts(read_npz(path, "format", *_CSR_PARTS), path)
    wanted = key or (names[0] if len(names) == 1 else "X")
    if wanted not in names:
        remedy = "name the array that is meant by its key"
        raise InputError("no such array", where=str(path), got=repr(wanted), wanted=", ".join(names), remedy=remedy)
    return _numbers(read_npz(path, wanted)[wanted], path)


def _from_csv(path: Path) -> NDArray[np.float64]:
    """(n, d) float64 of a comma-separated file; the line that is no numbers is named by the error."""
    with open(path, encoding="utf-8-sig") as text:
        first = text.readline().split(",")
        header = not any(map(_is_number, first))  # a damaged first row is not a header
        if header and not any(line.strip() for line in text):
            raise InputError("no rows in the file", where=str(path))
    try:
        X = np.loadtxt(path, delimiter=",", skiprows=int(header), ndmin=2, comments=None, encoding="utf-8-sig")
        if X.shape[1] != len(first):
            raise ValueError("header and rows differ in length")
    except ValueError as error:
        raise _malformed_line(path, header, len(first)) or error from error
    return X


def _malformed_line(path: Path, header: bool, width: int) -> InputError | None:
    """The error that names the first line of a CSV file that is not `width` numbers."""
    with open(path, encoding="utf-8-sig") as text:
        for number, line in enumerate(text, 1):
            cells = line.split(",")
            good = len(cells) == width and all(map(_is_number, cells))
            if line.strip() and not good and not (header and number == 1):
                got = f"{len(cells)} cells, {line.strip()[:60]!r}"
                where = f"{path}, line {number}"
                return InputError("malformed line", where=where, got=got, wanted=f"{width} numbers")
    return None


def _is_number(cell: str) -> bool:
    """Whether Python reads the cell as a float."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _from_svmlight(path: Path, key: str | None) -> Any:
    """X (n, d) CSR or, for key="y", the labels (n,)."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(path))
    return y if key == "y" else csr_array(X)


def _numbers(array: Any, where: str | Path) -> Any:
    """The array itself; InputError for objects, text, dates and complex numbers."""
    if not isinstance(array, np.ndarray):  # of a member that is no .npy file, numpy returns the bytes
        raise InputError("not an array", where=str(where), got=type(array).__name__, wanted="integers or floats")
    if array.dtype.kind not in "biuf":
        raise InputError("not numbers", where=str(where), got=f"dtype {array.dtype}", wanted="integers or floats")
    return array
