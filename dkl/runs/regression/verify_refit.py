"""`dkl verify` of a refit: the ridge's objective and gap, from the residuals of one pass and scikit-learn's kernel.

On the columns S with r = y - C w - c and P = K_SS + delta I, delta = 1e-13 M, K the kernel between their points, scaled,

    R = |r|^2 + lambda w'P w,    gap = q'P^-1 q / lambda,    q = C_S'r - lambda P w

The gap is q stretched by P^-1, and with it the rounding of columns in single precision, in which a weight that is off by 1e-3 may be
lost. So q itself is compared too, entry by entry, with the terms that it is the sum of: it is 0 at the ridge's weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.regression.columns.plan import kernel_of
from dkl.estimators.regression.model import load_candidates
from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.regression.verify_sums import AGREE, ROUNDINGS, Sums
from dkl.runs.verify.comparison import Comparison, named
from dkl.runs.verify.recomputed import kernel_matrix
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

DELTA = 1e-13
"""Weight of the identity that is added to P, per column."""

Matrix = NDArray[np.float64]


def claims(
    run: RunStore,
    rows: RowSource,
    refit: Json,
    sums: Sums,
    w: Matrix,
    lasso: Matrix | None,
    settings: RegressionSettings,
) -> Iterator[Comparison]:
    """Yield comparisons of each target's numbers.
    refit: the report's "refit"; sums: of the ridge's weights w (T, M); lasso: the lasso's weights (T, M)."""
    if lasso is None or lasso.shape != w.shape or len(refit["outputs"]) != len(w):
        raise StoreError("model and refit do not fit together", where=str(run.path))
    S = np.flatnonzero((lasso != 0).any(axis=0)) if refit["columns"] == "active" else np.arange(w.shape[1])
    beyond = float(np.count_nonzero(np.delete(w, S, axis=1)))
    yield Comparison("weights beyond the refit's columns", 0.0, beyond, 0.0, quiet=True)
    P, lam = _penalty(run, rows, settings)[np.ix_(S, S)], float(refit["lam"])
    for t, output in enumerate(refit["outputs"]):
        which = "" if len(w) == 1 else f" of target {t}"
        yield from named(_of_target(output, sums, t, S, w[t, S], P, lam, settings), which)


def _of_target(
    output: Json, sums: Sums, t: int, S: NDArray[np.intp], w: Matrix, P: Matrix, lam: float,
    settings: RegressionSettings,
) -> Iterator[Comparison]:  # fmt: skip
    pull = P @ w
    q = sums.correlations[S, t] - lam * pull
    norms, residual = np.sqrt(sums.norms[S]), float(np.sqrt(sums.residual[t]))
    objective = float(sums.residual[t] + lam * (w @ pull))
    gap = float(q @ np.linalg.solve(P, q)) / lam
    eps = ROUNDINGS * float(np.finfo(settings.dtype).eps)
    length = float(np.sqrt(sums.squares[t]) + np.sqrt(w**2 @ sums.norms[S]))
    on_objective = AGREE * objective + eps * length**2
    # The reported gap counts the rounding of the fit's sums, stretched by P^-1 as here.
    on_gap = AGREE * objective
    relative = gap / objective if objective > 0 else 0.0
    # Columns that are alike are rounded alike: the terms of q may all be off to one side.
    sizes = norms * (float(np.sqrt(sums.squares[t]) + np.abs(w) @ norms) + residual) + lam * (np.abs(P) @ np.abs(w))
    apart = np.divide(np.abs(q), sizes, out=np.zeros_like(q), where=sizes > 0)
    mean = abs(float(sums.total[t])) if settings.fit_intercept else 0.0
    on_mean = float(np.sqrt(sums.n)) * (eps * length + AGREE * residual)
    yield Comparison("refit: gradient", 0.0, float(apart.max(initial=0.0)), eps + AGREE)
    yield Comparison("refit: objective", float(output["objective"]), objective, on_objective)
    yield Comparison("refit: gap", float(output["gap"]), gap, on_gap, "above")
    on_relative = (on_gap + relative * on_objective) / max(objective, np.finfo(float).tiny)
    yield Comparison("refit: relative gap", float(output["relative_gap"]), relative, on_relative, "above")
    yield Comparison("refit: sum of residuals", 0.0, mean, on_mean)


def _penalty(run: RunStore, rows: RowSource, settings: RegressionSettings) -> Matrix:
    """Return P (M, M) over all columns."""
    candidates, kernel = load_candidates(run), kernel_of(settings)
    points = candidates.points
    among = np.concatenate([rows.read(int(m), int(m) + 1) for m in points]) if kernel.is_precomputed else points
    K = kernel_matrix(kernel, among, points) * candidates.scale * candidates.scale[:, None]
    return np.asarray((K + K.T) / 2 + DELTA * len(K) * np.eye(len(K)))
