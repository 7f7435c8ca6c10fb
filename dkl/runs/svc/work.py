"""`dkl fit svc` and `dkl resume` of its runs: from the inputs, or from wherever a run stands, to its end."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from dkl.blocks.session import Session
from dkl.estimators.common.progress import StageProgress
from dkl.estimators.svc.learner import OptimalNeighborhoodSVC
from dkl.estimators.svc.model import describe_classes
from dkl.estimators.svc.settings import SVCRunSettings
from dkl.estimators.svc.store import fit_in_run
from dkl.runs.cluster import Cluster
from dkl.runs.driver import beginning, conclude, going_on, has_had_too_few_iterations, nothing_to_do, worker_peak
from dkl.runs.files import check_new
from dkl.runs.interrupt import PassInterrupt, resume_command
from dkl.runs.svc.estimate import check_fits
from dkl.runs.svc.facts import describe_report
from dkl.runs.svc.inputs import SVCInputs, check_settings, inputs_again, open_run, read_inputs, settings_of
from dkl.stores.run import RunStore

REMEDIES = {
    "iteration_limit": "raise --max-iter: `dkl resume` takes it too",
    "stalled": "rounding ends all progress: raise --tol, or use --dtype float64",
}


def fit_run(data: str, targets: str | None, out: str, chosen: dict[str, Any], placing: dict[str, Any]) -> int:
    """Check everything, make the run, and work on it. The exit code."""
    settings = check_settings(chosen)
    path = check_new(out, may_be_empty_folder=True)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = read_inputs(data, targets, settings, values=True)
    if cluster.address is None:  # one that runs is asked when we are connected
        with cluster.planned() as session:
            check_fits(inputs, settings, session, path.parent)
    config = {
        "command": "fit svc",
        "task": "svc",
        "dkl": version("dkl"),
        "inputs": inputs.fingerprints(),
        "classes": describe_classes(inputs.classes),
        "settings": settings.as_dict(),
    }
    interrupt = PassInterrupt(resume_command(path))
    with beginning(path, config, interrupt, cluster) as (run, session):
        return _ended(run, work(run, inputs, settings, session, interrupt))


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


def work(
    run: RunStore, inputs: SVCInputs, settings: SVCRunSettings, session: Session, interrupt: PassInterrupt
) -> OptimalNeighborhoodSVC:
    """From where the (locked) run stands to its report, which is written."""
    try:
        return fit_in_run(
            run, inputs.rows, inputs.labels, settings, session,
            callbacks=[StageProgress(), interrupt],
            notes=lambda: {"worker_peak_bytes": worker_peak(session)},
        )  # fmt: skip
    except KeyboardInterrupt as stopped:
        if not interrupt.signal:
            raise
        raise KeyboardInterrupt(interrupt.line("what the solver had found is committed")) from stopped


def _ended(run: RunStore, model: OptimalNeighborhoodSVC) -> int:
    outcome = model.result_.outcome
    remedy = REMEDIES.get(outcome.value, outcome.remedy)
    return conclude(run, outcome, f"{outcome.value}: {remedy}", describe_report)
