"""Rows and classes that a learner's plot shows, and the panel of rows in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.errors import InputError
from dkl.linalg.eigen.principal_coordinates import Plane
from dkl.plotting.figures import Panel, panel
from dkl.plotting.panels import draw_points
from dkl.side_information.labels import label_codes

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows

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


# Some rows of a large array, for a picture: the same ones every time, read without holding the rest.

PIECES = 32
"""Number of stretches to read of rows that are not in memory (more only if they are short)."""
SHORT = 32
"""Rows of a stretch where there are no chunks."""

MIN_POOL, MAX_POOL, MAX_POOL_BYTES = 500, 20_000, 32_000_000
POOL_SHARE = 16
"""Divisor of a memory limit, less the process itself, that bounds the rows of a plain alternative."""


def pool_rows(source: RowSource, memory_limit: int | None) -> int:
    """Return the maximum number of rows that a quality's plain alternative learns from.

    Rows of MAX_POOL_BYTES, or less under a limit, between MIN_POOL and MAX_POOL.
    """
    most = MAX_POOL_BYTES
    if memory_limit is not None:
        most = min(most, max(0, memory_limit - PROCESS_BASE) // POOL_SHARE)
    return min(source.n, max(MIN_POOL, min(MAX_POOL, most // max(source.row_bytes, 1))))


def some_rows(source: RowSource, most: int) -> NDArray[np.intp]:
    """Return (m,) sorted random row numbers, m <= `most`; from a few chunks if the rows are not in memory.

    They follow from the number of rows and the chunks alone.
    """
    n, rng = source.n, np.random.default_rng(0)
    if n <= most:
        return np.arange(n)
    if source.is_in_memory:
        return np.sort(rng.choice(n, most, replace=False, shuffle=False))
    # By stretches: a random row of a chunked file costs its whole chunk.
    piece = _piece(source)
    pieces = -(-n // piece)
    count = min(pieces, max(PIECES, -(-most // piece) + 1))  # one more, for the last may be short
    starts = np.sort(rng.choice(pieces, count, replace=False)) * piece
    sizes = np.minimum(piece, n - starts)
    drawn = np.sort(rng.choice(int(sizes.sum()), min(most, int(sizes.sum())), replace=False, shuffle=False))
    ends = np.cumsum(sizes)
    owner = np.searchsorted(ends, drawn, side="right")
    return np.asarray(starts[owner] + drawn - (ends - sizes)[owner])


def read_rows(source: RowSource, chosen: NDArray[np.intp]) -> Any:
    """Read the rows (m, d) with these sorted numbers, dense or CSR; a stretch is held at a time."""
    if source.is_in_memory:
        return source.array[chosen]
    piece = _piece(source)
    owner = np.asarray(chosen) // piece
    parts = [
        source.read(int(first * piece), int(min((first + 1) * piece, source.n)))[chosen[owner == first] - first * piece]
        for first in np.unique(owner)
    ]
    return sp.vstack(parts, format="csr") if sp.issparse(parts[0]) else np.concatenate(parts)


def sample(array: object, most: int) -> tuple[NDArray[np.intp], Any]:
    """Return (numbers (m,), rows (m, d)) of at most `most` rows of whatever `row_source` takes."""
    source = row_source(array)
    chosen = some_rows(source, most)
    return chosen, read_rows(source, chosen)


def _piece(source: RowSource) -> int:
    """Return the number of rows that are read together."""
    # A mapped file has no chunks that are read whole.
    return max(SHORT, 1 if source.is_mapped else source.rows_per_chunk)
