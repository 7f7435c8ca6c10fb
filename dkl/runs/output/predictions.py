"""Predictions of a model, a few blocks at a time, and their score where targets are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory.execution_limits import Place
from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.linalg.graph.similarity import Similarity
from dkl.runs.echo import echo
from dkl.runs.inputs.applied_rows import read_rows, require_features
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.readers import require_room_for_targets
from dkl.runs.kind import InputFile
from dkl.runs.output.files import Output, OutputRequest
from dkl.runs.output.prediction_plan import Needs, graph_needs, prediction_plan
from dkl.runs.supervised.inputs import file_of_targets, may_have_targets, require_dense

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from dkl.linalg.rows.row_types import Rows


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
        if files.paths["targets"] is not None:
            raise
        echo(f"note: not compared with the y beside the rows: {error}", err=True)
        return None


def _in_order(rows: RowBlocks, predictor: Predictor, step: int, score: Score | None) -> Iterator[NDArray]:
    for lo in range(0, len(rows.bounds), step):
        block = predictor.blocks(rows, set(range(lo, min(lo + step, len(rows.bounds)))))
        if score is not None:
            score.see(block)
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
        return int(self.coordinates.nbytes + self.similarity.nbytes + getattr(self.rows, "nbytes", 0))

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
