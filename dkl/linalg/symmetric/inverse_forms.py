"""K = (K0^-1 + V)^-1 for sparse symmetric V: by K0^-1 if K0 is well conditioned, else by K0 = L L'.

Both answer, at a V that keeps K positive definite: the entries of K on a pattern, log det(I + K0 V), entries of K V' K.
Two kernels are kept at a time, the current one and a trial: `at` overwrites the one that is not current.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import blas, lapack
from scipy.sparse import csr_array

from dkl.linalg.eigen.principal_coordinates import first_basis, subspace_iteration
from dkl.linalg.symmetric.sampled_congruence import SymmetricPattern, mirror_upper
from dkl.resources import blas_thread_count

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
CONDITION = 1e8
"""K0 of a larger condition number is not inverted."""
NEAR_ZERO = 1e-4
"""Size of log det(I + K0 V) below which it is found by eigenvalues: next to I, Cholesky's rounding would be all of it."""
SPREAD = 1e8
"""Ratio of the largest diagonal entry of K0 to its least above 0 from which on its factor is found in scaled rows."""
OUTER = 2**20
"""Numbers of outer products that are held at a time, for each of the entries of a constraint."""


class KernelForm(Protocol):
    """K as a function of the weights u (q,) of V."""

    pattern: SymmetricPattern

    def with_pattern(self, pattern: SymmetricPattern) -> Self:
        """Return the form for V on another pattern, before any K is made; K0's inverse or factor is shared."""

    def at(self, u: Vector) -> float | None:
        """Make K(u) the trial. log det(I + K0 V), or None where K0^-1 + V is not positive definite."""

    def log_det(self, u: Vector) -> float | None:
        """Return the number that `at` returns, without making K(u); the trial is lost."""

    def accept(self) -> None:
        """Make the trial the current K."""

    def entries(self, *, trial: bool = False) -> Vector:
        """Return the entries (q,) of the current K, or of the trial."""

    def congruence(self, u: Vector, *, coarse: bool = False) -> Vector:
        """Return the entries (q,) of K V(u) K for the current K; `coarse`: six digits will do."""

    def square_congruence(self, u: Vector) -> Vector:
        """Return the entries (q,) of K^2 V(u) K^2."""

    def times(self, vector: Vector) -> Vector:
        """Return K z (n,) of the current K, to six digits."""

    def leading(self, k: int) -> Matrix:
        """Return S (n, k): S S' is K on its k leading eigenvectors, roughly."""

    def dense(self) -> Matrix:
        """Return the current K; not to be written to."""

    def update(self, u: Vector) -> Matrix:
        """Return the M (b, b) with K0 + K0 M K0 = K(u), which is the current K."""

    def relative(self, u: Vector, M: Matrix, K: Matrix) -> Matrix:
        """Return K(u)^-1/2 (K0 + K0 M K0) K(u)^-1/2, or what has its eigenvalues, over the range of K0; the trial is lost.

        K (b, b) is the rounded K0 + K0 M K0, and is overwritten.
        """


