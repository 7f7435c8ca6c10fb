"""`dkl fit regression` and `dkl resume` of its runs: from the inputs, or from wherever a run stands, to its end."""

from __future__ import annotations

import shutil
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import click

from dkl.blocks.session import Session
from dkl.cli.inputs import check_new
from dkl.cli.interrupt import PassInterrupt, resume_command
from dkl.cli.place import Cluster
from dkl.cli.regression_forecast import check_fits
from dkl.cli.regression_inputs import (
    RegressionInputs,
    check_settings,
    inputs_again,
    open_run,
    read_inputs,
    settings_of,
)
from dkl.cli.regression_show import describe_report
from dkl.cli.work import NOT_CONVERGED, SOLVED, notes, worker_peak
from dkl.errors import DklError, InputError, InterruptedRunError, MemoryBudgetError
from dkl.estimators.column_settings import RegressionSettings
from dkl.estimators.progress import StageProgress
from dkl.estimators.regression_run import FittedColumns
from dkl.estimators.regression_store import fit_in_run
from dkl.stores.run import RunStore

REMEDIES = {
    "iteration_limit": "raise --max-iter: `dkl resume` takes it too",
    "stalled": "rounding ends all progress: raise --tol, or --nu",
}


def fit_run(
    data: str, targets: str | None, out: str, picture: bool | None, chosen: dict[str, Any], placing: dict[str, Any]
) -> int:
    """Check everything, make the run, and work on it. The exit code."""
    settings = check_settings(chosen)
    check_picture(picture)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, targets, settings, values=True)
    settings = with_folds(settings, inputs.rows.n)
    if cluster.address is None:  # one that runs is asked when we are connected
        check_fits(inputs, settings, cluster.place(), path.parent)
    config = {
        "command": "fit regression",
        "task": "regression",
        "dkl": version("dkl"),
        "inputs": inputs.fingerprints(),
        "settings": settings.as_dict(),
        "picture": picture is not False,
    }
    with PassInterrupt(resume_command(path)) as interrupt, cluster.session() as session, notes():
        run = RunStore.create(path, config)
        try:
            return conclude(run, work(run, inputs, settings, session, interrupt))
        except (InputError, MemoryBudgetError):
            shutil.rmtree(run.path)  # ours, made just now, and of no use to anyone
            raise
        finally:
            run.close()


def with_folds(settings: RegressionSettings, n: int) -> RegressionSettings:
    """No more folds than rows."""
    return replace(settings, cv=min(settings.cv, n)) if settings.nu == "cv" else settings


def check_picture(picture: bool | None) -> None:
    if picture and find_spec("matplotlib") is None:
        raise InputError("matplotlib is missing", where="--picture", mend="pip install 'dkl[report]'")


def resume_run(path: str, changes: dict[str, Any], placing: dict[str, Any]) -> int:
    """Go on with a run. The exit code."""
    run = open_run(path)
    settings = settings_of(run, changes)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    if run.is_complete and not _goes_further(run, changes):
        click.echo(f"{run.path}: complete, nothing to do")
        click.echo(describe_report(run.report()))
        return SOLVED
    inputs = inputs_again(run, settings)
    run.lock()
    try:
        with (
            PassInterrupt(resume_command(run.path, changes)) as interrupt,
            cluster.session() as session,
            notes(),
        ):
            run.sweep()
            if run.is_complete:
                # The run is unfinished again; what it came to is kept beside.
                (run.path / "report.json").rename(run.path / f"report-{run.report()['n_iter']:06d}.json")
            return conclude(run, work(run, inputs, settings, session, interrupt))
    finally:
        run.close()


def work(
    run: RunStore, inputs: RegressionInputs, settings: RegressionSettings, session: Session, interrupt: PassInterrupt
) -> FittedColumns:
    """From where the (locked) run stands to its report, which is written, and its picture."""
    y, offsets = inputs.centred(settings)
    try:
        fitted = fit_in_run(
            run, inputs.rows, y, None, offsets, settings, session,
            callbacks=[StageProgress(), interrupt],
            notes=lambda: {"worker_peak_bytes": worker_peak(session)},
        )  # fmt: skip
    except InterruptedRunError as stopped:
        raise KeyboardInterrupt(interrupt.line(f"{stopped.what}, whose sums are committed")) from stopped
    if run.config.get("picture", True) and find_spec("matplotlib") is not None:
        draw(run, inputs, session)
    return fitted


def draw(run: RunStore, inputs: RegressionInputs, session: Session) -> None:
    """report.png. The run is complete without it, so what is amiss is said, no more."""
    from dkl.estimators.regression_report import draw_run

    try:
        picture = draw_run(run, inputs.rows, inputs.targets, session)
    except (OSError, DklError) as error:
        click.echo(f"note: no picture: {' '.join(str(error).split())}", err=True)
        return
    if picture is not None:
        click.echo(f"picture: {picture}")


def conclude(run: RunStore, fitted: FittedColumns) -> int:
    """Print how it ended. The exit code."""
    outcome = fitted.result.outcome
    click.echo(f"{run.path}: {outcome.value}")
    click.echo(describe_report(run.report()))
    if outcome.converged:
        return SOLVED
    remedy = REMEDIES.get(outcome.value, outcome.remedy)
    click.echo(f"dkl: not converged: {outcome.value}: {remedy}; the result is written", err=True)
    return NOT_CONVERGED


def _goes_further(run: RunStore, changes: dict[str, Any]) -> bool:
    """Whether more iterations are asked for than a complete run was given, and it lacked them."""
    report: dict[str, Any] = run.report()
    before = report.get("settings", {}).get("max_iter", 0)
    return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > before
