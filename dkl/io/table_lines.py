"""Lines and cells of delimited text: which files hold it, what separates cells, and whether the first line holds names."""

from __future__ import annotations

import csv
import gzip
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import IO

from dkl.errors import InputError, printable
from dkl.io.paths import AnyPath, is_packed, table_suffix
from dkl.io.reading import most_bytes, require_room

MISSING = frozenset({"", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "?", "-", ".", "nat", "<na>"})
"""Marks of a missing number, in lower case; `Na` and `Nat` are names."""
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
"""Delimiters that are recognized; any other character is used where it is given."""
SAMPLE, SAMPLE_CHARACTERS = 1000, 1 << 18
"""Maximum numbers of lines below the first, and about of their characters, that decisions look at."""
LARGER = 10
"""Factor by which numeric names, such as wavelengths, exceed every number below them."""
HEADER_REMEDY = "say which: --header or --no-header (header=True or False in Python)"
WITHOUT_INDEX = "write it without: to_csv(path, index=False)"
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|Inf|INF|infinity|Infinity)")
_COMMA_NUMBER = re.compile(r"[+-]?([0-9]+,?[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
_PLAIN = re.compile(r"[0-9]+(\.[0-9]+)?")
_SAID = re.compile(r'"?(?i:sep)=([^"\r\n])"?')
_WHOLE = re.compile(r"[+-]?[0-9]+")
_AS_NAME = frozenset({"Na", "Nat", "None"})
_SHOWN = 60
COUNTED_BYTES = 1 << 22
"""Bytes of a text that are counted at a time."""
COUNTED = 1 << 28
"""Bytes of a packed text that are counted in any case: half a second."""
LINE_BYTES, CHARACTER_BYTES = 250, 40
"""Memory that a line of text takes at most once it is a pair or a label, and a character of a line that is taken apart."""

Cells = list[str]


@contextmanager
def open_text(path: AnyPath) -> Iterator[IO[str]]:
    """Open delimited text for reading, unpacked, without the mark that some editors put first."""
    with open_bytes(path) as file, TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        yield text


@contextmanager
def open_bytes(path: AnyPath) -> Iterator[IO[bytes]]:
    """Open the bytes of delimited text, unpacked."""
    with path.open("rb") as file:
        if not is_packed(path):
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]


@dataclass(frozen=True)
class Counts:
    """Counts of a text: its first line of cells, how often a mark occurs, lines, and bytes, unpacked."""

    first: bytes
    marks: int
    lines: int
    size: int


def counted(path: AnyPath, mark: bytes, needed: Callable[[Counts], int], most: int | None) -> Counts:
    """Count a text, unpacked, to its end; of one that is packed until what is `needed` for it is beyond `most` bytes."""
    with open_bytes(path) as file:
        first = file.readline(COUNTED_BYTES)
        if said_delimiter([first.decode("utf-8-sig", "replace")]) is not None:
            first = file.readline(COUNTED_BYTES)
        found = Counts(first, 0, 0, 0)
        file.seek(0)
        # In pieces: a packed text may unpack to far more than the memory.
        while piece := file.read(COUNTED_BYTES):
            ends = piece.count(b"\n")
            marks = ends if mark == b"\n" else piece.count(mark)
            found = replace(found, marks=found.marks + marks, lines=found.lines + ends, size=found.size + len(piece))
            # Only a packed text may end early: of others the size on disk is known, and reading to the end is quick.
            if most is not None and is_packed(path) and found.size > COUNTED and needed(found) > most:
                break
    return found


def require_text_room(path: AnyPath, *, a_column: bool = False) -> None:
    """Raise MemoryBudgetError where the lines of a text, each kept as a label or a pair, are beyond the room for files.

    a_column: only one column of the text is kept; else a line may be all that is in it.
    """
    most = most_bytes()

    def needed(counts: Counts) -> int:
        return max(LINE_BYTES * counts.lines, 0 if a_column else counts.size)

    if most is not None:
        require_room(needed(counted(path, b"\n", needed, most)), path, "the lines do not fit")


def is_missing(cell: str) -> bool:
    """Return whether a cell holds a mark of a missing number."""
    cell = cell.strip()
    return cell not in _AS_NAME and cell.lower() in MISSING


def is_number(cell: str, *, comma: bool = False) -> bool:
    """Return whether a cell holds a number; `comma`: written with a decimal comma."""
    return (_COMMA_NUMBER if comma else _NUMBER).fullmatch(cell.strip()) is not None


def is_unnamed(cell: str) -> bool:
    """Return whether a cell of the first line names no column: pandas writes such a cell above an index."""
    name = cell.strip().strip('"').lower()
    return not name or name.startswith("unnamed:")


