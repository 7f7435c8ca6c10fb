"""Interface of solvers of a convex quadratic over the psd cone: their problem and their solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.symmetric.symmetric_maps import SymmetricMap
from dkl.solvers.result import Outcome

if TYPE_CHECKING:
    from dkl.linalg.symmetric.symmetric_maps import MapAtFactor

Array = NDArray[np.float64]


class GapProof(Protocol):
    """Gap of a point that a dual proves."""

    @property
    def dual(self) -> Array:
        """Return the dual z (p,), feasible where the gap is finite."""

    @property
    def gap(self) -> float:
        """Return the gap f - D(z)."""

    @property
    def size(self) -> float:
        """Return the size of the objective, which the gap is relative to."""

    @property
    def relative_gap(self) -> float:
        """Return the relative gap, gap / size."""


class ConePoint(Protocol):
    """R R' and what is known there; the attributes of `dkl.problems.qsdp.problem.QSDPPoint`."""

    @property
    def factor(self) -> Array:
        """Return the factor R (m, r)."""

    @property
    def seen(self) -> MapAtFactor:
        """Return the factor as the map sees it."""

    @property
    def residual(self) -> Array:
        """Return the residual B(Y) - t (p,)."""

    @property
    def gradient(self) -> Array:
        """Return the gradient S (m, m)."""

    @property
    def slopes(self) -> Array:
        """Return the eigenvalues (m,) of S, rising."""

    @property
    def objective(self) -> float:
        """Return the objective f."""

    @property
    def proof(self) -> GapProof:
        """Return the proof by the feasible dual nearest to the point's own."""

    def turned(self, factor: Array) -> Self:
        """Return the point of the same Y by another factor of it."""


class ConeQuadratic(Protocol):
    """min |B(Y) - t|^2 + <C, Y> over Y psd."""

    @property
    def map(self) -> SymmetricMap:
        """Return the map B."""

    @property
    def targets(self) -> Array:
        """Return the targets t (p,)."""

    @property
    def C(self) -> Array:
        """Return C (m, m), the linear term."""

    def at(self, factor: Array) -> ConePoint:
        """Return the point of a factor (m, r)."""

    def certificate(self, point: Any) -> Any:
        """Return the gap proven of a point, and how well it and the dual of its proof fit."""

    def certify(self, Y: Array, z: Array) -> Any:
        """Return the gap proven of any Y and z, and how well these two fit."""

    def scaling(self) -> Array:
        """Return J (m, m), by which the map sees all directions alike."""

    def congruent(self, J: Array) -> Self:
        """Return the problem in Z, Y = J Z J'."""

    def in_units(self) -> tuple[Self, float]:
        """Return (the problem in Y / unit, f / unit^2, the unit), so that targets and C are about 1."""

    def single(self) -> Self:
        """Return the problem in single precision."""


@dataclass(frozen=True)
class QSDPSolution:
    """Solution of the QSDP: Y = factor factor', factor (m, r), z = dual (p,), and their certificate.

    n_iter: steps of the method; n_products: Hessian products of conjugate gradients, where the method takes any.
    """

    outcome: Outcome
    factor: Array = field(repr=False)
    dual: Array = field(repr=False)
    certificate: Any
    n_iter: int
    n_products: int = 0
    solver: str = "low-rank"
