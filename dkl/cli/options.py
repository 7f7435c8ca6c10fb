"""Options of the commands, made from the learners' declarations.
Nothing large is imported: a wrong option is reported at once."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from typing import Any

import click

from dkl.errors import InputError
from dkl.estimators.base.rules import Either, Flag, Folder, Integer, ListOf, Rule, Size, Word
from dkl.estimators.base.settings import SettingDeclaration, Settings, declared
from dkl.io.reading import TableOptions
from dkl.runs.registry import Declaration, InputFile

Command = Callable[..., Any]


class Ruled(click.ParamType):
    """A value that a rule accepts."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = _metavar(rule)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return the value that a text represents; what is a value already, such as a default, is unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self.rule.parse(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        except ValueError:
            # None is an option that is left out, so it is no text to type.
            self.fail(f"{value!r} is not {self.rule.wanted.removesuffix(', or None')}.", param, ctx)


def _metavar(rule: Rule) -> str:
    kinds = {Integer: "integer", Word: "word", Size: "size", Folder: "folder"}
    first = rule.rules[0] if isinstance(rule, Either) else rule
    return kinds.get(type(first), "number")


def together(options: Iterable[Command]) -> Callable[[Command], Command]:
    """Combine several options into one decorator, shown in this order."""

    def decorate(command: Command) -> Command:
        # click lists first what is applied last.
        for option in reversed(list(options)):
            command = option(command)
        return command

    return decorate


def files(declaration: Declaration) -> list[Command]:
    """Return the options --data, --pairs and the like, and --out."""
    found = [_file(file) for file in declaration.files]
    return [*found, click.option("--out", required=True, metavar="RUN", help="Folder for the run; must not exist.")]


def given_files(declaration: Declaration, given: dict[str, object]) -> dict[str, object]:
    """Remove the files and the options of delimited text from a command's keyword arguments; return them."""
    return {file.name: given.pop(file.name) for file in declaration.files} | {"table": table(given)}


def _file(file: InputFile) -> Command:
    return click.option(f"--{file.name}", required=file.required, metavar="FILE", help=file.help)


def settings(kind: type[Settings]) -> list[Command]:
    """Return an option for each setting that has one."""
    return [_setting(known) for known in declared(kind).values() if known.has_option]


def _setting(known: SettingDeclaration) -> Command:
    rule, text = known.rule, f"{known.help}{_default(known)}"
    # None stands for an option that is not given: defaults are the declaration's.
    if isinstance(rule, Flag):
        # A setting that is on by default has a flag that turns it off, which has another help.
        flag, text = (known.flag, text) if known.off is None else (known.off.option, known.off.help)
        return click.option(flag, known.name, is_flag=True, default=None, flag_value=known.off is None, help=text)
    if isinstance(rule, Either) and any(isinstance(part, Flag) for part in rule.rules):
        # Such as --standardize and --no-standardize; what else the rule takes, as "auto", is the default.
        return click.option(f"{known.flag}/--no-{known.flag[2:]}", known.name, default=None, help=known.help)
    if isinstance(rule, Either) and any(isinstance(part, ListOf) for part in rule.rules):
        each = next(part.each for part in rule.rules if isinstance(part, ListOf))
        single = next(part for part in rule.rules if not isinstance(part, ListOf))
        return click.option(
            known.flag, known.name, multiple=True, callback=_one_or_several(each), type=_type(single), help=text
        )
    return click.option(known.flag, known.name, type=_type(rule), help=text)


def _type(rule: Rule) -> click.ParamType:
    """Return click's type of a rule: a choice of words, or text that the rule parses."""
    plain = [part for part in rule.rules if hasattr(part, "words")] if isinstance(rule, Either) else []
    if isinstance(rule, Word):
        return click.Choice(rule.words)
    if isinstance(rule, Either) and len(plain) == 1 and len(rule.rules) == 2 and rule.accepts(None):
        return click.Choice(plain[0].words)
    return Ruled(rule)


