"""Multipliers of the targets that make S vanish on the columns of V, nearly, by least squares.

At the optimum of the pairwise problem S V = 0. Near it S V is small, yet S then has negative eigenvalues: about V'S V within V's range,
and where S couples that range to its other eigenvalues next to 0. To lift them costs many times the gap. But S is only one choice: for
any symmetric E on T's pattern the bounds of problems/pairwise/certificate.py hold with S + E in place of S, for <E, K> and
|W^(-1/2) E|^2 / (2 gamma). So S is first moved to where it should be,
    E = argmin |(S + E) V|^2 + stiffness |Q'(S + E) V|^2 + RIDGE |W^(-1/2) E|^2,   Q an orthonormal basis of V's range.
What is left within the range lowers the spectrum by itself, what is left outside by its square: hence the stiffness, which grows as
the goal falls. The ridge keeps E small where it would do little. E costs next to nothing: where E V is -S V, <E, K> is -<S, K>, which
is 0 at a K of the best scale.

The normal equations are P_T(A + A') / 2 + RIDGE E / W = 0 with A = (I + stiffness Q Q') (S + E) V V': a product with a matrix on T's
pattern and dot products on it a step, of which conjugate gradients need dozens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.eigen.extreme_eigenvalues import diagonal_above
from dkl.linalg.eigen.principal_coordinates import truncate_rank
from dkl.linalg.rows.shared_rows import SharedRows, inner_product, row_numbers
from dkl.linalg.slabs import slab_ops as kernels
from dkl.linalg.slabs.slab_ops import empty_aligned, lanes_of
from dkl.problems.pairwise.certificate import OffDiagonal, TraceBound

if TYPE_CHECKING:
    from dkl.problems.pairwise.low_rank import FactoredPairwise, FactorPoint

Array = NDArray[np.float64]
STIFF = 0.1
"""Stiffness times the relative gap that is aimed at: with a stiffness of 100 a goal of 1e-3 was proven best, from 1,000 on one of 1e-4."""
LEAST_GOAL = 1e-12
"""A goal of less, or of 0, counts as this one: beyond it the equations are rounding."""
RIDGE = 0.1
"""Weight of the ridge, where K_ii is about 1: what would need a large E is left to the lift."""
MOST_STEPS, RELATIVE = 100, 1e-2
"""Maximum steps of conjugate gradients, and the share of the residual at which they end."""


@dataclass(frozen=True)
class Multipliers:
    """Multipliers E: entries on T's pattern (nnz,), their diagonal (n,), and the costs of the others."""

    entries: Array
    diagonal: Array
    off_diagonal: OffDiagonal

    def cost(self, bound: TraceBound) -> float:
        """Return <E, K> + |W^(-1/2) E|^2 / (2 gamma), for a bound that knows K_ii and gamma."""
        off, diagonal = self.off_diagonal, self.diagonal
        own, with_kernel = bound.rows.sum(
            lambda lo, hi: (
                inner_product(diagonal[lo:hi], diagonal[lo:hi]),
                inner_product(diagonal[lo:hi], bound.diagonal[lo:hi]),
            )
        )
        return float(off.with_kernel + with_kernel + (off.size + own) / (2 * bound.gamma))

    def times(self, share: float) -> Multipliers:
        """Return share E."""
        return Multipliers(share * self.entries, share * self.diagonal, self.off_diagonal.times(share))

    def on_pairs(self, targets: sparse.csr_array, first: int = 0) -> Array:
        """Return E_ij of T's pairs i < j, row by row; `first` is the number of T's first row here."""
        return self.entries[first + row_numbers(targets) < targets.indices]


def least_squares(problem: FactoredPairwise, point: FactorPoint, goal: float) -> Multipliers:
    """Return E at a point, for a relative gap, by dozens of products on T's pattern, a hundred at most."""
    found = _Normal(problem, point, STIFF / max(goal, LEAST_GOAL)).solved()
    return _split(problem, point, _symmetric(problem, found))


