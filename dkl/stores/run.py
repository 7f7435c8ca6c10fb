"""A run's folder: everything about one fit, so that it can be resumed, inspected and used by path alone.

Its content: stores/README.md, which the registry of arrays writes. Small arrays come and go by name, as the learner
whose run it is has declared them.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DiskError, InputError, StoreError
from dkl.io.paths import as_path
from dkl.stores import folders, seals
from dkl.stores.arrays import list_arrays
from dkl.stores.folders import (
    MODE,
    clear_beginnings,
    disk_errors,
    fsync_tree,
    is_unbegun,
    require_plain_file,
    require_plain_tree,
)
from dkl.stores.generations import Generations
from dkl.stores.object_runs import ObjectRun
from dkl.stores.remote import how_to
from dkl.stores.run_parts import FACTOR, LIFT, PAIR_LIFT, PairParts
from dkl.stores.seals import KEY, read_json, require_identity, write_json

if TYPE_CHECKING:
    from dkl.stores.seals import Json


LONGEST = 1 << 20
"""Maximum number of characters of a line; a longer one is no line of ours."""


class EventLog:
    """The log of a run: the lines in a file, which one process adds to."""

    def __init__(self, path: Path, marks: dict[str, str]) -> None:
        """Set `path` and `marks`, the entries of each line, the run's identity among them."""
        self.path, self.marks = path, marks
        self._is_whole = False

    def append(self, event: Json) -> None:
        """Append a line to the log. Raises DiskError."""
        line = json.dumps({**self.marks, **event}, default=float) + "\n"
        with disk_errors("the log could not be written", self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, MODE)
            try:
                size = os.fstat(descriptor).st_size
                if not self._is_whole and size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = "\n" + line  # a crash cut the last line short; ours is not to be lost with it
                self._is_whole = False  # should the write fail
                rest = line.encode()
                while rest:  # a disk that fills up takes a part, and says why of the rest alone
                    rest = rest[os.write(descriptor, rest) :]
                self._is_whole = True
            finally:
                os.close(descriptor)

    def require_own(self) -> None:
        """Raise StoreError for the log of another run, by its first event."""
        for event in self._events():
            return require_identity(event, self.marks[KEY], self.path)

    def read(self) -> list[Json]:
        """Return all events, as they came."""
        return list(self._events())

    def _events(self) -> Iterator[Json]:
        # A log is no result: without one, or with bytes of a torn write, the run is read all the same.
        with suppress(OSError), open(self.path, encoding="utf-8", errors="replace") as file:
            while line := file.readline(LONGEST):
                with suppress(ValueError, RecursionError):  # cut short
                    event = json.loads(line)
                    if isinstance(event, dict):
                        yield event


KIND, VERSION = "dkl-run", 1
SEALS = "seals"
"""Key, in a report's file, of the checksums of the parts that it reports on."""