def sample(path: AnyPath) -> list[str]:
    """Return the first lines of a file, as many as decisions look at."""
    found: list[str] = []
    size = 0
    longest = (most_bytes() or sys.maxsize) // CHARACTER_BYTES
    with open_text(path) as text:
        # One character beyond what fits: a line without end is refused before it is all read.
        while line := text.readline(longest + 1):
            require_room(CHARACTER_BYTES * len(line), path, "a line is too long")
            found.append(line)
            # The first two count as nothing: below names of many columns at least one whole row must be looked at.
            size += len(line) if len(found) > 2 else 0
            if len(found) > SAMPLE or size > SAMPLE_CHARACTERS:
                break
    return found


def rows_of(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, Cells]]:
    """Yield (number of its last line, cells) of each row; an empty line is a row of no cells; one that says the delimiter is left out."""
    reader = csv.reader(lines, delimiter=delimiter)
    for cells in reader:
        if reader.line_num == 1 and said_delimiter([delimiter.join(cells)]) is not None:
            continue
        yield reader.line_num, [] if len(cells) == 1 and not cells[0].strip() else cells


def said_delimiter(lines: Sequence[str]) -> str | None:
    """Return the delimiter that a first line says, as Excel takes it: sep=; and nothing else."""
    found = _SAID.fullmatch(lines[0].rstrip("\r\n")) if lines else None
    return found and found[1]


def named_delimiter(path: AnyPath, given: str | None) -> str | None:
    """Return the character that a delimiter is given by, as "tab"; InputError for anything else."""
    found = {"tab": "\t", "\\t": "\t"}.get(given or "", given)
    if found is not None and (len(found) != 1 or found in '"\r\n'):
        raise InputError("not a delimiter", where=str(path), got=repr(given), wanted="one character, or tab")
    return found


def found_delimiter(path: AnyPath, lines: list[str], decimal: str | None = None) -> tuple[str, bool]:
    """Return (delimiter, whether numbers are written with a decimal comma), by the rule of `dkl.datasets.read_table`.

    Raises InputError where two readings are possible.
    """
    said = said_delimiter(lines)
    if said is not None:
        return said, has_decimal_comma(path, lines, said, decimal)
    widths = {mark: _widths(lines, mark) for mark in DELIMITERS}
    present = [mark for mark, found in widths.items() if found - {1}]
    regular = [mark for mark in present if len(widths[mark]) == 1]
    if table_suffix(path) == ".tsv" and ("\t" in present or not present):
        return "\t", has_decimal_comma(path, lines, "\t", decimal)
    for mark in (";", "\t"):
        # Under such a delimiter a comma is a decimal comma, where all cells with one are numbers.
        if mark in regular and (regular == [mark] or regular == [",", mark] and _commas_are_decimal(lines, mark)):
            return mark, has_decimal_comma(path, lines, mark, decimal)
    if len(regular) > 1:
        got = " and ".join(DELIMITERS[mark] for mark in regular)
        remedy = "name the delimiter: --delimiter (delimiter= in Python)"
        raise InputError("two delimiters are possible", where=str(path), got=got, remedy=remedy)
    found = (regular or present or [","])[0]
    return found, has_decimal_comma(path, lines, found, decimal)


def has_decimal_comma(path: AnyPath, lines: list[str], delimiter: str, given: str | None = None) -> bool:
    """Return whether numbers are written with a decimal comma; raises InputError where it may separate thousands.

    given: "," or ".", where it was said.
    """
    if given not in (None, ",", "."):
        raise InputError("not a decimal mark", where=str(path), got=repr(given), wanted='"," or "."')
    if given is not None:
        return given == ","
    if not _commas_are_decimal(lines, delimiter):
        return False
    # 1,234 and 12,345 alone leave both readings open; one 1,5 among them decides.
    cells = [cell for cell in _cells_with_commas(lines, delimiter) if is_number(cell, comma=True)]
    if all(map(_THOUSANDS.fullmatch, cells)):
        got, remedy = (
            repr(cells[0]),
            'if it is a decimal comma: --decimal "," (decimal="," in Python); else leave separators out',
        )
        raise InputError("a decimal comma, or a separator of thousands?", where=str(path), got=got, remedy=remedy)
    return True


def first_is_header(
    where: str, first: Cells, below: Sequence[Cells], got: str, *, index: bool = False, text: bool = False
) -> bool:
    """Return whether the first line holds names, by the rule of `dkl.datasets.read_table`; InputError where both is possible.

    where: file and line, and got: the line, for errors; first: its cells; below: rows under it, as far as they are looked at; index:
    whether its first column is known to hold no feature; text: whether names, if there are any, are known to be text.
    """
    cells = [cell.strip() for cell in first]
    numbers, missing = [is_number(cell) for cell in cells], [is_missing(cell) for cell in cells]
    if not index:
        _refuse_index(cells, numbers, got, where)
    if all(numbers) and not text and _could_be_names(cells, below):
        what = "its numbers may be names of columns, or a row"
        raise InputError(what, where=where, got=got, remedy=HEADER_REMEDY)
    if any(numbers):
        words = [k for k, cell in enumerate(cells) if not numbers[k] and not missing[k] and cell]
        if all(_stands_below(cells[k], k, below) for k in words):
            return False
        raise InputError("numbers and text: names of columns, or a row?", where=where, got=got, remedy=HEADER_REMEDY)
    return not all(missing)


