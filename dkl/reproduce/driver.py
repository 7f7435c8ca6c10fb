"""Run an item's cases and keep their rows: one JSON file an item, written after each row and continued by a second call."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import numpy as np
from scipy.stats import ttest_rel

from dkl.dataset_sources import SOURCES, check
from dkl.datasets import available, load
from dkl.errors import InputError
from dkl.plotting.figures import PlotData, can_draw, figure_of, panel, save
from dkl.plotting.panels import draw_lines
from dkl.reproduce.item import Case, Curve, Effort, Item, Record, RecordRow, Scalar, check_draws, spread, verdict
from dkl.resources import n_cpus, one_blas_thread

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "clarabel", "scs")
GENERATED = ("chessboard", "double_spiral", "two_gaussians", "sinc", "swiss_roll")
"""Sets that are drawn, not read."""
MOST_POINTS = 400
"""Most points of a stored curve."""


def missing(item: Item, effort: Effort) -> list[str]:
    """Return the data sets that the item reads and that are not here."""
    here = {*available(), *GENERATED}
    # "_onehot" is made of the set when it is loaded, and is no file.
    return [name for name in item.needed(effort) if name.removesuffix("_onehot") not in here]


def check_ready(item: Item, effort: Effort) -> None:
    """Raise InputError for packages or data sets that are not here, and for sets of other values than the papers'."""
    for package, extra in {**item.extras, **({"matplotlib": "report"} if item.axes else {})}.items():
        if find_spec(package) is None:
            raise InputError(f"{package} is not installed", where=item.name, remedy=f"pip install 'dkl[{extra}]'")
    if absent := missing(item, effort):
        folder = os.environ.get("DKL_DATA")
        raise InputError(
            "data sets are missing", where=item.name, got=f"DKL_DATA={folder}" if folder else "no DKL_DATA",
            wanted=", ".join(f"{name}.npz" for name in absent),
            remedy="set DKL_DATA to a folder with them; `dkl datasets` says where each comes from",
        )  # fmt: skip
    for name in item.needed(effort):
        if name in SOURCES:
            # A set of another size or other values would give figures that no verdict could explain.
            check(load(name))


def reproduce(item: Item, effort: Effort, folder: Path, report: Callable[[str], None]) -> Record:
    """Run the cases that `folder`/NAME.json does not hold yet; write the table and, for a figure, the picture from it.

    Raises InputError for missing data, and where the file holds rows of other settings or another version.
    """
    check_draws(effort.draws)
    check_ready(item, effort)
    path = folder / f"{item.name}.json"
    cases = item.cases(effort)
    record = _stored(path, header(item, effort))
    rows = {row["key"]: row for row in record["rows"]}
    # One BLAS thread: seconds are of one processor, as the papers' were, and the same whatever else runs.
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")  # methods are cut off on purpose, as in the papers; the table says where
        for number, case in enumerate(cases, 1):
            if case.key not in rows:
                try:
                    rows[case.key] = run_case(item, case)
                except KeyboardInterrupt:
                    kept = f"{len(rows)} of {len(cases)} rows are in {path}" if rows else "no row was finished"
                    raise KeyboardInterrupt(f"interrupted; {kept}; the same command continues") from None
                # In the order of the cases, whatever order they were finished in over several calls.
                record["rows"] = [rows[case.key] for case in cases if case.key in rows]
                write(path, record)
            report(f"{number}/{len(cases)} {case.key}: {_short(item, rows[case.key])}")
    path.with_suffix(".md").write_text(markdown(item, record), encoding="utf-8")
    if item.axes is not None:
        draw_figure(item, record, path.with_suffix(".png"))
    return record


