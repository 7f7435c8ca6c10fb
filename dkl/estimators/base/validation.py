"""Checks of what users pass, by scikit-learn and reported as dkl's errors: one line, with the place of a bad value; and its types.

The types, one a kind, are for annotations alone.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state, compute_class_weight
from sklearn.utils.validation import _check_sample_weight, validate_data

from dkl.blocks.memory_plan import check_size
from dkl.blocks.rows.row_sources import RowSource, is_dask, is_dask_frame, row_source
from dkl.errors import InputError, InputTypeError
from dkl.estimators.base.standardize import fit_columns, scaled_columns
from dkl.io.plain_arrays import (
    first_not_finite,
    in_memory,
    not_finite,
    refuse_dates,
    refuse_masked,
    refuse_promise,
    refuse_rounded,
    refuse_text,
)
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from sklearn.base import BaseEstimator

    from dkl.linalg.rows import Rows
    from dkl.problems.logdet.losses import Loss
    from dkl.solvers.watch import Callback

    UserRows: TypeAlias = object
    """Rows (n, d): an array, a data frame, a sparse matrix, a Dask array, a stored array, a path, or lists of numbers."""
    UserLabels: TypeAlias = object
    """Labels or targets (n,): an array, a series, a list or a path of numbers or names, or None."""
    UserPairs: TypeAlias = object
    """Pairs or triplets of rows: `dkl.Pairs`, `dkl.Triplets`, integers (m, 2) or (m, 3), or None."""
    UserConstraints: TypeAlias = object
    """Symmetric matrices A_t (n, n), sparse or dense, in a list, or one table (m, 4) of their entries: constraint, i, j, value."""
    UserWeights: TypeAlias = object
    """Numbers (m,) >= 0 of rows or of pairs; None for equal weights."""
    UserSeed: TypeAlias = int | np.integer | np.random.RandomState | np.random.Generator | None
    """Seed of all that is random; None for a fresh one."""
    UserCallbacks: TypeAlias = Callback | Iterable[Callback] | None
    """Functions that are called with each row of the history."""
    UserFolder: TypeAlias = str | os.PathLike[str] | None
    """Path of a folder or file."""
    UserKernel: TypeAlias = str | Callable[..., object]
    """Kernel: its name at scikit-learn, or a function of two arrays of rows."""
    UserParams: TypeAlias = dict[str, Any]
    """Parameters of a kernel or a loss, by name."""
    CheckedRows: TypeAlias = Rows | RowSource
    """Rows after their check: in memory, or a source of them in place."""
    UserLoss: TypeAlias = str | Loss
    """Loss of triplets, pairs or constraints: its name, or an object with its value and slopes."""


SMALL_INTEGERS = (np.uint8, np.int8, np.uint16, np.int16)
FEW_BYTES = 100_000
"""Largest bytes of rows that are checked here first, as scikit-learn's checks take twice as long as a prediction of one row."""


def checked_rows(estimator: BaseEstimator, X: Any, *, reset: bool, least: int = 1, small_integers: bool = False) -> Any:
    """Check X (n, d) by scikit-learn's `validate_data`, and standardize it.

    Returns an ndarray or CSR of float64, float32 or small integers (images, counts), C-contiguous or not. Integers are
    made floating a block at a time where they are worked on, not all at once here. What is elsewhere is read into this
    process.

    Standardized as the estimator's parameter asks for (reset), or as those that it has learned from (base/standardize.py).

    Raises InputError for whatever it refuses, for dates and records, which it would turn into numbers, and for integers that
    it would round.
    """
    # scikit-learn's checks take twice as long as the prediction of a single row.
    if not reset and least == 1 and _is_plain(estimator, X):
        return scaled_columns(estimator, X)
    X = _read(estimator, X)
    # Before scikit-learn, which would take the values below a mask for numbers.
    refuse_masked(X, "X")
    kind = getattr(getattr(X, "dtype", None), "kind", "f")
    if kind in "mMV":
        raise InputError("rows must be real numbers", where="X", got=f"dtype {X.dtype}", wanted="float32 or float64")
    refuse_text(X, "X")
    refuse_dates(X, "X")
    refuse_rounded(X)
    try:
        # scikit-learn sums all values first, and looks at each of them only if the sum is not finite.
        with np.errstate(over="ignore", invalid="ignore"):
            rows = validate_data(
                estimator,
                X,
                accept_sparse=not is_precomputed(estimator) and "csr",
                dtype=[np.float64, np.float32, *(SMALL_INTEGERS if small_integers else ())],
                reset=reset,
                ensure_min_samples=least,
            )
    except (TypeError, OverflowError) as error:
        raise InputTypeError(in_short(error), where="X", got=type(X).__name__, wanted="an array of numbers") from error
    except ValueError as error:
        raise (_not_finite(X) or InputError(in_short(error), where="X")) from error
    return fit_columns(estimator, rows) if reset else scaled_columns(estimator, rows)


