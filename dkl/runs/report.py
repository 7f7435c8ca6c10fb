"""A run and its report, and what `dkl verify` compares with it, shown to a person or a program.

And the end of a fit: the use of its seconds, its picture, what is printed of its result, and the exit code.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.session import Session
from dkl.errors import DklError, StoreError, printable
from dkl.estimators.base.run_arrays import describe_machines
from dkl.estimators.base.settings import FOLDER
from dkl.io.paths import as_source
from dkl.plotting import figures
from dkl.plotting.figures import can_draw
from dkl.quality import Quality, absolute_gap, proof_text
from dkl.resources import DISK, EXCHANGE, current_rss, format_bytes, spent
from dkl.runs.inputs.files import Lazy
from dkl.runs.inputs.readers import reading_bytes
from dkl.runs.interrupt import echo
from dkl.runs.registry import Facts, RunKind
from dkl.solvers.watch import Result
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distributed import Worker

    from dkl.stores.seals import Json

SHOWN = 200
"""Characters of an error that are shown: it may hold a number of any length."""
WIDTH = 32
"""Width of the names in a list."""
MOST_OUTPUTS = 8
"""Number of outputs of which a learner reports more than the largest gap."""
MOST_NAMES = 12
"""Number of names that are shown in a line."""
DAMAGED = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ZeroDivisionError,
    OverflowError,
    RecursionError,
)
"""Errors raised by reading a report that lacks a part, or has another in its place."""


def require(run: RunStore) -> Json:
    """Return the report of a complete run; StoreError if it is not complete."""
    found: Json = run.report()
    if not found:
        raise StoreError("no result yet", where=run.name, remedy="`dkl resume` it first")
    return found


@contextmanager
def damages(run: RunStore, part: str = "report", file: str = "report.json") -> Iterator[None]:
    """Raise StoreError in place of the errors of reading a damaged report, or another part of a run."""
    with run.telling():
        try:
            yield
        except DklError:  # an InputError is a ValueError too
            raise
        except DAMAGED as error:
            got = f"{type(error).__name__}: {error}"[:SHOWN]
            raise StoreError(f"a damaged {part}", where=str(run.path / file), got=got) from error


def note_damaged_states(run: RunStore) -> None:
    """Print a note on each damaged state of an unfinished run, which a resumed run passes over."""
    for damage in run.damaged_states():
        echo(f"note: a state is damaged and passed over: {damage}", err=True)


# -- parts of a learner's facts -------------------------------------------------------------------------------------------


def state(run: RunStore, under_way: Callable[[RunStore], str]) -> str:
    """Return the state of a run: complete with its outcome, or what `under_way` reports."""
    if run.is_complete:
        return f"complete, {run.report().get('outcome')}"
    damaged = "".join(f"; a state is damaged and passed over: {damage.where}" for damage in run.damaged_states())
    return under_way(run) + damaged


def certificate(output: Json, of: str = "") -> dict[str, str]:
    """Return objective and proven gap as lines; `of` follows their names, as " of target 2"."""
    return {
        f"objective{of}": f"{output['objective']:.10g}",
        f"proven relative gap{of}": proven(output),
    }


def proven(output: Json) -> str:
    """Return the relative gap of what has an objective and a gap in a report, and what it means, in words."""
    relative_gap = float(output["relative_gap"])
    gap = absolute_gap(float(output["objective"]), float(output["gap"]), relative_gap)
    return f"{relative_gap:.3g}   {proof_text(relative_gap, gap)}"


def quality(report: Json) -> dict[str, str]:
    """Return the line on held-out data, with further measures, or why it is missing; {} if not asked for.

    Raises StoreError for an invalid quality.
    """
    measured = Quality.from_dict(report.get("quality"), "report.json")
    if measured is None:
        reason = report.get("no_quality")
        return {"quality": f"none: {reason}"} if reason else {}
    others = "".join(f", {name} {value:.3f}" for name, value in measured.others.items())
    return {"quality": f"{measured}{others}"}


def placement(report: Json) -> dict[str, str]:
    """Return the line on the place of dense work, in which process it was done; {} of old runs."""
    return {"solved in": str(report["placement"])} if "placement" in report else {}


def largest_gap(outputs: list[Json]) -> str:
    """Return the largest proven relative gap of a report's outputs, as text."""
    return f"{max(output['relative_gap'] for output in outputs):.3g}"


