"""`dkl reproduce` and `dkl datasets`."""

from __future__ import annotations

from pathlib import Path

import click

from dkl.cli import options
from dkl.errors import InputError
from dkl.estimators.base.rules import Integer
from dkl.runs.interrupt import echo

FOLDER = "reproduced"


@click.command()
@click.argument("name", required=False)
@click.option("--out", metavar="FILE.npz", help="Write the set, X and y, as `dkl fit --data` takes it. Must not exist.")
def datasets(name: str | None, out: str | None) -> None:
    """List the data sets of the papers; describe the set NAME, its values checked, or write it to a file.

    They are read from scikit-learn or from the folder in DKL_DATA, a NAME.npz each.
    """
    from dkl import dataset_sources
    from dkl.runs.inputs.files import check_new

    if name is None and out is not None:
        raise click.UsageError("--out needs NAME.")
    path = None if out is None else check_new(out)
    if path is not None and path.suffix != ".npz":
        raise InputError("not a kind of file to write", where="--out", got=repr(path.suffix), wanted=".npz")
    echo(dataset_sources.contents() if name is None else dataset_sources.description(name))
    if name is not None and path is not None:
        dataset_sources.write(name, path)
        echo(f"written to {path}")


@click.command()
@click.argument("name", required=False)
@click.option("--quick", is_flag=True, help="Fewer draws and smaller sets: within a minute each, and no result.")
@click.option("--out", default=FOLDER, metavar="FOLDER", help=f"Folder of NAME.json, NAME.md and NAME.png [{FOLDER}].")
@click.option("--draws", type=options.Ruled(Integer(1)), help="Draws of each row [the paper's number].")
def reproduce(name: str | None, quick: bool, out: str, draws: int | None) -> None:
    """Recompute a table or figure of the papers; "all" for all of them, without NAME, list them.

    Rows are kept in NAME.json as they come; the same command continues after any end. A table has the paper's figure, ours
    and the verdict. Data sets are read from scikit-learn and from DKL_DATA, see `dkl datasets`.
    """
    from dkl.reproduce import driver, registry
    from dkl.reproduce.item import Effort

    if name is None:
        echo(registry.contents())
        return
    effort, folder = Effort(quick, draws), Path(out)
    items = registry.chosen(name)
    for item in items:
        driver.check_ready(item, effort)
    for item in items:
        echo(f"{item.name}: {item.paper}, {item.place}, {item.asks}")
        driver.reproduce(item, effort, folder, lambda text: echo(f"  {text}"))
        echo(f"  {folder / item.name}.md\n")
