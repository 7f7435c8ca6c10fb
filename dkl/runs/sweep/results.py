"""results.jsonl: a line for each ended point, on disk before the next begins; its machine; and the table of all lines."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError
from dkl.resources import format_bytes, machine_memory, n_cpus
from dkl.runs.sweep.request import SweepRequest, shown
from dkl.stores.folders import MODE, disk_errors, write_all

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


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
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(folder: Path) -> dict[str, Line]:
    """Return the last line of each point, by name, without truncated lines; InputError without a sweep."""
    path = folder / FILE
    try:
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
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as told:
                for line in told:
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