def side_delimiter(path: AnyPath, lines: list[str], given: str | None) -> str:
    """Return the delimiter of a file next to others: the given one where its first line has it, else the one that is recognized."""
    named = named_delimiter(path, given)
    is_used = named is not None and lines and named in lines[0] and said_delimiter(lines) is None
    # The decimal mark is decided elsewhere: to name one spares the errors of an unclear one.
    return named if named is not None and is_used else found_delimiter(path, lines, ".")[0]


def is_text(path: AnyPath, delimiter: str | None = None) -> bool:
    """Return whether the first line of a file of numbers is text: none of its cells is a number or the mark of a missing one."""
    some = sample(path)
    if delimiter is None:
        delimiter, comma = found_delimiter(path, some)
    else:
        comma = has_decimal_comma(path, some, delimiter)
    first = next((cells for _, cells in rows_of(some, delimiter) if cells), [])
    return not any(is_number(cell, comma=comma) or is_missing(cell) for cell in first)


def _refuse_index(cells: Cells, numbers: list[bool], got: str, where: str) -> None:
    """Raise InputError for a first column without a name next to others: an index would be learned from as a feature."""
    numbered = cells[1:] == [str(k) for k in range(len(cells) - 1)]
    # Anything else with a number in it is a row that lacks a value.
    named = not all(map(is_missing, cells[1:])) and not any(numbers)
    if len(cells) > 1 and is_unnamed(cells[0]) and (numbered or named):
        remedy = f"{WITHOUT_INDEX}; or say what it is: --header, with --drop 1 or --id-column 1"
        raise InputError("its first column is an index", where=where, got=got, remedy=remedy)


def _could_be_names(cells: Cells, below: Sequence[Cells]) -> bool:
    """Return whether a first line of numbers looks like names: years, wavelengths, or 0, 1, 2.

    Names are different plain numbers of equally many decimals. They number the columns from 0; or they ascend, descend or are evenly
    spaced, and no row below is; or they are whole, and no number below is; or they are LARGER times all numbers below.
    """
    rows = [row for row in below if len(row) == len(cells)]
    plain = all(map(_PLAIN.fullmatch, cells)) and len({len(cell.partition(".")[2]) for cell in cells}) == 1
    if not rows or not plain or len(set(cells)) < len(cells):
        return False
    # Whole numbers above fractions: years or numbers of columns.
    if "." not in cells[0] and not any(_WHOLE.fullmatch(cell.strip()) for row in rows for cell in row):
        return True
    if len(cells) < 2:
        return False
    if cells == [str(k) for k in range(len(cells))]:
        return True
    first, values = [float(cell) for cell in cells], [_values(row) for row in rows]
    for has_pattern in (_ascends, _descends, _is_even):
        if has_pattern(first) and not any(map(has_pattern, values)):
            return True
    return min(first) > LARGER * max(
        (abs(value) for row in values for value in row if value == value), default=math.inf
    )


def _values(row: Cells) -> list[float]:
    """Return the cells as numbers, NaN for other cells."""
    return [float(cell) if is_number(cell) else math.nan for cell in row]


def _ascends(values: list[float]) -> bool:
    return all(before < after for before, after in pairwise(values))


def _descends(values: list[float]) -> bool:
    return all(before > after for before, after in pairwise(values))


def _is_even(values: list[float]) -> bool:
    """Return whether three or more values are evenly spaced."""
    steps = [after - before for before, after in pairwise(values)]
    return len(steps) > 1 and all(math.isclose(step, steps[0]) for step in steps)


def _stands_below(cell: str, column: int, below: Sequence[Cells]) -> bool:
    """Return whether a row below has the same text in the same column: names do not."""
    return any(len(row) > column and row[column].strip() == cell for row in below)


def _widths(lines: list[str], delimiter: str) -> set[int]:
    """Return the numbers of cells of the rows that are not empty; 1 where a line that holds no such delimiter is too long for a cell."""
    try:
        return {len(cells) for _, cells in rows_of(lines, delimiter) if any(map(str.strip, cells))}
    except csv.Error:
        return {1}


def _cells_with_commas(lines: list[str], delimiter: str) -> list[str]:
    return [cell.strip() for _, cells in rows_of(lines, delimiter) for cell in cells if "," in cell]


def _commas_are_decimal(lines: list[str], delimiter: str) -> bool:
    """Return whether there are cells with a comma, and most of them are numbers with a decimal comma."""
    cells = _cells_with_commas(lines, delimiter)
    return 2 * sum(is_number(cell, comma=True) for cell in cells) > len(cells) > 0


def shown_line(cells: Cells, delimiter: str) -> str:
    """Return a row as an error shows it."""
    return repr(delimiter.join(cells).strip()[:_SHOWN])


def file_name(path: AnyPath) -> str:
    """Return the name of a file, without its folder, for a note."""
    return printable(path.name if isinstance(path, Path) else str(path))
