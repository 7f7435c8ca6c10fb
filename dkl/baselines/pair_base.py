"""Bases of what learns from pairs: the checks of all, and settings, graph and unseen rows of the methods for kernels."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.graph.neighbor_graph import Graph, build_graph
from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel, lazily
from dkl.estimators.base.prior_kernels import neighbor_means
from dkl.estimators.base.rules import CONTRADICTIONS, WIDTH, Either, Integer, NotGiven, Real, Size, Word, width_rule
from dkl.estimators.base.settings import IN_ALL, Settings, Standardize, check_parameters
from dkl.estimators.base.side_information import given_labels, note_unused, resolve_pairs
from dkl.estimators.base.validation import checked_rows
from dkl.problems.pairwise.terms import check_gamma
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserPairs, UserRows, UserSeed
    from dkl.side_information.pairs import Pairs

Matrix = NDArray[np.float64]
FEWER = "learn from fewer rows, or by dkl.PairwiseKernelLearner"


class LearnsFromPairs(BaseEstimator):
    """Base of estimators that learn from pairs: the checks of parameters, rows and pairs."""

    SETTINGS: ClassVar[type[Settings]]
    contradictions: str
    random_state: UserSeed

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        return tags

    def fit(
        self, X: UserRows, y: UserLabels = None, *, must_link: UserPairs = None, cannot_link: UserPairs = None,
        pairs: UserPairs = None, sample_ids: UserLabels = None,
    ) -> Any:  # fmt: skip
        """Learn from the rows of X, and from pairs or labels as in `dkl.PairwiseKernelLearner.fit`.

        Warns with ConvergenceWarning where the method ends before it has converged.

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
        if all(given is None for given in (y, must_link, cannot_link, pairs)):
            what = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InputError(
                what, remedy="pass must_link and cannot_link, or pairs, or y with -1, None or NaN for unlabeled"
            )
        note_unused(y, sample_ids, (must_link, cannot_link, pairs), "must_link, cannot_link or pairs")
        resolved = resolve_pairs(
            int(rows.shape[0]), y=given_labels(y), must_link=must_link, cannot_link=cannot_link, pairs=pairs,
            sample_ids=sample_ids, random_state=self.random_state, contradictions=self.contradictions,
        )  # fmt: skip
        self._learn(rows, resolved)
        return self

    def _learn(self, rows: Any, pairs: Pairs) -> None:
        """Set the fitted attributes, from checked rows and pairs; warnings have the stacklevel 3."""
        raise NotImplementedError


@dataclass(frozen=True)
class PairKernelSettings(Settings):
    """Settings that all methods share: gamma, the graph, and when to end."""

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
    max_iter: Annotated[int, Integer(1), "Most kernels, steps or sweeps: what the method repeats."] = 500
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".'] = None

    in_python = IN_ALL


class PairKernelBaseline(
    CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, LearnsFromPairs, ClientParameter
):
    """Base of the methods for kernels: the graph, and the factor of unseen rows."""

    factor_: Matrix

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

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _learn(self, rows: Any, pairs: Pairs) -> None:
        """Build the graph, solve, and warn of a large gap."""
        n = int(rows.shape[0])
        check_size({f"matrices of all {n:,} rows": self._matrices * 8 * n * n}, parse_bytes(self.memory_limit), FEWER)
        if self.laplacian == "normalized":  # whose largest entry is 1, before any neighbor is searched
            check_gamma(float(self.gamma), 1.0)
        graph = build_graph(
            rows, n_neighbors=min(self.n_neighbors, n - 1), sigma=width_rule(self.sigma, "average"),
            laplacian=self.laplacian, warns_of_cuts=False, memory_limit=parse_bytes(self.memory_limit),
            session=self._session(),
        )  # fmt: skip
        check_gamma(float(self.gamma), float(graph.laplacian.diagonal().max()))
        with blas_threads_for(n):
            gap = self._solve(graph, pairs)
        if gap > self.tol:
            warnings.warn(
                f"the relative gap is {gap:.3g}, above tol={self.tol:g}: raise max_iter or rank",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip
        self._rows, self._similarity = rows, graph.similarity

    def transform(self, X: UserRows) -> Matrix:
        """Return the factor's rows for the rows of X: their own, or the mean of their neighbors', weighted by similarity.

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        rows = checked_rows(self, X, reset=False)
        return np.asarray(neighbor_means(rows, self._rows, self._similarity) @ self.factor_)

    @property
    def _n_features_out(self) -> int:
        return int(self.factor_.shape[1])

    _matrices: ClassVar[int]
    """Number of n x n matrices that `_solve` holds at a time."""

    def _solve(self, graph: Graph, pairs: Pairs) -> float:
        """Set the fitted attributes, and return the relative gap."""
        raise NotImplementedError
