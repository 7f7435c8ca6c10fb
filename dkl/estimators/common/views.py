"""Projection of rows to a plane, and plots of them as dots with names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.estimators.common.drawing import colours, head, written
from dkl.linalg.middle_row import middle_row

EXACT_UP_TO = 512
"""Maximum columns for a plane to come from the full decomposition."""
EXTRA, ROUNDS = 8, 12
NAMED = 30
"""Maximum classes whose names are written into a view."""
MOST_ROWS = 2000
"""Maximum number of rows that a picture shows, each a dot."""
MOST_PATTERNS, MOST_DECIDED = 5000, 10_000
"""Maximum rows in a picture: of a factor, seen from the side; of those counted by a classifier's."""


@dataclass(frozen=True)
class Plane:
    """Plane of the first two principal components of rows (m, d).

    origin (d,): a row, or 0 of sparse ones; mean (d,) less that; axes (d, 2).
    """

    origin: NDArray[np.float64]
    mean: NDArray[np.float64]
    axes: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Any) -> Plane:
        """Fit the plane to dense or sparse rows; the signs are fixed, for the same picture every time."""
        is_sparse = sp.issparse(rows)
        origin = np.zeros(rows.shape[1]) if is_sparse else middle_row(np.asarray(rows, float))
        near = (
            rows if is_sparse else np.asarray(rows, float) - origin
        )  # exact: products of rows far from 0 would cancel
        mean = np.asarray(near.mean(axis=0, dtype=float)).ravel()
        axes = _leading(near, mean)
        axes = axes * np.where(axes[np.abs(axes).argmax(axis=0), np.arange(2)] < 0, -1.0, 1.0)
        return cls(origin, mean, axes)

    def project(self, rows: Any) -> NDArray[np.float64]:
        """Return the rows' coordinates (m, 2) in the plane."""
        if sp.issparse(rows):
            return np.asarray(rows @ self.axes) - self.mean @ self.axes
        return np.asarray((np.asarray(rows, float) - self.origin - self.mean) @ self.axes)


def _leading(rows: Any, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return orthonormal leading directions (d, 2) of the rows about their mean; zero for a single column."""
    d = rows.shape[1]
    if d <= EXACT_UP_TO:
        dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
        centred = dense.astype(float) - mean
        axes = np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :2]
        return np.hstack([axes, np.zeros((d, 2 - axes.shape[1]))])
    if not sp.issparse(rows):
        rows, mean = np.asarray(rows, float) - mean, np.zeros(d)
    basis = np.random.default_rng(0).standard_normal((d, 2 + EXTRA))
    for _ in range(ROUNDS):
        basis = np.linalg.qr(basis)[0]
        image = np.asarray(rows @ basis) - mean @ basis
        basis = np.asarray(rows.T @ image) - np.outer(mean, image.sum(axis=0))
    basis = np.linalg.qr(basis)[0]
    image = np.asarray(rows @ basis) - mean @ basis
    return np.asarray(basis @ np.linalg.eigh(image.T @ image)[1][:, ::-1][:, :2])


def sampled(n: int, most: int = MOST_ROWS) -> NDArray[np.intp]:
    """Return the numbers of at most `most` of n rows, ascending, the same ones every time."""
    if n <= most:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, most, replace=False, shuffle=False))


def shown_of_all(shown: int, n: int) -> str:
    """Return a title's last line on how many of n rows are shown; empty if all are."""
    return f"\n{shown:,} of {n:,} rows" if shown < n else ""


def chosen_rows(n: int, labels: Any) -> tuple[NDArray[np.intp], Any]:
    """Return (numbers of at most 2,000 of n rows, their labels or None); InputError unless labels are n."""
    if labels is not None and len(labels) != n:
        raise InputError("not a label a row", where="y", got=f"{len(labels)}", wanted=f"{n}")
    chosen = sampled(n)
    given = labels if isinstance(labels, list) or labels is None else np.asarray(labels)
    return chosen, None if given is None else [given[k] for k in chosen.tolist()]


def draw_view(
    axis: Any, points: NDArray[np.float64], codes: NDArray[np.intp], names: Sequence[str], title: str
) -> None:
    """Draw a dot a pattern (points (m, 2)), colored by class (codes (m,), -1 none), with class names."""
    palette = colours(max(len(names), 1))
    size, alpha = (9, 0.55) if len(points) > 300 else (24, 0.75)
    unknown = codes < 0
    axis.scatter(*points[unknown].T, color="0.8", s=size, linewidths=0, zorder=1)
    axis.scatter(*points[~unknown].T, c=palette[codes[~unknown]], s=size, alpha=alpha, linewidths=0, zorder=2)
    axis.set_aspect("equal", adjustable="datalim")
    axis.set_xticks([])
    axis.set_yticks([])
    head(axis, title)
    if 1 < len(names) <= NAMED:
        middles = {c: np.median(points[codes == c], axis=0) for c in range(len(names)) if (codes == c).any()}
        write_names(axis, middles, written(names), palette)


def write_names(
    axis: Any, middles: dict[int, NDArray[np.float64]], names: Sequence[str], palette: NDArray[np.float64]
) -> None:
    """Write each class's name at the middle of its dots, or slightly off if another name is there."""
    from matplotlib.patheffects import withStroke

    low, high = axis.dataLim.min, axis.dataLim.max
    span = float(max(*(high - low), np.finfo(float).tiny))
    font = 15 if max(map(len, names)) <= 3 else 10
    taken: list[tuple[float, float, float, float]] = []
    height = 0.0038 * font
    for number, middle in middles.items():
        width = 0.0022 * font * max(len(names[number]), 1)
        x, y = (middle - low) / span
        rows = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]
        place = next((y + k * height for k in rows if _is_free(taken, x, y + k * height, width, height)), None)
        if place is None:
            continue
        taken.append((x, place, width, height))
        axis.text(
            middle[0], low[1] + place * span, names[number], color=palette[number] * [0.8, 0.8, 0.8, 1], fontsize=font,
            weight="bold", ha="center", va="center", zorder=3, parse_math=False,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )  # fmt: skip


def _is_free(taken: list[tuple[float, float, float, float]], x: float, y: float, width: float, height: float) -> bool:
    return all(
        abs(x - other[0]) > (width + other[2]) / 2 or abs(y - other[1]) > 0.95 * (height + other[3]) / 2
        for other in taken
    )
