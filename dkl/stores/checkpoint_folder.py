"""A folder of checkpoints of one piece of work: each is on disk whole, or not at all (stores/folders.py).

    root/state-000012/{name, ...}       an array each, with checksums; or `vectors`, all arrays of the state in one
                     /MANIFEST.json     their names and seals, whose they are, notes on the state; its own crc32c

A new state is written next to the old one and committed, and the old one goes: one is kept, as plans count one and one
in progress, and partial sums may be gigabytes. What is damaged counts as not there: it is computed again.

    run/sums/sums-000012/{nodes.0.parts.0, ...} an array a component of a partial sum
                    /MANIFEST.json          the nodes, and which pass it is
         done.json                          passes that have ended (of a Gram matrix that is made row by row)
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores import folders, seals
from dkl.stores.arrays import declaration_of, open_array, read_array, write_array, write_parts
from dkl.stores.codec import decode, encode, pack, unpack
from dkl.stores.folders import disk_errors
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.seals import KEY, identity_in, read_json, require_identity, write_json

if TYPE_CHECKING:
    from dkl.stores.seals import Json


KEPT = 1
Notes = dict[str, Any]
T = TypeVar("T")
VECTORS = "vectors"
"""Name of the array that holds all arrays of a state one after the other, in folders that declare it."""


def vectors_of(folder: str, name: str, doc: str) -> StoredArray:
    """Return the declaration of a checkpoint folder's `vectors`."""
    return StoredArray(f"{folder}/{name}-*/{VECTORS}", ("entry",), ("float64",), doc, optional=True)


@dataclass(frozen=True)
class Parts:
    """A tall array of `rows` rows in parts, of which one at a time need be in memory."""

    rows: int
    parts: Iterable[NDArray]


