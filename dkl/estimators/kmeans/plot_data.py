"""Plot of a clustering: the rows in a plane, the sizes of the clusters, and how far they spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base.plot_rows import classes_of, labels_at, of_all, read_rows, some_rows
from dkl.linalg.eigen.principal_coordinates import Plane
from dkl.plotting.convergence import Rows, draw_shifts, series
from dkl.plotting.figures import PlotData, counted, note, panel
from dkl.plotting.panels import draw_bars, draw_clusters, draw_counts
from dkl.resources import one_blas_thread

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.validation import CheckedRows, UserLabels, UserRows

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


@one_blas_thread()  # of few rows and columns
def view_of(rows: CheckedRows, labels: NDArray, centers: NDArray, most: int = TRAINING_ROWS) -> KMeansView | None:
    """Return a plane view of rows (n, r), labels (n,), centers (k, r); None for Dask's or foreign rows."""
    source = row_source(rows)
    # Reading some of them may compute all: a picture must not cost another pass.
    if source.is_dask or source.is_foreign:
        return None
    chosen = some_rows(source, most)
    some, own = read_rows(source, chosen), np.asarray(labels[chosen], np.intp)
    plane, middle = Plane.of(some), np.asarray(centers, dtype=float)
    if sp.issparse(some):
        # By products: differences to a dense center would fill sparse rows.
        cross = np.asarray(some.multiply(middle[own]).sum(axis=1)).ravel()
        squares = np.asarray(some.multiply(some).sum(axis=1)).ravel() - 2 * cross + np.square(middle).sum(axis=1)[own]
    else:
        squares = np.square(some - middle[own]).sum(axis=1)
    # Products may leave a row on its center a little below 0.
    return KMeansView(plane.project(some), own, plane.project(middle), np.maximum(squares, 0.0), source.n)


def plot_data(model: BaseEstimator, X: UserRows = None, y: UserLabels = None) -> PlotData:
    """Return the plot of a fitted clustering: of the rows learned from, or of X (m, d), in the nearest clusters.

    y (n,) or (m,): classes to compare the clusters with, -1, None or NaN for unlabeled.
    """
    view: KMeansView | None = getattr(model, "_view_kept", None)
    labels, result = model.labels_, getattr(model, "result_", None)
    if X is not None:
        labels = np.asarray(model.predict(X))
        view = view_of(model._rows(X, reset=False), labels, model.cluster_centers_, ROWS)
    history = [] if result is None or X is not None else result.history
    return clusters_plot(
        labels, len(model.cluster_centers_), view, y, None if X is not None else model.inertia_, history
    )


def clusters_plot(
    labels: NDArray,
    k: int,
    view: KMeansView | None,
    y: UserLabels = None,
    inertia: float | None = None,
    history: Rows = (),
) -> PlotData:
    """Return the plot of rows in k clusters: labels (n,), a view of some, classes y (n,), inertia and history."""
    title = "clusters, first two principal components"
    sizes = np.bincount(labels, minlength=k)
    panels = [panel(note, "to see the rows, pass X to plot", title)]
    if view is not None:
        panels = [
            panel(draw_clusters, view.points, view.labels, view.centers, title + of_all(len(view.points), view.n))
        ]
    if y is not None:
        codes, names = classes_of(labels_at(y, len(labels), np.arange(len(labels))), len(labels))
        table = np.zeros((len(names), k), np.int64)
        np.add.at(table, (codes[codes >= 0], labels[codes >= 0]), 1)
        clusters, title = [f"{j}" for j in range(k)], "classes against clusters, colored by share of the class"
        panels.append(panel(draw_counts, table, names, clusters, title=title, rows="class", columns="cluster"))
    panels.append(panel(draw_bars, sizes.astype(float), "rows in each cluster", "cluster", "rows"))
    if view is not None:
        count, total = np.bincount(view.labels, minlength=k), np.bincount(view.labels, view.squares, minlength=k)
        title = "spread: mean squared distance to the center"
        title += f",\nof {len(view.points):,} rows" if len(view.points) < view.n else ""
        panels.append(panel(draw_bars, total / np.maximum(count, 1), title, "cluster", "squared distance"))
    if (series(history, "shift")[1] > 0).any():
        panels.append(panel(draw_shifts, history))
    said = f"{counted(len(labels), 'row')} in {counted(k, 'cluster')}"
    more = "" if inertia is None else f"; sum of squared distances to the centers {inertia:.4g}"
    return PlotData(said + more, panels)
