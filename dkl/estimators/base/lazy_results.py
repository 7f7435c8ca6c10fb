"""Results of fitted learners for rows in Dask's collections, as dask arrays."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dkl.blocks.rows.lazy_results import lazy_results, lazy_rows
from dkl.estimators.base.validation import check_columns

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


def lazily(learner: BaseEstimator, verb: str, X: Any, like: NDArray) -> Any:
    """Return learner.verb(X) of a Dask array or data frame X as a dask array by the chunks of its rows; nothing is computed.

    verb: name of a method; like: an empty array, (0,) or (0, k), of the type of its results. Each block has the bytes that the
    method returns for the block alone. Raises InputError for what is not two-dimensional, has no rows, or columns of other names or
    in another number than those learned from; values are checked when they are computed.
    """
    rows = lazy_rows(X)
    check_columns(learner, X, int(rows.shape[1]))
    model = copy.copy(learner)
    model.__dict__.pop("feature_names_in_", None)  # checked: blocks have no names
    # What a fit needs alone; and Dask has a thread for each block.
    model.__dict__.update({"client": None, "callbacks": None} | ({"n_jobs": 1} if hasattr(model, "n_jobs") else {}))
    return lazy_results(model, verb, rows, like)
