"""A run's folder: everything about one fit, so that it can be resumed, inspected and used by path alone.

run.zarr/               a zarr group (mode 0700) whose attributes say kind and version
    config.json         parameters, inputs and their fingerprints; written once
    LOCK                who works on it (flock; empty of meaning once its holder is gone)
    events.jsonl        a line an iteration and a line an event
    graph/              block CSR Laplacian
    pairs/              must_link, cannot_link
    generations/        checkpoints
    scratch-<attempt>/  working arrays of an out-of-core run
    factor/             the result, (n, rank) in row chunks, with checksums
    lift/               (n,) what the certificate adds to the gradient's diagonal (problems/certificate.py)
    sums/, gram/        of a regression: sums over rows so far, rows of the Gram matrix (stores/partial_sums.py)
    candidates/, model/ of a regression: the candidate columns; weights, and errors of cross-validation
    columns/            kernel columns (n, M), if they are kept
    report.json         outcome, certificate, plan, seconds; written last: a run with a report is complete
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import time
import uuid
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec

from dkl.errors import DiskError, InputError, StoreError
from dkl.stores.disk import disk_errors
from dkl.stores.generations import Generations, fsync_tree, read_json, write_json

KIND, VERSION = "dkl-run", 1
CHUNK_BYTES = 8_000_000


class RunStore:
    """One run's folder, locked while it is worked on."""

    def __init__(self, path: Path, config: dict[str, Any]) -> None:
        self.path, self.config = path, config
        self.attempt = uuid.uuid4().hex[:8]
        self._lock: int | None = None
        self._log_is_whole = False

    # -- life ---------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: dict[str, Any]) -> RunStore:
        """A new run, locked. The folder must not exist (or be empty); nothing that exists is ever overwritten."""
        folder = Path(path).absolute()
        taken = InputError(
            "exists already and is never overwritten",
            where=str(folder),
            wanted="a new path",
            mend="choose another path, or `dkl resume` it if it is a run",
        )
        if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
            raise taken
        if not folder.parent.is_dir():
            raise InputError("its parent folder does not exist", where=str(folder), mend="create the parent folder")
        run, is_new = cls(folder, config), not folder.exists()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)  # an empty folder that was there may be open to others
            run.lock()
            if {entry.name for entry in folder.iterdir()} != {"LOCK"}:
                raise taken  # somebody else was quicker
            zarr.create_group(str(folder), attributes={"kind": KIND, "version": VERSION})
            write_json(folder / "config.json", config)
            fsync_tree(folder.parent, deep=False)
        except (OSError, DiskError) as error:
            if is_new and run._lock is not None:  # half a run could be neither resumed nor begun again
                shutil.rmtree(folder, ignore_errors=True)
            run.close()
            if isinstance(error, DiskError):
                raise
            raise DiskError(
                f"cannot be written ({error.strerror})", where=str(folder), mend="choose a path that you may write to"
            ) from error
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunStore:
        """An existing run, not locked; StoreError if it is none, damaged, or of another version."""
        folder = Path(path).absolute()
        if not folder.is_dir():
            raise InputError("no such run", where=str(folder), wanted="a folder made by `dkl fit`")
        if not (folder / "zarr.json").is_file() or not (folder / "config.json").is_file():
            raise StoreError("not a run of dkl, or one that was never begun", where=str(folder))
        attributes = read_json(folder / "zarr.json").get("attributes")
        attributes = attributes if isinstance(attributes, dict) else {}
        if attributes.get("kind") != KIND:
            raise StoreError("a zarr store, but not a run of dkl", where=str(folder), got=attributes.get("kind"))
        if attributes.get("version") != VERSION:
            raise StoreError(
                "a run of another version", where=str(folder), got=attributes.get("version"), wanted=VERSION
            )
        return cls(folder, read_json(folder / "config.json", sealed=True))

    def lock(self) -> None:
        """Take the run for this process, or say who has it. The lock goes with the process, however it ends."""
        descriptor = os.open(self.path / "LOCK", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise InputError(
                "another process works on this run",
                where=str(self.path),
                got=holder or "a lock",
                mend="wait for it to end, or end it",
            ) from error
        self._lock = descriptor  # ours, whether or not there is room to say so
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}, attempt {self.attempt}".encode(), 0)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def sweep(self) -> None:
        """Remove what dead attempts have left; only under the lock."""
        self.generations().sweep()
        for left in (*self.path.glob("scratch-*"), *self.path.glob("tmp-*")):
            if self.attempt not in left.name:
                shutil.rmtree(left, ignore_errors=True)

    # -- parts --------------------------------------------------------------------------------------------------------

    @property
    def scratch(self) -> Path:
        return self.path / f"scratch-{self.attempt}"

    def drop_scratch(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)

    def generations(self) -> Generations:
        return Generations(self.path / "generations", self.attempt)

    def log(self, **event: Any) -> None:
        """Append a line to events.jsonl."""
        line = json.dumps({"at": round(time.time(), 3), "attempt": self.attempt, **event}, default=float) + "\n"
        path = self.path / "events.jsonl"
        with disk_errors("the log could not be written", path):
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if not self._log_is_whole and size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = "\n" + line  # a crash cut the last line short; ours is not to be lost with it
                self._log_is_whole = False  # should the write fail
                rest = line.encode()
                while rest:  # a disk that fills up takes a part, and says why of the rest alone
                    rest = rest[os.write(descriptor, rest) :]
                self._log_is_whole = True
            finally:
                os.close(descriptor)

    def events(self) -> list[dict[str, Any]]:
        """All events; lines that were cut short by a crash are left out."""
        try:
            lines = (self.path / "events.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        events = []
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict):
                events.append(event)
        return events

    def settle(self) -> None:
        """See that what was written so far (configuration, graph, pairs) outlasts a power cut, as commits do."""
        with disk_errors("could not be written", self.path):
            for part in ("graph", "pairs", "zarr.json", "config.json"):
                fsync_tree(self.path / part)
            fsync_tree(self.path, deep=False)

    def write_pairs(self, must_link: NDArray[np.int64], cannot_link: NDArray[np.int64]) -> None:
        (self.path / "pairs").mkdir(mode=0o700, exist_ok=True)
        for name, pairs in (("must_link", must_link), ("cannot_link", cannot_link)):
            target = self.path / "pairs" / name
            shutil.rmtree(target, ignore_errors=True)
            write_array(target, pairs.astype(np.int64), ("pair", "end"), attributes={"count": len(pairs)})

    def read_pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return read_array(self.path / "pairs" / "must_link"), read_array(self.path / "pairs" / "cannot_link")

    # -- result -------------------------------------------------------------------------------------------------------

    @property
    def is_complete(self) -> bool:
        return (self.path / "report.json").is_file()

    def write_report(self, report: dict[str, Any], lift: NDArray[np.float64] | None = None) -> None:
        """Say that the run is complete: after this its result is there, whatever happens."""
        if lift is not None:
            shutil.rmtree(self.path / "lift", ignore_errors=True)
            write_array(self.path / "lift", lift, ("sample",))
        with disk_errors("could not be written", self.path):
            for part in ("factor", "lift", "model"):
                fsync_tree(self.path / part)
            fsync_tree(self.path, deep=False)
        write_json(self.path / "report.json", report)

    def write_arrays(self, folder: str, arrays: dict[str, NDArray]) -> None:
        """Small arrays under `folder`, in place of any that are there; they are there whole or not at all."""
        target = self.path / folder
        partial = self.path / f"tmp-{self.attempt}-{folder}"
        try:
            with disk_errors("could not be written", target):
                shutil.rmtree(partial, ignore_errors=True)
                partial.mkdir(mode=0o700)
                for name, values in arrays.items():
                    write_array(partial / name, values, tuple(f"{name}_{axis}" for axis in range(values.ndim)))
                fsync_tree(partial)
                shutil.rmtree(target, ignore_errors=True)
                os.rename(partial, target)
                fsync_tree(self.path, deep=False)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)  # the room it took is needed
            raise

    def read_arrays(self, folder: str) -> dict[str, NDArray]:
        """What `write_arrays` wrote; StoreError where there is none."""
        target = self.path / folder
        if not target.is_dir():
            raise StoreError(f"this run has no {folder}", where=str(self.path), mend="`dkl resume` it first")
        return {path.name: read_array(path) for path in sorted(target.iterdir()) if path.is_dir()}

    def report(self) -> dict[str, Any]:
        return read_json(self.path / "report.json", sealed=True) if self.is_complete else {}

    def lift(self) -> NDArray[np.float64]:
        return read_array(self.path / "lift")

    def create_factor(self, n: int, rank: int, dtype: Any) -> int:
        """An empty (n, rank) result in whole-row chunks; returns rows a chunk. Any earlier one goes, its report first."""
        rows = rows_per_chunk(n, rank, dtype)
        with disk_errors("could not write the result", self.path / "factor"):
            (self.path / "report.json").unlink(missing_ok=True)
            fsync_tree(self.path, deep=False)
            shutil.rmtree(self.path / "factor", ignore_errors=True)
            _create(self.path / "factor", (n, rank), (rows, rank), np.dtype(dtype), ("sample", "rank"), {})
        return rows

    def factor(self) -> zarr.Array:
        """The result as a zarr array (n, rank), read-only."""
        if not (self.path / "factor" / "zarr.json").is_file():
            raise StoreError("this run has no result yet", where=str(self.path), mend="`dkl resume` it first")
        return zarr.open_array(str(self.path / "factor"), mode="r")


