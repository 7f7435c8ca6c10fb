"""`dkl verify` of an unfolding under hard distances: what holds, the objective and the bound once more, from data and what is stored.

    maximize tr(K) over K psd, K 1 = 0, K_ii - 2 K_ij + K_jj = b_ij of edges (i, j), or <= b_ij        objective -tr(K)

For multipliers y, at most 0 of upper bounds, with S = -I - sum_ij y_ij (e_i - e_j)(e_i - e_j)' and low its least eigenvalue on vectors of
mean 0, no feasible K has an objective below b'y + min(0, low) T, T the squared lengths of the paths from row 0 to all, nor below
b'y / (1 + low) where low > -1.

Where cliques are stored low is of a smaller space: c rows with all distances among them have a known Gram matrix about their mean, and K
maps to 0 what that matrix, with the mean, maps to 0. The cliques are checked against the edges, their matrices made of the distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import shortest_path
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, check_rows, read_points, trained_on
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.resources import format_bytes
from dkl.runs.qsdp.mvu.verify import of_edges, of_quality
from dkl.runs.verify import recomputed_basis as recomputed
from dkl.runs.verify.comparison import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.sealed_json import Json

Matrix = NDArray[np.float64]
AGREE = 1e-12
"""Tolerance relative to the sizes that are summed up."""
CENTERED = 1e-8
SMALL = 1e-3
"""Least share of the trace that a gap is relative to."""
FLAT, LEFT = 1e-11, 1e-9
"""Eigenvalues of a clique's matrix, relative to the largest, and of the sum of projections, below which they count as 0; the fit's are
lower, so that this space is no larger."""
DENSE = 2000
"""Rows up to which all eigenvalues of S are computed."""
COPIES = 4
"""Matrices (n, n) that are held at a time."""
TURNED = 4.0
"""Rounding of the space, in units of the last place."""
LANCZOS, RESTARTS = 60, 20


@dataclass(frozen=True)
class KnownDistances:
    """Constraints: edges (e, 2) of n rows, squared distances b (e,), whether they are upper bounds."""

    n: int
    edges: NDArray[np.integer]
    b: Matrix
    is_upper: bool

    def images(self, R: Matrix) -> Matrix:
        """Return squared distances (e,) along edges of rows R (n, r)."""
        i, j = self.edges.T
        return np.asarray(np.square(R[i] - R[j]).sum(axis=1))

    def infeasibility(self, images: Matrix) -> float:
        """Return what distances lack, as a share of |b|."""
        apart = images - self.b
        return float(np.linalg.norm(np.maximum(apart, 0.0) if self.is_upper else apart)) / float(np.linalg.norm(self.b))

    def slack(self, y: Matrix) -> sparse.csr_array:
        """Return S (n, n)."""
        i, j = self.edges.T
        B = sparse.csr_array((y, (i, j)), shape=(self.n, self.n))
        B = B + B.T
        return sparse.csr_array(B - sparse.diags_array(1.0 + np.asarray(B.sum(axis=1)).ravel()))

    def reach(self) -> float:
        """Return T: the sum of squared lengths of shortest paths from row 0."""
        i, j = self.edges.T
        graph = sparse.csr_array((np.sqrt(self.b), (i.astype(np.int32), j.astype(np.int32))), shape=(self.n, self.n))
        lengths = shortest_path(graph, method="D", directed=False, indices=0)
        return float(np.square(lengths).sum())

    def bound(self, y: Matrix, low: float) -> float:
        """Return the bound on the objective by y."""
        value = float(self.b @ y)
        bound = value + min(0.0, low) * self.reach()
        return max(bound, value / (1.0 + low)) if low > -1.0 else bound


def claims(run: RunStore, settings: UnfoldingSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's numbers with the same recomputed."""
    report = run.report()
    rows, basis, model = _read(run, budget)
    yield from of_edges(run, rows, basis, settings, budget)
    given = KnownDistances(int(rows.shape[0]), basis["edges"], basis["squared"], settings.constraints == "at-most")
    yield from _of_kernel(report, given, model)
    yield from _of_bound(run, given, model, budget)
    yield from recomputed.of_embedding(report, model, model, int(settings.n_components))
    yield from of_quality(report, rows, model["embedding"])


