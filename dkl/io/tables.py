"""Tables in delimited text (.csv, .tsv, also packed by gzip): one reader of numbers, names of columns and ids of rows for everyone."""

from __future__ import annotations

import re
import shlex
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.io import table_lines as lines
from dkl.io.paths import AnyPath, as_source, is_packed
from dkl.io.plain_arrays import LARGEST, is_rounded, rounded
from dkl.io.reading import TableOptions, reading
from dkl.io.table_lines import DELIMITERS, Cells, is_missing, is_number

_IS_ID = re.compile(r"(?i:id|index|key|uuid|row|.*[ _.-]id)|.*[a-z](Id|ID)")
"""Names of columns that are taken for ids where their values are different whole numbers."""
_INTEGER = re.compile(r"[+-]?[0-9]+")
"""Text of an integer."""


@dataclass(frozen=True, eq=False)
class Table:
    """Values (n, d) float64; names (d) of their columns, if the file has any; ids (n,) and targets (n,) as text, if asked for.

    note: what was decided, in a line. header_line: number of the line of names, 0 for none.
    """

    values: NDArray[np.float64]
    names: tuple[str, ...] | None = None
    ids: NDArray[np.str_] | None = None
    targets: NDArray[np.str_] | None = None
    note: str = ""
    header_line: int = 0


def read_table(path: str | AnyPath, options: TableOptions | None = None) -> Table:
    """Read a table of numbers from delimited text: .csv or .tsv, also .csv.gz and .tsv.gz.

    The delimiter is the comma, semicolon or tab that gives all lines equally many cells, or the one that a line `sep=;` on top names, as
    Excel writes it. Where it is no comma, numbers may have a decimal comma. The first line of cells holds names where none of them is a
    number and not all are marks of a missing value; it is a row where all are numbers, or where its text occurs again below.

    Without `header` two kinds of first lines are refused: numbers next to text that occurs once; and numbers that could be names, which
    are 0, 1, 2, ..., or different plain numbers that, as no line below, are in order, whole, or larger or smaller than all below.

    Raises InputError for a missing, damaged or foreign file; for a cell that is missing or no number, with its line and column; for a
    column of text, or of ids by its name, that is left among the features; and where two readings are possible.
    """
    path = as_source(path)
    with reading(path):
        layout = TableLayout.of(path, options or TableOptions())
        chosen = layout.features()
        values = layout.numbers(chosen)
        id_column, target_column = layout.column(layout.options.id_column), layout.column(layout.options.target_column)
        ids, targets = layout.texts([id_column, target_column])
    names = None if layout.names is None else tuple(layout.names[k] for k in chosen)
    # After reading: a name such as "row" is an id only if its values all differ.
    layout.refuse_ids(chosen, values)
    if ids is not None:
        _refuse_bad_ids(path, ids, layout.title(id_column))
    return Table(values, names, ids, targets, layout.note(values.shape, id_column, target_column), layout.header_line)


def read_numbers(path: AnyPath, options: TableOptions) -> NDArray[np.float64]:
    """Return the numbers (n, k) of targets: those of the target column, or of all columns; a first line without text is a row.

    Raises InputError as `read_table`.
    """
    with reading(path):
        lines.require_text_room(path, a_column=options.target_column is not None)
        header = lines.is_text(path) if options.header is None else options.header
        layout = TableLayout.of(path, replace(options, header=header))
        target = layout.column(options.target_column)
        return layout.numbers(layout.features() if target is None else [target])


def read_texts(path: AnyPath, options: TableOptions) -> NDArray[np.str_]:
    """Return the cells (n,) of the target column as text; InputError as `read_table`."""
    with reading(path):
        layout = TableLayout.of(path, options)
        (found,) = layout.texts([layout.column(options.target_column)])
        assert found is not None
        return found


def read_ids(path: AnyPath, options: TableOptions) -> tuple[str, NDArray[np.str_]] | None:
    """Return the name of the column of ids, "id" without one, and the ids (n,); None where there is no such column."""
    with reading(path):
        layout = TableLayout.of(path, options)
        position = layout.column(options.id_column)
        (ids,) = layout.texts([position])
    if position is None or ids is None:
        return None
    _refuse_bad_ids(path, ids, layout.title(position))
    return (layout.names[position] if layout.names else "") or "id", ids


def has_column(path: AnyPath, options: TableOptions, name: str | None) -> bool:
    """Return whether a table has a column of that name or number."""
    if name is None:
        return False
    with reading(path):
        return TableLayout.of(path, replace(options, may_lack=True)).column(name) is not None


