"""Points in a run's folder (base/run_arrays.py), dense or CSR: how they are declared."""

from __future__ import annotations

from dataclasses import replace

from dkl.stores.registry import FLOATS, StoredArray


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
