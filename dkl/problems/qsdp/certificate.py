"""Optimality certificate of Y: a feasible dual, the gap to it, and the DIMACS errors of the two.

In the notation of `problem.py`: for any psd Y and any z, f(Y) - D(z) = |B(Y) - t - z/2|^2 + <S(z), Y>, and D(z) is a bound once
S(z) is psd. Where it is not, z moves along, or towards, a z0 whose S is positive definite, by just as much as it takes; and then,
where C is psd, towards z = 0 as far as D rises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.linalg.symmetric.symmetric_maps import SymmetricMap

if TYPE_CHECKING:
    from dkl.problems.qsdp.problem import QSDPPoint

Array = NDArray[np.float64]
INNER_STEPS = (0.0, 1.0, 1e2, 1e4, 1e6)
"""Multiples of an identity that a positive definite S is looked for at, where no direction leads inside."""
IDLE = 1e-12
"""Share of C's largest eigenvalue below which eigenvalues are zero."""
SMALL = 1e-3
"""Least share of f(0) = |t|^2 that a gap is relative to. Where f falls to 0 no bound above 0 is to be had, and so no gap small next to
f; here 1e-6 has targets met to 3e-5 of their size, in the root mean square."""


@dataclass(frozen=True)
class QSDPCertificate:
    """Certificate of Y and of the dual z that is handed out with it (`QSDPSolution.dual`).

    objective       f(Y)
    bound           D(z), of z corrected where S(z) is not psd: no Y has less. The low-rank solver hands out a z that is corrected
                    already, where a correction is known; conic solvers what they found
    gap             objective - bound, computed without cancellation; infinite where no bound was found
    size            max(|objective|, |<C, Y>|, SMALL |t|^2), f(0) = |t|^2: where all targets can be met, f falls to zero
    relative_gap    gap / size
    min_eigenvalue  of S(z), of z as it is handed out: nothing but rounding below 0 where it is corrected
    dimacs          the six errors of the Seventh DIMACS Challenge (Pataki & Schmieta 2002) of Y and z as they are handed out. 1 and
                    3, the linear equations', are zero: residual and slack are computed from Y and z. 2 and 4 are negative
                    eigenvalues of Y over 1 + max |t|, and of S(z) over 1 + max |C|; 5 and 6 are f(Y) - D(z) and <S(z), Y>, over
                    1 + |f(Y)| + |D(z)|. Of a corrected z error 4 is rounding, and 6 <= 5 = gap / (1 + |f| + |D|)
    """

    objective: float
    bound: float
    gap: float
    size: float
    relative_gap: float
    min_eigenvalue: float
    dimacs: tuple[float, float, float, float, float, float]

    @classmethod
    def of(
        cls, point: QSDPPoint, proof: DualProof, z: Array, slack: Array, slopes: Array, lowest: float
    ) -> QSDPCertificate:
        """Build the certificate of a point by its proof, and by z with slack S(z) and its eigenvalues, rising.

        lowest: of the eigenvalues of Y as given.
        """
        targets, C = point.problem.targets, point.problem.C
        # f(Y) - D(z) = |B(Y) - t - z/2|^2 + <S(z), Y>: a sum of what is not negative, so that nothing cancels.
        between, apart = float(np.sum((slack @ point.factor) * point.factor)), point.residual - 0.5 * z
        gap = float(apart @ apart) + between
        scale = 1.0 + abs(point.objective) + abs(point.objective - gap)
        dimacs = (
            0.0,
            max(0.0, -lowest) / (1.0 + float(np.abs(targets).max(initial=0.0))),
            0.0,
            max(0.0, -float(slopes[0])) / (1.0 + float(np.abs(C).max())),
            gap / scale,
            between / scale,
        )
        # The bound is f less the proven gap: D(z) itself would cancel.
        bound, least = point.objective - proof.gap, float(slopes[0])
        return cls(point.objective, bound, proof.gap, proof.size, proof.relative_gap, least, dimacs)


@dataclass(frozen=True)
class DualProof:
    """Feasible dual z (p,) and the gap f - D(z) that it proves; an infeasible z and inf if none is known."""

    dual: Array = field(repr=False)
    gap: float
    size: float
    """Size of the objective: see `QSDPCertificate`."""

    @property
    def relative_gap(self) -> float:
        """Return gap / size."""
        if self.size > 0:
            return self.gap / self.size
        return 0.0 if self.gap == 0 else np.inf


