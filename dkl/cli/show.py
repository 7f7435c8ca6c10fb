"""What a run holds, as text for a person or JSON for a program."""

from __future__ import annotations

import json
from typing import Any

import click

from dkl.cli.runs import graph_notes, has_problem, newest, open_run, rows_of
from dkl.errors import StoreError
from dkl.resources import format_bytes
from dkl.stores.run import RunStore

LAST_ROWS = 5
COLUMNS = ("iteration", "objective", "primal_residual", "dual_residual", "rho_used", "seconds")


def show_run(path: str, *, as_json: bool) -> None:
    run = open_run(path)
    rows = rows_of(run)
    facts = {
        "path": str(run.path),
        "state": state_of(run),
        "config": run.config,
        "report": run.report(),
        "history": rows,
    }
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    click.echo(f"{run.path}: {facts['state']}")
    click.echo("\n".join(_describe_config(run)))
    if run.is_complete:
        click.echo(describe_report(run.report()))
    if rows:
        click.echo(f"\nlast of {len(rows)} iterations")
        click.echo("\n".join(_table(rows[-LAST_ROWS:])))
    if run.is_complete:
        click.echo("\n" + "\n".join(describe_plan(run.report())))


def state_of(run: RunStore) -> str:
    """Where the run stands."""
    if run.is_complete:
        return f"complete, {run.report().get('outcome')}"
    generation = newest(run)
    if generation is not None:
        return f"resumable at iteration {generation.iteration}"
    return "not begun; graph and pairs are stored" if has_problem(run) else "not begun; the graph is not built yet"


def describe_report(report: dict[str, Any]) -> str:
    """Result, certificate and costs of a run that has ended."""
    try:
        certificate, seconds = report["certificate"], report["seconds"]
        stages = ", ".join(f"{stage} {value:.3g}" for stage, value in seconds.items() if stage != "total")
        lines = {
            "iterations": str(report["n_iter"]),
            "rank": str(report["rank"]),
            "objective": f"{certificate['objective']:.10g}",
            "proven relative gap": f"{certificate['relative_gap']:.3g}   no kernel of any rank is better by more than"
            f" {certificate['gap']:.3g}",
            "seconds": f"{seconds['total']:.3g}   {stages}",
            "peak memory": format_bytes(report["peak_bytes"]),
        }
        if report.get("worker_peak_bytes"):
            lines["peak memory of a worker"] = format_bytes(report["worker_peak_bytes"])
        if report.get("restarts"):
            lines["restarts after lost workers"] = str(report["restarts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError("a damaged report", where="report.json", got=f"{type(error).__name__}: {error}") from error
    return "\n".join(f"  {name:<28}{value}" for name, value in lines.items())


def _describe_config(run: RunStore) -> list[str]:
    inputs: Any = run.config.get("inputs", {})
    lines = [f"  {what:<28}{inputs[what].get('path')}" for what in ("data", "pairs") if what in inputs]
    shown = {name: value for name, value in run.config["settings"].items() if value is not None}
    lines.append(f"  {'settings':<28}" + ", ".join(f"{name} {value}" for name, value in shown.items()))
    notes = graph_notes(run)
    if notes:
        known = ", ".join(f"{name} {value}" for name, value in notes.items() if name != "summary")
        lines.append(f"  {'graph':<28}{notes.get('summary', known)}")
    return lines


def describe_plan(report: dict[str, Any]) -> list[str]:
    plan = report.get("plan", {})
    lines = [f"plan: state in {plan.get('placement')}, {plan.get('processes')} process(es)"]
    for part in ("items", "disk"):
        lines += [f"  {name:<34}{format_bytes(size):>10}" for name, size in plan.get(part, {}).items()]
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
    names = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = ["".join(f"{name.replace('_', ' '):>17}" for name in names)]
    for row in rows:
        lines.append("".join(f"{row[name]:>17.8g}" if name in row else f"{'':>17}" for name in names))
    return lines