@dataclass(frozen=True)
class TableLayout:
    """Layout of a file: delimiter, decimal comma, and names of its `width` columns in line `header_line`, 0 for none."""

    path: AnyPath
    options: TableOptions
    delimiter: str
    comma: bool
    width: int
    names: tuple[str, ...] | None
    header_line: int
    below: tuple[Cells, ...]
    """Rows below the first line, as far as decisions look at them."""
    is_said: bool = False
    """True where the first line says the delimiter."""

    @classmethod
    def of(cls, path: AnyPath, options: TableOptions) -> TableLayout:
        """Decide how `path` is read; InputError where two readings are possible, or there are no rows."""
        some = lines.sample(path)
        named = lines.named_delimiter(path, options.delimiter)
        if named is None:
            delimiter, comma = lines.found_delimiter(path, some, options.decimal)
        else:
            delimiter, comma = named, lines.has_decimal_comma(path, some, named, options.decimal)
        rows = [(number, cells) for number, cells in lines.rows_of(some, delimiter) if cells]
        if not rows:
            raise InputError("no rows in the file", where=str(path))
        (number, first), below = rows[0], tuple(cells for _, cells in rows[1:])
        header = options.header
        if header is None:
            where, got = f"{path}, line {number}", lines.shown_line(first, delimiter)
            plain = [_with_points(cells, comma) for cells in (first, *below)]
            skipped = {name for name in (*options.drop, options.id_column, options.target_column) if name}
            # A first column that is left out or named by an option needs no guess whether it is an index.
            index = options.features is not None or bool(skipped & {"1", first[0].strip()})
            header = lines.first_is_header(where, plain[0], plain[1:], got, index=index, text=options.like_before)
        if header and not below:
            raise InputError("no rows in the file", where=str(path))
        names = tuple(name.strip() for name in first) if header else None
        return cls(
            path,
            options,
            delimiter,
            comma,
            len(first),
            names,
            number if header else 0,
            below,
            lines.said_delimiter(some) is not None,
        )

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Return the places of the columns of each name."""
        found: dict[str, list[int]] = {}
        for position, name in enumerate(self.names or ()):
            found.setdefault(name, []).append(position)
        return found

    def title(self, position: int | None) -> str:
        """Name a column as errors do: column 3 ('age')."""
        if position is None:
            return ""
        name = self.names[position] if self.names else ""
        return f"column {position + 1}" + (f" ({name!r})" if name else "")

    def spoken(self, position: int) -> str:
        """Return what an option calls a column."""
        name = self.names[position] if self.names else ""
        return shlex.quote(name) if name and len(self.places[name]) == 1 else str(position + 1)

    def column(self, given: str | None, *, must: bool = False) -> int | None:
        """Return the place of a column that is given by name or number; InputError for an unknown one."""
        if given is None:
            return None
        places = self.places.get(given, [])
        if len(places) == 1:
            return places[0]
        if places:
            remedy = "name it by its number, from 1"
            raise InputError("two columns of one name", where=str(self.path), got=repr(given), remedy=remedy)
        # A name goes first: columns may be called 1, 2, 3 in another order.
        if given.isdecimal() and 1 <= int(given) <= self.width:
            return int(given) - 1
        if self.options.may_lack and not must:
            return None
        wanted = f"a number from 1 to {self.width}" if self.names is None else ", ".join(self.names)[:200]
        other = "if another character separates cells: --delimiter" if self.width == 1 else None
        raise InputError("no such column", where=str(self.path), got=repr(given), wanted=wanted, remedy=other)

    def features(self) -> list[int]:
        """Return the places of the columns to learn from, in their order; InputError for no column, or equal names."""
        options = self.options
        used = [self.column(name) for name in (*options.drop, options.target_column, options.id_column)]
        if options.features is None:
            chosen = [k for k in range(self.width) if k not in used]
        else:
            chosen = [
                k for name in options.features if (k := self.column(name, must=True)) is not None and k not in used
            ]
        if not chosen:
            raise InputError("no column is left to learn from", where=str(self.path), got=f"{self.width} in the file")
        names = [self.names[k] for k in chosen] if self.names else []
        counts = Counter(names)
        twice = next((name for name in names if name and counts[name] > 1), None)
        if twice is not None:
            remedy = "rename one, or leave one out by its number (--drop)"
            raise InputError("two columns of one name", where=str(self.path), got=repr(twice), remedy=remedy)
        unnamed = next((k for k in chosen if self.names and lines.is_unnamed(self.names[k])), None)
        if unnamed is not None:
            where, remedy = f"{self.path}, line {self.header_line}", f"name it, or leave it out: --drop {unnamed + 1}"
            raise InputError("a column without a name", where=where, got=self.title(unnamed), remedy=remedy)
        return chosen

    def rows(self) -> Iterator[tuple[int, Cells]]:
        """Yield (number of its line, cells) of each row below the names; InputError for one of another width.

        An empty line is a missing value of a table of one column, unless it is at the end.
        """
        empty: list[int] = []
        with lines.open_text(self.path) as text:
            for number, cells in lines.rows_of(text, self.delimiter):
                if number <= self.header_line:
                    continue
                if not cells:
                    empty.append(number)
                    continue
                # An empty line of a single column is a missing value, unless no other line follows.
                if self.width == 1:
                    yield from ((line, [""]) for line in empty if line > self.header_line)
                    empty.clear()
                if len(cells) != self.width:
                    got = f"{len(cells)} cells, {lines.shown_line(cells, self.delimiter)}"
                    where, wanted = f"{self.path}, line {number}", f"{self.width} cells"
                    raise InputError("malformed line", where=where, got=got, wanted=wanted)
                yield number, cells

    def numbers(self, chosen: Sequence[int]) -> NDArray[np.float64]:
        """Return the chosen columns (n, len(chosen)) as finite numbers; InputError names the first other cell."""
        # NumPy knows no decimal comma, and passes over the empty lines that are missing values of a single column.
        found = None if self.comma or self.width == 1 else self._quickly(chosen)
        found = self._slowly(chosen) if found is None else found
        if found is None or not np.isfinite(found).all():
            raise self._bad_cell(chosen)
        # Not by their absolute values, which would be a second table in memory.
        if found.max(initial=0.0) >= LARGEST or found.min(initial=0.0) <= -LARGEST:
            self._refuse_rounded(chosen)
        return found

    def _refuse_rounded(self, chosen: Sequence[int]) -> None:
        """Raise InputError for the first cell among the chosen columns that is an integer and no double is."""
        for number, cells in self.rows():
            for k in chosen:
                cell = cells[k].strip()
                if _INTEGER.fullmatch(cell) and is_rounded(int(cell)):
                    name = self.spoken(k)
                    remedy = f"--drop {name} leaves it out; --id-column {name} takes it for ids of the rows"
                    raise rounded(f"{self.path}, line {number}, {self.title(k)}", int(cell), remedy)

    def _quickly(self, chosen: Sequence[int]) -> NDArray[np.float64] | None:
        """Return the chosen columns by NumPy's parser; None where it does not understand them."""
        used = None if list(chosen) == list(range(self.width)) else list(chosen)
        if used is not None:
            for _ in self.rows():  # NumPy does not look at the columns that it does not read
                pass
        try:
            with lines.open_text(self.path) as text:
                # NumPy reads larger pieces of a file that it opens than of an open one.
                source = self.path if isinstance(self.path, Path) and not is_packed(self.path) else text
                found: NDArray[np.float64] = np.loadtxt(
                    source, delimiter=self.delimiter, skiprows=max(self.header_line, int(self.is_said)), ndmin=2, comments=None,
                    quotechar='"', usecols=used, encoding="utf-8-sig",
                )  # fmt: skip
        except ValueError:
            return None
        # Its rows may all have another width than the first line, of which `chosen` is.
        return found if found.shape[1] == len(chosen) else None

    def _slowly(self, chosen: Sequence[int]) -> NDArray[np.float64] | None:
        """Return the chosen columns cell by cell: of decimal commas, and where an empty line is a missing value."""
        # 8 bytes a number, of which a list of floats would take 32.
        found, n = array("d"), 0
        for _, cells in self.rows():
            for k in chosen:
                if not is_number(cells[k], comma=self.comma):
                    return None
                found.append(float(cells[k].replace(",", ".")))
            n += 1
        return np.frombuffer(found, np.float64).reshape(n, len(chosen)) if n else None

    def texts(self, columns: Sequence[int | None]) -> list[NDArray[np.str_] | None]:
        """Return the text (n,) of each column, None for one that is None."""
        found: list[list[str]] = [[] for _ in columns]
        if any(k is not None for k in columns):
            for _, cells in self.rows():
                for k, column in zip(columns, found, strict=True):
                    if k is not None:
                        column.append(cells[k].strip())
        return [None if k is None else np.array(column, np.str_) for k, column in zip(columns, found, strict=True)]

    def _bad_cell(self, chosen: Sequence[int]) -> InputError:
        """Return the error that names the first cell among the chosen columns that is no finite number."""
        for number, cells in self.rows():
            for k in chosen:
                cell = cells[k].strip()
                if not is_number(cell, comma=self.comma):
                    return self._error_of(cell, k, number)
                if not np.isfinite(float(cell.replace(",", "."))):
                    where = f"{self.path}, line {number}, {self.title(k)}"
                    return InputError("a value is not finite", where=where, got=cell, wanted="a finite number")
        return InputError("no rows in the file", where=str(self.path))

    def _error_of(self, cell: str, k: int, number: int) -> InputError:
        where, name = f"{self.path}, line {number}, {self.title(k)}", self.spoken(k)
        drop = f"--drop {name}"
        if is_missing(cell):
            header = "; if the line holds names: --header" if self.names is None and number == 1 else ""
            remedy = f"fill the gap, drop the row, or leave out the column ({drop}){header}"
            return InputError("a value is missing", where=where, got=repr(cell), wanted="a number", remedy=remedy)
        column = [row[k] for row in self.below if len(row) > k]
        if column and not any(is_number(each) or is_number(each, comma=True) for each in column):
            targets = f", --target-column {name} for what to learn" if self.options.takes_targets else ""
            remedy = f"{drop} leaves it out; --id-column {name} takes it for ids of the rows{targets}"
            if {each.strip().lower() for each in column} <= {"true", "false", "yes", "no"}:
                remedy = f"write 1 and 0 for them; {remedy}"
            if self.width == 1 and all(map(is_number, cell.split())):
                remedy = "separate cells by commas, semicolons or tabs"
            return InputError("a column of text", where=where, got=repr(cell[:60]), wanted="numbers", remedy=remedy)
        point = (
            "write numbers with a decimal point, or separate cells by semicolons"
            if is_number(cell, comma=True)
            else None
        )
        return InputError("not a number", where=where, got=repr(cell[:60]), wanted="a number", remedy=point)

    def refuse_ids(self, chosen: Sequence[int], values: NDArray[np.float64]) -> None:
        """Raise InputError for a feature that is an id by its name and its values, unless it is among the `features` that are given."""
        known = self.options.features is not None or self.options.like_before
        if self.names is None or known or len(values) < 2:
            return
        for k, column in zip(chosen, values.T, strict=True):
            name = self.names[k]
            if _IS_ID.fullmatch(name) and (column == np.floor(column)).all() and len(np.unique(column)) == len(column):
                counts = bool(column[0] in (0, 1) and (np.diff(column) == 1).all())
                what = f"its {'first ' if k == 0 else ''}column " + (
                    "counts the rows" if counts else "looks like ids of the rows"
                )
                got = f"column {name!r}: {column[0]:g}, {column[1]:g}, ..."
                remedy = f"say what it is: --id-column {name}, --drop {name}, or a feature among --features"
                raise InputError(what, where=str(self.path), got=got, remedy=remedy)

    def note(self, shape: tuple[int, ...], ids: int | None, targets: int | None) -> str:
        """Return what was decided, in a line."""
        first = "no line of names" if self.names is None else f"line {self.header_line} names the columns"
        parts = [f"{shape[0]:,} x {shape[1]:,} numbers", first]
        if self.delimiter != "," or self.is_said:
            by = DELIMITERS.get(self.delimiter, repr(self.delimiter))
            parts.append(
                f"cells separated by {by}{', as line 1 says' if self.is_said and not self.options.delimiter else ''}"
            )
        if self.comma:
            parts.append("numbers with a decimal comma")
        parts += [] if ids is None else [f"ids: {self.title(ids)}"]
        parts += [] if targets is None else [f"targets: {self.title(targets)}"]
        return f"{lines.file_name(self.path)}: {', '.join(parts)}"


def _with_points(cells: Cells, comma: bool) -> Cells:
    """Return cells whose numbers have a decimal point."""
    return [cell.replace(",", ".") if comma and is_number(cell, comma=True) else cell for cell in cells]


def _refuse_bad_ids(path: AnyPath, ids: NDArray[np.str_], title: str) -> None:
    """Raise InputError for an id that is missing or there twice."""
    # By sorting, as a set of a million strings takes far more memory; stable, so that the first two rows of an id are named.
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    if (ids == "").any():
        row = int(np.flatnonzero(ids == "")[0])
        raise InputError("an id is missing", where=f"{path}, row {row + 1}, {title}", wanted="an id in every row")
    if again.size:
        first, second = sorted(order[again[0] : again[0] + 2].tolist())
        got = f"{str(ids[first])!r} in rows {first + 1} and {second + 1}"
        raise InputError("two rows of one id", where=f"{path}, {title}", got=got, wanted="an id a row")
