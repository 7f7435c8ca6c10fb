"""Reading of a run of pairs: facts for `dkl info`, and rows of the factor for `dkl transform`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import InputError, StoreError
from dkl.estimators.base.standardize import standardized
from dkl.estimators.pairwise.arrays import COLUMNS, SIMILARITY_FOLDER, history, kept_rows
from dkl.estimators.pairwise.extension import LEAST_ROWS, Extension, extend_block, index_bytes, is_same, work_bytes
from dkl.estimators.pairwise.store import WrongPairs, graph_notes, has_graph, load_choice
from dkl.io.paths import AnyPath, as_source, table_suffix
from dkl.io.reading import TableOptions
from dkl.linalg.graph.laplacian import Similarity
from dkl.linalg.rows.column_moments import ColumnScale
from dkl.resources import machine_memory
from dkl.runs import report
from dkl.runs.inputs.applied_rows import read_rows
from dkl.runs.inputs.files import check_unchanged, fingerprint, stored_table
from dkl.runs.inputs.readers import load_rows
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.pairwise import DECLARATION
from dkl.runs.predictions import Needs, Predictor, predictions
from dkl.runs.registry import Facts
from dkl.solvers.pairwise.gamma_path import GammaChoice
from dkl.stores.generations import Generation
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


# -- info ---------------------------------------------------------------------------------------------------------------


LAST_ROWS = 5


def facts(run: RunStore) -> Facts:
    """Return state, graph, certificate and the last iterations."""
    rows, graph, known = history(run), graph_notes(run), load_choice(run)
    choice, wrong = (None, None) if known is None else known
    config = {}
    if graph:
        notes = ", ".join(f"{name} {value}" for name, value in graph.items() if name != "summary")
        config["graph"] = str(graph.get("summary", notes))
    with report.damages(run):
        result = _result(run.report(), choice, wrong) if run.is_complete else {}
    choosing = [] if choice is None else _choice_table(choice)
    details = {} if choice is None else {"cv": _choice_details(choice)}
    if wrong is not None:
        details["wrong_pairs"] = {**wrong.as_dict(), "probability": wrong.probability.tolist()}
    table = [f"last of {len(rows)} iterations", *_table(rows[-LAST_ROWS:])] if rows else []
    return Facts(report.state(run, _under_way), config, result, choosing + table, {"history": rows, **details})


def _under_way(run: RunStore) -> str:
    generation, rows = newest(run), kept_rows(run)
    if rows is not None:
        return f"resumable at iteration {rows}"
    if generation is None and (run.path / "folds").is_dir():
        return "resumable while pairs are held out"
    if generation is not None:
        return f"resumable at iteration {generation.iteration}"
    return "not started; graph and pairs are stored" if has_graph(run) else "not started; the graph is not built yet"


def _result(found: Json, choice: GammaChoice | None, wrong: WrongPairs | None) -> dict[str, str]:
    certificate = found["certificate"]
    how = {}
    if choice is not None:
        how["gamma"] = f"{float(found['gamma']):.6g}, by {choice.ranks.shape[1]} folds of the pairs"
    if wrong is not None:
        how["wrong pairs"] = str(wrong)
    if "solver" in found:
        how["solver"] = str(found["solver"])
    return how | {
        "iterations": str(found["n_iter"]),
        "rank": str(found["rank"]),
        "objective": f"{certificate['objective']:.10g}",
        "proven relative gap": report.proven(certificate),
    }


def _choice_details(choice: GammaChoice) -> Json:
    """Return the choice of gamma as JSON for programs; likelihoods that a callback prevented are None."""
    likely = [None if np.isnan(value) else value for value in choice.log_likelihood.tolist()]
    return {"gammas": choice.gammas.tolist(), "log_likelihood": likely, "ranks": choice.ranks.tolist()}


def _choice_table(choice: GammaChoice) -> list[str]:
    """Return a line for each gamma: the log-likelihood of the held-out pairs, and the mean rank."""
    lines = ["gamma by pairs held out", "".join(f"{name:>17}" for name in ("gamma", "log-likelihood", "rank"))]
    for place, (gamma, likely, ranks) in enumerate(
        zip(choice.gammas, choice.log_likelihood, choice.ranks, strict=True)
    ):
        numbers = (gamma, likely, ranks.mean())
        lines.append("".join(f"{number:>17.4g}" for number in numbers) + ("  chosen" if place == choice.best else ""))
    return lines


def _table(rows: list[Json]) -> list[str]:
    names = [name for name in COLUMNS if any(isinstance(row.get(name), (int, float)) for row in rows)]
    lines = ["".join(f"{name.replace('_', ' '):>17}" for name in names)]
    for row in rows:
        cells = (row.get(name) for name in names)
        lines.append("".join(f"{cell:>17.8g}" if isinstance(cell, (int, float)) else f"{'':>17}" for cell in cells))
    return lines


def newest(run: RunStore) -> Generation | None:
    """Return the last commit that is intact; None without."""
    if not (run.path / "generations").is_dir():
        return None
    return next(run.generations().newest_first(), None)


def open_factor(run: RunStore) -> Any:
    """Return the result (n, rank) in chunks of rows, not read yet; StoreError if it cannot be opened."""
    where = f"{run.path}/factor"
    try:
        array: Any = run.factor()
        shape, chunks = tuple(array.shape), tuple(array.chunks)
    except (OSError, ValueError, OverflowError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise StoreError("the result cannot be opened", where=where, got=f"{type(error).__name__}: {error}") from error
    # Chunks of whole rows: a reader of some rows reads one chunk each.
    if len(shape) != 2 or min(shape) < 1 or chunks[1] != shape[1] or array.dtype not in (np.float64, np.float32):
        raise StoreError("not a factor", where=where, got=f"{array.dtype} {shape} in chunks {chunks}")
    return array


def factor_blocks(run: RunStore) -> Iterator[tuple[int, NDArray]]:
    """Yield (first row, rows) of the result by chunks; StoreError for a missing or damaged chunk."""
    array = open_factor(run)
    for lo in range(0, array.shape[0], array.chunks[0]):
        where = f"{run.path}/factor, rows from {lo}"
        try:
            rows = np.asarray(array[lo : lo + array.chunks[0]])
        except (OSError, ValueError, OverflowError, RuntimeError, KeyError, TypeError) as error:
            raise StoreError("a chunk of the result is damaged", where=where, got=error) from error
        # A missing chunk reads as NaN.
        if not np.isfinite(rows).all():
            raise StoreError("a chunk of the result is missing, or holds NaN", where=where)
        yield lo, rows


# -- transform ----------------------------------------------------------------------------------------------------------


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
    # The same rows in another file: their coordinates are known, and better than means of neighbors.
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

    # Once for all blocks, and only when the first is asked for: after the plan has been checked.
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


INDEX_SHARE = 0.25
"""Share of the memory that a search tree of the patterns may take."""


def extension_needs(learned: RowSource, rank: int, itemsize: int, n_neighbors: int, memory_limit: int | None) -> Needs:
    """Return the needs of the factor's rows for other patterns than those that were learned from."""
    most = index_share(memory_limit)
    return Needs(
        learned.n * rank * itemsize + learned.own_bytes + index_bytes(learned, most),
        lambda count: work_bytes(learned, rank, min(n_neighbors, learned.n), count),
        itemsize * rank,
        LEAST_ROWS,
    )


def index_share(memory_limit: int | None) -> float:
    """Return the bytes that a search tree of the patterns may take."""
    return INDEX_SHARE * (memory_limit or machine_memory())
