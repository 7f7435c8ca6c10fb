"""`MaximumVarianceUnfolding`: the estimator of RegMVU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.settings import check_parameters
from dkl.estimators.base.side_information import given_labels
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.qsdp.basis.hard import load_hard
from dkl.estimators.qsdp.basis.learner import BasisLearner
from dkl.estimators.qsdp.basis.plan import BasisSizes, plan_unfolding
from dkl.estimators.qsdp.basis.store import load_basis_learner
from dkl.estimators.qsdp.mvu.fit import HardDistancesProblem, UnfoldingProblem, label_factor
from dkl.estimators.qsdp.settings import UnfoldingSettings, basis_size
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserCallbacks, UserLabels, UserRows, UserSeed


class MaximumVarianceUnfolding(BasisLearner):
    """Unfold a manifold: the kernel of most variance that keeps the distances between neighbors.

    Maximises, over K = Q Y Q' with Y positive semidefinite (m, m),

        tr(Y) - nu * sum over edges (i, j) of (K_ii - 2 K_ij + K_jj - |x_i - x_j|^2)^2        (Wu et al. 2009, (11))

    Q holds the eigenvectors 2 .. m + 1 of the graph's Laplacian, edges of weight 1 to the nearest neighbors (RegMVU; Weinberger,
    Sha, Zhu & Saul 2007). The embedding is the kernel's leading principal components. With `colored`, tr(H K H L) takes the
    place of tr(Y), L a kernel of labels and H = I - 11'/n: the dependence on the labels is what grows (Song et al. 2008).

    Parameters
    ----------
    n_components : int
        Dimensions of the embedding; fewer where Y has a lower rank.
    n_basis : int or None
        m: more of them follow the manifold more closely; by default 30, or a quarter of the rows.
    nu : float or "scale"
        Weight of the distances; "scale" follows the rows' scale and the graph's length (`dkl.problems.qsdp.problem.default_nu`).
    n_neighbors : int
        Neighbors whose distances are kept; and, of a graph in components, those of the shortest edges that join these (DataWarning).
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    colored : bool
        Whether y is learned from: labels (n,), alike or not, -1, None or NaN for unlabeled, or numbers (n, k) with L = y y'.
    constraints : "soft", "hard" or "at-most"
        "hard": the distances of neighbors are constraints, (1)-(4), of a kernel on all rows: max tr(K), K 1 = 0, each edge as long as it
        was. Up to 4,000 edges an interior point finds it, on the face of the cone that cliques of neighbors leave (Krislock & Wolkowicz
        2010), and the gap is proven for kernels on that face. An augmented Lagrangian of a factor of K comes first where edges are few, at
        most 2.2 a row, and is all beyond 4,000 edges or where `memory_limit` has no room for the other; it may stall where rows and
        their neighbors are all joined, as of many neighbors in few dimensions.
        "at-most": no edge becomes longer, which leaves more to unfold, and is solved there too.
        `n_basis`, `nu`, `colored` and `solver` are of the soft form alone.
    solver : "low-rank", "sqlp" or "scsdp"
        Factors of few columns, or the paper's formulations (21)-(25) and (15)-(16) by a conic solver (`pip install 'dkl[conic]'`).
    tol, max_iter
        Gap to end at, relative to `certificate_.size`; steps of the solver.
    holdout : float
        0: `result_.quality`, how well neighbors are kept next to principal components, is not measured. Nothing is held out for it.
    memory_limit : int, str or None
        Bytes this process may use; what needs more is refused before it starts.
    client, n_jobs, random_state, callbacks, verbose
        Where the graph is built and large bases are found; its threads; of no effect, nothing is random; functions called with
        each row of the history (True ends the fit); progress on standard error.

    Attributes
    ----------
    embedding_ : (n, k); basis_ : (n, m) Q; basis_kernel_ : (m, m) Y; edges_ : (e, 2), each once; nu_ : float
        With constraints Q has K's own eigenvectors, Y is diagonal, and nu_ is infinite.
    certificate_ : objective of (11), or of its colored form, as a minimum, bound, gap, relative_gap, DIMACS errors. The gap is
        relative to `size`, the objective, or a thousandth of that of a kernel of zeros where this is more: an objective may fall to 0,
        of which no gap is small; its part without the distances counts too. With constraints -tr(K) as objective, the bound that a dual
        proves, relative_gap, and infeasibility, the norm of what squared distances are off over theirs; solved where both are at most `tol`
    result_ : Result; outcome, n_iter, history, seconds
    n_iter_, scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    SpectralEmbedding : Coordinates by the graph alone, not its distances.
    KernelPCA : Coordinates of a kernel that is given.
    sklearn.manifold.Isomap : Paths in the graph as distances.

    References
    ----------
    X.-M. Wu, A. M.-C. So, Z. Li, S.-Y. R. Li, Fast graph Laplacian regularized kernel learning via
    semidefinite-quadratic-linear programming, NIPS 2009.
    K. Q. Weinberger, F. Sha, Q. Zhu, L. K. Saul, Graph Laplacian regularization for large-scale semidefinite programming,
    NIPS 19, 2007.
    N. Krislock, H. Wolkowicz, Explicit sensor network localization using semidefinite representations and facial reductions, SIAM
    Journal on Optimization 20, 2010.
    L. Song, A. Smola, K. Borgwardt, A. Gretton, Colored maximum variance unfolding, NIPS 20, 2008.

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
        n_neighbors: int = 10,
        standardize: bool | str = "auto",
        colored: bool = False,
        constraints: str = "soft",
        solver: str = "low-rank",
        tol: float = 1e-6,
        max_iter: int = 200,
        holdout: float = 0.1,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
        callbacks: UserCallbacks = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_basis = n_basis
        self.nu = nu
        self.n_neighbors = n_neighbors
        self.standardize = standardize
        self.colored = colored
        self.constraints = constraints
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.holdout = holdout
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: UserRows, y: UserLabels = None) -> MaximumVarianceUnfolding:
        """Unfold the rows X (n, d); y is looked at where `colored` alone.

        Edges may have length 0: equal rows are kept together. Components of the graph, which could go as far apart as they like, are
        joined by the shortest edges between them.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse
        y : (n,) labels or (n, k) numbers, optional
            Looked at where `colored` alone.

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows or labels that are not valid, and for rows that are all equal, before any work.
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        check_parameters(self, UnfoldingSettings)
        with watch_for(self.callbacks, self.verbose) as watch:
            rows = checked_rows(self, X, reset=True, least=3)
            n, d = (int(size) for size in rows.shape)
            if self.constraints != "soft":
                self._solve_hard(partial(HardDistancesProblem.of, rows), rows, partial(plan_unfolding, n, d), watch)
                return self
            side = label_factor(given_labels(y), n) if self.colored else None
            terms = n * min(self.n_neighbors, n - 1)
            # The first eigenvector, constant of a connected graph, is computed and left out: an embedding has mean 0.
            sizes = BasisSizes(n, d, basis_size(self.n_basis, n), terms, first=1)
            self._solve(partial(UnfoldingProblem.of, rows, side), rows, sizes, watch)
        return self

    def _adopt(self, posed: UnfoldingProblem | HardDistancesProblem) -> None:
        self.edges_, self.nu_ = posed.edges, posed.nu


def load_learner(run: RunStore) -> MaximumVarianceUnfolding:
    """Restore the learner from its run alone; StoreError for parts that do not fit together."""
    if run.config["settings"].get("constraints", "soft") != "soft":
        return load_hard(run, MaximumVarianceUnfolding, HardDistancesProblem)
    return load_basis_learner(run, MaximumVarianceUnfolding, UnfoldingProblem)