class CheckpointFolder:
    """The checkpoints of one piece of work.

    root: a folder in the run's. arrays: their declarations, by paths in the run's folder. name: prefix of a state's
    folder; what: name in errors of what could not be kept.
    """

    def __init__(self, root: Path, arrays: Arrays, name: str = "state", what: str = "the state") -> None:
        self.root, self.arrays, self.name, self.failure = root, arrays, name, f"could not keep {what}"
        self.identity = identity_in(root.parent)

    def save(self, number: int, state: object) -> None:
        """Commit a state of dataclasses (stores/codec.py) as checkpoint `number`; see `write`."""
        arrays, notes = encode(state)
        content: Notes = {"state": notes}
        if self._is_packed:
            # One array of all: a state of twenty small ones would be twenty files, each with an fsync.
            vectors, content["shapes"] = pack(arrays)
            arrays = {VECTORS: vectors}
        self.write(number, arrays, content)

    def load(self, kind: type[T], wanted: Callable[[Any], bool] = lambda state: True) -> tuple[int, T | None]:
        """Return (number, state) of this run's newest checkpoint that is whole, of type `kind` and `wanted`.

        Without one the state is None. No checkpoint, wanted or not, has a number higher than `number`.
        """
        found: list[T] = []

        def is_valid(arrays: dict[str, NDArray], notes: Notes) -> bool:
            parts = unpack(arrays[VECTORS], notes["shapes"]) if self._is_packed else arrays
            state = decode(kind, parts, notes["state"])
            if wanted(state):
                found.append(state)
            return bool(found)

        return self._newest(is_valid), found[0] if found else None

    @property
    def _is_packed(self) -> bool:
        """Return whether the arrays of a state are stored in one."""
        return self.arrays.find(f"{self.root.name}/{self.name}-000000/{VECTORS}") is not None

    def write(self, number: int, arrays: Mapping[str, NDArray | Parts], notes: Notes) -> None:
        """Commit `arrays` and `notes` (JSON) as state `number`, replacing older ones; `number` must grow.

        An array that is declared in chunks of rows may come in parts. Raises DiskError, and StoreError for an array
        that is not declared, or not as it is declared.
        """
        target = self.root / f"{self.name}-{number:06d}"
        with disk_errors(self.failure, self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
        with folders.replaced_folder(target, self.failure) as folder:
            for name, values in arrays.items():
                declared = self._declared(target, name)
                if declared.chunks.cut:
                    tall = values if isinstance(values, Parts) else Parts(len(values), [values])
                    write_parts(folder / name, tall.rows, tall.parts, declared)
                else:
                    assert isinstance(values, np.ndarray)
                    write_array(folder / name, values, declared)
            content = {
                "arrays": list(arrays),
                "of": target.name,
                "files": seals.files_in(folder),
                KEY: self.identity,
                **notes,
            }
            # Last, as it has the sums of all other files.
            write_json(folder / seals.MANIFEST, content)
        # After the commit: a crash before this line leaves two states, of which the newer is read.
        folders.keep_newest(self.root, self.name, number, KEPT)

    def read(self, wanted: Callable[[Notes], bool] = lambda notes: True) -> tuple[int, Json, Notes]:
        """Return (number, arrays, notes) of this run's newest state that is whole and `wanted`.

        Without one arrays and notes are {}. An array that is declared in chunks of rows is a zarr array, of which all
        bytes have been compared. No state, wanted or not, has a number higher than `number`.
        """
        found: list[tuple[Json, Notes]] = []

        def is_valid(arrays: dict[str, NDArray], notes: Notes) -> bool:
            if wanted(notes):
                found.append((arrays, notes))
            return bool(found)

        return self._newest(is_valid), *(found[0] if found else ({}, {}))

    def _newest(self, is_valid: Callable[[Json, Notes], bool]) -> int:
        """Return the highest number; calls `is_valid` with checkpoints that are whole, newest first, until it is True.

        A StoreError of `is_valid`, or another error that invalid notes lead to, means False.
        """
        states = folders.numbered_folders(self.root, self.name)
        for folder in reversed(states):
            try:
                notes = read_json(folder / seals.MANIFEST, sealed=True)
                require_identity(notes, self.identity, folder)
                self._require_place(folder, notes)
                if is_valid(self._arrays(folder, notes["arrays"], notes), notes):
                    break
            except (StoreError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
                # A damaged state is passed over: an older one, or none, takes its place, and costs work but no result.
                continue
        # Of a damaged one too: the next commit must not take a name that is there.
        return folders.number_of(states[-1]) if states else 0

    def _require_place(self, folder: Path, notes: Notes) -> None:
        """Raise StoreError for a state under another's name, or files that do not match their seals."""
        if notes.get("of") != folder.name:
            raise StoreError("a state under another's name", where=str(folder), got=notes.get("of"))
        seals.check_files(folder, seals.files_of(notes, folder))

    def _arrays(self, folder: Path, names: list[str], notes: Notes) -> dict[str, NDArray]:
        declared = {name: self._declared(folder, name) for name in names}
        # Such an array is read later, by parts, where damage would be found too late to fall back to another state.
        if any(one.chunks.cut for one in declared.values()):
            seals.check_files(folder, seals.files_of(notes, folder), whole=True)
        return {
            name: (open_array if one.chunks.cut else read_array)(folder / name, one) for name, one in declared.items()
        }

    def _declared(self, folder: Path, name: str) -> StoredArray:
        return declaration_of(self.arrays, f"{self.root.name}/{folder.name}/{name}", self.root.parent)

    def drop(self) -> None:
        """Remove all states, once the result is there."""
        # A state that cannot be removed is of no harm next to a result.
        shutil.rmtree(self.root, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Remove what an attempt that died has left; only for who holds the run's lock."""
        folders.remove_leftovers(self.root)


Partials = dict[tuple[int, int], tuple[Any, ...]]
"""Components of a partial sum, by (level, index) of its node in the tree of sums."""


@dataclass(frozen=True)
class NodeSum:
    """Components of the partial sum at a node of the tree of sums."""

    level: int
    index: int
    parts: list[NDArray[np.float64]]


@dataclass(frozen=True)
class PassState:
    """Partial sums of a pass that is under way."""

    number: int
    nodes: list[NodeSum]


class PartialSums(CheckpointFolder):
    """The checkpoints of the passes of one run. arrays: declarations of `sums-*/nodes.*.parts.<k>`, for component k of a sum."""

    def __init__(self, root: Path, arrays: Arrays) -> None:
        super().__init__(root, arrays, "sums", "the sums")

    def save_pass(self, number: int, pass_number: int, partials: Partials) -> None:
        """Commit the state of a pass; `number` grows with each. Raises DiskError."""
        nodes = [NodeSum(level, index, list(parts)) for (level, index), parts in partials.items()]
        self.save(number, PassState(pass_number, nodes))

    def load_pass(self, pass_number: int) -> tuple[int, Partials]:
        """Return (number, state) to resume a pass from: its newest whole state, or {}.

        No state, of any pass, has a higher number.
        """
        number, state = self.load(PassState, lambda state: state.number == pass_number)
        return number, {} if state is None else {(node.level, node.index): tuple(node.parts) for node in state.nodes}

    def mark_done(self, pass_number: int) -> None:
        """Note that a pass has ended and its rows of the Gram matrix are stored. Raises DiskError."""
        with disk_errors(self.failure, self.root):
            self.root.mkdir(mode=0o700, exist_ok=True)
        write_json(self.root / "done.json", {"passes": sorted({*self.done(), pass_number}), KEY: self.identity})

    def done(self) -> list[int]:
        """Return the passes that have ended; [] if unknown, so that they are repeated."""
        try:
            notes = read_json(self.root / "done.json", sealed=True)
            require_identity(notes, self.identity, self.root)
            return decode(list[int], {}, notes.get("passes"))
        except StoreError:
            return []
