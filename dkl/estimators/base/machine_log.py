"""Versions and processor that a run is computed with: logged by each attempt, and compared by the next one.

The last bits of a result depend on them, so a run that is resumed elsewhere may end in others than one that never stopped.
"""

from __future__ import annotations

import logging
from dataclasses import asdict

from dkl.printable import printable
from dkl.stores.run import RunStore

EVENT = "machine"
"""Name of the event in a run's log."""
KERNELS = "BLAS for"
"""Name of the processor that BLAS has chosen its kernels for, next to the names of packages."""
SHOWN = 40
"""Characters of a version that are shown: a log may hold one of any length."""
LOG = logging.getLogger("dkl")


def log_machine(run: RunStore) -> None:
    """Log what this attempt computes with, and say in a line what differs from the attempt before. Raises DiskError."""
    from dkl.blocks.workers.worker_machines import machine

    earlier = machines_of(run)
    run.log(event=EVENT, **asdict(machine()))
    if not earlier:  # new, or of a version that logged none
        return
    before, now = earlier[-1], machines_of(run)[-1]
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        LOG.warning(
            "%s was computed with %s so far, from here on with %s: results may differ in the last bits",
            printable(run.name), _named(before, changed), _named(now, changed),
        )  # fmt: skip


class MachineLog:
    """Callback of a fit that logs the machine with the first row: an attempt that is refused before writes nothing."""

    def __init__(self, run: RunStore) -> None:
        self.run, self.is_logged = run, False

    def __call__(self, row: object) -> None:
        """Log the machine, once."""
        if not self.is_logged:
            self.is_logged = True
            log_machine(self.run)


def machines_of(run: RunStore) -> list[dict[str, str]]:
    """Return what each attempt computed with, in order: versions by package, and the processor as `KERNELS`.

    Events that hold none, of a damaged log, are left out.
    """
    found = []
    for event in run.events():
        versions, kernels = event.get("versions"), event.get("kernels")
        if event.get("event") == EVENT and isinstance(versions, dict) and isinstance(kernels, str):
            texts = {**versions, KERNELS: kernels}
            found.append({printable(name): printable(str(text))[:SHOWN] for name, text in texts.items()})
    return found


def describe_machines(run: RunStore) -> str:
    """Return what a run was computed with, as text: of several attempts what differs; "" if it was not logged."""
    found = machines_of(run)
    if not found:
        return ""
    parts = [_named(found[0], list(found[0]))]
    for before, now in zip(found, found[1:], strict=False):
        if changed := [name for name in now if before.get(name) != now[name]]:
            parts.append(_named(now, changed))
    return "; then ".join(parts)


def _named(machine: dict[str, str], names: list[str]) -> str:
    return ", ".join(f"{name} {machine.get(name)}" for name in names)
