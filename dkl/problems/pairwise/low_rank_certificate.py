"""Certificate of the pairwise problem (Hu & Kwok 2013, (1)) at K = V V', where S has more eigenvalues near 0 than V has columns.

The bounds of problems/pairwise/certificate.py, f(K) - f* <= <S, K> + what M costs, for M on T's pattern with S + M psd. M is found in
three steps:

  1. multipliers E by which S + E nearly vanishes on V's columns (problems/pairwise/dual_correction.py): they cost next to nothing, and
     the lower end of S + E is what V lacks, not what is unfinished in it;
  2. the lowest Ritz vectors of S + E, some dozens, from a filter. Where they are too low for the goal, the large entries of the negative
     ones are lifted, and the filter shows how low the lifted matrix is; both in turns while the goal may be reached;
  3. the cheapest diagonal that makes the rest psd (problems/pairwise/dual_correction.py).

Up to DENSE rows step 2 is LAPACK's: all eigenvectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.eigen.extreme_eigenvalues import DENSE
from dkl.linalg.eigen.lowest_subspace import RitzBlock, lowest_outside, lowest_subspaces
from dkl.linalg.eigen.principal_coordinates import truncate_rank
from dkl.linalg.rows.shared_rows import SharedMatrix, SharedRows
from dkl.problems.pairwise.certificate import Certificate, TraceBound
from dkl.problems.pairwise.dual_correction import DiagonalShiftBound, LowEnd, Modes, Multipliers, cheapest
from dkl.resources import one_blas_thread

if TYPE_CHECKING:
    from dkl.problems.pairwise.low_rank import FactoredPairwise, FactorPoint

Array = NDArray[np.float64]
BESIDE, FEW_BESIDE, GUARDS = 40, 16, 8
"""Ritz vectors wanted in addition to V's columns, at most and for `few`; more that help convergence."""
PASSES, HOPELESS, LIFTED_PASSES, LIFTS = 8, 2, 3, 3
"""Passes over the block at most, after which its modes are lifted where they do not prove the goal; passes over what a lift leaves, and
lifts at most."""
SINGLE = 1e-6
"""Relative gaps down to this one are proven by Ritz vectors from a filter in single precision."""
UNSURE = 0.5
"""Share of the lowest Ritz value beyond the block that is assumed of S there until it is known."""
SLACK, ENOUGH = 0.1, 0.5
"""Share of gap or goal that unfinished Ritz vectors may cost; share of the goal that is enough."""
AFFORDED, LEAST_SHARE = 0.1, 1e-3
"""Share of the goal that E may cost, and the share of E below which E is dropped."""


def certified(
    problem: FactoredPairwise,
    point: FactorPoint,
    relative: float,
    seed: int,
    *,
    few: bool = False,
    last: bool = False,
    near: Modes | None = None,
) -> tuple[Certificate, Modes]:
    """Return the certificate at a point, and the lowest modes found of S + E.

    relative: the relative gap that is aimed at; `few` asks for a narrow block, `last` for the best bound there is; `near`: the
    modes found at a nearby point.
    """
    rows = problem.rows
    bound = TraceBound.of(point.objective, problem.gamma, problem.diagonal(point), rows)
    with one_blas_thread():
        # E moves S to where it should be at the optimum: it may cost a small share of the gap that is aimed at.
        change = _affordable(problem.multipliers(point, relative), bound, AFFORDED * relative * bound.scale)
        # A goal of 0 asks for the best bound there is, which no early exit may cut short.
        search = _SpectrumSearch(problem, point, bound, change, 0.0 if last else relative * bound.scale, seed)
        if problem.n <= DENSE:
            modes, residual, proof = search.by_all()
        else:
            modes, residual, proof = search.by_filter(
                _start(rows, search.root[:, None] * point.v[: rows.n_own], few, seed, near)
            )
    # The gradient is 2 S V, so half of V . gradient is tr(V'S V) = <S, K>.
    inner = 0.5 * float(rows.sum(lambda lo, hi: np.vdot(point.v[lo:hi], point.gradient[lo:hi])))
    # A negative <S, K> is rounding or a K that is not scaled: it must not lower the bound.
    gap = max(inner, 0.0) + proof.term
    direction = modes.directions[:, 0]
    certificate = Certificate(
        point.objective,
        gap,
        float(gap / bound.scale),
        # A + rounding I is psd, and B is at most its largest entry, so S + M is above minus their product.
        -search.rounding * float(rows.largest(search.root.max())) ** 2,
        residual,
        inner,
        bound.trace_bound,
        direction=direction / np.sqrt(rows.dot(direction, direction)),
        lift=proof.lift,
        pair_lift=change.on_pairs(problem.targets, rows.lo),
    )
    return certificate, modes


