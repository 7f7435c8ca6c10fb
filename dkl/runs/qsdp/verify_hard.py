"""`dkl verify` of a kernel under hard constraints: what holds, the objective and the bound once more, from data and what is stored.

    minimize <C, K> over K psd where <A_s, K> = b_s, or <= b_s        S(y) = C - sum_s y_s A_s, low its least eigenvalue

For multipliers y, at most 0 of upper bounds, and T at least the trace of every feasible K, no feasible K has an objective below
b'y + min(0, low) T. What C, A_s and T are is each learner's; the solvers' problems are not asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.run_arrays import trained_on
from dkl.resources import format_bytes
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.seals import Json

Matrix = NDArray[np.float64]
AGREE = 1e-12
"""Tolerance relative to the sizes that are summed up."""
SMALL = 1e-3
"""Least share of max|C| tr(K) that a gap is relative to."""
DENSE = 2000
"""Rows up to which the least eigenvalue of S is computed; beyond a factor shows that it is no less than is claimed."""
COPIES, FACTOR_COPIES = 4, 2
"""Matrices (n, n) that are held at a time, and for a factor alone."""
LANCZOS, RESTARTS = 60, 20


@dataclass(frozen=True)
class KnownConstraints(ABC):
    """Constraints on K = R R' of n rows with targets b (p,); is_centered: K 1 = 0 is one more; is_upper: whether b are upper bounds."""

    n: int
    b: Matrix
    is_upper: bool
    is_centered: bool

    @abstractmethod
    def images(self, R: Matrix) -> Matrix:
        """Return <A_s, K> (p,) of K's factor R (n, r)."""

    @abstractmethod
    def sizes(self, R: Matrix) -> Matrix:
        """Return the sizes (p,) that are summed up to the images."""

    @abstractmethod
    def objective(self, R: Matrix) -> tuple[float, float]:
        """Return (<C, K>, max|C| tr(K))."""

    @abstractmethod
    def slack(self, y: Matrix) -> sparse.csr_array:
        """Return S (n, n)."""

    @abstractmethod
    def bound(self, y: Matrix, low: float) -> float:
        """Return the bound on the objective by y."""

    def infeasibility(self, images: Matrix) -> float:
        """Return what images lack, as a share of |b|."""
        apart = images - self.b
        return float(np.linalg.norm(np.maximum(apart, 0.0) if self.is_upper else apart)) / float(np.linalg.norm(self.b))

    def rounding(self, R: Matrix) -> float:
        """Return what rounding may change of the infeasibility."""
        return AGREE * float(np.linalg.norm(self.sizes(R))) / float(np.linalg.norm(self.b))

    def spread(self, S: sparse.csr_array) -> float:
        """Return by how much rounding moves the eigenvalues of S."""
        # 16 for other orders of sums, as of another machine's BLAS.
        return 16.0 * float(np.finfo(float).eps) * np.sqrt(self.n) * float(abs(S).sum(axis=1).max())


def read(run: RunStore, budget: int) -> tuple[Rows, Json, Json]:
    """Return (rows, the basis's arrays, the model's); StoreError for parts that do not fit together.

    MemoryBudgetError where what is recomputed needs more than `budget`.
    """
    n = trained_on(run)[0]
    basis, model = run.read_arrays("basis"), run.read_arrays("model")
    if not {"Q", "dual"} <= model.keys():
        raise StoreError("no kernel with multipliers", where=f"{run.path}/model", got=", ".join(sorted(model)))
    m = model["Q"].shape[1]
    rows = recomputed.rows_of(run, basis, model, m)
    needed = 8 * COPIES * n * (n if "cliques" in model else m)
    if needed > budget:
        what = f"matrices of {n:,} rows do not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(needed))
    return rows, basis, model


def factor_in(model: Json) -> Matrix:
    """Return the factor (n, r) of the stored kernel."""
    # An eigenvalue below 0 is reported by `of_kernel`; the root of it would be NaN and hide all other comparisons.
    factor: Matrix = model["Q"] * np.sqrt(np.maximum(np.diagonal(model["Y"]), 0.0))
    return factor


def of_kernel(report: Json, given: KnownConstraints, R: Matrix, model: Json) -> Iterator[Comparison]:
    """Compare the kernel's shape with its form, and objective and infeasibility with those of its factor R (n, r)."""
    certificate, Q, Y = report["certificate"], model["Q"], model["Y"]
    squares = np.diagonal(Y)
    yield Comparison("rank of the kernel", float(report["n_basis"]), float(len(Y)), 0.0)
    yield Comparison("orthonormality", 0.0, float(np.abs(Q.T @ Q - np.eye(len(Y))).max()), recomputed.ORTHONORMAL)
    yield Comparison("the kernel's products of eigenvectors", 0.0, float(np.abs(Y - np.diag(squares)).max()), 0.0)
    yield Comparison("the kernel's least eigenvalue", 0.0, min(0.0, float(squares.min())), 0.0)
    objective, size = given.objective(R)
    yield Comparison("objective", float(certificate["objective"]), objective, AGREE * size)
    found = given.infeasibility(given.images(R))
    yield Comparison("infeasibility", float(certificate["infeasibility"]), found, given.rounding(R))


