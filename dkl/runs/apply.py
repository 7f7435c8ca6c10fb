"""`dkl predict`: predictions of a run for rows, block by block into a file, which is there whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import click
import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.runs.cluster import Cluster
from dkl.runs.files import check_new, check_values, load_rows
from dkl.runs.output import write_rows
from dkl.runs.stored import open_task, task_of
from dkl.runs.supervised import Files

SUFFIXES = (".npy", ".npz", ".csv")
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
    """What a kind of run predicts for a row: an array of `shape` and `dtype`.

    check: InputError for rows that are not for it; blocks: predictions for some blocks; compare: with what is known of n
    rows, told by `files`.
    """

    shape: tuple[int, ...]
    dtype: Any
    check: Callable[[RowSource, Path], None]
    blocks: Callable[[RowBlocks, set[int]], NDArray]
    compare: Callable[[Files, int], Score]
    told: str


def predict_run(
    path: str,
    data: str,
    targets: str | None,
    out: str,
    decision: bool,
    memory_limit: int | None,
    placing: dict[str, Any],
) -> None:
    run = open_task(path, "regression", "svc")
    if task_of(run) == "svc":
        from dkl.runs.svc.predict import predictor
    else:
        from dkl.runs.regression.predict import predictor
    target = check_new(out)
    if target.suffix not in SUFFIXES:
        raise InputError(
            "not a kind of file to write", where="--out", got=repr(target.suffix), wanted=", ".join(SUFFIXES)
        )
    kind = predictor(run, decision)
    cluster = Cluster.of(**placing, memory_limit=memory_limit)
    files = Files.of(data, targets)
    rows = load_rows(files.data)
    kind.check(rows, files.data)
    score = _score(kind, files, rows.n)
    check_values(rows)
    with cluster.session() as session:
        blocks = _predictions(RowBlocks(rows, session, memory_limit, where=str(files.data)), kind, session, score)
        write_rows(target, (rows.n, *kind.shape), blocks, kind.dtype, "y")
    click.echo(f"{target}: {rows.n:,} {kind.told}")
    if score is not None:
        click.echo(score.describe())


def _score(kind: Predictor, files: Files, n: int) -> Score | None:
    """With the targets that are named; or with those beside the rows, if there are any that fit."""
    if not files.may_have_targets:
        return None
    try:
        return kind.compare(files, n)
    except InputError as error:
        if files.targets is not None:
            raise
        click.echo(f"note: not compared with the y beside the rows: {error}", err=True)
        return None


def _predictions(rows: RowBlocks, kind: Predictor, session: Session, score: Score | None) -> Iterator[NDArray]:
    """For the rows in order, a few blocks at a time."""
    slots = session.n_slots if session.is_distributed else session.threads
    step = BLOCKS_AT_ONCE * slots
    for lo in range(0, len(rows.bounds), step):
        block = kind.blocks(rows, set(range(lo, min(lo + step, len(rows.bounds)))))
        if score is not None:
            score.see(block)
        yield np.ascontiguousarray(block, kind.dtype)


def check_features(rows: RowSource, file: Path, wanted: int) -> None:
    if rows.n_features != wanted:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=wanted)
