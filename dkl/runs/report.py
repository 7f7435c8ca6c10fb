"""A run and its report, and what `dkl verify` compares with it, shown to a person or a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import DklError, StoreError, printable
from dkl.estimators.base.run_arrays import describe_machines
from dkl.estimators.base.settings import FOLDER
from dkl.quality import Quality, absolute_gap, proof_text
from dkl.resources import format_bytes
from dkl.runs.echo import echo
from dkl.runs.kind import Facts
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from collections.abc import Sequence

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
