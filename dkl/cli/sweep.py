"""`dkl sweep`: a command per learner with `dkl fit`'s options, most of which take several values; and `compare`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from dkl.cli import options
from dkl.estimators.base.rules import Integer, Real, Rule
from dkl.runs.registry import Declaration

SWEEP_HELP = """{help}

A fit for each n and each combination of values: most options of `dkl fit {task}` take several, with commas between them.
Each is a run in a process of its own, below FOLDER/points. Data are made up for each n, or the rows of --data. The same
command again continues: finished points stay, a run that was under way is resumed, one that failed is tried again.
"""
TYPED = "dkl.typed"
MOST = 2**63
"""Bound on the size of an integer option: 1e999999999 would otherwise be expanded to all its digits."""


class Values(list[Any]):
    """Several values of an option; a plain list is one value, such as a path of gammas."""


class Several(click.ParamType):
    """Type of an option's values with commas between them."""

    def __init__(self, each: click.ParamType) -> None:
        self.each, self.name = each, each.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Return a list of the option's own values."""
        if not isinstance(value, str):
            return value
        return Values(self.each.convert(text.strip(), param, ctx) for text in value.split(","))


class Count(click.ParamType):
    """Type of an integer, which may be written as 3e4."""

    name = "integer"

    def __init__(self, least: int) -> None:
        self.rule = Integer(least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Convert text to a whole number; fail for a fraction or a number that is too small."""
        try:
            # Decimal, not float: 2**53 + 1 rows typed as digits must not be rounded, and 3e4 is a whole number.
            number = Decimal(value)
            if abs(number) < MOST and number == number.to_integral_value() and self.rule.accepts(int(number)):
                return int(number)
        except InvalidOperation:
            pass
        return self.fail(f"{value!r} is not {self.rule.wanted}.", param, ctx)


class _Typed(click.Command):
    """Command that stores what was typed, for the line on how to continue."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, and store the command as typed in `ctx.meta`."""
        # From the arguments themselves: parsed values have lost their form, such as 3e4.
        ctx.meta[TYPED] = shlex.join([*ctx.command_path.split(), *args])
        return super().parse_args(ctx, args)


SHAPE = (
    click.option("--n", required=True, type=Several(Count(2)), metavar="INTEGER,...", help="Rows, as 1e4,3e4,1e5."),
    click.option("--repeat", type=options.Ruled(Integer(1)), default=1, help="Fits of each point [1]."),
)
DATA = (
    click.option(
        "--n-constraints",
        type=Several(Count(1)),
        metavar="INTEGER,...",
        help="Pairs, half of either kind, or labeled rows that are drawn of made up data [by the data's own rule].",
    ),
    click.option("--data-seed", type=options.Ruled(Integer(0)), default=0, help="Of what is drawn [0]."),
    click.option("--shuffled", is_flag=True, help="Draw n rows of --data, rather than its first n."),
)
PLAN = (click.option("--skip-what-does-not-fit", "skip", is_flag=True, help="Leave out points that do not fit here."),)


def sweep_command(declaration: Declaration) -> click.Command:
    """Return the command `dkl sweep TASK`."""
    declaration = replace(declaration, files=tuple(file for file in declaration.files if file.is_swept))

    def run(out: str, picture: bool | None, skip: bool, **given: Any) -> None:
        files = options.given_files(declaration, given)
        shape = options.pop(given, ("n", "repeat", "n_constraints", "data_seed", "shuffled"))
        placing, chosen = (_as_lists(part) for part in options.split(given))
        from dkl.runs.sweep import sweep

        typed = click.get_current_context().meta[TYPED]
        raise click.exceptions.Exit(
            sweep.sweep(declaration.task, files, out, shape, chosen, placing, picture=picture, skip=skip, again=typed)
        )

    found = [
        *SHAPE,
        *_varying(options.files(declaration), required=("out",)),
        *options.columns(declaration),
        *DATA,
        *_varying(options.settings(declaration.settings), several=True),
        *PLAN,
        click.option("--picture/--no-picture", default=None, help="Draw scaling.png [if matplotlib is there]."),
        *_varying(options.PLACE, several=True),
    ]
    text = SWEEP_HELP.format(help=declaration.help, task=declaration.task)
    return click.command(declaration.task, cls=_Typed, help=text)(options.together(found)(run))


def _as_lists(given: dict[str, object]) -> dict[str, list[object]]:
    """Return the values of each option that was given, as lists."""
    # click passes every option: None and False are those that were not typed.
    found = {name: value for name, value in given.items() if value not in (None, False)}
    return {name: list(value) if isinstance(value, Values) else [value] for name, value in found.items()}


def _varying(given: Any, *, several: bool = False, required: tuple[str, ...] = ()) -> list[options.Command]:
    """Return the options of `dkl fit`, required only if named; several: numbers and words may be lists."""

    def changed(option: options.Command) -> options.Command:
        def decorate(command: options.Command) -> options.Command:
            done: options.Command = option(command)
            # Where click keeps the options of a function until it is a command, the latest one last.
            made = done.__click_params__[-1]  # type: ignore[attr-defined]
            # --data is required by `dkl fit`; a sweep makes data up where it is not given.
            made.required = made.name in required
            if made.name == "out":
                made.metavar, made.help = "FOLDER", "Folder of the sweep, new or of the same sweep before."
            plain = not made.is_flag and not made.multiple
            if several and plain and isinstance(made.type, options.Ruled | click.Choice):
                own = (
                    f"[{'|'.join(made.type.choices)}]"
                    if isinstance(made.type, click.Choice)
                    else made.type.name.upper()
                )
                made.type, made.metavar = Several(made.type), f"{own},..."
            return done

        return decorate

    return [changed(option) for option in given]


class Share(click.ParamType):
    """Type of a share such as 0.1, or 10%."""

    name = "share"
    rule: Rule = Real(above=0, below=10)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        """Convert text such as 0.1 or 10% to a number; other values are returned unchanged."""
        if not isinstance(value, str):
            return value
        try:
            return self.rule.parse(value) if not value.endswith("%") else self.rule.parse(str(float(value[:-1]) / 100))
        except ValueError:
            return self.fail(f"{value!r} is not a share such as 0.1 or 10%.", param, ctx)


@click.command("compare")
@click.argument("before")
@click.argument("after")
@click.option(
    "--threshold", type=Share(), help="Share from which a change counts where no point was repeated [none counts]."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def compare(before: str, after: str, threshold: float | None, as_json: bool) -> None:
    """Compare the points that two sweeps share; exit with 7 if AFTER is slower, larger or ends worse, beyond noise.

    Noise is that of repeats, pooled over all points. Where nothing was repeated no change of costs counts, unless beyond --threshold.
    """
    from dkl.runs.sweep.compare import compare as compared

    raise click.exceptions.Exit(compared(before, after, threshold, as_json=as_json))
