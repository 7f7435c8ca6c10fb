"""The course of `dkl fit` and `dkl resume`, whatever is learned: begun or gone on with, interrupted, told how it ended."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from dkl.blocks.session import Session
from dkl.errors import ConvergenceWarning, DiskError, InputError, MemoryBudgetError
from dkl.resources import format_bytes, peak_rss
from dkl.runs.cluster import Cluster
from dkl.runs.interrupt import Interrupt
from dkl.solvers.result import Outcome
from dkl.stores.run import RunStore

SOLVED, NOT_CONVERGED = 0, 3

Describe = Callable[[dict[str, Any]], str]


@contextmanager
def beginning(
    path: Path,
    config: dict[str, Any],
    interrupt: Interrupt,
    cluster: Cluster,
    of_use: Callable[[RunStore], bool] = lambda run: False,
) -> Iterator[tuple[RunStore, Session]]:
    """A new run and the session that works on it. After bad input the run goes again, unless there is something in it."""
    with interrupt, cluster.session() as session, notes():
        run = RunStore.create(path, config)
        try:
            yield run, session
        except (InputError, MemoryBudgetError):
            if not of_use(run):
                shutil.rmtree(run.path)  # ours, made just now
            raise
        finally:
            run.close()


@contextmanager
def going_on(run: RunStore, interrupt: Interrupt, cluster: Cluster) -> Iterator[Session]:
    """The session that works on an old run, which is locked, and unfinished again if it was complete."""
    try:
        run.lock()
        with interrupt, cluster.session() as session, notes():
            run.sweep()
            if run.is_complete:  # what it came to is kept beside
                (run.path / "report.json").rename(run.path / f"report-{run.report()['n_iter']:06d}.json")
            yield session
    finally:
        run.close()


def nothing_to_do(run: RunStore, describe: Describe) -> int:
    """Print what a complete run came to. The exit code."""
    click.echo(f"{run.path}: complete, nothing to do")
    click.echo(describe(run.report()))
    return SOLVED


def conclude(run: RunStore, outcome: Outcome, why: str, describe: Describe) -> int:
    """Print how it ended; `why` it did not converge. The exit code."""
    click.echo(f"{run.path}: {outcome.value}")
    click.echo(describe(run.report()))
    if outcome.converged:
        return SOLVED
    click.echo(f"dkl: not converged: {why}; the result is written", err=True)
    return NOT_CONVERGED


def has_had_too_few_iterations(run: RunStore, changes: dict[str, Any]) -> bool:
    """Whether more iterations are asked for than a complete run was given, and it lacked them."""
    report: dict[str, Any] = run.report()
    before = report.get("settings", {}).get("max_iter", 0)
    return report.get("outcome") == Outcome.ITERATION_LIMIT.value and changes.get("max_iter", 0) > before


def check_disk(needed: int, folder: Path, mend: str) -> None:
    """DiskError where a run takes more than is free there."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise DiskError(
            "the run does not fit on that disk",
            where=str(folder),
            got=f"{format_bytes(free)} free",
            wanted=format_bytes(needed),
            mend=mend,
        )


def describe_disk(needed: int, folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    return f"  {'disk, at most':<34}{format_bytes(needed):>10}   free {format_bytes(free)}"


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
