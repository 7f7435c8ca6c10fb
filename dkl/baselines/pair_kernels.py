"""Kernels of pairs by the methods that Hu and Kwok 2013 name: SimpleNPKL, Laue's hybrid, MFPC, and BCD-NPKL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import numpy as np

from dkl.baselines.pair_base import PairKernelBaseline, PairKernelSettings
from dkl.baselines.pair_solvers import (
    LOSSES,
    BoundedKernelProblem,
    in_smooth_basis,
    solve_blocks,
    solve_bounded,
    solve_fixed_points,
    solve_hybrid,
)
from dkl.blocks.graph.neighbor_graph import Graph
from dkl.estimators.base.rules import Either, NotGiven, Real, Word
from dkl.estimators.base.validation import random_stream
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import paper_rank

if TYPE_CHECKING:
    from dkl.estimators.base.validation import UserSeed
    from dkl.side_information.pairs import Pairs


@dataclass(frozen=True)
class SimpleNPKLSettings(PairKernelSettings):
    """Settings of SimpleNPKL: the loss and the bound B of tr(K^2)."""

    loss: Annotated[str, Word("quadratic", *LOSSES), "Of the pairs."] = "quadratic"
    bound: Annotated[
        float | None, Either(Real(above=0), NotGiven()), "B of tr(K^2) <= B; None: 100 n, at most n^2 / 10."
    ] = None


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
        super().__init__(
            gamma, rank=rank, n_neighbors=n_neighbors, sigma=sigma, laplacian=laplacian, standardize=standardize,
            contradictions=contradictions, tol=tol, max_iter=max_iter, memory_limit=memory_limit, client=client,
            n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        self.loss = loss
        self.bound = bound

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Solve, and keep the largest columns of the factor."""
        n, diagonal = graph.laplacian.shape[0], np.arange(graph.laplacian.shape[0])
        i, j, t = pairs.i, pairs.j, pairs.sign.astype(float)
        if self.loss == "quadratic":
            i, j, t = np.append(diagonal, i), np.append(diagonal, j), np.append(np.ones(n), t > 0)
        # 100 n is the bound of Hu and Kwok; of few rows it is more than any kernel of these targets has, which the dual cannot meet.
        self.bound_ = min(100.0 * n, n * n / 10) if self.bound is None else float(self.bound)
        loss = LOSSES["square" if self.loss == "quadratic" else self.loss]
        # The quadratic loss is SimpleNPKL's "square" one on more entries: only the targets differ.
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


class BCDNPKL(PairKernelBaseline):
    """BCD-NPKL: one row of a factor after the other, all others held (block coordinate descent; Hu, Wang & Chen 2011).

    Minimizes the objective of `dkl.PairwiseKernelLearner`, with its certificate. The method leaves out the diagonal of T, and first
    removes the rows without pairs; with the diagonal each row has a target, and its step is that of a quartic. In memory.

    Parameters
    ----------
    gamma : float
        Weight of the pairs.
    rank : int or None
        Columns of the factor; None: the largest r with r (r + 1) / 2 <= m, m the entries of T, as Hu and Kwok have it.
    tol, max_iter
        Relative gap to end at; most sweeps over the rows.
    n_neighbors, sigma, laplacian, standardize, contradictions, memory_limit, client, n_jobs
        As in `dkl.PairwiseKernelLearner`.
    random_state
        Seed of the start.

    Attributes
    ----------
    factor_ : (n, r) V of K = V V'
    certificate_ : objective, and how far it is from the minimum at most
    n_iter_ : sweeps; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.PairwiseKernelLearner : The same problem by KL-ADMM, or by a second-order method.
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    E.-L. Hu, B. Wang, S. Chen, BCD-NPKL: scalable non-parametric kernel learning using block coordinate descent, ICML 2011.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import BCDNPKL
    >>> X, y = load_iris(return_X_y=True)
    >>> model = BCDNPKL(tol=0.1, n_jobs=1, random_state=0).fit(X, must_link=[[0, 1], [60, 70]], cannot_link=[[0, 60], [1, 120]])
    >>> bool(model.certificate_.relative_gap < 0.1)
    True
    """

    SETTINGS = PairKernelSettings
    _matrices = 0

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Sweep from a random start, whose rows are of length 1 in the mean square."""
        problem = PairwiseKernel.of(graph.laplacian, pairs, float(self.gamma))
        rank = min(problem.paper_rank if self.rank is None else int(self.rank), problem.n)
        start = random_stream(self.random_state).standard_normal((problem.n, rank)) / np.sqrt(rank)
        found = solve_blocks(problem, start, tol=self.tol, max_iter=self.max_iter)
        self.factor_, self.certificate_, self.n_iter_ = found.factor, found.certificate, found.n_iter
        return float(found.certificate.relative_gap)


@dataclass(frozen=True)
class MFPCSettings(PairKernelSettings):
    """Settings of MFPC: the weight mu of the kernel's trace."""

    mu: Annotated[float, Real(above=0), "Weight of the kernel's trace."] = 1e-8


