"""Folds of rows for cross-validation: drawn, or from a splitter of scikit-learn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from dkl.errors import InputError


def random_folds(n: int, sample_weight: NDArray[np.float64] | None, n_folds: int, seed: int) -> NDArray[np.intp]:
    """Return random folds (n,), equal in size up to a row, of rows with a weight; -1 for the others."""
    rows = np.arange(n) if sample_weight is None else np.flatnonzero(sample_weight)
    if len(rows) < n_folds:
        raise InputError("more folds than rows with a weight", where="cv", got=n_folds, wanted=f"at most {len(rows)}")
    found = np.full(n, -1, np.intp)
    found[np.random.default_rng([seed, 1]).permutation(rows)] = np.arange(len(rows)) % n_folds
    return found


def fold_numbers(
    cv: object, targets: NDArray[np.float64], sample_weight: NDArray[np.float64] | None = None
) -> NDArray[np.intp]:
    """Return the test set (n,) that each row is in; the splits' test sets must partition the rows."""
    n = len(targets)
    found = np.full(n, -1, np.intp)
    try:
        rows = np.arange(n)
        given = check_cv(cv).split(np.empty((n, 1)), targets[:, 0])
        splits = [(rows[np.asarray(train)], rows[np.asarray(test)]) for train, test in given]
        held_out = np.zeros(n, np.intp)
        whole = len(splits) > 1
        for number, (train, test) in enumerate(splits):
            held_out[test] += 1
            found[test] = number
            rest = np.ones(n, bool)
            rest[test] = False
            whole &= bool(len(test) and rest.any()) and np.array_equal(np.sort(train), np.flatnonzero(rest))
    except (TypeError, ValueError, IndexError) as error:
        raise InputError("not splits of these rows", where="cv", got=error) from error
    if not (whole and (held_out == 1).all()):
        wanted = "2 or more test sets that hold out each row once, and train sets of all other rows"
        raise InputError("not a partition of the rows", where="cv", got=repr(cv)[:80], wanted=wanted)
    weighed = found if sample_weight is None else found[sample_weight > 0]
    if len(np.unique(weighed)) < len(splits):
        raise InputError("a test set has no row with a weight", where="cv", got=repr(cv)[:80])
    return found