def run_case(item: Item, case: Case) -> RecordRow:
    """Return the row of a case: figures of the paper and ours, verdict, processor seconds."""
    # Processor seconds: other work on the machine counts less than by the clock.
    began = time.process_time()
    measured = case.work()
    seconds = time.process_time() - began
    mean, deviation = spread(measured.values)
    return {
        "key": case.key,
        "labels": dict(case.labels),
        "paper": case.paper,
        "mean": mean,
        "deviation": deviation,
        "values": [float(value) for value in measured.values],
        "verdict": verdict(item, measured.values, case.paper),
        "more": {name: _plain(value) for name, value in measured.more.items()},
        "curves": {name: thinned(curve) for name, curve in measured.curves.items()},
        "cpu_seconds": round(seconds, 2),
    }


def _plain(value: Scalar) -> Scalar:
    """Return a number as JSON has it: one that is not finite as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def thinned(curve: Curve) -> tuple[list[float], list[float]]:
    """Return x and y of a curve to six digits; where it has more than MOST_POINTS points, some of them, denser at the beginning."""
    count = len(curve[0])
    # Denser at the beginning, where curves of objectives fall.
    places = range(count) if count <= MOST_POINTS else sorted({*map(int, np.geomspace(1, count, MOST_POINTS) - 1)})
    x, y = ([float(f"{axis[k]:.6g}") for k in places] for axis in curve)
    return x, y


def header(item: Item, effort: Effort) -> Record:
    """Return what a record says of itself: item, effort, code, machine, versions."""
    return {
        "item": item.name,
        "quick": effort.quick,
        "draws": effort.draws,
        "settings": item.settings,
        "dkl": version("dkl"),
        "commit": commit(),
        "machine": f"{platform.machine()}, {n_cpus()} processors, {platform.system()}",
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "rows": [],
    }


def commit() -> str | None:
    """Return the commit of the checkout that dkl is imported from, with "+" where it was changed; None outside of one."""
    root = Path(__file__).parents[2]
    git = shutil.which("git")
    # An installed wheel may lie within somebody's own repository, whose commit says nothing.
    if git is None or not (root / ".git").exists():
        return None
    try:
        asked = (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", "dkl"])
        name, changed = (
            subprocess.run([git, "-C", root, *words], capture_output=True, text=True, check=True, timeout=30).stdout
            for words in asked
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return name.strip() + ("+" if changed.strip() else "")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _stored(path: Path, fresh: Record) -> Record:
    """Return the record to continue: the file's, else `fresh`. Raises InputError for another one's rows."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        return fresh
    remedy = "choose another --out, or remove the file to start again"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        # Rows of another commit, machine or settings are not mixed: their seconds are not comparable.
        differ = [name for name, asked in fresh.items() if name != "rows" and found.get(name) != asked]
        complete = isinstance(found["rows"], list) and all("key" in row for row in found["rows"])
    except (ValueError, AttributeError, KeyError, TypeError):
        raise InputError("not a record of dkl reproduce", where=str(path), remedy=remedy) from None
    if differ or not complete:
        what = ", ".join(f"{name} {found.get(name)}" for name in differ) or "damaged rows"
        wanted = ", ".join(f"{name} {asked}" for name, asked in fresh.items() if name in differ)
        raise InputError("holds rows of another call", where=str(path), got=what, wanted=wanted, remedy=remedy)
    return cast(Record, found)


def write(path: Path, record: Record) -> None:
    """Write the record as JSON, a row a line, whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in record["rows"])
    head = json.dumps({**record, "rows": []}, indent=1, ensure_ascii=False)
    partial.write_text(head.removesuffix("[]\n}") + f"[\n{rows}\n]}}\n", encoding="utf-8")
    # A kill leaves the old file or the new one, so that a record of hours is not lost with its last row.
    os.replace(partial, path)


def _short(item: Item, row: RecordRow) -> str:
    paper = "" if row["paper"] is None else f", paper {row['paper'][0]:g}"
    return f"{row['mean']:.{item.digits}f}{paper}{', ' if row['verdict'] else ''}{row['verdict']}"


LEVEL = 0.05
"""Level of the paired t-tests, the papers' 95 %."""


