"""The targets of a regression, about their means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def target_means(targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """(T,) the targets' means, for sums of squares about them to keep their digits; of constant targets exactly these."""
    first = targets[0 if weights is None else int(np.argmax(weights > 0))]
    return np.asarray(first + np.average(targets - first, axis=0, weights=weights))
