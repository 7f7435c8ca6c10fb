"""Quality of an embedding: how well it keeps neighbors, next to as many principal components.

Nothing is held out: the measures are of at most 1,000 rows, drawn once. With k = 10 neighbors of m rows, r(i, j) the rank of row j among
the distances from row i in the space where it should be near, and the sum over what is near in the other space alone,

    1 - 2 / (m k (2 m - 3 k - 1)) sum over i, j of max(0, r(i, j) - k)

is the trustworthiness (near in the embedding, ranked by the rows) or the continuity (near among the rows, ranked by the embedding) of
J. Venna and S. Kaski, Neighborhood preservation in nonlinear projection methods, ICANN 2001.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from dkl.blocks.memory_plan import PROCESS_BASE, Place
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.rows.row_sources import RowSource
from dkl.estimators.base.plot_rows import read_rows
from dkl.estimators.base.progress import warn_if_worse
from dkl.linalg.graph.neighbors import ranks_beyond
from dkl.linalg.rows.column_moments import middle_row
from dkl.quality import MIN_HELD_OUT, Quality, paired_error
from dkl.resources import one_blas_thread
from dkl.solvers.watch import Result, Watch

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]

MIN_ROWS, MAX_ROWS = 300, 1000
"""Number of rows measured of larger sets: from small sets to sets of 6,000 rows and more."""
ROWS_PART = 6
"""Rows to one that is measured, of sets in between: a tenth of a quick fit's time, roughly."""
N_NEIGHBORS = 10
FEWEST_ROWS = 2 * MIN_HELD_OUT + 2
"""Minimum number of rows to measure."""
ADVICE = "MaximumVarianceUnfolding for a map"
FEW_COLUMNS = 64
"""Maximum columns for distances by squared differences, which do not cancel; products are faster."""
MAX_MAP_COMPONENTS = 3
"""Maximum number of components of a map; with more (features) PCA mostly keeps neighbors better."""
STEP = 6
"""Key of the random stream that draws the rows; the seed is 0, as a fit has none."""
PAIR_BYTES = 40
"""Bytes of each pair of rows that are measured: distances in three spaces, and what these are made of."""


def with_quality(
    result: Result, source: RowSource, embedding: Callable[[Rows], Matrix], advice: str, *, watch: Watch,
    most: int | None = None, warns: bool = True, stacklevel: int,
) -> Result:  # fmt: skip
    """Return the result with the quality of an embedding, and warn where principal components are better.

    embedding   returns the coordinates (m, k) of the rows with these numbers
    watch       the fit's, whose clock the total is by
    most        maximum number of rows to measure; None: MAX_ROWS; 0: none are asked for
    warns       whether to warn
    stacklevel  as in `warnings.warn`, from the caller of this function

    Nothing is measured where the fit was stopped or rows, or those that memory holds, are too few.
    """
    start = time.perf_counter()
    is_stopped = result.outcome.is_wanted and not result.outcome.converged
    most = MAX_ROWS if most is None else most
    if is_stopped or not most:
        return result
    if min(source.n, most) < FEWEST_ROWS:
        whose = "rows are" if source.n < FEWEST_ROWS else "rows that memory holds are"
        return replace(
            result, no_quality=f"{min(source.n, most):,} {whose} too few to rank neighbors among; {FEWEST_ROWS} are not"
        )
    chosen = rows_of(source.n, most)
    with one_blas_thread():
        quality = measured(read_rows(source, chosen), np.asarray(embedding(chosen)), source.n, advice)
    if warns:
        warn_if_worse(quality, stacklevel=stacklevel + 1)
    return result.with_quality(quality, time.perf_counter() - start, "", watch.seconds)