def _affordable(change: Multipliers, bound: TraceBound, most: float) -> Multipliers:
    """Return the largest share of E, by halving, that costs at most `most`.

    Far from the optimum, or at a small gamma, all of it may cost too much."""
    share = 1.0
    # The cost of a share of E is linear and quadratic in it, so halving always ends below the limit.
    while share > LEAST_SHARE and change.times(share).cost(bound) > most:
        share /= 2
    return change.times(share if share > LEAST_SHARE else 0.0)


class _SpectrumSearch:
    """Search for the lower end of A = B^-1/2 (S + E) B^-1/2 at a point; `goal`: of the gap's second term."""

    def __init__(
        self,
        problem: FactoredPairwise,
        point: FactorPoint,
        bound: TraceBound,
        change: Multipliers,
        goal: float,
        seed: int,
    ) -> None:
        rows, targets = problem.rows, problem.targets
        moved = sparse.csr_array((change.entries, targets.indices, targets.indptr), shape=targets.shape)
        own = sparse.csr_array(problem.gradient_matrix(point) + moved)
        diagonal = np.asarray(own.diagonal(rows.lo), float)
        # Few rows are decomposed whole, unscaled; many are scaled so that the filter separates the lower end.
        self.rows, self.root = rows, np.ones(rows.n_own) if rows.n <= DENSE else np.sqrt(np.maximum(diagonal, 1.0))
        self.matrix = SharedMatrix.part(own, rows, problem.halo).scaled(1 / self.root)
        self.bound, self.given = bound.beside(change.off_diagonal), change.diagonal
        self.goal, self.seed = goal, seed
        # A float32 filter halves the traffic. Its vectors are good enough for such gaps: the proof is in double.
        self.dtype = np.float32 if goal >= SINGLE * bound.scale else np.float64
        # LAPACK's errors grow with the root of n, those of a sparse product with the entries of a row alone.
        steps = np.sqrt(rows.n) if rows.n <= DENSE else 1.0
        self.rounding = float(np.finfo(float).eps * self.matrix.norm() * 4 * steps)

    def by_all(self) -> tuple[Modes, float, DiagonalShiftBound]:
        """Return (the whole spectrum, residual 0, proof), by S + E or, if that is not enough, with a lift."""
        end = self._spectrum(np.zeros(self.root.size))
        proof = cheapest(end, self.bound, self.given, self.rounding)
        # The lift is tried only where the plain proof fails: it takes a second decomposition.
        if proof.term > self.goal:
            lift = end.clean_lift()
            lifted = cheapest(self._spectrum(lift), self.bound, self.given + lift, self.rounding)
            proof = min(proof, lifted, key=lambda one: one.term)
        return end, 0.0, proof

    def _spectrum(self, lift: Array) -> LowEnd:
        """Return the whole spectrum of A + diag(lift), where B = I."""
        values, vectors = np.linalg.eigh(self.matrix.own.toarray() + np.diag(lift))
        return LowEnd(values, vectors, self.root, self.rows, np.zeros((values.size, values.size)), np.inf)

    def by_filter(self, start: Start) -> tuple[Modes, float, DiagonalShiftBound]:
        """Return (the lowest Ritz vectors, the residual norm of the first, the proof).

        The proof is of S + E itself if that reaches the goal, else of what a lift of the modes leaves; for the best bound, of both.
        """
        blocks = lowest_subspaces(self.matrix, start.block, start.count, PASSES, self.dtype, start.known)
        # The block is the largest array of a certificate, and the filter has its own copy from here on.
        del start
        proof = None
        for done, block in enumerate(blocks, 1):
            foreseen, is_enough = self._outlook(block, self.given)
            # Stop as soon as the outlook reaches the goal: passes over L are what a certificate costs.
            if done == PASSES or (is_enough and (self.goal == 0 or foreseen <= self.goal)):
                proof = self._proof(self.matrix, block, self.given)
                if self.goal == 0 or proof.term <= self.goal:
                    break
            # After a few passes that did not come near the goal, a lift of the modes is worth more than another pass.
            if self.goal > 0 and done >= HOPELESS:
                break
        blocks.close()  # its arrays
        modes, first = Modes(block.values, block.vectors, self.root, self.rows), block.remainder[:, 0]
        residual = float(np.sqrt(self.rows.dot(first, first)))
        del block
        if proof is None or proof.term > self.goal:
            proof = min(filter(None, (proof, self._lifted(modes))), key=lambda one: one.term)
        return modes, residual, proof

    def _lifted(self, modes: Modes) -> DiagonalShiftBound:
        """Return the proof by a lift of the modes' large entries, after a few passes over the lifted matrix.

        A block finds the modes of its width: of a million patterns there may be more, each on a few of them. What the first lift
        leaves of them is lifted too, where that costs little enough to reach the goal.
        """
        lift, more, rounding, lifts = np.zeros(self.root.size), modes.clean_lift(), self.rounding, 0
        while True:
            lift, lifts = lift + more, lifts + 1
            # A is B^-1/2 S B^-1/2, so a diagonal D enters it as D / B.
            given, added = self.given + lift, lift / self.root**2
            matrix = self.matrix.plus(added)
            # The lift enlarges entries of A, and the rounding of products with it grows by as much.
            self.rounding = rounding + float(np.finfo(float).eps * 4 * self.rows.largest(np.max(added)))
            block, foreseen = self._left(matrix, given, modes)
            modes = Modes(block.values, block.vectors, self.root, self.rows)
            more = modes.clean_lift()
            cost = self.bound.gap_term(0.0, given + more)
            # Another lift is worth its passes only if what it lifts costs at most half of the goal.
            if lifts == LIFTS or foreseen <= self.goal or cost > ENOUGH * (self.goal or foreseen):
                return self._proof(matrix, block, given)
            del block  # its arrays

    def _left(self, matrix: SharedMatrix, given: Array, modes: Modes) -> tuple[RitzBlock, float]:
        """Return the lower end of the matrix with these modes lifted, and about the term that it proves."""
        # Rayleigh quotients of the lifted matrix at the old modes, as starting values for its own.
        known = np.sort(_column_dots(self.rows, modes.vectors, matrix.product(modes.vectors)))
        start = [np.hstack([modes.vectors, self.rows.random(self.seed, GUARDS)])]
        for block in lowest_subspaces(matrix, start.pop(), known.size, LIFTED_PASSES, self.dtype, known):
            foreseen, is_enough = self._outlook(block, given)
            if is_enough:
                break
        return block, foreseen

    def _outlook(self, block: RitzBlock, given: Array) -> tuple[float, bool]:
        """Return (term proven if the rest begins about where the block's guards are, whether that is enough).

        It is if further passes would prove little more: half the goal, or about what is proven if its Ritz values are eigenvalues.
        """
        # The rest of the spectrum is taken to begin at half of the guards' value: an estimate, which no proof uses.
        foreseen = cheapest(self._end(block, UNSURE * block.beyond), self.bound, given, self.rounding).term
        if foreseen <= ENOUGH * self.goal:
            return foreseen, True
        # With coupling 0 and mu infinite the Ritz values count as exact: no further pass could prove more than this.
        end = LowEnd(block.values, block.vectors, self.root, self.rows, np.zeros((block.values.size,) * 2), np.inf)
        exact = cheapest(end, self.bound, given, self.rounding).term
        return foreseen, foreseen - exact <= SLACK * max(self.goal, exact)

    def _proof(self, matrix: SharedMatrix, block: RitzBlock, given: Array) -> DiagonalShiftBound:
        """Return the proof by a block and a lower bound on the rest of the spectrum."""
        # Lanczos bounds the rest of the spectrum from below, which alone makes the estimate a proof.
        end = self._end(block, lowest_outside(matrix, block.vectors, self.seed))
        return cheapest(end, self.bound, given, self.rounding)

    def _end(self, block: RitzBlock, mu: float) -> LowEnd:
        # C'C of the residuals C = A Q - Q diag(theta): how much the block couples to the rest.
        coupling = self.rows.gram(block.remainder, block.remainder)
        return LowEnd(block.values, block.vectors, self.root, self.rows, coupling, mu)


