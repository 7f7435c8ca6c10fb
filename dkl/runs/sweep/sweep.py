"""The verb `dkl sweep TASK`: data, a plan, a process for each point, a table that grows, a picture.

sweep.json       what was asked for
data/            what the points learn from, a folder for each n
points/NAME/     a point's run, what it printed (log), and what its attempts took (attempts.json)
results.jsonl    a line for each point that has ended
scaling.png      seconds against n
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dkl.errors import DiskError, InputError, MemoryBudgetError, ResourceError
from dkl.io.paths import as_path, as_source
from dkl.io.reading import TableOptions
from dkl.plotting.figures import can_draw, check_matplotlib, save
from dkl.resources import format_bytes
from dkl.runs import driver, registry
from dkl.runs.backends import Cluster
from dkl.runs.inputs.files import TABLE, Files, check_new, check_unchanged, fingerprint
from dkl.runs.interrupt import echo
from dkl.runs.sweep import results
from dkl.runs.sweep.data import Data, data_of
from dkl.runs.sweep.points import Processes, work
from dkl.runs.sweep.request import SweepPoint, SweepRequest, check_same
from dkl.runs.sweep.results import SweepTable, draw, slopes
from dkl.stores.folders import MODE, disk_errors
from dkl.stores.seals import read_json, write_json

SKIP = "--skip-what-does-not-fit leaves out what does not fit"


def misfits(points: Sequence[SweepPoint], request: SweepRequest, data: Data, folder: Path) -> dict[str, str]:
    """Return points that do not fit the machine, by name, and why; repeats share the result of the first.

    Data of the points that are checked are written, if they fit.

    InputError, which names the point, for settings or inputs that no fit can take.
    """
    found, room = dict[str, str](), _Room(folder)
    for point in points:
        first = SweepPoint(point.n, point.varied).name
        if first in found:
            # A repeat takes no more memory than the first; its disk is counted once, by the first.
            found[point.name] = found[first]
            continue
        try:
            if not data.is_there(point.n):
                room.take("the data", data.bytes_of(point.n), written=True)
            room.take("the run", _disk_of(point, request, data, folder))
        except (MemoryBudgetError, DiskError) as error:
            found[point.name] = str(error)
        except InputError as error:
            raise type(error)(str(error), where=point.label) from error
    return found


class _Room:
    """Space of the disk, taken by one point after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.taken = folder, 0

    def take(self, what: str, size: int, *, written: bool = False) -> None:
        """Raise DiskError if `size` bytes are not free next to those taken; `written` is not counted again."""
        # Asked each time: data are written in between, which is what `written` is for.
        free = shutil.disk_usage(self.folder).free
        if self.taken + size > free:
            got, wanted = f"{format_bytes(free)} free", format_bytes(self.taken + size)
            raise DiskError(f"{what} and the points before do not fit on that disk", got=got, wanted=wanted)
        self.taken += 0 if written else size


def refuse(points: Sequence[SweepPoint], found: Mapping[str, str]) -> None:
    """Raise ResourceError for points that do not fit: it names the first one and counts the others."""
    unfit = [point for point in points if point.name in found and point.repeat == 1]
    if unfit:
        more = f" and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        raise ResourceError(f"does not fit here: {found[unfit[0].name]}", where=unfit[0].label + more, remedy=SKIP)


def _disk_of(point: SweepPoint, request: SweepRequest, data: Data, folder: Path) -> int:
    """Return bytes that a point's run leaves on the disk; MemoryBudgetError, DiskError, InputError."""
    declaration = registry.declaration(request.task)
    settings: Any = declaration.settings(**request.chosen(point)).checked()
    files = data.files(point.n, request.n_constraints_of(point))
    cluster = Cluster.of(**request.placing(point), memory_limit=settings.memory_limit)
    inputs = declaration.read(Files.of(declaration.files, files), settings, values=False)
    kind = registry.kind(request.task)
    # As a fit does before it plans: a solver or a size may follow from the inputs.
    settings = kind.adapted(settings, inputs)
    with cluster.planned() as session:
        return driver.check_fits(kind, inputs, settings, session, folder)[1]


Given = Mapping[str, Any]

SWEEP = "sweep.json"

WORST_FIRST = (1, 6, 5, 2, 3)
"""Exit codes of points, that of the sweep is the first of these that any has; else 0."""


def sweep(
    task: str,
    files: Given,
    out: str,
    shape: Given,
    chosen: Mapping[str, list[Any]],
    placing: Mapping[str, list[Any]],
    *,
    picture: bool | None,
    skip: bool,
    again: str,
) -> int:
    """Run or continue the sweep in the folder `out`; return the exit code.

    shape: n, repeat, n_constraints, data_seed and shuffled, as typed. chosen, placing: values of settings and of options of
    the place. skip: points that do not fit are left out. again: the command that continues it.
    """
    if picture:
        check_matplotlib("--picture")
    paths, table = {name: path for name, path in files.items() if name != TABLE}, files.get(TABLE) or TableOptions()
    given = {name: str(as_source(path, f"--{name}").absolute()) for name, path in paths.items() if path is not None}
    if given and "data" not in given:
        raise InputError("for rows of --data alone", where=f"--{min(given)}", remedy="name their file, or leave it out")
    request = SweepRequest(
        task,
        list(shape["n"]),
        shape["repeat"],
        dict(chosen),
        dict(placing),
        given,
        list(shape["n_constraints"] or []),
        shape["data_seed"],
        shape["shuffled"],
        table.as_dict(),
    ).checked()
    check_settings(request)
    folder = as_path(out, "--out").absolute()
    is_new = not (folder / SWEEP).exists()
    if is_new:
        folder = check_new(folder, may_be_empty_folder=True)
    else:
        check_same(folder / SWEEP, request)
    with Processes() as processes:
        try:
            with _open_sweep(request, folder, is_new, skip) as (data, points):
                table, lines = SweepTable(request), []
                echo(table.head())
                for line in _work(points, request, data, folder, processes):
                    echo(table.row(line))
                    lines.append(line)
                return _conclude(lines, request, folder, picture)
        except KeyboardInterrupt as stopped:
            signal = processes.signal or "SIGINT"
            raise KeyboardInterrupt(
                f"interrupted by {signal}; finished points are kept; continue with: {again}"
            ) from stopped


