"""What may stand behind a command, as click sees it. Numbers are checked here, before anything large is imported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

Command = Callable[..., Any]


class Number(click.ParamType):
    """A finite number above `least`, or `least` itself where it is allowed; or one of a few words."""

    name = "number"

    def __init__(self, *words: str, zero: bool = False) -> None:
        self.words, self.zero = words, zero

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.words:
            return value
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isfinite(number) and (number > 0 or (self.zero and number == 0)):
            return number
        wanted = [f"a finite number {'>=' if self.zero else '>'} 0", *map(repr, self.words)]
        self.fail(f"{value!r} is not {' or '.join(wanted)}.", param, ctx)


class Count(click.ParamType):
    """An integer from `least` on, or one of a few words."""

    name = "integer"

    def __init__(self, *words: str, least: int = 1) -> None:
        self.words, self.least = words, least

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value in self.words:
            return value
        try:
            number = int(value)
        except ValueError:
            number = self.least - 1
        if self.least <= number < 2**63:
            return number
        wanted = [f"an integer >= {self.least}", *map(repr, self.words)]
        self.fail(f"{value!r} is not {' or '.join(wanted)}.", param, ctx)


class Size(click.ParamType):
    """Bytes, as 4000000000, "4 GB" or 2GiB."""

    name = "size"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if isinstance(value, int):
            return value
        from dkl.errors import InputError
        from dkl.resources import parse_bytes

        try:
            return parse_bytes(value)
        except InputError as error:
            self.fail(str(error), param, ctx)


def together(*options: Command) -> Callable[[Command], Command]:
    """Several options as one decorator, shown in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


inputs = together(
    click.option("--data", required=True, metavar="FILE", help="Patterns: .npz (key X), .npy, .csv, svmlight, zarr."),
    click.option("--pairs", required=True, metavar="FILE", help="Pairs: .csv of i,j,must|cannot, or .npz."),
    click.option("--out", required=True, metavar="RUN", help="Folder for the run; must not exist."),
)

limits = together(
    click.option("--max-iter", type=Count(), help="Most ADMM iterations."),
    click.option("--target-gap", type=Number(), help="Go on until this relative gap is proven."),
    click.option("--memory-limit", type=Size(), help='Bytes a process may use, as "4 GB".'),
    click.option("--checkpoint-every", type=Count("auto"), help="Iterations between commits, or auto: by time."),
)

# None stands for what Settings has as its default, so that defaults are written down once.
settings = together(
    click.option("--gamma", type=Number(), help="Weight of the pairs [100]."),
    click.option("--rank", type=Count("auto"), help="Columns of the factor [auto: the paper's rule]."),
    click.option("--solver", type=click.Choice(["admm", "factored"]), help="[admm]"),
    click.option("--n-neighbors", type=Count(), help="Neighbours of a pattern in the graph [10]."),
    click.option("--sigma", type=Number("auto"), help="Width of the similarity [auto]."),
    click.option("--laplacian", type=click.Choice(["normalized", "unnormalized"]), help="[normalized]"),
    click.option("--neighbors-method", type=click.Choice(["auto", "exact", "approximate"]), help="[auto]"),
    click.option("--rho", type=Number(), help="ADMM's penalty at the start [100]."),
    click.option("--tol", type=Number(zero=True), help="Relative residuals to end at [1e-4]."),
    click.option("--dtype", type=click.Choice(["float64", "float32"]), help="[float64]"),
    click.option("--seed", type=Count(least=0), help="Seed of the start [0]."),
    limits,
)

place = together(
    click.option("--workers", type=Count(), help="Start this many worker processes here [none: threads of this one]."),
    click.option("--threads", type=Count(), help="Threads of this process [one a core]."),
    click.option(
        "--scheduler", metavar="ADDRESS", help="Dask scheduler to submit to, tls://... or tcp://127.0.0.1:..."
    ),
    click.option("--scheduler-file", metavar="FILE", help="The same, from the file that the scheduler wrote."),
    click.option("--insecure", is_flag=True, help="Allow plain tcp:// to another machine."),
)


def split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(options of the place, settings that were given) out of a command's keyword arguments."""
    names = ("workers", "threads", "scheduler", "scheduler_file", "insecure")
    placing = {name: given.pop(name) for name in names}
    chosen = [name for name in ("workers", "scheduler", "scheduler_file") if placing[name] is not None]
    if len(chosen) > 1:
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in chosen)
        raise click.UsageError(f"{flags} exclude each other.")
    if chosen and placing["threads"] is not None:
        raise click.UsageError("--threads is for work without a cluster; workers have one thread each.")
    return placing, {name: value for name, value in given.items() if value is not None}
