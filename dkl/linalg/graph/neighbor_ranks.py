"""Count how far the nearest neighbors of one space are in another, by ranks of distances."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.late_functions import njit


@njit(cache=True, nogil=True)
def ranks_beyond(near: NDArray[np.float64], far: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Return (m,) of each row i the sum of max(0, r(i, j) - k) over its k nearest rows j by the distances `near`.

    near, far (m, m)  distances of the same rows in two spaces, -inf on the diagonals; k < m
    r(i, j)           rank of j among the distances `far` from i: 1 of the nearest row but i

    Equal distances are in the order of rows, in both. Sums are of integers, so that their order does not matter.
    """
    m = len(near)
    sums = np.zeros(m, np.int64)
    nearest = np.empty(k, np.int64)
    for i in range(m):
        distances, count, last = near[i], 0, np.inf
        for j in range(m):
            d = distances[j]
            if d >= last or j == i:
                continue
            count = min(count + 1, k)
            place = count - 1
            while place > 0 and distances[nearest[place - 1]] > d:
                nearest[place] = nearest[place - 1]
                place -= 1
            nearest[place] = j
            if count == k:
                last = distances[nearest[k - 1]]
        others = far[i]
        for place in range(k):
            j = nearest[place]
            d, rank = others[j], 0
            for other in range(m):  # by number: twice as fast as over the entries themselves. i itself counts as 1
                rank += others[other] < d
            for other in range(j):
                rank += others[other] == d
            sums[i] += max(0, rank - k)
    return sums
