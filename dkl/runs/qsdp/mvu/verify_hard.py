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

from dkl.errors import StoreError
from dkl.estimators.base.run_arrays import check_rows
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.qsdp import verify_hard as shared
from dkl.runs.qsdp.mvu.verify import of_edges, of_quality
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json

Matrix = NDArray[np.float64]
CENTERED = 1e-8
FLAT, LEFT = 1e-11, 1e-9
"""Eigenvalues of a clique's matrix, relative to the largest, and of the sum of projections, below which they count as 0; the fit's are
lower, so that this space is no larger."""
TURNED = 4.0
"""Rounding of the space, in units of the last place."""


@dataclass(frozen=True)
class KnownDistances(shared.KnownConstraints):
    """Squared distances b (e,) along edges (e, 2) of n rows."""

    edges: NDArray[np.integer]

    def images(self, R: Matrix) -> Matrix:
        """Return squared distances (e,) along edges of rows R (n, r)."""
        i, j = self.edges.T
        return np.asarray(np.square(R[i] - R[j]).sum(axis=1))

    def sizes(self, R: Matrix) -> Matrix:
        """Return |R_i|^2 + |R_j|^2 (e,)."""
        return np.asarray(np.square(R).sum(axis=1)[self.edges].sum(axis=1))

    def objective(self, R: Matrix) -> tuple[float, float]:
        """Return (-tr(K), tr(K))."""
        trace = float(np.sum(R * R))
        return -trace, trace

    def slack(self, y: Matrix) -> sparse.csr_array:
        """Return S (n, n)."""
        i, j = self.edges.T
        B = sparse.csr_array((y, (i, j)), shape=(self.n, self.n))
        B = B + B.T
        return sparse.csr_array(B - sparse.diags_array(1.0 + np.asarray(B.sum(axis=1)).ravel()))

    def reach(self) -> float:
        """Return T: the sum of squared lengths of shortest paths from row 0."""
        i, j = self.edges.T
        # scipy.sparse.csgraph takes indices of 32 bits alone.
        graph = sparse.csr_array((np.sqrt(self.b), (i.astype(np.int32), j.astype(np.int32))), shape=(self.n, self.n))
        lengths = shortest_path(graph, method="D", directed=False, indices=0)
        return float(np.square(lengths).sum())

    def bound(self, y: Matrix, low: float) -> float:
        """Return the bound on the objective by y."""
        value = float(self.b @ y)
        bound = value + min(0.0, low) * self.reach()
        # Both are valid: y / (1 + low) is feasible itself, and proves more where paths are long.
        return max(bound, value / (1.0 + low)) if low > -1.0 else bound


def claims(run: RunStore, settings: UnfoldingSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's numbers with the same recomputed."""
    report = run.report()
    rows, basis, model = shared.read(run, budget)
    if len(model["dual"]) != len(basis["edges"]):
        raise StoreError("not a multiplier for each edge", where=f"{run.path}/model/dual", got=len(model["dual"]))
    yield from of_edges(run, rows, basis, settings, budget)
    is_upper, R = settings.constraints == "at-most", shared.factor_in(model)
    given = KnownDistances(int(rows.shape[0]), basis["squared"], is_upper, True, basis["edges"])
    yield Comparison("the constant vector in the kernel", 0.0, float(np.abs(model["Q"].mean(axis=0)).max()), CENTERED)
    yield from shared.of_kernel(report, given, R, model)
    face, y = None, model["dual"]
    if "cliques" in model and np.isfinite(report["certificate"]["bound"]):
        face = _face(given, _cliques_in(run, given, model), given.slack(y))
    yield from shared.of_bound(report, given, R, y, budget, face)
    yield from recomputed.of_embedding(report, model, model, int(settings.n_components))
    yield from of_quality(report, rows, model["embedding"])


def _cliques_in(run: RunStore, given: KnownDistances, model: Json) -> list[NDArray[np.integer]]:
    """Return the stored cliques, each with all its pairs among the edges; StoreError for others."""
    where, rows, sizes = f"{run.path}/model/cliques", model["cliques"], model.get("clique_sizes")
    if sizes is None or len(sizes) == 0 or sizes.min() < 2 or int(sizes.sum()) != len(rows):
        raise StoreError("cliques of other sizes", where=where)
    check_rows(given.n, rows, where)
    cliques = np.split(rows, np.cumsum(sizes)[:-1])
    i, j = given.edges.T
    joined = sparse.csr_array((np.ones(len(i)), (i, j)), shape=(given.n, given.n))
    # The diagonal too, so that a clique of c rows has c^2 entries.
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