def _column_dots(rows: SharedRows, x: Array, y: Array) -> Array:
    """Return x_k'y_k of each column k."""
    return rows.sum(lambda lo, hi: np.einsum("ij,ij->j", x[lo:hi], y[lo:hi]))


@dataclass(frozen=True)
class Start:
    """Start of a block, the number of Ritz vectors wanted, and Ritz values of its first columns, if known."""

    block: Array
    count: int
    known: Array | None


def _start(rows: SharedRows, v: Array, few: bool, seed: int, near: Modes | None) -> Start:
    """Return a start: V's columns, where S nearly vanishes, or vectors found nearby, and random ones."""
    # Orthonormal columns, as S + E nearly vanishes on V's range whatever the lengths of V's columns are.
    factor = truncate_rank(v, v.shape[1], rows)
    count = min(factor.shape[1] + (FEW_BESIDE if few else BESIDE), rows.n - GUARDS)
    block = rows.random(seed, count + GUARDS)
    if near is None:
        block[:, : factor.shape[1]] = factor / np.sqrt(np.diag(rows.gram(factor, factor)))
        return Start(block, count, None)
    # The modes of a nearby point begin closer than V's own columns do.
    kept = min(near.vectors.shape[1], count)
    block[:, :kept] = near.vectors[:, :kept]
    return Start(block, count, near.values)
