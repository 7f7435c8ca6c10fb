"""results.jsonl: a line for each ended point, on disk before the next begins; tables of the lines, growth of cost with n."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.plotting.figures import PlotData, colours, figure_of, legend, log_y, panel, tidy
from dkl.resources import format_bytes, machine_memory, n_cpus
from dkl.runs.sweep.request import SweepPoint, SweepRequest, shown
from dkl.stores.folders import MODE, disk_errors, write_all

if TYPE_CHECKING:
    from dkl.stores.seals import Json

FILE = "results.jsonl"
PACKAGES = ("dkl", "numpy", "scipy", "scikit-learn", "numba", "dask", "distributed", "zarr")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
NEEDED = {"point": str, "task": str, "n": int, "status": int, "repeat": int, "varied": dict, "environment": dict}
"""Names and types of what every line has; a line without is ignored."""

Line = dict[str, Any]


def append(folder: Path, line: Line) -> None:
    """Add a line, which is on disk when this returns. Raises DiskError."""
    path = folder / FILE
    text = json.dumps(line) + "\n"
    with disk_errors("the results could not be written", path, "free space on that disk, then continue the sweep"):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = "\n" + text  # a crash cut the last line short
            write_all(descriptor, memoryview(text.encode()), size)
            # Before the next point starts: a crash of the machine must not lose hours of an ended one.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(folder: Path) -> dict[str, Line]:
    """Return the last line of each point, by name, without truncated lines; InputError without a sweep."""
    path = folder / FILE
    try:
        # A line that a crash has cut may end within a character.
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError("cannot be read", where=str(path), got=error.strerror) from error
    found = {}
    for text in lines:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict) and all(isinstance(line.get(name), kind) for name, kind in NEEDED.items()):
            # A point that was tried again has several lines: the last counts.
            found[line["point"]] = line
    return found


def of_report(report: Line) -> Line:
    """Return costs and end of a run from its report; {} for an empty one."""
    if not report:
        return {}
    seconds = dict(report["seconds"])
    return {
        "outcome": report["outcome"],
        "seconds": seconds.pop("total"),
        "stages": seconds,
        "n_iter": report["n_iter"],
        "relative_gap": proven_gap(report),
        "peak_bytes": report["peak_bytes"],
        "worker_peak_bytes": report.get("worker_peak_bytes"),
        "split": report.get("spent"),
        "restarts": report.get("restarts", 0),
        "settings": report["settings"],
    }


def proven_gap(report: Line) -> float | None:
    """Return the certificate's relative gap, or the largest of several outputs'; None if not proven."""
    parts = [report.get("certificate") or {}, *(report.get("outputs") or [])]
    gaps = [part["relative_gap"] for part in parts if part.get("relative_gap") is not None]
    return max(gaps, default=None)


def folder_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def environment() -> Json:
    """Return versions, processor and memory, as far as figures depend on them."""
    return {
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "processors": n_cpus(),
        "memory_bytes": machine_memory(),
        "threads": {name: os.environ[name] for name in THREADS if name in os.environ},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's model, as Linux or macOS names it."""
    if sys.platform.startswith("linux"):
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as known:
                for line in known:
                    if line.startswith("model name"):
                        return line.partition(":")[2].strip()
        except OSError:
            pass
    return platform.processor() or platform.machine()


NONE = "-"
WIDEST = 19
"""Width of the longest outcome, stopped_by_callback."""


def number(value: Any, form: str = ".3g") -> str:
    """Return a number in few digits; a dash for None.

    >>> number(12345.6), number(0.0412), number(None)
    ('12,346', '0.0412', '-')
    """
    if value is None:
        return NONE
    return f"{value:,.0f}" if form == ".3g" and abs(value) >= 1000 else f"{value:{form}}"


def size(value: Any) -> str:
    """Return bytes as text; a dash for None."""
    return NONE if value is None else format_bytes(value)


def outcome(line: Line) -> str:
    """Return how a point ended: the run's outcome, or the exit code of a process that left none."""
    if line.get("outcome"):
        return str(line["outcome"])
    status = int(line["status"])
    return f"killed ({-status})" if status < 0 else f"exit {status}"


