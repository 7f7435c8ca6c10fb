"""`dkl transform`: rows of the factor; of patterns that were not learned from, from those of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.pairwise.extension import extend_factor
from dkl.runs.files import check_unchanged, fingerprint
from dkl.runs.output import Output, Request
from dkl.runs.pairwise.facts import factor_blocks, graph_notes, open_factor
from dkl.runs.row_files import check_values, load_rows
from dkl.stores.run import RunStore


def transformed(run: RunStore, request: Request) -> Output:
    """The factor's rows for the patterns of a file, those of the run under any name or others of as many features."""
    stored = open_factor(run)
    n, rank = stored.shape
    known, file = training_data(run), Path(request.data).absolute()
    if known is not None and _is_same(file, known):
        summary = f"the {n:,} rows of the factor, rank {rank}"
        return Output(
            (n, rank), stored.dtype, "factor", summary, lambda session: (rows for _, rows in factor_blocks(run))
        )
    rows = load_rows(file)
    check_values(rows)
    if known is None:
        remedy = "use the learner's transform"
        raise StoreError("the run does not say what it was learned from", where=str(run.path), remedy=remedy)
    features = int(known["shape"][1])
    if rows.n_features != features:
        raise InputError("another number of features", where=str(file), got=rows.n_features, wanted=features)
    learned = Patterns(known)()

    def blocks(session: Session) -> Iterator[NDArray]:
        factor = np.concatenate([part for _, part in factor_blocks(run)])
        found = extend_factor(rows.read(0, rows.n), learned, factor, graph_of(run))
        yield np.asarray(found, stored.dtype)

    summary = f"{rows.n:,} rows from those of their neighbours, rank {rank}"
    return Output((rows.n, rank), stored.dtype, "factor", summary, blocks)


def graph_of(run: RunStore) -> Any:
    """What the extension to new patterns takes of the graph."""
    notes = graph_notes(run)
    return SimpleNamespace(sigma=float(notes["sigma"]), n_neighbors=int(notes["n_neighbors"]))


@dataclass(frozen=True)
class Patterns:
    """The patterns of a run, read from their file when they are called for, if it is still what it was."""

    known: dict[str, Any]

    def __call__(self) -> Any:
        """Where they stand, read by blocks. InputError for a file that is gone or has changed."""
        return load_rows(check_unchanged(self.known, "patterns"))


def training_data(run: RunStore) -> dict[str, Any] | None:
    """The fingerprint of the patterns; None for a run of Python's, which has no file."""
    inputs = run.config.get("inputs")
    return inputs.get("data") if isinstance(inputs, dict) else None


def _is_same(file: Path, known: dict[str, Any]) -> bool:
    """Whether it is the very data of the run, also under another name."""
    if not file.exists():
        raise InputError("no such file", where=str(file))
    if file.is_file() and file.stat().st_size != known["size"]:
        return False
    now = fingerprint(file, known)
    return all(now[name] == known[name] for name in now.keys() & {"crc32c", "crc32"})
