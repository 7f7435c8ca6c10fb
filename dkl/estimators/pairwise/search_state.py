"""The factored solver's state as arrays and notes, whole or of some rows, for stores and workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DiskError
from dkl.estimators.pairwise.arrays import ARRAYS, SEARCH_FOLDER
from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.dual_correction import Modes
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.solvers.pairwise.descent import DescentState, FactoredState, RoundState
from dkl.solvers.watch import Row, Watch
from dkl.stores.checkpoints import Checkpointer, CheckpointFolder, Parts
from dkl.stores.run import RunStore

Notes = dict[str, Any]
Spans = dict[str, slice]
"""Row slices of arrays by the kind of row: "sample", "entry" of T, or "pair" of T above its diagonal."""
COUNTED = {"residual": "entry", "pair_lift": "pair"}
"""Kind of the rows of arrays whose rows are not samples."""
SMALL = ("values",)
"""Arrays that are the same for all rows."""
BEFORE = ("factor", "best", "mode", "lift", "pair_lift", "values", "vectors", "root")
INSIDE = ("v", "lv", "residual", "direction", "previous", "power")
"""Names of the arrays of the round before, and of the descent."""
ROUND = ("progress", "done", "idle", "count", "products")
DESCENT = ("top", "size", "iteration", "lately")
PROOF = ("objective", "gap", "relative_gap", "min_eigenvalue", "residual", "inner_product", "trace_bound")


@dataclass(frozen=True)
class LowRankSnapshotNotes:
    """State of the factored solver.

    before: arrays of the round before, {} before the first; descent: of the one under way, {} between two.
    """

    notes: Notes
    before: Mapping[str, Any]
    descent: Mapping[str, Any]

    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the round before and of the descent, by name."""
        return {**self.before, **self.descent}

    def part(self, spans: Spans) -> LowRankSnapshotNotes:
        """Return the state of these rows: copies in memory."""

        def some(arrays: Mapping[str, Any]) -> dict[str, NDArray]:
            return {name: values if name in SMALL else _rows(values, spans, name) for name, values in arrays.items()}

        return LowRankSnapshotNotes(self.notes, some(self.before), some(self.descent))

    def fits(self, lengths: dict[str, int]) -> bool:
        """Return whether the arrays have these numbers of samples, entries and pairs, and equal factor widths."""
        wide = [self.descent[name].shape[1:] for name in ("v", "lv", "direction", "previous", "power") if self.descent]
        return len(set(wide)) <= 1 and all(
            values.shape[0] == lengths[COUNTED.get(name, "sample")]
            for name, values in self.arrays().items()
            if name not in SMALL
        )


def _rows(values: Any, spans: Spans, name: str) -> NDArray:
    return np.array(values[spans[COUNTED.get(name, "sample")]])


def lengths_of(problem: PairwiseKernel) -> dict[str, int]:
    """Return the numbers of samples, entries and pairs of the problem."""
    n, entries = problem.n, int(problem.targets.nnz)
    return {"sample": n, "entry": entries, "pair": (entries - n) // 2}


def spans_of(problem: PairwiseKernel, lo: int, hi: int) -> Spans:
    """Return the slices of samples, entries and pairs of the rows [lo, hi)."""
    indptr, indices = problem.targets.indptr, problem.targets.indices
    first, last = int(indptr[lo]), int(indptr[hi])
    rows = np.repeat(np.arange(hi), np.diff(indptr[: hi + 1]))
    above = indices[:last] > rows
    begin = int(above[:first].sum())
    return {
        "sample": slice(lo, hi),
        "entry": slice(first, last),
        "pair": slice(begin, begin + int(above[first:].sum())),
    }


def to_snapshot(state: FactoredState) -> LowRankSnapshotNotes:
    """Return a state as arrays, which are the solver's own."""
    at, descent = state.before, state.descent
    notes: Notes = {
        "products": state.products,
        "rank": state.rank,
        "count": state.count,
        "before": {name: getattr(at, name) for name in ROUND},
    }
    before: dict[str, NDArray] = {}
    if at.best is not None:
        assert at.factor is not None
        best, proof = at.best
        before = {"factor": at.factor, "mode": proof.direction, "lift": proof.lift, "pair_lift": proof.pair_lift}
        before |= {"values": at.low.values, "vectors": at.low.vectors, "root": at.low.root}
        if best is not at.factor:
            before["best"] = best
        notes["proof"] = {name: float(getattr(proof, name)) for name in PROOF}
    if descent is None:
        return LowRankSnapshotNotes(notes, before, {})
    notes["descent"] = {name: getattr(descent, name) for name in DESCENT}
    return LowRankSnapshotNotes(notes, before, {name: getattr(descent, name) for name in INSIDE})


def from_snapshot(snapshot: LowRankSnapshotNotes, rows: SharedRows) -> FactoredState:
    """Restore the state, or a part of it, from `to_snapshot`; KeyError, TypeError or ValueError if invalid."""
    notes, before, inside = snapshot.notes, snapshot.before, snapshot.descent
    done, idle, count, products = (_count(notes["before"][name]) for name in ROUND[1:])
    at = RoundState(float(notes["before"]["progress"]), done, idle, count, products)
    if before:
        proof = Certificate(
            **{name: float(notes["proof"][name]) for name in PROOF},
            direction=before["mode"],
            lift=before["lift"],
            pair_lift=before.get("pair_lift", np.zeros(0)),
        )
        factor = before["factor"]
        low = Modes(before["values"], before["vectors"], before["root"], rows)
        at = RoundState(at.progress, done, idle, count, products, factor, (before.get("best", factor), proof), low)
    descent = None
    if inside:
        known = notes["descent"]
        descent = DescentState(
            **inside,
            top=float(known["top"]),
            size=float(known["size"]),
            iteration=_count(known["iteration"]),
            lately=[float(value) for value in known["lately"]],
        )
    return FactoredState(at, _count(notes["products"]), descent, _count(notes["rank"]))


def check(snapshot: LowRankSnapshotNotes) -> None:
    """Raise KeyError, TypeError or ValueError for notes that are not those of a state."""
    nowhere: Any = None
    from_snapshot(snapshot, nowhere)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


# Store of the factored solver's state in a run's folder, for resuming and after lost workers.
#
# search/round-000003/    what the third round has left: once a round, as it has the vectors of the certificate
# search/descent-000151/  the state of the fourth after 151 rows of the history: in place of the one before

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
        """Return whether to commit now; see `Checkpointer.due`."""
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
        """Keep a callable for the current state; see `dkl.solvers.pairwise.descent.Keep`."""
        self.state = state

    def __call__(self, row: Row) -> None:
        """Commit the state if due after a row; see `dkl.solvers.watch.Callback`."""
        state, self.state = self.state, None  # which holds the arrays of a descent that may be over
        if state is not None:
            self.store.commit_due(
                row, int(row["iteration"]) - self.store.first, lambda: to_snapshot(state()), self.watch
            )
