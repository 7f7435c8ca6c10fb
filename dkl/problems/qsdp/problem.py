"""A convex quadratic over the psd cone (Wu, So, Li & Li 2009, (13)-(14)), as a sum of squares.

    minimize over Y psd (m, m)   f(Y) = |B(Y) - t|^2 + <C, Y>,        B(Y)_s = <B_s, Y>, s = 1 .. p
    maximize over z (p,)         D(z) = -|z|^2 / 4 - z't      where   S(z) = C + sum_s z_s B_s is psd

In the paper's notation A = sum_s svec(B_s) svec(B_s)', b = svec(C - 2 sum_s t_s B_s), f = y'A y + b'y + |t|^2. For any psd Y and
any z

    f(Y) - D(z) = |B(Y) - t - z/2|^2 + <S(z), Y>,

so that z = 2 (B(Y) - t), whose S is the gradient of f, proves the gap <S, Y> once S is psd. Where S has a negative eigenvalue, z
moves along, or towards, a z0 whose S is positive definite, by just as much as it takes: no bound on the trace of an optimum is needed.
Where C is psd, z = 0 proves f - <C, Y> >= 0, and the best z on the way there more: needed where all targets can be met, as f falls
to zero there (see `certificate.py`). What is reported of Y and its dual is of the z that was moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray

from dkl.errors import InputError
from dkl.linalg.symmetric.psd_quadratic import smat, svec
from dkl.linalg.symmetric.symmetric_maps import MapAtFactor, PairForms, RowForms, SymmetricMap
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.certificate import DualProof, Interior, QSDPCertificate

Array = NDArray[np.float64]
FLOOR = 1e-10
"""Share of the largest eigenvalue of `SymmetricMap.size` as which smaller ones count in scaling Y."""
PSD = 1e-10
"""Share of the largest eigenvalue of a given A by which one may be below zero, by rounding."""


@dataclass(frozen=True)
class QSDPPoint:
    """Y = R R': the factor (m, r), what the map sees of it, residual B(Y) - t (p,), f and its part <C, Y>."""

    problem: QuadraticSDP = field(repr=False)
    factor: Array = field(repr=False)
    seen: MapAtFactor = field(repr=False)
    residual: Array = field(repr=False)
    objective: float
    linear: float

    @cached_property
    def gradient(self) -> Array:
        """Return S (m, m), computed when first asked for, as it costs several times what f does."""
        return self.problem.C + 2.0 * self.problem.map.adjoint(self.residual)

    @cached_property
    def slopes(self) -> Array:
        """Return the eigenvalues (m,) of S, rising."""
        return np.asarray(np.linalg.eigvalsh(self.gradient), np.float64)

    @cached_property
    def proof(self) -> DualProof:
        """Return the proof by the feasible dual nearest to the point's own, 2 (B(Y) - t)."""
        return self.problem.interior.proof(self, 2.0 * self.residual, self.gradient, self.slopes)

    def turned(self, factor: Array) -> QSDPPoint:
        """Return the point of the same Y by another factor of it."""
        other = replace(self, factor=factor, seen=self.problem.map.see(factor))
        # What depends on Y alone, if it is known.
        other.__dict__.update({name: self.__dict__[name] for name in ("gradient", "slopes") if name in self.__dict__})
        return other


