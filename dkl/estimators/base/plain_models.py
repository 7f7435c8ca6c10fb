"""The plainest alternatives that a learner's quality is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve

from dkl.linalg.rows.middle_row import middle_row

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
    gram = rows.T @ rows if d <= m else rows @ rows.T
    gram.flat[:: len(gram) + 1] += 1.0
    if d <= m:
        w = solve(gram, rows.T @ targets, assume_a="pos", overwrite_a=True)
    else:
        w = rows.T @ solve(gram, targets, assume_a="pos", overwrite_a=True)
    step = max(1, BLOCK_BYTES // (8 * d))
    blocks = (others[lo : lo + step] - origin - means for lo in range(0, len(others), step))
    return np.concatenate([(block / spreads) @ w for block in blocks]) + offset
