"""The commands, as click knows them: parse, import what does the work, call it."""

from __future__ import annotations

from typing import Any

import click

from dkl.cli import options, regression_options, svc_options


@click.group(no_args_is_help=True)
def fit() -> None:
    """Learn a kernel, and keep it in a run's folder."""


@fit.command("pairwise")
@options.inputs
@options.settings
@options.place
def fit_pairwise(data: str, pairs: str, out: str, **given: Any) -> None:
    """Learn a kernel from must-link and cannot-link pairs.

    Works on threads of this process; --workers starts worker processes on 127.0.0.1, --scheduler submits to a cluster.
    Ctrl-C commits the current iteration; `dkl resume` goes on from it.
    """
    place, changes = options.split(given)
    from dkl.runs.pairwise.work import fit_run

    raise click.exceptions.Exit(fit_run(data, pairs, out, changes, place))


@fit.command("regression")
@regression_options.inputs
@regression_options.settings
@regression_options.picture
@options.place
def fit_regression(data: str, targets: str | None, out: str, picture: bool | None, **given: Any) -> None:
    """Learn to predict targets from rows: kernel regression on a sparse, learned combination of kernel columns.

    One pass over the rows adds up all that the solver needs; Ctrl-C commits the sums, `dkl resume` goes on from them.
    """
    place, changes = options.split(given)
    from dkl.runs.regression.work import fit_run

    raise click.exceptions.Exit(fit_run(data, targets, out, picture, changes, place))


@fit.command("svc")
@svc_options.inputs
@svc_options.settings
@options.place
def fit_svc(data: str, targets: str | None, out: str, **given: Any) -> None:
    """Learn to tell classes apart: a support vector machine that learns its kernel in the neighbourhood of a given one.

    Ctrl-C commits what the solver has found; `dkl resume` goes on from it.
    """
    place, changes = options.split(given)
    from dkl.runs.svc.work import fit_run

    raise click.exceptions.Exit(fit_run(data, targets, out, changes, place))


@click.group(no_args_is_help=True)
def plan() -> None:
    """Tell memory, disk and time beforehand."""


@plan.command("pairwise")
@options.inputs
@options.settings
@options.place
def plan_pairwise(data: str, pairs: str, out: str, **given: Any) -> None:
    """What `dkl fit pairwise` with the same options would take. Reads shapes and pairs, writes nothing."""
    place, changes = options.split(given)
    from dkl.runs.pairwise.estimate import show_plan

    show_plan(data, pairs, out, changes, place)


@plan.command("regression")
@regression_options.inputs
@regression_options.settings
@regression_options.picture
@options.place
def plan_regression(data: str, targets: str | None, out: str, picture: bool | None, **given: Any) -> None:
    """What `dkl fit regression` with the same options would take. Reads shapes and targets, writes nothing."""
    place, changes = options.split(given)
    from dkl.runs.regression.estimate import show_plan

    show_plan(data, targets, out, changes, place)


@plan.command("svc")
@svc_options.inputs
@svc_options.settings
@options.place
def plan_svc(data: str, targets: str | None, out: str, **given: Any) -> None:
    """What `dkl fit svc` with the same options would take. Reads shapes and labels, writes nothing."""
    place, changes = options.split(given)
    from dkl.runs.svc.estimate import show_plan

    show_plan(data, targets, out, changes, place)


@click.command()
@click.argument("run")
@options.limits
@options.place
def resume(run: str, **given: Any) -> None:
    """Go on with a run from its last commit, after any end.

    With a higher --max-iter or a --target-gap also a run that ended unsolved. A cluster need not be the one from before:
    the result has the same bytes on any with processors of the same kind.
    """
    place, changes = options.split(given)
    task = _task_of(run)
    if task == "regression":
        from dkl.runs.regression.work import resume_run
    elif task == "svc":
        from dkl.runs.svc.work import resume_run
    else:
        from dkl.runs.pairwise.work import resume_run

    raise click.exceptions.Exit(resume_run(run, changes, place))


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="All of it, for programs.")
def info(run: str, as_json: bool) -> None:
    """What a run holds: its state, certificate, history and plan."""
    task = _task_of(run)
    if task == "regression":
        from dkl.runs.regression.facts import show_run
    elif task == "svc":
        from dkl.runs.svc.facts import show_run
    else:
        from dkl.runs.pairwise.facts import show_run

    show_run(run, as_json=as_json)


@click.command()
@click.argument("run")
@click.option("--data", required=True, metavar="FILE", help="Patterns, as many features as those learned from.")
@click.option("--out", required=True, metavar="FILE", help=".npz (key factor) or .npy; must not exist.")
def transform(run: str, data: str, out: str) -> None:
    """Rows of the factor for patterns: for those learned from their own, for others from their neighbours."""
    from dkl.runs.output import transform_run

    transform_run(run, data, out)


@click.command()
@click.argument("run")
@click.option("--data", required=True, metavar="FILE", help="Rows, as many features as those learned from.")
@regression_options.targets
@click.option("--out", required=True, metavar="FILE", help=".npy, .npz (key y) or .csv; must not exist.")
@click.option("--decision", is_flag=True, help="Of a classifier: decision values in place of labels.")
@click.option("--memory-limit", type=options.Size(), help='Bytes a process may use, as "4 GB".')
@options.place
def predict(run: str, data: str, targets: str | None, out: str, decision: bool, **given: Any) -> None:
    """Predictions of a regression or a classifier for rows, in their order; with targets also how good they are."""
    place, changes = options.split(given)
    from dkl.runs.apply import predict_run

    predict_run(run, data, targets, out, decision, changes.get("memory_limit"), place)


@click.command()
@click.argument("run")
@click.option(
    "--memory-limit", type=options.Size(), help="Bytes for what is read at a time [a quarter of the machine]."
)
def verify(run: str, memory_limit: int | None) -> None:
    """Compute objective and certificate anew from what is on disk, by code that shares nothing with the solvers."""
    task = _task_of(run)
    if task == "regression":
        from dkl.runs.regression.verify import verify_run
    elif task == "svc":
        from dkl.runs.svc.verify import verify_run
    else:
        from dkl.runs.pairwise.verify import verify_run

    verify_run(run, memory_limit)


@click.command()
@click.option("--out", metavar="FOLDER", help="Must not exist [dkl-demo, dkl-demo-2, ...].")
@click.option("--workers", type=options.Count(), help="Worker processes [2, or a core each if there are fewer].")
def demo(out: str | None, workers: int | None) -> None:
    """Learn a kernel of handwritten digits from pairs on this machine's cores, in under a minute."""
    from dkl.cli.demo import run_demo

    raise click.exceptions.Exit(run_demo(out, workers))


def _task_of(run: str) -> str:
    """Which kind of run it is."""
    from dkl.runs.stored import task_of
    from dkl.stores.run import RunStore

    return task_of(RunStore.open(run))


COMMANDS: dict[str, click.Command] = {
    "demo": demo,
    "fit": fit,
    "plan": plan,
    "resume": resume,
    "info": info,
    "transform": transform,
    "predict": predict,
    "verify": verify,
}
