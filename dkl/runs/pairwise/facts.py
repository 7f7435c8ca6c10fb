"""What a run of pairs holds, as text for a person or JSON for a program."""

from __future__ import annotations

from typing import Any

from dkl.runs import report as summary
from dkl.runs.stored import graph_notes, has_problem, newest, open_run, rows_of
from dkl.stores.run import RunStore

LAST_ROWS = 5
COLUMNS = ("iteration", "objective", "primal_residual", "dual_residual", "rho_used", "seconds")


def show_run(path: str, *, as_json: bool) -> None:
    run = open_run(path)
    rows = rows_of(run)
    table = [f"last of {len(rows)} iterations", *_table(rows[-LAST_ROWS:])] if rows else []
    summary.show(run, state_of(run), {"history": rows}, _describe_config(run), _result, table, as_json=as_json)


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
    return summary.describe_report(report, _result)


def _result(report: dict[str, Any]) -> dict[str, str]:
    certificate = report["certificate"]
    return {
        "iterations": str(report["n_iter"]),
        "rank": str(report["rank"]),
        "objective": f"{certificate['objective']:.10g}",
        "proven relative gap": f"{certificate['relative_gap']:.3g}   no kernel of any rank is better by more than"
        f" {certificate['gap']:.3g}",
    }


def _describe_config(run: RunStore) -> list[str]:
    lines, notes = summary.describe_config(run, ("data", "pairs")), graph_notes(run)
    if notes:
        known = ", ".join(f"{name} {value}" for name, value in notes.items() if name != "summary")
        lines.append(summary.line("graph", str(notes.get("summary", known))))
    return lines


def _table(rows: list[dict[str, Any]]) -> list[str]:
    names = [name for name in COLUMNS if any(name in row for row in rows)]
    lines = ["".join(f"{name.replace('_', ' '):>17}" for name in names)]
    for row in rows:
        lines.append("".join(f"{row[name]:>17.8g}" if name in row else f"{'':>17}" for name in names))
    return lines