def _read(run: RunStore, budget: int) -> tuple[Rows, Json, Json]:
    """Return (rows, the basis's arrays, the model's); StoreError for parts that do not fit together."""
    n = trained_on(run)[0]
    basis, model = run.read_arrays("basis"), run.read_arrays("model")
    if not {"Q", "dual"} <= model.keys():
        raise StoreError("no kernel with multipliers", where=f"{run.path}/model", got=", ".join(sorted(model)))
    m = model["Q"].shape[1]
    for part, found in (("basis", basis), ("model", model)):
        what = f"a {part} whose parts do not fit together"
        check_lengths(run, part, found, what, f"{run.path}/{part}", sample=n, basis=m, other=m, one=1)
    if len(model["dual"]) != len(basis["edges"]):
        raise StoreError("not a multiplier for each edge", where=f"{run.path}/model/dual", got=len(model["dual"]))
    rows = read_points(run.read_arrays("rows"), f"{run.path}/rows")
    if rows.shape != trained_on(run):
        raise StoreError("rows of another shape", where=f"{run.path}/rows", got=rows.shape)
    needed = 8 * COPIES * n * n if "cliques" in model else 8 * COPIES * n * m
    if needed > budget:
        what = f"matrices of {n:,} rows do not fit"
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=format_bytes(needed))
    return rows, basis, model


def _of_kernel(report: Json, given: KnownDistances, model: Json) -> Iterator[Comparison]:
    """Compare the kernel's shape with its form, and objective and infeasibility with those of the kernel."""
    told, Q, Y = report["certificate"], model["Q"], model["Y"]
    squares = np.diagonal(Y)
    yield Comparison("rank of the kernel", float(report["n_basis"]), float(len(Y)), 0.0)
    yield Comparison("orthonormality", 0.0, float(np.abs(Q.T @ Q - np.eye(len(Y))).max()), recomputed.ORTHONORMAL)
    yield Comparison("the constant vector in the kernel", 0.0, float(np.abs(Q.mean(axis=0)).max()), CENTERED)
    yield Comparison("the kernel's products of eigenvectors", 0.0, float(np.abs(Y - np.diag(squares)).max()), 0.0)
    yield Comparison("the kernel's least eigenvalue", 0.0, min(0.0, float(squares.min())), 0.0)
    trace = float(squares.sum())
    yield Comparison("objective", float(told["objective"]), -trace, AGREE * trace)
    R = Q * np.sqrt(np.maximum(squares, 0.0))
    of_ends = np.square(R).sum(axis=1)[given.edges].sum(axis=1)
    allowed = AGREE * float(np.linalg.norm(of_ends)) / float(np.linalg.norm(given.b))
    found = given.infeasibility(given.images(R))
    yield Comparison("infeasibility", float(told["infeasibility"]), found, allowed)


def _of_bound(run: RunStore, given: KnownDistances, model: Json, budget: int) -> Iterator[Comparison]:
    """Compare what the multipliers prove with what is claimed."""
    report, y, b = run.report(), model["dual"], given.b
    told, trace = report["certificate"], float(np.trace(model["Y"]))
    yield Comparison("dual value", float(report["dual_value"]), float(b @ y), AGREE * float(np.abs(b * y).sum()))
    size = float(np.abs(y).sum())  # also of edges of no length, on which the value does not hang
    yield Comparison("size of the multipliers", float(report["dual_size"]), size, AGREE * size)
    if given.is_upper:
        yield Comparison("largest multiplier of an upper bound", 0.0, max(0.0, float(y.max())), 0.0)
    if not np.isfinite(told["bound"]):
        return  # nothing was proven
    S, U, turned = given.slack(y), None, 0.0
    if "cliques" in model:
        U, turned = _face(given, _cliques_in(run, given, model), S)
        yield Comparison("size of the face", float(report["face"]), float(U.shape[1]), 0.0, "above")
    low, name = _lowest(S, U, budget)
    spread = 16.0 * float(np.finfo(float).eps) * np.sqrt(given.n) * float(abs(S).sum(axis=1).max()) + turned
    yield Comparison(name, float(told["min_eigenvalue"]), low, spread, "below")
    objective, reported = -trace, float(told["bound"])
    bound = given.bound(y, low)
    allowed = bound - given.bound(y, low - spread) + AGREE * (trace + float(np.abs(b * y).sum()))
    yield Comparison("bound", reported, bound, allowed, "below")
    yield Comparison("gap", float(told["gap"]), objective - bound, allowed + AGREE * trace, "above")
    size = max(abs(objective), abs(reported), SMALL * trace)
    apart = abs(objective - reported)
    yield Comparison("relative gap", float(told["relative_gap"]), apart / size, 4.0 * AGREE)