def spread(values: Iterable[float]) -> str:
    """Return text for numbers that may be equal: the one, or the least and the largest."""
    found = sorted(values)
    low, high = f"{found[0]:.6g}", f"{found[-1]:.6g}"
    return low if low == high else f"{low} to {high}"


def worst_first(outputs: list[Json], describe: Callable[[Json], str]) -> list[str]:
    """Return a line for each of a report's outputs of the largest gaps, and how many more there are."""
    ordered = sorted(outputs, key=lambda output: -output["relative_gap"])
    more = [f"and {len(ordered) - MOST_OUTPUTS} more, of smaller gaps"] if len(ordered) > MOST_OUTPUTS else []
    return [*map(describe, ordered[:MOST_OUTPUTS]), *more]


def in_a_line(names: Sequence[object]) -> str:
    """Return names, of classes for example, as text: the first ones if they are many.

    >>> in_a_line(["a", "b"])
    'a, b'
    """
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(map(str, names[:MOST_NAMES])) + more


# -- what commands print --------------------------------------------------------------------------------------------------


def show(run: RunStore, facts: Facts, inputs: Iterable[str], *, as_json: bool) -> None:
    """Print a run's state, configuration, result, its learner's table, and its plan."""
    report = run.report()
    if as_json:
        shown = {"path": run.name, "state": facts.state, "config": run.config, "report": report}
        echo(json.dumps({**shown, **facts.details}, indent=1))
        return
    echo(f"{printable(run.name)}: {facts.state}")
    echo("\n".join(_config(run, facts, inputs)))
    if report:
        echo(describe_result(facts, report))
    if facts.table:
        echo("\n" + "\n".join(facts.table))
    if report:
        echo("\n" + "\n".join(_plan(report)))


def describe_result(facts: Facts, report: Json) -> str:
    """Return lines on a complete run's result, its quality and costs; StoreError if the report lacks them."""
    try:
        costs = quality(report) | _costs(report)
    except DAMAGED as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError("a damaged report", where="report.json", got=got) from error
    return "\n".join(line(name, value) for name, value in {**facts.result, **costs}.items())


def line(name: str, value: str) -> str:
    """Return a line of a name and its value."""
    return f"  {name:<{WIDTH}}{printable(value)}"


def _config(run: RunStore, facts: Facts, inputs: Iterable[str]) -> list[str]:
    known: Any = run.config.get("inputs", {})
    lines = [line(name, str(known[name].get("path"))) for name in inputs if known.get(name) is not None]
    shown = {name: value for name, value in run.config["settings"].items() if value not in (None, {})}
    lines.append(line("settings", ", ".join(f"{name} {value}" for name, value in shown.items())))
    if (run.path / FOLDER).is_dir():
        lines.append(line("columns", "standardized to mean 0 and spread 1, as the rows it is applied to will be"))
    lines += [line(name, value) for name, value in facts.config.items()]
    if machines := describe_machines(run):
        lines.append(line("computed with", machines))
    return lines


def _costs(report: Json) -> dict[str, str]:
    seconds = report["seconds"]
    stages = ", ".join(f"{stage} {value:.3g}" for stage, value in seconds.items() if stage != "total")
    lines = {"seconds": f"{seconds['total']:.3g}   {stages}", "peak memory": format_bytes(report["peak_bytes"])}
    if report.get("worker_peak_bytes"):
        lines["peak memory of a worker"] = format_bytes(report["worker_peak_bytes"])
    if report.get("restarts"):
        lines["restarts after lost workers"] = str(report["restarts"])
    return lines


