"""What every picture must be, for the tests of them."""

from typing import Any

import numpy as np

from dkl.plotting.figures import PlotData, figure_of


def pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[:, :, :3].astype(float)


def check(figure: Any, n_panels: int | None = None) -> None:
    """It is no blank page, and each panel holds something inside its own frame."""
    image = pixels(figure)
    assert image.var() > 10
    assert n_panels is None or len(figure.axes) == n_panels
    for axis in figure.axes:
        assert axis.lines or axis.collections or axis.images or axis.patches or axis.texts, axis.get_title()
        left, bottom, right, top = (int(v) for v in axis.get_window_extent().extents)
        inside = image[len(image) - top + 3 : len(image) - bottom - 3, left + 3 : right - 3]
        assert min(inside.shape[:2]) > 30
        assert inside.var() > 0, axis.get_title()


def drawn(plot: PlotData) -> Any:
    figure = figure_of(plot)
    check(figure)
    return figure


def titles(figure: Any) -> str:
    return "\n".join([figure.get_suptitle(), *(axis.get_title() for axis in figure.axes)])
