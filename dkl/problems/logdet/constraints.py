"""Constraints tr(K A_t), t = 1..c, on a symmetric K (n, n), as one sparse matrix on K's entries.

Li et al. 2009, Table 2. 40,100 triplets of 401 rows touch 6,300 entries: a product costs as much as the incidence has entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dkl.errors import InputError
from dkl.linalg.symmetric.sampled_congruence import SymmetricPattern
from dkl.side_information.matrices import ConstraintMatrices

Vector = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class ConstraintSet:
    """Constraints tr(K A_t) = sum over e of incidence[t, e] K[rows[e], columns[e]]; entries have rows <= columns, each once.

    n          rows of K
    rows, columns  (q,) the distinct entries, sorted by rows
    incidence  (c, q) CSR; an off-diagonal entry of A_t counts twice in it
    """

    n: int
    rows: Indices
    columns: Indices
    incidence: sparse.csr_array

    @classmethod
    def triplets(cls, n: int, triplets: ArrayLike) -> Self:
        """Build the constraints d2(anchor, dissimilar) - d2(anchor, similar) of triplets (c, 3)."""
        anchor, similar, other = _distinct(_indices(n, triplets, 3, "triplets"), "triplets").T
        # d2(i, j) = K_ii - 2 K_ij + K_jj: the anchor's own entry cancels, so that a triplet reads four.
        i, j = (anchor, anchor, similar, other), (similar, other, similar, other)
        return cls._of_terms(n, np.stack(i, 1), np.stack(j, 1), np.array([2.0, -2.0, -1.0, 1.0]))

    @classmethod
    def distances(cls, n: int, pairs: ArrayLike) -> Self:
        """Build the constraints d2(i, j) = K_ii - 2 K_ij + K_jj of pairs (c, 2)."""
        i, j = _distinct(_indices(n, pairs, 2, "pairs"), "pairs").T
        return cls._of_terms(n, np.stack((i, i, j), 1), np.stack((i, j, j), 1), np.array([1.0, -2.0, 1.0]))

    @classmethod
    def similarities(cls, n: int, pairs: ArrayLike, signs: ArrayLike | None = None) -> Self:
        """Build the constraints 2 K_ij (Hoi's pattern) of pairs (c, 2), times `signs` (c,) of 1 and -1."""
        given = _indices(n, pairs, 2, "pairs")
        weights = np.ones(len(given)) if signs is None else np.asarray(signs, dtype=np.float64)
        if weights.shape != (len(given),) or not np.isin(weights, (-1.0, 1.0)).all():
            raise InputError(
                "not a sign for each pair", where="signs", got=f"shape {weights.shape}", wanted="1 or -1, (c,)"
            )
        return cls._of_terms(n, given[:, :1], given[:, 1:], 2.0 * weights[:, None])

    @classmethod
    def of_matrices(cls, matrices: ConstraintMatrices) -> Self:
        """Build the constraints of any symmetric A_t (n, n)."""
        n, i, j = matrices.n, matrices.i.astype(np.intp), matrices.j.astype(np.intp)
        # Off the diagonal an entry of A_t appears twice in tr(K A_t).
        return cls._of_keys(
            n, i * n + j, matrices.value * np.where(i == j, 1.0, 2.0), matrices.constraint, matrices.count
        )

    @classmethod
    def _of_terms(cls, n: int, i: Indices, j: Indices, weights: Vector) -> Self:
        """Build constraints t = sum over k of weights[k] K[i[t, k], j[t, k]]."""
        if len(i) == 0:
            raise InputError("no constraints", got=0, wanted="1 or more")
        keys = np.minimum(i, j) * n + np.maximum(i, j)
        owner = np.repeat(np.arange(len(i)), i.shape[1])
        return cls._of_keys(n, keys.ravel(), np.broadcast_to(weights, keys.shape).ravel(), owner, len(i))

    @classmethod
    def _of_keys(cls, n: int, keys: Indices, values: Vector, owner: Indices, c: int) -> Self:
        # Distinct entries are counted once, whatever the number of constraints: 40,100 triplets share 6,300.
        distinct, places = np.unique(keys, return_inverse=True)
        incidence = sparse.csr_array((values, (owner, places)), shape=(c, len(distinct)))
        # Canonical, so that `widest` counts each entry once: SciPy 1.13 leaves duplicates.
        incidence.sum_duplicates()
        return cls(n, distinct // n, distinct % n, incidence)

    def __len__(self) -> int:
        return int(self.incidence.shape[0])

    @cached_property
    def widest(self) -> int:
        """Return the largest number of entries of a constraint."""
        return int(np.diff(self.incidence.indptr).max())

    @cached_property
    def transposed(self) -> sparse.csr_array:
        """Return the incidence's transpose (q, c), CSR."""
        # Every product multiplies by the transpose, so it is kept as well.
        return sparse.csr_array(self.incidence.T)

    @cached_property
    def pattern(self) -> SymmetricPattern:
        """Return the places of the entries."""
        return SymmetricPattern(self.n, self.rows, self.columns)

    @cached_property
    def points(self) -> Indices:
        """Return the distinct indices P that constraints touch, ascending."""
        return np.unique(np.concatenate([self.rows, self.columns]))

    def on_points(self) -> Self:
        """Return the same constraints on K_PP: rows and columns count within `points`, n is their number."""
        # Points that no constraint touches do not change the optimum, and are dropped.
        rows, columns = (np.searchsorted(self.points, places) for places in (self.rows, self.columns))
        return type(self)(len(self.points), rows, columns, self.incidence)

    def some(self, chosen: NDArray[np.bool_]) -> Self:
        """Return the chosen constraints (c,) alone, on the same n rows."""
        incidence = self.incidence[chosen]
        used = np.zeros(len(self.rows), bool)
        used[incidence.indices] = True
        # Old column numbers to new ones: how many used columns come before.
        places = (np.cumsum(used) - 1)[incidence.indices]
        # Columns are renumbered, as entries that no chosen constraint reads are dropped.
        incidence = sparse.csr_array(
            (incidence.data, places, incidence.indptr), shape=(len(incidence.indptr) - 1, used.sum())
        )
        return type(self)(self.n, self.rows[used], self.columns[used], incidence)

    def values(self, K: NDArray[np.float64]) -> Vector:
        """Return (c,) tr(K A_t) of a dense symmetric K (n, n)."""
        return np.asarray(self.incidence @ self.pattern.of(K))

    def weighted(self, weights: Vector) -> sparse.csr_array:
        """Return sum over t of weights_t A_t (n, n), both halves."""
        return self.pattern.matrix(self.transposed @ weights)


def _indices(n: int, given: ArrayLike, width: int, where: str) -> Indices:
    """Return `given` as (c, width) whole numbers from 0 to n - 1."""
    array = np.asarray(given)
    if array.size == 0:
        array = np.empty((0, width), dtype=np.intp)
    if array.ndim != 2 or array.shape[1] != width or not np.issubdtype(array.dtype, np.integer):
        got = f"shape {array.shape} of {array.dtype}"
        raise InputError("not rows of indices", where=where, got=got, wanted=f"(c, {width}) whole numbers")
    if array.size and not (array.min() >= 0 and array.max() < n):
        wrong = array.min() if array.min() < 0 else array.max()
        raise InputError("an index out of range", where=where, got=int(wrong), wanted=f"0 to {n - 1}")
    return array.astype(np.intp)


def _distinct(rows: Indices, where: str) -> Indices:
    """Return `rows`; raises InputError if one has an index twice: its distance from itself is always 0."""
    # A pair of a row with itself is always at distance 0, and no constraint at all.
    ordered = np.sort(rows, axis=1)
    twice = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(twice):
        got = f"{where}[{twice[0]}] = {tuple(rows[twice[0]].tolist())}"
        raise InputError("an index twice", where=where, got=got, wanted="different ones")
    return rows
