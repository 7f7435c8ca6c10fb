"""A learned metric in a run's folder, which needs no training data: read to transform rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import (
    CERTIFICATE,
    ITERATION,
    check_lengths,
    check_rows,
    declared_history,
    trained_on,
)
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.logdet.model import NUMBER, STATES
from dkl.estimators.logdet.settings import LogDetMetricRunSettings
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

Matrix = NDArray[np.float64]


def metric_settings_in(run: RunStore) -> LogDetMetricRunSettings:
    """Return the settings of a run whose configuration has been validated."""
    return LogDetMetricRunSettings(**run.config["settings"])


def check_metric_model(run: RunStore, found: dict[str, NDArray]) -> None:
    """Raise StoreError for arrays that do not fit together, or numbers that are no rows of the data."""
    where = f"{run.path}/model"
    n, d = trained_on(run)
    known = {"feature": d, "other": d, "component": d, "touched": len(found["touched"]), "drawn": len(found["points"])}
    check_lengths(run, "model", found, "a model whose parts do not fit together", where, **known)
    touched = found["touched"]
    check_rows(n, touched, f"{where}/touched")
    if not len(touched) or (np.diff(touched) <= 0).any():
        raise StoreError("not numbers of rows, ascending", where=f"{where}/touched")
    for name in ("components", "prior"):
        if not np.isfinite(found[name]).all():
            raise StoreError("not finite", where=f"{where}/{name}")


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def transformed_block(block: Block, components: Matrix) -> Matrix:
    """Return rows (t, d) whose Euclidean distances are the learned ones; InputError where they are not finite."""
    require_finite(block)
    found = np.asarray(block.rows @ components.T, np.float64)
    if not np.isfinite(found).all():
        what = f"coordinates that are not finite in rows {block.start} to {block.stop - 1}"
        raise InputError(what, where="X", remedy="scale the rows")
    return found


# The arrays that a run of LogDet metric learning holds. P are the rows that constraints touch.

ARRAYS = Arrays(
    *STATES,
    *COLUMN_ARRAYS,
    StoredArray("model/components", ("component", "feature"), NUMBER, "L of W = L'L, at the last gamma."),
    StoredArray("model/prior", ("feature", "other"), NUMBER, "W0."),
    StoredArray("model/touched", ("touched",), INTEGERS, "P, as rows of the data."),
    StoredArray("model/gammas", ("gamma",), NUMBER, "The path."),
    StoredArray("model/multipliers", ("gamma", "constraint"), NUMBER, "l at each gamma: W^-1 = W0^-1 + X'U(l)X."),
    StoredArray("model/points", ("drawn", "feature"), NUMBER, "Rows of the data that a picture shows."),
    StoredArray(
        "held_out/multipliers",
        ("constraint_left",),
        NUMBER,
        "Quality: l without the held-out part, at the last gamma.",
        optional=True,
    ),
    StoredArray("held_out/relative_gap", ("one",), NUMBER, "Quality: the relative gap of that.", optional=True),
    *declared_history(
        {**ITERATION, "products": "Of the checks: Hessian products so far at this gamma."},
        {"gamma": "Of the checks: the weight.", **CERTIFICATE, "decrement": "Of the checks: |K^1/2 G K^1/2|_F."},
    ),
    files={
        "path/path-*/MANIFEST.json": "The gammas of a path that are solved: of each its certificate, what it took, its rows of "
        "the history, and the shapes of its arrays."
    },
)
