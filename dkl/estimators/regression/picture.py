"""Picture of a kernel regression: held-out error and number of columns by nu, predictions, gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkl.estimators.common import drawing
from dkl.estimators.common.convergence import WIDE, draw_gaps
from dkl.estimators.common.drawing import GREY, Panel, legend, log_y, note, panel, tidy, whole_numbers
from dkl.estimators.regression.shown import MOST_TARGETS, FitShown, RegressionShown
from dkl.estimators.regression.shown import shown_of as shown_of


def draw(figure: Any, shown: RegressionShown) -> None:
    """Draw all panels into an empty figure."""
    panels: list[Panel] = []
    if shown.cv_errors is not None:
        panels += [panel(draw_errors, shown), panel(draw_fit, shown), panel(draw_active, shown)]
    else:
        panels += [panel(draw_fit, shown)]
        if shown.weights is not None:
            panels.append(panel(draw_weights, shown))
    if shown.history:
        panels.append(panel(draw_gaps, shown.history, "output", shown.tol))
    drawing.grid(figure, panels, 2 if len(panels) == 4 else 3, shown.title)


def draw_one(axis: Any, shown: RegressionShown) -> None:
    """Draw predicted against observed where rows are known, else the error of cross-validation."""
    if shown.fit is None and shown.cv_errors is not None:
        draw_errors(axis, shown)
    else:
        draw_fit(axis, shown)


def draw_errors(axis: Any, shown: RegressionShown) -> None:
    """Draw the mean error over folds, with a band of one deviation, relative to that without columns.

    With a single target the error is absolute.
    """
    assert shown.cv_nus is not None and shown.cv_errors is not None
    nus, errors = shown.cv_nus, shown.cv_errors[:, :, :MOST_TARGETS]
    single = shown.cv_errors.shape[2] == 1
    if not single:
        errors = errors / np.maximum(errors[:1].mean(axis=1, keepdims=True), np.finfo(float).tiny)
    mean, spread = errors.mean(axis=1), errors.std(axis=1, ddof=1 if errors.shape[1] > 1 else 0)
    for t in range(errors.shape[2]):
        label = "mean over the folds" if single else f"target {t}"
        axis.plot(nus, mean[:, t], color=f"C{t}", lw=1.8, label=label)
        low, high = mean[:, t] - spread[:, t], mean[:, t] + spread[:, t]
        deviation = "one standard deviation" if single else None
        axis.fill_between(nus, low, high, color=f"C{t}", alpha=0.18 if single else 0.08, lw=0, label=deviation)
    _mark(axis, shown, labels=True)
    tidy(axis, "error on rows held out", "nu", "mean squared error" if single else "relative to no columns")
    if mean.max() > WIDE * mean.min() > 0:
        log_y(axis)
    else:
        axis.set_ylim(bottom=0)
    legend(axis, ncols=1 if errors.shape[2] < 5 else 2)


def draw_active(axis: Any, shown: RegressionShown) -> None:
    """Draw the active columns by nu: least, mean and most over the folds."""
    assert shown.cv_nus is not None and shown.cv_active is not None
    for t in range(min(shown.cv_active.shape[2], MOST_TARGETS)):
        here = shown.cv_active[:, :, t]
        axis.plot(shown.cv_nus, here.mean(axis=1), color=f"C{t}", lw=1.8)
        axis.fill_between(shown.cv_nus, here.min(axis=1), here.max(axis=1), color=f"C{t}", alpha=0.18, lw=0)
    _mark(axis, shown, labels=False)
    title = f"active columns, of {shown.n_columns:,}: mean, and least to most over the folds"
    tidy(axis, title, "nu", "columns")
    whole_numbers(axis.yaxis)
    axis.set_ylim(bottom=0)


def _mark(axis: Any, shown: RegressionShown, *, labels: bool) -> None:
    """Mark the chosen nu, and the largest useful one, on a logarithmic axis."""
    assert shown.cv_nus is not None
    axis.set_xscale("log")
    for nu, style, text in (
        (shown.nu, "--", f"chosen nu {shown.nu:.3g}"),
        (shown.nu_max, ":", f"largest useful nu {shown.nu_max:.3g}"),
    ):
        axis.axvline(nu, color=GREY, ls=style, lw=1.2, label=text if labels else None)
    axis.set_xlim(shown.cv_nus.min() / 1.3, shown.nu_max * 1.6)


def draw_weights(axis: Any, shown: RegressionShown) -> None:
    """Draw the weights of the active columns, largest first, of each output."""
    assert shown.weights is not None
    for t, weights in enumerate(shown.weights[:MOST_TARGETS]):
        found = np.sort(weights[weights > 0])[::-1]
        if len(found):
            label = f"target {t}: {len(found):,}" if len(shown.weights) > 1 else None
            axis.plot(np.arange(1, len(found) + 1), found, "o-", ms=3.5, lw=1, color=f"C{t}", label=label)
    if not axis.lines:
        note(axis, "no column is active: the model is a constant", "weights of the active columns")
        return
    log_y(axis)
    if len(shown.weights) > 1:
        legend(axis)
    whole_numbers(axis.xaxis)
    tidy(axis, f"weights of the active columns, of {shown.n_columns:,}", "column, largest weight first", "weight mu")


def draw_fit(axis: Any, shown: RegressionShown) -> None:
    """Draw a dot a row and target, and the line of a perfect fit; several targets in their own deviations."""
    if shown.fit is None:
        note(
            axis, "to see predicted against observed,\npass X and y of some rows to plot", "predicted against observed"
        )
        return
    observed, predicted = shown.fit.observed, shown.fit.predicted
    single = observed.shape[1] == 1
    title = _fit_title(shown.fit)
    if not single:
        middle, scale = observed.mean(axis=0), observed.std(axis=0)
        scale = np.where(scale > 1e-12 * np.abs(middle), scale, np.maximum(np.abs(middle), 1.0))
        observed, predicted = (observed - middle) / scale, (predicted - middle) / scale
    low, high = float(min(observed.min(), predicted.min())), float(max(observed.max(), predicted.max()))
    room = max(0.03 * (high - low), 1e-3 * max(abs(low), abs(high)), 1e-12)
    ends = [low - room, high + room]
    axis.plot(ends, ends, color=GREY, lw=1, zorder=1)
    alpha = min(0.6, 250 / len(observed) + 0.15)
    for t in range(observed.shape[1]):
        axis.scatter(observed[:, t], predicted[:, t], s=10, alpha=alpha, color=f"C{t}", linewidths=0, zorder=2,
                     label=None if single else f"target {t}")  # fmt: skip
    axis.set_xlim(ends)
    axis.set_ylim(ends)
    axis.set_aspect("equal")
    if not single:
        for handle in legend(axis, markerscale=2, ncols=1 if observed.shape[1] < 5 else 2).legend_handles:
            handle.set_alpha(1)
    unit = "" if single else ", in standard deviations"
    tidy(axis, title, f"observed{unit}", f"predicted{unit}")


def _fit_title(fit: FitShown) -> str:
    count = len(fit.observed)
    rows = f"{count:,} of {fit.n:,} {fit.whose}" if count < fit.n else f"the {fit.n:,} {fit.whose}"
    total = np.square(fit.observed - fit.observed.mean(axis=0)).sum(axis=0)
    if count < 2 or not (total > 1e-24 * np.square(fit.observed).sum(axis=0)).all():
        return rows
    shares = 1 - np.square(fit.observed - fit.predicted).sum(axis=0) / total
    return f"{rows}: R² {shares[0]:.3f}" if len(shares) == 1 else f"{rows}: mean R² {shares.mean():.3f}"