def _plan(report: Json) -> list[str]:
    plan = report.get("plan", {})
    lines = [f"plan: state in {plan.get('placement')}, {plan.get('processes')} process(es)"]
    for part in ("items", "disk"):
        lines += [f"  {name:<34}{format_bytes(size):>10}" for name, size in plan.get(part, {}).items()]
    return lines


QUALITY = "quality"
ALTERNATIVE = "quality of the alternative"
"""Names of the number on held-out data, and of the plainest alternative's."""


@dataclass(frozen=True)
class Comparison:
    """A reported number and the same recomputed.

    A bound may be larger than it need be, and the claim holds all the same: then the recomputed value counts against
    the report only where it lies `above` it (gaps) or `below` it (eigenvalues).

    quiet: shown only where it differs.
    """

    name: str
    reported: float
    recomputed: float
    allowed: float
    counts: str = "both"
    quiet: bool = False

    @property
    def apart(self) -> float:
        """Return how far the recomputed number is off in the direction that counts; NaN if either is NaN."""
        difference = self.recomputed - self.reported
        return {"both": abs(difference), "above": difference, "below": -difference}[self.counts]

    @property
    def agrees(self) -> bool:
        """Return whether the recomputed number is within the tolerance; False for NaN."""
        return self.apart <= self.allowed


def named(comparisons: Iterable[Comparison], which: str, *, quiet: bool = False) -> Iterator[Comparison]:
    """Yield one output's comparisons, `which` added to their names, as " of target 2"; quiet: all are."""
    for one in comparisons:
        yield replace(one, name=one.name + which, quiet=one.quiet or quiet)


@np.errstate(all="ignore")  # what damaged numbers overflow to agrees with nothing, which says enough
def compare(run: RunStore, comparisons: Iterable[Comparison]) -> None:
    """Print all; StoreError names those that differ."""
    wrong, hidden = [], 0
    echo(f"{printable(run.name)}\n  {'':<32}{'reported':>20}{'recomputed':>20}{'apart':>12}{'allowed':>12}")
    is_quality_recomputed = False
    for one in comparisons:
        is_quality_recomputed |= one.name == QUALITY
        if not one.agrees:
            wrong.append(one.name)
        if one.quiet and one.agrees:
            hidden += 1
            continue
        apart = abs(one.recomputed - one.reported)
        echo(f"  {one.name:<32}{one.reported:>20.12g}{one.recomputed:>20.12g}{apart:>12.2g}{one.allowed:>12.2g}")
    if run.report().get("quality") is not None and not is_quality_recomputed:
        echo("  not recomputed: quality, as this run keeps no model of the data that was not held out")
    if hidden:
        echo(f"  and {hidden} numbers more that agree")
    if wrong:
        raise StoreError(
            "the report is not what the stored result gives", where=run.name, got=f"other {', '.join(wrong)}"
        )
    echo("  they agree")


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
    echo(describe_result(kind.facts(run), run.report()))
    if not run.config.get("picture", False) and can_draw():
        echo(f"  draw it with: {printable(shlex.join(['dkl', 'info', run.name, '--picture', 'FILE']))}")
    return _exit_code(kind, run, result)


def conclude_again(kind: RunKind, run: RunStore) -> int:
    """Print how a complete run ended; return its exit code, so that attempts of a job agree."""
    from dkl.estimators.base.run_arrays import result_in

    echo(f"{printable(run.name)}: complete, nothing to do")
    echo(describe_result(kind.facts(run), run.report()))
    return _exit_code(kind, run, result_in(run, []))


def _exit_code(kind: RunKind, run: RunStore, result: Result) -> int:
    """Return the exit code of a result; print what to do if it did not converge."""
    if result.outcome.converged:
        return SOLVED
    remedy = kind.remedies(run).get(result.outcome.value, result.remedy)
    echo(f"dkl: not converged: {result.ended}: {remedy}; the result is written", err=True)
    return NOT_CONVERGED
