"""`dkl verify` of an unfolding: edges, basis, objective, gap and embedding once more, from what is stored.

    f = nu sum over edges of (K_ii - 2 K_ij + K_jj - d_ij^2)^2 - <W, Y>,    W = I, or Q'H L H Q of labels' kernel L = side side'

"scale" is nu = |W| sum d^2 / (slowest sum d^4), slowest the least eigenvalue of the basis.

Under hard distances what holds, the objective and the bound are computed once more:

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
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree, shortest_path
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import euclidean_distances

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.map_quality import N_NEIGHBORS, rows_of
from dkl.estimators.base.run_arrays import check_rows
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.quality import Quality
from dkl.resources import format_bytes
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.qsdp import verify_hard as shared
from dkl.runs.recomputed import neighbor_graph, widths_apart
from dkl.runs.report import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.seals import Json

AGREE = 1e-12
"""Relative tolerance of recomputed sums."""
TIES = 1e-13
"""Share of the largest squared distance: others that differ by less may be ranked in either order."""
ROUNDED = 1e-9
SPANNING = 1e-6
"""Tolerance per component of the joining edges' length, relative to the longest edge, by rounding."""
BLOCK_BYTES = 2**24


def claims(run: RunStore, settings: UnfoldingSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's numbers with the same recomputed."""
    report = run.report()
    rows, basis, model = recomputed.read(run, budget)
    Q, edges, squared, n = basis["Q"], basis["edges"], basis["squared"], len(basis["Q"])
    yield from of_edges(run, rows, basis, settings, budget)
    laplacian, longest = laplacian_of(edges, n), max(float(squared.max()), np.finfo(float).tiny)
    yield from recomputed.of_basis(report, basis, laplacian)
    # 0 = 1'L q = value 1'q + 1'r with |r| <= residual * norm: so much of the constant vector an eigenvector to `residual` may have.
    constant = float(np.abs(Q.sum(axis=0)).max()) / np.sqrt(n)
    norm, slowest = float(abs(laplacian).sum(axis=1).max()), float(basis["values"][0])
    yield Comparison(
        "the constant vector in the basis", 0.0, constant, 1e-10 + float(report["residual"]) * norm / slowest
    )
    W = _reward(Q, basis.get("side"), settings.colored, str(run.path))
    nu = float(report["nu"])
    lengths = squared / longest  # fourth powers of others may overflow
    rule = float(np.linalg.eigvalsh(W)[-1] * lengths.sum() / (slowest * (lengths**2).sum()) / longest)
    wanted = rule if settings.nu == "scale" else float(settings.nu)
    yield Comparison("nu", nu, wanted, 1e-9 * wanted)
    weight = np.sqrt(nu)
    squares = recomputed.Squares(Q, edges, True, np.full(len(edges), weight), weight * squared, -W)
    yield from recomputed.of_solution(report, squares, model["Y"], model.get("dual"))
    yield from recomputed.of_embedding(report, basis, model, int(settings.n_components))
    yield from of_quality(report, rows, model["embedding"])


def of_edges(run: RunStore, rows: Rows, basis: Json, settings: UnfoldingSettings, budget: int) -> Iterator[Comparison]:
    """Compare edges, their squared distances and the widths of the similarity with those of the rows (n, d)."""
    edges, squared, n = basis["edges"], basis["squared"], int(rows.shape[0])
    if edges.shape[1:] != (2,) or not len(edges) or edges.min() < 0 or edges.max() >= n or len(squared) != len(edges):
        raise StoreError("not pairs of rows", where=f"{run.path}/basis/edges")
    graph = neighbor_graph(rows, settings.n_neighbors, "local", "unnormalized", sharpness=0.0)
    yield Comparison("edges", float(run.report()["n_edges"]), float(len(edges)), 0.0)
    longest = max(float(squared.max()), np.finfo(float).tiny)
    count, labels = connected_components(graph.laplacian, directed=False)
    # Joining edges are compared by their total length: of equally short ones any may have been taken.
    between = labels[edges[:, 0]] != labels[edges[:, 1]]
    apart = abs(laplacian_of(edges[~between], n) - graph.laplacian).max()
    yield Comparison("edges beside the rows' graph", 0.0, float(apart), 0.0)
    if count > 1:
        parts = connected_components(laplacian_of(edges, n), directed=False)[0]
        yield Comparison("components, once joined", 1.0, float(parts), 0.0)
        joining = float(np.sqrt(squared[between]).sum())
        wanted = _spanning_length(rows, labels, budget)
        yield Comparison("length of joining edges", joining, wanted, SPANNING * np.sqrt(longest) * count)
    yield Comparison("squared distances", 0.0, _apart(rows, edges, squared) / longest, AGREE)
    yield Comparison("widths of the similarity", 0.0, widths_apart(basis["widths"], graph.similarity.widths), 1e-12)


def of_quality(report: Json, rows: Rows, embedding: NDArray[np.float64]) -> Iterator[Comparison]:
    """Compare trustworthiness and continuity of the drawn rows, and those of principal components."""
    quality = Quality.from_dict(report.get("quality"), "report.json")
    if quality is None:
        return
    chosen = rows_of(len(embedding))
    X, Z = rows[chosen], embedding[chosen]
    if sparse.issparse(X) and X.shape[1] > len(chosen):  # places of the same distances, in fewer columns
        products = (X.astype(np.float64) @ X.T.astype(np.float64)).toarray()
        products -= products.mean(axis=0)
        products -= products.mean(axis=1)[:, None]
        values, vectors = np.linalg.eigh(products)
        X = vectors * np.sqrt(np.maximum(values, 0.0))
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, np.float64)
    # Ranks are the same at any scale, and squares of values near the largest number would overflow.
    X = X / (float(np.abs(X).max()) or 1.0)
    k, plain = (
        min(N_NEIGHBORS, len(chosen) // 2 - 1),
        PCA(min(Z.shape[1], *X.shape), svd_solver="full").fit_transform(X),
    )
    of_rows, of_embedding, of_plain = (cdist(A, A, "sqeuclidean") for A in (X, Z, plain))
    for name, claimed, ranks, near in (
        (QUALITY, quality.value, of_rows, of_embedding),
        (ALTERNATIVE, quality.alternative_value, of_rows, of_plain),
        ("continuity", quality.others["continuity"], of_embedding, of_rows),
        ("continuity of PCA", quality.others["continuity of PCA"], of_plain, of_rows),
    ):
        # Any value within the range of ties is right: compared with the nearest of them.
        yield Comparison(name, claimed, float(np.clip(claimed, *_range_of_ties(ranks, near, k))), ROUNDED)


def _range_of_ties(ranks: NDArray[np.float64], near: NDArray[np.float64], k: int) -> tuple[float, float]:
    """Return the least and largest measure of map_quality.py of squared distances (m, m) in two spaces.

    Those from one row that differ by rounding alone may be in either order, as where rows have the same place in an embedding.
    """
    m, least, most = len(ranks), 0, 0
    on_ranks, on_near = TIES * ranks.max(), TIES * near.max()
    for i in range(m):
        first, second = np.delete(ranks[i], i), np.delete(near[i], i)
        ordered, last = np.sort(first), np.partition(second, k - 1)[k - 1]
        low = np.maximum(np.searchsorted(ordered, first - on_ranks) + 1 - k, 0)
        high = np.maximum(np.searchsorted(ordered, first + on_ranks, "right") - k, 0)
        is_near, is_open = second < last - on_near, np.abs(second - last) <= on_near
        left = k - int(np.count_nonzero(is_near))
        least += int(low[is_near].sum() + np.sort(low[is_open])[:left].sum())
        most += int(high[is_near].sum() + np.sort(high[is_open])[::-1][:left].sum())
    scale = 2.0 / (m * k * (2 * m - 3 * k - 1))
    return 1 - scale * most, 1 - scale * least


def _spanning_length(rows: Rows, labels: NDArray[np.integer], budget: int) -> float:
    """Return the length of the least tree joining components `labels` (n,) of the rows, by all distances."""
    n, count = len(labels), int(labels.max()) + 1
    step = max(1, BLOCK_BYTES // (24 * n))  # not by the budget, which rounding is not to depend on
    if (needed := max(16 * count**2, 24 * n * min(step, n))) > budget:
        what, wanted = f"distances between {count:,} components do not fit", format_bytes(needed)
        raise MemoryBudgetError(what, where="memory_limit", got=format_bytes(budget), wanted=wanted)
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(count))
    # Less the first row: euclidean_distances takes differences of squares, which cancel where rows are far from 0.
    rows = rows[order] if sparse.issparse(rows) else np.asarray(rows[order], np.float64) - rows[0]
    nearest = np.full((count, count), np.inf)
    for lo in range(0, n, step):
        far = np.minimum.reduceat(euclidean_distances(rows[lo : lo + step], rows), starts, axis=1)
        np.minimum.at(nearest, labels[order[lo : lo + step]], far)
    # A tree is least by lengths that all grow alike, and no entry may be 0, which stands for no edge.
    offset = float(nearest[np.isfinite(nearest)].max()) or 1.0
    tree = minimum_spanning_tree(np.where(np.eye(count, dtype=bool), 0.0, nearest + offset))
    return float(tree.sum() - offset * (count - 1))


def laplacian_of(edges: NDArray[np.integer], n: int) -> sparse.csr_array:
    """Return the Laplacian D - W of edges of weight 1."""
    i, j = edges.T
    W = sparse.csr_array((np.ones(2 * len(edges)), (np.r_[i, j], np.r_[j, i])), shape=(n, n))
    return sparse.csr_array(sparse.diags_array(np.asarray(W.sum(axis=1)).ravel()) - W)


def _apart(rows: Rows, edges: NDArray[np.integer], squared: NDArray[np.float64]) -> float:
    """Return the largest difference of the stored squared distances from the rows'."""
    apart, step = 0.0, max(1, BLOCK_BYTES // (64 * rows.shape[1]))
    for lo in range(0, len(edges), step):
        i, j = edges[lo : lo + step].T
        difference = rows[i].astype(np.float64) - rows[j].astype(np.float64)
        square = difference.power(2) if sparse.issparse(difference) else difference**2
        lengths = np.asarray(square.sum(axis=1)).ravel()
        apart = max(apart, float(np.abs(lengths - squared[lo : lo + step]).max()))
    return apart


def _reward(Q: NDArray[np.float64], side: NDArray | None, colored: bool, where: str) -> NDArray[np.float64]:
    """Return the reward's matrix W (m, m)."""
    if colored != (side is not None):
        raise StoreError("not the labels that the settings speak of", where=f"{where}/basis")
    if side is None:
        return np.eye(Q.shape[1])
    seen = Q.T @ (side - side.mean(axis=0))
    return np.asarray(seen @ seen.T)


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


def hard_claims(run: RunStore, settings: UnfoldingSettings, budget: int) -> Iterator[Comparison]:
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
