"""`dkl fit regression` and `dkl resume` of its runs: from the inputs, or from wherever a run stands, to its end."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import click

from dkl.blocks.session import Session
from dkl.errors import DklError, InputError, InterruptedRunError
from dkl.estimators.columns.settings import RegressionSettings
from dkl.estimators.common.progress import StageProgress
from dkl.estimators.regression.fit import FittedColumns
from dkl.estimators.regression.store import fit_in_run
from dkl.runs.cluster import Cluster
from dkl.runs.driver import beginning, conclude, going_on, has_had_too_few_iterations, nothing_to_do, worker_peak
from dkl.runs.files import check_new
from dkl.runs.interrupt import PassInterrupt, resume_command
from dkl.runs.regression.estimate import check_fits
from dkl.runs.regression.facts import describe_report
from dkl.runs.regression.inputs import (
    RegressionInputs,
    check_settings,
    inputs_again,
    open_run,
    read_inputs,
    settings_of,
)
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
    interrupt = PassInterrupt(resume_command(path))
    with beginning(path, config, interrupt, cluster) as (run, session):
        return _ended(run, work(run, inputs, settings, session, interrupt))


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
    if run.is_complete and not has_had_too_few_iterations(run, changes):
        return nothing_to_do(run, describe_report)
    inputs = inputs_again(run, settings)
    interrupt = PassInterrupt(resume_command(run.path, changes))
    with going_on(run, interrupt, cluster) as session:
        return _ended(run, work(run, inputs, settings, session, interrupt))


def _ended(run: RunStore, fitted: FittedColumns) -> int:
    outcome = fitted.result.outcome
    remedy = REMEDIES.get(outcome.value, outcome.remedy)
    return conclude(run, outcome, f"{outcome.value}: {remedy}", describe_report)


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
    from dkl.estimators.regression.picture import draw_run

    try:
        picture = draw_run(run, inputs.rows, inputs.targets, session)
    except (OSError, DklError) as error:
        click.echo(f"note: no picture: {' '.join(str(error).split())}", err=True)
        return
    if picture is not None:
        click.echo(f"picture: {picture}")
