"""Checkpoints as generations: a state is on disk whole, or not at all.

    run/generations/gen-000040/{V,U,Lambda}     zarr arrays with checksums
                               /MANIFEST.json   iteration, carry, identity of the run, size and crc32c of every file; its own crc32c
    run/generations/tmp-<attempt>-<commit>/     being written, under a name that no earlier commit had

Workers write whole slabs into their attempt's folder; the driver checks that all came, writes the manifest and commits
the folder (stores/folders.py). Two generations are kept: the one before replaces one that turns out to be damaged.
A killed run loses what came after the last commit and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import google_crc32c
from numpy.typing import DTypeLike

from dkl.errors import DiskError, StoreError
from dkl.stores import folders
from dkl.stores.folders import disk_errors
from dkl.stores.seals import KEY, identity_in, read_json, replace_json, require_identity
from dkl.stores.slab_arrays import SlabArray

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dkl.stores.seals import Json

KEPT = 2
"""Number of generations that are kept."""
VERSION = 1
FAILURE = "could not write a checkpoint"
REMEDY = "free space on that disk, then `dkl resume` the run; its last commit is intact"
Written = list[tuple[str, int, int]]
"""(file, bytes, crc32c) of each chunk; the file relative to the generation's folder."""


@dataclass(frozen=True)
class Generation:
    """A committed state. carry: the program's small state after `iteration`; files: (bytes, crc32c) by name."""

    folder: Path
    iteration: int
    carry: Json
    files: dict[str, tuple[int, int]]


class Generations:
    """The checkpoints of one run, written by one attempt at it."""

    def __init__(self, root: Path, attempt: str) -> None:
        self.root, self.attempt = root, attempt
        if not root.is_dir():
            with _checkpoint_errors(root):
                root.mkdir(mode=0o700, exist_ok=True)
                # The folder's own entry must be on disk, or commits in it would be lost with it.
                folders.fsync(root.parent)
        self.identity = identity_in(root.parent)

    def begin(self, names: tuple[str, ...], n_slabs: int, n: int, width: int, dtype: DTypeLike) -> Path:
        """Create a folder with the metadata of the arrays (n_slabs, n, width), for owners' slabs.

        Raises DiskError.
        """
        self.abandon()
        try:
            with _checkpoint_errors(self.root):
                folder = folders.begin_folder(self.root, self.attempt)
                for name in names:
                    SlabArray.create(folder / name, n_slabs, n, width, dtype, checked=True)
        except DiskError:
            self.abandon()
            raise
        return folder

    def commit(self, folder: Path, written: Written, expected: int, iteration: int, carry: Json) -> Generation:
        """Make `folder` the newest generation. `expected`: how many chunks the owners together had to write.

        Raises DiskError where not all of them came, or where the system cannot write; the generations before are then as
        they were. Those of later iterations go with a commit that succeeds: the run has gone back behind them.
        """
        chunks = {name: (size, checksum) for name, size, checksum in written}
        # A chunk that was reported twice counts once, so both numbers are compared.
        if not len(written) == len(chunks) == expected:
            raise DiskError("a checkpoint is not whole", where=str(folder), got=len(chunks), wanted=expected)
        target = self.root / f"gen-{iteration:06d}"
        try:
            with _checkpoint_errors(folder):
                # Workers have said what they wrote; this shows that it has come to where this process reads.
                _require_sizes(folder, chunks)
                metadata = {str(path.relative_to(folder)): _sum_of(path) for path in folder.rglob("zarr.json")}
                # The manifest is written last, when the checksums of all other files are known.
                manifest = {
                    "kind": "dkl-generation",
                    "version": VERSION,
                    "iteration": iteration,
                    "carry": carry,
                    KEY: self.identity,
                    "files": dict(sorted((chunks | metadata).items())),
                }
                replace_json(folder / "MANIFEST.json", manifest)
                folders.commit_folder(folder, target)
        except DiskError:
            self.abandon()
            raise
        # Only now: until the rename is on disk a restart needs the generations before.
        folders.keep_newest(self.root, "gen", iteration, KEPT)
        return _load(target, self.identity)

    def abandon(self) -> None:
        """Remove what this attempt has not committed."""
        folders.remove_folders(self.root.glob(f"tmp-{self.attempt}-*"))

    def remove_leftovers(self) -> None:
        """Remove what dead attempts left; the caller must hold the run's lock."""
        folders.remove_leftovers(self.root)

    def newest_first(self, note: Callable[[StoreError], None] = lambda damage: None) -> Iterator[Generation]:
        """Yield each generation of this run whose manifest and file sizes are right, newest first.

        Damaged ones are passed over; `note` is called for each. Chunks' checksums are compared when they are read.
        """
        for folder in reversed(folders.numbered_folders(self.root, "gen")):
            try:
                generation = _load(folder, self.identity)
            except StoreError as damage:
                note(damage)
                continue
            yield generation

    def restore_newest(
        self, restore: Callable[[Generation], None], note: Callable[[StoreError], None] = lambda damage: None
    ) -> Generation | None:
        """Return the newest generation that `restore` reads whole, or None; `note` gets the others' errors."""
        for generation in self.newest_first(note):
            try:
                restore(generation)
            except StoreError as damage:
                note(damage)
                continue
            return generation
        return None


def _checkpoint_errors(path: Path) -> AbstractContextManager[None]:
    return disk_errors(FAILURE, path, REMEDY)


def _require_sizes(folder: Path, chunks: dict[str, tuple[int, int]]) -> None:
    for name, (size, _) in chunks.items():
        if (folder / name).stat().st_size != size:
            raise DiskError("a checkpoint's file is short", where=str(folder / name), wanted=f"{size} bytes")


def _load(folder: Path, identity: object) -> Generation:
    manifest = read_json(folder / "MANIFEST.json", sealed=True)
    if manifest.get("kind") != "dkl-generation" or manifest.get("version") != VERSION:
        raise StoreError("not a checkpoint of this version", where=str(folder), got=manifest.get("version"))
    require_identity(manifest, identity, folder)
    iteration, carry, files = _parts(manifest, folder)
    if f"gen-{iteration:06d}" != folder.name:
        raise StoreError("a checkpoint under another's name", where=str(folder), got=iteration)
    for name, (size, checksum) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            raise StoreError("a checkpoint's file is missing or short", where=str(path), wanted=f"{size} bytes")
        if path.name == "zarr.json" and _sum_of(path) != (size, checksum):
            raise StoreError("a checkpoint's metadata is not what was committed", where=str(path))
    return Generation(folder, iteration, carry, files)


def _parts(manifest: Json, folder: Path) -> tuple[int, Json, dict[str, tuple[int, int]]]:
    """Return (iteration, carry, files) of a manifest; StoreError for any that a commit would not write.

    Its seal is no proof: any process that can write to the folder can seal any content.
    """
    try:
        iteration, carry = manifest["iteration"], manifest["carry"]
        files = {str(name): (int(size), int(checksum)) for name, (size, checksum) in manifest["files"].items()}
        inside = all(".." not in Path(name).parts and not Path(name).is_absolute() for name in files)
        if not (type(iteration) is int and 0 <= iteration < 2**63 and isinstance(carry, dict) and inside):
            raise ValueError("parts of other types")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise StoreError("a damaged manifest", where=str(folder), got=f"{type(error).__name__}: {error}") from error
    return iteration, carry, files


def _sum_of(path: Path) -> tuple[int, int]:
    """Return (bytes, crc32c) of a small file."""
    content = path.read_bytes()
    return len(content), google_crc32c.value(content)
