"""Base of the learners of a Mahalanobis distance (x - z)' W (x - z), with metric-learn's names."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.row_pieces import refuse_extreme
from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import DataWarning, InputError
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel, lazily
from dkl.estimators.base.pair_threshold import (
    MahalanobisMetric,
    best_threshold,
    check_strategy,
    checked_alike,
    lengths,
)
from dkl.estimators.base.rules import Real
from dkl.estimators.base.settings import Settings, check_parameters
from dkl.estimators.base.side_information import SideInformation, side_information
from dkl.estimators.base.standardize import scaled_columns
from dkl.estimators.base.validation import checked_rows
from dkl.io.plain_arrays import in_memory, refuse_promise, refuse_text
from dkl.linalg.eigen.principal_coordinates import metric_components
from dkl.linalg.rows.column_moments import middle_row
from dkl.resources import parse_bytes
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets

if TYPE_CHECKING:
    from typing import Self

    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserPairs, UserRows

Matrix = NDArray[np.float64]
NEGLIGIBLE = 1e-10
"""Share of the largest variance below which a direction is one that the data do not have."""


class MahalanobisLearner(CoordinateKernel, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClientParameter):
    """Base of metric learners: `fit` finds W = components_' components_; distances and scores follow."""

    SETTINGS: ClassVar[type[Settings]]
    n_in: int
    n_out: int
    contradictions: str
    components_: Matrix

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # made dense: W is d x d
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _check_columns(self, d: int) -> None:
        """Raise InputError for parameters that rows of d columns do not allow."""

    def _before_search(self, codes: NDArray[np.int64], n_features: int) -> None:
        """Raise MemoryBudgetError where classes (n,) alone show that the fit has no room: neighbors take far longer to find."""

    def _resolve(self, X: UserRows, y: UserLabels, **given: Any) -> tuple[Matrix, SideInformation]:
        """Check the input and return (rows (n, d) dense, side information); InputError if it is invalid."""
        check_parameters(self, self.SETTINGS)
        of_tuples = rows_of_tuples(X, y)
        if of_tuples is not None:
            if any(value is not None for value in given.values()):
                raise InputError("tuples of points say it all", got="tuples and more", wanted="fit(tuples, y) alone")
            (X, given), y = of_tuples, None
        found = checked_rows(self, X, reset=True, least=2)
        self._check_columns(int(found.shape[1]))
        rows = np.asarray(found.toarray() if sp.issparse(found) else found, np.float64)
        refuse_extreme(rows)
        side = side_information(
            type(self).__name__,
            rows,
            y=y,
            n_in=self.n_in,
            n_out=self.n_out,
            contradictions=self.contradictions,
            memory_limit=parse_bytes(getattr(self, "memory_limit", None)),
            before_search=lambda codes: self._before_search(codes, int(rows.shape[1])),
            **given,
        )
        return rows, side

    def _adopt(self, W: Matrix) -> None:
        """Keep W (d, d) positive semidefinite, as components in descending order of their eigenvalues, and forget any threshold."""
        self.__dict__.pop("threshold_", None)
        with blas_threads_for(len(W)):
            self.components_ = metric_components(W)

    def get_mahalanobis_matrix(self) -> Matrix:
        """Return W (d, d) in the units of the given rows: standardized columns are divided by their spreads."""
        components = self._components_of_given()
        return np.asarray(components.T @ components)

    def get_metric(self) -> MahalanobisMetric:
        """Return the learned distance as a function of two rows (d,), for `metric=` of scikit-learn and for SciPy.

        It can be pickled, and keeps to this fit where the learner is fitted again. `metric(u, v, squared=True)` returns the square.
        Where rows are many, distances of transformed rows (`transform`) are the same and far faster: no function is called for a pair.

        Returns
        -------
        function of u (d,) and v (d,), which returns a float

        Examples
        --------
        >>> from sklearn.neighbors import NearestNeighbors
        >>> from dkl import LogDetMetricLearner
        >>> X = [[0.0, 0.0], [0.0, 4.0], [1.0, 0.0], [1.0, 4.0]]
        >>> model = LogDetMetricLearner(loss="log", gamma=10.0).fit(X, triplets=[[0, 1, 2], [2, 3, 0]])
        >>> nearest = NearestNeighbors(n_neighbors=2, metric=model.get_metric()).fit(X)
        >>> nearest.kneighbors(X[:1], return_distance=False)
        array([[0, 1]])
        """
        return MahalanobisMetric(self._components_of_given())

    def _components_of_given(self) -> Matrix:
        """Return a new array, L (k, d) in the units of the given rows."""
        check_is_fitted(self)
        scale = getattr(self, "scale_", None)
        return self.components_.copy() if scale is None else self.components_ / scale.spreads

    def transform(self, X: UserRows) -> Matrix:
        """Return rows (m, k) whose Euclidean distances are the learned distances of the rows X (m, d), k = len(components_).

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "transform", X, np.empty((0, self._n_features_out)))
        return np.asarray(checked_rows(self, X, reset=False) @ self.components_.T)

    def pair_distance(self, pairs: UserPairs) -> Matrix:
        """Return the learned distances (m,) sqrt((x - z)' W (x - z)) of pairs of points (m, 2, d)."""
        check_is_fitted(self)
        points = _checked_pairs(pairs, self.n_features_in_)
        if len(points):  # no rows at all cannot be scaled
            points = scaled_columns(self, points.reshape(-1, self.n_features_in_)).reshape(points.shape)
        return lengths((points[:, 0] - points[:, 1]) @ self.components_.T)

    def pair_score(self, pairs: UserPairs) -> Matrix:
        """Return the negative distances (m,), as in metric-learn: the larger, the more similar."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: UserPairs) -> Matrix:
        """Return `pair_distance`, by metric-learn's older name."""
        return self.pair_distance(pairs)

    # -- whether pairs are alike ---------------------------------------------------------------------------------------

    def calibrate_threshold(
        self,
        pairs: UserPairs,
        alike: UserLabels,
        strategy: str = "accuracy",
        *,
        min_rate: float | None = None,
        beta: float | None = None,
    ) -> Self:
        """Choose the distance up to which `predict_pairs` takes pairs as alike: the best one for pairs of which it is known.

        Take pairs that the metric has not learned from: it has brought those that it knows together, or apart. `fit` forgets the
        threshold. Of `dkl.Pairs` of the rows X: `ends, alike = pairs.to_metric_learn()`, then `X[ends], alike`.

        Parameters
        ----------
        pairs : (m, 2, d) points, as in `pair_distance`
        alike : (m,) +1 for alike and -1 for not, or booleans; some of each
        strategy : "accuracy", "f_beta", "max_tpr" or "max_tnr"
            What is largest: the share of right answers; F-beta of the pairs taken as alike; the share of alike pairs that are taken
            so, where at least `min_rate` of the others are not; or the other way round. Of equally good thresholds the smallest is
            taken, and of "max_tnr" the largest: the other share is then largest, too.
        min_rate : number from 0 to 1
            Of "max_tpr" and "max_tnr", which need it.
        beta : number above 0, by default 1
            Of "f_beta": how many times recall counts as much as precision.

        Returns
        -------
        self
            With `threshold_`, in the middle between the two distances that it parts.

        Raises
        ------
        InputError
            For pairs, signs, a strategy or a number of it that are not valid.

        Examples
        --------
        >>> from dkl import LogDetMetricLearner
        >>> X = [[0.0, 0.0], [0.0, 4.0], [1.0, 0.0], [1.0, 4.0]]
        >>> model = LogDetMetricLearner(loss="log", gamma=10.0).fit(X, triplets=[[0, 1, 2], [2, 3, 0]])
        >>> known = [[[5.0, 0.0], [5.0, 3.0]], [[5.0, 0.0], [7.0, 0.0]]]
        >>> model.calibrate_threshold(known, [1, -1]).predict_pairs([[[0.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [9.0, 0.0]]])
        array([ 1, -1])
        """
        check_strategy(strategy, min_rate, beta)
        distances = self.pair_distance(pairs)
        self.threshold_ = best_threshold(distances, checked_alike(alike, len(distances)), strategy, min_rate, beta)
        return self

    def set_threshold(self, threshold: float) -> Self:
        """Set the distance up to which `predict_pairs` takes pairs as alike; InputError unless it is a finite number.

        Below 0 no pair is alike.
        """
        check_is_fitted(self)
        if not (rule := Real()).accepts(threshold):
            raise InputError("not a distance", where="threshold", got=repr(threshold), wanted=rule.wanted)
        self.threshold_ = float(threshold)
        return self

    def predict_pairs(self, pairs: UserPairs) -> NDArray[np.int64]:
        """Return whether pairs of points (m, 2, d) are alike, (m,): +1 where their distance is at most `threshold_`, else -1.

        Raises
        ------
        InputError
            For pairs that `pair_distance` refuses, and without a threshold.
        """
        check_is_fitted(self)
        if not hasattr(self, "threshold_"):
            remedy = "call calibrate_threshold(pairs, alike) or set_threshold(distance) after fit"
            raise InputError("no distance up to which pairs are alike", where="threshold_", remedy=remedy)
        return np.where(self.pair_distance(pairs) <= self.threshold_, 1, -1)

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def _checked_pairs(pairs: UserPairs, d: int) -> Matrix:
    """Return the pairs as finite points (m, 2, d); InputError if invalid."""
    pairs = in_memory(pairs, "pairs")
    refuse_text(pairs, "pairs")
    wanted = f"(m, 2, {d}), points"
    try:
        given = np.asarray(pairs)
        points = np.asarray(given, np.float64) if given.dtype.kind in "biufO" else None
    except (TypeError, ValueError):  # rows of different lengths, or objects that are no numbers
        points = None
    if points is None or points.ndim != 3 or points.shape[1:] != (2, d):
        got = type(pairs).__name__ if points is None else f"shape {points.shape}"
        raise InputError("not pairs of points", where="pairs", got=got, wanted=wanted)
    if not np.isfinite(points).all():
        at = ", ".join(map(str, np.argwhere(~np.isfinite(points))[0].tolist()))
        raise InputError("not finite", where=f"pairs[{at}]", remedy="drop the pair, or fill the gap")
    return points


def _is_list_of_tuples(X: UserRows) -> bool:
    try:
        return isinstance(X, (list, tuple)) and np.ndim(X) == 3
    except ValueError:  # rows of different lengths, which scikit-learn's check refuses in its own words
        return False


def rows_of_tuples(X: UserRows, y: UserLabels) -> tuple[Matrix, dict[str, object]] | None:
    """Return (rows (n, d), arguments for `fit`) of metric-learn's tuples of points; None for other X.

    X (m, 2, d) with y (m,) of +1 and -1 are must-link and cannot-link pairs; (m, 3, d) are triplets (anchor, similar, dissimilar).
    Equal points are one row.
    """
    refuse_promise(X, "X")
    if getattr(X, "ndim", None) != 3 and not _is_list_of_tuples(X):
        return None
    X = in_memory(X, "X")
    refuse_text(X, "X")
    points = np.asarray(X, np.float64)
    m, size, d = points.shape
    if size not in (2, 3) or not m:
        raise InputError(
            "not tuples of points", where="X", got=f"shape {points.shape}", wanted="(m, 2, d) or (m, 3, d)"
        )
    rows, number = np.unique(points.reshape(-1, d), axis=0, return_inverse=True)
    tuples = number.reshape(m, size)
    if size == 3:
        if y is not None:
            raise InputError("triplets have no labels", where="y", got=type(y).__name__, wanted="None")
        return rows, {"triplets": Triplets(tuples[_of_different_points(tuples, "triplets")])}
    if y is None:
        raise InputError("pairs without their signs", where="y", got=None, wanted=f"{m} values +1 or -1")
    signs = np.asarray(y)
    chosen = _of_different_points(tuples, "pairs") if signs.shape == (m,) else np.ones(m, bool)
    return rows, {"pairs": Pairs.from_metric_learn(tuples[chosen], signs[chosen] if signs.shape == (m,) else y)}


def _of_different_points(tuples: NDArray[np.intp], what: str) -> NDArray[np.bool_]:
    """Return which tuples (m, 2) or (m, 3) of row numbers have no row twice; a DataWarning counts others.

    Whatever is learned, equal points are at distance 0, so such a tuple says nothing, or what cannot be. Raises InputError where
    no tuple is left.
    """
    ordered = np.sort(tuples, axis=1)
    chosen = (ordered[:, 1:] != ordered[:, :-1]).all(axis=1)
    count = int(np.count_nonzero(~chosen))
    if count == len(tuples):
        raise InputError(
            f"equal points in each of the {what}", where="X", got=f"{count:,} {what}", wanted="different points"
        )
    if count:
        first, rest = int(np.argmin(chosen)), "are" if count > 1 else "is"
        text = f"{count:,} of {len(tuples):,} {what} {rest} left out: equal points, whose distance is always 0 (first: X[{first}])"
        warnings.warn(text, DataWarning, stacklevel=4)
    return chosen


def prior_metric(prior: str, rows: Matrix) -> Matrix:
    """Return W0 (d, d): the identity, or the inverse of the rows' covariance, made positive definite.

    Directions in which rows do not vary have the weight of the one in which they vary least.
    """
    d = rows.shape[1]
    if prior == "identity":
        return np.eye(d)
    with blas_threads_for(d):
        values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(rows - middle_row(rows), rowvar=False)))
    varies = values > NEGLIGIBLE * max(float(values[-1]), 0.0)
    if not varies.any():
        return np.eye(d)
    values = np.where(varies, values, values[varies].min())
    with blas_threads_for(d):
        W0 = (vectors / values) @ vectors.T
    return 0.5 * (W0 + W0.T)


def row_spread(rows: Matrix) -> Matrix:
    """Return T (r, d), r = min(n, d), with T'T = X'X of the rows (n, d) about their mean X, but for a factor."""
    with blas_threads_for(rows.shape[1]):
        # First about a row: rows near it have exact differences, however far from 0 they are.
        X = rows - middle_row(rows)
        X -= X.mean(axis=0)
        X /= float(np.abs(X).max()) or 1.0
        # raw: Q is never formed.
        return np.ascontiguousarray(scipy.linalg.qr(X, mode="raw", overwrite_a=True, check_finite=False)[1])