def rows_per_chunk(n: int, rank: int, dtype: Any) -> int:
    return min(n, max(1, CHUNK_BYTES // (rank * np.dtype(dtype).itemsize)))


def create_rows(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any, dims: tuple[str, ...]) -> None:
    """An empty array with checksums, filled with NaN (or -1)."""
    _create(path, shape, chunks, dtype, dims, {})


def _create(
    path: Path, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: Any, dims: tuple[str, ...], attributes: Any
) -> zarr.Array:
    return zarr.create_array(
        store=str(path),
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        serializer=BytesCodec(endian="little"),
        filters=None,
        compressors=[Crc32cCodec()],
        fill_value=np.nan if np.dtype(dtype).kind == "f" else -1,
        dimension_names=dims,
        attributes=attributes,
    )


def write_array(
    path: Path, values: NDArray, dims: tuple[str, ...], *, attributes: dict[str, Any] | None = None
) -> None:
    """A small array in one checked chunk; zero rows are kept in the attributes, zarr having no empty chunk."""
    shape = (max(1, values.shape[0]), *values.shape[1:])
    notes = {"rows": len(values), "crc32c": _sum_of(values), **(attributes or {})}
    with disk_errors("an array could not be written", path):
        array = _create(path, shape, shape, values.dtype, dims, notes)
        if len(values):
            array[...] = values


def read_array(path: Path) -> NDArray:
    """What `write_array` wrote; StoreError for anything else, a missing chunk too (zarr reads it as fill values)."""
    try:
        array = zarr.open_array(str(path), mode="r")
        rows, checksum = int(array.attrs["rows"]), array.attrs["crc32c"]  # type: ignore[arg-type]
        values = np.asarray(array[:rows])
    except Exception as error:
        raise StoreError(
            "a stored array cannot be read", where=str(path), got=f"{type(error).__name__}: {error}"
        ) from error
    if len(values) != rows or _sum_of(values) != checksum:
        raise StoreError("a stored array is missing or not what was written", where=str(path))
    return values


def _sum_of(values: NDArray) -> int:
    """crc32c of shape, dtype and bytes."""
    return int(google_crc32c.value(f"{values.shape} {values.dtype.str} ".encode() + values.tobytes()))


def write_factor_rows(path: str, lo: int, values: NDArray) -> None:
    """Store whole chunks of rows of a result, starting at row lo."""
    with disk_errors("could not write the result", path):
        zarr.open_array(path, mode="r+")[lo : lo + len(values)] = values
