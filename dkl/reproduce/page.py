"""Pages of stored records: `python -m dkl.reproduce.page [FOLDER]`, by default benchmarks/papers.

The page of all papers says what the records of their tables and figures show, and where the rest of each paper is in dkl.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

import numpy as np

from dkl.reproduce.driver import grid, markdown, pair
from dkl.reproduce.item import Item, Record, RecordRow
from dkl.reproduce.registry import ITEMS

PAPERS = {
    "admm": "KL-ADMM (Hu & Kwok 2013)",
    "slkl": "SLKL (Machart et al. 2011)",
    "onk": "ONK (Liu et al. 2009)",
    "trin": "TRIN (Li et al. 2009)",
    "sqlp": "SQLP (Wu, So, Li & Li 2009)",
}
"""Titles by the names of the TOML files of their rows."""
STATUSES = ("whole", "partly", "not built")
FEW = 3
"""Number of rows up to which a table's figures are all shown."""


@dataclass(frozen=True)
class Row:
    """Equation, algorithm, theorem, rival or extension of a paper, and where it is in dkl.

    of      what it is
    status  one of STATUSES
    at      equation or section
    ours    public names of dkl, with parameters in brackets
    file    paths from the root of the repository
    test    tests as pytest takes them
    note    what lacks, or why it is not built; else what a reader should know
    """

    of: str
    status: str
    at: str = ""
    ours: Sequence[str] = ()
    file: Sequence[str] = ()
    test: Sequence[str] = ()
    note: str = ""


@dataclass(frozen=True)
class Shortfall:
    """Reason for which rows of a record do not reach, or do not equal, the paper's figures.

    item  name of the table or figure
    rows  shell pattern of the rows' keys
    why   what an experiment showed
    see   page of the experiment, from benchmarks/
    run   command that makes it again
    """

    item: str
    rows: str
    why: str
    see: str
    run: str

    def is_of(self, row: RecordRow) -> bool:
        """Return whether a record's row falls short and is among these rows."""
        return row["verdict"].startswith(("worse", "differs")) and fnmatchcase(row["key"], self.rows)


