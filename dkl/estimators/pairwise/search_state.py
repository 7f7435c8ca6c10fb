"""The factored solver's state as arrays and notes, whole or of some rows, for stores and workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise.certificate import Certificate
from dkl.problems.pairwise.diagonal_shift_bound import Modes
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.solvers.pairwise.state import DescentState, FactoredState, RoundState

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
