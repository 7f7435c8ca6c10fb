"""Base of the learners of a Mahalanobis distance (x - z)' W (x - z), with metric-learn's names."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.rows.row_sources import is_dask
from dkl.blocks.workers.dense_work import blas_threads_for
from dkl.errors import DataWarning, InputError
from dkl.estimators.base.lazy_results import lazily
from dkl.estimators.base.mixins import ClientParameter, CoordinateKernel
from dkl.estimators.base.settings import Settings, check_parameters
from dkl.estimators.base.side_information import SideInformation, side_information
from dkl.estimators.base.standardize import scaled_columns
from dkl.estimators.base.validation import checked_rows
from dkl.io.plain_arrays import in_memory, refuse_promise, refuse_text
from dkl.linalg.rows.column_scale import middle_row
from dkl.linalg.symmetric.symmetric_maps import metric_components
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.user_types import UserLabels, UserPairs, UserRows

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
        rows = np.asarray(found.toarray() if sp.issparse(found) else found, np.float64)
        side = side_information(
            type(self).__name__,
            rows,
            y=y,
            n_in=self.n_in,
            n_out=self.n_out,
            contradictions=self.contradictions,
            before_search=lambda codes: self._before_search(codes, int(rows.shape[1])),
            **given,
        )
        return rows, side

    def _adopt(self, W: Matrix) -> None:
        """Keep W (d, d) positive semidefinite, as components in descending order of their eigenvalues."""
        with blas_threads_for(len(W)):
            self.components_ = metric_components(W)

    def get_mahalanobis_matrix(self) -> Matrix:
        """Return W (d, d) in the units of the given rows: standardized columns are divided by their spreads."""
        check_is_fitted(self)
        scale = getattr(self, "scale_", None)
        components = self.components_ if scale is None else self.components_ / scale.spreads
        return np.asarray(components.T @ components)

    def transform(self, X: UserRows) -> Matrix:
        """Return rows (m, d) whose Euclidean distances are the learned distances of the rows X (m, d).

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
        points = scaled_columns(self, points.reshape(-1, self.n_features_in_)).reshape(points.shape)
        apart = (points[:, 0] - points[:, 1]) @ self.components_.T
        # Squares of numbers about 1, by a power of 2: those of the points may be beyond double precision where distances are not.
        unit = 2.0 ** (np.frexp(np.abs(apart).max(axis=1, initial=0.0))[1] - 1.0)
        return np.asarray(unit * np.linalg.norm(apart / unit[:, None], axis=1))

    def pair_score(self, pairs: UserPairs) -> Matrix:
        """Return the negative distances (m,), as in metric-learn: the larger, the more similar."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: UserPairs) -> Matrix:
        """Return `pair_distance`, by metric-learn's older name."""
        return self.pair_distance(pairs)

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
    values, vectors = np.linalg.eigh(np.atleast_2d(np.cov(rows - middle_row(rows), rowvar=False)))
    varies = values > NEGLIGIBLE * max(float(values[-1]), 0.0)
    if not varies.any():
        return np.eye(d)
    values = np.where(varies, values, values[varies].min())
    W0 = (vectors / values) @ vectors.T
    return 0.5 * (W0 + W0.T)
