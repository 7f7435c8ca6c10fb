"""Figure of matplotlib without pyplot and its global state. Imported where one is drawn."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
    "svg": {"Date": None, "Creator": None},
}
"""Metadata to leave out, by format, so that two files of one figure are equal."""


class Picture(Figure):
    """A figure that a notebook shows without `%matplotlib`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"dpi": 110, "layout": "constrained", **settings})
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """Return the PNG that IPython asks for."""
        return png(self)


def png(figure: Figure) -> bytes:
    """Return the figure as PNG, without a date or a version."""
    stream = BytesIO()
    figure.savefig(stream, format="png", metadata=METADATA["png"])
    return stream.getvalue()


def write(figure: Figure, path: Path, kind: str) -> None:
    """Write the figure to a file of this kind ("png", "pdf" or "svg"), without a date or a version."""
    from matplotlib import rc_context

    with rc_context({"svg.hashsalt": "dkl"}):
        figure.savefig(path, format=kind, metadata=METADATA[kind])
