"""`dkl sweep compare A B`: differences of their common points, beyond noise.

Costs are compared as logarithms of their means. Where points were repeated, the standard deviation s of a cost's logarithm is
pooled over all points of both sweeps, and a difference counts beyond t s sqrt(1/k + 1/l) for k and l repeats: t is Student's
quantile for a chance of 1 % that any point of an unchanged program is called slower or faster. Repeats of one hour are more
alike than those of two, hence a floor. Where nothing was repeated nothing shows how far runs of the same program differ: a change
is measured, and counts only beyond a threshold that is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import t as student

from dkl.errors import InputError
from dkl.io.paths import as_path
from dkl.resources import format_bytes
from dkl.runs.interrupt import echo
from dkl.runs.sweep import results
from dkl.runs.sweep.request import CONSTRAINTS, flag, shown
from dkl.runs.sweep.results import NONE, Line, number, outcome, peak
from dkl.runs.sweep.sweep import SWEEP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.stores.seals import Json

WORSE = 7
"""Exit code where a point became slower or larger, or ends worse."""
CHANCE = 0.01
FLOOR = 0.03
"""Share that a change must exceed, however alike the repeats are."""
SIZES = ("workers", "threads")
"""Options of a place that distinguish points."""
GAP_FACTOR = 2.0
"""Factor from which a change of a proven gap is reported."""

Measure = Callable[[Line], float | None]
NO_SPREAD = (
    "one repeat a point shows no spread, so no cost counts as changed: sweep with --repeat 3, or give --threshold"
)
COSTS: dict[str, tuple[Measure, str, str]] = {
    "seconds": (lambda line: line.get("seconds"), "slower", "faster"),
    "CPU seconds": (lambda line: line.get("cpu_seconds"), "more processor", "less processor"),
    "peak memory": (peak, "more memory", "less memory"),
    "disk": (lambda line: line.get("disk_bytes"), "more disk", "less disk"),
}
"""Measured costs, and the words for a rise and a fall of each.
Resumed points are left out of all: their times and logs hold a part twice, and their peaks are those of the last process alone."""


@dataclass(frozen=True)
class Change:
    """Change of one cost at one point: means before and after, growth, verdict ("" if it does not count).

    counts_from: the share from which a change counts; None where nothing was repeated and no threshold given.
    """

    point: str
    cost: str
    before: float
    after: float
    growth: float
    counts_from: float | None
    verdict: str
    is_worse: bool


def compare(before: str, after: str, threshold: float | None, *, as_json: bool) -> int:
    """Print how two sweeps' points compare. The exit code: 0, or WORSE."""
    first, second = _read(before, "BEFORE"), _read(after, "AFTER")
    # In the order of the first sweep, by n: a table of costs is read along it.
    common = [key for key in first if key in second]
    if not common:
        raise InputError("no point in common", where=f"{before}, {after}", wanted="equal task, n and settings")
    changes = [change for cost in COSTS for change in _changes(cost, first, second, common, threshold)]
    ends = [end for key in common if (end := _end(key, first[key], second[key])) is not None]
    notes = _notes(first, second)
    if any(change.counts_from is None for change in changes):
        notes.append(NO_SPREAD)
    is_worse = any(change.is_worse for change in changes) or any(end["is_worse"] for end in ends)
    if as_json:
        content = {"worse": is_worse, "changes": [asdict(change) for change in changes], "ends": ends, "notes": notes}
        echo(json.dumps(content, indent=1))
    else:
        _show(common, changes, ends, notes, is_worse)
    return WORSE if is_worse else 0


def _read(path: str, where: str) -> dict[str, list[Line]]:
    """Return a sweep's lines by their points' keys, a list of repeats each; InputError for no sweep."""
    folder = as_path(path, where).absolute()
    if not (folder / SWEEP).is_file():
        raise InputError("no sweep", where=str(folder), wanted="a folder made by `dkl sweep`")
    found: dict[str, list[Line]] = {}
    for line in results.read(folder).values():
        try:
            found.setdefault(_key(line), []).append(line)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError("a damaged line of results", where=str(folder / results.FILE), got=error) from error
    if not found:
        raise InputError("no point has ended", where=str(folder), remedy="continue the sweep first")
    return dict(sorted(found.items(), key=lambda item: (item[1][0]["n"], item[0])))


def _key(line: Line) -> str:
    """Return the key of a point: task, n, workers or threads, and settings, but no cluster's address."""
    # Not the scheduler's address: the same cluster has another one tomorrow.
    asked = {**line["asked"], **{name: value for name, value in line["place"].items() if name in SIZES}}
    if line.get(CONSTRAINTS) is not None:
        asked[CONSTRAINTS] = line[CONSTRAINTS]
    data = line["data"]
    words = [line["task"], f"n {line['n']:,}", *(f"{flag(name)} {shown(asked[name], name)}" for name in sorted(asked))]
    files = data.get("files") or {}
    # By name: a checkout elsewhere has the same file in another folder.
    words += [f"{flag(name)} {PurePath(files[name]).name}" for name in sorted(files)]
    return " ".join([*words, *([f"--data-seed {data['seed']}"] if data["seed"] else [])])


