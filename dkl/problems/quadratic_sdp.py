"""A convex quadratic over the psd cone (Wu, So, Li & Li 2009, (13)-(14)), as a sum of squares.

    minimize over Y psd (m, m)   f(Y) = |B(Y) - t|^2 + <C, Y>,        B(Y)_s = <B_s, Y>, s = 1 .. p
    maximize over z (p,)         D(z) = -|z|^2 / 4 - z't      where   S(z) = C + sum_s z_s B_s is psd

In the paper's notation A = sum_s svec(B_s) svec(B_s)', b = svec(C - 2 sum_s t_s B_s), f = y'A y + b'y + |t|^2. For any psd Y and
any z

    f(Y) - D(z) = |B(Y) - t - z/2|^2 + <S(z), Y>,

so that z = 2 (B(Y) - t), whose S is the gradient of f, proves the gap <S, Y> once S is psd. Where S has a negative eigenvalue, z
moves along, or towards, a z0 whose S is positive definite, by just as much as it takes: no bound on the trace of an optimum is needed.
Where C is psd, z = 0 proves f - <C, Y> >= 0, and the best z on the way there more: needed where all targets can be met, as f falls
to zero there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.linalg.psd_quadratic import smat, svec
from dkl.linalg.symmetric_maps import RowForms, Seen, SymmetricMap
from dkl.problems import qsdp_checks as checks

Array = NDArray[np.float64]
FLOOR = 1e-10
"""Of the largest: below it the eigenvalues of `SymmetricMap.size`, by which Y is scaled, count as this much."""
INNER_STEPS = (0.0, 1.0, 1e2, 1e4, 1e6)
"""Multiples of an identity that a positive definite gradient is looked for at, where no direction leads inside."""
IDLE = 1e-12
"""Of the largest: eigenvalues of C below it are zero."""
SMALL = 1e-3
PSD = 1e-10
"""Of the largest: how far below zero an eigenvalue of a given A may be by rounding."""


@dataclass(frozen=True)
class QSDPPoint:
    """Y = R R': the factor (m, r), what the map sees of it, residual B(Y) - t (p,), f and its part <C, Y>."""

    problem: QuadraticSDP = field(repr=False)
    factor: Array = field(repr=False)
    seen: Seen = field(repr=False)
    residual: Array = field(repr=False)
    objective: float
    linear: float

    @cached_property
    def gradient(self) -> Array:
        """S (m, m), where it is asked for: it costs several times what f does."""
        return self.problem.C + 2.0 * self.problem.map.adjoint(self.residual)

    @cached_property
    def slopes(self) -> Array:
        """(m,) the eigenvalues of S, rising."""
        return np.asarray(np.linalg.eigvalsh(self.gradient), np.float64)

    def turned(self, factor: Array) -> QSDPPoint:
        """The same Y by another factor of it."""
        other = replace(self, factor=factor, seen=self.problem.map.see(factor))
        # What depends on Y alone, if it is known.
        other.__dict__.update({name: self.__dict__[name] for name in ("gradient", "slopes") if name in self.__dict__})
        return other