def _is_plain(estimator: BaseEstimator, X: UserRows) -> bool:
    """Return whether X is a few rows that scikit-learn's checks of a fitted estimator would return unchanged, without a warning."""
    return (
        type(X) is np.ndarray
        and X.dtype in (np.float64, np.float32)
        and X.ndim == 2
        and 0 < X.nbytes <= FEW_BYTES
        and X.shape[1] == getattr(estimator, "n_features_in_", None)
        and not hasattr(estimator, "feature_names_in_")  # else there is a warning of rows without names
        and bool(np.isfinite(X).all())
    )


def given_rows(estimator: BaseEstimator, X: UserRows, *, reset: bool, small_integers: bool = False) -> Any:
    """Return X for a pass: large data as a source in place, all else checked by scikit-learn."""
    if is_large(X):
        return rows_in_place(estimator, X, reset=reset)
    return checked_rows(estimator, X, reset=reset, small_integers=small_integers)


def rows_in_place(estimator: BaseEstimator, X: Any, *, reset: bool) -> RowSource:
    """Return X as a source in place, its features counted and named as by scikit-learn.

    Its values are checked by blocks as they are read.
    """
    source = row_source(X)
    if is_precomputed(estimator) and source.is_sparse:
        raise InputError("a precomputed kernel must be dense", where="X", got="sparse blocks", remedy="make them dense")
    if reset and not is_dask_frame(X):
        estimator.n_features_in_ = source.n_features
        # Of an earlier fit: names that these rows do not have would be compared with those of rows to predict.
        estimator.__dict__.pop("feature_names_in_", None)
    else:
        check_columns(estimator, X, source.n_features, reset=reset)
    return fit_columns(estimator, source) if reset else scaled_columns(estimator, source)


def check_columns(estimator: BaseEstimator, X: Any, n_features: int, *, reset: bool = False) -> None:
    """Raise InputError where X, whose values stay where they are, has not the columns learned from, a Dask data frame by their names.

    reset: of a data frame; learn them instead.
    """
    if is_dask_frame(X):
        try:
            validate_data(estimator, X._meta, reset=reset, skip_check_array=True)
        except ValueError as error:
            raise InputError(in_short(error), where="X") from error
    elif n_features != estimator.n_features_in_:
        expected = f"{type(estimator).__name__} is expecting {estimator.n_features_in_} features as input"
        raise InputError(f"X has {n_features} features, but {expected}", where="X")


def _read(estimator: BaseEstimator, X: Any) -> Any:
    """Return X, with large data read into memory (a Dask data frame as pandas').

    Raises MemoryBudgetError if it does not fit.
    """
    if not is_large(X):
        return X
    source = row_source(X)
    if not source.is_in_place:
        limit = parse_bytes(getattr(estimator, "memory_limit", None))
        check_size({"the rows": source.n * source.row_bytes}, limit, "raise memory_limit, or learn from fewer rows")
    return X.compute() if is_dask_frame(X) else source.read(0, source.n)


def is_large(X: UserRows) -> bool:
    """Return whether X stays in place (on disk, in another library's array); else scikit-learn checks it.

    InputError for a Delayed or a Future, which has whatever it is asked for, or a list of such.
    """
    if type(X) is np.ndarray and X.dtype != object:
        return False
    refuse_promise(X, "X")
    if is_dask(X) or isinstance(X, (str, os.PathLike, np.memmap, RowSource)):
        return True
    if isinstance(X, np.ndarray) or sp.issparse(X):
        return False
    return hasattr(X, "shape") and hasattr(X, "dtype") and hasattr(X, "__getitem__") and not hasattr(X, "iloc")