@dataclass(frozen=True)
class QuadraticSDP:
    """Convex quadratic f(Y) = |B(Y) - t|^2 + <C, Y> over positive semidefinite Y, B(Y)_s = <B_s, Y> (Wu et al. 2009, (13)-(14)).

    Built by `from_matrices`, or, in the paper's form, by `from_matrix` and `from_rows`; `dkl.quadratic_sdp` solves it.

    Parameters
    ----------
    map : SymmetricMap
        B. Maps of rank-one forms keep their factors alone.
    targets : (p,) array
        t.
    C : (m, m) symmetric array
        The linear term.
    trusted : bool
        Whether the parts are of a problem that was checked.

    Attributes
    ----------
    m : int
        Rows of Y.

    Raises
    ------
    InputError
        For targets or C of a wrong shape, not finite, or C not symmetric.

    See Also
    --------
    quadratic_sdp : Solve it.
    low_rank_sdp : A linear objective under linear constraints.

    References
    ----------
    X.-M. Wu, A. M.-C. So, Z. Li, S.-Y. R. Li, Fast graph Laplacian regularized kernel learning via semidefinite-quadratic-linear
    programming, NIPS 2009.

    Examples
    --------
    >>> import numpy as np
    >>> import dkl
    >>> dkl.QuadraticSDP.from_matrices([np.eye(2)], [3.0]).m
    2
    """

    map: SymmetricMap
    targets: Array
    C: Array

    _: KW_ONLY
    trusted: InitVar[bool] = False
    """True for the parts of a checked problem: rounding may leave another C less than symmetric."""

    def __post_init__(self, trusted: bool) -> None:
        """Raise InputError for invalid targets or C: of a wrong shape, not finite, or C not symmetric."""
        if not trusted:
            targets, C = checks.parts(self.map, self.targets, self.C)
            object.__setattr__(self, "targets", targets)
            object.__setattr__(self, "C", C)

    @classmethod
    def from_matrices(cls, B: Sequence[Any] | Array, t: ArrayLike, C: ArrayLike | None = None) -> QuadraticSDP:
        """Build |B(Y) - t|^2 + <C, Y> of p symmetric matrices B_s (m, m), dense or sparse, t (p,) and C (m, m), by default 0.

        8 p m^2 bytes. InputError for anything else.
        """
        forms = checks.forms(B)
        m = forms.shape[1]
        return cls(RowForms(forms), np.asarray(t), np.zeros((m, m)) if C is None else np.asarray(C))

    @classmethod
    def from_rows(cls, B: ArrayLike, b: ArrayLike) -> QuadraticSDP:
        """Build |B y|^2 + b'y, y = svec(Y): B (p, m (m + 1) / 2), b (m (m + 1) / 2,).

        In the order of `dkl.linalg.symmetric.psd_quadratic.svec`. InputError for anything else.
        """
        rows, linear, m = checks.svec_rows(B, b)
        forms = np.stack([smat(row, m) for row in rows]) if len(rows) else np.zeros((0, m, m))
        return cls(RowForms(forms), np.zeros(len(rows)), smat(linear, m))

    @classmethod
    def from_matrix(cls, A: ArrayLike, b: ArrayLike, *, form: str | None = None) -> QuadraticSDP:
        """Build y'A y + b'y of a dense psd A (q, q) and b (q,), q = m (m + 1) / 2 for svec or m^2 for vec.

        form: "svec" or "vec"; may be left out where the size decides, and must be named where both are of it, as of 36 numbers.
        InputError where A is not symmetric, or has a negative eigenvalue, which is named.
        """
        matrix, linear = checks.square_and_linear(A, b)
        m, is_svec = checks.rows_of_form(len(linear), form)
        if not is_svec:
            spread = np.stack([smat(unit, m).ravel() for unit in np.eye(m * (m + 1) // 2)])
            # vec counts an off-diagonal entry twice, svec once with the root of 2.
            matrix, linear = spread @ matrix @ spread.T, spread @ linear
        values, vectors = scipy.linalg.eigh(0.5 * (matrix + matrix.T))
        top = max(float(values[-1]), 0.0)
        if values[0] < -PSD * max(top, -float(values[0])):
            raise InputError(
                "not psd", where="A", got=f"an eigenvalue of {values[0]:.6g}, the largest {values[-1]:.6g}",
                wanted="a convex objective: eigenvalues >= 0",
                remedy="correct A; if that eigenvalue is an error of measurement, set it to 0 by numpy.linalg.eigh",
            )  # fmt: skip
        # Eigenvalues of rounding add no square.
        kept = values > PSD**1.5 * top
        return cls.from_rows(np.sqrt(values[kept])[:, None] * vectors[:, kept].T, linear)

    @property
    def m(self) -> int:
        """Return the number of rows of Y."""
        return len(self.C)

    def at(self, factor: Array) -> QSDPPoint:
        """Return the point R R' of a factor R (m, r)."""
        seen = self.map.see(factor)
        residual = seen.squares() - self.targets
        linear = float(np.sum((self.C @ factor) * factor))
        return QSDPPoint(self, factor, seen, residual, float(residual @ residual) + linear, linear)

    def scaling(self) -> Array:
        """Return a symmetric J (m, m): in Z of Y = J Z J the map sees all directions alike, as far as it can."""
        values, vectors = np.linalg.eigh(self.map.size())
        if not values[-1] > 0:
            return np.eye(self.m)
        # Directions that the map hardly sees are not scaled up without bound.
        return (vectors / np.sqrt(np.maximum(values, FLOOR * values[-1]))) @ vectors.T

    def congruent(self, J: Array) -> QuadraticSDP:
        """Return the problem in Z, Y = J Z J'."""
        return QuadraticSDP(self.map.congruent(J), self.targets, J.T @ self.C @ J, trusted=True)

    def in_units(self) -> tuple[QuadraticSDP, float]:
        """Return (the problem in Y / unit, f / unit^2; unit): targets and C about 1, nothing is rounded."""
        largest = max(float(np.abs(self.targets).max(initial=0.0)), float(np.abs(self.C).max()))
        # A power of 4, whose root is a power of 2: neither rounds anything.
        unit = 4.0 ** (math.frexp(largest)[1] // 2) if 0.0 < largest < math.inf else 1.0
        return QuadraticSDP(self.map, self.targets / unit, self.C / unit, trusted=True), unit

    def single(self) -> QuadraticSDP:
        """Return the problem in single precision, for steps that need few digits."""
        parts: list[Any] = [part.astype(np.float32) for part in (self.targets, self.C)]
        return QuadraticSDP(self.map.single(), *parts, trusted=True)

    @cached_property
    def interior(self) -> Interior:
        """Return a direction or point where S is positive definite."""
        return Interior.of(self.map, self.C)

    def certificate(self, point: QSDPPoint) -> QSDPCertificate:
        """Return the certificate of a point and its proof's dual, feasible if one was found; S is recomputed."""
        z = point.proof.dual
        return QSDPCertificate.of(point, point.proof, z, *self._slack(z), lowest=0.0)

    def certify(self, Y: Array, z: Array) -> QSDPCertificate:
        """Return the certificate of any symmetric Y (m, m) and z (p,), found by a solver of another kind.

        Y's negative part is no part of the factor. The gap is proven by z, corrected where it is not feasible; the DIMACS errors are
        those of Y and z as given.
        """
        values, vectors = np.linalg.eigh(Y)
        point = self.at(vectors * np.sqrt(np.maximum(values, 0.0)))
        slack, slopes = self._slack(z)
        proof = self.interior.proof(point, z, slack, slopes)
        return QSDPCertificate.of(point, proof, z, slack, slopes, lowest=float(values[0]))

    def _slack(self, z: Array) -> tuple[Array, Array]:
        """Return (S(z), its eigenvalues, rising)."""
        slack = self.C + self.map.adjoint(z)
        return slack, np.asarray(np.linalg.eigvalsh(slack), np.float64)


def svec_form(problem: QuadraticSDP) -> tuple[Array, Array]:
    """Return (B (p, N), b (N,)): f = |B y|^2 + b'y + |t|^2, y = svec(Y), as in (13); 8 p N bytes."""
    rows = problem.map.rows()
    return rows, svec(problem.C) - 2.0 * rows.T @ problem.targets


# Kernels K = Q Y Q' in the basis of a graph, as problems in Y (Wu, So, Li & Li 2009, section 2).
#
#     RegMVU        min over Y psd   nu sum over edges of (K_ii - 2 K_ij + K_jj - d_ij^2)^2 - tr(Y)               (11), as a minimum
#     RegPCP        min over Y psd   sum over (i, j, t) of w_ij (K_ij - t)^2                                        (12), where w = 1
#     Colored MVU   (11) with tr(H K H L), L a kernel of side information and H = I - 11'/n, in the place of tr(Y)  (Song et al. 2008)
#
# Edges count once, and so does each pair and each diagonal entry, the target of which is 1.

Pairs = NDArray[np.integer]


def variance(Q: Array) -> Array:
    """Return W (m, m) with <W, Y> = tr(Y), the variance of an embedding by Q (n, m) without the constant."""
    return np.eye(Q.shape[1])


def dependence(Q: Array, side: Array) -> Array:
    """Return W (m, m) with <W, Y> = tr(H K H L), L = side side': `side` (n, k) of one-hot labels, say."""
    # tr(H K H L) = |side'H Q Y^(1/2)|^2, so W is a Gram matrix of m rows.
    seen = Q.T @ (side - side.mean(axis=0))
    return seen @ seen.T


def unfolding(Q: Array, edges: Pairs, squared: Array, nu: float, reward: Array) -> QuadraticSDP:
    """Return RegMVU or Colored MVU: edges (e, 2) of squared distances (e,), Q (n, m), nu > 0, and W.

    <W, Y> is to grow. An edge joins two different rows, at a distance of 0 where they are equal. InputError for anything else.
    """
    Q = checks.basis(Q)
    edges = checks.edges(edges, len(Q))
    squared, reward = checks.edge_lengths(squared, len(edges)), checks.symmetric(reward, "reward", Q.shape[1])
    # nu weighs squares, so its root weighs the rows and targets.
    weight = np.sqrt(checks.positive(nu, "nu"))
    checks.refuse_out_of_range(weight * squared)
    return QuadraticSDP(PairForms.distances(Q, edges, np.full(len(edges), weight)), weight * squared, -reward)


def propagation(Q: Array, must_link: Pairs, cannot_link: Pairs, weights: Array | None = None) -> QuadraticSDP:
    """Return RegPCP for Q (n, m) and pairs (., 2) with targets 1 and 0, i != j.

    weights (n_must + n_cannot,): of the pairs' squares, ones by default; the diagonal weighs 1. InputError for invalid pairs or weights.
    """
    Q = checks.basis(Q)
    must_link, cannot_link = (
        checks.ends(pairs, len(Q), where) for pairs, where in ((must_link, "must_link"), (cannot_link, "cannot_link"))
    )
    # The diagonal entries are pairs of a row with itself, each with the target 1.
    own = np.repeat(np.arange(len(Q))[:, None], 2, axis=1)
    pairs = np.concatenate([own, must_link, cannot_link])
    targets = np.concatenate([np.ones(len(own) + len(must_link)), np.zeros(len(cannot_link))])
    scale = np.ones(len(pairs))
    scale[len(own) :] = np.sqrt(checks.pair_weights(weights, len(must_link), len(cannot_link)))
    m = Q.shape[1]
    return QuadraticSDP(PairForms.entries(Q, pairs, scale), scale * targets, np.zeros((m, m)))


STRETCH = 0.5
"""Share of its squared length by which an edge stretches, on average, at the default nu."""


def default_nu(squared: Array, slowest: float, reward: float = 1.0) -> float:
    """Return a nu at which the edges of a flat, unfolded graph would stretch by STRETCH on average.

    squared: d_ij^2 of the edges; slowest: the least nonzero eigenvalue of the graph's Laplacian, unnormalized, edges weighing 1;
    reward: the largest eigenvalue of W, 1 of the variance. With exact distances <W, Y> is at most reward sum d^2 / slowest, which
    a long graph nearly reaches, and at an optimum <W, Y> = 2 nu sum (stretch of d^2) (d^2 + stretch). So
    nu = reward sum d^2 / (2 STRETCH slowest sum d^4): Y grows with the scale of the rows, and nothing else changes.
    """
    # Of lengths of size 1: fourth powers of others overflow, or vanish, where lengths themselves are far from that.
    unit = float(squared.max())
    lengths = squared / unit
    return float(reward * lengths.sum() / slowest / (2.0 * STRETCH * (lengths**2).sum()) / unit)
