"""`LaplacianKernelLearner`: the estimator of RegPCP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dkl.errors import InputError
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.side_information import given_labels, note_unused, resolve_pairs
from dkl.estimators.base.validation import checked_rows
from dkl.estimators.qsdp.basis.hard import load_hard
from dkl.estimators.qsdp.basis.learner import BasisLearner
from dkl.estimators.qsdp.basis.plan import BasisSizes, plan_propagation
from dkl.estimators.qsdp.basis.store import load_basis_learner
from dkl.estimators.qsdp.laplacian.fit import HardPairsProblem, PropagationProblem
from dkl.estimators.qsdp.settings import PropagationSettings, basis_size
from dkl.problems.qsdp.checks import refuse_large_weights, refuse_weights
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserCallbacks, UserLabels, UserPairs, UserRows, UserSeed


class LaplacianKernelLearner(BasisLearner):
    """Learn a kernel from pairs in the basis of the smoothest functions on the neighbor graph.

    This is the paper's method, to compare with; to cluster by pairs take `dkl.PairwiseKernelLearner`. On 25 ordinary sets its clusters
    were ahead of this learner's by .09 to .18 of adjusted Rand index in the mean, from n/4 to 2 n pairs, right or a tenth wrong
    (benchmarks/system/answers.md); on 13 small sets from n/20 and n/8 pairs by .16 to .17, on 7,000 and 30,000 rows by .14 to .33, in less
    time and memory (benchmarks/qsdp/sqlp.md). Below n/8 pairs this learner is behind k-means.

    Minimizes, over K = Q Y Q' with Y positive semidefinite (m, m),

        sum over (i, j) of w_ij (K_ij - t_ij)^2        (Wu et al. 2009, (12), where w = 1)

    over the diagonal and must-link pairs, with target 1, and cannot-link pairs, with target 0, each once; w_ij are the pairs'
    weights, 1 by default and on the diagonal. Q holds the first m
    eigenvectors of the graph's normalized Laplacian (RegPCP; Li, Liu & Tang 2009).

    Parameters
    ----------
    n_basis : int or None
        m, more than there are clusters; by default 30, or a quarter of the rows.
    n_neighbors, sigma
        The graph, as in `dkl.PairwiseKernelLearner`, but "auto" is "local".
    standardize : bool or "auto"
        Whether columns are brought to mean 0 and spread 1 (of sparse rows to spread 1), in `fit` and for all later rows. "auto" does
        so, with a warning, where columns of far larger spread than the others would decide all distances.
    contradictions : "keep", "drop" or "raise"
        Cannot-links whose ends the must-links join, as in `dkl.PairwiseKernelLearner`.
    constraints : "soft" or "hard"
        "hard": the pairs are constraints, (5)-(9), of a kernel on all rows: min tr(L K), K_ii = 1, K_ij = 1 of must-links and 0 of
        cannot-links, L the graph's normalized Laplacian, by an augmented Lagrangian of a factor of K (PCP; Li, Liu & Tang, ICML 2008).
        Pairs that contradict each other are refused unless contradictions="drop"; `n_basis`, `solver` and weights are of the soft form.
    solver : "low-rank", "sqlp" or "scsdp"
        Factors of few columns, or the paper's formulations (21)-(25) and (15)-(16) by a conic solver (`pip install 'dkl[conic]'`).
    tol, max_iter
        Gap to end at, relative to `certificate_.size`; steps of the solver.
    holdout : float
        Share of the pairs that `result_.quality` is measured on, at most 0.5; 0: it is not measured. The final fit is on all pairs, and
        starts from the kernel without that share.
    memory_limit : int, str or None
        Bytes this process may use; what needs more is refused before it starts.
    client, n_jobs, random_state, callbacks, verbose
        Where the graph is built and large bases are found; its threads; the seed of pairs that are drawn from labels; functions
        called with each row of the history (True ends the fit); progress on standard error.

    Attributes
    ----------
    embedding_ : (n, rank), K = embedding_ embedding_'; basis_ : (n, m) Q; basis_kernel_ : (m, m) Y
        With hard constraints Q has K's own eigenvectors, and Y is diagonal.
    certificate_ : objective of (12), bound, gap, relative_gap, DIMACS errors. The gap is
        relative to `size`, the objective, or a thousandth of that of a kernel of zeros where this is more: an objective may fall to 0,
        of which no gap is small. With hard constraints tr(L K) as objective, the bound that a dual proves, relative_gap, and
        infeasibility, the norm of what entries are off over that of their targets; solved where both are at most `tol`
    result_ : Result; outcome, n_iter, history, seconds
    n_iter_, scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    PairwiseKernelLearner : Kernels from pairs without a basis.
    SpectralEmbedding : The basis itself, without pairs.
    sklearn.cluster.SpectralClustering : Clusters of such a graph, without pairs.

    References
    ----------
    X.-M. Wu, A. M.-C. So, Z. Li, S.-Y. R. Li, Fast graph Laplacian regularized kernel learning via
    semidefinite-quadratic-linear programming, NIPS 2009.
    Z. Li, J. Liu, X. Tang, Constrained clustering via spectral regularization, CVPR 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import dkl
    >>> X, y = load_iris(return_X_y=True)
    >>> model = dkl.LaplacianKernelLearner(n_basis=10, random_state=0).fit(X, y)
    >>> clusters = dkl.KernelKMeans(n_clusters=3, random_state=0).fit_predict(model.embedding_)
    >>> bool(dkl.pair_accuracy(y, clusters) > 0.9)
    True
    """

    SETTINGS = PropagationSettings

    def __init__(
        self,
        n_basis: int | None = None,
        *,
        n_neighbors: int = 20,
        sigma: float | str = "auto",
        standardize: bool | str = "auto",
        contradictions: str = "keep",
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
        self.n_basis = n_basis
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.standardize = standardize
        self.contradictions = contradictions
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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def fit(
        self,
        X: UserRows,
        y: UserLabels = None,
        *,
        must_link: UserPairs = None,
        cannot_link: UserPairs = None,
        pairs: UserPairs = None,
        sample_ids: UserLabels = None,
    ) -> LaplacianKernelLearner:
        """Learn from rows X (n, d) and pairs or labels.

        With pairs y is not learned from, and a DataWarning says so, except in cross-validation, where scores need it.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse
        y : (n,) labels, optional; -1, None or NaN for unlabeled
        must_link, cannot_link : (m, 2) integer arrays of row numbers, optional
        pairs : dkl.Pairs, optional
            Instead of `must_link` and `cannot_link`; with weights of at most 1e12 or without.
        sample_ids : (n,) distinct integers, optional
            Identifiers of the rows, in cross-validation: side information is then of these.

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows or side information that are not valid, before any work.
        InconsistentPairsError
            For contradictions, with contradictions="raise", and with hard constraints unless it is "drop".
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        check_parameters(self, PropagationSettings)
        with watch_for(self.callbacks, self.verbose) as watch:
            rows = checked_rows(self, X, reset=True, least=2)
            n, d = (int(size) for size in rows.shape)
            if all(given is None for given in (y, must_link, cannot_link, pairs)):
                raise InputError(
                    "LaplacianKernelLearner requires y to be passed, but the target y is None",
                    remedy="pass must_link and cannot_link, or pairs, or y with -1, None or NaN for unlabeled",
                )
            note_unused(y, sample_ids, (must_link, cannot_link, pairs), "must_link, cannot_link or pairs")
            # Only the rule is asked for here, before a text such as "4 GB" is parsed.
            with gathered(PropagationSettings, self, memory_limit=None).rule_of_contradictions() as rule:
                known = resolve_pairs(
                    n, y=given_labels(y), must_link=must_link, cannot_link=cannot_link, pairs=pairs, sample_ids=sample_ids,
                    random_state=self.random_state, contradictions=rule, takes_weights=True,
                )  # fmt: skip
            if self.constraints == "hard":
                refuse_weights(known.weights)
                plan = partial(plan_propagation, n, d, known.n_must + known.n_cannot)
                self._solve_hard(partial(HardPairsProblem.of, rows, known), rows, plan, watch)
                return self
            refuse_large_weights(known.weights)
            # One square for each diagonal entry, and one a pair.
            sizes = BasisSizes(n, d, basis_size(self.n_basis, n), n + known.n_must + known.n_cannot)
            self._solve(partial(PropagationProblem.of, rows, known), rows, sizes, watch)
        return self


def load_learner(run: RunStore) -> LaplacianKernelLearner:
    """Restore the learner from its run alone; StoreError for parts that do not fit together."""
    if run.config["settings"].get("constraints", "soft") != "soft":
        return load_hard(run, LaplacianKernelLearner, HardPairsProblem)
    return load_basis_learner(run, LaplacianKernelLearner, PropagationProblem)