def check_settings(request: SweepRequest) -> None:
    """Raise InputError for a combination of settings that no fit can take, without reading any data."""
    kind = registry.declaration(request.task).settings
    for point in request.points():
        kind(**request.chosen(point)).checked()


def _work(
    points: list[SweepPoint], request: SweepRequest, data: Data, folder: Path, processes: Processes
) -> Iterator[results.Line]:
    """Yield the lines of all points, in order: those that exist, and others as they end."""
    before = results.read(folder)
    for point in points:
        line = before.get(point.name)
        if line is None or not is_finished(line):
            with _under_way(point):
                line = work(point, request, data, folder, processes)
            results.append(folder, line)
        yield line
        if processes.signal:
            raise KeyboardInterrupt


def _conclude(lines: list[results.Line], request: SweepRequest, folder: Path, picture: bool | None) -> int:
    """Print how cost grows, and draw it; return the exit code."""
    measured = [line for line in lines if line.get("seconds") is not None]
    for text in slopes(measured, list(request.varied)):
        echo(text)
    if picture is not False and can_draw() and len({line["n"] for line in measured}) > 1:
        figure = draw(measured, list(request.varied), request.task)
        echo(f"picture: {save(figure, folder / 'scaling.png')}")
    # A sweep ends as badly as its worst point: a script that runs it must see it.
    found = {exit_code(line) for line in lines}
    return next((code for code in WORST_FIRST if code in found), 0)


@contextmanager
def _under_way(point: SweepPoint) -> Iterator[None]:
    """Show on a terminal what is being worked on."""
    is_shown = sys.stderr.isatty()
    if is_shown:
        click.echo(f"\r{point.label} ...", nl=False, err=True)
    try:
        yield
    finally:
        if is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)


def is_finished(line: results.Line) -> bool:
    """Return whether another attempt would not change a point's end: its run has a report."""
    return line["status"] in (0, 3)


def exit_code(line: results.Line) -> int:
    """Return the exit code of a point: 5 (too large) for a process that the system has killed."""
    status = int(line["status"])
    return 5 if status < 0 else status


@contextmanager
def _open_sweep(
    request: SweepRequest, folder: Path, is_new: bool, skip: bool
) -> Iterator[tuple[Data, list[SweepPoint]]]:
    """Yield the data, written, and the points that fit, in a locked folder.
    A new sweep that cannot start leaves nothing but a folder that was there."""
    declaration = registry.declaration(request.task)
    if not is_new:
        known: Any = read_json(folder / SWEEP, sealed=True)["inputs"]
        for file in declaration.files:
            if file.name in known:
                check_unchanged(known[file.name], file.what)
    data = data_of(request, declaration, folder / "data")
    with disk_errors("cannot be made", folder, "choose another --out"):
        before = set(folder.iterdir()) if folder.is_dir() else None
        folder.mkdir(mode=0o700, exist_ok=True)
    with _locked(folder):
        try:
            if is_new:  # first: what is killed from here on can be continued
                inputs = {name: fingerprint(as_source(path)) for name, path in request.files.items()}
                write_json(folder / SWEEP, {**request.as_dict(), "inputs": inputs})
            fitting = _fitting(request, data, folder, skip)
        except BaseException:
            if is_new:
                _remove_new(folder, before)
            raise
        yield data, fitting


def _remove_new(folder: Path, before: Collection[Path] | None) -> None:
    """Remove the entries of `folder` that are not in `before`, and the folder itself where it was made (None)."""
    if before is None:
        shutil.rmtree(folder)
        return
    for entry in set(folder.iterdir()).difference(before):
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the sweep for this process, until it ends; InputError if another process has it."""
    # flock, not the file's existence: the system releases it when the process dies, however it dies.
    descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            remedy = "wait for it to end, or end it"
            raise InputError("another process works on this sweep", where=str(folder), remedy=remedy) from error
        yield
    finally:
        os.close(descriptor)


def _fitting(request: SweepRequest, data: Data, folder: Path, skip: bool) -> list[SweepPoint]:
    """Return the points that are done, or fit here; without `skip` ResourceError if one does not."""
    points, lines = request.points(), results.read(folder)
    waiting = [point for point in points if point.name not in lines or not is_finished(lines[point.name])]
    unfit = misfits(waiting, request, data, folder)
    if not skip:
        refuse(waiting, unfit)
    for point in waiting:
        if point.name in unfit and point.repeat == 1:
            echo(f"note: {point.label}: left out: {unfit[point.name]}", err=True)
    return [point for point in points if point.name not in unfit]
