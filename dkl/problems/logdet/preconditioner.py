"""Preconditioner of problem (3)'s Newton systems by the few eigenvectors of K that make them stiff.

Those, one or so a class, have eigenvalues that grow with gamma.
With S S' = K on its k leading eigenvectors and h = sqrt(w psi''), the dual's system I + diag(h) H diag(h), H_st = tr(A_s K A_t K), is
nearly
    I + B B',   B (c, k (k + 1) / 2):   B y = h A(S Y S'),   B' r = S'U(h r)S,
Y symmetric and y its coordinates, those off the diagonal times the root of 2. Its inverse is I - B (I + B'B)^-1 B'. Of the digits' ten
classes 10 eigenvectors of K, 100 to 800 where the next is 4, make the system's largest eigenvalues, 2,000 to 4,000, to a per cent.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.problems.logdet.constraints import ConstraintSet, Vector
from dkl.problems.logdet.plan import PIECE

Array = NDArray[np.float64]


class LeadingPreconditioner:
    """r -> (I + B B')^-1 r, for S (n, k) and h (c,)."""

    def __init__(self, constraints: ConstraintSet, S: Array, roots: Vector) -> None:
        self._constraints, self._S, self._roots = constraints, S, roots
        # An off-diagonal coordinate of Y counts for two entries, so its column of B carries the root of 2.
        self._places = np.triu_indices(S.shape[1])
        self._scale = np.where(self._places[0] == self._places[1], 1.0, np.sqrt(2.0))
        gram = self._gram()
        # I + B'B is positive definite whatever S is, so a Cholesky factor always exists.
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = scipy.linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, r: Vector) -> Vector:
        """Return (I + B B')^-1 r."""
        # (I + B B')^-1 r = r - B (I + B'B)^-1 B' r: one small solve an application.
        return r - self._out(scipy.linalg.cho_solve(self._factor, self._inner(r), check_finite=False))

    def _inner(self, r: Vector) -> Vector:
        """Return B' r."""
        # S'U(h r)S needs U on the pattern alone: one sparse product with k columns.
        U = self._constraints.weighted(self._roots * r)
        return self._scale * (self._S.T @ (U @ self._S))[self._places]

    def _out(self, y: Vector) -> Vector:
        """Return B y."""
        Y = np.zeros((self._S.shape[1],) * 2)
        Y[self._places] = y / self._scale
        Y = Y + np.triu(Y, 1).T
        pattern = self._constraints.pattern
        # K's entries on the pattern from S Y S', without its other entries.
        entries = np.einsum("ek,ek->e", (self._S @ Y)[pattern.rows], self._S[pattern.columns])
        return self._roots * (self._constraints.incidence @ entries)

    def _gram(self) -> Array:
        """Return B'B, by pieces of the constraints."""
        # B'B is added up by pieces of the constraints, as B itself has one row each.
        k = len(self._scale)
        gram, (i, j), pattern = np.zeros((k, k)), self._places, self._constraints.pattern
        for lo in range(0, len(self._roots), PIECE):
            part = self._constraints.incidence[lo : lo + PIECE]
            used = np.unique(part.indices)
            left, right = self._S[pattern.rows[used]], self._S[pattern.columns[used]]
            entries = left[:, i] * right[:, j]
            # The product of both factors is symmetric, so each pair of columns is added in both orders.
            entries += left[:, j] * right[:, i]
            B = (part[:, used] @ entries) * self._roots[lo : lo + PIECE, None]
            gram += B.T @ B
        return gram * np.outer(self._scale, self._scale) / 4.0
