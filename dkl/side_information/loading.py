"""Pairs and triplets in files: lines of row numbers or ids, with or without a line of names, as the objects that learners take."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import InputError
from dkl.io import table_lines as lines
from dkl.io.array_files import read_array, read_npz
from dkl.io.paths import TABLES, AnyPath, as_source, table_suffix
from dkl.io.reading import TableOptions, reading
from dkl.io.table_lines import WITHOUT_INDEX, Cells, is_number, is_text, is_unnamed, sample, side_delimiter
from dkl.io.tables import read_table
from dkl.side_information.pair_checks import Integers, numbered, rows_of_ids, unknown_id
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


_MUST = frozenset({"must", "mustlink", "1", "+1"})
_CANNOT = frozenset({"cannot", "cannotlink", "0", "-1"})
_SHOWN = 60  # characters of a malformed line
_COLUMNS = ["i", "j", "label", "weight"]
"""Columns of a file of pairs; the last may be missing, in all of its lines."""
_TRIPLET = ["anchor", "similar", "dissimilar"]

Rows = Mapping[Hashable, int] | None
"""Row numbers by ids as text; None where the ends of a file are row numbers."""


def read_pair_file(
    path: str | AnyPath,
    rows: Rows = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
) -> tuple[NDArray | None, NDArray | None, NDArray | None, int]:
    """Return (must_link, cannot_link, weights, the line of names) of a file of text or .npz; see `dkl.load_pairs`.

    None stands for a missing array; the line is 0 where there are no names, or only those of `_COLUMNS`.
    rows: row numbers of the ids that the file names rows by. header, delimiter, decimal: of text, where they were said.
    """
    path = as_source(path)
    if table_suffix(path) is not None:
        with reading(path):
            some = lines.sample(path)
            delimiter = lines.side_delimiter(path, some, delimiter)
            comma = lines.has_decimal_comma(path, some, delimiter, decimal)
            return _read_pairs(path, rows, header, delimiter, comma)
    if path.suffix.lower() != ".npz":
        wanted = ".csv, .tsv or .npz"
        raise InputError("not a file of pairs", where=str(path), got=repr(path.suffix.lower()), wanted=wanted)
    arrays = read_npz(path)
    if not arrays.keys() & {"must_link", "cannot_link"}:
        wanted = "arrays must_link and cannot_link"
        raise InputError("no pairs in the file", where=str(path), got=", ".join(sorted(arrays)), wanted=wanted)
    must, cannot = arrays.get("must_link"), arrays.get("cannot_link")
    if rows is not None:
        where = f"{path}, "
        must = numbered(must, rows, 2, f"{where}must_link", as_text=True)
        cannot = numbered(cannot, rows, 2, f"{where}cannot_link", as_text=True)
    return must, cannot, arrays.get("weights"), 0


def read_triplet_text(
    path: AnyPath, rows: Mapping[Hashable, int], header: bool | None = None, delimiter: str | None = None
) -> tuple[Integers, int]:
    """Return (triplets (m, 3), the line of names, 0 for none or ours) of a file of ids.

    The first line holds names where none of its cells is an id.

    header, delimiter: where they were said. Raises InputError where a first line of other names than ours looks like unknown ids.
    """

    named = 0

    def is_header(number: int, first: Cells) -> bool:
        nonlocal named
        if header is False or (header is None and any(cell in rows for cell in first)):
            return False
        named = 0 if names_triplets(first) else number
        if header:
            return True
        if not names_triplets(first) and {_shape(cell) for cell in first} & {_shape(str(one)) for one in rows}:
            where, got = f"{path}, line {number}", repr(",".join(first)[:_SHOWN])
            remedy = f"above triplets write {','.join(_TRIPLET)}; in a triplet, ids of rows"
            raise InputError("names of columns, or ids that no row has?", where=where, got=got, remedy=remedy)
        return True

    found = []
    with reading(path):
        for number, cells in _cells(path, is_header, delimiter):
            if len(cells) != len(_TRIPLET):
                raise _malformed(path, number, cells, "3 ids: anchor, similar, dissimilar")
            found.append([_row(cell, rows, path, number) for cell in cells])
    return np.array(found, np.int64).reshape(-1, 3), named


def refuse_triplet_order(path: AnyPath, delimiter: str | None = None) -> None:
    """Raise InputError for a first line that names anchor, similar and dissimilar in another order than triplets are read in."""
    with reading(path):
        delimiter = lines.side_delimiter(path, some := lines.sample(path), delimiter)
        number, cells = next(((n, cells) for n, cells in lines.rows_of(some, delimiter) if cells), (0, []))
    if names_triplets(cells) and [cell.strip().lower() for cell in cells] != _TRIPLET:
        where, got = f"{path}, line {number}", repr(",".join(cells)[:_SHOWN])
        raise InputError("columns in another order", where=where, got=got, wanted=", ".join(_TRIPLET))


def names_triplets(cells: Sequence[str]) -> bool:
    """Return whether the cells are the names of a triplet's columns, in any order."""
    return sorted(cell.strip().lower() for cell in cells) == sorted(_TRIPLET)


