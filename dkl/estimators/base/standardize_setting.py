"""The setting `standardize` of learners that measure distances, and its arrays of means and spreads."""

from __future__ import annotations

from typing import Annotated

from dkl.estimators.base.rules import Either, Flag, Word
from dkl.stores.registry import StoredArray

LARGEST_RATIO = 10
"""Largest spread of a column, relative to the median of those that vary, that "auto" accepts."""

Standardize = Annotated[
    bool | str,
    Either(Flag(), Word("auto")),
    f"Bring columns to mean 0 and spread 1 [where one of {LARGEST_RATIO} times the median spread, or several of 100 times, decide all].",
]

FOLDER = "column_scale"
"""The part of a run's folder that holds the arrays."""

COLUMN_ARRAYS = (
    StoredArray(
        f"{FOLDER}/means",
        ("feature",),
        ("float64",),
        "Means of the columns, which all rows are less by before anything is computed of them; none for sparse rows.",
        optional=True,
    ),
    StoredArray(
        f"{FOLDER}/spreads",
        ("feature",),
        ("float64",),
        "Standard deviations of the columns, which all rows are divided by; 1 of a constant column.",
        optional=True,
    ),
)
