"""Rows and classes that a learner's plot shows, and the panel of rows in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.plane import Plane
from dkl.plotting.figures import Panel, panel
from dkl.plotting.points import draw_points
from dkl.side_information.pair_sources import label_codes

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import CheckedRows

MOST_ROWS = 2000
"""Maximum number of rows that a plot shows, each a dot."""
MOST_VALUES = 40
"""Maximum number of eigenvalues in a plot."""
MOST_PATTERNS, MOST_DECIDED = 5000, 10_000
"""Maximum rows in a plot: of a factor, seen from the side; of those counted by a classifier's."""


def sampled(n: int, most: int = MOST_ROWS) -> NDArray[np.intp]:
    """Return the numbers of at most `most` of n rows, ascending, the same ones every time."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False, shuffle=False))


def labels_at(labels: Any, n: int, chosen: NDArray[np.intp]) -> list[Any] | None:
    """Return the labels of the chosen of n rows, or None without labels; InputError unless there is a label a row."""
    if labels is None:
        return None
    if len(labels) != n:
        raise InputError("not a label a row", where="y", got=f"{len(labels)}", wanted=f"{n}")
    labels = labels if isinstance(labels, list) else np.asarray(labels)
    return [labels[k] for k in chosen.tolist()]


def classes_of(labels: Any, m: int) -> tuple[NDArray[np.intp], tuple[str, ...]]:
    """Return (class numbers (m,), names of the classes); -1 is no class, as all m rows have without labels."""
    if labels is None:
        return np.full(m, -1), ()
    codes = label_codes(labels)
    _, first = np.unique(codes, return_index=True)
    return codes, tuple(str(labels[place]) for place in first[np.unique(codes) >= 0])


def of_all(shown: int, n: int) -> str:
    """Return a title's last line on how many of n rows are shown; empty if all are."""
    return f"\n{shown:,} of {n:,} rows" if shown < n else ""


def rows_panel(rows: CheckedRows, codes: NDArray[np.intp], names: Sequence[str], what: str, below: str = "") -> Panel:
    """Return the panel of rows (m, d) in their plane of most variance, colored by class (codes (m,))."""
    points = Plane.of(rows).project(rows)
    return panel(draw_points, points, codes, names, f"{what}, first two principal components{below}")


def largest_eigenvalues(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return at most 40 eigenvalues of a symmetric matrix, largest first."""
    return np.asarray(np.linalg.eigvalsh(matrix)[::-1][:MOST_VALUES], np.float64)
