"""Checkpoints as generations: a state is on disk whole, or not at all.

    run/generations/gen-000040/{V,U,Lambda}     zarr arrays with checksums
                               /MANIFEST.json   iteration, carry, and size and crc32c of every file
    run/generations/tmp-<attempt>/              being written; only its own attempt touches it

Workers write whole slabs into their attempt's folder; the driver checks that all came, writes the manifest, fsyncs
files and folders, renames, and fsyncs the parent. Two generations are kept. A killed run loses what came after the
last rename and nothing else; in-place checkpoints were silently wrong in half of the killed runs that were tried.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import DTypeLike

from dkl.errors import DiskError, StoreError
from dkl.stores.slab_arrays import SlabArray

KEPT = 2
VERSION = 1
Written = list[tuple[str, int, int]]


@dataclass(frozen=True)
class Generation:
    """A committed state."""

    folder: Path
    iteration: int
    carry: dict[str, Any]
    files: dict[str, tuple[int, int]]


class Generations:
    """The checkpoints of one run, written by one attempt at it."""

    def __init__(self, root: Path, attempt: str) -> None:
        self.root, self.attempt = root, attempt
        root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begin(self, names: tuple[str, ...], n_slabs: int, n: int, width: int, dtype: DTypeLike) -> Path:
        """A new folder with the metadata of the arrays, for owners to write their slabs into."""
        folder = self.root / f"tmp-{self.attempt}"
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(mode=0o700)
            for name in names:
                SlabArray.create(folder / name, n_slabs, n, width, dtype, checked=True)
        except OSError as error:
            raise _disk_error(folder, error) from error
        return folder

    def commit(
        self, folder: Path, written: Written, expected: int, iteration: int, carry: dict[str, Any]
    ) -> Generation:
        """Make `folder` the newest generation. `expected`: how many chunks the owners together had to write."""
        if len(written) != expected:
            raise DiskError("a checkpoint is not whole", where=str(folder), got=len(written), wanted=expected)
        for name, size, _ in written:
            if (folder / name).stat().st_size != size:
                raise DiskError("a checkpoint's file is short", where=str(folder / name), wanted=f"{size} bytes")
        manifest = {
            "kind": "dkl-generation",
            "version": VERSION,
            "iteration": iteration,
            "carry": carry,
            "files": {name: [size, checksum] for name, size, checksum in sorted(written)},
        }
        target = self.root / f"gen-{iteration:06d}"
        try:
            write_json(folder / "MANIFEST.json", manifest)
            for path, _, files in os.walk(folder):
                for file in files:
                    if file == "zarr.json":
                        _fsync(Path(path) / file)
                _fsync(Path(path))
            shutil.rmtree(target, ignore_errors=True)
            os.rename(folder, target)
            _fsync(self.root)
        except OSError as error:
            raise _disk_error(folder, error) from error
        self._prune()
        return _load(target)

    def _prune(self) -> None:
        for old in sorted(self.root.glob("gen-*"))[:-KEPT]:
            doomed = old.with_name(f"del-{self.attempt}")
            os.rename(old, doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    def abandon(self) -> None:
        """Remove what this attempt has not committed."""
        shutil.rmtree(self.root / f"tmp-{self.attempt}", ignore_errors=True)

    def sweep(self) -> None:
        """Remove leftovers of dead attempts; only for who holds the run's lock."""
        for leftover in [*self.root.glob("tmp-*"), *self.root.glob("del-*")]:
            shutil.rmtree(leftover, ignore_errors=True)

    def newest_first(self) -> Iterator[Generation]:
        """Every generation whose manifest and file sizes are right, newest first; damaged ones are passed over."""
        for folder in sorted(self.root.glob("gen-*"), reverse=True):
            try:
                yield _load(folder)
            except StoreError:
                continue


def _load(folder: Path) -> Generation:
    manifest = read_json(folder / "MANIFEST.json")
    if manifest.get("kind") != "dkl-generation" or manifest.get("version") != VERSION:
        raise StoreError("not a checkpoint of this version", where=str(folder), got=manifest.get("version"))
    files = {name: (int(size), int(checksum)) for name, (size, checksum) in manifest["files"].items()}
    for name, (size, _) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise StoreError("a checkpoint's file is missing or short", where=str(path), wanted=f"{size} bytes")
    return Generation(folder, int(manifest["iteration"]), manifest["carry"], files)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON by a temporary file, fsync and rename: readers see the old file or the new one."""
    temporary = path.with_name(path.name + ".partial")
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(content, file, indent=1, allow_nan=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _fsync(path.parent)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a StoreError that says what is the matter with it."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError("not readable as JSON", where=str(path), got=f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise StoreError("not a JSON object", where=str(path), got=type(content).__name__)
    return content


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk_error(path: Path, error: OSError) -> DiskError:
    return DiskError(
        f"could not write a checkpoint ({error.strerror})",
        where=str(path),
        mend="free space on that disk, then `dkl resume` the run; its last commit is intact",
    )
