"""Plots of a fit's convergence from its history: by iteration, on logarithmic axes, stages marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.figures import GREY, WIDE, head, legend, log_y, note, thinned, tidy, whole_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[dict[str, Any]]

MEASURES = {
    "primal_residual": ("primal residual |V - U|", "C1"),
    "dual_residual": ("dual residual", "C2"),
    "gradient_norm": ("norm of the gradient", "C4"),
    "relative_gap": ("proven relative gap", "C3"),
}
STAGES = {"admm": "ADMM", "finish": "finish to a gap"}
FEW = 40
"""Maximum number of rows for each to have a dot."""
MOST_POINTS = 2000
MOST_LINES = 200
TITLE_PAD = 18
"""Points between the axes and the title, where names of stages are written between them."""
LEAST = 1e-16
"""Lower end of a relative gap's logarithmic axis: lower and zero values are drawn here."""


def series(rows: Rows, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (iterations (k,), values (k,)) of rows with a finite number `name`; at most a few thousand.

    Iterations that restart (a second solve of the same problem) are counted on.
    """
    found, shift, last = [], 0.0, 0.0
    for row in rows:
        if name not in row and not (name == "relative_gap" and "gap" in row):
            continue  # of another stage, which counts for itself
        iteration = float(row.get("iteration", 0)) + shift
        if iteration < last:
            shift += last - iteration
            iteration = last
        last = iteration
        value = _value(row, name)
        if value is not None and np.isfinite(value):
            found.append((iteration, value))
    if not found:
        return np.empty(0), np.empty(0)
    # The last row too, whatever the step: the end of a fit is what one looks for.
    kept = np.unique([*thinned(len(found), MOST_POINTS), len(found) - 1])
    values = np.array(found, dtype=float)[kept]
    return values[:, 0], values[:, 1]


def _value(row: dict[str, Any], name: str) -> float | None:
    value = row.get(name)
    if value is None and name == "relative_gap" and row.get("gap") is not None and row.get("objective"):
        return float(row["gap"]) / abs(float(row["objective"]))
    return None if value is None else float(value)


def stages_of(rows: Rows) -> list[tuple[float, str]]:
    """Return [(first iteration, name) of each stage with an objective], in order; one if rows name none."""
    found: list[tuple[float, str]] = []
    for row in rows:
        if "objective" not in row:
            continue
        name = str(row.get("stage") or ("admm" if "primal_residual" in row else ""))
        if not found or found[-1][1] != name:
            found.append((float(row.get("iteration", 0)), name))
    return found


def draw_history(axis: Any, rows: Rows, title: str = "convergence") -> None:
    """Draw the objective above, and residuals, gradient and gap, which are of other sizes, below in new axes."""
    present = [name for name in MEASURES if len(series(rows, name)[0])]
    has_objective = bool(len(series(rows, "objective")[0]))
    if not present and not has_objective:
        note(axis, "no history was kept", title)
        return
    lower = axis
    if has_objective:
        draw_objective(axis, rows)
        head(axis, title, pad=TITLE_PAD if len(stages_of(rows)) > 1 else None)
        if present:
            # The panel's place is split in two: residuals would be flat lines on the objective's scale.
            parts = axis.get_subplotspec().subgridspec(2, 1, height_ratios=[2, 3])
            axis.set_subplotspec(parts[0])
            axis.tick_params(labelbottom=False)
            axis.set_xlabel("")
            lower = axis.figure.add_subplot(parts[1], sharex=axis)
    for name in present:
        label, colour = MEASURES[name]
        draw_line(lower, *series(rows, name), color=colour, label=label)
    if present:
        log_y(lower, 0.3)
        legend(lower, fontsize=8, ncols=2)
        tidy(lower, "" if has_objective else title, "iteration")
        mark_stages(lower, rows, named=not has_objective)


def draw_objective(axis: Axes, rows: Rows) -> None:
    """Draw the objective by iteration, on a logarithmic axis where it spans a wide range."""
    iterations, values = series(rows, "objective")
    draw_line(axis, iterations, values, color="C0")
    if values.min() > 0 and values.max() > WIDE * values.min():
        log_y(axis)
    tidy(axis, "", "iteration", "objective")
    mark_stages(axis, rows, named=True)


def mark_stages(axis: Axes, rows: Rows, *, named: bool) -> None:
    """Draw a dotted line where a stage starts, and its name if `named`."""
    found = stages_of(rows)
    for start, name in found if len(found) > 1 else []:
        axis.axvline(start, color=GREY, ls=":", lw=1.1)
        if named:
            axis.annotate(
                STAGES.get(name, name), (start, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", fontsize=9, color=GREY, va="bottom", in_layout=False,
            )  # fmt: skip


def draw_gaps(axis: Axes, rows: Rows, by: str, tol: float | None = None, title: str = "convergence") -> None:
    """Draw the relative gap by iteration: a line for each value of `by` (a machine or output) in the rows.

    The line that took longest is emphasized. Without gaps in the history, the objective is drawn.
    """
    groups: dict[Any, list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault(row.get(by, 0), []).append(row)
    lines = {key: line for key, group in groups.items() if len((line := series(group, "relative_gap"))[0])}
    if not lines:
        if len(series(rows, "objective")[0]):
            draw_objective(axis, max(groups.values(), key=lambda group: len(series(group, "objective")[0])))
            head(axis, title)
        else:
            note(axis, "no history was kept", title)
        return
    slowest = max(lines, key=lambda key: lines[key][0][-1])
    several = len(lines) > 1
    for number in thinned(len(lines), MOST_LINES):
        key = list(lines)[number]
        if key != slowest:
            draw_line(
                axis,
                lines[key][0],
                np.maximum(lines[key][1], LEAST),
                color="C0",
                # The more lines the fainter: each of ten machines can be seen, two hundred are a cloud.
                alpha=max(0.15, min(0.8, 6 / len(lines))),
                lw=1.1,
            )
    label = f"{by} {int(slowest) + 1:,} of {len(lines):,}, which took longest" if several else None
    draw_line(
        axis, lines[slowest][0], np.maximum(lines[slowest][1], LEAST), color="C1" if several else "C0", label=label
    )
    if tol is not None and tol > 0:
        axis.axhline(tol, color=GREY, ls="--", lw=1.1, label=f"asked for: {tol:.2g}")
    log_y(axis, 0.12 if label or tol else 0.0)
    if label or tol:
        legend(axis)
    tidy(axis, title, "iteration", "relative gap")


def draw_last_gaps(axis: Axes, gaps: NDArray[np.float64], tol: float | None, title: str, x: str) -> None:
    """Draw the relative gaps (m,) that parts of a fit ended at, smallest first; those that are not proven are left out."""
    proven = np.isfinite(gaps)
    values = np.sort(np.maximum(gaps[proven], LEAST))
    if not len(values):
        note(axis, "no gap is proven", title)
        return
    if len(values) < len(gaps):
        title = f"{title} but {len(gaps) - len(values):,}, where none is"
    axis.plot(np.arange(1, len(values) + 1), values, "o", ms=4 if len(values) < 200 else 2)
    if tol:
        axis.axhline(tol, color=GREY, ls="--", lw=1.1, label=f"asked for: {tol:.2g}")
        legend(axis)
    log_y(axis)
    axis.set_ylim(top=max(values[-1], tol or 0.0) * 10)
    whole_numbers(axis.xaxis)
    tidy(axis, title, x, "relative gap")


def draw_shifts(axis: Axes, rows: Rows) -> None:
    """Draw the largest squared shift of centers in each iteration, of any start; zero is not drawn."""
    iterations, shifts = series(rows, "shift")
    draw_line(axis, iterations[shifts > 0], shifts[shifts > 0])
    log_y(axis)
    tidy(axis, "convergence: how far centers move", "iteration", "largest squared shift of a start")


def draw_line(axis: Axes, x: NDArray[np.float64], y: NDArray[np.float64], **style: Any) -> None:
    """Draw a line over the iterations, with a dot each where they are few."""
    marker = {"marker": "o", "ms": 3.5} if len(x) <= FEW else {}
    axis.plot(x, y, **{"lw": 1.6, **marker, **style})
    limits = np.array([other.dataLim.intervalx for other in axis.get_shared_x_axes().get_siblings(axis)])
    low, high = limits[:, 0].min(), limits[:, 1].max()
    room = 0.05 * (high - low) or 1.0
    axis.set_xlim(low - room, high + room)
    whole_numbers(axis.xaxis)