def line(cells: Iterable[object]) -> str:
    """Return a row of a Markdown table."""
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def grid(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    return "\n".join([line(head), "|" + "---|" * len(head), *map(line, rows)])


def pair(figures: Sequence[float | None] | None, digits: int) -> str:
    """Return "mean ± deviation", without a deviation that is None."""
    if figures is None or figures[0] is None:
        return ""
    mean = f"{figures[0]:.{digits}f}"
    return mean if figures[1] is None else f"{mean} ± {figures[1]:.{digits}f}"


def markdown(item: Item, record: Record) -> str:
    """Return the page of a record: a row a case with the paper's figure, ours and the verdict, then how it was made."""
    rows = record["rows"]
    labels = list(rows[0]["labels"]) if rows else []
    more = list(dict.fromkeys(name for row in rows for name in row["more"]))
    best = comparable(item, rows)
    cells = [
        [
            *row["labels"].values(), pair(row["paper"], item.digits),
            pair((row["mean"], row["deviation"]), item.digits) + (" †" if row["key"] in best else ""), row["verdict"],
            len(row["values"]), *(_cell(row["more"].get(name, "")) for name in more), f"{row['cpu_seconds']:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    quick = "**Quick: fewer draws and smaller sets than the paper's; not a result.** " if record["quick"] else ""
    tested = f" †: the best {item.tested} of its rows, or not worse by a paired t-test at 95 %." if best else ""
    versions = ", ".join(f"{name} {one}" for name, one in record["versions"].items() if one)
    return "\n".join([
        f"# {item.paper}, {item.place}: {item.asks}", "",
        f"{quick}{item.value[0].upper()}{item.value[1:]}, mean and standard deviation over the draws.{tested}", "",
        grid([*labels, "paper", "dkl", "verdict", "draws", *more, "CPU s"], cells), "",
        *([f"![{item.place}]({item.name}.png)", ""] if item.axes is not None else []),
        f"Settings: {item.settings}", "",
        f"Made by `{command(item, record)}`; dkl {record['dkl']}, commit {record['commit']}; {record['machine']}, one BLAS thread; "
        f"{versions}.", "",
    ])  # fmt: skip


def command(item: Item, record: Record) -> str:
    """Return the command that makes the record."""
    return f"dkl reproduce {item.name}" + " --quick" * record["quick"] + (
        f" --draws {record['draws']}" if record["draws"] else ""
    )  # fmt: skip


def comparable(item: Item, rows: list[RecordRow]) -> set[str]:
    """Return the keys of the rows that are the best of those which differ in `item.tested` alone, or not worse by a t-test."""
    if item.tested is None:
        return set()
    groups: dict[tuple[str, ...], list[RecordRow]] = {}
    for row in rows:
        groups.setdefault(tuple(v for name, v in row["labels"].items() if name != item.tested), []).append(row)
    found = set()
    for group in [group for group in groups.values() if len(group) > 1]:
        best = (max if item.better == "higher" else min)(group, key=lambda row: row["mean"])
        found |= {row["key"] for row in group if row is best or not _is_worse(row["values"], best["values"])}
    return found


def _is_worse(values: Sequence[float], best: Sequence[float]) -> bool:
    # A paired test needs the same draws.
    if len(values) != len(best) or len(best) < 2:
        return True
    # The test of equal values divides 0 by 0.
    if values == best:
        return False
    return bool(ttest_rel(values, best).pvalue < LEVEL)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def draw_figure(item: Item, record: Record, path: Path) -> None:
    """Draw a panel for each row with curves, in the paper's form; rows that share their first label share a panel."""
    if item.axes is None or not can_draw():
        return
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for row in record["rows"]:
        first, *others = row["labels"].values()
        for name, curve in row["curves"].items():
            panels.setdefault(first, {})[", ".join(dict.fromkeys([*others, name]))] = curve
    drawn = [panel(partial(draw_lines, curves=curves, title=title, names=(item.axes.x, item.axes.y),
                           logs=(item.axes.log_x, item.axes.log_y), points=item.axes.points))
             for title, curves in panels.items()]  # fmt: skip
    save(figure_of(PlotData(f"{item.paper}, {item.place}", drawn)), path)
