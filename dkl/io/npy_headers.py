"""Headers of .npy files and of the members of .npz archives, compared with the bytes that follow them.

NumPy makes an array of the shape that a header claims before it reads, and some shapes end in errors that are not about
files at all. Here a claim that the file cannot keep is an `InputError` that names it.
"""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np

from dkl.errors import DklError, InputError
from dkl.io.object_paths import AnyPath

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MOST = 2**63 - 1
_LONGEST = 10_000
"""Bytes of a header that NumPy takes at most, once it has read all of it."""
_DEFLATED, _OVERHEAD = 1032, 1024
"""Bytes that a deflated byte can stand for at most, and what may come on top."""


class Header(NamedTuple):
    """Shape, dtype and order that the header of a .npy file claims; fortran: column by column."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool

    @property
    def nbytes(self) -> int:
        """Return the bytes of all entries."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(file: IO[bytes], size: int, where: str | AnyPath) -> Header:
    """Return the header of the array at the position of `file`, of `size` bytes, and move to its entries; InputError for one
    that the file cannot hold."""
    try:
        version = np.lib.format.read_magic(file)
        if version not in _READERS:
            # Later ones exist for names of fields alone, which numbers do not have.
            raise InputError("not an array of numbers", where=str(where), got=f"version {version} of its header")
        size_of_length = 2 if version == (1, 0) else 4
        length = int.from_bytes(file.read(size_of_length), "little")
        if length > _LONGEST:
            raise InputError("not an array of numbers", where=str(where), got=f"a header of {length} bytes")
        file.seek(-size_of_length, 1)
        shape, fortran, dtype = _READERS[version](file)
        found = Header(shape, dtype, fortran)
    except (DklError, OSError, zipfile.BadZipFile):
        raise
    except Exception as error:  # Python's own parser reads it, which fails in many ways
        raise InputError("the file cannot be read", where=str(where), got=f"an invalid header: {error}") from error
    require_sizes(found.shape, where)
    there = size - file.tell()
    if found.nbytes > there and not found.dtype.hasobject:
        got = f"shape {found.shape} of {found.dtype}, and {there} bytes"
        raise InputError("shorter than its header says", where=str(where), got=got, wanted=f"{found.nbytes} bytes")
    return found


def require_sizes(shape: tuple[Any, ...], where: str | AnyPath) -> None:
    """Raise InputError for a shape that no array has: with a size below 0, or beyond 64 bits."""
    if any(isinstance(size, bool) or not 0 <= size <= _MOST for size in shape):
        raise InputError("no shape of an array", where=str(where), got=f"shape {tuple(shape)}")


def check_npy(path: AnyPath) -> Header:
    """Return the header of a .npy file, an ordinary one; InputError where the file does not hold the array that it claims."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        return read_header(file, size, path)


def member_header(archive: zipfile.ZipFile, name: str, where: str | AnyPath) -> Header:
    """Return the header of the array `name` in an archive; InputError for what is no array, and for more than it can hold.

    KeyError for a name that is not there.
    """
    info = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
    most = {zipfile.ZIP_STORED: info.compress_size, zipfile.ZIP_DEFLATED: _DEFLATED * info.compress_size + _OVERHEAD}
    if info.file_size > most.get(info.compress_type, info.file_size):
        got = f"{info.file_size} bytes of {name} from {info.compress_size}"
        raise InputError("shorter than its header says", where=str(where), got=got)
    with archive.open(info) as member:
        return read_header(member, info.file_size, where)
