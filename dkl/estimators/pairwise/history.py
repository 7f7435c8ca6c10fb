"""The history of a run of pairs: a line an iteration in its log, which has no checksum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dkl.errors import StoreError
from dkl.estimators.pairwise.arrays import SEARCH_FOLDER
from dkl.stores import commits
from dkl.stores.run import RunStore
from dkl.stores.run_identity import KEY, require_identity
from dkl.stores.sealed_json import read_json
from dkl.stores.seals import MANIFEST

if TYPE_CHECKING:
    from dkl.solvers.history_rows import Row

OF_LOG = {"event", "at", "attempt", KEY}
"""Keys of a line that are not the iteration's."""
COLUMNS = ("iteration", "objective", "primal_residual", "dual_residual", "rho_used", "relative_gap", "seconds")
"""Columns of the history that are shown if present; a gap that was not computed is None."""


def history(run: RunStore, last: int | None = None) -> list[Row]:
    """Return the iterations' rows up to number `last`, in order; of a repeated iteration the last.

    Iterations are repeated after a loss or by `resume`.

    StoreError for a malformed row.
    """
    rows: list[Row] = []
    for event in run.events():
        if event.get("event") != "iteration":
            continue
        row = {key: value for key, value in event.items() if key not in OF_LOG}
        _require_row(row, run)
        # An iteration that is written again follows from an earlier state: what was beyond it is void.
        while rows and rows[-1]["iteration"] >= row["iteration"]:
            rows.pop()
        rows.append(row)
    return [row for row in rows if last is None or row["iteration"] <= last]


def kept_rows(run: RunStore) -> int | None:
    """Return the number of history rows up to the newest stored factored state, by its manifest, if any."""
    found = []
    for name in ("round", "descent"):
        for folder in commits.numbered_folders(run.path / SEARCH_FOLDER, name):
            try:
                notes = read_json(folder / MANIFEST, sealed=True)
                require_identity(notes, run.identity, folder)
                found.append(int(notes["first"]) + int(notes["count"]))
            except (StoreError, KeyError, TypeError, ValueError, OverflowError):
                continue  # damaged: it counts as not there
    return max(found, default=None)


def _require_row(row: Row, run: RunStore) -> None:
    known = {name: row[name] for name in COLUMNS if row.get(name) is not None}
    is_whole = type(row.get("iteration")) is int and 0 <= row["iteration"] < 2**63
    if not (
        is_whole and "seconds" in known and all(map(_is_number, known.values())) and 0 <= row["seconds"] < math.inf
    ):
        raise StoreError(
            "malformed line in the history log",
            where=f"{run.path}/events.jsonl",
            got=str(known)[:200],
            wanted="numbers of an iteration",
            remedy="take that line out",
        )


def _is_number(value: object) -> bool:
    """Return whether the value is a number that fits a float, or NaN; a Boolean does not count."""
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)