@dataclass
class DenseInverse:
    """Form by Q0 = K0^-1 (b, b): a Cholesky factorization and an inverse, b^3 operations, for each K."""

    pattern: SymmetricPattern
    Q0: Matrix
    log_det_Q0: float

    def __post_init__(self) -> None:
        self._current, self._trial = np.empty_like(self.Q0), np.empty_like(self.Q0)
        self._square: Matrix | None = None
        self._single: tuple[NDArray[np.float32], float] | None = None
        self._basis: Matrix | None = None
        self._made: list[tuple[Vector, float] | None] = [None, None]  # of the current kernel and the trial: u, log det

    @classmethod
    def of(cls, K0: Matrix, pattern: SymmetricPattern) -> Self | None:
        """Build the form; None where K0 is not positive definite, or its condition number is above CONDITION."""
        Q0 = np.array(K0, dtype=np.float64, order="C")
        norm = float(np.abs(Q0).sum(axis=0).max(initial=0.0))
        log_det = _factor(Q0)
        if log_det is None or lapack.dpocon(Q0.T, norm, uplo="L")[0] < 1.0 / CONDITION:
            return None
        _invert(Q0)
        return cls(pattern, Q0, -log_det)

    def with_pattern(self, pattern: SymmetricPattern) -> Self:
        """See `KernelForm`."""
        return replace(self, pattern=pattern)

    def log_det(self, u: Vector) -> float | None:
        """See `KernelForm`."""
        self._made[1] = None
        np.copyto(self._trial, self.Q0)
        self.pattern.add_to(u, self._trial)
        log_det = _factor(self._trial)
        if log_det is not None and abs(log_det - self.log_det_Q0) < NEAR_ZERO:
            return self._log_det_by_roots(u)
        return None if log_det is None else log_det - self.log_det_Q0

    def _log_det_by_roots(self, u: Vector) -> float:
        """Return the sum of -log(1 - t), t the eigenvalues of R^-T V R^-1 for the R'R = K(u)^-1 that `_factor` has left."""
        half = blas.dtrsm(1.0, self._trial.T, self.pattern.matrix(u).toarray(), lower=1)
        inner = blas.dtrsm(1.0, self._trial.T, half, side=1, lower=1, trans_a=1, overwrite_b=1)
        return -float(np.log1p(-np.linalg.eigvalsh(inner)).sum())

    def at(self, u: Vector) -> float | None:
        """See `KernelForm`. The current kernel, from which a path continues, is copied."""
        held = self._made[0]
        if held is not None and np.array_equal(held[0], u):
            np.copyto(self._trial, self._current)
            self._made[1] = held
            return held[1]
        log_det = self.log_det(u)
        if log_det is not None:
            _invert(self._trial)
            self._made[1] = (u.copy(), log_det)
        return log_det

    def accept(self) -> None:
        """See `KernelForm`."""
        self._current, self._trial = self._trial, self._current
        self._made.reverse()
        self._square = self._single = None

    def entries(self, *, trial: bool = False) -> Vector:
        """See `KernelForm`."""
        return self.pattern.of(self._trial if trial else self._current)

    def congruence(self, u: Vector, *, coarse: bool = False) -> Vector:
        """See `KernelForm`. A coarse one is in float32, relative to the largest u: half the memory's traffic."""
        threads = blas_thread_count() if self.pattern.is_worth_threads else 1  # to count them takes 0.1 ms
        if not coarse:
            return self.pattern.congruence(self._current, u, threads)
        scale = float(np.abs(u).max(initial=0.0)) or 1.0
        single, unit = self._in_single()
        return scale * unit**2 * self.pattern.congruence(single, u / scale, threads)

    def _in_single(self) -> tuple[NDArray[np.float32], float]:
        """Return (K / unit, unit), unit a power of 2 near K's largest entry: no overflow, no rounding by it."""
        if self._single is None:
            largest = float(self._current.diagonal().max(initial=0.0))  # of a positive definite matrix
            unit = float(np.exp2(np.round(np.log2(largest)))) if np.isfinite(largest) and largest > 0 else 1.0
            single = np.empty_like(self._current, dtype=np.float32)
            np.multiply(self._current, 1.0 / unit, out=single, casting="unsafe")
            self._single = single, unit
        return self._single

    def square_congruence(self, u: Vector) -> Vector:
        """See `KernelForm`."""
        if self._square is None:
            self._square = self._current @ self._current
        return self.pattern.congruence(self._square, u)

    def times(self, vector: Vector) -> Vector:
        """See `KernelForm`."""
        scale = float(np.abs(vector).max(initial=0.0)) or 1.0
        single, unit = self._in_single()
        return scale * unit * (single @ (vector / scale).astype(np.float32)).astype(np.float64)

    def leading(self, k: int) -> Matrix:
        """See `KernelForm`."""
        K, unit = self._in_single()
        start = first_basis(len(K), k) if self._basis is None else self._basis
        S, self._basis = subspace_iteration(lambda X: (K @ X.astype(np.float32)).astype(np.float64), start, k)
        return np.sqrt(unit) * S

    def dense(self) -> Matrix:
        """See `KernelForm`."""
        return self._current

    def update(self, u: Vector) -> Matrix:
        """See `KernelForm`. M = U K U - U."""
        U = self.pattern.matrix(u)
        M = U @ (U @ self._current).T
        self.pattern.add_to(-u, M)
        return np.asarray((M + M.T) / 2.0)

    def relative(self, u: Vector, M: Matrix, K: Matrix) -> Matrix:
        """See `KernelForm`. R K R' of R'R = K(u)^-1."""
        if self.log_det(u) is None:
            raise np.linalg.LinAlgError("K0^-1 + V is not positive definite")
        return _by_root(self._trial.T, K, lower=1)