@dataclass(frozen=True)
class QSDPCertificate:
    """How far from the optimum what was found can be.

    objective       f
    bound           D of a dual point that was corrected to be feasible: no Y has less
    gap             objective - bound, computed without cancellation; infinite where no bound was found
    size            max(|objective|, |<C, Y>|, SMALL |t|^2), f(0) = |t|^2: where all targets can be met, f falls to zero
    relative_gap    gap / size
    min_eigenvalue  of the gradient before the correction
    dimacs          the six errors of the Seventh DIMACS Challenge (Pataki & Schmieta 2002) of Y and z, uncorrected. 1 and 3, the
                    linear equations', are zero: residual and slack are computed from Y and z. 2 and 4 are negative
                    eigenvalues of Y over 1 + max |t|, and of S over 1 + max |C|; 5 and 6 are f - D and <S, Y>, over 1 + |f| + |D|
    """

    objective: float
    bound: float
    gap: float
    size: float
    relative_gap: float
    min_eigenvalue: float
    dimacs: tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class QuadraticSDP:
    """f, of a map B, targets t (p,) and C (m, m)."""

    map: SymmetricMap
    targets: Array
    C: Array

    _: KW_ONLY
    trusted: InitVar[bool] = False
    """Whether the parts are of a problem that has been checked: rounding may leave another C less than symmetric."""

    def __post_init__(self, trusted: bool) -> None:
        """InputError for targets and C that do not fit the map, or are not finite, and for a C that is not symmetric."""
        if not trusted:
            targets, C = checks.parts(self.map, self.targets, self.C)
            object.__setattr__(self, "targets", targets)
            object.__setattr__(self, "C", C)

    @classmethod
    def from_rows(cls, B: ArrayLike, b: ArrayLike) -> QuadraticSDP:
        """|B y|^2 + b'y, y = svec(Y): B (p, m (m + 1) / 2), b (m (m + 1) / 2,), in the order of `dkl.linalg.psd_quadratic.svec`.

        InputError for anything else.
        """
        rows, linear, m = checks.svec_rows(B, b)
        forms = np.stack([smat(row, m) for row in rows]) if len(rows) else np.zeros((0, m, m))
        return cls(RowForms(forms), np.zeros(len(rows)), smat(linear, m))

    @classmethod
    def from_matrix(cls, A: ArrayLike, b: ArrayLike, *, form: str | None = None) -> QuadraticSDP:
        """y'A y + b'y of a dense psd A, in svec (m (m + 1) / 2 square) or in vec (m^2 square), with b (m (m + 1) / 2 or m^2).

        form: "svec" or "vec"; may be left out where the size tells, and must be named where both are of it, as of 36 numbers.
        InputError where A is not symmetric, or has a negative eigenvalue, which is named.
        """
        matrix, linear = checks.square_and_linear(A, b)
        m, is_svec = checks.rows_of_form(len(linear), form)
        if not is_svec:
            spread = np.stack([smat(unit, m).ravel() for unit in np.eye(m * (m + 1) // 2)])
            matrix, linear = spread @ matrix @ spread.T, spread @ linear
        values, vectors = scipy.linalg.eigh(0.5 * (matrix + matrix.T))
        top = max(float(values[-1]), 0.0)
        if values[0] < -PSD * max(top, -float(values[0])):
            raise InputError(
                "not psd", where="A", got=f"an eigenvalue of {values[0]:.6g}, the largest {values[-1]:.6g}",
                wanted="a convex objective: eigenvalues >= 0",
                remedy="correct A; if that eigenvalue is an error of measurement, set it to 0 by numpy.linalg.eigh",
            )  # fmt: skip
        kept = values > PSD**1.5 * top
        return cls.from_rows(np.sqrt(values[kept])[:, None] * vectors[:, kept].T, linear)

    @property
    def m(self) -> int:
        """Rows of Y."""
        return len(self.C)

    def at(self, factor: Array) -> QSDPPoint:
        """The point R R' of a factor R (m, r)."""
        seen = self.map.see(factor)
        residual = seen.squares() - self.targets
        linear = float(np.sum((self.C @ factor) * factor))
        return QSDPPoint(self, factor, seen, residual, float(residual @ residual) + linear, linear)

    def scaling(self) -> Array:
        """J (m, m), symmetric: in Z of Y = J Z J the map sees all directions alike, as far as one congruence can do it."""
        values, vectors = np.linalg.eigh(self.map.size())
        if not values[-1] > 0:
            return np.eye(self.m)
        return (vectors / np.sqrt(np.maximum(values, FLOOR * values[-1]))) @ vectors.T

    def congruent(self, J: Array) -> QuadraticSDP:
        """The problem in Z, Y = J Z J'."""
        return QuadraticSDP(self.map.congruent(J), self.targets, J.T @ self.C @ J, trusted=True)

    def in_units(self) -> tuple[QuadraticSDP, float]:
        """(the problem in Y / unit, f / unit^2, the unit): targets and C are about 1, and nothing else changes, not even by rounding."""
        largest = max(float(np.abs(self.targets).max(initial=0.0)), float(np.abs(self.C).max()))
        unit = 4.0 ** (math.frexp(largest)[1] // 2) if 0.0 < largest < math.inf else 1.0
        return QuadraticSDP(self.map, self.targets / unit, self.C / unit, trusted=True), unit

    def single(self) -> QuadraticSDP:
        """The problem in single precision, for what comes before the last digits."""
        parts: list[Any] = [part.astype(np.float32) for part in (self.targets, self.C)]
        return QuadraticSDP(self.map.single(), *parts, trusted=True)

    def certificate(self, point: QSDPPoint) -> QSDPCertificate:
        """Of a point, by its own gradient as the dual slack."""
        z, values = 2.0 * point.residual, point.slopes
        return self.judge(point.objective, point.linear, point.factor, point.residual, point.gradient, z, values)

    def certify(self, Y: Array, z: Array) -> QSDPCertificate:
        """Of any symmetric Y (m, m) and z (p,): what a solver of another kind has found. Y's negative part is no part of the factor."""
        values, vectors = np.linalg.eigh(Y)
        factor = vectors * np.sqrt(np.maximum(values, 0.0))
        point = self.at(factor)
        slack = self.C + self.map.adjoint(z)
        slopes = np.asarray(np.linalg.eigvalsh(slack), np.float64)
        return self.judge(
            point.objective, point.linear, factor, point.residual, slack, z, slopes, lowest=float(values[0])
        )

    def judge(
        self,
        objective: float,
        linear: float,
        factor: Array,
        residual: Array,
        slack: Array,
        z: Array,
        values: Array,
        *,
        lowest: float = 0.0,
    ) -> QSDPCertificate:
        """The certificate of R R' with its residual, and of z with its slack S(z) and that one's eigenvalues, rising.

        lowest: of the eigenvalues of Y as it was given.
        """
        between = float(np.sum((slack @ factor) * factor))
        apart = residual - 0.5 * z
        scale = 1.0 + 2.0 * abs(objective)
        dimacs = (
            0.0,
            max(0.0, -lowest) / (1.0 + float(np.abs(self.targets).max(initial=0.0))),
            0.0,
            max(0.0, -float(values[0])) / (1.0 + float(np.abs(self.C).max())),
            (float(apart @ apart) + between) / scale,
            between / scale,
        )
        # An eigenvalue is known to this much.
        rounding = 4.0 * self.m * float(np.finfo(float).eps) * float(np.abs(values).max())
        gap = self._gap(factor, residual, slack, z, rounding)
        size = max(abs(objective), abs(linear), SMALL * float(self.targets @ self.targets))
        relative = gap / size if size > 0 else (0.0 if gap == 0 else np.inf)
        return QSDPCertificate(objective, objective - gap, gap, size, relative, float(values[0]), dimacs)

    def _gap(self, factor: Array, residual: Array, slack: Array, z: Array, rounding: float) -> float:
        """f(R R') - D of the dual point nearest to z, towards the interior, that is feasible."""
        direction, inner, root = self._interior
        linear = max(0.0, float(np.sum((self.C @ factor) * factor)))
        if root is None:
            return float(residual @ residual) + linear if self._is_cone else np.inf
        half = scipy.linalg.solve_triangular(root, slack - rounding * np.eye(self.m), lower=True)
        low = float(np.linalg.eigvalsh(scipy.linalg.solve_triangular(root, half.T, lower=True))[0])
        # S + share N, or (1 - share) S + share N: psd from here on.
        share = max(0.0, -low) if direction else max(0.0, -low) / (1.0 - min(low, 0.0))
        kept = 1.0 if direction else 1.0 - share
        moved, corrected = kept * z + share * inner, kept * slack + share * (root @ root.T)
        between = max(0.0, float(np.sum((corrected @ factor) * factor)))
        if self._is_cone:
            return _towards_zero(residual, 0.5 * moved, between, linear)
        apart = residual - 0.5 * moved
        return float(apart @ apart) + between

    @cached_property
    def _is_cone(self) -> bool:
        """Whether C is psd, so that z = 0 is feasible; what rounding leaves in doubt is not."""
        values = np.linalg.eigvalsh(self.C)
        return not self.C.any() or bool(values[0] > self.m * 1e-13 * np.abs(values).max())

    @cached_property
    def _interior(self) -> tuple[bool, Array, Array | None]:
        """(is it a direction, z0, the Cholesky factor of its slack, None where none was found).

        A direction z0 has sum_s z0_s B_s positive definite, so that any z may go any way along it; a point has S(z0) so.
        """
        identity = self.map.see(np.eye(self.m)).squares()
        inward = self.map.adjoint(identity)
        for beside in self._beside():
            root = _cholesky(inward + beside)
            if root is not None:
                return True, identity, root
            for step in INNER_STEPS:
                root = _cholesky(self.C + step * inward + beside)
                if root is not None:
                    return False, step * identity, root
        # Terms that are not psd by themselves, as pairs of large weights, may spoil the sum of all: the others alone.
        some = np.where(self.map.definite(), identity, 0.0)
        return True, some, _cholesky(self.map.adjoint(some))

    def _beside(self) -> Iterator[Array | float]:
        """Nothing; and where the map sees nothing either, (m, m) the projection on C's null space, as large as C is elsewhere.

        There every S is zero, so that what is positive definite with it beside is so on all that counts.
        """
        yield 0.0
        if not self.map.size().any():
            values, vectors = np.linalg.eigh(self.C)
            largest = float(np.abs(values).max())
            null = vectors[:, np.abs(values) <= IDLE * largest]
            yield (largest or 1.0) * (null @ null.T)


def _towards_zero(residual: Array, half: Array, between: float, linear: float) -> float:
    """The least gap of the feasible points k z, 0 <= k <= 1: |r - k z/2|^2 + k <S(z), Y> + (1 - k) <C, Y>.

    half: z / 2; between: <S(z), Y>; linear: <C, Y>.
    """
    square = float(half @ half)
    best = float(residual @ half) + 0.5 * (linear - between)
    k = min(max(best / square, 0.0), 1.0) if square > 0 else 0.0
    apart = residual - k * half
    return float(apart @ apart) + k * between + (1.0 - k) * linear


def _cholesky(matrix: Array) -> Array | None:
    """L of L L', or None where the matrix is not positive definite beyond rounding."""
    values = np.linalg.eigvalsh(matrix)
    if values[0] <= len(matrix) * 1e-13 * np.abs(values).max():
        return None
    return np.asarray(np.linalg.cholesky(matrix), np.float64)


def svec_form(problem: QuadraticSDP) -> tuple[Array, Array]:
    """(B (p, N), b (N,)): f = |B y|^2 + b'y + |t|^2, y = svec(Y), as the paper's (13) has it; 8 p N bytes."""
    rows = problem.map.rows()
    return rows, svec(problem.C) - 2.0 * rows.T @ problem.targets
