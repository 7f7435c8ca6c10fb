"""Which two-class machines make up a many-class one: one against the rest, or one against one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LARGEST_BY_LEVEL = 5000
"""Maximum rows of a machine for the level method, whose linear programs have as many unknowns."""
SMALLEST_IN_PARTS = 2000
"""Rows of a machine that working sets solve at once: so small a kernel matrix takes no time."""


@dataclass(frozen=True)
class TwoClasses:
    """Rows (k,) of a machine, labels of 1 and -1, and its (positive, negative) class: None for the rest."""

    rows: NDArray[np.intp]
    y: NDArray[np.float64]
    between: tuple[int, int | None]


def machines(labels: NDArray[np.intp], n_classes: int, scheme: str) -> list[TwoClasses]:
    """Return the machines of labels (n,) from 0 on. Two classes: one machine, positive for class 1.
    "ovr": class k against the rest; "ovo": i against j > i, positive for i, in the order (0, 1), (0, 2), ..., as SVC has them."""
    if n_classes == 2:
        return [TwoClasses(np.arange(len(labels)), np.where(labels == 1, 1.0, -1.0), (1, 0))]
    if scheme == "ovr":
        everything = np.arange(len(labels))
        return [TwoClasses(everything, np.where(labels == k, 1.0, -1.0), (k, None)) for k in range(n_classes)]
    found = []
    for i in range(n_classes):
        for j in range(i + 1, n_classes):
            rows = np.flatnonzero((labels == i) | (labels == j))
            found.append(TwoClasses(rows, np.where(labels[rows] == i, 1.0, -1.0), (i, j)))
    return found