@dataclass(frozen=True)
class Interior:
    """Direction or point with S positive definite, along or towards which a dual is corrected.

    dual: z0 (p,), and root the Cholesky factor of its slack, None where none was found. A direction has sum_s z0_s B_s positive
    definite, so that any z may go any way along it; else S(z0) is so. is_cone: whether C is psd, so that z = 0 is feasible;
    what rounding leaves in doubt is not.
    """

    is_direction: bool
    dual: Array = field(repr=False)
    root: Array | None = field(repr=False)
    is_cone: bool

    @classmethod
    def of(cls, map: SymmetricMap, C: Array) -> Interior:
        """Find the interior of a problem by its map and C."""
        values = np.linalg.eigvalsh(C)
        # An eigenvalue of rounding leaves in doubt whether z = 0 is feasible: then it is not used.
        is_cone = not C.any() or bool(values[0] > len(C) * 1e-13 * np.abs(values).max())
        return cls(*_inside(map, C), is_cone)

    def proof(self, point: QSDPPoint, z: Array, slack: Array, slopes: Array) -> DualProof:
        """Return the proof by the feasible dual nearest to z; slack: S(z), slopes: its eigenvalues, rising."""
        R, residual, targets = point.factor, point.residual, point.problem.targets
        size = max(abs(point.objective), abs(point.linear), SMALL * float(targets @ targets))
        # <C, Y> is not negative where C is psd, but for rounding.
        linear = max(0.0, point.linear)
        if self.root is None:
            if not self.is_cone:
                return DualProof(z, np.inf, size)
            return DualProof(np.zeros_like(z), float(residual @ residual) + linear, size)
        # An eigenvalue is known to this much.
        rounding = 4.0 * len(slack) * float(np.finfo(float).eps) * float(np.abs(slopes).max())
        # L^-1 S L^-T, L the root of the interior's slack: its lowest eigenvalue says how far to go.
        half = scipy.linalg.solve_triangular(self.root, slack - rounding * np.eye(len(slack)), lower=True)
        low = float(np.linalg.eigvalsh(scipy.linalg.solve_triangular(self.root, half.T, lower=True))[0])
        # S + share N, or (1 - share) S + share N: psd from here on.
        share = max(0.0, -low) if self.is_direction else max(0.0, -low) / (1.0 - min(low, 0.0))
        kept = 1.0 if self.is_direction else 1.0 - share
        moved, corrected = kept * z + share * self.dual, kept * slack + share * (self.root @ self.root.T)
        between = max(0.0, float(np.sum((corrected @ R) * R)))
        # With C psd every point between z and 0 is feasible, so the best of them counts.
        if self.is_cone:
            k = _towards_zero(residual, 0.5 * moved, between, linear)
            moved, between = k * moved, k * between + (1.0 - k) * linear
        apart = residual - 0.5 * moved
        return DualProof(moved, float(apart @ apart) + between, size)


def _inside(map: SymmetricMap, C: Array) -> tuple[bool, Array, Array | None]:
    """Return (whether it is a direction, z0, the Cholesky factor of its slack)."""
    identity = map.see(np.eye(len(C))).squares()
    inward = map.adjoint(identity)
    for additions in _beside(map, C):
        # The identity's image leads inside whenever all B_s are psd, as of distances and of a diagonal.
        root = _cholesky(inward + additions)
        if root is not None:
            return True, identity, root
        for step in INNER_STEPS:
            root = _cholesky(C + step * inward + additions)
            if root is not None:
                return False, step * identity, root
    # Terms that are not psd by themselves, as pairs of large weights, may spoil the sum of all: the others alone.
    some = np.where(map.definite(), identity, 0.0)
    return True, some, _cholesky(map.adjoint(some))


def _beside(map: SymmetricMap, C: Array) -> Iterator[Array | float]:
    """Yield 0 and, if the map sees nothing, the projection (m, m) on C's null space, scaled to C's size.

    There every S is zero, so that what is positive definite with it added is so on all that counts.
    """
    yield 0.0
    if not map.size().any():
        values, vectors = np.linalg.eigh(C)
        largest = float(np.abs(values).max())
        null = vectors[:, np.abs(values) <= IDLE * largest]
        yield (largest or 1.0) * (null @ null.T)


def _towards_zero(residual: Array, half: Array, between: float, linear: float) -> float:
    """Return k in [0, 1] of k z's least gap |r - k z/2|^2 + k <S(z), Y> + (1 - k) <C, Y>.

    half: z / 2; between: <S(z), Y>; linear: <C, Y>.
    """
    # The gap is a quadratic in k: its least point, cut to [0, 1].
    square = float(half @ half)
    best = float(residual @ half) + 0.5 * (linear - between)
    return min(max(best / square, 0.0), 1.0) if square > 0 else 0.0


def _cholesky(matrix: Array) -> Array | None:
    """Return L of L L', or None where the matrix is not positive definite beyond rounding."""
    values = np.linalg.eigvalsh(matrix)
    # Definite beyond rounding, as triangular solves with the factor follow.
    if values[0] <= len(matrix) * 1e-13 * np.abs(values).max():
        return None
    return np.asarray(np.linalg.cholesky(matrix), np.float64)