def peak(line: Line) -> int | None:
    """Return the most bytes that one process of a point has used."""
    return max((line[name] for name in ("peak_bytes", "worker_peak_bytes") if line.get(name)), default=None)


def part(name: str) -> Callable[[Line], str]:
    """Return a function of a line: a part of its point's seconds."""
    return lambda line: number((line.get("split") or {}).get(name))


COLUMNS: tuple[tuple[str, int, Callable[[Line], str]], ...] = (
    ("seconds", 9, lambda line: number(line.get("seconds"))),
    ("CPU s", 9, lambda line: number(line.get("cpu_seconds"))),
    ("steps", 8, lambda line: number(line.get("n_iter"), ",")),
    ("outcome", WIDEST, outcome),
    ("gap", 9, lambda line: number(line.get("relative_gap"), ".1e")),
    ("peak", 9, lambda line: size(peak(line))),
    ("disk", 9, lambda line: size(line.get("disk_bytes"))),
    ("compute", 9, part("compute")),
    ("comm. s", 9, part("communication")),
    ("disk s", 9, part("disk")),
    ("other s", 9, part("other")),
)


class SweepTable:
    """Rows of a request's points under one heading, each with the values that differ between them."""

    def __init__(self, request: SweepRequest) -> None:
        self.varied = {
            name: max(len(name), *(len(shown(value, name)) for value in values)) + 2
            for name, values in request.varied.items()
        }
        self.has_repeats = request.repeat > 1
        self.n_width = max(len(f"{n:,}") for n in request.n) + 2

    def head(self) -> str:
        """Return the columns' names."""
        cells = [f"{'n':>{self.n_width}}"]
        cells += [f"{name.replace('_', '-'):>{width}}" for name, width in self.varied.items()]
        cells += [f"{'repeat':>8}"] if self.has_repeats else []
        return "".join([*cells, *(f"{name:>{width + 1}}" for name, width, _ in COLUMNS)])

    def row(self, line: Line) -> str:
        """Return the row of a point, with its error below it, if it has one."""
        cells = [f"{line['n']:>{self.n_width},}"]
        cells += [f"{shown(line['varied'].get(name), name):>{width}}" for name, width in self.varied.items()]
        cells += [f"{line['repeat']:>8}"] if self.has_repeats else []
        cells += [f"{text(line):>{width + 1}}" for _, width, text in COLUMNS]
        error = f"\n{'':>{self.n_width}}  {line['error']}" if line.get("error") else ""
        return "".join(cells) + error


# -- growth of cost ----------------------------------------------------------------------------------------------------
# Logarithmic slopes of the whole and of its stages, and the picture of both.

LEAST_SHARE = 0.01
"""Share of the largest n's seconds from which a stage is shown."""
Numbers = Sequence[float] | NDArray[np.float64]
Curve = tuple[NDArray[np.float64], NDArray[np.float64]]


def slope(n: Numbers, seconds: Numbers) -> float | None:
    """Return b of the least squares log seconds = a + b log n; None for fewer than two n with seconds > 0."""
    kept = [(size, cost) for size, cost in zip(n, seconds, strict=True) if cost > 0]
    # A line through points of one n has any slope.
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
    # Medians: one repeat in a slow hour does not decide.
    medians = [float(np.median([cost(line) or 0.0 for line in lines if line["n"] == n])) for n in sizes]
    return np.array(sizes, dtype=float), np.array(medians)


def slopes(lines: Sequence[Line], varied: Sequence[str]) -> list[str]:
    """Return lines for a person: each group's slope over all n, between the last two, and its stages'."""
    texts = []
    for name, members in groups(lines, varied).items():
        n, seconds = curve(members)
        if len(n) < 2:
            continue
        cpu = _medians(members, lambda line: line.get("cpu_seconds"))[1]
        grown = [f"{what} {_powers(n, cost)}" for what, cost in (("seconds", seconds), ("processor seconds", cpu))]
        texts.append(
            f"{name}{': ' if name else ''}grow as n to the power of: {', '.join(grown)} (between the last two n)"
        )
        stages = [(stage, curve(members, stage)[1]) for stage in stages_of(members)]
        parts = [f"{stage} {number(cost[-1])} s {_powers(n, cost)}" for stage, cost in stages]
        texts.append(f"  stages at the largest n: {', '.join(parts)}")
    return texts


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
