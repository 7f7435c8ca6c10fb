"""What a regression run holds, as text for a person or JSON for a program."""

from __future__ import annotations

import json
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dkl.cli.regression_inputs import open_run
from dkl.cli.show import describe_plan
from dkl.errors import StoreError
from dkl.resources import format_bytes
from dkl.stores.run import RunStore

MOST_OUTPUTS = 8
MOST_NUS = 9
"""Lines of a table."""


def show_run(path: str, *, as_json: bool) -> None:
    run = open_run(path)
    table = cv_table(run) if run.is_complete else []
    facts = {"path": str(run.path), "state": state_of(run), "config": run.config, "report": run.report(), "cv": table}
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    click.echo(f"{run.path}: {facts['state']}")
    click.echo("\n".join(_describe_config(run)))
    if run.is_complete:
        click.echo(describe_report(run.report()))
        if table:
            click.echo("\n" + "\n".join(_describe_cv(table)))
        click.echo("\n" + "\n".join(describe_plan(run.report())))


def state_of(run: RunStore) -> str:
    """Where the run stands."""
    if run.is_complete:
        return f"complete, {run.report().get('outcome')}"
    commits = [event for event in run.events() if event.get("event") == "commit"]
    if commits and any((run.path / "sums").glob("sums-*")):
        last = commits[-1]
        panels = "" if last.get("panels", 1) == 1 else f" of pass {last.get('panel', 0) + 1} of {last['panels']}"
        return f"resumable at {last.get('done')} of {last.get('of')} groups of rows{panels}"
    return "not begun" if not (run.path / "candidates").is_dir() else "not begun; the columns are chosen"


def describe_report(report: dict[str, Any]) -> str:
    """Result, certificate and costs of a run that has ended."""
    try:
        outputs, seconds = report["outputs"], report["seconds"]
        how = "by cross-validation" if report["settings"]["nu"] == "cv" else "given"
        stages = ", ".join(f"{stage} {value:.3g}" for stage, value in seconds.items() if stage != "total")
        lines = {
            "nu": f"{report['nu']:.6g}   {how}; from {report['nu_max']:.6g} on all weights are zero",
            "columns": f"{report['n_columns']:,}, of which active {report['n_active']:,}",
            "steps": str(report["n_iter"]),
        }
        for number, output in enumerate(outputs[:MOST_OUTPUTS]):
            name = "" if len(outputs) == 1 else f" of target {number}"
            lines[f"objective{name}"] = f"{output['objective']:.10g}"
            lines[f"proven relative gap{name}"] = f"{output['relative_gap']:.3g}"
        if len(outputs) > MOST_OUTPUTS:
            lines["largest relative gap"] = f"{max(output['relative_gap'] for output in outputs):.3g}"
        lines["seconds"] = f"{seconds['total']:.3g}   {stages}"
        lines["peak memory"] = format_bytes(report["peak_bytes"])
        if report.get("worker_peak_bytes"):
            lines["peak memory of a worker"] = format_bytes(report["worker_peak_bytes"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError("a damaged report", where="report.json", got=f"{type(error).__name__}: {error}") from error
    return "\n".join(f"  {name:<32}{value}" for name, value in lines.items())


def cv_table(run: RunStore) -> list[dict[str, Any]]:
    """A row a value of nu: mean squared error on rows held out, its spread over the folds, active columns; [] without."""
    found = run.read_arrays("model")
    if "cv_errors" not in found:
        return []
    try:
        nus, errors, active = found["cv_nus"], found["cv_errors"], found["cv_active"]
        return [_row(float(nu), errors[k], active[k], run.report()["nu"]) for k, nu in enumerate(nus)]
    except (KeyError, IndexError, ValueError) as error:
        raise StoreError("damaged errors of cross-validation", where=f"{run.path}/model", got=error) from error


def _row(nu: float, errors: NDArray[np.float64], active: NDArray[np.int64], chosen: float) -> dict[str, Any]:
    """From errors and active columns (K, T)."""
    return {
        "nu": nu,
        "error": errors.mean(axis=0).tolist(),
        "spread": errors.std(axis=0, ddof=1).tolist(),
        "n_active": float(active.mean()),
        "chosen": nu == chosen,
    }


def _describe_cv(table: list[dict[str, Any]]) -> list[str]:
    """The table in brief: both ends, the chosen nu and its neighbours."""
    place = next((k for k, row in enumerate(table) if row["chosen"]), 0)
    near = {k for k in range(place - 2, place + 3) if 0 <= k < len(table)}
    spread = np.linspace(0, len(table) - 1, max(2, MOST_NUS - len(near))).astype(int).tolist()
    targets = len(table[0]["error"])
    head = "mean squared error on rows held out" + (", mean of targets" if targets > 1 else "")
    lines = [f"{head}: {len(table)} values of nu", f"{'nu':>14}{'error':>14}{'+-':>12}{'active':>10}"]
    for k in sorted(near | set(spread)):
        row = table[k]
        mark = "   chosen" if row["chosen"] else ""
        error, plus = np.mean(row["error"]), np.mean(row["spread"])
        lines.append(f"{row['nu']:>14.5g}{error:>14.6g}{plus:>12.3g}{row['n_active']:>10.1f}{mark}")
    return lines


def _describe_config(run: RunStore) -> list[str]:
    inputs: Any = run.config.get("inputs", {})
    lines = [f"  {what:<32}{inputs[what].get('path')}" for what in ("data", "targets") if what in inputs]
    shown = {name: value for name, value in run.config["settings"].items() if value not in (None, {})}
    return [*lines, f"  {'settings':<32}" + ", ".join(f"{name} {value}" for name, value in shown.items())]