def _shape(text: str) -> str:
    """Return text with a letter for each run of letters and a digit for each run of digits: C1007 is written as C2 is."""
    return re.sub(r"[0-9]+", "0", re.sub(r"[^\W\d_]+", "a", text))


def _cells(
    path: AnyPath, is_header: Callable[[int, Cells], bool], delimiter: str | None
) -> Iterator[tuple[int, Cells]]:
    """Yield (line, stripped cells) of each row that is not empty, but for a header."""
    lines.require_text_room(path)
    delimiter = lines.side_delimiter(path, lines.sample(path), delimiter)
    is_first = True
    with lines.open_text(path) as text:
        for number, line in lines.rows_of(text, delimiter):
            cells = [cell.strip() for cell in line]
            if not any(cells):
                continue
            if not is_first or not is_header(number, cells):
                yield number, cells
            is_first = False


def _read_pairs(
    path: AnyPath, rows: Rows, header: bool | None, delimiter: str, comma: bool
) -> tuple[Any, Any, Any, int]:
    """Return the pairs in the order of their lines, their weights, None without such a column, and the line of names, 0 for none or ours.

    comma: whether weights are written with a decimal comma.
    """
    must: list[tuple[int, int]] = []
    cannot: list[tuple[int, int]] = []
    weights: dict[bool, list[float]] = {True: [], False: []}
    columns: list[str] = []
    unread: InputError | None = None
    named = 0

    def is_header(number: int, first: Cells) -> bool:
        nonlocal columns, unread, named
        names = [cell.lower() for cell in first]
        is_named = header is not False and sorted(names) in (sorted(_COLUMNS), sorted(_COLUMNS[:3]))
        columns = names if is_named else _COLUMNS[: len(names)]
        if header and len(first) > 2 and _kind(first[2]) is not None:
            where, got = f"{path}, line {number}", repr(",".join(first)[:_SHOWN])
            raise InputError("a pair where names were said to be", where=where, got=got, remedy="leave out --header")
        is_other = not is_named and (_is_header(first, rows) if header is None else header)
        unread = _malformed_pair(path, number, first, rows) if is_other and header is None else None
        named = number if is_other else 0
        return is_named or is_other

    for number, cells in _cells(path, is_header, delimiter):
        unread = None
        row = dict(zip(columns, cells, strict=False)) if len(cells) == len(columns) else {}
        if comma and is_number(row.get("weight", ""), comma=True):
            row["weight"] = row["weight"].replace(",", ".")
        kind = _kind(row.get("label", ""))
        ends = [row.get(name, "") for name in ("i", "j")]
        # Negative ones pass: the check of the pairs says more of them.
        is_pair = rows is not None or all(end.removeprefix("-").isdecimal() for end in ends)
        if kind is None or not is_pair or not _is_weight(row.get("weight", "1")):
            raise _malformed_pair(path, number, cells, rows)
        first, second = (int(end) if rows is None else _row(end, rows, path, number) for end in ends)
        if first == second:
            got = repr(",".join(cells)[:_SHOWN])
            raise InputError("a row paired with itself", where=f"{path}, line {number}", got=got,
                             wanted="two different rows", remedy="leave the line out")  # fmt: skip
        (must if kind else cannot).append((first, second))
        if "weight" in row:
            weights[kind].append(float(row["weight"]))
    # No pair came after it, so the first line was not taken for names but for a pair.
    if unread is not None:
        raise unread
    return must, cannot, weights[True] + weights[False] if "weight" in columns else None, named


