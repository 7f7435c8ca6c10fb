"""The plainest alternatives that a learner's quality is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import solve

from dkl.blocks.rows.row_sources import row_source
from dkl.estimators.base.plot_rows import read_rows
from dkl.linalg.rows.column_moments import middle_row
from dkl.problems.pair_folds import follows
from dkl.quality import Quality, auc_error, auc_of, held_out
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from dkl.estimators.base.validation import CheckedRows

Matrix = NDArray[np.float64]

BLOCK_BYTES = 4_000_000
"""Size of the rows that are predicted for at a time, in double precision."""


def linear_bytes(m: int, d: int, row_bytes: int, n_targets: int, *, is_sparse: bool = False) -> int:
    """Return the bytes of `linear_predictions` on m rows of d features, `row_bytes` each, rows included."""
    ends = 8 * n_targets * (4 * m + 2 * d)
    if is_sparse:
        return 5 * m * max(row_bytes, 12) + ends
    return m * (row_bytes + 8 * d) + 2 * 8 * min(m, d) ** 2 + ends + 4 * BLOCK_BYTES


def linear_predictions(
    X: Any, y: NDArray, weights: NDArray[np.float64], others: Any, *, of_classes: bool = False
) -> NDArray:
    """Return predictions for `others` by ridge regression on standardized features, or ridge classifiers.

    X (m, d), y (m,) or (m, T), weights (m,): rows to learn from. As scikit-learn's StandardScaler and Ridge or RidgeClassifier, at
    their defaults, which are asked for sparse rows; of dense ones their checks take longer than the ridge.
    """
    if isinstance(X, np.ndarray) and isinstance(others, np.ndarray):
        return _by_classes(X, y, weights, others) if of_classes else _ridge(X, y, weights, others)
    from scipy.sparse import issparse
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    X, others = X.astype(np.float64), others.astype(np.float64)  # copies, which the models may write to
    scaler = StandardScaler(with_mean=not issparse(X), copy=False).fit(X, sample_weight=weights)
    model = (RidgeClassifier if of_classes else Ridge)(copy_X=False).fit(scaler.transform(X), y, sample_weight=weights)
    return np.asarray(model.predict(scaler.transform(others)))


def _by_classes(X: NDArray, y: NDArray, weights: NDArray[np.float64], others: NDArray) -> NDArray:
    """Return the class of the largest ridge on 1 (own class) and -1; two classes take one ridge."""
    classes, numbers = np.unique(y, return_inverse=True)
    if len(classes) == 2:
        return classes[(_ridge(X, 2.0 * numbers - 1.0, weights, others) > 0).astype(np.intp)]
    signs = np.where(numbers[:, None] == np.arange(len(classes)), 1.0, -1.0)
    return classes[_ridge(X, signs, weights, others).argmax(axis=1)]


def _ridge(X: NDArray, y: NDArray, weights: NDArray[np.float64], others: NDArray) -> Matrix:
    """Return predictions for `others` of the ridge |y - x'w - b|^2 + |w|^2, rows weighted."""
    # About a row, whose differences to others are exact: means far from 0 are rounded.
    origin = middle_row(X).astype(np.float64)
    total, rows = float(weights.sum()), np.subtract(X, origin, order="C")
    # By powers of 2, which lose nothing, so that squares neither overflow nor vanish.
    powers = -np.frexp(np.maximum(rows.max(axis=0), -rows.min(axis=0)))[1]
    np.ldexp(rows, powers, out=rows)
    means = weights @ rows / total
    rows -= means
    squares = np.einsum("m,md,md->d", weights, rows, rows) / total
    # What rounding alone has spread is constant, as StandardScaler has it.
    eps = np.finfo(np.float64).eps
    spreads = np.sqrt(np.where(squares <= total * eps * squares + (total * means * eps) ** 2, 1.0, squares))
    rows /= spreads
    roots, offset = np.sqrt(weights), weights @ y / total
    rows *= roots[:, None]
    targets = ((y - offset).T * roots).T
    m, d = rows.shape
    # The smaller of the two: both give the same ridge.
    gram = rows.T @ rows if d <= m else rows @ rows.T
    gram.flat[:: len(gram) + 1] += 1.0
    if d <= m:
        w = solve(gram, rows.T @ targets, assume_a="pos", overwrite_a=True)
    else:
        w = rows.T @ solve(gram, targets, assume_a="pos", overwrite_a=True)
    step = max(1, BLOCK_BYTES // (8 * d))
    blocks = (np.ldexp(others[lo : lo + step] - origin, powers) - means for lo in range(0, len(others), step))
    return np.concatenate([(block / spreads) @ w for block in blocks]) + offset


# Quality of a kernel from pairs: the AUC of K_ij on held-out pairs, next to that of row distances.

Vector = NDArray[np.float64]
Flags = NDArray[np.bool_]

ADVICE = "try standardized features, more pairs, or another gamma or graph"
DISTANCES = "distances of rows"


def hold_out(n: int, pairs: Pairs, share: float, step: int) -> tuple[Flags, Flags] | None:
    """Return (m,) the pairs to learn from, and the held-out ones that these do not imply.

    None where the latter lack a kind. A share of the must-links, and of the cannot-links, that have a weight. step: key
    of the random stream; the seed is 0. Learners with a seed, and folds of rows where all pairs of some rows are given,
    hold out by `pair_folds.one_fold`.
    """
    is_must = pairs.sign > 0
    kinds = np.where(pairs.weights > 0, is_must.astype(np.intp), -1)
    learn = ~np.isin(np.arange(len(kinds)), held_out(len(kinds), share, 0, step, kinds))
    # What a chain of the other pairs implies is no test of the kernel.
    tests = ~learn & ~follows(n, pairs, learn)
    return (learn, tests) if len(np.unique(is_must[tests])) == 2 else None


def similarities(rows: CheckedRows, ends: NDArray[np.integer]) -> Vector:
    """Return minus the squared distances (p,) of pairs `ends` (p, 2) of rows that `row_source` takes."""
    numbers, place = np.unique(ends.T, return_inverse=True)
    some = read_rows(row_source(rows), numbers).astype(np.float64)  # small integers, as of images, would wrap around
    first, second = place.reshape(2, -1)
    apart = some[first] - some[second]
    with np.errstate(over="ignore"):
        squares = apart.multiply(apart) if sp.issparse(apart) else np.square(np.asarray(apart, np.float64))
        return -np.asarray(squares.sum(axis=1)).ravel()


def quality_of_pairs(
    scores: Vector, plain: Vector, is_must: Flags, how: str, name: str, advice: str = ADVICE
) -> Quality:
    """Compare scores (p,) of held-out pairs, must-links where is_must (p,), with the alternative `name`."""
    (value, first), (other, second) = auc_of(scores, is_must), auc_of(plain, is_must)
    error = auc_error(first, second, is_must)
    return Quality("held-out AUC of pairs", value, len(scores), how, name, other, error, {}, advice)
