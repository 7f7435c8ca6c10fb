"""Pairs and triplets in files, as the objects that learners take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import InputError
from dkl.io.array_files import read_array, read_npz
from dkl.io.object_paths import AnyPath
from dkl.io.paths import as_source
from dkl.io.reading import reading
from dkl.io.table_lines import TABLES, is_text, sample, side_delimiter, table_suffix
from dkl.io.table_options import TableOptions
from dkl.io.tables import read_table
from dkl.side_information.pair_files import names_triplets, read_pair_file, read_triplet_text, refuse_triplet_order
from dkl.side_information.pairs import Pairs
from dkl.side_information.row_ids import numbered, rows_of_ids
from dkl.side_information.triplets import Triplets

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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
