"""Side information to learn from: triplets, must-link and cannot-link pairs, or matrices, in any form of `fit`, checked for its rows."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import check_size
from dkl.errors import DataWarning, InputError
from dkl.io.plain_arrays import in_memory
from dkl.side_information.labels import as_labels, encode_labels, most_pairs_of_labels, refuse_one_class, sample_pairs
from dkl.side_information.matrices import (
    ENTRY_BYTES,
    FEWER_ENTRIES,
    ConstraintMatrices,
    count_entries,
    resolve_constraints,
)
from dkl.side_information.pair_checks import as_integers, inside_cross_validation
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets, resolve_triplets
from dkl.stores.rows import whole_array

if TYPE_CHECKING:
    from collections.abc import Callable

    from dkl.estimators.base.validation import UserConstraints, UserLabels, UserPairs
    from dkl.linalg.rows import Rows


@dataclass(frozen=True)
class SideInformation:
    """Triplets, pairs or constraint matrices of n rows, checked; from labels triplets and pairs, which say the same.

    n_labelled: the m that gamma is divided by: labeled rows, or, without labels, rows that the others touch (None).
    codes: (n,) class numbers, -1 for none, where triplets and pairs were made from labels.
    """

    n: int
    triplets: Triplets | None = None
    pairs: Pairs | None = None
    n_labelled: int | None = None
    codes: NDArray[np.int64] | None = None
    matrices: ConstraintMatrices | None = None

    @property
    def kind(self) -> str:
        """Return what it is, in the plural: "triplets", also of labels, "pairs" or "constraints"."""
        return "constraints" if self.matrices is not None else "triplets" if self.triplets is not None else "pairs"

    @property
    def n_points(self) -> int:
        """Return the number of rows in the matrices, the triplets, or else in the pairs."""
        if self.matrices is not None:
            return len(self.matrices.points)
        if self.triplets is not None:
            return len(np.unique(self.triplets.triplets))
        assert self.pairs is not None
        return len(np.unique(np.concatenate([self.pairs.i, self.pairs.j])))

    @property
    def n_constraints(self) -> int:
        """Return the number of matrices, of triplets, or else of pairs."""
        if self.matrices is not None:
            return self.matrices.count
        if self.triplets is not None:
            return self.triplets.n_triplets
        assert self.pairs is not None
        return self.pairs.n_must + self.pairs.n_cannot

    @property
    def labelled_pairs(self) -> Pairs:
        """Return the pairs; InputError if the side information has none."""
        if self.pairs is None:
            raise InputError("a method of pairs", where=self.kind, got=self.kind, wanted="pairs or labels")
        return self.pairs


def note_unused(
    y: UserLabels, sample_ids: UserLabels, given: tuple[object, ...], named: str, stacklevel: int = 3
) -> None:
    """Warn (DataWarning) of labels given with pairs or triplets, except in cross-validation (for scores)."""
    is_given = any(one is not None for one in given)
    if is_given and y is not None and sample_ids is None and not inside_cross_validation():
        text = f"y is not learned from, since {named} are given; leave y out, or pass it alone"
        warnings.warn(text, DataWarning, stacklevel=stacklevel)


def side_information(
    learner: str,
    rows: Rows,
    *,
    y: UserLabels = None,
    triplets: UserPairs = None,
    must_link: UserPairs = None,
    cannot_link: UserPairs = None,
    pairs: Any = None,
    constraints: UserConstraints = None,
    sample_ids: UserLabels = None,
    n_in: int = 10,
    n_out: int = 10,
    is_kernel: bool = False,
    contradictions: str = "keep",
    before_search: Callable[[NDArray[np.int64]], object] | None = None,
    memory_limit: int | None = None,
) -> SideInformation:
    """Return the side information in the arguments of `fit`: triplets, pairs, matrices, or triplets from labels y.

    rows (n, d), or a kernel matrix (n, n) where it `is_kernel`: by which the labels' neighbors are found. InputError for
    two kinds of it, or for none; a DataWarning for labels next to them, which are not learned from.
    contradictions: as in `check` of triplets and pairs. before_search: called with the classes (n,), -1 for none, before neighbors
    are searched. memory_limit: of matrices, which are counted before they are read.
    """
    n = int(rows.shape[0])
    has_pairs = any(given is not None for given in (must_link, cannot_link, pairs))
    kinds = {"triplets": triplets is not None, "pairs": has_pairs, "constraints": constraints is not None}
    named = [name for name, is_given in kinds.items() if is_given]
    if not named:
        return _of_labels(learner, rows, given_labels(y), n_in, n_out, is_kernel, before_search)
    if len(named) > 1:
        raise InputError("two kinds of side information", got=" and ".join(named), wanted="one of these")
    note_unused(
        y,
        sample_ids,
        (triplets, must_link, cannot_link, pairs, constraints),
        "triplets, pairs or constraints",
        stacklevel=5,
    )
    if constraints is not None:
        # Counted first: matrices may be files, which reading would bring into memory whole.
        if size := ENTRY_BYTES * count_entries(constraints):
            check_size({"the constraints' entries": size}, memory_limit, FEWER_ENTRIES)
        return SideInformation(n, matrices=resolve_constraints(n, constraints, sample_ids))
    if triplets is not None:
        return SideInformation(n, triplets=resolve_triplets(n, triplets, sample_ids, contradictions))
    given = {"must_link": must_link, "cannot_link": cannot_link, "pairs": pairs, "sample_ids": sample_ids}
    resolved = resolve_pairs(n, **given, contradictions=contradictions)
    return SideInformation(n, pairs=resolved)


def _of_labels(
    learner: str,
    rows: Rows,
    y: UserLabels,
    n_in: int,
    n_out: int,
    is_kernel: bool,
    before_search: Callable[[NDArray[np.int64]], object] | None,
) -> SideInformation:
    n = int(rows.shape[0])
    if y is None:
        raise InputError(
            f"{learner} requires y to be passed, but the target y is None",
            remedy="pass labels y with -1, None or NaN for unlabeled, or triplets, or must_link and cannot_link",
        )
    codes = encode_labels(y)
    if codes.shape != (n,):
        got = f"shape {codes.shape}"
        raise InputError("labels and rows differ in number", where="y", got=got, wanted=f"({n},)")
    # The plan is refused here, with the classes known, before the search for neighbors takes minutes.
    if before_search is not None:
        before_search(codes)
    kernel = "precomputed" if is_kernel else None
    # With their pairs: of labels a loss of pairs can be learned too.
    made = Triplets.from_labels(rows, y, n_in, n_out, kernel=kernel)
    return SideInformation(n, made, made.to_pairs().check(n), int(np.count_nonzero(codes >= 0)), codes)


# Labels and targets as estimators are given them: arrays, or paths of arrays.


def given_labels(y: UserLabels) -> UserLabels:
    """Return labels or targets as given; of a path, the array in its file. Raises InputError.

    The file is a .npy file or a zarr array.
    """
    return whole_array(y, "y") if isinstance(y, (str, os.PathLike)) else y


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
