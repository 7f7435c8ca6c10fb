"""Recomputation of fits in the basis of eigenvectors for `dkl verify`, without solvers or problems.

With terms s = 1 .. p of a symmetric B_s = w_s sym(a_s b_s'), targets t and C, for any psd Y and any z

    f(Y) = |B(Y) - t|^2 + <C, Y>,    D(z) = -|z|^2 / 4 - z't,    S(z) = C + sum_s z_s B_s

and f(Y) - D(z) is a gap once S(z) is psd. Where it is not, z goes along z0 = B(I) until it is, if that makes S grow in every
direction, or else towards a multiple of z0 where S is positive definite; and then, where C is psd, towards z = 0 as far as D rises.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, read_points, trained_on
from dkl.resources import format_bytes
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.seals import Json

Matrix = NDArray[np.float64]
AGREE = 1e-12
"""Tolerance relative to the sizes that are summed up."""
ORTHONORMAL = 1e-10
EMBEDDED = 1e-8
"""Relative tolerance of eigenvectors of Y and what is made of them."""
ROUNDING = 1e-13
STEPS = (1.0, 1e2, 1e4, 1e6)
SMALL = 1e-3
"""Least size that a gap is reported relative to, as a share of |t|^2."""
BASES = 5
"""Arrays as large as Q that are held at a time."""
BLOCK = 1 << 24
"""Numbers in a block of terms."""


@dataclass(frozen=True)
class Squares:
    """Terms by their ends (p, 2), rows of Q (n, m): a = Q[i], b = Q[j] of an entry, a = b = Q[i] - Q[j] of a distance."""

    Q: Matrix
    ends: NDArray[np.integer]
    is_distance: bool
    weights: Matrix
    targets: Matrix
    C: Matrix

    def _blocks(self) -> Iterator[tuple[slice, Matrix, Matrix]]:
        step = max(1, BLOCK // self.Q.shape[1])
        for lo in range(0, len(self.ends), step):
            i, j = self.ends[lo : lo + step].T
            a, b = (self.Q[i] - self.Q[j],) * 2 if self.is_distance else (self.Q[i], self.Q[j])
            yield slice(lo, lo + step), a, b

    @property
    def definite(self) -> NDArray[np.bool_]:
        """Return a mask (p,) of the terms with a = b."""
        return self.is_distance | (self.ends[:, 0] == self.ends[:, 1])

    def seen(self, Y: Matrix) -> Matrix:
        """Return B(Y) (p,)."""
        found = np.empty(len(self.ends))
        for some, a, b in self._blocks():
            found[some] = self.weights[some] * np.einsum("ij,ij->i", a @ Y, b)
        return found

    def slack(self, z: Matrix) -> Matrix:
        """Return S(z) (m, m)."""
        found = np.zeros_like(self.C)
        for some, a, b in self._blocks():
            found += a.T @ ((z[some] * self.weights[some])[:, None] * b)
        return self.C + 0.5 * (found + found.T)

    def norm(self, z: Matrix) -> float:
        """Return sum_t |z_t B_t|, spectral norms: no less than the sum's, however its terms cancel."""
        found = 0.0
        for some, a, b in self._blocks():
            lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
            found += float(np.sum(np.abs(z[some] * self.weights[some]) * lengths))
        return found

    def dual(self, z: Matrix) -> float:
        """Return the dual D(z)."""
        return float(-0.25 * (z @ z) - z @ self.targets)


def read(run: RunStore, budget: int) -> tuple[Rows, Json, Json]:
    """Return (rows, the basis's arrays, the model's); StoreError for parts that do not fit together.

    MemoryBudgetError where a few arrays as large as the basis are more than `budget`.
    """
    basis, model = run.read_arrays("basis"), run.read_arrays("model")
    if not {"Q", "values"} <= basis.keys():
        raise StoreError("no basis of eigenvectors", where=f"{run.path}/basis", got=", ".join(sorted(basis)))
    m, needed = basis["Q"].shape[1], 8 * BASES * basis["Q"].size
    if needed > budget:
        what = f"the basis of {m:,} eigenvectors does not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(needed))
    return rows_of(run, basis, model, m), basis, model


