"""What every kind of run has to tell, as text for a person or JSON for a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import click

from dkl.errors import StoreError
from dkl.resources import format_bytes
from dkl.stores.run import RunStore

WIDTH = 32
"""Of names in a list of them."""

Report = dict[str, Any]


def show(
    run: RunStore,
    state: str,
    facts: dict[str, Any],
    config: list[str],
    result: Callable[[Report], dict[str, str]],
    table: list[str],
    *,
    as_json: bool,
) -> None:
    """Print where a run stands, what it was begun with, what it came to, a table of its kind, and its plan.

    facts: more of them, for programs.
    """
    report = run.report()
    if as_json:
        shown = {"path": str(run.path), "state": state, "config": run.config, "report": report, **facts}
        click.echo(json.dumps(shown, indent=1))
        return
    click.echo(f"{run.path}: {state}")
    click.echo("\n".join(config))
    if report:
        click.echo(describe_report(report, result))
    if table:
        click.echo("\n" + "\n".join(table))
    if report:
        click.echo("\n" + "\n".join(_describe_plan(report)))


def describe_report(report: Report, result: Callable[[Report], dict[str, str]]) -> str:
    """The result as `result` names its parts, and what it cost; StoreError for a report that lacks them."""
    try:
        return "\n".join(line(name, value) for name, value in {**result(report), **_costs(report)}.items())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StoreError("a damaged report", where="report.json", got=f"{type(error).__name__}: {error}") from error


def describe_config(run: RunStore, inputs: Iterable[str]) -> list[str]:
    """The named inputs' files, and the settings that are not left open."""
    known: Any = run.config.get("inputs", {})
    lines = [line(what, str(known[what].get("path"))) for what in inputs if what in known]
    shown = {name: value for name, value in run.config["settings"].items() if value not in (None, {})}
    return [*lines, line("settings", ", ".join(f"{name} {value}" for name, value in shown.items()))]


def line(name: str, value: str) -> str:
    return f"  {name:<{WIDTH}}{value}"


def _costs(report: Report) -> dict[str, str]:
    seconds = report["seconds"]
    stages = ", ".join(f"{stage} {value:.3g}" for stage, value in seconds.items() if stage != "total")
    lines = {"seconds": f"{seconds['total']:.3g}   {stages}", "peak memory": format_bytes(report["peak_bytes"])}
    if report.get("worker_peak_bytes"):
        lines["peak memory of a worker"] = format_bytes(report["worker_peak_bytes"])
    if report.get("restarts"):
        lines["restarts after lost workers"] = str(report["restarts"])
    return lines


def _describe_plan(report: Report) -> list[str]:
    plan = report.get("plan", {})
    lines = [f"plan: state in {plan.get('placement')}, {plan.get('processes')} process(es)"]
    for part in ("items", "disk"):
        lines += [f"  {name:<34}{format_bytes(size):>10}" for name, size in plan.get(part, {}).items()]
    return lines
