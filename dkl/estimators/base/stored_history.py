"""Storage of a long history as arrays in a run's folder, one a column; a short one is in the report."""

from __future__ import annotations

from dataclasses import replace

from dkl.estimators.base.run_arrays import check_lengths, columns_of
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

FOLDER = "history"
ITERATION = {"iteration": "Of the solver's checks: its iteration."}
CERTIFICATE = {
    "objective": "Of the checks: the objective.",
    "gap": "Of the checks: the duality gap.",
    "relative_gap": "Of the checks: the gap relative to the objective.",
}
"""Columns that most solvers record, and what they mean."""


def declared_history(counts: dict[str, str], values: dict[str, str]) -> tuple[StoredArray, ...]:
    """Return declarations of a history's columns, names to meanings: `counts` (integers), then `values`."""
    value = StoredArray(FOLDER, ("check",), ("float64",), "", optional=True)
    count = replace(value, dtypes=INTEGERS)
    columns = [(count, counts), (value, values)]
    return tuple(one.at(f"{FOLDER}/{name}", text) for one, named in columns for name, text in named.items())


def write_history(run: RunStore, rows: list[dict[str, object]]) -> None:
    """Keep the declared columns that all rows have. Raises DiskError."""
    declared = [one.name for one in (run.arrays or Arrays()).inside(FOLDER)]
    run.write_arrays(FOLDER, columns_of(rows, *(name for name in declared if all(name in row for row in rows))))


def read_history(run: RunStore) -> list[dict[str, object]]:
    """Read the history, a row a check of the solver; StoreError where it is missing or damaged."""
    found = run.read_arrays(FOLDER)
    check_lengths(run, FOLDER, found, "columns of different lengths", f"{run.path}/{FOLDER}")
    names = sorted(found)
    return [dict(zip(names, row, strict=True)) for row in zip(*(found[name].tolist() for name in names), strict=True)]