def rows_of(run: RunStore, basis: Json, model: Json, m: int) -> Rows:
    """Return the rows; StoreError where they, the basis's and the model's arrays, of m columns, do not fit together."""
    for part, found in (("basis", basis), ("model", model)):
        what, sizes = (
            f"a {part} whose parts do not fit together",
            {"sample": trained_on(run)[0], "basis": m, "other": m},
        )
        check_lengths(run, part, found, what, f"{run.path}/{part}", **sizes, one=1)
    rows = read_points(run.read_arrays("rows"), f"{run.path}/rows")
    if rows.shape != trained_on(run):
        raise StoreError("rows of another shape", where=f"{run.path}/rows", got=rows.shape)
    return rows


def of_basis(report: Json, basis: Json, laplacian: csr_array) -> Iterator[Comparison]:
    """Compare Q'Q with I, and L Q with Q diag(values) to the reported residual."""
    Q, values = basis["Q"], basis["values"]
    m, norm = Q.shape[1], float(abs(laplacian).sum(axis=1).max()) or 1.0  # 0 of rows that are all cut off
    yield Comparison("eigenvectors", float(report["n_basis"]), float(m), 0.0)
    yield Comparison("orthonormality", 0.0, float(np.abs(Q.T @ Q - np.eye(m)).max()), ORTHONORMAL)
    residual = float(np.linalg.norm(laplacian @ Q - Q * values, axis=0).max()) / norm
    reported = float(report["residual"])
    yield Comparison("eigen-residual", reported, residual, ROUNDING + 0.01 * reported, "above")


def of_solution(report: Json, squares: Squares, Y: Matrix, dual: Matrix | None) -> Iterator[Comparison]:
    """Compare objective, gap and DIMACS errors of Y and z: the stored one, or 2 (B(Y) - t) in old runs."""
    claimed, t, C = report["certificate"], squares.targets, squares.C
    seen, linear = squares.seen(Y), float(np.sum(C * Y))
    z = 2.0 * (seen - t) if dual is None else dual
    if z.shape != t.shape:
        raise StoreError("not a dual number for each term", where="model/dual", got=z.shape, wanted=t.shape)
    objective = float(np.sum((seen - t) ** 2)) + linear
    slack = squares.slack(z)
    eigenvalues, lowest = np.linalg.eigvalsh(slack), float(np.linalg.eigvalsh(Y)[0])
    sizes = float(seen @ seen + t @ t) + abs(linear) + float(np.abs(slack * Y).sum())
    # S is C and a sum of z_t B_t, which may cancel; and a z_t = 2 (B_t(Y) - t_t) that is not stored is rounded as its terms
    # are, however little it is itself.
    summed = squares.norm(np.maximum(np.abs(z), 2.0 * (np.abs(seen) + np.abs(t)))) + float(np.linalg.norm(C))
    rounding = 16 * float(np.finfo(float).eps) * summed
    allowed, spread = AGREE * sizes, AGREE * float(np.abs(eigenvalues).max()) + rounding
    yield Comparison("objective", float(claimed["objective"]), objective, allowed)
    yield Comparison("lowest eigenvalue of S", float(claimed["min_eigenvalue"]), float(eigenvalues[0]), spread, "below")
    if np.isfinite(claimed["gap"]):  # else nothing was proven
        gap, size = gap_of(squares, objective, linear, z, slack)
        of_gap = allowed + AGREE * abs(gap)
        yield Comparison("gap", float(claimed["gap"]), gap, of_gap, "above")
        yield Comparison("bound", float(claimed["bound"]), objective - gap, 2 * of_gap, "below")
        yield Comparison("relative gap", float(claimed["relative_gap"]), gap / size, of_gap / size, "above")
    if len(claimed["dimacs"]) != 6:
        raise StoreError("not six DIMACS errors", where="report.json", got=len(claimed["dimacs"]))
    value = squares.dual(z)
    apart, scale = objective - value, 1.0 + abs(objective) + abs(value)
    if abs(float(claimed["dimacs"][4])) * scale < abs(apart) - allowed:  # relative to what earlier versions used
        scale = 1.0 + 2.0 * abs(objective)
    largest = 1.0 + float(np.abs(C).max())
    errors = (
        (0.0, 0.0),
        (max(0.0, -lowest) / (1.0 + float(np.abs(t).max(initial=0.0))), AGREE * float(np.abs(Y).max())),
        (0.0, 0.0),
        (max(0.0, -float(eigenvalues[0])) / largest, spread / largest),
        (apart / scale, (allowed + AGREE * abs(apart)) / scale),
        (float(np.sum(slack * Y)) / scale, allowed / scale),
    )
    for number, (error, rounding) in enumerate(errors, 1):
        yield Comparison(
            f"DIMACS error {number}", abs(float(claimed["dimacs"][number - 1])), abs(error), rounding, "above"
        )


