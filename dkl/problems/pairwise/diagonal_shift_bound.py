"""Cheapest diagonal that makes S psd, from Ritz vectors and a bound on the rest of the spectrum.

Whether S + D is psd can be asked of any A = B^-1/2 (S + D) B^-1/2 as well, B = max(1, diag S): large multipliers, of wrong pairs at a
large gamma, spread S over hundreds where its lowest modes are at 1e-3, which no filter separates. As |S_ij|^2 <= S_ii S_jj near the
optimum, A ends at about 3.

With a block Q of the lowest Ritz vectors of A = B^-1/2 S B^-1/2, theta their values, C = (I - QQ') A Q, a lower bound mu of A on the
complement of Q, x = Q a + b and shift > -mu, minimizing over b,
    x'(A + shift I) x >= a' (diag(theta) + shift I - C'C / (mu + shift)) a,
so that D = shift B + D' with D' above B^1/2 U U' B^1/2, -U U' the negative part of that matrix on Q. C enters squared: the Ritz vectors
need not be exact. A large shift leaves nothing to lift, none at all lifts everything; the cheapest of some counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.eigen.diagonal_lift import diagonal_above
from dkl.linalg.rows.shared_rows import SharedRows
from dkl.problems.pairwise.certificate import TraceBound

Array = NDArray[np.float64]
SHIFTS = (0.0, 1e-3, 1e-2, 0.1, 0.3)
"""Shares of the shift that leaves nothing to lift."""
CLEAN = 0.03
"""Share of a mode's largest entry: smaller ones are left out of its lift."""


@dataclass(frozen=True)
class Modes:
    """Ritz values (k,) ascending, vectors (n, k) of B^-1/2 S B^-1/2, root = B^1/2 (n,); of the rows here."""

    values: Array
    vectors: Array
    root: Array
    rows: SharedRows

    @property
    def directions(self) -> Array:
        """Return x = B^-1/2 q (n, k), for which x'S x is the Ritz value of q."""
        return self.vectors / self.root[:, None]

    def clean_lift(self) -> Array:
        """Return D >= 0 (n,) of about what lifts the negative modes to 0 where they are large.

        A mode lives on some patterns, and has small entries on all others: many modes make a sum of them by which D would cost
        several times as much, where a small shift does. So they are left out, and what they leave of the mode is for the proof.
        """
        down = self.values < 0
        if not down.any():
            return np.zeros(self.root.size)
        u = self.root[:, None] * (self.vectors[:, down] * np.sqrt(-self.values[down]))
        u[np.abs(u) < CLEAN * self.rows.largest(np.abs(u).max(axis=0))] = 0.0
        some = np.asarray(u.any(axis=1))
        lift = np.zeros(self.root.size)
        lift[some] = diagonal_above(u[some], self.rows.some(some))
        return lift


@dataclass(frozen=True)
class LowEnd(Modes):
    """Modes with their coupling C'C (k, k) to the rest, and mu on the complement (inf if that is empty)."""

    coupling: Array
    mu: float

    @property
    def lowest(self) -> float:
        """A lower bound on lambda_min(A): that of [[diag(values), G], [G, mu I]], G the root of C'C, as C is G up to a rotation."""
        if not np.isfinite(self.mu):
            return float(self.values[0])
        values, turn = np.linalg.eigh(self.coupling)
        root = (turn * np.sqrt(np.maximum(values, 0.0))) @ turn.T
        return float(
            np.linalg.eigvalsh(np.block([[np.diag(self.values), root], [root, self.mu * np.eye(len(root))]]))[0]
        )

    def to_lift(self, shift: float) -> Array:
        """Return Z = B^1/2 U (n, q) with S + shift B + Z Z' psd, for a shift beyond -mu."""
        inside = np.diag(self.values + shift)
        if np.isfinite(self.mu):
            inside -= self.coupling / (self.mu + shift)
        values, vectors = np.linalg.eigh(inside)
        below = values < 0
        return self.root[:, None] * self.rows.times(self.vectors, vectors[:, below] * np.sqrt(-values[below]))


@dataclass(frozen=True)
class DiagonalShiftBound:
    """The gap's term beyond <S, K>, and the diagonal of M that gives it (n,)."""

    term: float
    lift: Array


def cheapest(end: LowEnd, bound: TraceBound, given: Array, rounding: float) -> DiagonalShiftBound:
    """Return the cheapest proof over some shifts between no lift and nothing but a lift."""

    def paid(shift: float, lift: Array | float) -> DiagonalShiftBound:
        whole = given + lift + (shift + rounding) * end.root**2
        return DiagonalShiftBound(bound.gap_term(0.0, whole), whole)

    needed = max(-end.lowest, 0.0)
    first = best = paid(needed, 0.0)
    for share in SHIFTS if needed > 0 else ():
        shift = share * needed
        if end.mu + shift > 0:
            now = paid(shift, diagonal_above(end.to_lift(shift), end.rows))
            if now.term > best.term and best is not first:
                break  # with a larger share it rises further
            best = min(best, now, key=lambda one: one.term)
    return best
