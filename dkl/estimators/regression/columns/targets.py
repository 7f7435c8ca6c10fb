"""The targets of a regression, about their means."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LEAST = float(1e3 * np.sqrt(np.finfo(float).tiny))
"""Least magnitude of targets, 1.5e-151: below, their squares, and so nu, come close to underflow."""


def are_too_small(targets: NDArray[np.float64]) -> bool:
    """Return whether a nonzero target of (n,) or (n, T) is so small that its squares, and nu, underflow."""
    largest = np.abs(targets).max(axis=0, initial=0.0)
    return bool(np.any((largest > 0) & (largest < LEAST)))


def target_means(targets: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the targets' means (T,), exact for constants, so that sums of squares keep their digits."""
    first = targets[0 if weights is None else int(np.argmax(weights > 0))]
    return np.asarray(first + np.average(targets - first, axis=0, weights=weights))
