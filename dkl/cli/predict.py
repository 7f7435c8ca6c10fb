"""`dkl predict`: predictions of a run for rows, block by block into a file, which is there whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dkl.blocks.row_blocks import RowBlocks
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.cli.extend import write_rows
from dkl.cli.inputs import check_new, check_values, load_rows
from dkl.cli.place import Cluster
from dkl.cli.regression_inputs import WITH_LABELS, open_run, read_targets
from dkl.datasets import read_array
from dkl.errors import InputError
from dkl.estimators.regression_store import Model, load_model
from dkl.problems.column_predict import predict_block
from dkl.stores.run import RunStore

SUFFIXES = (".npy", ".npz", ".csv")
BLOCKS_AT_ONCE = 4
"""A thread: so many blocks of predictions are held before they are written."""


def predict_run(
    path: str, data: str, targets: str | None, out: str, memory_limit: int | None, placing: dict[str, Any]
) -> None:
    run = open_run(path)
    target = check_new(out)
    if target.suffix not in SUFFIXES:
        raise InputError(
            "not a kind of file to write", where="--out", got=repr(target.suffix), wanted=", ".join(SUFFIXES)
        )
    model = load_model(run)
    cluster = Cluster.of(**placing, memory_limit=memory_limit)
    file = Path(data).absolute()
    rows = load_rows(file)
    check_features(run, model, rows, file)
    score = Score.of(file, targets, rows.n, len(model.weights))
    check_values(rows)
    is_flat = len(run.config.get("inputs", {}).get("targets", {}).get("shape", [0])) == 1 and len(model.weights) == 1
    shape = (rows.n,) if is_flat else (rows.n, len(model.weights))
    with cluster.session() as session:
        blocks = _predictions(RowBlocks(rows, session, memory_limit, where=str(file)), model, session)
        watched = blocks if score is None else score.watch(blocks)
        parts = (part[:, 0] for part in watched) if is_flat else watched
        write_rows(target, shape, parts, np.float64, "y")
    click.echo(f"{target}: {rows.n:,} predictions of {len(model.weights)} target(s)")
    if score is not None:
        click.echo(score.describe())


def check_features(run: RunStore, model: Model, rows: RowSource, file: Path) -> None:
    wanted = model.n_features
    if wanted < 0:  # rows of a precomputed kernel: as many numbers as there were rows
        wanted = int(run.config.get("inputs", {}).get("data", {}).get("shape", [0, rows.n_features])[1])
        if rows.n_features <= max(model.points, default=0):
            wanted = int(max(model.points)) + 1
    if rows.n_features != wanted:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=wanted)


def _predictions(rows: RowBlocks, model: Model, session: Session) -> Iterator[NDArray[np.float64]]:
    """(t, T) for the rows in order, a few blocks at a time."""
    slots = session.n_slots if session.is_distributed else session.threads
    step = BLOCKS_AT_ONCE * slots
    for lo in range(0, len(rows.bounds), step):
        some = set(range(lo, min(lo + step, len(rows.bounds))))
        yield from rows.map(predict_block, model.kernel, model.points, model.weights, model.intercepts, only=some)


@dataclass
class Score:
    """Errors of predictions as they pass by, beside targets (n, T)."""

    targets: NDArray[np.float64]
    seen: int = 0
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @classmethod
    def of(cls, data: Path, targets: str | None, n: int, n_targets: int) -> Score | None:
        """With the targets that are named; or with those beside the rows, if there are any that fit."""
        if targets is None and not _has_labels(data):
            return None
        try:
            y = read_targets(data, None if targets is None else Path(targets).absolute(), n).reshape(n, -1)
            if y.shape[1] != n_targets:
                raise InputError(
                    "another number of targets", where=str(targets or data), got=y.shape[1], wanted=n_targets
                )
        except InputError as error:
            if targets is not None:
                raise
            click.echo(f"note: not compared with the y beside the rows: {error}", err=True)
            return None
        return cls(y, squares=np.zeros(n_targets))

    def watch(self, blocks: Iterator[NDArray[np.float64]]) -> Iterator[NDArray[np.float64]]:
        for block in blocks:
            self.squares += ((self.targets[self.seen : self.seen + len(block)] - block) ** 2).sum(axis=0)
            self.seen += len(block)
            yield block

    def describe(self) -> str:
        spread = ((self.targets - self.targets.mean(axis=0)) ** 2).sum(axis=0)
        lines = []
        for number, (error, total) in enumerate(zip(self.squares, spread, strict=True)):
            name = "" if len(self.squares) == 1 else f"target {number}: "
            r2 = f"{1 - error / total:.6g}" if total > 0 else "none, the targets are constant"
            lines.append(f"  {name}R2 {r2}, mean squared error {error / self.seen:.8g}")
        return "\n".join(lines)


def _has_labels(data: Path) -> bool:
    """Whether there is a y beside the rows."""
    suffix = data.suffix.lower()
    if suffix != ".npz":
        return suffix in WITH_LABELS
    try:
        read_array(data, "y")
    except InputError as error:
        return error.what != "no such array"
    return True
