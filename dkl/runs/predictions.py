"""Predictions of a model, a few blocks at a time, their memory, and their score where targets are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.memory_plan import PROCESS_BASE, RAISE_LIMIT, Place, Plan
from dkl.blocks.rows.predictions import TILE_BYTES
from dkl.blocks.rows.row_blocks import RowBlocks, row_bounds
from dkl.blocks.rows.row_pieces import Block, require_finite
from dkl.blocks.rows.row_sources import RowSource, bytes_of_rows
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.graph.laplacian import Similarity
from dkl.linalg.kernels.kernel_columns import DENSE_POINTS_BYTES, POINTS_AT_A_TIME
from dkl.linalg.kernels.kernel_columns import TILE_BYTES as COLUMNS_BYTES
from dkl.runs.inputs.applied_rows import read_rows, require_features
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.readers import require_room_for_targets
from dkl.runs.interrupt import echo
from dkl.runs.output_files import Output, OutputRequest
from dkl.runs.registry import InputFile
from dkl.runs.supervised.inputs import file_of_targets, may_have_targets, require_dense

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from dkl.blocks.rows.row_sources import Rows


class Score(Protocol):
    """Score of predictions against what is known."""

    @property
    def nbytes(self) -> int:
        """Return the bytes of what is known, with the work on it."""

    def see(self, block: NDArray) -> None:
        """Add the next block of predictions to the score."""

    def describe(self) -> str:
        """Return the score of all predictions as text."""


@dataclass(frozen=True)
class Predictor:
    """Predictor of an array of `shape` and `dtype` for each row.

    features: of the rows that it takes, from the number that they have. blocks: predictions for some blocks. compare:
    with what is known of n rows, None where nothing can be. summary: what they are. needs: bytes. name: of the array.
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    features: Callable[[int], int]
    blocks: Callable[[RowBlocks, set[int]], NDArray]
    compare: Callable[[Files, int], Score] | None
    summary: str
    needs: Needs
    name: str = "y"
    of_kernel: bool = False
    """True if its rows are values of a precomputed kernel."""
    columns: tuple[str, ...] | None = None
    """Names of the columns, if they have any."""


def predictions(predictor: Predictor, declared: tuple[InputFile, ...], request: OutputRequest) -> Output:
    """Return predictions for all rows of the request; InputError for other features, or not finite."""
    files = Files.of(declared, {"data": request.data, "targets": request.targets, "table": request.table})
    rows = read_rows(request, files["data"])
    require_features(rows, predictor.features(rows.n_features), files["data"])
    if predictor.of_kernel:
        require_dense(rows, files["data"])
    score = _score(predictor, files, rows.n, request.memory_limit)
    known = 0 if score is None else score.nbytes

    def plan(session: Session) -> Plan:
        return prediction_plan(predictor.needs, rows, known, Place.of(session), request.memory_limit)

    def blocks(session: Session) -> Iterator[NDArray]:
        at_once = plan(session).shape["at_once"]
        needs = predictor.needs
        cut = RowBlocks(
            rows, session, where=str(files["data"]), once=True, least_rows=needs.least_rows, result_bytes=needs.row
        )
        return _in_order(cut, predictor, at_once, score)

    return Output(
        (rows.n, *predictor.shape),
        predictor.dtype,
        predictor.name,
        f"{rows.n:,} {predictor.summary}",
        blocks,
        lambda: [] if score is None else [score.describe()],
        plan,
        predictor.columns or ("prediction" if predictor.name == "y" else "c"),
    )


def _score(predictor: Predictor, files: Files, n: int, memory_limit: int | None) -> Score | None:
    """Return a score by the targets that are named, or by those in the rows' file that fit; None without."""
    if predictor.compare is None or not may_have_targets(files):
        return None
    require_room_for_targets(file_of_targets(files), memory_limit)
    try:
        return predictor.compare(files, n)
    except InputError as error:
        # Targets that were named must fit; a y that happens to be in the rows' file need not.
        if files.paths["targets"] is not None:
            raise
        echo(f"note: not compared with the y beside the rows: {error}", err=True)
        return None


