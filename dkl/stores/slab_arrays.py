"""Rank slabs on disk: zarr v3 arrays of shape (slabs, n, width), one chunk a slab, that any zarr reader opens.

The chunks are uncompressed, so a chunk's file is the slab's bytes (with the checksum of zarr's crc32c codec behind them
in committed arrays). Slabs are therefore read straight into resident buffers and written from them: no copy, no new
pages, 0.1 ms of overhead instead of the 1 to 3 ms of a round through zarr's event loop. The metadata is zarr's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import google_crc32c
import numpy as np
from numpy.typing import DTypeLike, NDArray

from dkl.errors import DiskError, StoreError
from dkl.resources import DISK, spending
from dkl.stores import direct_io as uncached
from dkl.stores.arrays import create_array, layout_of, require
from dkl.stores.folders import write_all
from dkl.stores.registry import CHECKED, FLOATS, ONE_EACH, UNCHECKED, StoredArray

CHECKSUM_BYTES = 4

COMMITTED = StoredArray(
    "generations/gen-*/*",
    ("slab", "sample", "column"),
    FLOATS,
    "A matrix of the solver's state, in slabs of its columns; columns of zeros fill up the last.",
    chunks=ONE_EACH,
    separator=".",  # no folders a chunk: fewer fsyncs a commit
)
WORKING = replace(
    COMMITTED.at("scratch-*/*/*", "The same while it is worked on, of a run out of core; gone when its attempt ends."),
    codecs=UNCHECKED,
    optional=True,
)


@dataclass(frozen=True)
class SlabArray:
    """A (n_slabs, n, width) array on disk, slab by slab. `checked`: with the crc32c codec, written once and fsynced.

    uncached: slabs in buffers that start at a multiple of uncached.BLOCK go past the system's cache; of unchecked ones only.
    """

    path: Path
    n_slabs: int
    n: int
    width: int
    dtype: np.dtype
    checked: bool
    uncached: bool = False

    @classmethod
    def create(
        cls, path: Path, n_slabs: int, n: int, width: int, dtype: DTypeLike, *, checked: bool = False
    ) -> SlabArray:
        """Write the metadata and the folders; chunks never written read as NaN. Raises OSError.

        The folder must not exist. checked: as committed arrays are.
        """
        create_array(path, COMMITTED if checked else WORKING, (n_slabs, n, width), dtype)
        return cls(path, n_slabs, n, width, np.dtype(dtype), checked)

    @classmethod
    def open(cls, path: Path) -> SlabArray:
        """Open the slabs at `path`, committed or working; raise StoreError for anything else."""
        import zarr

        try:
            array = zarr.open_array(str(path), mode="r")
        except Exception as error:
            raise StoreError("no readable slab array", where=str(path), got=type(error).__name__) from error
        # Slabs are read past zarr, as the bytes of their files: only a checksum may come with these.
        layout = layout_of(array)
        if array.ndim != 3 or array.chunks != (1, *array.shape[1:]) or layout.codecs[:1] != UNCHECKED:
            raise StoreError("not laid out as rank slabs", where=str(path), got=f"{array.shape} in {array.chunks}")
        checked = layout.codecs == CHECKED
        if not checked and layout.codecs != UNCHECKED:
            raise StoreError("unknown codecs", where=str(path), got=", ".join(layout.codecs), wanted="bytes, crc32c")
        require(COMMITTED if checked else WORKING, layout, str(path))
        n_slabs, n, width = array.shape
        return cls(path, n_slabs, n, width, array.dtype, checked)

    @property
    def slab_bytes(self) -> int:
        """Return the bytes of a slab's values, in memory and (but for the checksum) on disk."""
        return self.n * self.width * self.dtype.itemsize

    def chunk(self, slab: int) -> Path:
        """Return the file of a slab."""
        return self.path / f"c.{slab}.0.0"

    @spending(DISK)
    def read(self, slab: int, out: NDArray) -> int:
        """Fill `out` (n, width) with a slab; returns its crc32c (0 if unchecked).

        A short, missing or (when checked) damaged chunk is a StoreError.
        """
        chunk = self.chunk(slab)
        if out.shape != (self.n, self.width) or out.dtype != self.dtype:
            mine, wanted = f"({self.n}, {self.width}) {self.dtype}", f"{out.shape} {out.dtype}"
            raise StoreError("slabs of another shape or type", where=str(self.path), got=mine, wanted=wanted)
        if self._past_the_cache(out):
            self._read_uncached(chunk, out)
            return 0
        try:
            descriptor = os.open(chunk, os.O_RDONLY)
        except OSError as error:
            raise StoreError("a slab is missing", where=str(chunk), got=error.strerror) from error
        try:
            _read_exactly(descriptor, out.data.cast("B"), 0, chunk)
            if self.checked:
                tail = bytearray(CHECKSUM_BYTES)
                _read_exactly(descriptor, memoryview(tail), self.slab_bytes, chunk)
                checksum = google_crc32c.value(out)
                if int.from_bytes(tail, "little") != checksum:
                    raise StoreError("a slab's checksum does not match its bytes", where=str(chunk))
                return int(checksum)
            return 0
        finally:
            os.close(descriptor)

    @spending(DISK)
    def read_rows(self, slab: int, lo: int, hi: int, out: NDArray) -> None:
        """Fill `out` (hi - lo, width) with rows of a slab, without its checksum."""
        chunk = self.chunk(slab)
        try:
            descriptor = os.open(chunk, os.O_RDONLY)
        except OSError as error:
            raise StoreError("a slab is missing", where=str(chunk), got=error.strerror) from error
        try:
            row = self.width * self.dtype.itemsize
            _read_exactly(descriptor, out.data.cast("B"), lo * row, chunk)
        finally:
            os.close(descriptor)

    @spending(DISK)
    def write(self, slab: int, values: NDArray) -> tuple[int, int]:
        """Write a slab; returns (bytes of the file, its crc32c or 0). Checked slabs are fsynced before this returns.

        An unchecked slab is overwritten in place: its pages stay in the system's cache and nothing is allocated.
        """
        chunk = self.chunk(slab)
        data = values.data.cast("B")
        if self._past_the_cache(values):
            with self._errors(chunk, len(data)):
                uncached.write(chunk, data)
            return len(data), 0
        checksum = google_crc32c.value(values) if self.checked else 0
        with self._errors(chunk, len(data)):
            # Without O_TRUNC: a slab always has the same size, and keeps its blocks on disk.
            descriptor = os.open(chunk, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                write_all(descriptor, data, 0)
                if self.checked:
                    write_all(descriptor, memoryview(checksum.to_bytes(CHECKSUM_BYTES, "little")), len(data))
                    # Before a manifest names the slab: a power cut could keep the name and lose the bytes.
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return len(data) + (CHECKSUM_BYTES if self.checked else 0), checksum

    def _past_the_cache(self, values: NDArray) -> bool:
        return self.uncached and not self.checked and uncached.aligned(values)

    def _read_uncached(self, chunk: Path, out: NDArray) -> None:
        try:
            got = uncached.read(chunk, out.data.cast("B"))
        except OSError as error:
            raise StoreError("a slab is missing", where=str(chunk), got=error.strerror) from error
        if got < self.slab_bytes:
            raise StoreError("a slab is cut short", where=str(chunk), got=f"{got} bytes")

    @contextmanager
    def _errors(self, chunk: Path, size: int) -> Iterator[None]:
        """Turn the system's errors on writing a slab into a DiskError."""
        try:
            yield
        except OSError as error:
            raise DiskError(
                f"could not write a slab ({error.strerror})",
                where=str(chunk),
                wanted=f"{size} bytes",
                remedy="free space on that disk, then `dkl resume` the run",
            ) from error


def _read_exactly(descriptor: int, buffer: memoryview, offset: int, path: Path) -> None:
    done = 0
    while done < len(buffer):
        # The system may hand out less than is asked for, and never more than 2 GB at a time.
        count = os.preadv(descriptor, [buffer[done:]], offset + done)
        if count == 0:
            raise StoreError("a slab is cut short", where=str(path), got=f"{offset + done} bytes")
        done += count
