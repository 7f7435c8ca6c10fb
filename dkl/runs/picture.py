"""A run's picture: what its learner draws, as a file that appears whole."""

from __future__ import annotations

from pathlib import Path

from dkl.io.paths import as_source
from dkl.plotting import figures
from dkl.resources import current_rss
from dkl.runs.inputs.lazy import Lazy
from dkl.runs.inputs.row_files import reading_bytes
from dkl.runs.kind import RunKind
from dkl.stores.run import RunStore

DRAWING = 70_000_000
"""Bytes of matplotlib and a canvas; measured 46 to 57 MB."""
COPIES = 4
"""Copies of the shown rows while drawing: read in stretches, put together, centered, projected."""


def picture_bytes(kind: RunKind, n: int, n_features: int, read_at_once: int = 0) -> int:
    """Return the bytes that drawing takes in addition to all else.
    They are matplotlib's, those of the rows that are shown, and those of a file that is read at once."""
    shown = COPIES * 8 * min(n, kind.drawn_rows) * n_features
    return DRAWING + shown + (read_at_once if kind.reads_to_draw else 0)


def has_room(kind: RunKind, run: RunStore, memory_limit: int | None) -> bool:
    """Return whether a run's picture can be drawn within the limit, next to what this process holds."""
    if memory_limit is None:
        return True
    known = run.config["inputs"]["data"]
    path = as_source(known["path"])
    again = reading_bytes(path) if kind.reads_to_draw and path.exists() else 0
    n, n_features = known["shape"]
    return current_rss() + picture_bytes(kind, n, n_features, again) <= memory_limit


def draw_picture(kind: RunKind, run: RunStore, inputs: Lazy, path: Path) -> Path:
    """Draw a complete run's picture to `path`, in the format of its suffix; InputError without matplotlib."""
    figures.check_matplotlib("--picture")
    return figures.save(kind.picture(run, inputs), path)
