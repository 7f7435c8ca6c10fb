"""Bases of all estimators on kernel columns and of the regressors among them: parameters, checks, the pass over rows, prediction by blocks.

The baselines derive from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.blocks.rows.predictions import KeptPoints, rows_to_predict
from dkl.blocks.rows.row_sources import RowSource, is_dask
from dkl.errors import InputError
from dkl.estimators.base.mixins import KernelParameter, lazily
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.side_information import given_labels
from dkl.estimators.base.validation import checked_weights, given_rows, in_short, random_stream
from dkl.estimators.regression.columns.candidates import LEAST, Candidates, are_too_small, target_means
from dkl.estimators.regression.columns.fit import predicted
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.io.plain_arrays import in_memory, refuse_text
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import parse_bytes
from dkl.side_information.labels import require_targets

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from dkl.estimators.base.validation import UserLabels, UserRows, UserSeed, UserWeights


class KernelColumnsEstimator(KernelParameter):
    """Parameters of the kernel and of the choice of its columns, and what the estimators make of them."""

    gamma: float | str | None
    gamma_: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, object] | None
    n_columns: int
    columns: object
    dtype: str
    memory_limit: int | str | None
    n_jobs: int | None
    random_state: UserSeed

    SETTINGS: ClassVar[type[ColumnSettings]] = ColumnSettings
    SENT = ("kernel", "kernel_params")

    def _check_parameters(self) -> None:
        check_parameters(self, self.SETTINGS)
        parse_bytes(self.memory_limit)
        if self.kernel_params and not callable(self.kernel):
            raise InputError("only a function takes them", where="kernel_params", got=f"kernel={self.kernel!r}",
                             remedy="give gamma, degree or coef0 by these names")  # fmt: skip
        if not isinstance(self.columns, str):
            _check_columns(self.columns)

    def _kernel(self) -> Kernel:
        """Return the kernel of the fitted columns."""
        return Kernel(self.kernel, self.gamma_, self.degree, self.coef0, dict(self.kernel_params or {}))

    def _set_width(self, candidates: Candidates) -> None:
        """Set gamma_ to the width of the kernel that the candidates are columns of."""
        self.gamma_ = candidates.gamma

    @property
    def _given_columns(self) -> NDArray | None:
        return None if isinstance(self.columns, str) else np.asarray(self.columns)

    def _gathered(self, **known: object) -> Any:
        """Return the settings of the parameters; `known`: settings with values other than the parameters'."""
        return gathered(
            self.SETTINGS,
            self,
            **{
                "kernel": self.kernel,
                "kernel_params": dict(self.kernel_params or {}),
                "columns": self.columns if isinstance(self.columns, str) else "given",
                "seed": int(random_stream(self.random_state).randint(np.iinfo(np.int32).max)),
                "memory_limit": parse_bytes(self.memory_limit),
                **known,
            },
        )

    def _check_given(self, n: int) -> None:
        """Raise InputError where the given columns, or a precomputed kernel, do not fit n checked rows."""
        given = self._given_columns
        if given is not None and given.ndim == 1 and (given.min() < 0 or given.max() >= n):
            raise InputError("row numbers out of range", where="columns", got=f"{given.min()} to {given.max()}",
                             wanted=f"0 to {n - 1}")  # fmt: skip
        if given is not None and given.ndim == 2 and self._is_precomputed:
            raise InputError("a precomputed kernel has no points", where="columns", wanted="row numbers (M,)")
        if given is not None and given.ndim == 2 and given.shape[1] != self.n_features_in_:
            raise InputError("points of another number of features", where="columns", got=given.shape[1],
                             wanted=self.n_features_in_)  # fmt: skip
        if self._is_precomputed:
            check_square(n, self.n_features_in_)


def _check_columns(columns: object) -> None:
    """Require different row numbers, or points (M, d); InputError for other columns."""
    try:
        found = np.asarray(columns)
    except ValueError:
        found = np.empty(0, object)
    wanted = '"uniform", "rpcholesky", different row numbers (M,), or points (M, n_features)'
    whole = found.ndim == 1 and found.dtype.kind in "iu" and len(np.unique(found)) == found.size > 0
    points = found.ndim == 2 and found.size > 0 and found.dtype.kind in "iuf" and np.isfinite(found).all()
    if not (whole or points):
        raise InputError("not columns", where="columns", got=f"{type(columns).__name__}", wanted=wanted)