@dataclass
class FactoredInverse:
    """Form by K0 = L L', L (b, r), r <= b, which may be singular: K = L W L', W = (I + L'V L)^-1.

    B = L R^-1 with I + L'V L = R'R makes K = B B'; entries of K V K are those of B (B'V B) B'.
    """

    pattern: SymmetricPattern
    L: Matrix

    def __post_init__(self) -> None:
        self._current, self._trial = np.empty_like(self.L), np.empty_like(self.L)
        self._basis: Matrix | None = None

    def with_pattern(self, pattern: SymmetricPattern) -> Self:
        """See `KernelForm`."""
        return replace(self, pattern=pattern)

    def _root(self, u: Vector) -> Matrix | None:
        """Return R (r, r) upper triangular, or None where K0^-1 + V is not positive definite."""
        inner = self.weighted(u)
        inner[np.diag_indices_from(inner)] += 1.0
        root, info = lapack.dpotrf(inner, lower=0, clean=1)
        return np.asarray(root) if info == 0 else None

    def log_det(self, u: Vector) -> float | None:
        """See `KernelForm`."""
        root = self._root(u)
        return None if root is None else self._log_det(root, u)

    def _log_det(self, root: Matrix, u: Vector) -> float:
        """Return log det(R'R) of R = `_root(u)`; near 0 by the eigenvalues of L'V L."""
        log_det = 2.0 * float(np.log(np.diag(root)).sum())
        return float(np.log1p(np.linalg.eigvalsh(self.weighted(u))).sum()) if abs(log_det) < NEAR_ZERO else log_det

    def at(self, u: Vector) -> float | None:
        """See `KernelForm`."""
        root = self._root(u)
        if root is None:
            return None
        np.copyto(self._trial, lapack.dtrtrs(root, self.L.T, lower=0, trans=1)[0].T)
        return self._log_det(root, u)

    def accept(self) -> None:
        """See `KernelForm`."""
        self._current, self._trial = self._trial, self._current

    def entries(self, *, trial: bool = False) -> Vector:
        """See `KernelForm`."""
        B = self._trial if trial else self._current
        return self._sampled(B, B)

    def congruence(self, u: Vector, *, coarse: bool = False) -> Vector:
        """See `KernelForm`."""
        B = self._current
        return self._sampled(B @ (B.T @ (self.pattern.matrix(u) @ B)), B)

    def square_congruence(self, u: Vector) -> Vector:
        """See `KernelForm`."""
        B = self._current
        gram = B.T @ B
        inner = gram @ (B.T @ (self.pattern.matrix(u) @ B)) @ gram
        return self._sampled(B @ inner, B)

    def _sampled(self, left: Matrix, right: Matrix) -> Vector:
        """Return products (q,) of rows, by pieces that stay small."""
        out = np.empty(len(self.pattern))
        step = max(1, 2**16 // max(1, left.shape[1]))
        for lo in range(0, len(out), step):
            part = slice(lo, lo + step)
            np.einsum("er,er->e", left[self.pattern.rows[part]], right[self.pattern.columns[part]], out=out[part])
        return out

    def times(self, vector: Vector) -> Vector:
        """See `KernelForm`."""
        return np.asarray(self._current @ (self._current.T @ vector))

    def leading(self, k: int) -> Matrix:
        """See `KernelForm`."""
        B = self._current
        start = first_basis(len(B), k) if self._basis is None else self._basis
        S, self._basis = subspace_iteration(lambda X: B @ (B.T @ X), start, k)
        return S

    def dense(self) -> Matrix:
        """See `KernelForm`."""
        return self._current @ self._current.T

    def update(self, u: Vector) -> Matrix:
        """See `KernelForm`. L'M L = W - I has many M; the least is found, in which no part cancels that K0 does not see."""
        W, S = self.inner(u), self.weighted(u)
        # W - I = -W S: of a small S the difference would cancel.
        change = -W @ S if float(np.abs(S).max(initial=0.0)) <= 1.0 else W - np.eye(len(W))
        D = _powers_of_two(np.linalg.norm(self.L, axis=1))  # rows may be of very different sizes
        Q, T = np.linalg.qr(self.L / D[:, None])
        half = scipy.linalg.solve_triangular(T, 0.5 * (change + change.T), trans="T")
        M = Q @ scipy.linalg.solve_triangular(T, half.T, trans="T") @ Q.T / np.outer(D, D)
        return np.asarray((M + M.T) / 2.0)

    def relative(self, u: Vector, M: Matrix, K: Matrix) -> Matrix:
        """See `KernelForm`."""
        return self.relative_inner(u, np.eye(self.L.shape[1]) + self.L.T @ M @ self.L)

    def relative_inner(self, u: Vector, W: Matrix) -> Matrix:
        """Return R W R' (r, r) of R'R = I + L'V(u) L: I for the W of K(u) = L W L'. W is overwritten."""
        root = self._root(u)
        if root is None:
            raise np.linalg.LinAlgError("I + L'V L is not positive definite")
        return _by_root(root, W)

    def factor(self) -> Matrix:
        """Return B (b, r) of the current K = B B'; not to be written to."""
        return self._current

    def weighted(self, u: Vector) -> Matrix:
        """Return L'V L (r, r)."""
        return np.asarray(self.L.T @ (self.pattern.matrix(u) @ self.L))

    def sampled(self, X: Matrix) -> Vector:
        """Return the entries (q,) of L X L' for a symmetric X (r, r)."""
        return self._sampled(self.L @ X, self.L)

    def coordinates(self, G: Matrix, incidence: csr_array) -> Matrix:
        """Return svec(G'L'A_t L G) (c, r (r + 1) / 2), A_t = sum over e of incidence[t, e] V_e: inner products of rows are traces."""
        B, r = self.L @ G, G.shape[1]
        places = np.flatnonzero(np.triu(np.ones((r, r), dtype=bool)))
        turned = places % r * r + places // r
        scale = np.where(places == turned, 0.5, np.sqrt(0.5))
        out = np.empty((incidence.shape[0], len(places)))
        step = max(1, OUTER // r**2)
        for lo in range(0, len(out), step):
            part = incidence[lo : lo + step]
            used = np.unique(part.indices)
            outer = B[self.pattern.rows[used], :, None] * B[self.pattern.columns[used], None, :]
            mixed = part[:, used] @ outer.reshape(len(used), -1)
            out[lo : lo + step] = (mixed[:, places] + mixed[:, turned]) * scale
        return out

    def inner(self, u: Vector) -> Matrix:
        """Return W (r, r)."""
        root = self._root(u)
        if root is None:
            raise np.linalg.LinAlgError("I + L'V L is not positive definite")
        inverse = lapack.dpotri(root, lower=0)[0]
        return np.asarray(np.triu(inverse) + np.triu(inverse, 1).T)


def _by_root(root: Matrix, S: Matrix, lower: int = 0) -> Matrix:
    """Return R S R' of a triangular R, `root`, or L'S L where it is `lower`; S is overwritten."""
    half = blas.dtrmm(1.0, root, S.T, lower=lower, trans_a=lower, overwrite_b=1)
    return np.asarray(blas.dtrmm(1.0, root, half, side=1, lower=lower, trans_a=1 - lower, overwrite_b=1))


def _powers_of_two(sizes: Vector) -> Vector:
    """Return the power of two next to each size; 1 for 0."""
    return np.asarray(np.exp2(np.round(np.log2(np.where(sizes > 0, sizes, 1.0)))))


def psd_factor(K0: Matrix) -> tuple[Matrix, Matrix] | None:
    """Return (L (b, r), N (b, b - r)): K0 = L L' of full column rank, N an orthonormal basis of its null space; None if K0 is not psd.

    By Cholesky with complete pivoting (LAPACK's pstrf): rank and definiteness are to rounding, b eps times the largest entry. Where
    diagonals are further apart than SPREAD they are of D^-1 K0 D^-1, D's entries powers of two: else the small ones were rounding.
    """
    b, diagonal = len(K0), np.diagonal(K0)
    positive = diagonal[diagonal > 0]
    D = np.ones(b)
    if positive.size and positive.max() > SPREAD * positive.min():
        D = _powers_of_two(np.sqrt(np.maximum(diagonal, 0.0)))
        K0 = K0 / np.outer(D, D)
    scale = float(np.abs(K0).max(initial=0.0))
    rounding = b * np.finfo(float).eps * scale
    lower, pivots, rank, _ = lapack.dpstrf(K0, tol=rounding, lower=1)
    order = pivots - 1
    columns = np.tril(lower)[:, :rank]
    L = np.empty((b, rank))
    L[order] = columns
    if float(np.abs(K0 - L @ L.T).max(initial=0.0)) > 16.0 * rounding:
        return None
    N = np.zeros((b, b - rank))
    N[order[rank:]] = np.eye(b - rank)
    if 0 < rank < b:
        N[order[:rank]] = -lapack.dtrtrs(columns[:rank], columns[rank:].T, lower=1, trans=1)[0]
    return L * D[:, None], np.linalg.qr(N / D[:, None])[0]


def _factor(matrix: Matrix) -> float | None:
    """Factor a symmetric C-contiguous matrix in its upper triangle; return log det, None if not definite."""
    # Of Fortran's view the lower triangle is this matrix's upper one.
    _, info = lapack.dpotrf(matrix.T, lower=1, overwrite_a=1, clean=0)
    return 2.0 * float(np.log(np.diagonal(matrix)).sum()) if info == 0 else None


def _invert(factored: Matrix) -> None:
    """Turn what `_factor` leaves into the inverse, both halves, in place."""
    lapack.dpotri(factored.T, lower=1, overwrite_c=1)
    mirror_upper(factored)
