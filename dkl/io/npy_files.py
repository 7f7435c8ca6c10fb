"""NumPy's files: headers of .npy and of members of .npz, checked against the bytes that follow, and rows read a few at a time.

NumPy allocates the shape that a header claims before it reads, and some shapes make it fail with errors that say nothing of
the file. Here a claim that the file cannot keep is an `InputError` that names it.

Rows are read a few at a time by ordinary reads, or from a store by requests for their bytes. A memory map would do
too, but its pages count as this process' memory, and the system alone decides when they go.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DklError, InputError
from dkl.io.paths import AnyPath
from dkl.io.reading import reading

_READERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_MOST = 2**63 - 1
_LONGEST = 10_000
"""Longest header that NumPy accepts, in bytes; it refuses a longer one after reading all of it."""
_DEFLATED, _OVERHEAD = 1032, 1024
"""Most bytes that one deflated byte can unpack to, and bytes to allow on top."""


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
        # The length is compared before NumPy reads as many bytes.
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
    # Of objects the bytes are pickles of any length; they are refused elsewhere.
    if found.nbytes > there and not found.dtype.hasobject:
        got = f"shape {found.shape} of {found.dtype}, and {there} bytes"
        raise InputError("shorter than its header says", where=str(where), got=got, wanted=f"{found.nbytes} bytes")
    return found


def require_sizes(shape: tuple[Any, ...], where: str | AnyPath) -> None:
    """Raise InputError for a shape that no array has: with a size below 0, or beyond 64 bits."""
    if any(isinstance(size, bool) or not 0 <= size <= _MOST for size in shape):
        raise InputError("no shape of an array", where=str(where), got=f"shape {tuple(shape)}")


def check_npy(path: AnyPath) -> Header:
    """Return the header of an ordinary .npy file; InputError if it does not hold the array that the header claims."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        return read_header(file, size, path)


def member_header(archive: zipfile.ZipFile, name: str, where: str | AnyPath) -> Header:
    """Return the header of the array `name` in an archive; InputError for what is no array, and for more than it can hold.

    KeyError for a name that is not there.
    """
    return _read_member(archive, archive.getinfo(name if name in archive.namelist() else f"{name}.npy"), where)[0]


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str | AnyPath) -> tuple[Header, int]:
    """Return (header of an archive's member, bytes of it)."""
    # Nothing bounds what bz2 and lzma make of a byte: of these the header's claim is compared with the room alone.
    most = {zipfile.ZIP_STORED: info.compress_size, zipfile.ZIP_DEFLATED: _DEFLATED * info.compress_size + _OVERHEAD}
    if info.file_size > most.get(info.compress_type, info.file_size):
        got = f"{info.file_size} bytes of {info.filename} from {info.compress_size}"
        raise InputError("shorter than its header says", where=str(where), got=got)
    with archive.open(info) as member:
        header = read_header(member, info.file_size, where)
        return header, member.tell()


_LOCAL_HEADER, _ENCRYPTED = 30, 1
"""Bytes of an archive's entry before the member's name; the flag of one that is encrypted."""


@dataclass(frozen=True)
class RawArray:
    """An array of `header` in the file `path`, whose entries begin at byte `offset`."""

    path: AnyPath
    offset: int
    header: Header

    def read(self, start: int, stop: int) -> NDArray:
        """Return rows start to stop of a 2-d array, (stop - start, d), C-contiguous.

        Raises InputError where the file has become shorter.
        """
        n, d = self.header.shape
        if not self.header.fortran:
            return self._entries([start * d], (stop - start) * d)[0].reshape(stop - start, d)
        rows = np.empty((stop - start, d), self.header.dtype)
        for column, entries in enumerate(self._entries([column * n + start for column in range(d)], stop - start)):
            rows[:, column] = entries
        return rows

    def _entries(self, firsts: list[int], count: int) -> list[NDArray]:
        """Return `count` entries from each of the `firsts` on."""
        dtype = self.header.dtype
        starts = [self.offset + first * dtype.itemsize for first in firsts]
        if isinstance(self.path, Path):
            # The file is opened for each read: none stays open on a worker, and threads share no position.
            found = [np.fromfile(self.path, dtype, count, offset=start) for start in starts]
        else:
            pieces = self.path.read_ranges(starts, [start + count * dtype.itemsize for start in starts])
            whole = dtype.itemsize * count
            # By way of bytearray, as an array of bytes cannot be written to.
            found = [np.frombuffer(bytearray(piece if len(piece) == whole else b""), dtype) for piece in pieces]
        if any(len(entries) < count for entries in found):
            raise InputError("shorter than its header says", where=str(self.path), got=f"shape {self.header.shape}")
        return found


def raw_array(path: AnyPath) -> RawArray:
    """Return the array in a .npy file; an ordinary file is expected. InputError for an invalid header, and for objects."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(0)
        header = read_header(file, size, path)
        if header.dtype.hasobject:
            raise InputError("not an array of numbers", where=str(path), got="pickled objects")
        return RawArray(path, file.tell(), header)


class FileArray(NamedTuple):
    """An array in a file of NumPy's. raw: its entries as they are on disk; None where they are packed or encrypted."""

    header: Header
    raw: RawArray | None


def array_in(path: AnyPath, wanted: str = "X") -> FileArray | None:
    """Return the array in a .npy file; of an .npz archive `wanted`, or the only one; its header is read once.

    None for another kind of file, and where `read_array` is to take or refuse what is in an archive. Errors of a .npy file as of
    `raw_array`, and InputError for what is no ordinary file.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with reading(path):
            raw = raw_array(path)
        return FileArray(raw.header, raw)
    if suffix != ".npz" or not path.is_file():
        return None
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
            name = f"{wanted}.npy" if f"{wanted}.npy" in names or len(names) != 1 else names[0]
            return _member_array(archive, file, name, path)
    except (OSError, ValueError, OverflowError, KeyError, IndexError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def _member_array(archive: zipfile.ZipFile, file: IO[bytes], name: str, path: AnyPath) -> FileArray:
    """Return the array `name` of an archive, open as `file`. Errors as of `member_header`."""
    info = archive.getinfo(name if name in archive.namelist() else f"{name}.npy")
    header, before = _read_member(archive, info, path)
    if header.dtype.hasobject or info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
        return FileArray(header, None)
    # The archive's list of members may give another length of the extra field than the header before the member itself.
    file.seek(info.header_offset + _LOCAL_HEADER - 4)
    lengths = sum(np.frombuffer(file.read(4), "<u2").tolist())
    return FileArray(header, RawArray(path, info.header_offset + _LOCAL_HEADER + lengths + before, header))