def of_bound(
    report: Json, given: KnownConstraints, R: Matrix, y: Matrix, budget: int, face: tuple[Matrix, float] | None = None
) -> Iterator[Comparison]:
    """Compare what the multipliers y (p,) prove with what is claimed.

    face: orthonormal columns of the space of which it is proven, and by how much rounding moves S's eigenvalues there.
    """
    certificate, (objective, largest) = report["certificate"], given.objective(R)
    value = float(np.abs(given.b * y).sum())
    yield Comparison("dual value", float(report["dual_value"]), float(given.b @ y), AGREE * value)
    size = float(np.abs(y).sum())  # also of constraints with target 0, on which the value does not hang
    yield Comparison("size of the multipliers", float(report["dual_size"]), size, AGREE * size)
    if given.is_upper:
        yield Comparison("largest multiplier of an upper bound", 0.0, max(0.0, float(y.max())), 0.0)
    if not np.isfinite(certificate["bound"]):
        return  # nothing was proven
    U, turned = (None, 0.0) if face is None else face
    if U is not None:
        yield Comparison("size of the face", float(report["face"]), float(U.shape[1]), 0.0, "above")
    S = given.slack(y)
    spread, reported = given.spread(S) + turned, float(certificate["bound"])
    claimed = float(certificate["min_eigenvalue"])
    low, name = lowest(S, U, budget, claimed, spread, is_centered=given.is_centered)
    yield Comparison(name, claimed, low, spread, "below")
    bound = given.bound(y, low)
    allowed = bound - given.bound(y, low - spread) + AGREE * (largest + value)
    yield Comparison("bound", reported, bound, allowed, "below")
    yield Comparison("gap", float(certificate["gap"]), objective - bound, allowed + AGREE * largest, "above")
    # The objective is rounded by some of `largest`, which is many times what is left of a small one.
    size = max(abs(objective), abs(reported), SMALL * largest)
    apart = abs(objective - reported)
    yield Comparison(
        "relative gap", float(certificate["relative_gap"]), apart / size, 4.0 * AGREE * max(1.0, largest / size)
    )


def lowest(
    S: sparse.csr_array, U: Matrix | None, budget: int, claimed: float, spread: float, *, is_centered: bool
) -> tuple[float, str]:
    """Return (the least eigenvalue of S on the columns of U, or on all vectors, what it is called); is_centered: of mean 0.

    Of many rows `claimed`, if a factor shows that no eigenvalue is more than `spread` below it; else a number that none is below.
    """
    n, name, around = S.shape[0], "lowest eigenvalue of S", 1.0 if is_centered else 0.0
    if U is not None:
        inner = U.T @ (S @ U)
        return float(scipy.linalg.eigvalsh(0.5 * (inner + inner.T), subset_by_index=[0, 0])[0]), name
    norm = float(abs(S).sum(axis=1).max())
    if n <= DENSE and 8 * COPIES * n * n <= budget:
        # 11'/n times more than any eigenvalue of S lifts the constant vector out of the way: the least is of vectors of mean 0.
        dense = S.toarray() + around * 2.0 * (norm + 1.0) / n
        return float(scipy.linalg.eigvalsh(dense, subset_by_index=[0, 0])[0]), name
    if np.isfinite(claimed) and 8 * FACTOR_COPIES * n * n <= budget:
        # By columns, as LAPACK reads it: C order would be copied, and that copy is not planned.
        dense = S.toarray(order="F")
        dense += around * 2.0 * (norm + 1.0) / n
        # A Cholesky factor of S - (claimed - spread) I exists just where no eigenvalue is below that, and takes far less than eigenvalues.
        dense.flat[:: n + 1] -= claimed - spread
        try:
            scipy.linalg.cholesky(dense, lower=True, overwrite_a=True, check_finite=False)
        except scipy.linalg.LinAlgError:
            return -norm, "lowest eigenvalue of S, at least"
        return claimed, "lowest eigenvalue of S, at least"

    def product(x: Matrix) -> Matrix:
        x = np.ravel(x) - around * np.mean(x)
        # Shifted below 0: the constant vector, mapped to 0, is then the largest and not the least eigenvalue.
        image = S @ x - norm * x
        return np.asarray(image - around * image.mean())

    # A fixed start, so that verify says the same twice. A Ritz value is never below the least eigenvalue: it can refute, not prove.
    start = np.random.default_rng(0).standard_normal(n)
    name = "an eigenvalue of S, by Lanczos"
    try:
        operator = LinearOperator((n, n), matvec=product, dtype=np.float64)
        found = eigsh(
            operator, 1, which="SA", ncv=min(n - 1, LANCZOS), maxiter=RESTARTS, v0=start, return_eigenvectors=False
        )
    except ArpackNoConvergence as unfinished:
        found = unfinished.eigenvalues
    return (float(found[0]) + norm if len(found) else np.inf), name
