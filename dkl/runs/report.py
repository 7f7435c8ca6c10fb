"""A run and its report, shown to a person or a program."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from dkl.errors import DklError, StoreError
from dkl.resources import format_bytes
from dkl.runs.kind import Facts
from dkl.stores.run import RunStore

SHOWN = 200
"""Characters of an error that is told: it may hold a number of any length."""
WIDTH = 32
"""Of names in a list of them."""
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
"""What reading a report raises that lacks a part, or has another in its place."""


def require(run: RunStore) -> dict[str, Any]:
    """The report of a complete run; StoreError where there is none."""
    found: dict[str, Any] = run.report()
    if not found:
        raise StoreError("no result yet", where=str(run.path), remedy="`dkl resume` it first")
    return found


@contextmanager
def damages(run: RunStore, part: str = "report", file: str = "report.json") -> Iterator[None]:
    """A report, or another part of a run, that lacks something is a StoreError, whoever reads it."""
    try:
        yield
    except DklError:  # an InputError is a ValueError too
        raise
    except DAMAGED as error:
        got = f"{type(error).__name__}: {error}"[:SHOWN]
        raise StoreError(f"a damaged {part}", where=str(run.path / file), got=got) from error


def show(run: RunStore, facts: Facts, inputs: Iterable[str], *, as_json: bool) -> None:
    """Print where a run stands, what it was begun with, what it found, a table of its learner's, and its plan."""
    report = run.report()
    if as_json:
        shown = {"path": str(run.path), "state": facts.state, "config": run.config, "report": report}
        click.echo(json.dumps({**shown, **facts.details}, indent=1))
        return
    click.echo(f"{run.path}: {facts.state}")
    click.echo("\n".join(_config(run, facts, inputs)))
    if report:
        click.echo(describe_result(facts, report))
    if facts.table:
        click.echo("\n" + "\n".join(facts.table))
    if report:
        click.echo("\n" + "\n".join(_plan(report)))


def describe_result(facts: Facts, report: dict[str, Any]) -> str:
    """What a complete run has found, and what that cost; StoreError for a report that lacks it."""
    try:
        costs = _costs(report)
    except DAMAGED as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError("a damaged report", where="report.json", got=got) from error
    return "\n".join(line(name, value) for name, value in {**facts.result, **costs}.items())


def line(name: str, value: str) -> str:
    """A name and what belongs to it."""
    return f"  {name:<{WIDTH}}{value}"


def _config(run: RunStore, facts: Facts, inputs: Iterable[str]) -> list[str]:
    known: Any = run.config.get("inputs", {})
    lines = [line(name, str(known[name].get("path"))) for name in inputs if name in known]
    shown = {name: value for name, value in run.config["settings"].items() if value not in (None, {})}
    lines.append(line("settings", ", ".join(f"{name} {value}" for name, value in shown.items())))
    return [*lines, *(line(name, value) for name, value in facts.config.items())]


def _costs(report: dict[str, Any]) -> dict[str, str]:
    seconds = report["seconds"]
    stages = ", ".join(f"{stage} {value:.3g}" for stage, value in seconds.items() if stage != "total")
    lines = {"seconds": f"{seconds['total']:.3g}   {stages}", "peak memory": format_bytes(report["peak_bytes"])}
    if report.get("worker_peak_bytes"):
        lines["peak memory of a worker"] = format_bytes(report["worker_peak_bytes"])
    if report.get("restarts"):
        lines["restarts after lost workers"] = str(report["restarts"])
    return lines


def _plan(report: dict[str, Any]) -> list[str]:
    plan = report.get("plan", {})
    lines = [f"plan: state in {plan.get('placement')}, {plan.get('processes')} process(es)"]
    for part in ("items", "disk"):
        lines += [f"  {name:<34}{format_bytes(size):>10}" for name, size in plan.get(part, {}).items()]
    return lines
