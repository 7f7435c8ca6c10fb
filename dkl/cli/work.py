"""`dkl fit` and `dkl resume`: a run from its inputs, or from wherever it stands, to its end."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click

from dkl.blocks.graph import build_graph
from dkl.blocks.session import Session
from dkl.cli.forecast import check_fits
from dkl.cli.inputs import Inputs, check_new, check_settings, check_unchanged, load_rows, read_inputs
from dkl.cli.interrupt import Interrupt, resume_command
from dkl.cli.place import Cluster
from dkl.cli.runs import graph_notes, has_problem, open_run, settings_of
from dkl.cli.show import describe_report
from dkl.errors import ConvergenceWarning, InputError, InterruptedRunError, MemoryBudgetError, StoreError
from dkl.estimators.pairwise_run import fit_problem, load_problem, report_of, store_problem
from dkl.estimators.pairwise_settings import Settings
from dkl.estimators.progress import Progress
from dkl.pairs import load_pairs
from dkl.resources import peak_rss
from dkl.solvers.result import Result
from dkl.stores.generations import write_json
from dkl.stores.run import RunStore

SOLVED, NOT_CONVERGED = 0, 3


def fit_run(data: str, pairs: str, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> int:
    """Check everything, make the run, and work on it. The exit code."""
    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, pairs, settings, values=True)
    if cluster.address is None:  # one that runs is asked when we are connected
        check_fits(inputs, settings, cluster.place(), path.parent)
    with Interrupt(resume_command(path), settings.max_iter) as interrupt, cluster.session() as session, notes():
        run = start_run(inputs, path, settings)
        del inputs  # its memory: patterns are read again, or are mapped
        try:
            return conclude(run, work(run, settings, session, interrupt))
        except (InputError, MemoryBudgetError):
            if not has_problem(run):
                shutil.rmtree(run.path)  # ours, made just now, and nothing in it
            raise
        finally:
            run.close()


def start_run(inputs: Inputs, path: Path, settings: Settings) -> RunStore:
    """A new run, locked, that knows what it is to be made from."""
    config = {
        "command": "fit pairwise",
        "dkl": version("dkl"),
        "inputs": inputs.fingerprints(),
        "settings": settings.as_dict(),
    }
    return RunStore.create(path, config)


def resume_run(path: str, changes: dict[str, Any], placing: dict[str, Any]) -> int:
    """Go on with a run. The exit code."""
    run = open_run(path)
    settings = settings_of(run, changes)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    if run.is_complete and not _goes_further(run, changes):
        click.echo(f"{run.path}: complete, nothing to do")
        click.echo(describe_report(run.report()))
        return SOLVED
    run.lock()
    try:
        again = resume_command(run.path, changes)
        with Interrupt(again, settings.max_iter) as interrupt, cluster.session() as session, notes():
            run.sweep()
            if run.is_complete:
                # The run is unfinished again; what it came to is kept beside.
                (run.path / "report.json").rename(run.path / f"report-{run.report()['n_iter']:06d}.json")
            return conclude(run, work(run, settings, session, interrupt))
    finally:
        run.close()


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


def conclude(run: RunStore, result: Result) -> int:
    """Print how it ended. The exit code."""
    click.echo(f"{run.path}: {result.outcome.value}")
    click.echo(describe_report(run.report()))
    if result.outcome.converged:
        return SOLVED
    click.echo(f"dkl: not converged: {result.message}; the result is written", err=True)
    return NOT_CONVERGED


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


def worker_peak(session: Session) -> int | None:
    """The most memory that a worker has used."""
    if not session.is_distributed:
        return None
    with suppress(Exception):  # a figure for the report, no more
        return max(session.client.run(peak_rss).values(), default=None)
    return None


@contextmanager
def notes() -> Iterator[None]:
    """Warnings as lines for a person; that of no convergence is left to the exit code and its line."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        click.echo(f"note: {' '.join(str(message).split())}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.showwarning = show
        yield


def _goes_further(run: RunStore, changes: dict[str, Any]) -> bool:
    """Whether the changes ask for more than a complete run has."""
    report = run.report()
    gap = float(report.get("certificate", {}).get("relative_gap", 0.0))
    if changes.get("target_gap", gap) < gap:
        return True
    return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > report.get("n_iter", 0)
