"""Check that a sweep's points fit: memory by the learner's plan, the disk by all that is left there."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dkl.errors import DiskError, InputError, MemoryBudgetError, ResourceError
from dkl.resources import format_bytes
from dkl.runs import driver, registry
from dkl.runs.backend.backends import Cluster
from dkl.runs.inputs.files import Files
from dkl.runs.sweep.data import Data
from dkl.runs.sweep.request import SweepPoint, SweepRequest

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
    files = data.files(point.n, request.constraints_of(point))
    cluster = Cluster.of(**request.placing(point), memory_limit=settings.memory_limit)
    inputs = declaration.read(Files.of(declaration.files, files), settings, values=False)
    settings = registry.planner(request.task).adapted(settings, inputs)
    with cluster.planned() as session:
        return driver.check_fits(request.task, inputs, settings, session, folder)[1]
