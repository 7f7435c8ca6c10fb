"""What every process forked from `preloaded`'s server would begin by itself, begun there once: the compiler, and drawing."""

import numba
import quick_disk

from dkl.plotting.canvas import Picture, png


@numba.njit
def _nothing() -> int:
    """The first function takes numba 0.3 s, whatever it is: that is imports, and what it knows of other types."""
    return 0


def _draw() -> None:
    """The first picture finds the fonts and loads what writes images."""
    figure = Picture()
    axis = figure.add_subplot()
    axis.set_yscale("log")
    axis.plot([1, 2], [1, 10], label="line")
    axis.scatter([1, 2], [1, 10], c=[0.0, 1.0], cmap="viridis")
    axis.legend()
    png(figure)


quick_disk.install()
_nothing()
_draw()
