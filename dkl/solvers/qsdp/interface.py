"""Interface of solvers of a convex quadratic over the psd cone: their problem and their solution."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError
from dkl.linalg.symmetric.symmetric_maps import SymmetricMap
from dkl.solvers.watch import Outcome

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


# Checks of the input of all solvers of a quadratic over the psd cone, before any work.

UNSEEN = 1e-12
"""Share of the largest eigenvalue of the map's size up to which the map does not see a direction."""


def check_numbers(*, tol: Any, max_iter: object, **counts: Any) -> None:
    """Validate tol (finite, >= 0), max_iter (int >= 0) and other counts (int >= 1); raises InputError."""
    is_number = isinstance(tol, Real) and not isinstance(tol, bool)
    if not is_number or not 0 <= tol <= sys.float_info.max:
        raise InputError("no relative gap", where="tol", got=repr(tol), wanted="a finite number >= 0, such as 1e-6")
    for name, value, least in (("max_iter", max_iter, 0), *((name, value, 1) for name, value in counts.items())):
        if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
            raise InputError(
                "not a number of steps or rows", where=name, got=repr(value), wanted=f"an integer >= {least}"
            )


def check_bounded(problem: ConeQuadratic) -> None:
    """Raise InputError if C is negative in a direction that no B_t sees: along it f falls forever."""
    values, vectors = np.linalg.eigh(problem.map.size())
    unseen = vectors[:, values <= UNSEEN * max(float(values[-1]), 0.0)]
    if unseen.shape[1] and np.linalg.eigvalsh(unseen.T @ problem.C @ unseen)[0] < -UNSEEN * np.abs(problem.C).max():
        raise InputError(
            "the objective has no lower bound", where="C", got="a direction in which C is negative and A is zero",
            wanted="A that sees every direction in which C is negative", remedy="join the graph's components, or add pairs",
        )  # fmt: skip