def is_precomputed(estimator: BaseEstimator) -> bool:
    """Return whether the estimator's rows are rows of a kernel matrix."""
    kernel = getattr(estimator, "kernel", None)
    return isinstance(kernel, str) and kernel == "precomputed"


def in_short(error: Exception) -> str:
    """Return the message without printed arrays and foreign advice; lists of names in its line."""
    first, *rest = str(error).replace(":\n- ", ": ").replace("\n- ", ", ").split("\n")
    names = "".join(f"; {line.rstrip('.')}" for line in rest if line.startswith("Feature names"))
    return " ".join([first.rstrip(".") + names, *(line for line in rest if line.startswith("Reshape"))])


def _not_finite(X: Any) -> InputError | None:
    """Return the error that names the first NaN or infinity of a table, list or array, if there is one."""
    is_frame = hasattr(X, "iloc") and hasattr(X, "columns")
    if getattr(getattr(X, "dtype", None), "kind", "f") == "c":
        return None
    try:
        rows = (
            X.to_numpy(np.float64, na_value=np.nan) if is_frame else X if sp.issparse(X) else np.asarray(X, np.float64)
        )
    except (TypeError, ValueError, OverflowError):  # not numbers, or rows of different lengths
        return None
    found = first_not_finite(rows) if rows.ndim == 2 else None
    if found is None:
        return None
    row, column, value = found
    return not_finite(f"X[{row}, {column}]{f', column {X.columns[column]!r}' if is_frame else ''}", value)


def random_stream(random_state: UserSeed) -> np.random.RandomState:
    """Return NumPy's RandomState from None, an integer, a RandomState or a Generator."""
    if isinstance(random_state, np.random.Generator):
        return np.random.RandomState(random_state.integers(2**32, size=4, dtype=np.uint32))
    try:
        return check_random_state(random_state)
    except (ValueError, TypeError) as error:
        wanted = "None, an integer from 0 to 2**32 - 1, a RandomState or a Generator"
        raise InputError("not a seed", where="random_state", got=repr(random_state), wanted=wanted) from error


# Checks of weights of samples and classes.


def checked_weights(sample_weight: UserWeights, n: int) -> NDArray[np.float64] | None:
    """Return the weights (n,), none negative, of a finite positive sum; None stays None."""
    if sample_weight is None:
        return None
    sample_weight = in_memory(sample_weight, "sample_weight")
    refuse_text(sample_weight, "sample_weight")
    try:
        found = _check_sample_weight(sample_weight, np.empty((n, 1)), dtype=np.float64, ensure_non_negative=True)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(in_short(error), where="sample_weight") from error
    with np.errstate(over="ignore"):
        total = float(found.sum())
    if not 0 < total < np.inf:
        what = "not weights" if total else "all weights are zero"
        raise InputError(what, where="sample_weight", got=f"a sum of {total:g}", wanted="a finite one > 0")
    return np.asarray(found)


def box_bounds(
    C: float,
    class_weight: object,
    classes: NDArray,
    labels: NDArray[np.intp],
    sample_weight: NDArray[np.float64] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (C_i (n,), weight of each class): C_i is C times class weight times sample weight.

    "balanced" counts rows, as in SVC.
    """
    if class_weight is None:
        weights = np.ones(len(classes))  # without scikit-learn's checks: a twentieth of a fit of 150 rows
    else:
        try:
            weights = compute_class_weight(class_weight, classes=classes, y=classes[labels])
        except (ValueError, TypeError) as error:
            raise InputError(" ".join(str(error).split()), where="class_weight") from error
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InputError("not weights", where="class_weight", got=repr(class_weight), wanted="finite numbers >= 0")
    bounds = C * weights[labels]
    return bounds if sample_weight is None else bounds * sample_weight, weights


def refuse_large_bounds(bounds: NDArray[np.float64], factor: float) -> None:
    """Raise InputError for bounds at which |alpha|^4 may be beyond every double."""
    largest = float(np.finfo(np.float64).max) ** 0.25
    size = factor * float(bounds.max()) * float(np.sqrt(len(bounds)))
    if size > largest / 10:  # products with a kernel and gaps are larger than |alpha|
        raise InputError(
            "bounds are so large that |alpha|^4 overflows",
            where="C",
            got=f"C times weights of up to {factor * float(bounds.max()):g}",
            wanted=f"at most {largest / 10 / np.sqrt(len(bounds)):.3g}",
        )
