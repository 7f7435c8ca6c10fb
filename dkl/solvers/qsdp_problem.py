"""Interface of solvers of a convex quadratic over the psd cone: their problem and their solution."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.symmetric_maps import SymmetricMap
from dkl.solvers.result import Outcome

Array = NDArray[np.float64]


class Proof(Protocol):
    """Gap of a point that a dual proves."""

    @property
    def dual(self) -> Array:
        """(p,) z, feasible where the gap is finite."""

    @property
    def gap(self) -> float:
        """f - D(z)."""

    @property
    def size(self) -> float:
        """Return the size of the objective, which the gap is relative to."""

    @property
    def relative_gap(self) -> float:
        """gap / size."""


class Point(Protocol):
    """R R' and what is known there; the attributes of `dkl.problems.quadratic_sdp.QSDPPoint`."""

    @property
    def factor(self) -> Array:
        """(m, r)."""

    @property
    def seen(self) -> Any:
        """Return the factor as the map sees it."""

    @property
    def residual(self) -> Array:
        """(p,) B(Y) - t."""

    @property
    def gradient(self) -> Array:
        """(m, m) S."""

    @property
    def slopes(self) -> Array:
        """(m,) the eigenvalues of S, rising."""

    @property
    def objective(self) -> float:
        """f."""

    @property
    def proof(self) -> Proof:
        """Return the proof by the feasible dual nearest to the point's own."""

    def turned(self, factor: Array) -> Self:
        """Return the point of the same Y by another factor of it."""


class Problem(Protocol):
    """min |B(Y) - t|^2 + <C, Y> over Y psd."""

    @property
    def map(self) -> SymmetricMap:
        """B."""

    @property
    def targets(self) -> Array:
        """(p,) t."""

    @property
    def C(self) -> Array:
        """(m, m)."""

    def at(self, factor: Array) -> Any:
        """The point of a factor (m, r)."""

    def certificate(self, point: Any) -> Any:
        """Return the gap proven of a point, and how well it and the dual of its proof fit."""

    def certify(self, Y: Array, z: Array) -> Any:
        """Return the gap proven of any Y and z, and how well these two fit."""

    def scaling(self) -> Array:
        """J (m, m)."""

    def congruent(self, J: Array) -> Self:
        """The problem in Z, Y = J Z J'."""

    def in_units(self) -> tuple[Self, float]:
        """(the problem in Y / unit, f / unit^2, the unit), so that targets and C are about 1."""

    def single(self) -> Self:
        """The problem in single precision."""


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