class MFPC(PairKernelBaseline):
    """MFPC: a kernel in the basis of the graph's smoothest eigenvectors, by fixed point continuation (Shang et al. 2012).

        minimize over U psd    tr(K L) / gamma + 1/2 sum over (i,j) in T of (K_ij - T_ij)^2 + mu tr(U),    K = Q U Q'

    By gradient steps and eigenvalues that are lowered by mu, which falls from step to step. They are slow: 500 leave a gap of a tenth,
    and on some sets clusters are better before they converge (benchmarks/pairwise/admm_table2.md). In memory.

    Parameters
    ----------
    gamma : float
        Weight of the pairs.
    mu : float
        Weight of the trace, relative to a pair's; the default is that of the fixed point continuation's paper.
    rank : int or None
        Columns of Q; None: the largest r with r (r + 1) / 2 <= m, m the entries of T, as Hu and Kwok have it.
    tol, max_iter
        Relative gap to end at, to the best kernel in this basis; most steps.
    n_neighbors, sigma, laplacian, standardize, contradictions, memory_limit, client, n_jobs, random_state
        As in `dkl.PairwiseKernelLearner`.

    Attributes
    ----------
    factor_ : (n, r) V of K = V V'
    relative_gap_ : of K, to the least objective of kernels in this basis
    n_iter_ : steps; scale_ (means and spreads of the columns, or None), n_features_in_

    See Also
    --------
    dkl.LaplacianKernelLearner : The same basis without tr(K L), by a second-order method.
    sklearn.decomposition.KernelPCA : Coordinates of a kernel that is given.

    References
    ----------
    F. Shang, L. C. Jiao, F. Wang, Semi-supervised learning with mixed knowledge information, KDD 2012.
    S. Ma, D. Goldfarb, L. Chen, Fixed point and Bregman iterative methods for matrix rank minimization, Mathematical Programming 128,
    2011.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dkl.baselines import MFPC
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MFPC(tol=0.5, n_jobs=1).fit(X, must_link=[[0, 1], [60, 70]], cannot_link=[[0, 60], [1, 120]])
    >>> bool(model.relative_gap_ < 0.5)
    True
    """

    SETTINGS = MFPCSettings
    _matrices = 0

    def __init__(
        self,
        gamma: float = 100.0,
        *,
        mu: float = 1e-8,
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
        super().__init__(
            gamma, rank=rank, n_neighbors=n_neighbors, sigma=sigma, laplacian=laplacian, standardize=standardize,
            contradictions=contradictions, tol=tol, max_iter=max_iter, memory_limit=memory_limit, client=client,
            n_jobs=n_jobs, random_state=random_state,
        )  # fmt: skip
        self.mu = mu

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Iterate from U = 0."""
        n = int(graph.laplacian.shape[0])
        rank = paper_rank(n + 2 * len(pairs.i)) if self.rank is None else int(self.rank)
        Q, problem = in_smooth_basis(graph.laplacian, pairs, min(rank, n), float(self.gamma))
        found = solve_fixed_points(problem, mu=self.mu, tol=self.tol, max_iter=self.max_iter)
        self.factor_, self.relative_gap_, self.n_iter_ = Q @ found.factor, found.relative_gap, found.n_iter
        return found.relative_gap
