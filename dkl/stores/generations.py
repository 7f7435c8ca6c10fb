"""Checkpoints as generations: a state is on disk whole, or not at all.

    run/generations/gen-000040/{V,U,Lambda}     zarr arrays with checksums
                               /MANIFEST.json   iteration, carry, and size and crc32c of every file; its own crc32c
    run/generations/tmp-<attempt>-<commit>/     being written; a folder no commit before it had

Workers write whole slabs into their attempt's folder; the driver checks that all came, writes the manifest, fsyncs
files and folders, renames, and fsyncs the parent. Two generations are kept. A killed run loses what came after the
last rename and nothing else; in-place checkpoints were silently wrong in half of the killed runs that were tried.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
from numpy.typing import DTypeLike

from dkl.errors import DiskError, StoreError
from dkl.stores.slab_arrays import SlabArray, write_all

KEPT = 2
VERSION = 1
SEAL = "crc32c"
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
        if not root.is_dir():
            try:
                root.mkdir(mode=0o700, parents=True, exist_ok=True)
                _fsync(root.parent)
            except OSError as error:
                raise _disk_error(root, error) from error

    def begin(self, names: tuple[str, ...], n_slabs: int, n: int, width: int, dtype: DTypeLike) -> Path:
        """A new folder with the metadata of the arrays, for owners to write their slabs into."""
        self.abandon()
        # A name of its own for every commit: tasks of one that was lost may still be writing under theirs.
        folder = self.root / f"tmp-{self.attempt}-{uuid.uuid4().hex[:8]}"
        try:
            folder.mkdir(mode=0o700)
            for name in names:
                SlabArray.create(folder / name, n_slabs, n, width, dtype, checked=True)
        except OSError as error:
            self.abandon()
            raise _disk_error(folder, error) from error
        return folder

    def commit(
        self, folder: Path, written: Written, expected: int, iteration: int, carry: dict[str, Any]
    ) -> Generation:
        """Make `folder` the newest generation. `expected`: how many chunks the owners together had to write.

        Generations of later iterations go: the run has gone back behind them, past damage.
        """
        chunks = {name: (size, checksum) for name, size, checksum in written}
        if not len(written) == len(chunks) == expected:
            raise DiskError("a checkpoint is not whole", where=str(folder), got=len(chunks), wanted=expected)
        target = self.root / f"gen-{iteration:06d}"
        try:
            for name, (size, _) in chunks.items():
                if (folder / name).stat().st_size != size:
                    raise DiskError("a checkpoint's file is short", where=str(folder / name), wanted=f"{size} bytes")
            metadata = {str(path.relative_to(folder)): _sum_of(path) for path in folder.rglob("zarr.json")}
            manifest = {
                "kind": "dkl-generation",
                "version": VERSION,
                "iteration": iteration,
                "carry": carry,
                "files": dict(sorted((chunks | metadata).items())),
            }
            _write_json(folder / "MANIFEST.json", manifest)
            for name in metadata:
                _fsync(folder / name)
            for path, _, _ in os.walk(folder):
                _fsync(Path(path))
            self._discard([target])
            os.rename(folder, target)
            _fsync(self.root)
            self._prune(iteration)
        except OSError as error:
            self.abandon()
            raise _disk_error(folder, error) from error
        return _load(target)

    def _prune(self, iteration: int) -> None:
        folders = self._folders()
        later = [folder for folder in folders if _number(folder) > iteration]
        self._discard(later + folders[: len(folders) - len(later)][:-KEPT])

    def _discard(self, folders: list[Path]) -> None:
        for folder in folders:
            if folder.exists():
                doomed = self.root / f"del-{uuid.uuid4().hex[:8]}"
                os.rename(folder, doomed)  # first out of the way, at a stroke: it is never there by half
                shutil.rmtree(doomed, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """The generations' folders, oldest first; by number, as names sort otherwise beyond a million."""
        return sorted((folder for folder in self.root.glob("gen-*") if folder.name[4:].isdigit()), key=_number)

    def abandon(self) -> None:
        """Remove what this attempt has not committed."""
        _remove(self.root.glob(f"tmp-{self.attempt}-*"))

    def sweep(self) -> None:
        """Remove leftovers of dead attempts; only for who holds the run's lock."""
        _remove([*self.root.glob("tmp-*"), *self.root.glob("del-*")])

    def newest_first(self, note: Callable[[StoreError], None] = lambda damage: None) -> Iterator[Generation]:
        """Every generation whose manifest and file sizes are right, newest first.

        Damaged ones are passed over; `note` hears of each. The chunks' checksums are compared when they are read.
        """
        for folder in reversed(self._folders()):
            try:
                generation = _load(folder)
            except StoreError as damage:
                note(damage)
                continue
            yield generation


def _number(folder: Path) -> int:
    return int(folder.name[4:])


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _load(folder: Path) -> Generation:
    manifest = read_json(folder / "MANIFEST.json", sealed=True)
    if manifest.get("kind") != "dkl-generation" or manifest.get("version") != VERSION:
        raise StoreError("not a checkpoint of this version", where=str(folder), got=manifest.get("version"))
    if f"gen-{manifest['iteration']:06d}" != folder.name:
        raise StoreError("a checkpoint under another's name", where=str(folder), got=manifest["iteration"])
    files = {name: (int(size), int(checksum)) for name, (size, checksum) in manifest["files"].items()}
    for name, (size, checksum) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise StoreError("a checkpoint's file is missing or short", where=str(path), wanted=f"{size} bytes")
        if path.name == "zarr.json" and _sum_of(path) != (size, checksum):
            raise StoreError("a checkpoint's metadata is not what was committed", where=str(path))
    return Generation(folder, manifest["iteration"], manifest["carry"], files)


def _sum_of(path: Path) -> tuple[int, int]:
    """(bytes, crc32c) of a small file."""
    content = path.read_bytes()
    return len(content), google_crc32c.value(content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write JSON with a checksum, by a temporary file, fsync and rename: readers see the old file or the new one."""
    try:
        _write_json(path, content)
    except OSError as error:
        raise DiskError(
            f"could not be written ({error.strerror})", where=str(path), mend="free space on that disk, then try again"
        ) from error


def _write_json(path: Path, content: dict[str, Any]) -> None:
    temporary = path.with_name(path.name + ".partial")
    text = json.dumps({**content, SEAL: _seal(content)}, indent=1, allow_nan=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(descriptor, memoryview(text.encode()), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    _fsync(path.parent)


def _seal(content: dict[str, Any]) -> int:
    """The crc32c of what JSON keeps of `content`, however it is laid out."""
    kept = json.loads(json.dumps(content, allow_nan=True))
    return int(google_crc32c.value(json.dumps(kept, sort_keys=True, allow_nan=True).encode()))


def read_json(path: Path, *, sealed: bool = False) -> dict[str, Any]:
    """A JSON object from a file, or a StoreError that says what is the matter with it.

    sealed: it was written by `write_json`, so its checksum must be there and right.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError("not readable as JSON", where=str(path), got=f"{type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise StoreError("not a JSON object", where=str(path), got=type(content).__name__)
    seal = content.pop(SEAL, None)
    if sealed and seal != _seal(content):
        raise StoreError("not what was written: its checksum does not match", where=str(path))
    return content


def fsync_tree(root: Path, *, deep: bool = True) -> None:
    """See that `root` (where it exists), and all that is in it (or the names alone), outlasts a power cut."""
    if deep and root.is_dir():
        for entry in root.iterdir():
            fsync_tree(entry)
    if root.exists():
        _fsync(root)


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
