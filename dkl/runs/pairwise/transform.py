"""`dkl transform`: rows of the factor; for new patterns means of their neighbors' rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.rows.standardized_rows import standardized
from dkl.errors import InputError, StoreError
from dkl.estimators.pairwise.arrays import SIMILARITY_FOLDER
from dkl.estimators.pairwise.extension import Extension, extend_block, is_same
from dkl.estimators.pairwise.fold_store import graph_notes
from dkl.io.object_paths import AnyPath
from dkl.io.paths import as_source
from dkl.io.table_lines import table_suffix
from dkl.io.table_options import TableOptions
from dkl.linalg.graph.similarity import Similarity
from dkl.linalg.rows.column_scale import ColumnScale
from dkl.runs.inputs.applied_rows import read_rows
from dkl.runs.inputs.files import check_unchanged, fingerprint, stored_table
from dkl.runs.inputs.row_files import load_rows
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.predictions import Predictor, predictions
from dkl.runs.pairwise import DECLARATION
from dkl.runs.pairwise.facts import factor_blocks, open_factor
from dkl.runs.pairwise.planner import extension_needs, index_share
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json


def transformed(run: RunStore, request: OutputRequest) -> Output:
    """Return the factor's rows for the patterns of a file: the run's own, or others of as many features."""
    stored = open_factor(run)
    known, file = training_data(run), as_source(request.data, "--data").absolute()
    if known is not None and _is_same(file, known):
        return _as_stored(run, stored)
    rows = read_rows(request, file)
    if known is None:
        remedy = "use the learner's transform"
        raise StoreError("the run does not say what it was learned from", where=run.name, remedy=remedy)
    learned = Patterns(known, request.memory_limit, request.scale, stored_table(run))()
    if rows.n_features == learned.n_features and is_same(rows, learned):
        return _as_stored(run, stored)
    return predictions(
        _predictor(run, stored, learned, request.memory_limit), DECLARATION.files, replace(request, rows=rows)
    )


def _as_stored(run: RunStore, stored: Any) -> Output:
    """Return all of the factor, a few rows at a time."""
    n, rank = stored.shape
    summary = f"the {n:,} rows of the factor, rank {rank}"
    return Output((n, rank), stored.dtype, "factor", summary, lambda session: (rows for _, rows in factor_blocks(run)))


def _predictor(run: RunStore, stored: Any, learned: RowSource, memory_limit: int | None) -> Predictor:
    """Return a predictor of the factor's rows for other patterns."""
    (n, rank), similarity = stored.shape, similarity_of(run)

    @cache
    def extension() -> Extension:
        factor = np.empty((n, rank), stored.dtype)
        for first, rows in factor_blocks(run):
            factor[first : first + len(rows)] = rows
        return Extension.of(learned, factor, similarity, index_share(memory_limit))

    def blocks(rows: RowBlocks, some: set[int]) -> NDArray:
        return np.concatenate(rows.map(extend_block, extension(), only=some))

    return Predictor(
        (rank,),
        stored.dtype,
        lambda found: learned.n_features,
        blocks,
        None,
        f"rows from those of their neighbors, rank {rank}",
        extension_needs(learned, rank, stored.dtype.itemsize, similarity.n_neighbors, memory_limit),
        "factor",
    )


def similarity_of(run: RunStore) -> Similarity:
    """Return the graph's similarity, by which the factor is extended to new patterns."""
    notes = graph_notes(run)
    is_local = run.config["settings"]["sigma"] == "local"
    widths = run.read_arrays(SIMILARITY_FOLDER)["widths"] if is_local else np.array([float(notes["sigma"])])
    return Similarity(widths, int(notes["n_neighbors"]))


@dataclass(frozen=True)
class Patterns:
    """The patterns of a run, read from their file when they are called for, if it is still what it was and fits into the limit."""

    known: Json
    memory_limit: int | None = None
    scale: ColumnScale | None = None
    table: TableOptions | None = None

    def __call__(self) -> RowSource:
        """Return the patterns, read by blocks and standardized by `scale`.
        InputError for a file that is gone or has changed."""
        path = check_unchanged(self.known, "patterns")
        rows = load_rows(path, self.memory_limit, self.table if table_suffix(path) is not None else None)
        return rows if self.scale is None else standardized(rows, self.scale)


def training_data(run: RunStore) -> Json | None:
    """Return the fingerprint of the patterns; None for a run fitted in Python, which has no file."""
    inputs = run.config.get("inputs")
    return inputs.get("data") if isinstance(inputs, dict) else None


def _is_same(file: AnyPath, known: Json) -> bool:
    """Return whether a file holds the run's own data, also under another name; InputError if missing."""
    if not file.exists():
        raise InputError("no such file", where=str(file))
    if file.is_file() and file.stat().st_size != known["size"]:
        return False
    now = fingerprint(file, known)
    return all(now[name] == known[name] for name in now.keys() & {"crc32c", "crc32"})
