"""Cross-validation without another pass: the error on rows that were held out follows from their own sums,

|y - C w - c|^2 = y'y - 2 w'C'y + w'C'C w - 2 c (1'y - 1'C w) + c^2 1'1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.rows.column_moments import Moments
from dkl.problems.regression.column_gram import CenteredGram, Vector
from dkl.problems.regression.column_lasso import ColumnLasso, output_problems


@dataclass(frozen=True)
class ColumnFold:
    """The rows of all folds but one, to learn from by `rest`, and those of the one, to be wrong on by `moments[.][fold]`."""

    rest: CenteredGram
    moments: Moments
    fold: int
    lam: float

    @property
    def variances(self) -> Vector:
        """Return the variances (T,) of the targets that are learned from."""
        return self.rest.squares / self.rest.weight

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape (T, M) of weights."""
        return self.rest.cross.shape[1], self.rest.cross.shape[0]

    def problems(self, nu: float) -> list[ColumnLasso]:
        """Return the lasso of each output."""
        return output_problems(self.rest, self.lam, nu)

    def error(self, weights: NDArray[np.float64]) -> Vector:
        """Return the mean squared errors (T,) of weights (T, M) on the rows held out."""
        return held_out_error(self.moments, self.fold, weights, self.rest.intercepts(weights))


def held_out_error(moments: Moments, fold: int, weights: NDArray[np.float64], intercepts: Vector) -> Vector:
    """Return the weighted mean squared errors (T,) of weights (T, M) on the rows of a fold."""
    gram, cross, square = moments[0][fold], moments[1][fold], moments[2][fold]
    total = square[-1, -1]
    support = np.flatnonzero((weights != 0).any(axis=0))
    w, cross = weights[:, support], cross[support]
    upper = np.triu(gram[np.ix_(support, support)])  # of a raw sum the upper triangle counts
    fitted = 2 * np.einsum("ts,ts->t", w @ upper, w) - w**2 @ np.diag(upper)
    with_targets = np.einsum("ts,st->t", w, cross[:, :-1])
    residual = np.diag(square)[:-1] - 2 * with_targets + fitted
    residual += -2 * intercepts * (square[:-1, -1] - w @ cross[:, -1]) + intercepts**2 * total
    return np.asarray(np.maximum(residual, 0.0) / total)
