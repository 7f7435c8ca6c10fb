"""K0 once more for `dkl verify`: scikit-learn's kernels, the matrix of the file, or the graph's equations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from dkl.estimators.base.rules import SHARPNESS, width_rule
from dkl.estimators.logdet.model import stored_laplacian
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.runs.logdet.verify_proof import symmetric
from dkl.runs.verify.recomputed import kernel_matrix, neighbor_graph, widths_apart

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows as DataRows
    from dkl.linalg.kernels.kernel_columns import Kernel
    from dkl.stores.sealed_json import Json

Matrix = NDArray[np.float64]
NEGLIGIBLE = 1e-10
"""Weight of an edge, over the root of its ends' degrees' product, up to which it joins no components."""


def prior_matrix(X: DataRows, found: Json, settings: LogDetRunSettings, kernel: Kernel) -> tuple[Matrix, float]:
    """Return (K0 (b, b) at the basis, how far what is stored of K0 is from the data's, relative).

    X: all rows (n, d), or the matrix (n, n).
    """
    basis = found["basis"]
    if settings.kernel == "precomputed":
        apart = float(np.abs(found["prior"] - X).max() / max(float(np.abs(X).max()), np.finfo(float).tiny))
        return symmetric(np.asarray(X[np.ix_(basis, basis)], np.float64)), apart
    if settings.kernel == "laplacian":
        K0, apart = _of_graph(X, found, settings)
        return K0[np.ix_(basis, basis)], apart
    rows = X[basis]
    apart = float(abs(_stored_rows(found) - rows).max())
    if kernel.gamma is not None and "gamma" not in settings.kernel_params:
        apart = max(apart, abs(kernel.gamma * X.shape[1] * _variance(X) - 1.0))
    return symmetric(kernel_matrix(kernel, rows, rows)), apart


def _of_graph(X: DataRows, found: Json, settings: LogDetRunSettings) -> tuple[Matrix, float]:
    """Return (L^+ = (L + N N')^-1 - N N', how far stored parts are off), N the null space of L.
    N has one vector a component; edges of more than NEGLIGIBLE weight make components."""
    n = X.shape[0]
    sigma = width_rule(settings.sigma or "auto", "local")
    graph = neighbor_graph(X, settings.n_neighbors, sigma, "unnormalized", sharpness=SHARPNESS, warns_of_cuts=False)
    stored = stored_laplacian(found, "model/laplacian")
    largest = max(float(abs(graph.laplacian).max()), np.finfo(float).tiny)
    apart = float(abs(stored - graph.laplacian).max() / largest) + float(abs(_stored_rows(found) - X).max())
    apart += widths_apart(found["widths"], graph.similarity.widths)
    edges, degree = sp.coo_array(sp.triu(graph.laplacian, 1)), graph.laplacian.diagonal()
    ends, weights = np.stack(edges.coords), -edges.data
    strong = weights > NEGLIGIBLE * np.sqrt(degree[ends[0]] * degree[ends[1]])
    count, labels = connected_components(
        sp.coo_array((weights[strong], tuple(ends[:, strong])), shape=(n, n)), directed=False
    )
    within = labels[ends[0]] == labels[ends[1]]
    W = sp.coo_array((weights[within], tuple(ends[:, within])), shape=(n, n))
    W = sp.csr_array(W + W.T)
    degree = np.asarray(W.sum(axis=1)).ravel()
    root = np.sqrt(np.where(degree > 0, degree, 1.0)) if settings.laplacian != "unnormalized" else np.ones(n)
    N = np.zeros((n, count))
    N[np.arange(n), labels] = root
    N /= np.linalg.norm(N, axis=0)
    L, projection = (sp.diags_array(degree) - W).toarray() / np.outer(root, root), N @ N.T
    return symmetric(np.linalg.inv(L + projection) - projection), apart


def _stored_rows(found: Json) -> DataRows:
    if "points" in found:
        return found["points"]
    parts = (found["points_data"], found["points_indices"], found["points_indptr"])
    return sp.csr_array(parts, shape=tuple(found["points_shape"]))


def _variance(X: DataRows) -> float:
    """Return the variance of all entries of a dense or sparse matrix."""
    if not sp.issparse(X):
        return float(np.var(X, dtype=np.float64))
    count = X.shape[0] * X.shape[1]
    mean = float(X.data.astype(float).sum()) / count
    return float(((X.data.astype(float) - mean) ** 2).sum() + (count - X.nnz) * mean**2) / count