def rows_to_measure(source: RowSource, holdout: float, memory_limit: int | None) -> int:
    """Return how many rows to measure: 0 if `holdout` is 0, fewer if half the memory left is too small."""
    if not holdout:
        return 0
    allowed = Place(1, 1).allowed(memory_limit) or int(MEMORY_SHARE * machine_memory())
    d = source.n_features
    width = 16 * min(d, MAX_ROWS) + 2 * source.row_bytes if source.is_sparse else 16 * d
    left = max(0, allowed - PROCESS_BASE) / 2  # m (width + PAIR_BYTES m) = left
    # The root of the quadratic above.
    fitting = int((np.sqrt(width**2 + 4 * PAIR_BYTES * left) - width) / (2 * PAIR_BYTES))
    return min(fitting, max(MIN_ROWS, min(MAX_ROWS, source.n // ROWS_PART)))


def is_map(n_components: int, n_features: int) -> bool:
    """Return whether an embedding is small enough to look at, with fewer columns than the rows.

    PCA of as many is the rows themselves.
    """
    return n_components <= MAX_MAP_COMPONENTS and n_components < n_features


def rows_of(n: int, most: int = MAX_ROWS) -> Rows:
    """Return the sorted numbers of the rows among n that the measures are of."""
    # Sorted, as rows on disk are read in order.
    return np.sort(np.random.default_rng([0, STEP]).choice(n, min(n, most), replace=False))


def measured(rows: Rows, embedding: Matrix, n: int, advice: str) -> Quality:
    """Return the quality by rows (m, d), dense or sparse, of n, and their coordinates (m, k)."""
    m, count = embedding.shape
    # The measure's factor holds for k below m / 2.
    k = min(N_NEIGHBORS, m // 2 - 1)
    apart, components = _of_rows(rows, count)
    own, plain = (_distances(one) for one in (embedding, components))
    first, second = (kept(apart, one, k) for one in (own, plain))
    others = {"continuity": float(kept(own, apart, k).mean()), "continuity of PCA": float(kept(plain, apart, k).mean())}
    how = f"{k} neighbors of {m:,} rows" if m == n else f"{k} neighbors of {m:,} of {n:,} rows"
    error = paired_error(first - second)
    return Quality("trustworthiness", float(first.mean()), m, how, "PCA", float(second.mean()), error, others, advice)


def _of_rows(rows: Any, count: int) -> tuple[Matrix, Matrix]:
    """Return (distances (m, m), the leading principal components (m, count), or as many as there are).

    Sparse rows of many columns are multiplied as they are, and their products centered.
    """
    m, d = rows.shape
    if sp.issparse(rows) and d > m:
        values = rows.astype(np.float64)
        scale = float(abs(values).max())
        values = values / scale if scale > 0 else values
        gram = (values @ values.T).toarray()
        means = gram.mean(axis=0)
        gram += means.mean() - means - means[:, None]
        return _by_products(2 * gram, gram.diagonal()), _components_of(gram, count)
    X = np.array(rows.toarray() if sp.issparse(rows) else rows, np.float64)
    X -= middle_row(X)  # exactly, which decides between equal distances
    X -= X.mean(axis=0)
    scale = float(np.abs(X).max(initial=0.0))
    if scale > 0:
        X /= scale  # squares of very large rows are beyond double precision
    if d > m:
        return _distances(X), _components_of(X @ X.T, count)
    return _distances(X), np.asarray(X @ np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :count])


def _components_of(gram: Matrix, count: int) -> Matrix:
    values, vectors = np.linalg.eigh(gram)
    return np.asarray(vectors[:, ::-1][:, :count] * np.sqrt(np.maximum(values[::-1][:count], 0.0)))


def _distances(X: Matrix) -> Matrix:
    """Return distances (m, m) of rows, or their squares; -inf on the diagonal."""
    if X.shape[1] > FEW_COLUMNS:
        return _by_products(2 * X @ X.T, np.square(X).sum(axis=1))
    distances = cdist(X, X)
    np.fill_diagonal(distances, -np.inf)
    return distances


def _by_products(doubled: Matrix, sizes: NDArray[np.float64]) -> Matrix:
    # Squares rank as distances do: no root is taken.
    squares = sizes[:, None] + sizes - doubled
    np.fill_diagonal(squares, -np.inf)
    return squares


def kept(ranked: Matrix, near: Matrix, k: int) -> Matrix:
    """Return each row's part (m,) of the formula above, whose mean is the measure.

    near, ranked (m, m): the distances that say which k rows are neighbors, and those that say how far these are in the other space.
    """
    m = len(near)
    return np.asarray(1 - 2.0 * ranks_beyond(near, ranked, k) / (k * (2 * m - 3 * k - 1)))