def _changes(
    cost: str,
    first: Mapping[str, list[Line]],
    second: Mapping[str, list[Line]],
    common: list[str],
    threshold: float | None,
) -> list[Change]:
    """Return the changes of one cost at all common points that have it in both sweeps."""
    measure, rise, fall = COSTS[cost]
    logs = {key: (_logs(first[key], measure), _logs(second[key], measure)) for key in common}
    logs = {key: pair for key, pair in logs.items() if len(pair[0]) and len(pair[1])}
    # Pooled, as two or three repeats a point show little of their own spread; of logarithms, as costs scatter by shares.
    spread, freedom = _pooled([part for pair in logs.values() for part in pair])
    found = []
    for key, (before, after) in logs.items():
        grown = float(after.mean() - before.mean())
        least = threshold
        if freedom:
            # Two sides of each point: CHANCE is that of any false call among all of them (Bonferroni).
            quantile = float(student.ppf(1.0 - CHANCE / (2 * len(logs)), freedom))
            least = max(FLOOR, float(np.expm1(quantile * spread * np.sqrt(1 / len(before) + 1 / len(after)))))
        beyond = least is not None and abs(grown) > np.log1p(least)
        verdict = "" if not beyond else rise if grown > 0 else fall
        means = float(np.exp(before.mean())), float(np.exp(after.mean()))
        found.append(Change(key, cost, *means, float(np.expm1(grown)), least, verdict, bool(beyond and grown > 0)))
    return found


def _logs(lines: list[Line], measure: Measure) -> NDArray[np.float64]:
    """Return logarithms (k,) of a cost at the repeats of a point that were not resumed."""
    values = [measure(line) for line in lines if not _is_resumed(line)]
    return np.log([value for value in values if value is not None and value > 0])


def _is_resumed(line: Line) -> bool:
    """Return whether a repeat took more than one process."""
    return bool(line.get("attempts", 1) > 1)


def _pooled(parts: list[NDArray[np.float64]]) -> tuple[float, int]:
    """Return (standard deviation within points, its degrees of freedom)."""
    freedom = sum(len(part) - 1 for part in parts)
    squares = sum(float(np.sum((part - part.mean()) ** 2)) for part in parts)
    return (float(np.sqrt(squares / freedom)), freedom) if freedom else (0.0, 0)


def _end(key: str, before: list[Line], after: list[Line]) -> Json | None:
    """Return how the outcome or the gap of a point changed; None if neither did."""
    was, now = (sorted({outcome(line) for line in lines}) for lines in (before, after))
    gaps = [_gap(before), _gap(after)]
    status = [max(abs(int(line["status"])) for line in lines) for lines in (before, after)]
    proven = [gap for gap in gaps if gap]
    changed = was != now or (len(proven) == 2 and max(proven) > GAP_FACTOR * min(proven))
    if not changed:
        return None
    # A point that did not end well before cannot have become worse by it.
    worse = status[0] == 0 and status[1] != 0
    return {"point": key, "outcome": [was, now], "relative_gap": gaps, "is_worse": worse}


def _gap(lines: list[Line]) -> float | None:
    """Return the largest gap of the repeats; None if nothing was proven."""
    return max((line["relative_gap"] for line in lines if line.get("relative_gap") is not None), default=None)


def _notes(first: Mapping[str, list[Line]], second: Mapping[str, list[Line]]) -> list[str]:
    """Return notes on points in one sweep alone, on resumed ones, and on different machines."""
    found = [f"only before: {key}" for key in first if key not in second]
    found += [f"only after: {key}" for key in second if key not in first]
    for name, sweep in (("before", first), ("after", second)):
        resumed = [key for key, lines in sweep.items() if any(map(_is_resumed, lines))]
        found += [f"resumed {name}, so costs of its resumed repeats are left out: {key}" for key in resumed]
    machines = [
        {
            (line["environment"]["processor"], line["environment"]["processors"])
            for lines in sweep.values()
            for line in lines
        }
        for sweep in (first, second)
    ]
    if machines[0] != machines[1]:
        names = " and ".join(", ".join(f"{count} x {name}" for name, count in sorted(one)) for one in machines)
        found.append(f"other processors: {names}")
    return found


def _show(common: list[str], changes: list[Change], ends: list[Json], notes: list[str], is_worse: bool) -> None:
    """Print for a person: a line per cost under each point, then what ended otherwise."""
    echo(f"{'':<16}{'before':>10}{'after':>12}{'change':>10}{'counts from':>13}")
    for key in common:
        echo(key)
        for change in changes:
            if change.point == key:
                echo(_line(change))
        for end in ends:
            if end["point"] == key:
                was, now = (", ".join(one) for one in end["outcome"])
                gaps = " to ".join(number(gap, ".1e") for gap in end["relative_gap"])
                echo(f"  {'end':<14}{was} to {now}; gap {gaps}{'  worse' if end['is_worse'] else ''}")
    for note in notes:
        echo(f"note: {note}")
    verdicts = [change.verdict for change in changes if change.verdict]
    unchanged = "costs measured once" if NO_SPREAD in notes else "no cost changed beyond noise"
    counted = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts)) or unchanged
    counted_points = f"{len(common)} point{'s' if len(common) > 1 else ''}"
    echo(f"{counted_points} in common: {counted}{'; worse' if is_worse else ''}")


def _line(change: Change) -> str:
    form = format_bytes if change.cost in ("peak memory", "disk") else number
    least = NONE if change.counts_from is None else f"{change.counts_from:.0%}"
    figures = f"{form(change.before):>10}{form(change.after):>12}{change.growth:>+10.1%}{least:>13}"
    return f"  {change.cost:<14}{figures}  {change.verdict}".rstrip()
