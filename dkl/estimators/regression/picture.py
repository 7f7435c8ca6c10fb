"""A picture of a kernel regression: how the error on rows held out and the number of columns go with nu, and the fit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.estimators.regression.store import load_model
from dkl.problems.column_predict import predict_block
from dkl.stores.run import RunStore

DOTS = 2000
MOST_TARGETS = 10
WIDE = 30
"""Errors that differ by more are drawn on a logarithmic axis."""
GREY = "0.35"


def draw_run(run: RunStore, rows: Any, targets: NDArray[np.float64], session: Session) -> Path | None:
    """report.png in the folder of a complete run, or None where there is nothing to show. Needs matplotlib.

    targets (n,) or (n, T); of a single one, predictions of some training rows are drawn against it.
    """
    found, report = run.read_arrays("model"), run.report()
    errors: dict[str, NDArray] = {name: found[name] for name in ("cv_nus", "cv_errors", "cv_active") if name in found}
    fit = _some_predictions(run, rows, targets, session) if targets.ndim == 1 else None
    if not errors and fit is None:
        return None
    path = run.path / "report.png"
    partial = path.with_name(f".report.{os.getpid()}.png")
    try:
        draw_regression(partial, errors, fit, report)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


def draw_regression(
    path: str | Path,
    errors: dict[str, NDArray],
    fit: tuple[NDArray, NDArray] | None,
    report: dict[str, Any],
) -> None:
    """Up to three panels: error by nu, active columns by nu (errors: cv_nus (k,), cv_errors and cv_active (k, K, T)), and
    predicted by observed (fit)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    width = (6.6 if errors else 0.0) + (5.6 if fit is not None else 0.0)
    figure = Figure(figsize=(max(width, 6.6), 6.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_title(report), fontsize=12)
    grid = figure.add_gridspec(
        2, 2 if errors and fit is not None else 1, width_ratios=[6.6, 5.6][: 1 + bool(errors and fit)]
    )
    if errors:
        upper = figure.add_subplot(grid[0, 0])
        lower = figure.add_subplot(grid[1, 0], sharex=upper)
        draw_errors(upper, errors["cv_nus"], errors["cv_errors"], report)
        draw_active(lower, errors["cv_nus"], errors["cv_active"], report)
        upper.tick_params(labelbottom=False)
    if fit is not None:
        draw_fit(figure.add_subplot(grid[:, -1]), *fit)
    figure.savefig(path)


def draw_errors(axis: Any, nus: NDArray, errors: NDArray, report: dict[str, Any]) -> None:
    """Mean over the folds and a band of one standard deviation, for each target relative to its error without columns."""
    shown = errors[:, :, :MOST_TARGETS]
    single = errors.shape[2] == 1
    if not single:
        shown = shown / np.maximum(shown[:1].mean(axis=1, keepdims=True), np.finfo(float).tiny)
    mean, spread = shown.mean(axis=1), shown.std(axis=1, ddof=1)
    for t in range(shown.shape[2]):
        label = "mean over the folds" if single else f"target {t}"
        axis.plot(nus, mean[:, t], color=f"C{t}", lw=1.8, label=label)
        axis.fill_between(
            nus, mean[:, t] - spread[:, t], mean[:, t] + spread[:, t], color=f"C{t}", alpha=0.18, lw=0,
            label="one standard deviation" if single else None,
        )  # fmt: skip
    _mark(axis, nus, report, labels=True)
    axis.set_ylabel("mean squared error" if single else "relative to no columns", color=GREY)
    axis.set_title("error on rows held out", fontsize=11)
    if mean.max() > WIDE * mean.min() > 0:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=9, loc="best", ncols=1 if shown.shape[2] < 5 else 2)


def draw_active(axis: Any, nus: NDArray, active: NDArray, report: dict[str, Any]) -> None:
    """Least, mean and most over the folds."""
    from matplotlib.ticker import MaxNLocator

    for t in range(min(active.shape[2], MOST_TARGETS)):
        here = active[:, :, t]
        axis.plot(nus, here.mean(axis=1), color=f"C{t}", lw=1.8)
        axis.fill_between(nus, here.min(axis=1), here.max(axis=1), color=f"C{t}", alpha=0.18, lw=0)
    _mark(axis, nus, report, labels=False)
    axis.set_xlabel("nu", color=GREY)
    axis.set_ylabel("columns", color=GREY)
    axis.set_title(f"active columns, of {report['n_columns']:,}: mean, and least to most over the folds", fontsize=11)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylim(bottom=0)


def _mark(axis: Any, nus: NDArray, report: dict[str, Any], *, labels: bool) -> None:
    """The chosen nu, and the largest useful one, on a logarithmic axis."""
    axis.set_xscale("log")
    for nu, style, text in (
        (report["nu"], "--", f"chosen nu {report['nu']:.3g}"),
        (report["nu_max"], ":", f"largest useful nu {report['nu_max']:.3g}"),
    ):
        axis.axvline(nu, color=GREY, ls=style, lw=1.2, label=text if labels else None)
    axis.set_xlim(nus.min() / 1.3, report["nu_max"] * 1.6)
    _tidy(axis)


def draw_fit(axis: Any, observed: NDArray, predicted: NDArray) -> None:
    """A dot a row, and the line on which a perfect fit would lie."""
    low, high = float(min(observed.min(), predicted.min())), float(max(observed.max(), predicted.max()))
    room = 0.03 * (high - low) or 1.0
    axis.plot([low - room, high + room], [low - room, high + room], color=GREY, lw=1, zorder=1)
    axis.scatter(
        observed, predicted, s=10, alpha=min(0.6, 250 / len(observed) + 0.15), color="C0", linewidths=0, zorder=2
    )
    axis.set_xlim(low - room, high + room)
    axis.set_ylim(low - room, high + room)
    axis.set_aspect("equal")
    axis.set_xlabel("observed", color=GREY)
    axis.set_ylabel("predicted", color=GREY)
    axis.set_title(f"{len(observed):,} of the rows learned from", fontsize=11)
    _tidy(axis)


def _tidy(axis: Any) -> None:
    axis.grid(alpha=0.25)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.tick_params(colors=GREY)


def _title(report: dict[str, Any]) -> str:
    gap = max(output["relative_gap"] for output in report["outputs"])
    columns = f"{report['n_active']:,} of {report['n_columns']:,} columns active at nu {report['nu']:.4g}"
    return f"{columns}; proven relative gap {gap:.1e}"


def _some_predictions(
    run: RunStore, rows: Any, targets: NDArray[np.float64], session: Session
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(observed, predicted) at some rows, drawn at random: of a few blocks, where there are many."""
    model, blocks = load_model(run), RowBlocks(rows, session)
    rng = np.random.default_rng(0)
    some = set(np.sort(rng.permutation(len(blocks.bounds))[:8]).tolist())
    held = np.concatenate([np.arange(*blocks.bounds[index]) for index in sorted(some)])
    chosen = np.sort(rng.permutation(held)[:DOTS])
    found = RowBlocks(blocks.take(chosen), Session(None, threads=1))
    parts = found.map(predict_block, model.kernel, model.points, model.weights, model.intercepts)
    return targets[chosen], np.concatenate(parts)[:, 0]
