"""The commands of click: parse, import what does the work, call it. `fit` and `plan` have a command for each
learner of the registry; no other knows any learner.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import resources
from typing import Any

import click

from dkl.cli import options
from dkl.cli.reproduce import datasets, reproduce
from dkl.cli.sweep import compare, sweep_command
from dkl.errors import InputError
from dkl.estimators.base.rules import Integer, Size
from dkl.runs import registry
from dkl.runs.interrupt import echo
from dkl.runs.registry import Declaration

PAPERS = ("kl-admm", "slkl", "onk", "trin", "sqlp")
"""Pages of the papers: each as printed and as here."""
TOPICS = (
    "learners",
    "files",
    "commands",
    "quality",
    "quadratic",
    "scale",
    "reproducibility",
    "safety",
    "papers",
    *PAPERS,
)
"""Pages in the order in which they are listed."""


def contents() -> str:
    """List the topics, each with its page's title."""
    titles = {topic: _text(topic).partition("\n")[0].partition(": ")[2] for topic in TOPICS}
    return "\n".join(f"{topic:<17}{title}" for topic, title in titles.items())


def page(topic: str) -> str:
    """Return a page for a terminal: its Markdown with the text of links in place of the links.

    Raises InputError for a topic that does not exist.
    """
    if topic not in TOPICS:
        raise InputError("no such topic", where="guide", got=topic, wanted=", ".join(TOPICS))
    # A terminal follows no link, and the pages' links are relative to the repository.
    return re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", _text(topic)).rstrip("\n")


def _text(topic: str) -> str:
    return (resources.files("dkl") / "guide" / f"{topic}.md").read_text(encoding="utf-8")


FIT_HELP = """{help}

Files and --out may be addresses of an object store, as s3://bucket/key.

Works on threads of this process; --workers starts worker processes on 127.0.0.1, --scheduler submits to a cluster. Ctrl-C
commits what is done; `dkl resume` continues from it.
"""
SUBMIT_HELP = """{help}

As a job: checked here as `dkl fit {task}` would, begun here, worked on by `dkl resume` where the job runs. --workers are
the job's own, of --memory-limit each; --scheduler has it use a cluster that runs. See cluster/README.md.
"""
PLAN_HELP = """What `dkl fit {task}` with the same options would take. Reads shapes, writes nothing."""