class RunStore(PairParts):
    """A run's folder, locked while it is worked on."""

    def __init__(self, path: Path, config: Json, objects: ObjectRun | None = None) -> None:
        super().__init__(path, uuid.uuid4().hex[:8], config, objects)
        self._lock: int | None = None
        self._log = EventLog(path / "events.jsonl", {KEY: self.identity, "attempt": self.attempt})

    # -- life ---------------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | os.PathLike[str], config: Json, objects: ObjectRun | None = None) -> RunStore:
        """Create a run, locked. The folder must not exist (or be empty); nothing is ever overwritten.

        objects: of a run in an object store, which is worked on in the folder.
        """
        folder = as_path(path, "run").absolute()
        taken = InputError(
            "exists already and is never overwritten",
            where=str(folder),
            wanted="a new path",
            remedy="choose another path, or `dkl resume` it if it is a run",
        )
        # lexists: a dangling link is a name that is taken.
        if os.path.lexists(folder) and not is_unbegun(folder):
            raise taken
        if not folder.parent.is_dir():
            raise InputError("its parent folder does not exist", where=str(folder), remedy="create the parent folder")
        import zarr  # here: it takes a quarter of a second, for which the refusals above need not wait

        from dkl.stores.local_stores import PrivateFiles

        run, is_new = cls(folder, config, objects), not folder.exists()
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)  # an empty folder that was there may be open to others
            # Before it is looked at again: of two processes that found it empty one has the lock.
            run.lock()
            if not is_unbegun(folder):
                raise taken  # somebody else was quicker
            clear_beginnings(folder)
            root = {"kind": KIND, "version": VERSION, KEY: run.identity}
            zarr.create_group(PrivateFiles(folder), attributes=root)
            # Last: with a configuration a folder counts as a run, which can be resumed.
            write_json(folder / "config.json", config)
            fsync_tree(folder.parent, deep=False)
            run.take_over()
        except (OSError, DiskError) as error:
            if is_new and run._lock is not None:  # half a run could be neither resumed nor started again
                shutil.rmtree(folder, ignore_errors=True)
            run.close()
            if isinstance(error, DiskError):
                raise
            raise DiskError(
                f"cannot be written ({error.strerror})", where=str(folder), remedy="choose a path that you may write to"
            ) from error
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, path: str | os.PathLike[str], objects: ObjectRun | None = None) -> RunStore:
        """Open an existing run, unlocked; StoreError if it is no run, damaged, or of another version.

        objects: of a run in an object store, of which the folder is a copy.
        """
        folder = as_path(path, "run").absolute()
        if not folder.is_dir():
            raise InputError("no such run", where=str(folder), wanted="a folder made by `dkl fit`")
        # These first, each looked at without following links: any other folder may be large, and have links.
        marks = [folder / "zarr.json", folder / "config.json"]
        if not all(os.path.lexists(mark) for mark in marks):
            remedy = "begin it again: `dkl fit` with the same --out" if is_unbegun(folder) else None
            raise StoreError("not a run of dkl, or one that was never started", where=str(folder), remedy=remedy)
        for mark in marks:
            require_plain_file(mark)
        attributes = read_json(folder / "zarr.json").get("attributes")
        attributes = attributes if isinstance(attributes, dict) else {}
        if attributes.get("kind") != KIND:
            raise StoreError("a zarr store, but not a run of dkl", where=str(folder), got=attributes.get("kind"))
        if attributes.get("version") != VERSION:
            raise StoreError(
                "a run of another version", where=str(folder), got=attributes.get("version"), wanted=VERSION
            )
        # Before anything in it is read: a link could lead to another user's files, a pipe never end.
        require_plain_tree(folder)
        run = cls(folder, read_json(folder / "config.json", sealed=True), objects)
        if attributes.get(KEY) != run.identity:
            remedy = "put back the run's own from a copy, or begin a new run"
            raise StoreError("config.json and zarr.json are of two runs", where=str(folder), remedy=remedy)
        run.require_own_parts()
        run._log.require_own()
        return run

    def lock(self) -> None:
        """Take the run for this process, or say who has it. The lock goes with the process, however it ends."""
        self._lock = folders.take(self.path)
        folders.sign(self._lock, self.attempt)

    def close(self) -> None:
        """Give up the lock; nothing where it is not held. A folder that has what its store may lack is kept, with a warning."""
        if self._lock is not None and self.is_behind:
            warnings.warn(
                f"{self.name} lacks what came since its last commit; {how_to(self.keep())}",
                RuntimeWarning,
                stacklevel=2,
            )
        if self._lock is not None:
            folders.release(self._lock)
            self._lock = None

    def remove_leftovers(self) -> None:
        """Remove what dead attempts have left; only under the lock."""
        folders.remove_leftovers(self.path / "generations")
        folders.remove_leftovers(self.path, but=self.attempt)
        folders.remove_folders(left for left in self.path.glob("scratch-*") if left != self.scratch)

    # -- parts --------------------------------------------------------------------------------------------------------

    @property
    def scratch(self) -> Path:
        """Return the folder of this attempt's working arrays."""
        return self.path / f"scratch-{self.attempt}"

    def drop_scratch(self) -> None:
        """Remove this attempt's working arrays."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def generations(self) -> Generations:
        """Return the run's checkpoints, for this attempt to add to."""
        return Generations(self.path / "generations", self.attempt)

    def log(self, **event: object) -> None:
        """Append an event to events.jsonl, a line. Raises DiskError."""
        self._log.append({"at": round(time.time(), 3), **event})

    def events(self) -> list[Json]:
        """Return all events; lines that were cut short by a crash are left out."""
        return self._log.read()

    def fsync(self) -> None:
        """Make what was written so far (configuration, graph, pairs) outlast a power cut, as commits do."""
        with disk_errors("could not be written", self.path):
            for part in ("graph", "pairs", "zarr.json", "config.json"):
                fsync_tree(self.path / part)
            fsync_tree(self.path, deep=False)
        self.publish_if_reachable()

    # -- result -------------------------------------------------------------------------------------------------------

    def write_report(
        self,
        report: Json,
        lift: NDArray[np.float64] | None = None,
        pair_lift: NDArray[np.float64] | None = None,
    ) -> None:
        """Write the report, which marks the run as complete: after this its result is there.

        report: JSON. lift, pair_lift: (n,) and (pairs,) of a run of pairs, the latter of pairs i < j by rows. Raises DiskError.
        """
        if lift is not None:
            self.write_lifts(lift, pair_lift)
        if (self.path / FACTOR.path).is_dir() and not seals.is_sealed(self.path / FACTOR.path):
            self.seal_part(FACTOR.path)
        with disk_errors("could not be written", self.path):
            # On disk before the report is, which says that they are whole.
            for part in ("factor", LIFT.path, PAIR_LIFT.path, "model"):
                fsync_tree(self.path / part)
            fsync_tree(self.path, deep=False)
            parts = self._parts()
            list_arrays(self.path, [*parts, "graph", "pairs"])
        write_json(self.path / "report.json", {**report, SEALS: parts, KEY: self.identity})
        self.publish()

    def _parts(self) -> dict[str, int]:
        """Return the checksums of the manifests of all parts, by which a report knows them."""
        found = sorted(path.parent for path in self.path.glob(f"*/{seals.MANIFEST}"))
        return {folder.name: seals.read_seal(folder, folder.name)[1] for folder in found}

    def damages(self, *, whole: bool = False, largest: int | None = None) -> dict[str, StoreError]:
        """Map each damaged part of a complete run (gone, cut short, or another's) to its error; {} if intact.

        whole: all bytes are compared, of parts up to `largest` bytes (None: of all). StoreError for a damaged report.
        """
        known, found = self._report().get(SEALS, {}), {}
        if not isinstance(known, dict):
            raise StoreError("a report that names no parts", where=str(self.path / "report.json"), remedy=seals.REMEDY)
        for part, checksum in known.items():
            try:
                self._require_part(part, checksum, whole, largest)
            except StoreError as damage:
                found[part] = damage
        return found

    def _require_part(self, part: str, checksum: int, whole: bool, largest: int | None) -> None:
        files, own = seals.read_seal(self.path / part, part)
        if own != checksum:
            raise StoreError("not the part that the report is of", where=str(self.path / part), remedy=seals.REMEDY)
        size = sum(size for size, _ in files.values())
        seals.check_files(self.path / part, files, whole=whole and (largest is None or size <= largest))

    def check(self, *, whole: bool = False, largest: int | None = None) -> None:
        """Raise the StoreError of the first damaged part, if any (see `damages`)."""
        for damage in self.damages(whole=whole, largest=largest).values():
            raise damage

    def report(self) -> Json:
        """Return the report given to `write_report`; {} before. Raises StoreError if it was altered."""
        return {name: value for name, value in self._report().items() if name not in (SEALS, KEY)}

    def _report(self) -> Json:
        if not self.is_complete:
            return {}
        found = read_json(self.path / "report.json", sealed=True)
        require_identity(found, self.identity, self.path / "report.json")
        return found