def _is_header(first: Cells, rows: Rows) -> bool:
    """Return whether a first line of other names than ours is one: it has no word for a link, no number and no id of a row."""
    if len(first) not in (3, 4) or is_unnamed(first[0]):
        return False
    return not any(_kind(cell) is not None or _is_weight(cell) or (rows or {}).get(cell) is not None for cell in first)


def _kind(cell: str) -> bool | None:
    """Return True for a must-link's word or number, False for a cannot-link's, None for any other text."""
    word = cell.lower()
    # A sign stays: 1 is a must-link, and -1 is not.
    word = word if word[:1] in "+-" else word.replace("-", "").replace("_", "").replace(" ", "")
    return True if word in _MUST else False if word in _CANNOT else None


def _row(cell: str, rows: Mapping[Hashable, int], path: AnyPath, number: int) -> int:
    """Return the row of an id; InputError names line and id."""
    if cell not in rows:
        raise unknown_id(cell, f"{path}, line {number}")
    return rows[cell]


def _malformed_pair(path: AnyPath, number: int, cells: Cells, rows: Rows) -> InputError:
    ends = "integers i and j" if rows is None else "ids i and j"
    wanted = (
        f"i,j,label or i,j,label,weight with {ends}, a label must-link or cannot-link (or must and cannot, 1 and 0, or 1 "
        "and -1), and a finite weight >= 0, in all lines or in none"
    )
    if rows is None and _kind(cells[2] if len(cells) > 2 else "") is not None:
        wanted += "; rows are named by ids where the data has a column of ids: --id-column (load_pairs(path, ids=...))"
    return _malformed(path, number, cells, wanted)


def _malformed(path: AnyPath, number: int, cells: Cells, wanted: str) -> InputError:
    remedy = WITHOUT_INDEX if number == 1 and len(cells) >= 4 and is_unnamed(cells[0]) else None
    got = repr(",".join(cells)[:_SHOWN])
    return InputError("malformed line", where=f"{path}, line {number}", got=got, wanted=wanted, remedy=remedy)


def _is_weight(cell: str) -> bool:
    """Return whether a cell is a finite number >= 0."""
    try:
        # `float` alone reads 1_0 as 10.
        return 0 <= float(cell) < float("inf") and "_" not in cell
    except ValueError:
        return False


def load_pairs(
    path: str | AnyPath,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    ids: ArrayLike | None = None,
) -> Pairs:
    """Return the pairs in a file; what they mean for n rows is checked later, by `check(n)`.

    Parameters
    ----------
    path : str or path
        .csv, .tsv: lines i,j,label or, in all of them, i,j,label,weight. label: must-link or must, 1, +1; cannot-link or cannot,
        0, -1; words also with _, a space or nothing for the dash. The first line may hold names: these four in any order, or any
        others where it has no number, no word for a link and no id. Empty lines are passed over.
        .npz: arrays must_link and cannot_link, (m, 2) integers each; one may be missing. weights, (n_must + n_cannot,), those of
        must_link first, may be there. Nothing is unpickled.
    header, delimiter
        Of text: whether line 1 holds names, which is otherwise decided by its content; and what separates cells, which is otherwise
        recognized of commas, semicolons and tabs.
    decimal : "," or "."
        In weights; a decimal comma is otherwise recognized where commas do not separate cells.
    ids : array of shape (n,) or data frame
        Distinct ids of the rows, such as X.index: i and j are such ids, compared as text, and no row numbers.

    Returns
    -------
    Pairs

    Raises
    ------
    InputError
        That names the file and the line of a malformed one, or of an id that no row has.

    See Also
    --------
    load_triplets : Triplets in files.
    Pairs.from_index : Pairs of ids, without a file.

    Examples
    --------
    >>> import tempfile
    >>> from dkl import load_pairs
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("ann,eve,must-link\\nann,bob,cannot-link\\n")
    ...     file.flush()
    ...     load_pairs(file.name, ids=["ann", "bob", "eve"]).must_link.tolist()
    [[0, 2]]
    """
    return pairs_in_file(path, header=header, delimiter=delimiter, decimal=decimal, ids=ids)[0]


