"""A Cholesky factor that follows its matrix while rows and columns enter and leave.

The systems of an active set differ from one to the next by a few columns: entering costs O(m^2) each, leaving O((m - p)^2)
for the column at position p, a solution O(m^2), where a new factor would cost O(m^3).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky

from dkl.linalg.late_functions import njit

Vector = NDArray[np.float64]

RIDGES = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4)
"""Shares of the largest diagonal entry that are tried in turn on the diagonal: the first that admits a factor is used. A
matrix of equal columns, or of sums in single precision, is singular or indefinite to rounding."""
DEPENDENT = 1e-13
"""A column of which less than this share is left by the others is as good as dependent on them."""
LEAST_CAPACITY = 64
"""Rows for which memory is reserved at first; it grows by half whenever it is full."""
BLOCK = 48
"""Columns that may enter at a time by an update; for more a factorization from scratch costs less."""
MOST_UPDATES = 200
"""Changes between two factors from scratch: rounding errors add up."""


class GrowingCholesky:
    """Factor L L' = A + ridge I of a symmetric A (m, m) that grows and shrinks; A itself is kept, too.

    `size` is m, `ridge` what the last factorization had to add to the diagonal. Factorizations are lazy: `enter` and
    `leave` mark the factor stale where an update is impossible or costs more, and the next `solve` recomputes it.
    """

    def __init__(self) -> None:
        self.size, self.ridge = 0, 0.0
        self._A = np.zeros((LEAST_CAPACITY, LEAST_CAPACITY))
        self._L = np.zeros((LEAST_CAPACITY, LEAST_CAPACITY))
        self._stale, self._updates = False, 0

    @property
    def matrix(self) -> NDArray[np.float64]:
        """Return A (m, m), current; a view, valid until the next change."""
        return self._A[: self.size, : self.size]

    @property
    def is_worn(self) -> bool:
        """Return whether updates since the last factorization from scratch have left rounding in the factor."""
        return self._updates > 0

    def enter(self, rows: NDArray[np.float64]) -> None:
        """Append k rows and columns: `rows` (k, m + k) of the new matrix. O(k m^2), or a factorization later."""
        old, new = self.size, self.size + len(rows)
        if new > len(self._A):
            # By half, so that copies of A and L stay a small share of the work.
            self._grow(max(new, len(self._A) * 3 // 2))
        self._A[old:new, :new] = rows
        self._A[:old, old:new] = rows[:, :old].T
        self.size = new
        # Counted although it may fail: the factor that remains has the earlier updates' rounding.
        self._updates += 1
        # BLAS factors a whole matrix much faster than loops update it: an update pays for few columns alone.
        many = len(rows) > max(BLOCK, old // 2) or self._updates > MOST_UPDATES
        self._stale = self._stale or many or not _append(self._A, self._L, old, new, self.ridge, DEPENDENT)

    def leave(self, kept: NDArray[np.bool_]) -> None:
        """Keep the rows and columns where `kept` (m,) is True, and drop the others.

        Each dropped column costs Givens rotations on the rows behind it; where that adds up to more than a factorization,
        the factor is marked stale instead.
        """
        if kept.all():
            return
        gone, kept_rows = (~kept).nonzero()[0], kept.nonzero()[0]
        self._updates += 1
        first = int(gone[0])
        # Only columns behind the first that leaves change their place.
        if first < len(kept_rows):
            _compact(self._A, kept_rows)
            if not self._stale:
                # Rotations cost 3 (m - p)^2 for a column at position p; the m^3 / 3 of a factorization run in BLAS and
                # count a quarter.
                update, factorization = float(((self.size - gone) ** 2).sum()) * 3, float(len(kept_rows)) ** 3 / 12
                if update > factorization or self._updates > MOST_UPDATES:
                    self._stale = True
                else:
                    _delete(self._L, self.size, gone)
        self.size = len(kept_rows)

    def solve(self, right: Vector) -> Vector:
        """Return (A + ridge I)^-1 right for right (m,), in O(m^2), plus a factorization where one is due.

        Where not even the largest ridge makes A definite, right over the largest diagonal entry: a descent direction still.
        """
        # Made here and not when columns enter or leave: several changes then cost one factorization.
        if self._stale:
            self._factor()
        if self._stale:  # not even a ridge makes it definite
            return right / max(float(np.diag(self.matrix).max()), np.finfo(float).tiny)
        return np.asarray(_substituted(self._L, self.size, right))

    def renew(self) -> None:
        """Have the next `solve` compute the factor from scratch."""
        self._stale = True

    def _factor(self) -> None:
        """Compute L from scratch with the least ridge that works; stays stale where none does."""
        scale = float(np.diag(self.matrix).max(initial=0.0))
        for ridge in RIDGES:
            shifted = self.matrix.copy()
            shifted.flat[:: self.size + 1] += ridge * scale
            try:
                # NumPy's leaves the interpreter's lock, which SciPy's keeps: outputs are solved side by side on threads.
                L = np.linalg.cholesky(shifted)
            except np.linalg.LinAlgError:
                continue
            # A factor of numbers that overflowed exists, but solves nothing.
            if np.isfinite(L[-1]).all():
                self._L[: self.size, : self.size] = L
                self.ridge, self._stale, self._updates = ridge * scale, False, 0
                return

    def _grow(self, capacity: int) -> None:
        """Reserve memory for `capacity` rows of A and L; both keep their contents."""
        for name in ("_A", "_L"):
            grown = np.zeros((capacity, capacity))
            grown[: self.size, : self.size] = getattr(self, name)[: self.size, : self.size]
            setattr(self, name, grown)


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _dot(a: NDArray[np.float64], b: NDArray[np.float64], count: int) -> float:
    total = 0.0
    for j in range(count):
        total += a[j] * b[j]
    return total


@njit(cache=True, nogil=True)
def _append(A: NDArray[np.float64], L: NDArray[np.float64], old: int, new: int, ridge: float, dependent: float) -> bool:
    """Compute rows old to new of L, by substitution; False where a column depends on those before it.

    Dependent: less than the share `dependent` of its diagonal entry is left after the others are projected out.
    """
    for i in range(old):  # each row of L is read once for all new ones
        row, pivot = L[i], L[i, i]
        for r in range(old, new):
            L[r, i] = (A[r, i] - _dot(row, L[r], i)) / pivot
    for r in range(old, new):
        row = L[r]
        for i in range(old, r):
            row[i] = (A[r, i] - _dot(L[i], row, i)) / L[i, i]
        # What the columns before leave of this one's diagonal entry.
        left = A[r, r] + ridge - _dot(row, row, r)
        # Negated, so that NaN is refused too.
        if not left > dependent * A[r, r]:
            return False
        row[r] = np.sqrt(left)
    return True


@njit(cache=True, nogil=True)
def _compact(A: NDArray[np.float64], kept_rows: NDArray[np.int64]) -> None:
    """Move the rows and columns at `kept_rows`, ascending, to the front."""
    for a in range(len(kept_rows)):
        source = A[kept_rows[a]]
        target = A[a]
        for b in range(len(kept_rows)):
            target[b] = source[kept_rows[b]]


@njit(cache=True, nogil=True)
def _delete(L: NDArray[np.float64], size: int, gone: NDArray[np.int64]) -> None:
    """Take rows and columns `gone`, ascending, out of a factor: from the last on, by Givens rotations."""
    c, s = np.empty(size), np.empty(size)
    # From the last on, so that the positions of those before stay valid.
    for g in range(len(gone) - 1, -1, -1):
        p = gone[g]
        size -= 1
        for r in range(p, size):
            # Row r + 1 moves up, and has an entry too many: the rotations of columns (k, k + 1) before take it along.
            row, source = L[r], L[r + 1]
            for j in range(p):
                row[j] = source[j]
            carried = source[p]
            for k in range(p, r):
                following = source[k + 1]
                row[k] = c[k] * carried + s[k] * following
                carried = c[k] * following - s[k] * carried
            last = source[r + 1]
            # `hypot`, as the squares may overflow.
            length = np.hypot(carried, last)
            c[r], s[r] = carried / length, last / length
            row[r] = length


@njit(cache=True, nogil=True)
def _substituted(L: NDArray[np.float64], size: int, right: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (L L')^-1 right."""
    x = right.copy()
    for i in range(size):
        x[i] = (x[i] - _dot(L[i], x, i)) / L[i, i]
    for i in range(size - 1, -1, -1):
        # Back substitution by columns of L', which are rows of L: memory is read in order.
        x[i] /= L[i, i]
        value = x[i]
        row = L[i]
        for j in range(i):
            x[j] -= row[j] * value
    return x


# Cholesky's factor of a matrix that may be singular to rounding.

LARGEST = 1.0
"""Largest ridge, as a share of the mean diagonal entry: a matrix that needs more is not positive semidefinite, or not finite."""


def with_ridge(matrix: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """Return the lower factor (n, n) of `matrix` with the least ridge that makes one.

    The ridge is `share` of the mean diagonal entry, or 10^k times as much.
    Raises LinAlgError where a ridge of LARGEST makes none.
    """
    # A matrix of zeros has no scale: a ridge of `share` itself makes it definite.
    size = float(np.trace(matrix)) / len(matrix) or 1.0
    while True:
        try:
            lower = np.asarray(cholesky(matrix + share * size * np.eye(len(matrix)), lower=True, check_finite=False))
            if not np.isfinite(lower[-1]).all():  # not every LAPACK sees NaN
                raise np.linalg.LinAlgError("not a finite matrix")
            return lower
        except np.linalg.LinAlgError:
            if not share < LARGEST:
                raise
            share = max(10 * share, 1e-16)
