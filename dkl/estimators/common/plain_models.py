"""The plainest alternatives that a learner's quality is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.middle_row import middle_row


def linear_predictions(
    X: Any, y: NDArray, weights: NDArray[np.float64], others: Any, *, of_classes: bool = False
) -> NDArray:
    """Return what a ridge regression of standardized features predicts for the rows `others`, or a classifier by ridges.

    X (m, d), y (m,) or (m, T), weights (m,): rows to learn from. scikit-learn's StandardScaler and Ridge or RidgeClassifier, at
    their defaults.
    """
    from scipy.sparse import issparse
    from sklearn.linear_model import Ridge, RidgeClassifier
    from sklearn.preprocessing import StandardScaler

    # About a row, whose differences to others are exact: means far from 0 are rounded. A copy, which the models may then write to.
    origin = 0.0 if issparse(X) else middle_row(X).astype(np.float64)
    X, others = (rows.astype(np.float64) if issparse(X) else rows - origin for rows in (X, others))
    scaler = StandardScaler(with_mean=not issparse(X), copy=False).fit(X, sample_weight=weights)
    model = (RidgeClassifier if of_classes else Ridge)(copy_X=False).fit(scaler.transform(X), y, sample_weight=weights)
    return np.asarray(model.predict(scaler.transform(others)))
