"""Figures without pyplot: the style of all panels, their grid, and their files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.quality import Quality, proof_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


# -- style --------------------------------------------------------------------------------------------------------------


GREY = "0.35"
LONGEST_NAME = 16
TALL = 100
"""Height of the highest bar above which a bar of one would not be seen."""
WIDE = 30
"""Ratio of the largest to the smallest value from which they are drawn on a logarithmic axis."""


def tidy(axis: Axes, title: str = "", x: str = "", y: str = "") -> None:
    """Style the axes: a light grid, no box, title and axis labels."""
    axis.set_axisbelow(True)
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=GREY)
    head(axis, title)
    if x:
        axis.set_xlabel(x, color=GREY)
    if y:
        axis.set_ylabel(y, color=GREY)


def head(axis: Axes, title: str, pad: float | None = None) -> None:
    """Set the panel's title, as plain text, `pad` points above it."""
    if title:
        axis.set_title(title, fontsize=11, pad=pad, parse_math=False)


def legend(axis: Axes, **options: Any) -> Any:
    """Draw the color legend where the axes are emptiest, half transparent over what is under it."""
    return axis.legend(**{"frameon": True, "framealpha": 0.75, "edgecolor": "none", "fontsize": 9, **options})


def log_y(axis: Axes, room: float = 0.0) -> None:
    """Set a logarithmic axis, with numbers at powers of ten, and at 2 and 5 where it spans few.

    `room`: a share of it to be left free above, for a legend.
    """
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    axis.set_yscale("log")
    low, high = axis.get_ylim()
    # A share of a logarithmic axis is a power of its range.
    axis.set_ylim(top=high * (high / low) ** room)
    axis.yaxis.set_minor_formatter(NullFormatter())
    if high < 300 * low:
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(FormatStrFormatter("%g"))


def count_y(axis: Axes) -> None:
    """Scale a histogram's count axis: logarithmic if bars of one would not be seen next to the highest."""
    high = axis.get_ylim()[1]
    if high > TALL:
        axis.set_yscale("log")
        axis.set_ylim(bottom=0.7, top=4 * high)  # room for the legend
    else:
        axis.set_ylim(top=1.25 * high)
        whole_numbers(axis.yaxis)


def whole_numbers(axis: Axis) -> None:
    """Set ticks at whole numbers alone, of axis.xaxis or axis.yaxis."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, nbins=11, min_n_ticks=1))


def note(axis: Axes, text: str, title: str = "") -> None:
    """Write text where there is nothing to draw."""
    head(axis, title)
    axis.set_axis_off()
    axis.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axis.transAxes, parse_math=False)


def colours(count: int) -> NDArray[np.float64]:
    """Return colors (count, 4), RGBA: up to twenty clearly different, more spread over the hues."""
    from matplotlib import colormaps

    if count <= 20:
        return np.asarray(colormaps["tab10" if count <= 10 else "tab20"](np.arange(count)))
    # Steps of the golden ratio: neighbors in number are far apart in hue, however many there are.
    golden = 0.6180339887498949
    return np.asarray(colormaps["turbo"](0.04 + 0.92 * ((np.arange(count) * golden) % 1.0)))


def written(names: Sequence[str]) -> list[str]:
    """Return class names as drawn: short, on one line, and "no. 3" where the font lacks a letter.

    Long ones keep their head and tail, in which most differ.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    # A letter that the font lacks would be drawn as a box, with a warning a letter.
    letters = get_font(findfont(FontProperties())).get_charmap()
    found = []
    for number, name in enumerate(names):
        text = " ".join(name.split())
        if len(text) > LONGEST_NAME:
            text = f"{text[:9]}…{text[-6:]}"
        found.append(text if text and all(ord(letter) in letters for letter in text) else f"no. {number}")
    return found


def name_ticks(axis: Any, which: str, places: Sequence[float], names: Sequence[str]) -> None:
    """Label the places on axis "x" or "y" by names, as `written`; slanted where they would overlap."""
    (axis.set_xticks if which == "x" else axis.set_yticks)(list(places))
    labels = (axis.set_xticklabels if which == "x" else axis.set_yticklabels)(list(names))
    slanted = which == "x" and sum(len(name) + 2 for name in names) > 48
    for label in labels:
        label.set_parse_math(False)
        label.set_fontsize(9 if len(names) <= 20 else 8)
        if slanted:
            label.set(rotation=45, ha="right", rotation_mode="anchor")
    axis.tick_params(axis=which, length=0)


def thinned(count: int, most: int) -> NDArray[np.intp]:
    """Return numbers of at most `most` of `count` things, in equal steps from the first."""
    # Rounded up, so that there are never more than `most`.
    return np.arange(0, count, max(1, -(-count // most)))


def counted(number: int, what: str, plural: str | None = None) -> str:
    """Return a count with its noun: "1 pattern", "1,797 patterns"."""
    return f"{number:,} {what if number == 1 else plural or what + 's'}"


def gap_text(relative_gap: float, gap: float | None = None) -> str:
    """Return what is proven, for a title. gap: as `absolute_gap` returns it."""
    return proof_text(relative_gap, gap) if np.isfinite(relative_gap) else "no gap is proven"


def titled(quality: Quality | None, text: str) -> str:
    """Return a picture's title: first the quality, if any, on a separate line."""
    return text if quality is None else f"{quality.title}\n{text}"


# -- figures ------------------------------------------------------------------------------------------------------------


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
