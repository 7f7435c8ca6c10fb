"""Files of pairs and triplets of rows, which name rows by number, or by id where the rows have ids."""

from __future__ import annotations

from dkl._object_paths import AnyPath
from dkl._table_lines import file_name
from dkl.blocks.row_sources import RowSource
from dkl.pairs import Pairs, load_pairs
from dkl.triplets import Triplets, load_triplets


def read_pairs(file: AnyPath, rows: RowSource) -> Pairs:
    """Return the pairs in a file, by the ids of the rows where these have any; InputError as of `load_pairs`."""
    _note(file, rows)
    return load_pairs(file, ids=rows.ids)


def read_triplets(file: AnyPath, rows: RowSource) -> Triplets:
    """Return the triplets in a file, by the ids of the rows where these have any; InputError as of `load_triplets`."""
    _note(file, rows)
    return load_triplets(file, ids=rows.ids)


def _note(file: AnyPath, rows: RowSource) -> None:
    if rows.ids is not None:
        rows.note += f"; {file_name(file)} names rows by these ids"
