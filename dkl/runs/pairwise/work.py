"""`dkl fit` and `dkl resume`: a run from its inputs, or from wherever it stands, to its end."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import click

from dkl.blocks.graph import build_graph
from dkl.blocks.session import Session
from dkl.errors import InterruptedRunError, StoreError
from dkl.estimators.common.progress import Progress
from dkl.estimators.pairwise.fit import fit_problem, load_problem, report_of, store_problem
from dkl.estimators.pairwise.settings import Settings
from dkl.pairs import load_pairs
from dkl.runs.cluster import Cluster
from dkl.runs.driver import beginning, conclude, going_on, nothing_to_do, worker_peak
from dkl.runs.files import Inputs, check_new, check_settings, check_unchanged, load_rows, read_inputs
from dkl.runs.interrupt import Interrupt, resume_command
from dkl.runs.pairwise.estimate import check_fits
from dkl.runs.pairwise.facts import describe_report
from dkl.runs.stored import graph_notes, has_problem, open_run, settings_of
from dkl.solvers.result import Result
from dkl.stores.generations import write_json
from dkl.stores.run import RunStore


def fit_run(data: str, pairs: str, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> int:
    """Check everything, make the run, and work on it. The exit code."""
    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, pairs, settings, values=True)
    if cluster.address is None:  # one that runs is asked when we are connected
        check_fits(inputs, settings, cluster.place(), path.parent)
    config = config_of(inputs, settings)
    del inputs  # its memory: patterns are read again, or are mapped
    interrupt = Interrupt(resume_command(path), settings.max_iter)
    with beginning(path, config, interrupt, cluster, has_problem) as (run, session):
        return _ended(run, work(run, settings, session, interrupt))


def config_of(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """What a run is to be made from, as it keeps it."""
    return {
        "command": "fit pairwise",
        "dkl": version("dkl"),
        "inputs": inputs.fingerprints(),
        "settings": settings.as_dict(),
    }


def resume_run(path: str, changes: dict[str, Any], placing: dict[str, Any]) -> int:
    """Go on with a run. The exit code."""
    run = open_run(path)
    settings = settings_of(run, changes)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    if run.is_complete and not _goes_further(run, changes):
        return nothing_to_do(run, describe_report)
    interrupt = Interrupt(resume_command(run.path, changes), settings.max_iter)
    with going_on(run, interrupt, cluster) as session:
        return _ended(run, work(run, settings, session, interrupt))


def _ended(run: RunStore, result: Result) -> int:
    return conclude(run, result.outcome, result.message, describe_report)


def work(run: RunStore, settings: Settings, session: Session, interrupt: Interrupt) -> Result:
    """From where the (locked) run stands to its report, which is written."""
    seconds = {} if has_problem(run) else prepare(run, settings, session)
    problem = load_problem(run, settings.gamma)
    try:
        fitted = fit_problem(
            problem,
            settings,
            session,
            run=run,
            callbacks=[Progress(settings.max_iter), interrupt],
            seconds=seconds,
        )
    except InterruptedRunError as stopped:
        raise KeyboardInterrupt(interrupt.line(f"{stopped.what}, which is committed")) from stopped
    report = report_of(fitted, graph_notes(run)) | {"worker_peak_bytes": worker_peak(session)}
    run.write_report(report, fitted.certificate.lift)
    return fitted.result


def prepare(run: RunStore, settings: Settings, session: Session) -> dict[str, float]:
    """Build the graph from the run's inputs and store it with the pairs. Seconds by stage."""
    inputs = run.config.get("inputs")
    if not isinstance(inputs, dict) or not {"data", "pairs"} <= inputs.keys():
        raise StoreError("no graph is stored, nor what to build it from", where=str(run.path), mend="begin a new run")
    rows = load_rows(check_unchanged(inputs["data"], "patterns"))
    pairs = load_pairs(check_unchanged(inputs["pairs"], "pairs")).check(rows.n)
    graph = build_graph(
        rows,
        n_neighbors=settings.n_neighbors,
        sigma=settings.sigma,
        laplacian=settings.laplacian,
        method=settings.neighbors_method,
        memory_limit=settings.memory_limit,
        session=session,
    )
    known = {"sigma": graph.sigma, "n_neighbors": graph.n_neighbors, "laplacian": graph.kind}
    run.config["graph"] = {**known, "summary": graph.describe()}
    write_json(run.path / "config.json", run.config)
    store_problem(run, graph.laplacian, pairs, known)
    click.echo(graph.describe())
    return {"graph": graph.seconds}


def _goes_further(run: RunStore, changes: dict[str, Any]) -> bool:
    """Whether the changes ask for more than a complete run has."""
    report = run.report()
    gap = float(report.get("certificate", {}).get("relative_gap", 0.0))
    if changes.get("target_gap", gap) < gap:
        return True
    return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > report.get("n_iter", 0)