def gap_of(squares: Squares, objective: float, linear: float, z: Matrix, slack: Matrix) -> tuple[float, float]:
    """Return (gap, what it is relative to) of an objective with part `linear` <C, Y>, for z, S(z) = slack."""
    t = squares.targets
    return objective - _bound(squares, z, slack), max(abs(objective), abs(linear), SMALL * float(t @ t))


def of_embedding(report: Json, basis: Json, model: Json, most: int | None) -> Iterator[Comparison]:
    """Compare E with Q A, A the `most` (None: all) leading eigenvectors of Y times roots of eigenvalues."""
    Q, Y, E = basis["Q"], model["Y"], model["embedding"]
    values = np.linalg.eigvalsh(Y)[::-1]
    unit = max(float(values[0]), 0.0) or 1.0  # powers of very small numbers would be 0
    A, E = Q.T @ E / unit**0.5, E / unit**0.5
    known, count = (A**2).sum(axis=0), A.shape[1]
    yield Comparison("components", float(report["n_components"]), float(count), 0.0)
    yield Comparison("embedding in the basis", 0.0, float(np.abs(E - Q @ A).max(initial=0.0)), EMBEDDED)
    apart = float(np.abs(Y / unit @ A - A * known).max(initial=0.0))
    yield Comparison("embedding's directions", 0.0, apart, EMBEDDED)
    leading = float(values[: len(values) if most is None else most].sum())
    yield Comparison("sum of its eigenvalues", unit * float(known.sum()), leading, EMBEDDED * len(values) * unit)


def _bound(squares: Squares, z: Matrix, slack: Matrix) -> float:
    """Return the best known D of a feasible z; -inf if none is found."""
    feasible = _feasible(squares, z, slack)
    if squares.C.any() and _root(squares.C) is None:
        return -np.inf if feasible is None else squares.dual(feasible)
    if feasible is None:
        return 0.0
    # D(k z) = -k^2 |z|^2 / 4 - k z't is greatest at k = -2 z't / |z|^2.
    square = float(feasible @ feasible)
    k = min(max(-2.0 * float(feasible @ squares.targets) / square, 0.0), 1.0) if square > 0 else 0.0
    return squares.dual(k * feasible)


def _feasible(squares: Squares, z: Matrix, slack: Matrix) -> Matrix | None:
    """Return a z whose S is psd; None if none is found."""
    z0 = squares.seen(np.eye(len(slack)))
    inward = squares.slack(z0) - squares.C
    root = _root(inward)
    if root is not None:
        return z + max(0.0, -_lowest(slack, root)) * z0
    for step in STEPS:
        root = _root(squares.C + step * inward)
        if root is not None:
            low = _lowest(slack, root)
            share = max(0.0, -low) / (1.0 - min(low, 0.0))
            return (1.0 - share) * z + share * step * z0
    some = np.where(squares.definite, z0, 0.0)
    root = _root(squares.slack(some) - squares.C)
    return None if root is None else z + max(0.0, -_lowest(slack, root)) * some


def _root(matrix: Matrix) -> Matrix | None:
    """Return L of L L'; None if the matrix is not positive definite beyond rounding."""
    values = np.linalg.eigvalsh(matrix)
    is_definite = values[0] > len(matrix) * ROUNDING * np.abs(values).max()
    return np.asarray(np.linalg.cholesky(matrix), np.float64) if is_definite else None


def _lowest(slack: Matrix, root: Matrix) -> float:
    """Return the lowest eigenvalue of L^-1 S L^-T."""
    half = scipy.linalg.solve_triangular(root, slack, lower=True)
    return float(np.linalg.eigvalsh(scipy.linalg.solve_triangular(root, half.T, lower=True))[0])