def _cliques_in(run: RunStore, given: KnownDistances, model: Json) -> list[NDArray[np.integer]]:
    """Return the stored cliques, each with all its pairs among the edges; StoreError for others."""
    where, rows, sizes = f"{run.path}/model/cliques", model["cliques"], model.get("clique_sizes")
    if sizes is None or len(sizes) == 0 or sizes.min() < 2 or int(sizes.sum()) != len(rows):
        raise StoreError("cliques of other sizes", where=where)
    check_rows(given.n, rows, where)
    cliques = np.split(rows, np.cumsum(sizes)[:-1])
    i, j = given.edges.T
    joined = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(given.n, given.n))
    joined = joined + joined.T + sparse.eye_array(given.n, format="csr")
    for clique in cliques:
        if len(np.unique(clique)) != len(clique) or joined[clique][:, clique].nnz != len(clique) ** 2:
            raise StoreError("rows without all distances among them", where=where, got=clique.tolist())
    return cliques


def _face(given: KnownDistances, cliques: list[NDArray[np.integer]], S: sparse.csr_array) -> tuple[Matrix, float]:
    """Return (orthonormal columns (n, m) that span what cliques leave to a kernel, by how much rounding moves S's eigenvalues there)."""
    n, (i, j) = given.n, given.edges.T
    D = sparse.csr_array((np.r_[given.b, given.b], (np.r_[i, j], np.r_[j, i])), shape=(n, n))
    away = np.full((n, n), 1.0 / n)
    for clique in cliques:
        c = len(clique)
        mean = np.full((c, c), 1.0 / c)
        J = np.eye(c) - mean
        gram = -0.5 * J @ D[clique][:, clique].toarray() @ J
        top = float(np.linalg.norm(gram, 2)) or 1.0
        # The constant vector has the largest eigenvalue here, and is in no flat direction.
        values, vectors = np.linalg.eigh(0.5 * (gram + gram.T) + top * mean)
        Z = vectors[:, values <= FLAT * top]
        away[np.ix_(clique, clique)] += Z @ Z.T
    values, vectors = scipy.linalg.eigh(away)
    m = int(np.count_nonzero(values <= LEFT))
    U = np.asarray(vectors[:, :m])
    # The space turns by rounding, over how far its eigenvalue 0 is from the next.
    angle = TURNED * float(np.finfo(float).eps) * float(values[-1]) / float(values[m]) if m < n else 0.0
    image = S @ U
    return U, 2.0 * angle * float(np.linalg.norm(image - U @ (U.T @ image), 2))


def _lowest(S: sparse.csr_array, U: Matrix | None, budget: int) -> tuple[float, str]:
    """Return (the least eigenvalue of S on the columns of U, or on vectors of mean 0, what it is called)."""
    n, name = S.shape[0], "lowest eigenvalue of S"
    if U is not None:
        inner = U.T @ (S @ U)
        return float(scipy.linalg.eigvalsh(0.5 * (inner + inner.T), subset_by_index=[0, 0])[0]), name
    norm = float(abs(S).sum(axis=1).max())
    if n <= DENSE and 8 * COPIES * n * n <= budget:
        dense = S.toarray() + 2.0 * (norm + 1.0) / n
        return float(scipy.linalg.eigvalsh(dense, subset_by_index=[0, 0])[0]), name

    def product(x: Matrix) -> Matrix:
        x = np.ravel(x) - np.mean(x)
        image = S @ x - norm * x
        return np.asarray(image - image.mean())

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
