"""`dkl verify` of an unfolding: edges, basis, objective, gap and embedding once more, from what is stored.

    f = nu sum over edges of (K_ii - 2 K_ij + K_jj - d_ij^2)^2 - <W, Y>,    W = I, or Q'H L H Q of labels' kernel L = side side'

"scale" is nu = |W| sum d^2 / (slowest sum d^4), slowest the least eigenvalue of the basis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import euclidean_distances

from dkl.errors import MemoryBudgetError, StoreError
from dkl.estimators.base.map_quality import N_NEIGHBORS, rows_of
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.quality import Quality
from dkl.resources import format_bytes
from dkl.runs import recomputed_basis as recomputed
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
