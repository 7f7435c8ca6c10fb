"""A learned kernel, or metric, in a run's folder, which needs no training data: read to transform rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.blocks.rows.row_pieces import Block, require_finite
from dkl.errors import InputError, StoreError
from dkl.estimators.base.rules import SHARPNESS
from dkl.estimators.base.run_arrays import (
    CERTIFICATE,
    ITERATION,
    check_lengths,
    declared_history,
    declared_points,
    trained_on,
)
from dkl.estimators.base.settings import COLUMN_ARRAYS
from dkl.estimators.logdet.settings import LogDetMetricRunSettings, LogDetRunSettings
from dkl.linalg.graph.laplacian import Similarity
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.stores.checkpoints import vectors_of
from dkl.stores.registry import INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore


def settings_in(run: RunStore) -> LogDetRunSettings:
    """Return the settings of a run whose configuration has been validated."""
    return LogDetRunSettings(**run.config["settings"])


def check_model(run: RunStore, found: dict[str, NDArray]) -> None:
    """Raise StoreError for arrays that do not fit together, or numbers that are no rows of the data."""
    n, p = trained_on(run)[0], len(found["touched"])
    check_parts(run, found, ("touched", "basis"), touched=p, other=p, sample=n, other_sample=n, one=1)
    # Stored points are those of the basis: of other touched rows the kernel could not be computed.
    if not np.isin(found["touched"], found["basis"]).all():
        raise StoreError(APART, where=f"{run.path}/model")


def check_parts(run: RunStore, found: dict[str, NDArray], numbers: tuple[str, ...], **lengths: int) -> None:
    """Raise StoreError for arrays of other `lengths`, or where those named in `numbers` are no rows of the data, ascending."""
    where, n = f"{run.path}/model", trained_on(run)[0]
    check_lengths(run, "model", found, APART, where, **lengths)
    for name in numbers:
        rows = found[name]
        if not len(rows) or rows[0] < 0 or rows[-1] >= n or (np.diff(rows) <= 0).any():
            raise StoreError("not numbers of rows, ascending", where=f"{where}/{name}")


def kept_kernel(settings: LogDetRunSettings, found: dict[str, NDArray]) -> Kernel:
    """Return the kernel of rows."""
    params = settings.kernel_params
    # The stored number, of the rows learned from: "scale" of other rows would be another kernel.
    gamma = float(found["kernel_gamma"][0]) if "kernel_gamma" in found else None
    return Kernel(settings.kernel, gamma, params.get("degree", 3), params.get("coef0", 1))


def stored_similarity(settings: LogDetRunSettings, found: dict[str, NDArray], where: str) -> Similarity:
    """Return the graph's similarity, by which unseen rows are means; StoreError for other rows' widths."""
    n, widths = len(found["coordinates"]), found["widths"]
    if widths.shape not in ((1,), (n,)):
        raise StoreError("not the widths of a similarity", where=f"{where}/widths", got=widths.shape)
    return Similarity(widths, max(1, min(settings.n_neighbors, n - 1)), SHARPNESS)


def stored_laplacian(found: dict[str, NDArray], where: str) -> sp.csr_array:
    """Return D - W (n, n) of the graph; StoreError for a damaged one."""
    n = len(found["coordinates"])
    try:
        parts = (found["laplacian"], found["laplacian_indices"], found["laplacian_indptr"])
        laplacian = sp.csr_array(parts, shape=(n, n))
        # Indices of a damaged file could be out of range, which compiled products would follow.
        laplacian.check_format(full_check=True)
    except (KeyError, ValueError, OverflowError, IndexError) as error:
        raise StoreError("a damaged graph", where=where, got=error) from error
    return laplacian


# The arrays that a run of LogDet learning holds. P are the rows that constraints touch.

NUMBER = ("float64",)
APART = "a model whose parts do not fit together"


def declared(*own: StoredArray, inverse: str) -> tuple[StoredArray, ...]:
    """Return the declarations of a run of a kernel or of a metric: its `own`, and those of both; inverse: what l gives."""
    left = StoredArray("held_out/multipliers", ("constraint_left",), NUMBER, "", optional=True)
    return (
        vectors_of("path", "path", "l and tr(K A_t) of the constraints, at each gamma that is solved."),
        *COLUMN_ARRAYS,
        StoredArray("model/touched", ("touched",), INTEGERS, "P, as rows of the data."),
        StoredArray("model/gammas", ("gamma",), NUMBER, "The path."),
        StoredArray("model/multipliers", ("gamma", "constraint"), NUMBER, f"l at each gamma: {inverse}."),
        *own,
        left.at("held_out/multipliers", "Quality: l without the held-out part, at the last gamma."),
        replace(left, dims=("one",)).at("held_out/relative_gap", "Quality: the relative gap of that."),
        *declared_history(
            {**ITERATION, "products": "Of the checks: Hessian products so far at this gamma."},
            {"gamma": "Of the checks: the weight.", **CERTIFICATE, "decrement": "Of the checks: |K^1/2 G K^1/2|_F."},
        ),
    )


FILES = {
    "path/path-*/MANIFEST.json": "The gammas of a path that are solved: of each its certificate, what it took, its rows of the "
    "history, and the shapes of its arrays."
}
ARRAYS = Arrays(
    *declared(
        StoredArray("model/M", ("touched", "other"), NUMBER, "K = K0 + K0[:, P] M K0[P, :], at the last gamma."),
        StoredArray("model/basis", ("basis",), INTEGERS, "Rows of the data whose principal components are kept."),
        StoredArray("model/weights", ("basis", "component"), NUMBER, "Coordinates: k0(x, basis) weights + ..."),
        StoredArray(
            "model/weights_at_points", ("touched", "component"), NUMBER, "... k0(x, P) weights_at_points - offset."
        ),
        StoredArray("model/offset", ("component",), NUMBER, "See weights."),
        StoredArray(
            "model/coordinates", ("sample", "component"), NUMBER, "Of a graph's rows: their coordinates.", optional=True
        ),
        StoredArray("model/kernel_gamma", ("one",), NUMBER, "Of a kernel of rows that has one.", optional=True),
        StoredArray(
            "model/widths", ("width",), NUMBER, "Of the graph's similarity: one, or each row's.", optional=True
        ),
        StoredArray("model/laplacian", ("graph_entry",), NUMBER, "Of the graph, D - W: its entries.", optional=True),
        StoredArray(
            "model/laplacian_indices", ("graph_entry",), INTEGERS, "As CSR: the column of each.", optional=True
        ),
        StoredArray("model/laplacian_indptr", ("sample_bound",), INTEGERS, "As CSR: where rows begin.", optional=True),
        StoredArray("model/prior", ("sample", "other_sample"), NUMBER, "K0 that was precomputed.", optional=True),
        *declared_points("model", "kept", "Rows of the data: those of the basis, or all that the graph is of"),
        inverse="K^-1 = K0^-1 + U(l)",
    ),
    files=FILES,
)


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


METRIC_ARRAYS = Arrays(
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
