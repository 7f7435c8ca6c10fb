"""The pairs that a learner's `fit` was given, in whichever of its forms, checked and ready for its rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkl.errors import InputError
from dkl.io.plain_arrays import in_memory
from dkl.side_information.labels import as_labels, encode_labels, most_pairs_of_labels, refuse_one_class, sample_pairs
from dkl.side_information.pair_checks import as_integers, inside_cross_validation
from dkl.side_information.pairs import Pairs


def resolve_pairs(
    n: int,
    *,
    y: object = None,
    must_link: object = None,
    cannot_link: object = None,
    pairs: Any = None,
    weights: object = None,
    sample_ids: object = None,
    random_state: int | np.integer | np.random.Generator | np.random.RandomState | None = None,
    contradictions: str = "raise",
    takes_weights: bool = False,
) -> Pairs:
    """Return the checked pairs of n rows, from whichever form the caller of `fit` used.

    Forms are plain arrays `must_link` and `cannot_link`, one `Pairs`, or labels `y`. Labels give all pairs of the labeled rows where
    there are few, else 5 of each kind a labeled row at random. Pairs take precedence over `y`, which a pipeline passes to every step.
    With `sample_ids` (n,), entries of the pairs are identifiers: pairs with an end elsewhere are left out. `weights`
    (n_must + n_cannot,) are those of plain arrays; a `Pairs` has its own. Only a learner that `takes_weights` may be given any.

    Inside scikit-learn's cross-validation, plain arrays are refused (they may have been cut to the length of the fold, or number the
    rows of the whole X), and so is a `Pairs` without `sample_ids`. A caller whose pairs are made for the rows of the fold passes
    `sample_ids=numpy.arange(n)`.

    Errors: `InputError`, `InconsistentPairsError` (see `Pairs.check`).
    """
    plain = must_link is not None or cannot_link is not None
    if plain and pairs is not None:
        raise InputError("pairs given twice", got="pairs and must_link or cannot_link", wanted="one of the two")
    if weights is not None and not plain:
        wanted = "must_link and cannot_link beside them, or dkl.Pairs(..., weights=weights)"
        raise InputError("weights without their pairs", where="pair_weights", wanted=wanted)
    if not plain and pairs is None:
        return _resolve_labels(n, y, random_state)
    _refuse_misplaced(must_link, cannot_link, pairs)
    if inside_cross_validation() and (plain or sample_ids is None):
        raise InputError(
            "pairs cannot be followed through cross-validation",
            got="must_link and cannot_link as plain arrays" if plain else "pairs without sample_ids",
            wanted="pairs=dkl.Pairs(must_link, cannot_link) together with sample_ids=numpy.arange(len(X))",
            remedy="scikit-learn cuts X and sample_ids, but cuts plain arrays wrongly or not at all",
        )
    given = pairs if pairs is not None else Pairs(must_link, cannot_link, weights=weights)
    if not takes_weights:
        refuse_weights(given)
    selected = given if sample_ids is None else _select_rows(given, sample_ids, n)
    return selected._checked(n, contradictions, stacklevel=4)  # of the call of `fit`


def refuse_weights(pairs: Pairs, where: str = "pairs") -> None:
    """Raise InputError for pairs with weights, given to a method that uses none."""
    if pairs.is_weighted:
        remedy = (
            "give them without weights, or learn by PairwiseKernelLearner or LaplacianKernelLearner, which take weights"
        )
        raise InputError("this method takes no weights of pairs", where=where, got=f"{pairs!r}", remedy=remedy)


def _refuse_misplaced(must_link: object, cannot_link: object, pairs: object) -> None:
    """Raise InputError for a `Pairs` given as an array, or an array given as `pairs`."""
    misplaced = [
        f"{name} of type {type(value).__name__}"
        for name, value, right in (
            ("must_link", must_link, False),
            ("cannot_link", cannot_link, False),
            ("pairs", pairs, True),
        )
        if value is not None and isinstance(value, Pairs) != right
    ]
    if misplaced:
        wanted = "fit(X, must_link=array, cannot_link=array) or fit(X, pairs=dkl.Pairs(...))"
        raise InputError("pairs in the wrong argument", got=misplaced[0], wanted=wanted)


def _resolve_labels(
    n: int, y: object, random_state: int | np.integer | np.random.Generator | np.random.RandomState | None
) -> Pairs:
    """Draw pairs from the labels y (n,); raise InputError where y is missing or not of length n."""
    if y is None:
        wanted = "must_link and cannot_link, or pairs, or y with -1, None or NaN for unlabeled"
        raise InputError("nothing to learn from", got="neither pairs nor labels", wanted=wanted)
    y = as_labels(in_memory(y, "y"))
    if len(y) != n:
        raise InputError("labels and rows differ in number", where="y", got=f"shape {y.shape}", wanted=f"({n},)")
    codes = encode_labels(y)
    n_labeled = int(np.count_nonzero(codes >= 0))
    refuse_one_class(int(codes.max(initial=-1)) + 1, n_labeled)
    most = most_pairs_of_labels(n_labeled)
    return Pairs(*sample_pairs(codes, None, None, random_state, most)).check(n)


def _select_rows(pairs: Pairs, sample_ids: object, n: int) -> Pairs:
    """Return the pairs among the rows that `sample_ids` (n,) names; InputError if none is left."""
    ids = as_integers(sample_ids, "sample_ids", "one distinct integer a row of X")
    if ids.shape != (n,):
        raise InputError("not one a row", where="sample_ids", got=f"shape {ids.shape}", wanted=f"({n},)")
    selected = pairs.select(ids)
    if not selected.n_must + selected.n_cannot:
        got = f"none of {pairs.n_must + pairs.n_cannot} pairs with both ends among these {n} rows"
        raise InputError("no pairs left", where="sample_ids", got=got, wanted="at least one")
    return selected
