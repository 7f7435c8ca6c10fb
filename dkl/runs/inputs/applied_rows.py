"""Rows that a run reads after its first: scaled as those were, and where it is applied to them, checked before its model is.

Means and spreads of a run's columns are computed when it begins, stored in its folder, and applied to all rows that it reads later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.rows.row_pieces import blocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.run_arrays import order_of
from dkl.estimators.base.standardize import find_scale, read_scale, standardized, store_scale
from dkl.io.array_files import is_svmlight, with_features
from dkl.io.paths import AnyPath, as_source, table_suffix
from dkl.io.reading import TableOptions
from dkl.io.table_lines import file_name
from dkl.io.tables import read_ids
from dkl.linalg.rows.column_moments import ColumnScale
from dkl.runs.inputs.files import Lazy, stored_table
from dkl.runs.inputs.readers import CHECKED_BYTES, check_values, is_peeked, load_rows, peek_rows, require_table
from dkl.runs.interrupt import echo
from dkl.runs.output_files import OutputRequest, RowIds
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.settings import Settings
    from dkl.stores.seals import Json

AGREE = 1e-9
"""Tolerance of means and spreads, relative to the spread: sums in another order differ.
Of means near 1e6 spreads and more, rounding is allowed in addition."""
READ_BYTES = 4_000_000
"""Bytes of rows that `dkl verify` reads at a time."""
REMEDIES = (
    "all are standardized: --standardize does so without this note, --no-standardize leaves them as they are",
    "--standardize brings all columns to spread 1, --no-standardize says that they are right as they are",
)


def standardized_inputs(run: RunStore, inputs: Lazy, settings: Settings, session: Session) -> Lazy:
    """Return the inputs, with standardized rows if the settings ask for it; the run stores the scale."""
    if not getattr(settings, "standardize", False):
        return inputs
    scale = read_scale(run)
    if scale is None:
        rows = inputs().rows
        scale = find_scale(rows, settings, session, remedies=REMEDIES, names=rows.names)
        store_scale(run, scale)
    return scaled_inputs(inputs, scale)


def scaled_inputs(inputs: Lazy, scale: ColumnScale | None) -> Lazy:
    """Return the inputs with their rows standardized by `scale`."""
    if scale is None:
        return inputs

    def read() -> Any:
        given = inputs()
        inputs.release()  # rows in memory are scaled in place
        return replace(given, rows=standardized(given.rows, scale))

    return Lazy(read)


def claims(run: RunStore, inputs: Lazy) -> Iterator[Comparison]:
    """Yield comparisons of stored means and spreads with StandardScaler's, at the column farthest off.

    inputs: with rows as their file has them. No claims where these are gone: a learner that needs them says so.
    """
    scale = read_scale(run)
    if scale is None:
        return
    with suppress(InputError):
        rows = inputs().rows
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler(with_mean=scale.means is not None)
        for _, some in blocks(rows, max(1, READ_BYTES // rows.row_bytes)):
            scaler.partial_fit(some.astype(np.float64))
        spreads = scaler.scale_
        rounding = (
            np.zeros(len(spreads)) if scale.means is None else np.finfo(float).eps * rows.n * np.abs(scaler.mean_)
        )
        allowed = AGREE * spreads + rounding
        pairs = [("spread", scale.spreads, spreads)]
        if scale.means is not None:
            pairs.append(("mean", scale.means, scaler.mean_))
        for name, stored, found in pairs:
            j = int(np.argmax(np.abs(stored - found) / allowed))
            yield Comparison(f"{name} of column {j}", float(stored[j]), float(found[j]), float(allowed[j]), quiet=True)


def looked_at(run: RunStore, request: OutputRequest) -> OutputRequest:
    """Return the request with its rows read and checked, unless they may be the run's own, checked before.

    InputError for what cannot be read, has another number of features, or a value that is not finite; MemoryBudgetError for what
    must be read at once and does not fit.
    """
    given, request = request.table, replace(request, table=_new_table(run, request))
    file, known = as_source(request.data, "--data").absolute(), learned_from(run)
    require_table(file, replace(given, header=None, delimiter=None, decimal=None, target_column=None))
    if file.is_file() and file.stat().st_size == known.get("size"):
        return request
    table = table_of(request, file)
    rows, shape = _by_names(peek_rows(file, request.memory_limit, table), request, file), known.get("shape")
    if isinstance(shape, list) and len(shape) == 2:
        if rows.is_sparse and is_svmlight(file):
            rows.array, rows.n_features = with_features(rows.array, shape[1], file), shape[1]
        require_features(rows, shape[1], file)
    if is_peeked(rows):
        rows = load_rows(file, request.memory_limit, table)
    check_values(rows)
    return replace(request, rows=rows)


def read_rows(request: OutputRequest, file: AnyPath) -> RowSource:
    """Return the rows of the request, checked to be finite, standardized with the scale of the fit.
    Errors as of `looked_at`."""
    rows = request.rows
    if rows is None:
        rows = _by_names(load_rows(file, request.memory_limit, table_of(request, file)), request, file)
        check_values(rows)
    return rows if request.scale is None else standardized(rows, request.scale)


def _by_names(rows: RowSource, request: OutputRequest, file: AnyPath) -> RowSource:
    """Return a table's rows with their columns in the order of the fit, by names, and print a note on it.

    Where the table or what was learned from has no names, columns are taken in their order. InputError for other names.
    """
    known, names = request.names, rows.names
    if names == known or table_suffix(file) is None:
        return rows
    if known is None or names is None:
        lacking = "the run has no names of columns" if known is None else "it has no names of columns"
        echo(f"note: {file_name(file)}: {lacking}: its columns are taken in their order", err=True)
        return rows
    order, array = order_of(names, known, str(file)), rows.array
    step = max(1, CHECKED_BYTES // rows.row_bytes)
    for lo in range(0, rows.n, step):  # in place: a copy would take as much memory again
        array[lo : lo + step] = array[lo : lo + step, order]
    rows.names = known
    echo(f"note: {file_name(file)}: columns matched with those learned from by their names", err=True)
    return rows


def _new_table(run: RunStore, request: OutputRequest) -> TableOptions:
    """Return how to read delimited text for a run: as for its fit, unless the request says otherwise.

    A column of targets is one of the file that it was named for: of the data, or of the file of targets.
    """
    given, stored = request.table, stored_table(run)
    found = replace(stored.for_new_rows(given), like_before=_was_table(run))
    inputs = run.config.get("inputs")
    targets = inputs.get("targets") if isinstance(inputs, dict) else None
    in_data = not isinstance(targets, dict) or bool(targets.get("beside_rows"))
    if given.target_column is not None and request.targets is not None and in_data and stored.target_column is not None:
        return replace(found, drop=(*found.drop, stored.target_column))  # another file has the targets: no feature here
    # The request names the column of targets, or they are where they were for the fit.
    if given.target_column is not None or stored.target_column is None or (request.targets is None) == in_data:
        return found
    # They are in another place now, where no column has that name for us; in the data it still is no feature.
    return replace(found, target_column=None, drop=(*found.drop, stored.target_column) if in_data else found.drop)


def _was_table(run: RunStore) -> bool:
    """Return whether the run learned from delimited text."""
    path = learned_from(run).get("path")
    return isinstance(path, str) and table_suffix(as_source(path)) is not None


def table_of(request: OutputRequest, file: AnyPath) -> TableOptions | None:
    """Return how the rows of a request are read, where they are delimited text."""
    return request.table if table_suffix(file) is not None else None


def ids_of_request(request: OutputRequest) -> RowIds | None:
    """Return the ids of a request's rows and the name of their column; None for a file without ids."""
    file = as_source(request.data, "--data").absolute()
    table = table_of(request, file)
    return None if table is None else ids_of_file(file, table)


def ids_of_file(file: AnyPath, table: TableOptions) -> RowIds | None:
    """Return the ids of the rows of a file of text; None where it has no column of ids."""
    found = read_ids(file, table)
    return None if found is None else RowIds(*found)


def require_features(rows: RowSource, wanted: int, file: AnyPath) -> None:
    """Raise InputError for rows with another number of features."""
    if rows.n_features != wanted:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=wanted)


def learned_from(run: RunStore) -> Json:
    """Return what the run's configuration stores of its data file; {} for a run fitted in Python."""
    inputs = run.config.get("inputs")
    found = inputs.get("data") if isinstance(inputs, dict) else None
    return found if isinstance(found, dict) else {}
