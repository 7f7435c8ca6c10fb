"""End of a fit: the use of its seconds, its picture, what is printed of its result, and the exit code."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from dkl.blocks.session import Session
from dkl.errors import printable
from dkl.io.paths import as_source
from dkl.plotting import figures
from dkl.plotting.figures import can_draw
from dkl.resources import DISK, EXCHANGE, current_rss, spent
from dkl.runs import report
from dkl.runs.echo import echo
from dkl.runs.inputs.files import Lazy
from dkl.runs.inputs.readers import reading_bytes
from dkl.runs.kind import RunKind
from dkl.solvers.watch import Result
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from distributed import Worker

    from dkl.stores.seals import Json


# -- seconds ------------------------------------------------------------------------------------------------------------


NETWORK = ("gather-dep", "network", "seconds")
"""Dask's counter of the seconds that a worker has waited for data of others."""


class Spending:
    """Counters of all processes at the start of a fit, compared with those at its end."""

    def __init__(self, session: Session) -> None:
        self.session, self.before = session, _counted(session)

    def split(self, seconds: float) -> Json | None:
        """Return the mean seconds of a slot (thread or worker) by use; their sum is `seconds` since the start.

        disk: reading and writing that was waited for; communication: exchanging sums, and waiting for data of other workers;
        compute: processor seconds that went into neither, up to the seconds that these leave: threads that BLAS or numba start
        beyond the slots use more, which the processor seconds of the whole show; other: the rest, such as waiting for the
        scheduler, for the client, or for a part that runs on fewer slots. client: processor seconds of the process that has
        the cluster's client, its scheduler with it if that is our own, in addition. None for a part that cannot be
        measured, and for all where workers have come or gone meanwhile.
        """
        after = _counted(self.session)
        # Counters of a worker that left are lost, and those of one that came start at 0.
        if not after or after.keys() != self.before.keys():
            return None
        grown = {
            process: {kind: count - self.before[process][kind] for kind, count in counts.items()}
            for process, counts in after.items()
        }
        is_cluster = self.session.is_distributed
        client = grown.pop("client") if is_cluster else None
        slots = len(grown) if is_cluster else self.session.threads
        mean = {kind: sum(counts[kind] for counts in grown.values()) / slots for kind in ("cpu", EXCHANGE, DISK)}
        parts, rest = {}, seconds
        for part, counted in (("disk", DISK), ("communication", EXCHANGE if is_cluster else None), ("compute", "cpu")):
            # Never more than what is left: seconds of several threads of a slot would sum to more than the clock's.
            parts[part] = min(mean[counted], rest) if counted else None
            rest -= parts[part] or 0.0
        return {"seconds": seconds, "slots": slots, **parts, "other": rest, "client": client["cpu"] if client else None}


def _counted(session: Session) -> dict[str, dict[str, float]]:
    """Return counters by process; {} if workers cannot be asked."""
    if not session.is_distributed:
        return {"client": spent()}
    with suppress(Exception):  # figures for the report, no more
        return {"client": spent(), **session.client.run(_of_worker)}
    return {}


def _of_worker(dask_worker: Worker | None = None) -> dict[str, float]:
    """Return a worker's counters, called there, with Dask's seconds of waiting for data."""
    counts = spent()
    counts[EXCHANGE] += float(getattr(dask_worker, "digests_total", {}).get(NETWORK, 0.0))
    return counts


# -- picture ------------------------------------------------------------------------------------------------------------


DRAWING = 70_000_000
"""Bytes of matplotlib and a canvas; measured 46 to 57 MB."""
COPIES = 4
"""Copies of the shown rows while drawing: read in stretches, put together, centered, projected."""


def picture_bytes(kind: RunKind, n: int, n_features: int, read_at_once: int = 0) -> int:
    """Return the bytes that drawing takes in addition to all else.
    They are matplotlib's, those of the rows that are shown, and those of a file that is read at once."""
    shown = COPIES * 8 * min(n, kind.drawn_rows) * n_features
    return DRAWING + shown + (read_at_once if kind.reads_to_draw else 0)


def has_room(kind: RunKind, run: RunStore, memory_limit: int | None) -> bool:
    """Return whether a run's picture can be drawn within the limit, next to what this process holds."""
    if memory_limit is None:
        return True
    known = run.config["inputs"]["data"]
    path = as_source(known["path"])
    again = reading_bytes(path) if kind.reads_to_draw and path.exists() else 0
    n, n_features = known["shape"]
    return current_rss() + picture_bytes(kind, n, n_features, again) <= memory_limit


def draw_picture(kind: RunKind, run: RunStore, inputs: Lazy, path: Path) -> Path:
    """Draw a complete run's picture to `path`, in the format of its suffix; InputError without matplotlib."""
    figures.check_matplotlib("--picture")
    return figures.save(kind.picture(run, inputs), path)


# -- result -------------------------------------------------------------------------------------------------------------


SOLVED, NOT_CONVERGED = 0, 3
"""Exit codes of a fit that has a result."""


def conclude(kind: RunKind, run: RunStore, result: Result) -> int:
    """Print how it ended, and what to do where it did not converge. The exit code."""
    echo(f"{printable(run.name)}: {result.outcome.value}")
    echo(report.describe_result(kind.facts(run), run.report()))
    if not run.config.get("picture", False) and can_draw():
        echo(f"  draw it with: {printable(shlex.join(['dkl', 'info', run.name, '--picture', 'FILE']))}")
    return _exit_code(kind, run, result)


def conclude_again(kind: RunKind, run: RunStore) -> int:
    """Print how a complete run ended; return its exit code, so that attempts of a job agree."""
    from dkl.estimators.base.run_arrays import result_in

    echo(f"{printable(run.name)}: complete, nothing to do")
    echo(report.describe_result(kind.facts(run), run.report()))
    return _exit_code(kind, run, result_in(run, []))


def _exit_code(kind: RunKind, run: RunStore, result: Result) -> int:
    """Return the exit code of a result; print what to do if it did not converge."""
    if result.outcome.converged:
        return SOLVED
    remedy = kind.remedies(run).get(result.outcome.value, result.remedy)
    echo(f"dkl: not converged: {result.ended}: {remedy}; the result is written", err=True)
    return NOT_CONVERGED
