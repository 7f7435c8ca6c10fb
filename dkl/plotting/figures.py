"""Figures without pyplot: their panels in a grid, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Panel = Callable[[Any], None]
"""Function that draws into empty axes of a figure."""

KINDS = ("png", "pdf", "svg")
PANEL_SIZE = (5.8, 5.0)


@dataclass(frozen=True)
class PlotData:
    """Content of a figure: its title, its panels, and `main`, the most informative one.

    columns: of the grid of panels; by default two for four panels, else three.
    """

    title: str
    panels: Sequence[Panel]
    main: Panel | None = None
    columns: int | None = None


def panel(draw: Callable[..., None], *given: object, **options: object) -> Panel:
    """Return the panel drawn by draw(axis, *given, **options)."""
    return lambda axis: draw(axis, *given, **options)


def can_draw() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_matplotlib(where: str | None = None) -> None:
    """Raise InputError where matplotlib is missing."""
    if not can_draw():
        raise InputError("matplotlib is missing", where=where, remedy="pip install 'dkl[report]'")


def new_figure() -> Any:
    """Return an empty figure with its own canvas, which pyplot does not manage."""
    check_matplotlib()
    from dkl.plotting.canvas import Picture

    return Picture()


def figure_of(plot: PlotData) -> Figure:
    """Return a new figure with all panels, row by row."""
    figure, count = new_figure(), len(plot.panels)
    columns = min(plot.columns or (2 if count == 4 else 3), count)
    rows = -(-count // columns)
    figure.set_size_inches(PANEL_SIZE[0] * columns, PANEL_SIZE[1] * rows + 0.4)
    figure.set_layout_engine("constrained", w_pad=0.12, h_pad=0.12)
    for draw, place in zip(plot.panels, figure.add_gridspec(rows, columns), strict=False):
        draw(figure.add_subplot(place))
    if plot.title:
        figure.suptitle(plot.title, fontsize=13, parse_math=False)
    return figure


def draw_plot(ax: Axes | None, make: Callable[[], PlotData]) -> Any:
    """Draw an estimator's `plot`: all panels of `make()` in a new figure, or the main one in `ax`."""
    check_matplotlib("plot")
    if ax is None:
        return figure_of(make())
    from matplotlib.axes import Axes

    if not isinstance(ax, Axes):
        raise InputError("not axes of matplotlib", where="ax", got=type(ax).__name__, wanted="Axes or None")
    plot = make()
    (plot.main or plot.panels[0])(ax)
    return ax


def check_kind(path: Path) -> str:
    """Return the kind of picture of the path's suffix, PNG without one; InputError for an unknown one."""
    kind = path.suffix[1:].lower() or "png"
    if kind not in KINDS:
        wanted = ", ".join(f".{kind}" for kind in KINDS)
        raise InputError("a picture of an unknown kind", where=str(path), wanted=wanted)
    return kind


def save(figure: Figure, path: str | Path) -> Path:
    """Write the figure as PNG, PDF or SVG by suffix: all or nothing, the same bytes every time."""
    path = Path(path)
    kind = check_kind(path)
    from dkl.plotting.canvas import write

    partial = path.with_name(f".dkl-{os.getpid()}.partial")  # not longer for a long name
    try:
        write(figure, partial, kind)
        partial.chmod(0o600)  # it shows the data
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path