def _one_or_several(each: Rule) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], str | list[str] | None]:
    """Return a callback that gives None, the one value, or a list of several that may be combined."""

    def chosen(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | list[str] | None:
        if len(given) < 2:
            return given[0] if given else None
        for value in given:
            if not each.accepts(value):
                raise click.BadParameter(f"{value!r} is not {each.wanted}.", context, option)
        return list(given)

    return chosen


def _default(known: SettingDeclaration) -> str:
    if known.default in (None, {}) or isinstance(known.rule, Flag):
        return ""
    return f" [{known.default:g}]" if isinstance(known.default, float) else f" [{known.default}]"


def limits(declarations: Iterable[Declaration]) -> list[Command]:
    """Return an option for each setting that `dkl resume` may change, with the help of each learner that has it."""
    found: dict[str, list[tuple[str, SettingDeclaration]]] = {}
    for declaration in declarations:
        for known in declared(declaration.settings).values():
            if known.resumable:
                found.setdefault(known.name, []).append((declaration.task, known))
    return [_limit(known) for known in found.values()]


def _limit(known: list[tuple[str, SettingDeclaration]]) -> Command:
    texts: dict[str, list[str]] = {}
    for task, setting in known:
        texts.setdefault(setting.help, []).append(task)
    text = (
        known[0][1].help if len(texts) == 1 else " ".join(f"{' and '.join(of)}: {help}" for help, of in texts.items())
    )
    first = known[0][1]
    return click.option(first.flag, first.name, type=_type(first.rule), help=text)


def _names(context: click.Context, option: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
    """Return names of columns from values with commas, or from several options; quotes protect a comma."""
    return tuple(name.strip() for text in given for row in csv.reader([text], skipinitialspace=True) for name in row)


COLUMNS = (
    click.option(
        "--header/--no-header",
        default=None,
        help="Of .csv and .tsv, also .gz: whether line 1 holds names, of --data or, where that is no text, of the others [by its content].",
    ),
    click.option("--delimiter", metavar="CHARACTER", help="Of .csv and .tsv: between cells [comma, semicolon or tab]."),
    click.option("--decimal", type=click.Choice([",", "."]), help="Of .csv and .tsv: in numbers [by their cells]."),
    click.option(
        "--features",
        multiple=True,
        metavar="NAME,...",
        callback=_names,
        help="Columns to learn from, by name or number from 1 [all columns].",
    ),
    click.option("--drop", multiple=True, metavar="NAME,...", callback=_names, help="Columns that are no features."),
    click.option("--id-column", metavar="NAME", help="Column of ids of the rows, which is no feature."),
)
TARGET_COLUMN = click.option(
    "--target-column", metavar="NAME", help="Column of what is learned, of --data or of the file of --targets."
)
TABLE = ("header", "delimiter", "decimal", "features", "drop", "id_column", "target_column")
"""Names of the options of delimited text."""


def columns(declaration: Declaration) -> list[Command]:
    """Return the options of delimited text that a learner takes."""
    has_targets = any(file.name == "targets" for file in declaration.files)
    return [*COLUMNS, *([TARGET_COLUMN] if has_targets else [])]


def table(given: dict[str, Any]) -> TableOptions:
    """Remove the options of delimited text from a command's keyword arguments; return them."""
    takes_targets = "target_column" in given  # then the command has the option, given or not
    found = {name: given.pop(name, None) for name in TABLE}
    chosen = {name: value for name, value in found.items() if value not in (None, ())}
    return TableOptions(**chosen, takes_targets=takes_targets)


PICTURE = click.option(
    "--picture/--no-picture",
    default=False,
    help="Draw report.png too; `dkl info RUN` draws a picture at any later time.",
)
MEMORY_LIMIT = click.option("--memory-limit", type=Ruled(Size()), help='Bytes a process may use, as "4 GB".')

PLACE = (
    click.option(
        "--workers", type=Ruled(Integer(1)), help="Start this many worker processes here [none: threads of this one]."
    ),
    click.option("--threads", type=Ruled(Integer(1)), help="Threads of this process [one a core]."),
    click.option(
        "--scheduler", metavar="ADDRESS", help="Dask scheduler to submit to, tls://... or tcp://127.0.0.1:..."
    ),
    click.option("--scheduler-file", metavar="FILE", help="The same, from the file that the scheduler wrote."),
    click.option(
        "--wait-for", type=Ruled(Integer(1)), help="Workers of that cluster to wait for, once its file is there [1]."
    ),
    click.option(
        "--tls-ca", metavar="FILE", help="Authority of a tls:// cluster's certificates [Dask's configuration]."
    ),
    click.option("--tls-cert", metavar="FILE", help="The certificate to show there."),
    click.option("--tls-key", metavar="FILE", help="Its key."),
    click.option("--insecure", is_flag=True, help="Allow plain tcp:// to another machine."),
)
JOB_PLACE = (
    click.option(
        "--workers",
        type=Ruled(Integer(1)),
        help="Worker processes of the job, a core each [none: threads of one machine].",
    ),
    click.option(
        "--threads", type=Ruled(Integer(1)), help="Threads of the job without workers [as many as cores here]."
    ),
    *PLACE[2:],
)
JOB = (
    click.option(
        "--on", required=True, metavar="SYSTEM", help="slurm, kubernetes, ssh, or a FILE.yaml that says more."
    ),
    click.option("--wait", is_flag=True, help="Until the job has ended; exit as it did."),
    click.option("--follow", is_flag=True, help="The same, and show what it prints meanwhile."),
    click.option("--dry-run", is_flag=True, help="Print what would be submitted."),
    click.option(
        "--job-folder",
        metavar="FOLDER",
        help="Of a run in an object store: for the job's files and the work, where all its machines see it [RUN/job].",
    ),
)
JOB_NAMES = ("on", "wait", "follow", "dry_run", "job_folder")
OF_CLUSTERS = ("wait_for", "tls_ca", "tls_cert", "tls_key")
"""Options for clusters that already run."""


def pop(given: dict[str, object], names: Iterable[str]) -> dict[str, object]:
    """Take options by name out of a command's keyword arguments and return them."""
    return {name: given.pop(name) for name in names}


def split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (options of the place, settings that were given) out of a command's keyword arguments."""
    names = ("workers", "threads", "scheduler", "scheduler_file", "insecure", *OF_CLUSTERS)
    placing = pop(given, names)
    chosen = [name for name in ("workers", "scheduler", "scheduler_file") if placing[name] is not None]
    if len(chosen) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(f"{flags} exclude each other.")
    if chosen and placing["threads"] is not None:
        raise click.UsageError("--threads is for work without a cluster; workers have one thread each.")
    for name in OF_CLUSTERS:
        if placing[name] is not None and placing["scheduler"] is None and placing["scheduler_file"] is None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for a cluster that runs: --scheduler names it.")
    return placing, {name: value for name, value in given.items() if value is not None}
