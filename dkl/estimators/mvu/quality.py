"""How well an embedding keeps neighbors, next to principal components of the same number.

Nothing is held out: the measures are of at most 1,000 rows, drawn once. With k = 10 neighbors of m rows, r(i, j) the rank of row j among
the distances from row i in the space where it should be near, and the sum over what is near in the other space alone,

    1 - 2 / (m k (2 m - 3 k - 1)) sum over i, j of max(0, r(i, j) - k)

is the trustworthiness (near in the embedding, ranked by the rows) or the continuity (near among the rows, ranked by the embedding) of
J. Venna and S. Kaski, Neighborhood preservation in nonlinear projection methods, ICANN 2001.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dkl.estimators.basis.fit import Solved
from dkl.estimators.common.outcomes import warn_if_worse
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.quality import MIN_HELD_OUT, Quality, paired_error

Matrix = NDArray[np.float64]

MAX_ROWS = 1000
N_NEIGHBORS = 10
FEW_COLUMNS = 64
"""Up to which distances are sums of squared differences, which do not cancel; by products they are faster."""
STEP = 6
"""Key of the random stream that draws the rows; the seed is 0, as a fit has none."""
ADVICE = "try more n_basis, another n_neighbors or nu"


def with_quality(solved: Solved, rows: Any, holdout: float) -> Solved:
    """Return what was solved with the quality in its result, and warn where principal components are better.

    rows (n, d), dense or sparse. Nothing is measured where `holdout` is 0, the fit was stopped, or rows or columns are too few.
    """
    start, n = time.perf_counter(), int(rows.shape[0])
    is_measured = holdout > 0 and (solved.result.outcome.converged or not solved.result.outcome.is_wanted)
    if not is_measured or n < 2 * MIN_HELD_OUT + 2 or not solved.embedding.shape[1]:
        return solved
    with one_blas_thread():
        quality = _measured(rows, solved.embedding)
    warn_if_worse(quality, stacklevel=3)
    took = time.perf_counter() - start
    seconds = solved.result.seconds | {"quality": took}
    seconds["total"] += took
    return replace(solved, result=replace(solved.result, quality=quality, seconds=seconds))


def _measured(rows: Any, embedding: Matrix) -> Quality:
    n = len(embedding)
    chosen = rows_of(n)
    X = np.asarray(rows[chosen].toarray() if sp.issparse(rows) else rows[chosen], np.float64)
    X = X - X.mean(axis=0)
    scale = float(np.abs(X).max(initial=0.0))
    X = X / scale if scale > 0 else X  # squares of very large rows are beyond double precision
    count, k = embedding.shape[1], min(N_NEIGHBORS, len(X) // 2 - 1)
    ranks = _ranks(X)
    own, plain = _ranks(embedding[chosen]), _ranks(_components(X, count))
    first, second = (kept(ranks, one, k) for one in (own, plain))
    others = {"continuity": float(kept(own, ranks, k).mean()), "continuity of PCA": float(kept(plain, ranks, k).mean())}
    how = f"{k} neighbors of {len(X):,} rows" if len(X) == n else f"{k} neighbors of {len(X):,} of {n:,} rows"
    error = paired_error(first - second)
    return Quality(
        "trustworthiness", float(first.mean()), len(X), how, "PCA", float(second.mean()), error, others, ADVICE
    )


def rows_of(n: int) -> NDArray[np.intp]:
    """Return the sorted numbers of the rows among n that the measures are of."""
    return np.sort(np.random.default_rng([0, STEP]).choice(n, min(n, MAX_ROWS), replace=False))


def _components(X: Matrix, count: int) -> Matrix:
    """(m, count) the leading principal components of centered rows X (m, d), or as many as there are."""
    if X.shape[1] <= len(X):
        return np.asarray(X @ np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :count])
    values, vectors = np.linalg.eigh(X @ X.T)
    return np.asarray(vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], 0.0)))


def _ranks(X: Matrix) -> NDArray[np.int32]:
    """(m, m) of each row the ranks of the others by their distances, from 1 on; 0 of itself. Ties in the order of rows."""
    if X.shape[1] <= FEW_COLUMNS:
        distances = cdist(X, X)
    else:
        sizes = np.square(X).sum(axis=1)
        distances = sizes[:, None] + sizes - 2 * X @ X.T
    np.fill_diagonal(distances, -np.inf)
    order = np.argsort(distances, axis=1, kind="stable")
    ranks = np.empty(order.shape, np.int32)
    np.put_along_axis(ranks, order, np.arange(len(X), dtype=np.int32)[None], axis=1)
    return ranks


def kept(ranks: NDArray[np.int32], near: NDArray[np.int32], k: int) -> Matrix:
    """(m,) of each row its part of the formula above, whose mean is the measure: `near` says which k rows are neighbors, `ranks` (m, m)
    how far they are in the other space."""
    m = len(ranks)
    is_near = (near >= 1) & (near <= k)
    beyond = np.where(is_near, np.maximum(ranks - k, 0), 0).sum(axis=1)
    return np.asarray(1 - 2.0 * beyond / (k * (2 * m - 3 * k - 1)))
