"""A picture of a clustering: the rows in a plane, the sizes of the clusters, and how far they spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.row_sources import row_source
from dkl.errors import InputError
from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import draw_line, series
from dkl.estimators.common.drawing import Panel, classes_of, colours, counted, log_y, panel, tidy, whole_numbers
from dkl.estimators.common.samples import read_rows, some_rows
from dkl.estimators.common.tables import draw_counts
from dkl.estimators.common.views import NAMED, Plane, draw_view
from dkl.linalg.one_blas_thread import one_blas_thread

TRAINING_ROWS = 2000
ROWS = 5000
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class KMeansView:
    """View of some of `n` rows in a plane.

    points (m, 2), their clusters labels (m,), centers (k, 2), and squares (m,): squared distances in feature space to
    the own center.
    """

    points: Numbers
    labels: NDArray[np.intp]
    centers: Numbers
    squares: Numbers
    n: int


@dataclass(frozen=True)
class KMeansShown:
    """Data of the picture of a clustering of n rows in k clusters.

    sizes (k,): rows in each; inertia; view: some rows, or None; table (c, k): counts of given classes against clusters, or
    None, and class_names; history: rows with `shift`, the largest squared shift of a start's centers.
    """

    sizes: NDArray[np.intp]
    inertia: float | None
    view: KMeansView | None = None
    table: NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    history: Sequence[dict[str, Any]] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """Return a summary in one line."""
        said = f"{counted(int(self.sizes.sum()), 'row')} in {counted(len(self.sizes), 'cluster')}"
        return said if self.inertia is None else f"{said}; sum of squared distances to the centers {self.inertia:.4g}"


@one_blas_thread()  # of few rows and columns
def view_of(rows: Any, labels: NDArray, centers: NDArray, most: int = TRAINING_ROWS) -> KMeansView | None:
    """Return a plane view of rows (n, r), labels (n,), centers (k, r); None for Dask's or foreign rows."""
    source = row_source(rows)
    if source.is_dask or source.is_foreign:
        return None
    chosen = some_rows(source, most)
    some, own = read_rows(source, chosen), np.asarray(labels[chosen], np.intp)
    plane, middle = Plane.of(some), np.asarray(centers, dtype=float)
    if sp.issparse(some):
        cross = np.asarray(some.multiply(middle[own]).sum(axis=1)).ravel()
        squares = np.asarray(some.multiply(some).sum(axis=1)).ravel() - 2 * cross + np.square(middle).sum(axis=1)[own]
    else:
        squares = np.square(some - middle[own]).sum(axis=1)
    return KMeansView(plane.project(some), own, plane.project(middle), np.maximum(squares, 0.0), source.n)


def shown_of(model: Any, X: Any = None, y: Any = None) -> KMeansShown:
    """Return the picture's data of a fitted clustering: of the rows learned from, or of X (m, d).

    Rows of X are assigned to the nearest centers. y (n,) or (m,): classes to compare the clusters
    with, -1, None or NaN for unlabeled.
    """
    check_is_fitted(model)
    view: KMeansView | None = getattr(model, "_view_kept", None)
    labels: NDArray[np.int32] = model.labels_
    inertia: float | None = float(model.inertia_)
    if X is not None:
        labels, inertia = model.predict(X), None
        view = view_of(model._rows(X, reset=False), labels, model.cluster_centers_, ROWS)
    k = len(model.cluster_centers_)
    table, names = None, tuple[str, ...]()
    if y is not None:
        if len(y) != len(labels):
            raise InputError("not a class a row", where="y", got=len(y), wanted=len(labels))
        codes, names = classes_of(y)
        table = np.zeros((len(names), k), np.int64)
        np.add.at(table, (codes[codes >= 0], labels[codes >= 0]), 1)
    result = getattr(model, "result_", None)
    history = [] if result is None or X is not None else result.history
    return KMeansShown(np.bincount(labels, minlength=k), inertia, view, table, names, history)


def draw(figure: Any, shown: KMeansShown) -> None:
    """Draw all panels into an empty figure."""
    panels: list[Panel] = [panel(draw_one, shown)]
    if shown.table is not None:
        panels.append(panel(draw_table, shown))
    panels.append(panel(draw_sizes, shown))
    if shown.view is not None:
        panels.append(panel(draw_spread, shown))
    if (series(shown.history, "shift")[1] > 0).any():
        panels.append(panel(draw_shifts, shown))
    drawing.grid(figure, panels, 2 if len(panels) in (2, 4) else 3, shown.title)


def draw_one(axis: Any, shown: KMeansShown) -> None:
    """Draw the rows in a plane, colored by cluster; of many clusters the centers, as crosses."""
    view, title = shown.view, "clusters, first two principal components"
    if view is None:
        drawing.note(axis, "to see the rows, pass X to plot", title)
        return
    k = len(view.centers)
    if len(view.points) < view.n:
        title = f"{title}\n{len(view.points):,} of {counted(view.n, 'row')}"
    draw_view(axis, view.points, view.labels, [f"{j}" for j in range(k)], title)
    if k > NAMED:
        axis.scatter(*view.centers.T, marker="+", s=30, color="0.1", linewidths=1.1, zorder=2.5)


def draw_table(axis: Any, shown: KMeansShown) -> None:
    """Draw the counts of given classes against clusters."""
    assert shown.table is not None
    clusters = [f"{j}" for j in range(shown.table.shape[1])]
    title = "classes against clusters, colored by share of the class"
    draw_counts(axis, shown.table, shown.class_names, clusters, title=title, rows="class", columns="cluster")


def draw_sizes(axis: Any, shown: KMeansShown) -> None:
    """Draw the number of rows in each cluster."""
    _bars(axis, shown.sizes.astype(float), "rows in each cluster", "rows")


def draw_spread(axis: Any, shown: KMeansShown) -> None:
    """Draw the mean squared distance of each cluster's rows to its center."""
    assert shown.view is not None
    k = len(shown.sizes)
    count = np.bincount(shown.view.labels, minlength=k)
    total = np.bincount(shown.view.labels, shown.view.squares, minlength=k)
    title = "spread: mean squared distance to the center"
    if len(shown.view.points) < shown.view.n:
        title = f"{title},\nof {len(shown.view.points):,} rows"
    _bars(axis, total / np.maximum(count, 1), title, "squared distance")


def draw_shifts(axis: Any, shown: KMeansShown) -> None:
    """Draw the largest squared shift of centers in each iteration, of any start; zero is not drawn."""
    iterations, shifts = series(shown.history, "shift")
    moved = shifts > 0
    draw_line(axis, iterations[moved], shifts[moved])
    log_y(axis)
    tidy(axis, "convergence: how far centers move", "iteration", "largest squared shift of a start")


def _bars(axis: Any, values: Numbers, title: str, y: str) -> None:
    axis.bar(np.arange(len(values)), values, color=colours(len(values)), width=0.85)
    whole_numbers(axis.xaxis)
    axis.set_xlim(-0.7, len(values) - 0.3)
    if not values.any():
        axis.set_ylim(0, 1)
    tidy(axis, title, "cluster", y)