def pairs_in_file(
    path: str | AnyPath, *, header: bool | None, delimiter: str | None, decimal: str | None, ids: ArrayLike | None
) -> tuple[Pairs, int]:
    """Return (pairs, number of the line of names, 0 for none or ours), as `load_pairs`."""
    rows = None if ids is None else rows_of_ids(ids, as_text=True)
    must_link, cannot_link, weights, named = read_pair_file(path, rows, header, delimiter, decimal)
    return Pairs(must_link, cannot_link, weights=weights), named


def load_triplets(
    path: str | AnyPath, *, header: bool | None = None, delimiter: str | None = None, ids: ArrayLike | None = None
) -> Triplets:
    """Return the triplets in a file, anchor, similar and dissimilar a row.

    Parameters
    ----------
    path : str or path
        .npy; .npz: key triplets, or its only array; .csv, .tsv, also with .gz: whole numbers or ids. Columns named anchor, similar
        and dissimilar must be in this order.
    header, delimiter
        Of text: whether line 1 holds names, else where it holds text, so that 0,1,2 is a triplet; and what separates cells, else of
        commas, semicolons and tabs what is recognized.
    ids : array of shape (n,) or data frame
        Distinct ids of the rows, such as X.index: the triplets are of ids, compared as text, and a first line of text holds names
        where none of its cells is an id, or is refused where its cells are written as ids are.

    Returns
    -------
    Triplets

    Raises
    ------
    InputError
        For a missing, damaged or foreign file, and for anything but an (m, 3) array of whole numbers or ids.

    See Also
    --------
    load_pairs : Pairs in files.
    Triplets.from_index : Triplets of ids, without a file.

    Examples
    --------
    >>> import tempfile
    >>> from dkl import load_triplets
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("anchor,similar,dissimilar\\n0,1,2\\n2,3,0\\n")
    ...     file.flush()
    ...     load_triplets(file.name).triplets.tolist()
    [[0, 1, 2], [2, 3, 0]]
    """
    return triplets_in_file(path, header=header, delimiter=delimiter, ids=ids)[0]


def triplets_in_file(
    path: str | AnyPath, *, header: bool | None, delimiter: str | None, ids: ArrayLike | None
) -> tuple[Triplets, int]:
    """Return (triplets, number of the line of names, 0 for none or ours), as `load_triplets`."""
    source = as_source(path)
    suffix = table_suffix(source) or source.suffix.lower()
    if suffix not in (".npy", ".npz", *TABLES):
        raise InputError("not a file of triplets", where=str(path), got=repr(suffix), wanted=".csv, .tsv, .npy or .npz")
    rows = None if ids is None else rows_of_ids(ids, as_text=True)
    if suffix in TABLES:
        with reading(source):
            delimiter = side_delimiter(source, sample(source), delimiter)
        refuse_triplet_order(source, delimiter)
    if rows is not None and suffix in TABLES:
        triplets, named = read_triplet_text(source, rows, header, delimiter)
        return Triplets(triplets), named
    if suffix in TABLES and header is None:
        with reading(source):
            header = is_text(source, delimiter)
    names = read_npz(path).keys() if suffix == ".npz" else ()
    key = "triplets" if "triplets" in names else None
    if rows is not None and suffix == ".npz" and key is not None:  # ids may be text, which `read_array` does not take
        return Triplets(numbered(read_npz(path, key)[key], rows, 3, f"{path}, triplets", as_text=True)), 0
    table = read_table(source, TableOptions(header, delimiter)) if suffix in TABLES else None
    found = read_array(path, key) if table is None else table.values
    if rows is not None:
        return Triplets(numbered(found, rows, 3, f"{path}, triplets", as_text=True)), 0
    if not isinstance(found, np.ndarray) or found.ndim != 2 or found.shape[1] != 3:
        got = f"shape {getattr(found, 'shape', None)}"
        raise InputError("not triplets", where=str(path), got=got, wanted="(m, 3): anchor, similar, dissimilar")
    if table is not None:  # read as floats, which are whole numbers to 2^53
        wrong = np.argwhere(~((np.floor(found) == found) & (np.abs(found) < 2.0**53)))
        if len(wrong):
            row, column = wrong[0].tolist()
            place = f"{path}, triplet {row}"
            raise InputError("not a row number", where=place, got=f"{found[row, column]:g}", wanted="whole numbers")
        found = found.astype(np.int64)
    return Triplets(found), 0 if table is None or names_triplets(table.names or ()) else table.header_line
