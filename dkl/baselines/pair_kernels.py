"""Kernels of pairs by the methods that Hu and Kwok 2013 compare with: SimpleNPKL, and Laue's hybrid."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.baselines.hybrid_sdp import solve_hybrid
from dkl.baselines.simple_npkl import LOSSES, BoundedKernelProblem, solve_bounded
from dkl.blocks.graph.neighbor_graph import Graph, build_graph
from dkl.blocks.memory.plan import check_size
from dkl.blocks.session import Session
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.rules import CONTRADICTIONS, WIDTH, Either, Integer, NotGiven, Real, Size, Word, width_rule
from dkl.estimators.base.settings import IN_ALL, Settings, Standardize, check_parameters
from dkl.estimators.base.side_information import given_labels, note_unused
from dkl.estimators.base.validation import checked_rows, random_stream
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import check_gamma
from dkl.resources import parse_bytes
from dkl.side_information.resolved_pairs import resolve_pairs

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import UserLabels, UserPairs, UserRows, UserSeed
    from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
FEWER = "learn from fewer rows, or by dkl.PairwiseKernelLearner"


@dataclass(frozen=True)
class PairKernelSettings(Settings):
    """Settings that both methods share: gamma, the graph, and when to end."""

    gamma: Annotated[float, Real(above=0), "Weight of the pairs."] = 100.0
    rank: Annotated[int | None, Either(Integer(1), NotGiven()), "Most columns of the factor."] = None
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a pattern in the graph."] = 10
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: average."] = (
        "auto"
    )
    laplacian: Annotated[str, Word("normalized", "unnormalized"), "Of the graph."] = "normalized"
    standardize: Standardize = "auto"
    contradictions: Annotated[str, CONTRADICTIONS, "Contradictory pairs: keep them, leave out, or refuse."] = "keep"
    tol: Annotated[float, Real(least=0), "Relative gap to end at."] = 1e-3
    max_iter: Annotated[int, Integer(1), "Most kernels that are computed, or steps of a local search."] = 500
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = IN_ALL


@dataclass(frozen=True)
class SimpleNPKLSettings(PairKernelSettings):
    """Settings of SimpleNPKL: the loss and the bound B of tr(K^2)."""

    loss: Annotated[str, Word("quadratic", *LOSSES), "Of the pairs."] = "quadratic"
    bound: Annotated[
        float | None, Either(Real(above=0), NotGiven()), "B of tr(K^2) <= B; None: 100 n, at most n^2 / 10."
    ] = None


class PairKernelBaseline(CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Base of both: the checks, the graph, and the factor of unseen rows."""

    SETTINGS: ClassVar[type[PairKernelSettings]]
    gamma: float
    rank: int | None
    n_neighbors: int
    sigma: float | str
    laplacian: str
    contradictions: str
    tol: float
    max_iter: int
    memory_limit: int | str | None
    n_jobs: int | None
    random_state: UserSeed
    factor_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def fit(
        self, X: UserRows, y: UserLabels = None, *, must_link: UserPairs = None, cannot_link: UserPairs = None,
        pairs: UserPairs = None, sample_ids: UserLabels = None,
    ) -> Any:  # fmt: skip
        """Learn the kernel of the rows of X, from pairs or labels as in `dkl.PairwiseKernelLearner.fit`.

        Warns with ConvergenceWarning where the relative gap is above `tol` at the end.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse
        y, must_link, cannot_link, pairs, sample_ids : as there

        Returns
        -------
        self

        Raises
        ------
        InputError
            For parameters, rows or side information that are not valid, before any work.
        InconsistentPairsError
            For contradictions, with contradictions="raise".
        MemoryBudgetError
            For work that does not fit in `memory_limit`, before it starts.
        """
        check_parameters(self, self.SETTINGS)
        rows = checked_rows(self, X, reset=True, least=2)
        n = int(rows.shape[0])
        if all(given is None for given in (y, must_link, cannot_link, pairs)):
            what = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InputError(
                what, remedy="pass must_link and cannot_link, or pairs, or y with -1, None or NaN for unlabeled"
            )
        note_unused(y, sample_ids, (must_link, cannot_link, pairs), "must_link, cannot_link or pairs")
        resolved = resolve_pairs(
            n, y=given_labels(y), must_link=must_link, cannot_link=cannot_link, pairs=pairs, sample_ids=sample_ids,
            random_state=self.random_state, contradictions=self.contradictions,
        )  # fmt: skip
        check_size({f"matrices of all {n:,} rows": self._matrices * 8 * n * n}, parse_bytes(self.memory_limit), FEWER)
        if self.laplacian == "normalized":  # whose largest entry is 1, before any neighbor is searched
            check_gamma(float(self.gamma), 1.0)
        graph = build_graph(
            rows, n_neighbors=min(self.n_neighbors, n - 1), sigma=width_rule(self.sigma, "average"),
            laplacian=self.laplacian, warns_of_cuts=False, memory_limit=parse_bytes(self.memory_limit),
            session=Session.find(self.client, threads=self.n_jobs),
        )  # fmt: skip
        check_gamma(float(self.gamma), float(graph.laplacian.diagonal().max()))
        with blas_threads_for(n):
            gap = self._solve(graph, resolved)
        if gap > self.tol:
            warnings.warn(
                f"the relative gap is {gap:.3g}, above tol={self.tol:g}: raise max_iter or rank",
                ConvergenceWarning, stacklevel=2,
            )  # fmt: skip
        self._rows, self._similarity = rows, graph.similarity
        return self

    def transform(self, X: UserRows) -> Matrix:
        """Return the factor's rows for the rows of X: their own, or the mean of their neighbors', weighted by similarity."""
        check_is_fitted(self)
        rows = checked_rows(self, X, reset=False)
        return np.asarray(neighbor_means(rows, self._rows, self._similarity) @ self.factor_)

    @property
    def _n_features_out(self) -> int:
        return int(self.factor_.shape[1])

    _matrices: ClassVar[int]

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Set the fitted attributes, and return the relative gap."""
        raise NotImplementedError


class SimpleNPKL(PairKernelBaseline):
    """SimpleNPKL: a kernel of bounded norm from pairs, in closed form for each set of multipliers (Zhuang et al. 2011).

        minimize over K psd, tr(K^2) <= B    tr(K L) + gamma/2 sum over (i,j) in T of l(K_ij, T_ij)

    By eigenvalues of n x n matrices, in memory: for some thousand rows.

    Parameters
    ----------
    gamma : float
        Weight of the pairs, each of which T has twice.
    loss : "quadratic", "square", "hinge" or "squared_hinge"
        "quadratic": that of `dkl.PairwiseKernelLearner`, with T = 1 on the diagonal and must-links and 0 on cannot-links, as Hu and
        Kwok extend the method. The others are the paper's, T = 1 on must-links and -1 on cannot-links alone.
    bound : float or None
        B of tr(K^2) <= B; None: 100 n, as Hu and Kwok have it, at most n^2 / 10. The less it is, the more it decides the result.
        Beyond the best kernel's own tr(K^2) the dual has no gradient at its maximum, and the fit ends far from it, with a warning.
    rank : int or None
        Most columns of the factor, those of the largest eigenvalues; None: all. Fewer make the kernel another than the one whose gap
        is reported.
    tol, max_iter
        Relative gap to end at; most kernels that are computed.
    n_neighbors, sigma, laplacian, standardize, contradictions, memory_limit, client, n_jobs, random_state
        As in `dkl.PairwiseKernelLearner`.

    Attributes
    ----------
    factor_ : (n, r) V of K = V V'
    objective_, relative_gap_ : of K, with all columns, and its distance from the dual's bound
    bound_ : B
    n_iter_ : kernels computed; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.PairwiseKernelLearner : Without a bound of the norm, for any number of rows.
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    J. Zhuang, I. W. Tsang, S. C. H. Hoi, A family of simple non-parametric kernel learning algorithms, JMLR 12, 1313-1347, 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import SimpleNPKL
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SimpleNPKL(n_jobs=1).fit(X, must_link=[[0, 1], [60, 70]], cannot_link=[[0, 60], [1, 120]])
    >>> bool(model.relative_gap_ < 1e-3)
    True
    """

    SETTINGS = SimpleNPKLSettings
    _matrices = 4

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        loss: str = "quadratic",
        bound: float | None = None,
        rank: int | None = None,
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        laplacian: str = "normalized",
        standardize: bool | str = "auto",
        contradictions: str = "keep",
        tol: float = 1e-3,
        max_iter: int = 500,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.gamma = gamma
        self.loss = loss
        self.bound = bound
        self.rank = rank
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.laplacian = laplacian
        self.standardize = standardize
        self.contradictions = contradictions
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Solve, and keep the largest columns of the factor."""
        n, diagonal = graph.laplacian.shape[0], np.arange(graph.laplacian.shape[0])
        i, j, t = pairs.i, pairs.j, pairs.sign.astype(float)
        if self.loss == "quadratic":
            i, j, t = np.append(diagonal, i), np.append(diagonal, j), np.append(np.ones(n), t > 0)
        self.bound_ = min(100.0 * n, n * n / 10) if self.bound is None else float(self.bound)
        loss = LOSSES["square" if self.loss == "quadratic" else self.loss]
        found = solve_bounded(
            BoundedKernelProblem(graph.laplacian, i, j, t, float(self.gamma), loss, self.bound_),
            self.tol,
            self.max_iter,
        )
        # Eigenvalues ascend.
        self.factor_ = np.ascontiguousarray(found.factor[:, ::-1][:, : self.rank])
        self.objective_, self.relative_gap_, self.n_iter_ = found.objective, found.relative_gap, found.n_iter
        return found.relative_gap


