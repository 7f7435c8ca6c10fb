"""Predictions of a model for rows, a few blocks at a time, and how good they are where targets are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.runs.files import Files
from dkl.runs.kind import InputFile
from dkl.runs.output import Output, Request
from dkl.runs.row_files import check_values, load_rows, room_for_blocks
from dkl.runs.supervised import may_have_targets

BLOCKS_AT_ONCE = 4
"""A thread: so many blocks of predictions are held before they are written."""


class Score(Protocol):
    """How good predictions are, beside what is known."""

    def see(self, block: NDArray) -> None:
        """The next of them."""

    def describe(self) -> str:
        """Of all of them."""


@dataclass(frozen=True)
class Predictor:
    """What a learner predicts for a row: an array of `shape` and `dtype`.

    features: of the rows that it takes, from the number that they have. blocks: predictions for some blocks. compare:
    with what is known of n rows. summary: what they are.
    """

    shape: tuple[int, ...]
    dtype: Any
    features: Callable[[int], int]
    blocks: Callable[[RowBlocks, set[int]], NDArray]
    compare: Callable[[Files, int], Score]
    summary: str


def predictions(predictor: Predictor, declared: tuple[InputFile, ...], request: Request) -> Output:
    """Of all rows of the request's file; InputError for rows that are not for the predictor, or not finite."""
    files = Files.of(declared, {"data": request.data, "targets": request.targets})
    rows = load_rows(files["data"], request.memory_limit)
    wanted = predictor.features(rows.n_features)
    if rows.n_features != wanted:
        where = str(files["data"])
        raise InputError("another number of features", where=where, got=rows.n_features, wanted=wanted)
    score = _score(predictor, files, rows.n)
    check_values(rows)

    def blocks(session: Session) -> Iterator[NDArray]:
        room = room_for_blocks(rows, request.memory_limit, files["data"])
        cut = RowBlocks(rows, session, room, where=str(files["data"]), once=True)
        return _in_order(cut, predictor, session, score)

    return Output(
        (rows.n, *predictor.shape),
        predictor.dtype,
        "y",
        f"{rows.n:,} {predictor.summary}",
        blocks,
        lambda: [] if score is None else [score.describe()],
    )


def _score(predictor: Predictor, files: Files, n: int) -> Score | None:
    """With the targets that are named; or with those beside the rows, if there are any that fit."""
    if not may_have_targets(files):
        return None
    try:
        return predictor.compare(files, n)
    except InputError as error:
        if files.paths["targets"] is not None:
            raise
        click.echo(f"note: not compared with the y beside the rows: {error}", err=True)
        return None


def _in_order(rows: RowBlocks, predictor: Predictor, session: Session, score: Score | None) -> Iterator[NDArray]:
    slots = session.n_slots if session.is_distributed else session.threads
    step = BLOCKS_AT_ONCE * slots
    for lo in range(0, len(rows.bounds), step):
        block = predictor.blocks(rows, set(range(lo, min(lo + step, len(rows.bounds)))))
        if score is not None:
            score.see(block)
        yield np.ascontiguousarray(block, predictor.dtype)


def data_path(request: Request) -> Path:
    """The file of the request's rows, absolute."""
    return Path(request.data).absolute()