def _read(folder: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the tables of each paper's TOML file in `folder`, by title."""
    files = {title: folder / f"{name}.toml" for name, title in PAPERS.items()}
    return {title: tomllib.loads(file.read_text(encoding="utf-8")) for title, file in files.items() if file.exists()}


def rows_of(folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each paper whose TOML file is in `folder`, by title."""
    return {title: [Row(**row) for row in tables["row"]] for title, tables in _read(folder).items()}


def shortfalls_of(folder: Path) -> list[Shortfall]:
    """Return the reasons in all papers' TOML files in `folder`."""
    return [Shortfall(**short) for tables in _read(folder).values() for short in tables.get("short", [])]


def overview(items: Sequence[Item], folder: Path) -> str:
    """Return the page: counts, tables and figures with what their records in `folder` show, and the rows of each paper."""
    papers = rows_of(folder)
    counts = [[title, *([row.status for row in rows].count(one) for one in STATUSES)] for title, rows in papers.items()]
    sections = [
        part
        for title, rows in papers.items()
        for part in (f"## {title}", "", grid(["what", "where", "dkl", "files", "tests", "status", "note"],
                                             [_cells(row) for row in rows]), "")
    ]  # fmt: skip
    return "\n".join([
        "# The five papers, item by item", "",
        "First every table and figure, then all else that a paper names: equations, algorithms, theorems, rivals, data, extensions.",
        "`python -m dkl.reproduce.page` writes this page from the registry of `dkl reproduce`, from its records and from papers/*.toml;",
        "tests compare them, and check that every name, file and test is there. How much of that \"all else\" there is:", "",
        grid(["paper", *STATUSES], counts), "",
        "## Tables and figures", "",
        "A \"quick\" record is of fewer draws and smaller sets than the paper's, and no result: without `--quick` the same command makes",
        "the whole. Figures are of the paper's own method; of more than three the least and the most favorable to dkl. Tests are of",
        "`tests/reproduce/test_driver.py`, as is the one that holds stored records to the registry.", "",
        grid(["item", "asks", "command", "file", "test", "record", "rows", "verdicts", "the paper's figure and ours"],
             [_item(item, folder) for item in items]), "",
        "## Where a paper's figure is not reached", "",
        "Every row of a whole record that is worse than the paper's by more than a standard error, or differs from it: how many",
        "of a record's rows, the one that is furthest off, what an experiment showed, and the command that makes it again.", "",
        grid(["item", "rows", "how many", "furthest off", "why", "experiment", "command"],
             [cells for short in shortfalls_of(folder) if (cells := _short(short, folder))]), "",
        *sections,
    ])  # fmt: skip


def _code(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cells(row: Row) -> list[str]:
    return [row.of, row.at, _code(row.ours), _code(row.file), _code(row.test), row.status, row.note]


def stored(path: Path) -> Record | None:
    """Return the record in a file; None without the file."""
    return cast(Record, json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def _short(short: Shortfall, folder: Path) -> list[object]:
    """Return the cells of a shortfall; none where its record is not there."""
    item, record = ITEMS[short.item], stored(folder / f"{short.item}.json")
    rows = record["rows"] if record else []
    if not (found := sorted(filter(short.is_of, rows), key=lambda row: _advantage(item, row))):
        return []
    return [
        f"{item.paper}, {item.place}", f"`{short.rows}`", f"{len(found)} of {len(rows)}", _figure(item, found[0]), short.why,
        f"[{short.see}]({short.see})", f"`{short.run}`",
    ]  # fmt: skip


def _item(item: Item, folder: Path) -> list[object]:
    record = stored(folder / f"{item.name}.json")
    name = f"{item.paper}, {item.place}"
    linked = f"[{name}]({folder.name}/{item.name}.md)" if record else name
    test = f"`test_every_item_is_recomputed_quickly[{item.name}]`"
    shown = ["none yet", "", "", ""] if record is None else [*_summary(record), figures(item, record["rows"])]
    return [linked, item.asks, f"`dkl reproduce {item.name}`", f"`{item.file}`", test, *shown]


def _summary(record: Record) -> list[object]:
    """Return (kind, number of rows, verdicts) of a record."""
    found = [row["verdict"].partition(" by ")[0] for row in record["rows"] if row["verdict"]]
    counted = ", ".join(f"{found.count(kind)} {kind}" for kind in dict.fromkeys(found))
    kind = "quick" if record["quick"] else "whole"
    return [kind, len(record["rows"]), counted or "no verdict"]


def figures(item: Item, rows: Sequence[RecordRow]) -> str:
    """Return the figures of a few rows of the paper's own method: of many, the least and the most favorable to dkl."""
    known = [row for row in rows if np.isfinite(row["mean"]) and (item.own or "") in ("", *row["labels"].values())]
    compared = sorted((row for row in known if row["paper"]), key=lambda row: _advantage(item, row))
    shown = compared or known
    if len(shown) > FEW:
        # "equal" is measured by distance alone: the furthest off is all that there is to show.
        shown = [shown[0], shown[-1]] if compared and item.better != "equal" else shown[: FEW if not compared else 1]
    return "; ".join(_figure(item, row) for row in shown)


def _advantage(item: Item, row: RecordRow) -> float:
    """Return by which share of the paper's figure ours is better; of figures that should agree, minus the difference's."""
    paper, ours = row["paper"][0] if row["paper"] else np.nan, row["mean"]
    gain = {"higher": ours - paper, "lower": paper - ours, "equal": -abs(ours - paper)}[item.better]
    # tiny: an error that a paper prints as 0 is still something to be relative to.
    return float(gain / max(abs(paper), np.finfo(float).tiny))


def _figure(item: Item, row: RecordRow) -> str:
    ours = pair((row["mean"], row["deviation"]), item.digits)
    paper = pair(row["paper"], item.digits)
    return f"{row['key']}: {f'paper {paper}, dkl {ours}' if paper else ours}"


FOLDER = Path("benchmarks/papers")


def pages(folder: Path) -> dict[Path, str]:
    """Return the text of each page of the records in `folder`, and of the page of all papers next to it."""
    records = {item.name: folder / f"{item.name}.json" for item in ITEMS.values()}
    found = {
        path.with_suffix(".md"): markdown(ITEMS[name], record)
        for name, path in records.items()
        if (record := stored(path)) is not None
    }
    return found | {folder.with_suffix(".md"): overview(list(ITEMS.values()), folder)}


if __name__ == "__main__":
    for written, text in pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER).items():
        written.write_text(text, encoding="utf-8")