class KernelColumnsRegressor(RegressorMixin, KernelColumnsEstimator):
    """A model f(x) = sum_m w_m k(x, x_m) + c. Subclasses find the weights."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "coef_")

    def predict(self, X: UserRows) -> NDArray[np.float64]:
        """Return predictions (m,) or (m, T), by blocks of large X. With a precomputed kernel, X is (m, n).

        For X of Dask, a dask array.
        """
        check_is_fitted(self)
        if is_dask(X):
            return lazily(self, "predict", X, np.empty((0, *np.shape(self.intercept_))))
        given = given_rows(self, X, reset=False, small_integers=True)
        rows, kernel, points = (
            rows_to_predict(given, self._session(), self.memory_limit),
            self._kernel(),
            self.support_vectors_,
        )
        kept = self.__dict__.get("_kept_points")  # not of a pickle by an earlier version, nor of points set by hand
        if kept is not None and kept.points is points:
            points = kept.for_rows(rows, kernel)
        found = predicted(rows, kernel, points, self._coef, np.atleast_1d(self.intercept_))
        return found[:, 0] if self._is_flat else found

    # -- checks -------------------------------------------------------------------------------------------------------

    def _checked(
        self, X: UserRows, y: UserLabels, sample_weight: UserWeights
    ) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.float64]]:
        """Check the data; return (rows, targets (n, T) less their means, weights, means). Raises InputError."""
        if y is None:
            what = f"{type(self).__name__} requires y to be passed, but the target y is None"
            raise InputError(what, remedy="pass the targets")
        rows = given_rows(self, X, reset=True, small_integers=True)
        n = int(rows.shape[0]) if not isinstance(rows, RowSource) else rows.n
        targets = checked_targets(y, n)
        self._is_flat = targets.ndim == 1
        targets = targets.reshape(n, -1)
        weights = checked_weights(sample_weight, n)
        offsets = target_means(targets, weights) if self._fits_intercept else np.zeros(targets.shape[1])
        self._check_given(n)
        return rows, targets - offsets, weights, offsets

    @property
    def _fits_intercept(self) -> bool:
        return bool(getattr(self, "fit_intercept", False))

    def _set_weights(self, candidates: Candidates, weights: NDArray[np.float64], intercepts: NDArray) -> None:
        """Set coef_, intercept_, support_ and what `predict` needs, from weights (T, M) of normalized columns."""
        active = np.flatnonzero((weights != 0).any(axis=0))
        self._set_width(candidates)
        self._coef = weights[:, active] * candidates.scale[active]
        self.columns_ = candidates.indices
        self.support_ = candidates.indices[active]
        self.support_vectors_ = candidates.points[active]
        self._active, self._column_scale = active, candidates.scale[active]
        self._kept_points = KeptPoints(self.support_vectors_)
        self.n_columns_, self.n_active_ = len(candidates.scale), len(active)
        self.coef_ = self._coef[0] if self._is_flat else self._coef
        self.intercept_ = float(intercepts[0]) if self._is_flat else intercepts


def checked_targets(y: Any, n: int) -> NDArray[np.float64]:
    """Return targets y of n rows as an array (n,) or (n, T); InputError for what is no number, or cannot be squared."""
    y = in_memory(given_labels(y), "y")
    if sp.issparse(y):
        raise InputError("targets must be dense", where="y", remedy="call y.toarray()")
    refuse_text(y, "y")
    require_targets(y)
    try:
        found = np.asarray(y)
        if found.dtype.kind in "mMV":
            raise TypeError(f"targets must be real numbers, not {found.dtype}")
        with np.errstate(over="ignore", invalid="ignore"):  # of its sum; the square is looked at below
            found = check_array(found, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y")
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(in_short(error), where="y") from error
    if found.ndim not in (1, 2) or len(found) != n:
        got = f"shape {np.shape(y)}"
        raise InputError("inconsistent numbers of samples", where="y", got=got, wanted=f"({n},) or ({n}, T)")
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(np.vdot(found, found)):
            raise InputError("targets are too large to square", where="y", remedy="scale them")
    if are_too_small(found):
        raise InputError(
            "targets are too small to square", where="y", wanted=f"|y| >= {LEAST:.2g}", remedy="scale them"
        )
    return found
