"""Whether the points of a sweep fit: memory by the learner's own plan, the disk by all that the sweep will leave there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dkl.errors import DiskError, MemoryBudgetError, ResourceError
from dkl.resources import format_bytes
from dkl.runs import driver, registry
from dkl.runs.cluster import Cluster
from dkl.runs.files import Files
from dkl.runs.kind import RunKind
from dkl.runs.sweep.data import Data
from dkl.runs.sweep.request import Point, Request

SKIP = "--skip-what-does-not-fit leaves out what does not fit"


def check_data(data: Data, request: Request, folder: Path) -> None:
    """DiskError where the data of all sizes do not fit on the disk; before any are written."""
    needed, free = sum(map(data.bytes_of, request.n)), shutil.disk_usage(folder).free
    if needed > free:
        got, wanted = f"{format_bytes(free)} free", format_bytes(needed)
        raise DiskError("the data of the sweep do not fit on that disk", where=str(folder), got=got, wanted=wanted)


def misfits(points: Sequence[Point], request: Request, data: Data, folder: Path) -> dict[str, str]:
    """Points that do not fit the machine, by name, and why; repeats have the fate of the first.

    InputError for a point whose settings or inputs no fit can take.
    """
    kind, found, disk = registry.kind(request.task), dict[str, str](), 0
    for point in points:
        first = Point(point.n, point.varied).name
        if first in found:
            found[point.name] = found[first]
            continue
        try:
            needed = _disk_of(kind, point, request, data, folder)
        except (MemoryBudgetError, DiskError) as error:
            found[point.name] = str(error)
            continue
        disk += needed
        if disk > shutil.disk_usage(folder).free:
            free = format_bytes(shutil.disk_usage(folder).free)
            found[point.name] = f"with the points before it {format_bytes(disk)} of disk; got {free} free"
            disk -= needed
    return found


def refuse(points: Sequence[Point], found: Mapping[str, str]) -> None:
    """ResourceError that names the first point which does not fit, and how many do not; nothing where all do."""
    unfit = [point for point in points if point.name in found and point.repeat == 1]
    if unfit:
        more = f" and {len(unfit) - 1} more" if len(unfit) > 1 else ""
        raise ResourceError(f"does not fit here: {found[unfit[0].name]}", where=unfit[0].label + more, remedy=SKIP)


def _disk_of(kind: RunKind[Any, Any], point: Point, request: Request, data: Data, folder: Path) -> int:
    """Bytes that the run of a point leaves on the disk; MemoryBudgetError, DiskError, InputError."""
    settings: Any = kind.declaration.settings(**request.chosen(point)).checked()
    files = data.files(point.n, request.constraints_of(point))
    cluster = Cluster.of(**request.placing(point), memory_limit=settings.memory_limit)
    inputs = kind.read(Files.of(kind.declaration.files, files), settings, values=False)
    settings = kind.adapted(settings, inputs)
    with cluster.planned() as session:
        return driver.check_fits(kind, inputs, settings, session, folder)[1]