class _Normal:
    """Normal equations, by rows; a pair of weight 0 does not count, and its entries stay 0."""

    def __init__(self, problem: FactoredPairwise, point: FactorPoint, stiffness: float) -> None:
        self.problem, self.rows, self.v, self.gradient = problem, problem.rows, point.v, point.gradient
        # The stiffness is applied through an orthonormal basis of V's range, as V's columns may be nearly dependent.
        self.stiffness, self.basis = stiffness, _basis(point.v[: self.rows.n_own], self.rows)
        targets = problem.targets
        self.pattern = targets.indptr.astype(np.int64), problem.halo.numbers(targets.indices)
        weights = np.ones(targets.nnz) if problem.weights is None else problem.weights
        # A pair of weight 0 has no multiplier: W^(-1/2) E would be infinite.
        self.is_pair = weights > 0
        self.ridge = np.divide(RIDGE, weights, out=np.zeros(targets.nnz), where=self.is_pair)
        self.image, self.other = (empty_aligned(point.v.shape, float) for _ in range(2))
        self.lanes = lanes_of(point.v.shape[1])

    def solved(self) -> Array:
        """Return E, by conjugate gradients from 0."""
        # The right side is minus the projection of S V V' on T's pattern, which `_crossed` computes from V and 2 S V.
        residual = np.empty_like(self.ridge)
        self._crossed(self.gradient, residual)
        residual *= -0.5  # the gradient is 2 S V
        found, direction = np.zeros_like(residual), residual.copy()
        # One percent of the residual is enough: what E leaves undone is lifted, which costs little.
        size = first = self._dot(residual, residual)
        for _ in range(MOST_STEPS):
            if not size > RELATIVE**2 * first:
                break
            image = self.times(direction)
            step = size / self._dot(direction, image)
            found += step * direction
            residual -= step * image
            before, size = size, self._dot(residual, residual)
            direction *= size / before
            direction += residual
        return found

    def times(self, entries: Array) -> Array:
        """Return the image of E's entries (nnz,)."""
        out = np.empty_like(entries)
        known = (*self.pattern, entries, self.v)
        self.rows.each(lambda lo, hi: kernels.product_rows(lo, hi, *known, self.image, self.lanes), self.rows.n_own)
        self._crossed(self.image, out)
        return out + self.ridge * entries

    def _crossed(self, given: Array, out: Array) -> None:
        """Compute out[k] = (v_i . x_j + x_i . v_j) / 2 on pairs and diagonal, x = (I + stiffness QQ') given."""
        n, other = self.rows.n_own, self.other
        self.rows.times(self.basis, self.stiffness * self.rows.gram(self.basis, given), other)
        other[:n] += given[:n]
        self.problem.halo.fill(other)
        known = (*self.pattern, self.v, other)
        self.rows.each(lambda lo, hi: kernels.crossed_rows(lo, hi, *known, out, self.lanes), n)
        out *= np.where(self.is_pair, 0.5, 0.0)

    def _dot(self, x: Array, y: Array) -> float:
        return float(self.problem.sum_entries(lambda lo, hi: inner_product(x[lo:hi], y[lo:hi])))


def _symmetric(problem: FactoredPairwise, entries: Array) -> Array:
    """Return (E + E') / 2 on T's pattern: (i, j) and (j, i) differ by rounding, but one number is proven."""
    rows, targets = problem.rows, problem.targets
    row_of, columns = row_numbers(targets), targets.indices
    is_own = (columns >= rows.lo) & (columns < rows.hi)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row_of[is_own], minlength=rows.n_own))])
    own = sparse.csr_array((entries[is_own], columns[is_own] - rows.lo, indptr), shape=(rows.n_own, rows.n_own))
    mirrored = np.empty_like(entries)
    # The pattern is symmetric, so that the transpose has its entries in the same places, row by row.
    mirrored[is_own] = sparse.csr_array(own.T).data
    if not rows.is_alone:
        # The rows' bounds are sorted, so a search finds the owner of each column of a foreign row.
        owner = np.where(is_own, -1, np.searchsorted(rows.bounds, columns, side="right") - 1)
        shared = {k: np.flatnonzero(owner == k) for k in np.unique(owner[~is_own]).tolist()}
        # The other owner has them row by row, which is column by column here.
        given = {k: entries[at[np.lexsort((row_of[at], columns[at]))]] for k, at in shared.items()}
        for k, part in rows.swap(given).items():
            mirrored[shared[k]] = part
    return 0.5 * (entries + mirrored)


