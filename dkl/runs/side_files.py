"""Files of pairs and triplets of rows, which name rows by number, or by id where the rows have ids."""

from __future__ import annotations

from dkl._object_paths import AnyPath
from dkl._reading import reading
from dkl._table_lines import file_name, is_text, table_suffix
from dkl.blocks.row_sources import RowSource
from dkl.errors import InputError
from dkl.pairs import Pairs, load_pairs
from dkl.runs.files import Files
from dkl.triplets import Triplets, load_triplets


def read_pairs(files: Files, rows: RowSource) -> Pairs:
    """Return the pairs in a file, by the ids of rows that have any; InputError as of `load_pairs`."""
    file = files["pairs"]
    _note(file, rows)
    table = files.table
    return load_pairs(file, header=_header(files), delimiter=table.delimiter, decimal=table.decimal, ids=rows.ids)


def read_triplets(files: Files, rows: RowSource) -> Triplets:
    """Return the triplets in a file, by the ids of rows that have any; InputError as of `load_triplets`.

    Raises InputError for a first line of numbers below a table of which --header was said: it may be names as well.
    """
    file, header = files["triplets"], _header(files)
    _note(file, rows)
    if files.table.header and header is None and table_suffix(file) is not None:
        with reading(file):
            is_clear = is_text(file)
        if not is_clear:
            remedy = "write anchor,similar,dissimilar above the triplets, or store them as .npy"
            raise InputError("names of columns, or a triplet?", where=f"{file}, line 1, --header", remedy=remedy)
    return load_triplets(file, header=header, delimiter=files.table.delimiter, ids=rows.ids)


def _header(files: Files) -> bool | None:
    """Return --header for a file of side information; None if the data are text and it is for these."""
    return None if table_suffix(files["data"]) is not None else files.table.header


def _note(file: AnyPath, rows: RowSource) -> None:
    if rows.ids is not None:
        rows.note += f"; {file_name(file)} names rows by these ids"