class HybridSDP(PairKernelBaseline):
    """The hybrid of Hazan's algorithm and of a local search: a factor that grows by a column at a time (Laue 2012).

    Minimizes the objective of `dkl.PairwiseKernelLearner`, with its certificate. In memory, for some ten thousand rows.

    Parameters
    ----------
    gamma : float
        Weight of the pairs.
    rank : int or None
        Most columns; None: the largest r with r (r + 1) / 2 <= m, m the entries of T, as Hu and Kwok have it.
    tol, max_iter
        Relative gap to end at; most steps of a local search.
    n_neighbors, sigma, laplacian, standardize, contradictions, memory_limit, client, n_jobs, random_state
        As in `dkl.PairwiseKernelLearner`.

    Attributes
    ----------
    factor_ : (n, r) V of K = V V'
    certificate_ : objective, and how far it is from the minimum at most
    n_iter_ : columns added; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.PairwiseKernelLearner : The same problem by KL-ADMM, or by a second-order method.
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    S. Laue, A hybrid algorithm for convex semidefinite optimization, ICML 2012.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import HybridSDP
    >>> X, y = load_iris(return_X_y=True)
    >>> model = HybridSDP(n_jobs=1, random_state=0).fit(X, must_link=[[0, 1], [60, 70]], cannot_link=[[0, 60], [1, 120]])
    >>> bool(model.certificate_.relative_gap < 1e-3)
    True
    """

    SETTINGS = PairKernelSettings
    _matrices = 0

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        rank: int | None = None,
        n_neighbors: int = 10,
        sigma: float | str = "auto",
        laplacian: str = "normalized",
        standardize: bool | str = "auto",
        contradictions: str = "keep",
        tol: float = 1e-3,
        max_iter: int = 500,
        memory_limit: int | str | None = None,
        client: object = None,
        n_jobs: int | None = None,
        random_state: UserSeed = None,
    ) -> None:
        self.gamma = gamma
        self.rank = rank
        self.n_neighbors = n_neighbors
        self.sigma = sigma
        self.laplacian = laplacian
        self.standardize = standardize
        self.contradictions = contradictions
        self.tol = tol
        self.max_iter = max_iter
        self.memory_limit = memory_limit
        self.client = client
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Add columns until the gap is proven."""
        problem = PairwiseKernel.of(graph.laplacian, pairs, float(self.gamma))
        rank = problem.paper_rank if self.rank is None else int(self.rank)
        found = solve_hybrid(
            problem,
            rank=min(rank, problem.n),
            tol=self.tol,
            max_iter=self.max_iter,
            random=random_stream(self.random_state),
        )
        self.factor_, self.certificate_, self.n_iter_ = found.factor, found.certificate, found.n_iter
        return float(found.certificate.relative_gap)
