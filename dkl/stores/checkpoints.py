"""Checkpoints of a fit: folders in which each is on disk whole, or not at all, and checkpointers with the one rule on when to commit.

    root/state-000012/{name, ...}       an array each, with checksums; or `vectors`, all arrays of the state in one
                     /MANIFEST.json     their names and seals, whose they are, notes on the state; its own crc32c

A new state is written next to the old one and committed (stores/folders.py), and the old one goes: one is kept, as plans count one and
one in progress, and partial sums may be gigabytes. What is damaged counts as not there: it is computed again.

    run/sums/sums-000012/{nodes.0.parts.0, ...} an array a component of a partial sum
                    /MANIFEST.json          the nodes, and which pass it is
         done.json                          passes that have ended (of a Gram matrix that is made row by row)

A state of dataclasses that fits in memory is a `StateCheckpointer`'s: a learner declares its type, and stores/codec.py
does the rest. Slabs on workers (blocks/slabs/placement.py), partial sums of a pass (estimators/regression/store.py) and the state
of a distributed search (estimators/pairwise/search_state.py) have checkpointers of their own.
"""

from __future__ import annotations

import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.resources import DISK, spending
from dkl.stores import folders, seals
from dkl.stores.arrays import declaration_of, open_array, read_array, write_array, write_parts
from dkl.stores.codec import decode, encode, pack, unpack
from dkl.stores.folders import disk_errors
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore
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


COMMIT_SECONDS = 30.0
"""Seconds after which an automatic commit is due, unless COMMIT_SHARE defers it."""
COMMIT_SHARE = 20.0
"""Time between automatic commits, in durations of the last: they take a twentieth of the time at most."""
AT_END_SECONDS = 5.0
"""Seconds of work worth a commit when a stage ends: the next may run long before its first commit.

A stage ends with the last wave of a pass, or with a machine that is solved."""
UNLIMITED = 1 << 30
"""Number of steps reported as left until a commit when commits are due by time."""

State = TypeVar("State")


class InterruptingWatch(Protocol):
    """Protocol of a watch, which may interrupt a fit that is to be resumed later."""

    @property
    def is_interrupted(self) -> bool:
        """Return whether it has interrupted the fit."""

    def raise_if_interrupted(self, what: str) -> None:
        """Raise InterruptedRunError(what) if it has interrupted the fit."""


class CommitRule:
    """Rule on when a commit is due: every `every` steps, or ("auto") by time.

    step: the number of the step that was done last, `committed`: of the one that was committed last; what a step is
    (an iteration, a wave, a round) the checkpointer decides. cost: seconds that the last commit took.
    """

    def __init__(self, every: int | str = "auto") -> None:
        self.every = every
        self.step = self.committed = 0
        self.last, self.cost = time.monotonic(), 0.0

    @property
    def is_new(self) -> bool:
        """Return whether any step was done since the last commit."""
        return self.step != self.committed

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now; never without a step since the last."""
        if not self.is_new:
            return False
        if isinstance(self.every, int):
            return self.step % self.every == 0  # by the step's own number: a resumed run keeps the cadence
        waited = time.monotonic() - self.last
        return waited > (AT_END_SECONDS if at_end else max(COMMIT_SECONDS, COMMIT_SHARE * self.cost))

    def steps_until_due(self) -> int:
        """Return the number of steps that may be taken at once without passing over a commit."""
        return self.every - self.step % self.every if isinstance(self.every, int) else UNLIMITED

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Time a commit of the current step and record it; one that fails does not count."""
        start = time.monotonic()
        with spending(DISK):
            yield
        # Not in a `finally`: a commit that failed is due again at the next step.
        self.committed, self.last = self.step, time.monotonic()
        self.cost = self.last - start

    @contextmanager
    def prolonged(self) -> Iterator[None]:
        """Time the rest of a commit after `committing`, and add it to that commit's cost."""
        before = self.cost
        with self.committing():
            yield
        self.cost += before


class Checkpointer(ABC, Generic[State]):
    """Writer of a fit's checkpoints to its run's folder: the rule, and a line in the run's log for every commit."""

    def __init__(self, run: RunStore, every: int | str = "auto") -> None:
        self.run, self.rule = run, CommitRule(every)

    @abstractmethod
    def write(self, state: State) -> Json:
        """Put the state on disk, whole or not at all; return the log's entries about it. Raises DiskError."""

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether a commit is due now. at_end: a stage of the fit has ended."""
        return self.rule.due(at_end=at_end)

    def commit(self, state: State) -> None:
        """Commit the state and log it; publish it if the run is in an object store. Raises DiskError."""
        with self.rule.committing():
            entries = self.write(state)
        self.run.log(event="commit", **entries, cost=self.rule.cost)
        # The state is on this disk by now; a store that is away gets it with a later commit.
        with self.rule.prolonged():
            self.run.publish_if_reachable()


class StateCheckpointer(Checkpointer[State]):
    """Checkpointer that holds the newest state at all times, so that no work is lost when the fit is ended.

    state: set, or changed in place, by the methods that record a step, which then call `step_done`.
    """

    def __init__(
        self, run: RunStore, every: int | str, folder: CheckpointFolder, kind: type[State], new: State
    ) -> None:
        """Load the newest checkpoint of type `kind` from `folder`; without one the state is `new`."""
        super().__init__(run, every)
        self.folder = folder
        folder.remove_leftovers()
        self.number, loaded = folder.load(kind)
        self.state = new if loaded is None else loaded

    def to_snapshot(self, state: State) -> State:
        """Return what is stored of a state."""
        return state

    @abstractmethod
    def log_entries(self, state: State) -> Json:
        """Return what the run's log says of a commit of `state`."""

    def write(self, state: State) -> Json:
        """Put the state on disk; see `Checkpointer.write`."""
        self.number += 1
        self.folder.save(self.number, self.to_snapshot(state))
        return self.log_entries(state)

    def commit_due(self, *, at_end: bool = False) -> None:
        """Commit the state if a commit is due. Raises DiskError."""
        if self.due(at_end=at_end):
            self.commit(self.state)

    def step_done(self, *, at_end: bool) -> None:
        """Count a step that has gone into the state, and commit if due. at_end: it is the last of a stage."""
        self.rule.step += 1
        self.commit_due(at_end=at_end)

    def commit_rest(self) -> None:
        """Commit the state if any step was done since the last commit. Raises DiskError."""
        if self.rule.is_new:
            self.commit(self.state)

    @contextmanager
    def committed_at_interrupt(self, watch: InterruptingWatch, what: str) -> Iterator[None]:
        """Commit the rest of a fit that is ended by Ctrl-C or interrupted by `watch`.

        Then raises KeyboardInterrupt or InterruptedRunError(what).
        """
        try:
            yield
        except KeyboardInterrupt:
            self.commit_rest()
            raise
        if watch.is_interrupted:
            self.commit_rest()
            watch.raise_if_interrupted(what)
