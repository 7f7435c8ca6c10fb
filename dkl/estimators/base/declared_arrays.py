"""Arrays that the runs of several learners declare alike: points, dense or CSR, and long histories."""

from __future__ import annotations

from dataclasses import replace

from dkl.estimators.base.run_arrays import check_lengths, columns_of
from dkl.stores.registry import FLOATS, INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

# Points in a run's folder (base/run_arrays.py), dense or CSR: how they are declared.


def declared_points(folder: str, point: str, what: str) -> tuple[StoredArray, ...]:
    """Return declarations of what `point_arrays` makes of points (m, d), in `folder`.

    point: what a point is called, in `dims`.
    """
    dense = StoredArray(
        f"{folder}/points",
        (point, "feature"),
        (*FLOATS, "int64"),
        f"{what}; with a precomputed kernel the numbers of its columns, without a second dimension.",
        may_lack_last=True,
        optional=True,
    )
    entries = replace(
        dense.at(f"{folder}/points_data", "The same as CSR, if the rows were sparse: the entries."),
        dims=("entry",),
        dtypes=FLOATS,
        may_lack_last=False,
    )
    numbers = replace(entries, dtypes=("int64", "int32"))
    return (
        dense,
        entries,
        numbers.at(f"{folder}/points_indices", "CSR: the feature of each entry."),
        replace(numbers.at(f"{folder}/points_indptr", "CSR: where each point begins."), dims=(f"{point}_bound",)),
        replace(numbers.at(f"{folder}/points_shape", "CSR: points and features."), dims=("axis",)),
    )


# Storage of a long history as arrays in a run's folder, one a column; a short one is in the report.

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
