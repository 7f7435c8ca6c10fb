"""Means and spreads of a run's columns: computed when it begins, stored in its folder, applied to all rows that it reads later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.rows.row_checks import blocks
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.base.standardize import find_scale, read_scale, standardized, store_scale
from dkl.linalg.rows.column_moments import ColumnScale
from dkl.runs.inputs.files import Lazy
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.settings import Settings

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
