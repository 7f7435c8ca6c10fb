"""The rows that a run is applied to, read and looked at before its model is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dkl._object_paths import AnyPath
from dkl._paths import as_source
from dkl.blocks.row_sources import RowSource
from dkl.blocks.standardized_rows import standardized
from dkl.errors import InputError
from dkl.runs.output import Request
from dkl.runs.row_files import check_values, is_peeked, load_rows, peek_rows
from dkl.stores.run import RunStore


def looked_at(run: RunStore, request: Request) -> Request:
    """The request with its rows, unless they may be the run's own, which were looked at when it began.

    InputError for what cannot be read, has another number of features, or a value that is not finite; MemoryBudgetError for what
    must be read at once and does not fit.
    """
    file, known = as_source(request.data, "--data").absolute(), _learned_from(run)
    if file.is_file() and file.stat().st_size == known.get("size"):
        return request
    rows, shape = peek_rows(file, request.memory_limit), known.get("shape")
    if isinstance(shape, list) and len(shape) == 2:
        require_features(rows, shape[1], file)
    if is_peeked(rows):
        rows = load_rows(file, request.memory_limit)
    check_values(rows)
    return replace(request, rows=rows)


def read_rows(request: Request, file: AnyPath) -> RowSource:
    """The rows of the request, which stand in the file, are finite, and standardized as those that were learned from. Errors as of
    `looked_at`."""
    rows = request.rows
    if rows is None:
        rows = load_rows(file, request.memory_limit)
        check_values(rows)
    return rows if request.scale is None else standardized(rows, request.scale)


def require_features(rows: RowSource, wanted: int, file: AnyPath) -> None:
    """InputError for rows with another number of features."""
    if rows.n_features != wanted:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=wanted)


def _learned_from(run: RunStore) -> dict[str, Any]:
    """What the run keeps of the file that it learned from; empty for a run of Python's."""
    inputs = run.config.get("inputs")
    found = inputs.get("data") if isinstance(inputs, dict) else None
    return found if isinstance(found, dict) else {}
