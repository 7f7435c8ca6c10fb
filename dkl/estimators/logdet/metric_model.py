"""A learned metric in a run's folder, which needs no training data: read to transform rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_checks import require_finite
from dkl.blocks.rows.row_pieces import Block
from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import trained_on
from dkl.estimators.logdet.model import APART, FILES, NUMBER, check_parts, declared
from dkl.estimators.logdet.settings import LogDetMetricRunSettings
from dkl.stores.registry import Arrays, StoredArray
from dkl.stores.run import RunStore

Matrix = NDArray[np.float64]


def metric_settings_in(run: RunStore) -> LogDetMetricRunSettings:
    """Return the settings of a run whose configuration has been validated."""
    return LogDetMetricRunSettings(**run.config["settings"])


def check_metric_model(run: RunStore, found: dict[str, NDArray]) -> None:
    """Raise StoreError for arrays that do not fit together, or numbers that are no rows of the data."""
    d, k = trained_on(run)[1], metric_settings_in(run).n_components
    lengths = {"feature": d, "other": d, "whole_component": d, "component": d if k is None else k}
    check_parts(run, found, ("touched",), **lengths, touched=len(found["touched"]), drawn=len(found["points"]))
    if ("whole_components" in found) != (k is not None):
        raise StoreError(APART, where=f"{run.path}/model")
    for name in ("components", "prior", *({"whole_components"} & found.keys())):
        if not np.isfinite(found[name]).all():
            raise StoreError("not finite", where=f"{run.path}/model/{name}")


@np.errstate(over="ignore", invalid="ignore")  # raised as an InputError instead
def transformed_block(block: Block, components: Matrix) -> Matrix:
    """Return rows (t, k) whose Euclidean distances are the learned ones; InputError where they are not finite."""
    require_finite(block)
    found = np.asarray(block.rows @ components.T, np.float64)
    if not np.isfinite(found).all():
        what = f"coordinates that are not finite in rows {block.start} to {block.stop - 1}"
        raise InputError(what, where="X", remedy="scale the rows")
    return found


ARRAYS = Arrays(
    *declared(
        StoredArray(
            "model/components",
            ("component", "feature"),
            NUMBER,
            "L of W = L'L, at the last gamma; with n_components the part that is handed out.",
        ),
        StoredArray(
            "model/whole_components",
            ("whole_component", "feature"),
            NUMBER,
            "With n_components: L of W = L'L itself, which the certificate is of.",
            optional=True,
        ),
        StoredArray("model/prior", ("feature", "other"), NUMBER, "W0."),
        StoredArray("model/points", ("drawn", "feature"), NUMBER, "Rows of the data that a picture shows."),
        inverse="W^-1 = W0^-1 + X'U(l)X",
    ),
    files=FILES,
)
