"""Files of pairs and triplets of rows, which name rows by number, or by id where the rows have ids."""

from __future__ import annotations

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError
from dkl.io.object_paths import AnyPath
from dkl.io.reading import reading
from dkl.io.table_lines import file_name, is_text, table_suffix
from dkl.runs.inputs.files import Files
from dkl.side_information.loading import pairs_in_file, triplets_in_file
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets


def read_pairs(files: Files, rows: RowSource) -> Pairs:
    """Return the pairs in a file, by the ids of rows that have any; InputError as of `dkl.load_pairs`."""
    file, table = files["pairs"], files.table
    pairs, named = pairs_in_file(
        file, header=_header(files), delimiter=table.delimiter, decimal=table.decimal, ids=rows.ids
    )
    _note(f"{len(pairs.must_link) + len(pairs.cannot_link):,} pairs", file, named, rows)
    return pairs


def read_triplets(files: Files, rows: RowSource) -> Triplets:
    """Return the triplets in a file, by the ids of rows that have any; InputError as of `dkl.load_triplets`.

    Raises InputError for a first line of numbers below a table of which --header was said: it may be names as well.
    """
    file, header = files["triplets"], _header(files)
    if files.table.header and header is None and table_suffix(file) is not None:
        with reading(file):
            is_clear = is_text(file)
        if not is_clear:
            remedy = "write anchor,similar,dissimilar above the triplets, or store them as .npy"
            raise InputError("names of columns, or a triplet?", where=f"{file}, line 1, --header", remedy=remedy)
    triplets, named = triplets_in_file(file, header=header, delimiter=files.table.delimiter, ids=rows.ids)
    _note(f"{len(triplets.triplets):,} triplets", file, named, rows)
    return triplets


def _header(files: Files) -> bool | None:
    """Return --header for a file of side information; None if the data are text and it is for these."""
    return None if table_suffix(files["data"]) is not None else files.table.header


def _note(count: str, file: AnyPath, named: int, rows: RowSource) -> None:
    """Add to the rows' note what was decided of a file of pairs or triplets. named: its line of names that are not ours, 0 for none."""
    decided = [f"line {named} names the columns"] if named else []
    if rows.ids is not None:
        decided.append("rows by these ids")
    if decided:
        note = f"{file_name(file)}: {count}, {', '.join(decided)}"
        rows.note = f"{rows.note}; {note}" if rows.note else note