class Tasks(click.Group):
    """Group with a command for each learner, made when asked for: other declarations are not imported.
    `commands`: further ones."""

    def __init__(self, make: Callable[[Declaration], click.Command], **given: Any) -> None:
        super().__init__(no_args_is_help=True, **given)
        self.make = make

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the learners' names."""
        return [*registry.TASKS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a learner; None for an unknown name."""
        # Made when it is called: `dkl --help` imports no declaration but the registry's names.
        made = self.make(registry.declaration(cmd_name)) if cmd_name in registry.TASKS else None
        return made or super().get_command(ctx, cmd_name)


def _fit_command(declaration: Declaration) -> click.Command:
    def run(out: str, picture: bool, **given: Any) -> None:
        files = options.given_files(declaration, given)
        placing, chosen = options.split(given)
        # Imported when called, here and below: `dkl --help`, and the refusal of a wrong option, do not wait for zarr and dask.
        from dkl.runs import driver
        from dkl.runs.inputs.readers import files_within

        with files_within(chosen.get("memory_limit")):
            raise click.exceptions.Exit(driver.begin(declaration.task, files, out, picture, chosen, placing))

    return _command(declaration, run, FIT_HELP)


def _plan_command(declaration: Declaration) -> click.Command:
    def run(out: str, picture: bool, **given: Any) -> None:
        files = options.given_files(declaration, given)
        placing, chosen = options.split(given)
        from dkl.runs import driver
        from dkl.runs.inputs.readers import files_within

        with files_within(chosen.get("memory_limit")):
            driver.plan(declaration.task, files, out, picture, chosen, placing)

    return _command(declaration, run, PLAN_HELP)


def _submit_command(declaration: Declaration) -> click.Command:
    def run(out: str, picture: bool, **given: Any) -> None:
        files = options.given_files(declaration, given)
        how = options.pop(given, options.JOB_NAMES)
        placing, chosen = options.split(given)
        from dkl.runs.inputs.readers import files_within
        from dkl.runs.jobs import verbs

        with files_within(chosen.get("memory_limit")):
            raise click.exceptions.Exit(verbs.submit(declaration.task, files, out, picture, chosen, placing, how))

    return _command(declaration, run, SUBMIT_HELP, (*options.JOB_PLACE, *options.JOB))


def _command(
    declaration: Declaration, run: Callable[..., None], help: str, place: Iterable[options.Command] = options.PLACE
) -> click.Command:
    given = [
        *options.files(declaration),
        *options.columns(declaration),
        *options.settings(declaration.settings),
        options.PICTURE,
        *place,
    ]
    text = help.format(help=declaration.help, task=declaration.task)
    return click.command(declaration.task, help=text)(options.together(given)(run))


class Resume(click.Command):
    """Command whose options are what some learner lets a resumed run change, looked up when needed."""

    def __init__(self, *given: Any, place: Iterable[options.Command] = options.PLACE, **more: Any) -> None:
        super().__init__(*given, **more)
        self.place = list(place)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the options, made at the first call."""
        if not self.params:
            # Of all learners: which one a run is of is only known once its folder is read, and click parses first.
            limits = options.limits(map(registry.declaration, registry.TASKS))
            bare = options.together([click.argument("run"), *limits, *self.place])(lambda: None)
            # Where click keeps a function's options until it is a command, the last one first.
            self.params = list(reversed(getattr(bare, "__click_params__")))  # noqa: B009
        return super().get_params(ctx)


def _resume(run: str, **given: Any) -> None:
    placing, changes = options.split(given)
    from dkl.runs import driver

    raise click.exceptions.Exit(driver.resume(run, changes, placing))


resume = Resume(
    "resume",
    callback=_resume,
    help="""Continue a run from its last commit, after any end.

With a higher --max-iter, or a lower --target-gap where its learner has one, also a run that ended unsolved. A cluster need
not be the one from before: the result has the same bytes on any, with the same versions on processors of the same kind.
""",
)


def _resubmit(run: str, **given: Any) -> None:
    how = options.pop(given, options.JOB_NAMES)
    placing, changes = options.split(given)
    from dkl.runs.jobs import verbs

    raise click.exceptions.Exit(verbs.resubmit(run, changes, placing, how))


resubmit = Resume(
    "resume",
    callback=_resubmit,
    place=(*options.JOB_PLACE, *options.JOB),
    help="""Continue a run from its last commit as a job, after any end of the one before.""",
)


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(run: str, as_json: bool) -> None:
    """Show the state of a submitted run, and of its job."""
    from dkl.runs.jobs import verbs

    verbs.status(run, as_json=as_json)


@click.command()
@click.argument("run")
def cancel(run: str) -> None:
    """Have a submitted run's job commit and end; it can be resumed."""
    from dkl.runs.jobs import verbs

    verbs.cancel(run)


@click.command()
@click.argument("run")
@click.option("--json", "as_json", is_flag=True, help="All of it, for programs.")
@click.option("--picture", metavar="FILE", help="Draw it too, as .png, .pdf or .svg; must not exist.")
def info(run: str, as_json: bool, picture: str | None) -> None:
    """Show a run's state, certificate, history and plan; or what a file of `dkl cluster` holds."""
    from dkl.runs import clustering, driver

    if clustering.is_clusters(run):
        clustering.info(run, as_json=as_json, picture=picture)
        return
    driver.info(run, as_json=as_json, picture=picture)


@click.command()
@click.argument("run")
@click.option("--data", required=True, metavar="FILE", help="Patterns, as many features as those learned from.")
@options.together(options.COLUMNS)
@click.option("--out", required=True, metavar="FILE", help=".npz (key factor), .npy or .csv; must not exist.")
@options.MEMORY_LIMIT
@options.together(options.PLACE)
def transform(run: str, data: str, out: str, **given: Any) -> None:
    """Write the learned coordinates of rows: of a learner of pairs the factor's rows, for new rows from their neighbors'."""
    table = options.table(given)
    placing, rest = options.split(given)
    from dkl.runs import driver
    from dkl.runs.inputs.readers import files_within

    request = {"data": data, "table": table, "memory_limit": rest.get("memory_limit")}
    with files_within(rest.get("memory_limit")):
        driver.apply("transform", run, out, request, placing)


@click.command()
@click.argument("run")
@click.option("--data", required=True, metavar="FILE", help="Rows, as many features as those learned from.")
@click.option("--targets", metavar="FILE", help="What is known of them, to compare with [y beside the rows].")
@options.together([*options.COLUMNS, options.TARGET_COLUMN])
@click.option("--out", required=True, metavar="FILE", help=".npy, .npz (key y) or .csv; must not exist.")
@click.option("--decision", is_flag=True, help="Of a classifier: decision values in place of labels.")
@options.MEMORY_LIMIT
@options.together(options.PLACE)
def predict(run: str, data: str, targets: str | None, out: str, decision: bool, **given: Any) -> None:
    """Predict labels or targets of rows, in their order; with targets also say how good they are."""
    table = options.table(given)
    placing, rest = options.split(given)
    from dkl.runs import driver
    from dkl.runs.inputs.readers import files_within

    known = {"data": data, "targets": targets, "table": table}
    request = {**known, "decision": decision, "memory_limit": rest.get("memory_limit")}
    with files_within(rest.get("memory_limit")):
        driver.apply("predict", run, out, request, placing)


@click.command()
@click.argument("run")
@click.option("--k", type=options.Ruled(Integer(1)), help="Number of clusters.")
@click.option(
    "--out",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Labels as .csv or .npy; all that `dkl info`, `dkl.load` and --clusters read, as .npz. Must not exist; may be repeated.",
)
@click.option("--data", metavar="FILE", help="Other rows to cluster, of the same features [those learned from].")
@options.together(options.COLUMNS)
@click.option(
    "--clusters", metavar="FILE.npz", help="In place of --k: label the rows by the nearest centers of an earlier --out."
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the random starts [0].")
@click.option("--n-init", type=options.Ruled(Integer(1)), default=10, help="Starts, of which the best counts [10].")
@click.option("--max-iter", type=options.Ruled(Integer(1)), default=300, help="Most iterations of a start [300].")
@click.option("--picture", metavar="FILE", help="Draw the clusters, as .png, .pdf or .svg; must not exist.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found for programs.")
@options.MEMORY_LIMIT
@options.together(options.PLACE)
def cluster(run: str, **given: Any) -> None:
    """Cluster the rows of a run by kernel k-means: its factor's, or its coordinates of them.

    A .csv file has a label (0, 1, ...) a line, in the order of the rows; of rows with ids (--id-column) a line of names and each
    row's id before its label.
    """
    table = options.table(given)
    placing, chosen = options.split(given)
    from dkl.runs import clustering
    from dkl.runs.inputs.readers import files_within

    options_given = clustering.ClusterOptions(**chosen, table=table)
    with files_within(options_given.memory_limit):
        raise click.exceptions.Exit(clustering.cluster(run, options_given, placing))


@click.command()
@click.argument("run")
@click.option(
    "--memory-limit",
    type=options.Ruled(Size()),
    help="Bytes for what is read at a time [a quarter of the machine].",
)
def verify(run: str, memory_limit: int | None) -> None:
    """Compute objective, certificate and quality again from what is on disk, by code that shares nothing with the solvers."""
    from dkl.runs import driver
    from dkl.runs.inputs.readers import files_within

    with files_within(memory_limit):
        driver.verify(run, memory_limit)


@click.command()
@click.option("--out", metavar="FOLDER", help="Must not exist [dkl-demo, dkl-demo-2, ...].")
@click.option(
    "--workers", type=options.Ruled(Integer(1)), help="Worker processes [2, or a core each if there are fewer]."
)
def demo(out: str | None, workers: int | None) -> None:
    """Learn a kernel of handwritten digits from pairs on this machine's cores, in under a minute."""
    from dkl.cli.demo import run_demo

    raise click.exceptions.Exit(run_demo(out, workers))


@click.command()
def warmup() -> None:
    """Compile once for this user and machine what first fits of every learner would wait for: a minute of a processor."""
    from dkl.runs.warmup import warm_up

    warm_up()


@click.command()
@click.argument("topic", required=False)
def guide(topic: str | None) -> None:
    """Print a page of the guide; without TOPIC, list the pages."""
    echo(contents() if topic is None else page(topic))


COMMANDS: dict[str, click.Command] = {
    "demo": demo,
    "guide": guide,
    "warmup": warmup,
    "reproduce": reproduce,
    "datasets": datasets,
    "fit": Tasks(_fit_command, name="fit", help="Learn a kernel, and keep it in a run's folder."),
    "plan": Tasks(_plan_command, name="plan", help="Say beforehand what memory, disk and time it takes."),
    "resume": resume,
    "submit": Tasks(
        _submit_command,
        name="submit",
        commands={"resume": resubmit},
        help="Fit as a job of SLURM or Kubernetes, or on machines by ssh.",
    ),
    "sweep": Tasks(
        sweep_command,
        name="sweep",
        commands={"compare": compare},
        help="Fit for several n and settings, and say how cost grows.",
    ),
    "status": status,
    "cancel": cancel,
    "info": info,
    "transform": transform,
    "predict": predict,
    "cluster": cluster,
    "verify": verify,
}
