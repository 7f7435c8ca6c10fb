"""Tables of `answers.md`, from the records of `answers.py`.

Scores are means over the seeds of a set; differences of two methods are paired over the sets that both answered, with the standard error
of their mean. A win is a difference above .01, a loss one below -.01; where one method alone failed, the other wins.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.system.answers_questions import LEARNERS, QUESTIONS

TIE = 0.01
BELOW = 0.02
SAYS_SO = ("DataWarning", "ConvergenceWarning")
Records = list[dict[str, Any]]
Means = dict[str, dict[str, float]]


def means(records: Records, score: str) -> Means:
    """Return {method: {set: mean over seeds}}; NaN for a set on which the method failed at any seed."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        scores = record["scores"]
        if record["exception"]:
            values[record["method"]][record["set"]].append(np.nan)
        elif score in scores:
            values[record["method"]][record["set"]].append(scores[score])
    return {m: {name: float(np.mean(v)) for name, v in by_set.items()} for m, by_set in values.items()}


def difference(ours: dict[str, float], other: dict[str, float]) -> tuple[float, float, str]:
    """Return (mean, standard error, wins-ties-losses) of ours less other over the sets that both were asked."""
    both = [(ours[name], other[name]) for name in ours if name in other]
    gaps = np.array([a - b for a, b in both if np.isfinite(a) and np.isfinite(b)])
    wins = sum(bool(a - b > TIE or (np.isnan(b) and not np.isnan(a))) for a, b in both)
    losses = sum(bool(a - b < -TIE or (np.isnan(a) and not np.isnan(b))) for a, b in both)
    error = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else float("nan")
    mean = float(gaps.mean()) if len(gaps) else float("nan")
    return mean, error, f"{wins}-{len(both) - wins - losses}-{losses}"


def mean_ranks(found: Means) -> dict[str, float]:
    """Return each method's mean rank over the sets, 1 the best; a failure is last, equal scores share their ranks."""
    ranks: dict[str, list[float]] = defaultdict(list)
    for name in {name for by_set in found.values() for name in by_set}:
        scores = {m: by_set[name] for m, by_set in found.items() if name in by_set}
        shown = {m: -np.inf if np.isnan(v) else v for m, v in scores.items()}
        for method, value in shown.items():
            better = sum(other > value for other in shown.values())
            equal = sum(other == value for other in shown.values())
            ranks[method].append(1 + better + (equal - 1) / 2)
    return {method: float(np.mean(v)) for method, v in ranks.items()}


def verdict(learner: str, found: Means) -> str:
    """Return whether a learner is best in mean, level with the best (within a standard error) or behind it."""
    failed = sum(np.isnan(value) for value in found[learner].values())
    if failed == len(found[learner]):
        return "no answer"
    gaps = {m: difference(found[learner], found[m]) for m in found if m != learner}
    ahead = sorted((m for m in gaps if gaps[m][0] < 0), key=lambda m: gaps[m][0])
    behind = [m for m in ahead if not gaps[m][0] + gaps[m][1] >= 0]
    text = "behind " + ", ".join(behind) if behind else "level with " + ", ".join(ahead) if ahead else "best"
    return text + (f"; no answer on {failed} sets" if failed else "")


def most_behind(learner: str, found: Means) -> str:
    """Return the three sets on which a learner is furthest behind a peer, with that peer."""
    gaps = []
    for name, ours in found[learner].items():
        others = {
            m: by_set[name] for m, by_set in found.items() if m != learner and np.isfinite(by_set.get(name, np.nan))
        }
        if others and np.isfinite(ours):
            best = max(others, key=lambda m: others[m])
            gaps.append((ours - others[best], name, best))
    return "; ".join(f"{name} {signed(gap)} ({best})" for gap, name, best in sorted(gaps)[:3] if gap < -BELOW)


def short(value: float) -> str:
    """Return a number of three decimals without its leading zero, "-" for NaN."""
    return "-" if np.isnan(value) else f"{value:.3f}".replace("0.", ".", 1)


def signed(value: float) -> str:
    """Return `short` with a sign."""
    return ("" if np.isnan(value) else "+" if value >= 0 else "-") + short(abs(value))


