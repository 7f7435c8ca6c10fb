"""Store of the factored solver's state in a run's folder, for resuming and after lost workers.

search/round-000003/    what the third round has left: once a round, as it has the vectors of the certificate
search/descent-000151/  the state of the fourth after 151 rows of the history: in place of the one before
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from numpy.typing import NDArray

from dkl.errors import DiskError
from dkl.estimators.pairwise.arrays import ARRAYS, SEARCH_FOLDER
from dkl.estimators.pairwise.search_state import (
    BEFORE,
    COUNTED,
    INSIDE,
    SMALL,
    LowRankSnapshotNotes,
    Notes,
    check,
    to_snapshot,
)
from dkl.solvers.pairwise.state import FactoredState
from dkl.solvers.watch import Row, Watch
from dkl.stores.checkpoint_folder import CheckpointFolder, Parts
from dkl.stores.checkpointer import Checkpointer
from dkl.stores.run import RunStore

LOG = logging.getLogger("dkl")
NOWHERE = -1


@dataclass(frozen=True)
class Source:
    """State to store: its notes, the names of its arrays, and these in parts, in the order of their rows."""

    notes: Notes
    names: tuple[str, ...]
    parts: Callable[[str], Iterable[NDArray]]

    @classmethod
    def of(cls, snapshot: LowRankSnapshotNotes) -> Source:
        """Wrap a state that is in memory."""
        arrays = snapshot.arrays()
        return cls(snapshot.notes, tuple(arrays), lambda name: [arrays[name]])


class SearchStore(Checkpointer[Source | LowRankSnapshotNotes]):
    """Store of the state of a stage of the fit, which began after `first` rows of the history.

    lengths: samples, entries and pairs of the problem (`lengths_of`). must: whether a disk without space ends the fit; else the
    fit continues without storing more.
    """

    def __init__(
        self, run: RunStore, every: int | str, stage: str, lengths: dict[str, int], first: int = 0, *, must: bool = True
    ) -> None:
        super().__init__(run, every)
        self.must, self.is_full = must, False
        self.stage, self.lengths, self.first = stage, lengths, first
        root = run.path / SEARCH_FOLDER
        self.rounds = CheckpointFolder(root, ARRAYS, "round", "the solver's state")
        self.descents = CheckpointFolder(root, ARRAYS, "descent", "the solver's state")
        self.rounds.remove_leftovers()
        self.round = NOWHERE

    def load(self) -> LowRankSnapshotNotes | None:
        """Return the newest complete state, if valid and of this stage and problem. Sets `first` and the rule."""
        found = self._found()
        if found is None or found.notes.get("stage") != self.stage or not found.fits(self.lengths):
            return None
        self.first = found.notes["first"]
        self.round = found.notes["before"]["done"]
        self.rule.step = self.rule.committed = found.notes["count"]
        return found

    def _found(self) -> LowRankSnapshotNotes | None:
        try:
            _, before, round_notes = self.rounds.read()
            done = round_notes["before"]["done"] if before else 0
            _, descent, notes = self.descents.read(lambda notes: bool(notes["before"]["done"] == done))
            notes = notes or round_notes
            if not notes or not all(type(notes[name]) is int for name in ("first", "count")):
                return None
            found = LowRankSnapshotNotes(notes | {"proof": round_notes.get("proof")}, before, descent)
            check(found)
            return found
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            return None  # well sealed, but nothing that was ever written

    def due(self, *, at_end: bool = False) -> bool:
        """Return whether to commit now; see `Keeper.due`."""
        return not self.is_full and super().due(at_end=at_end)

    def commit_due(
        self, row: Row, count: int, state: Callable[[], Source | LowRankSnapshotNotes], watch: Watch
    ) -> None:
        """Commit the state if due after row `count` of the stage; raise InterruptedRunError if interrupted.

        An interrupted run is committed before. After a certificate, which takes long, a commit is due sooner.
        """
        self.rule.step = count
        if self.due(at_end=row.get("relative_gap") is not None) or (watch.is_interrupted and self.rule.is_new):
            try:
                self.commit(state())
            except DiskError as error:
                if self.must:
                    raise
                self.is_full = True
                LOG.warning(
                    "the fit continues, but a lost worker will send it back to the last state that was kept: %s", error
                )
        watch.raise_if_interrupted(f"stopped at iteration {self.first + count}")

    def write(self, state: Source | LowRankSnapshotNotes) -> dict[str, object]:
        """Write the round before, unless it is on disk already, and the descent."""
        if isinstance(state, LowRankSnapshotNotes):
            state = Source.of(state)
        notes = state.notes | {"stage": self.stage, "first": self.first}
        done = notes["before"]["done"]
        if done and done != self.round:
            # As of the round's end, for when the descent after it is damaged.
            ended = {name: notes["before"][name] for name in ("count", "products")} | {"rank": 0}
            alone = {name: value for name, value in notes.items() if name != "descent"}
            self.rounds.write(done, self._arrays(state, BEFORE), alone | ended)
            self.round = done
        if "descent" in notes:
            self.descents.write(notes["count"], self._arrays(state, INSIDE), notes)
        return {"iteration": self.first + notes["count"]}

    def _arrays(self, state: Source, names: Iterable[str]) -> dict[str, NDArray | Parts]:
        arrays: dict[str, NDArray | Parts] = {}
        for name in (one for one in names if one in state.names):
            length = self.lengths[COUNTED.get(name, "sample")]
            if name in SMALL:
                arrays[name] = next(iter(state.parts(name)))
            elif length > 0:  # without pairs there is nothing to lift
                arrays[name] = Parts(length, state.parts(name))
        return arrays


class CommitCallback:
    """Callback that commits the state of a solver in this process, which `keep` got before the row."""

    passive = True

    def __init__(self, store: SearchStore, watch: Watch) -> None:
        self.store, self.watch = store, watch
        self.state: Callable[[], FactoredState] | None = None

    def keep(self, state: Callable[[], FactoredState]) -> None:
        """Keep a callable for the current state; see `dkl.solvers.pairwise.state.Keep`."""
        self.state = state

    def __call__(self, row: Row) -> None:
        """Commit the state if due after a row; see `dkl.solvers.watch.Callback`."""
        state, self.state = self.state, None  # which holds the arrays of a descent that may be over
        if state is not None:
            self.store.commit_due(
                row, int(row["iteration"]) - self.store.first, lambda: to_snapshot(state()), self.watch
            )
