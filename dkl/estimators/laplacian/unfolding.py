"""`MaximumVarianceUnfolding`: the scikit-learn face of RegMVU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from dkl._plain_arrays import refuse_masked
from dkl.blocks.graph import Graph, build_graph
from dkl.blocks.session import Session
from dkl.errors import InputError
from dkl.estimators.common.classes import checked_labels
from dkl.estimators.common.progress import watch_for
from dkl.estimators.common.settings import check_parameters, gathered
from dkl.estimators.common.validation import checked_rows
from dkl.estimators.laplacian.fit import BasisLearner, basis_size, check_room, solved
from dkl.estimators.laplacian.settings import UnfoldingSettings
from dkl.linalg.smooth_basis import smoothest
from dkl.problems.laplacian_kernels import default_nu, dependence, unfolding, variance

EQUAL_WEIGHTS = 1e100
"""A width of the similarity, and a scale of any data, at which all edges weigh 1."""


class MaximumVarianceUnfolding(BasisLearner):
    """Unfold a manifold: the kernel of most variance that keeps the distances between neighbours.

    Maximises, over K = Q Y Q' with Y positive semidefinite (m, m),

        tr(Y) - nu * sum over edges (i, j) of (K_ii - 2 K_ij + K_jj - |x_i - x_j|^2)^2        (Wu et al. 2009, (11))

    Q holds the eigenvectors 2 .. m + 1 of the graph's Laplacian, edges of weight 1 to the nearest neighbours (RegMVU; Weinberger,
    Sha, Zhu & Saul 2007). The embedding is the kernel's leading principal components. With `colored`, tr(H K H L) takes the
    place of tr(Y), L a kernel of labels and H = I - 11'/n: the dependence on the labels is what grows (Song et al. 2008).

    Parameters
    ----------
    n_components : int
        Dimensions of the embedding; fewer where Y has a lower rank.
    n_basis : int or None
        m: more of them follow the manifold more closely; by default 30, or a quarter of the rows.
    nu : float or "scale"
        Weight of the distances; "scale" follows the rows' scale and the graph's length (`dkl.problems.laplacian_kernels.default_nu`).
    n_neighbors : int
        Neighbours whose distances are kept. The graph must be connected.
    colored : bool
        Whether y is learned from: labels (n,), alike or not, or numbers (n, k) with L = y y'.
    solver : "low-rank", "sqlp" or "scsdp"
        Factors of few columns, or the paper's formulations (21)-(25) and (15)-(16) by a conic solver (`pip install 'dkl[conic]'`).
    tol, max_iter
        Relative gap; steps of the solver.
    memory_limit : int, str or None
        Bytes this process may use; what needs more is refused before it is begun.
    client, n_jobs, random_state, callbacks, verbose
        Where the graph is built; its threads; of no effect, nothing is random; functions called with each row of the history
        (True ends the fit); progress on standard error.

    Attributes
    ----------
    embedding_ : (n, k); basis_ : (n, m) Q; basis_kernel_ : (m, m) Y; edges_ : (e, 2), each once; nu_ : float
    certificate_ : objective of (11), or of its colored form, as a minimum, bound, gap, relative_gap, DIMACS errors
    result_ : Result; outcome, n_iter, history, seconds
    n_iter_, n_features_in_

    Examples
    --------
    >>> import numpy as np
    >>> from dkl import MaximumVarianceUnfolding
    >>> angle = np.linspace(0, 4, 60)
    >>> spiral = np.stack([angle * np.cos(angle), angle * np.sin(angle)], axis=1)
    >>> line = MaximumVarianceUnfolding(n_components=1, n_basis=10).fit_transform(spiral)[:, 0]
    >>> bool(abs(np.corrcoef(line, angle)[0, 1]) > 0.95)
    True
    """

    SETTINGS = UnfoldingSettings

    def __init__(
        self,
        n_components: int = 2,
        *,
        n_basis: int | None = None,
        nu: float | str = "scale",
        n_neighbors: int = 4,
        colored: bool = False,
        solver: str = "low-rank",
        tol: float = 1e-6,
        max_iter: int = 200,
        memory_limit: int | str | None = None,
        client: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_basis = n_basis
        self.nu = nu
        self.n_neighbors = n_neighbors
        self.colored = colored
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> MaximumVarianceUnfolding:
        """Unfold the rows X (n, d); y is looked at where `colored` alone.

        Edges may have length 0: equal rows are kept together. InputError for a graph in several parts, which could go as far
        apart as they like, and for rows that are all equal.
        """
        check_parameters(self, UnfoldingSettings)
        with watch_for(self.callbacks, self.verbose) as watch:
            rows = checked_rows(self, X, reset=True, least=3)
            n = int(rows.shape[0])
            side = _side(y, n) if self.colored else None
            m, limit = basis_size(self.n_basis, n), self._limit()
            check_room(n, m, n * min(self.n_neighbors, n - 1), limit)
            graph = build_graph(
                rows, n_neighbors=min(self.n_neighbors, n - 1), sigma=EQUAL_WEIGHTS, laplacian="unnormalized",
                memory_limit=limit, session=Session.find(self.client, threads=self.n_jobs),
            )  # fmt: skip
            _check_connected(graph)
            edges, squared = _edges(rows, graph)
            basis = smoothest(graph.laplacian, m + 1)
            Q = np.ascontiguousarray(basis.vectors[:, 1:])
            reward = variance(Q) if side is None else dependence(Q, side)
            self.nu_ = self._nu(squared, float(basis.values[1]), reward)
            settings = gathered(UnfoldingSettings, self, memory_limit=limit)
            found = solved(unfolding(Q, edges, squared, self.nu_, reward), settings, watch)
        self.edges_ = edges
        # Unseen rows are means of their neighbours, weighted within the length of an edge.
        near = replace(graph, sigma=0.5 * float(np.sqrt(squared).mean()))
        self._keep(rows, near, Q, found, found.axes[:, : int(self.n_components)])
        return self

    def _nu(self, squared: Any, slowest: float, reward: Any) -> float:
        if isinstance(self.nu, str):
            return default_nu(squared, slowest, float(np.linalg.eigvalsh(reward)[-1]))
        return float(self.nu)


def _side(y: Any, n: int) -> Any:
    """(n, k) a factor of the kernel of labels; InputError for none, or for what tells no row from another."""
    refuse_masked(y, "y")
    values = None if y is None else np.asarray(y)
    if values is None or values.ndim < 2 or values.shape[1] == 1:
        classes, codes = checked_labels(y, n, "MaximumVarianceUnfolding(colored=True)")
        return np.eye(len(classes))[codes]
    try:
        side = np.asarray(check_array(values, dtype=np.float64, input_name="y"))
    except ValueError as error:
        raise InputError(" ".join(str(error).split()), where="y") from error
    if len(side) != n:
        raise InputError("inconsistent numbers of samples", where="y", got=f"shape {side.shape}", wanted=f"({n}, k)")
    if not np.ptp(side, axis=0).max() > 0:
        raise InputError("all rows are equal", where="y", wanted="numbers that differ between rows")
    return side


def _edges(rows: Any, graph: Graph) -> tuple[Any, Any]:
    """((e, 2) edges, i < j, (e,) their squared distances)."""
    upper = sp.coo_array(sp.triu(graph.laplacian, 1))
    i, j = upper.coords
    edges = np.stack([i, j], axis=1).astype(np.intp)
    difference = rows[i] - rows[j]
    square = difference.multiply(difference) if sp.issparse(difference) else np.asarray(difference, np.float64) ** 2
    squared = np.asarray(square.sum(axis=1), np.float64).ravel()
    if not squared.max(initial=0.0) > 0:
        raise InputError("all rows are equal", where="X", got="edges of length 0 alone", wanted="rows that differ")
    return edges, squared


def _check_connected(graph: Graph) -> None:
    if graph.n_components > 1:
        sizes = ", ".join(f"{size:,}" for size in graph.component_sizes[:3])
        raise InputError(
            "the neighbour graph is not connected", where="X", got=f"{graph.n_components} components ({sizes} rows)",
            wanted="one", remedy="raise n_neighbors, or unfold the components one by one",
        )  # fmt: skip