def row(*cells: Any) -> str:
    """Return a line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def score_table(learner: str, by_case: dict[str, Records], score: str) -> Iterator[str]:
    """Yield a table: a line a method, a column a case."""
    found = {case: means(records, score) for case, records in by_case.items()}
    methods = list(dict.fromkeys(m for case in found.values() for m in case))
    yield row(score, *found)
    yield "|" + "---|" * (len(found) + 1)
    for method in sorted(methods, key=lambda m: m != learner):
        cells = []
        for case in found.values():
            if method not in case or learner not in case:
                cells.append("")
                continue
            answers = [value for value in case[method].values() if np.isfinite(value)]
            text = f"{short(float(np.mean(answers)) if answers else np.nan)}, rank {mean_ranks(case)[method]:.1f}"
            if method != learner:
                mean, error, counts = difference(case[learner], case[method])
                text += f"; {signed(mean)} ± {short(error)}, {counts}"
            cells.append(text)
        yield row(f"**{method}**" if method == learner else method, *cells)
    yield row("most behind", *(most_behind(learner, case) if learner in case else "" for case in found.values()))
    yield row("verdict", *(verdict(learner, case) if learner in case else "" for case in found.values()))
    yield ""


def cost_table(by_case: dict[str, Records], learner: str) -> Iterator[str]:
    """Yield a table of median CPU seconds and of exceptions."""
    methods = list(dict.fromkeys(r["method"] for records in by_case.values() for r in records))
    yield row("CPU seconds, median (exceptions)", *by_case)
    yield "|" + "---|" * (len(by_case) + 1)
    for method in sorted(methods, key=lambda m: m != learner):
        cells = []
        for records in by_case.values():
            mine = [r for r in records if r["method"] == method]
            failed = Counter(r["exception"][0] for r in mine if r["exception"])
            text = f"{np.median([r['seconds'] for r in mine]):.2f}" if mine else ""
            cells.append(text + "".join(f" ({count} {name})" for name, count in failed.items()))
        yield row(method, *cells)
    yield ""


def below_baseline(records: Records, learner: str, baseline: str) -> list[tuple[dict[str, Any], str, float]]:
    """Return (record, score, difference) of fits that are below the baseline by more than BELOW."""
    point = ("case", "set", "columns", "seed", "rows")
    plain = {tuple(r[k] for k in point): r["scores"] for r in records if r["method"] == baseline}
    found = []
    for record in records:
        reference = plain.get(tuple(record[k] for k in point), {})
        if record["method"] == learner and not record["exception"]:
            gaps = {name: value - reference[name] for name, value in record["scores"].items() if name in reference}
            found += [(record, name, gap) for name, gap in gaps.items() if gap < -BELOW]
    return found


@dataclass(frozen=True)
class Shortfalls:
    """Fits of a learner that are below its baseline, those of them without a warning, and what held-out data said."""

    fits: int
    exceptions: int
    low: int
    silent: list[tuple[dict[str, Any], str, float]]
    measured: int
    worse: int
    right: int

    @property
    def quiet(self) -> int:
        """Number of fits below the baseline without a warning."""
        return len({id(r) for r, _, _ in self.silent})


def shortfalls(records: Records, learner: str, baseline: str) -> Shortfalls:
    """Return what `Shortfalls` holds of a learner's records."""
    mine = [r for r in records if r["method"] == learner]
    low = below_baseline(records, learner, baseline)
    ids = {id(r) for r, _, _ in low}
    silent = [one for one in low if not {kind for kind, _ in one[0]["warnings"]} & set(SAYS_SO)]
    worse = {id(r) for r in mine if r.get("quality", {}).get("is_worse")}
    measured, failed = sum("quality" in r for r in mine), sum(bool(r["exception"]) for r in mine)
    return Shortfalls(len(mine), failed, len(ids), silent, measured, len(worse), len(worse & ids))


def summary(records: Records) -> Iterator[str]:
    """Yield a table of the learners' shortfalls."""
    yield row(
        "learner", "fits", "exceptions", "baseline", "below it", "without a warning", "with a held-out measure",
        "that finds the alternative better", "of these below the baseline",
    )  # fmt: skip
    yield "|" + "---|" * 9
    for question, learner, baseline in LEARNERS.values():
        counts = shortfalls([r for r in records if r["question"] == question], learner, baseline)
        if counts.fits:
            numbers = (counts.low, counts.quiet, counts.measured, counts.worse, counts.right)
            yield row(learner, counts.fits, counts.exceptions, baseline, *numbers)
    yield ""


def failure_lines(records: Records, learner: str, baseline: str) -> Iterator[str]:
    """Yield sentences on fits below the baseline without a warning, on exceptions and on warnings."""
    mine = [r for r in records if r["method"] == learner]
    silent = shortfalls(records, learner, baseline).silent
    places: dict[tuple[str, str], list[float]] = defaultdict(list)
    for r, name, gap in silent:
        places[r["set"], f"{r['case']}, {name}"].append(gap)
    worst = sorted(places.items(), key=lambda one: sum(one[1]))[:10]
    if worst:
        shown = (f"{name} ({what}: {signed(min(gaps))}, {len(gaps)} seeds)" for (name, what), gaps in worst)
        yield f"Below {baseline} by more than {short(BELOW)} without a warning, the worst: " + "; ".join(shown) + "."
    failed: dict[tuple[str, str], list[str]] = defaultdict(list)
    for r in mine:
        if r["exception"]:
            failed[r["exception"][0], r["case"]].append(r["set"])
    if failed:
        shown = (f"{kind}, {case}: {', '.join(dict.fromkeys(names))}" for (kind, case), names in failed.items())
        yield "Exceptions: " + "; ".join(shown) + "."
    said = Counter((kind, re.sub(r"[\d.,]+", "#", text)[:60]) for r in mine for kind, text in r["warnings"])
    if said:
        shown = (f"{count} {kind} ({text} ...)" for (kind, text), count in said.most_common(4))
        yield "Warnings (fits): " + "; ".join(shown) + "."
    yield ""


def page(records: Records) -> str:
    """Return the tables of all learners, as Markdown."""
    commits = Counter(r["commit"] for r in records)
    shown = ", ".join(f"{name} ({count})" for name, count in commits.items())
    lines = [f"{len(records)} fits; commits: {shown}.\n", *summary(records)]
    for word, (question, learner, baseline) in LEARNERS.items():
        for columns in ("standardized", "raw"):
            asked = QUESTIONS[question]
            names = {learner, *asked.peers}
            own = [r for r in records if r["question"] == question and r["columns"] == columns and r["method"] in names]
            if not any(r["method"] == learner for r in own):
                continue
            of = [r for r in own if r["method"] == learner]
            number, seeds = (len({r[key] for r in of}) for key in ("set", "seed"))
            lines.append(f"## {learner} (`--learner {word}`), {columns} columns: {number} sets, {seeds} seeds\n")
            by_case = {case: [r for r in own if r["case"] == case] for case in asked.cases}
            by_case = {case: some for case, some in by_case.items() if some}
            for score in dict.fromkeys(name for r in own if r["method"] == learner for name in r["scores"]):
                lines += score_table(learner, by_case, score)
            lines += cost_table(by_case, learner)
            lines += failure_lines(own, learner, baseline)
    return "\n".join(lines)
