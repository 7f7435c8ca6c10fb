"""Arrays stored in a file as in memory: .npy files, and uncompressed members of .npz archives.

They are read a few rows at a time by ordinary reads, or from a store by requests for their bytes. A memory map would do
too, but its pages count as this process' memory, and the system alone decides when they go.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io.npy_headers import Header, member_header, read_header
from dkl.io.object_paths import AnyPath

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
            found = [np.fromfile(self.path, dtype, count, offset=start) for start in starts]
        else:
            pieces = self.path.read_ranges(starts, [start + count * dtype.itemsize for start in starts])
            whole = dtype.itemsize * count
            found = [np.frombuffer(bytearray(piece if len(piece) == whole else b""), dtype) for piece in pieces]
        if any(len(entries) < count for entries in found):
            raise InputError("shorter than its header says", where=str(self.path), got=f"shape {self.header.shape}")
        return found


def raw_array(path: AnyPath, name: str | None = None) -> RawArray | None:
    """Return the array in a .npy file, or `name` of an .npz archive; None if packed or encrypted.

    An ordinary file is expected. Errors: `InputError` for an invalid header, one that claims more than the file holds,
    and for objects; KeyError for a name that is not there, zipfile.BadZipFile and OSError for what is no archive.
    """
    begin, size = 0, path.stat().st_size
    if name is not None:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            member_header(archive, name, path)
            info = archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            return None
        begin = info.header_offset + _LOCAL_HEADER
    with path.open("rb") as file:
        if name is not None:
            file.seek(begin - 4)  # the lengths of the name and of the extra field before the member
            begin += sum(np.frombuffer(file.read(4), "<u2").tolist())
        file.seek(begin)
        header = read_header(file, size, path)
        if header.dtype.hasobject:
            raise InputError("not an array of numbers", where=str(path), got="pickled objects")
        return RawArray(path, file.tell(), header)
