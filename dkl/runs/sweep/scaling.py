"""Growth of cost with n: logarithmic slopes of the whole and of its stages, and the picture of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.plotting.figures import PlotData, colours, figure_of, legend, log_y, panel, tidy
from dkl.runs.sweep.request import SweepPoint
from dkl.runs.sweep.results import Line, number

LEAST_SHARE = 0.01
"""Share of the largest n's seconds from which a stage is shown."""
Numbers = Sequence[float] | NDArray[np.float64]
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def slope(n: Numbers, seconds: Numbers) -> float | None:
    """Return b of the least squares log seconds = a + b log n; None for fewer than two n with seconds > 0."""
    kept = [(size, cost) for size, cost in zip(n, seconds, strict=True) if cost > 0]
    if len({size for size, _ in kept}) < 2:
        return None
    logs = np.log(np.array(kept, dtype=float))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def groups(lines: Sequence[Line], varied: Sequence[str]) -> dict[str, list[Line]]:
    """Return lines grouped by equal settings but n, by name."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        point = SweepPoint(line["n"], {name: line["varied"][name] for name in varied})
        found.setdefault(point.group, []).append(line)
    return found


def curve(lines: Sequence[Line], stage: str | None = None) -> Curve:
    """Return a group's (n ascending, median seconds of the repeats); of one stage, 0 where it was not run."""
    return _medians(lines, lambda line: line["seconds"] if stage is None else line["stages"].get(stage, 0.0))


def _medians(lines: Sequence[Line], cost: Callable[[Line], float | None]) -> Curve:
    """Return (n ascending, medians of a cost over the repeats), 0 where it is not known."""
    sizes = sorted({line["n"] for line in lines})
    medians = [float(np.median([cost(line) or 0.0 for line in lines if line["n"] == n])) for n in sizes]
    return np.array(sizes, dtype=float), np.array(medians)


def slopes(lines: Sequence[Line], varied: Sequence[str]) -> list[str]:
    """Return lines for a person: each group's slope over all n, between the last two, and its stages'."""
    told = []
    for name, members in groups(lines, varied).items():
        n, seconds = curve(members)
        if len(n) < 2:
            continue
        cpu = _medians(members, lambda line: line.get("cpu_seconds"))[1]
        grown = [f"{what} {_powers(n, cost)}" for what, cost in (("seconds", seconds), ("processor seconds", cpu))]
        told.append(
            f"{name}{': ' if name else ''}grow as n to the power of: {', '.join(grown)} (between the last two n)"
        )
        stages = [(stage, curve(members, stage)[1]) for stage in stages_of(members)]
        parts = [f"{stage} {number(cost[-1])} s {_powers(n, cost)}" for stage, cost in stages]
        told.append(f"  stages at the largest n: {', '.join(parts)}")
    return told


def _powers(n: NDArray[np.float64], seconds: NDArray[np.float64]) -> str:
    """Return "1.24 (1.88)": the slope over all n, and between the last two."""
    return f"{number(slope(n, seconds), '.2f')} ({number(slope(n[-2:], seconds[-2:]), '.2f')})"


def stages_of(lines: Sequence[Line]) -> list[str]:
    """Return the stages of a group that take at least LEAST_SHARE at its largest n, the longest first."""
    largest = [line for line in lines if line["n"] == max(line["n"] for line in lines)]
    whole = float(np.median([line["seconds"] for line in largest]))
    costs = {stage: curve(largest, stage)[1][-1] for line in largest for stage in line["stages"]}
    return sorted(
        (stage for stage, cost in costs.items() if cost >= LEAST_SHARE * whole), key=lambda stage: -costs[stage]
    )


def draw(lines: Sequence[Line], varied: Sequence[str], task: str) -> Any:
    """Return a figure: seconds against n, logarithmic, a line per group, and the slowest group's stages."""
    found = groups(lines, varied)
    slowest = max(found, key=lambda name: curve(found[name])[1][-1])
    wholes = {name: curve(members) for name, members in found.items()}
    stages = {stage: curve(found[slowest], stage) for stage in stages_of(found[slowest])}
    panels = [
        panel(_draw_curves, wholes, title="seconds of a fit"),
        panel(_draw_curves, stages, title=f"its stages{', ' + slowest if slowest else ''}"),
    ]
    return figure_of(PlotData(f"dkl sweep {task}", panels))


def _draw_curves(axis: Any, curves: dict[str, Curve], *, title: str) -> None:
    """Draw each curve with its least squares line, and a dotted line of slope 1."""
    axis.set_xscale("log")
    for colour, (name, (n, seconds)) in zip(colours(len(curves)), curves.items(), strict=True):
        kept = seconds > 0
        n, seconds = n[kept], seconds[kept]
        power = slope(n, seconds)
        label = " ".join(part for part in (name, "" if power is None else f"slope {power:.2f}") if part)
        axis.plot(n, seconds, "o", color=colour, label=label, markersize=5)
        if power is not None:
            middle = np.exp(np.mean(np.log(seconds)) - power * np.mean(np.log(n)))
            axis.plot(n, middle * n**power, "-", color=colour, linewidth=1.2)
    _draw_slope_one(axis, list(curves.values()))
    log_y(axis, room=0.1)
    tidy(axis, title, "n", "seconds")
    legend(axis, loc="upper left")  # where nothing is that grows with n


def _draw_slope_one(axis: Any, curves: list[Curve]) -> None:
    """Draw a line of slope 1 through the middle of all points."""
    n = np.concatenate([sizes[seconds > 0] for sizes, seconds in curves])
    seconds = np.concatenate([seconds[seconds > 0] for _, seconds in curves])
    if len(set(n)) > 1:
        ends = np.array([n.min(), n.max()])
        level = np.exp(np.mean(np.log(seconds)) - np.mean(np.log(n)))
        axis.plot(ends, level * ends, ":", color="0.35", linewidth=1.5, label="slope 1")