def _in_order(rows: RowBlocks, predictor: Predictor, step: int, score: Score | None) -> Iterator[NDArray]:
    for lo in range(0, len(rows.bounds), step):
        block = predictor.blocks(rows, set(range(lo, min(lo + step, len(rows.bounds)))))
        if score is not None:
            score.see(block)
        # As the file wants them: its bytes are written as they lie in memory.
        yield np.ascontiguousarray(block, predictor.dtype)


@dataclass(frozen=True)
class GraphRows:
    """Graph's rows (n, d) with their coordinates (n, k): a new row has the mean of its neighbors'."""

    rows: Rows
    coordinates: NDArray[np.float64]
    similarity: Similarity

    @property
    def nbytes(self) -> int:
        """Return the bytes of coordinates, similarity and rows, so that a session sends them once."""
        return int(self.coordinates.nbytes + self.similarity.nbytes + bytes_of_rows(self.rows))

    def predictor(self, summary: str) -> Predictor:
        """Return a predictor of coordinates; summary: what they are, in a line after their number."""
        d, k = int(self.rows.shape[1]), int(self.coordinates.shape[1])

        def together(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
            return np.concatenate(rows.map(extend_rows, self, only=some))

        return Predictor((k,), np.float64, lambda found: d, together, None, summary, self._needs(), "factor")

    def _needs(self) -> Needs:
        n, d = self.rows.shape
        return graph_needs(int(n), int(d), int(self.coordinates.shape[1]), self.similarity.n_neighbors)


def extend_rows(block: Block, kept: GraphRows) -> NDArray[np.float64]:
    """Return coordinates (t, k) of a block: means over a row's neighbors, or its own if the graph has it."""
    from dkl.estimators.base.prior_kernels import neighbor_means

    require_finite(block)
    return np.asarray(neighbor_means(block.rows, kept.rows, kept.similarity) @ kept.coordinates)


# -- memory ------------------------------------------------------------------------------------------------------------
# Plans of the memory that `dkl predict` and `dkl transform` need in each process.

BLOCKS_AT_ONCE = 4
"""Blocks of predictions per thread that are held before they are written, if they fit; else one."""
STAGES = 3
"""Copies of a tile of kernel columns: the kernel's argument, its values, and what is summed."""
TREE_COPIES = 3
"""Copies of a graph's rows: themselves, in double for the search, and its tree or some distances."""
REMEDY = f"{RAISE_LIMIT}, or take fewer threads"


@dataclass(frozen=True)
class Needs:
    """Bytes that a model takes to predict.

    model: of its arrays; block: of the work on a block of that many rows, without them and their predictions; row: of the
    predictions for a row, with all that they are made from. least_rows: of a block.
    """

    model: int
    block: Callable[[int], int]
    row: int
    least_rows: int = 1

    def with_more(self, row: int) -> Needs:
        """Return these needs with `row` more bytes for a row."""
        return replace(self, row=self.row + row)


def kernel_needs(points: Rows, weights: NDArray, kernels: int = 1) -> Needs:
    """Return the needs of sum_m weights[t, m] k(x, x_m), weights (T, m), by several kernels."""
    width = points.shape[1] if points.ndim == 2 else 0
    sizes = PointSizes(points.shape[0], width, bytes_of_rows(points), sp.issparse(points))
    return sizes.needs(len(weights), weights.nbytes, kernels)


@dataclass(frozen=True)
class PointSizes:
    """Sizes of `count` points of an expansion, of `width` columns (0: precomputed), `size` bytes in all."""

    count: int
    width: int
    size: int
    is_sparse: bool = False

    @classmethod
    def of(cls, rows: RowSource, count: int, *, is_precomputed: bool = False) -> PointSizes:
        """Return the sizes of `count` of these rows as points."""
        if is_precomputed:
            return cls(count, 0, 8 * count)
        return cls(count, rows.n_features, count * max(rows.row_bytes, 8), rows.is_sparse)

    def needs(self, outputs: int, weights: int, kernels: int = 1) -> Needs:
        """Return the needs of `outputs` sums over the points with `weights` bytes of weights.

        A thread has the points as the kernel takes them, in double, with what it makes them from, a tile of columns at three
        stages, and a smaller one of rows.
        """
        count, width = max(1, self.count), self.width + 2 if self.width else 0
        prepared = DENSE_POINTS_BYTES if self.is_sparse else 8 * (count + 2 * min(count, POINTS_AT_A_TIME)) * width

        def block(rows: int) -> int:
            shifted = min(rows, max(16, COLUMNS_BYTES // (8 * count))) * 8 * width
            return STAGES * min(TILE_BYTES, 8 * rows * count) + shifted + prepared

        several = kernels > 1  # weights of each, and sums that are added up
        return Needs(self.size + (2 if several else 1) * weights, block, (16 if several else 8) * outputs)


def graph_needs(n: int, d: int, k: int, n_neighbors: int) -> Needs:
    """Return the needs of k coordinates of rows from `n_neighbors` neighbors among n rows of d features."""

    def block(count: int) -> int:
        return 8 * (TREE_COPIES * n * d + count * (4 * d + 8 * n_neighbors))

    return Needs(8 * n * (d + k + 2), block, 8 * k)


def with_later(plan: Plan, place: Place, memory_limit: int | None, later: dict[str, int]) -> Plan:
    """Return a fit's plan with the stages of later uses of its run, under the same limit; checked.

    Not on a cluster, whose workers predict and whose limit is theirs.
    """
    if place.distributed:
        return plan
    stages = plan.stages | {f"{name}, later": size for name, size in later.items()}
    place.checked(replace(plan, stages=stages, remedy=f"{RAISE_LIMIT}; the fit alone would fit"), memory_limit)
    return replace(plan, stages=stages)


def applied_bytes(needs: Needs, rows: RowSource, place: Place, known: int = 0) -> int:
    """Return the least bytes of a model with these needs, applied to such rows; `known`: of their targets."""
    return sum(_plan(needs, rows, known, place, None, 1).items.values())


def prediction_plan(needs: Needs, rows: RowSource, known: int, place: Place, memory_limit: int | None) -> Plan:
    """Return the plan of each process; shape["at_once"]: blocks of predictions that are held.

    known: bytes of targets to compare with. MemoryBudgetError for more than the limit, or than a worker may use.
    """
    limit, slots = place.allowed(memory_limit), place.threads * place.processes
    # Several blocks a slot where they fit, so that no slot waits for the slowest; else one.
    for each in (BLOCKS_AT_ONCE, 1):
        made = _plan(needs, rows, known, place, limit, each * slots)
        if made.fits:
            break
    return place.checked(made, memory_limit)


def _plan(needs: Needs, rows: RowSource, known: int, place: Place, limit: int | None, at_once: int) -> Plan:
    bounds = row_bounds(rows.n, rows.row_bytes, needs.least_rows, needs.row)
    most, at_once = max(stop - start for start, stop in bounds), min(at_once, len(bounds))
    threads = min(place.threads, len(bounds))
    items = {
        "the model": needs.model * (2 if place.distributed else 1),  # as it is, and as it is sent or has come
        "rows that are read at once": rows.own_bytes * (2 if place.distributed else 1),
        "targets to compare with": known,
        "blocks of rows": 0 if rows.is_in_memory else _read_bytes(rows, most, threads),
        "work on blocks": threads * needs.block(most),
        "predictions": 2 * at_once * most * needs.row,  # as they come, and joined
    }
    held = {name: size for name, size in items.items() if size}
    shape = {"at_once": at_once}
    return Plan("memory", place.processes, place.threads, PROCESS_BASE, held, {}, limit, shape=shape, remedy=REMEDY)


def _read_bytes(rows: RowSource, most: int, threads: int) -> int:
    """Return bytes of blocks in work, one waiting and one being read; and of chunks' window."""
    window = 0 if rows.rows_per_chunk == 1 else 2 * (most + rows.rows_per_chunk)
    return ((threads + 2) * most + window) * rows.row_bytes