def _basis(v: Array, rows: SharedRows) -> Array:
    """Return Q of V's range, orthonormal columns."""
    factor = truncate_rank(v, v.shape[1], rows)
    return factor / np.sqrt(np.diag(rows.gram(factor, factor)))


def _split(problem: FactoredPairwise, point: FactorPoint, entries: Array) -> Multipliers:
    """Return E with its diagonal, and the costs of its other entries."""
    targets, held = problem.targets, problem.entries(point)
    weights = np.ones(targets.nnz) if problem.weights is None else problem.weights
    is_diagonal = problem.rows.lo + row_numbers(targets) == targets.indices
    off = np.where(is_diagonal, 0.0, entries)
    # Entries of weight 0 hold no multiplier, so they cost nothing and are not divided.
    squares = np.divide(off * off, weights, out=np.zeros_like(off), where=weights > 0)

    def costs(lo: int, hi: int) -> tuple[object, ...]:
        return (
            inner_product(off[lo:hi], held[lo:hi]),
            inner_product(off[lo:hi], targets.data[lo:hi]),
            squares[lo:hi].sum(),
        )

    cost = OffDiagonal(*map(float, problem.sum_entries(costs)))
    return Multipliers(entries, entries[is_diagonal], cost)


# Cheapest diagonal that makes S psd, from Ritz vectors and a bound on the rest of the spectrum.
#
# Whether S + D is psd can be asked of any A = B^-1/2 (S + D) B^-1/2 as well, B = max(1, diag S): large multipliers, of
# wrong pairs at a large gamma, spread S over hundreds where its lowest modes are at 1e-3, which no filter separates. As
# |S_ij|^2 <= S_ii S_jj near the optimum, A ends at about 3.
#
# With a block Q of the lowest Ritz vectors of A = B^-1/2 S B^-1/2, theta their values, C = (I - QQ') A Q, a lower bound
# mu of A on the complement of Q, x = Q a + b and shift > -mu, minimizing over b,
#     x'(A + shift I) x >= a' (diag(theta) + shift I - C'C / (mu + shift)) a,
# so that D = shift B + D' with D' above B^1/2 U U' B^1/2, -U U' the negative part of that matrix on Q. C enters
# squared: the Ritz vectors need not be exact. A large shift leaves nothing to lift, none at all lifts everything; the
# cheapest of some counts.

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
        """Return D >= 0 (n,) that lifts the negative modes to about 0 where their entries are large.

        A mode lives on some patterns, and has small entries on all others: many modes make a sum of them by which D would cost
        several times as much, where a small shift does. So they are left out, and what they leave of the mode is for the proof.
        """
        # Positive modes already count for the proof: only the negative ones are lifted.
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
        # A symmetric root of C'C has the same singular values as C, which is all that the bound depends on.
        root = (turn * np.sqrt(np.maximum(values, 0.0))) @ turn.T
        return float(
            np.linalg.eigvalsh(np.block([[np.diag(self.values), root], [root, self.mu * np.eye(len(root))]]))[0]
        )

    def to_lift(self, shift: float) -> Array:
        """Return Z = B^1/2 U (n, q) with S + shift B + Z Z' psd, for a shift beyond -mu."""
        inside = np.diag(self.values + shift)
        if np.isfinite(self.mu):
            # The Schur complement in b: the rest of the spectrum, at least mu + shift, absorbs the coupling C.
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
        # All parts of M's diagonal together, as their costs do not add up: the spread bounds their common norm.
        whole = given + lift + (shift + rounding) * end.root**2
        return DiagonalShiftBound(bound.gap_term(0.0, whole), whole)

    # The shift that leaves nothing to lift is the most that can be needed.
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
