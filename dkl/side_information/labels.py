"""Class labels of rows: entries that mean a row has no label, labels that cannot name classes, and pairs drawn from labels."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from dkl.datasets import generator
from dkl.errors import InputError
from dkl.io.plain_arrays import in_memory
from dkl.io.table_lines import is_missing
from dkl.side_information.pair_checks import Integers

WANTED = "one class label a row; None, NaN, NA, ? and the like, or -1, for unlabeled"
"""Description of labels of which some may be missing, for errors; `is_unlabeled` has the whole rule."""
MOST_DISTINCT = 10
"""Largest number of rows that may each have a label of their own: more are ids of rows, or numbers to predict."""
_INTEGER = re.compile(r"[+-]?[0-9]+(\.0*)?")
_MINUS_ONE = frozenset({"-1", "-1.", "-1.0"})


def as_labels(y: object) -> NDArray:
    """Return labels y as an array (n,); a single column (n, 1) is taken. Raises InputError for what holds no labels."""
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise InputError("labels of different lengths", where="y", wanted=WANTED) from error
    if labels.dtype.kind in "US" and not isinstance(y, np.ndarray):
        labels = np.asarray(y, dtype=object)  # NumPy has made a string of a -1 or NaN among strings
    if labels.dtype.kind not in "biufUSO":
        raise InputError("not class labels", where="y", got=f"dtype {labels.dtype}", wanted=WANTED)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if labels.ndim != 1:
        raise InputError("labels are not one-dimensional", where="y", got=f"shape {labels.shape}", wanted=WANTED)
    return labels


def is_unlabeled(labels: NDArray, *, minus_one: bool = True) -> NDArray[np.bool_]:
    """Return which of the labels (n,) are marks of a missing one.

    Marks are None, NaN and pandas' NA and NaT; in text, in any case: nothing, NA, N/A, #N/A, NaN, null, none, ?, ., NaT and <NA>, but
    not Na and Nat; "-", unless "+" is a label as well; and -1, in numbers and in text, where it may be -1.0. minus_one: whether -1 is a
    mark among integers, which it is not where every row needs a label; among names it is one in any case.
    """
    kind = labels.dtype.kind
    if kind in "bi":
        return (labels == -1) & (kind == "i" and minus_one)
    if kind in "uf":
        return np.isnan(labels) | ((labels == -1) & minus_one) if kind == "f" else np.zeros(len(labels), np.bool_)
    # Text is examined once a distinct label; objects may not compare, so that each is looked at.
    values, places = (labels.tolist(), np.arange(len(labels))) if kind == "O" else _distinct(labels)
    text = [value.decode(errors="replace") if isinstance(value, bytes) else value for value in values]
    is_text = [isinstance(value, str) for value in text]
    # A -1 among names is what pandas and users write for "none"; among integers as text it may be a class of +1 and -1.
    minus_one = minus_one or any(
        named and not _INTEGER.fullmatch(value) and not _is_mark(value)
        for value, named in zip(text, is_text, strict=True)
    )
    # Files of signs have "+" and "-" as their classes.
    signs = any(named and value.strip() == "+" for value, named in zip(text, is_text, strict=True))
    missing = [
        (_is_mark(value) and not (signs and value.strip() == "-")) or (minus_one and value.strip() in _MINUS_ONE)
        if named
        else _is_no_value(value) or (minus_one and value == -1)
        for value, named in zip(text, is_text, strict=True)
    ]
    return np.array(missing, np.bool_)[places]


def _distinct(labels: NDArray) -> tuple[list[Any], NDArray[np.intp]]:
    values, places = np.unique(labels, return_inverse=True)
    return values.tolist(), places


def _is_mark(text: str) -> bool:
    """Return whether text is a mark of a missing label: the marks of a missing number, and None."""
    return is_missing(text) or text.strip() == "None"


def _is_no_value(value: object) -> bool:
    """Return whether an object is None, NaN, NaT or pandas.NA."""
    # The value of pandas.NA == pandas.NA is neither true nor false.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or bool(value != value)


def require_labels(y: object, where: str = "y") -> None:
    """Raise InputError for the first row without a label, where every row needs one."""
    try:
        labels = as_labels(y)
    except InputError:  # the checks of classes have better words for others
        return
    missing = np.flatnonzero(is_unlabeled(labels, minus_one=False))
    if missing.size:
        row, others = int(missing[0]), f" and {missing.size - 1:,} more" if missing.size > 1 else ""
        got = f"{str(labels[row])!r}{others}"
        remedy = "drop the rows without a label; if it is the name of a class, give it another"
        raise InputError(
            "a label is missing", where=f"{where}[{row}]", got=got, wanted="a label in every row", remedy=remedy
        )


def require_targets(y: object) -> None:
    """Raise InputError for the first of the numbers y (n,) or (n, T) that is missing: None, NaN, NaT or pandas.NA."""
    try:
        values = np.asarray(y)
    except ValueError:  # rows of different lengths
        return
    if values.dtype.kind == "f":
        missing = np.isnan(values)
    elif values.dtype.kind == "O":
        missing = np.array([_is_no_value(value) for value in values.flat], np.bool_).reshape(values.shape)
    else:
        return
    places = np.argwhere(missing)
    if len(places):
        got, remedy = str(values[tuple(places[0])]), "drop the rows without a target"
        where = f"y[{', '.join(map(str, places[0]))}]"
        raise InputError("a target is missing", where=where, got=got, wanted="a number in every row", remedy=remedy)


def refuse_all_distinct(n_classes: int, n_labeled: int) -> None:
    """Raise InputError where more than MOST_DISTINCT labeled rows all differ: such a column does not name classes."""
    if n_classes == n_labeled > MOST_DISTINCT:
        raise InputError(
            "every label is another: no two rows are of one class", where="y", got=f"{n_classes:,} labels of {n_labeled:,} rows",
            wanted="classes of several rows", remedy="choose the column of classes; numbers to predict are for a regression",
        )  # fmt: skip


def refuse_one_class(n_classes: int, n_labeled: int) -> None:
    """Raise InputError where labels are of fewer than two classes, by which no two rows differ."""
    if n_classes < 2:
        raise InputError(
            "all labeled rows are of one class" if n_classes else "no row has a label", where="y",
            got=f"{n_classes} class{'' if n_classes else 'es'} among {n_labeled:,} labeled rows", wanted="two classes or more",
        )  # fmt: skip


# -- pairs from labels, and from matrices ------------------------------------------------------------------------------
# Sources of pairs other than a user's arrays and files: labels, signed sparse matrices.

PAIRS_PER_PATTERN = 0.6  # admm_hu_kwok_2013, section 4: 0.6 n must-link and 0.6 n cannot-link pairs
PAIRS_PER_LABEL, PAIRS_OF_FEW_LABELS = 5, 1_000
"""Pairs of each kind that learners draw, a labeled row and at least. On 7 sets of 150 to 4,000 rows, 5 to 100 % of them labeled, 10 to 50 a
row change clusters and nearest neighbors by less than .01, and cost up to six times as much (ADMM more); 0.6 a row are up to .2 worse."""


def encode_labels(y: object) -> Integers:
    """Return class numbers (n,) from 0 in sorted order of the labels `y` (n,), -1 for unlabeled rows.

    Unlabeled rows have one of the marks of `dkl.side_information.labels.is_unlabeled`: None, NaN, NA, "?", -1 and others. Raises
    InputError for fractional or incomparable labels, for y of -1 and only one other label, and where all labels of many rows differ.
    """
    codes = label_codes(y)
    n_classes, n_labeled = int(codes.max(initial=-1)) + 1, int(np.count_nonzero(codes >= 0))
    # Labels +1 and -1, of which the -1 read as unlabeled, would leave one class.
    if n_classes == 1 and n_labeled < len(codes):
        refuse_signs(y, codes)
    refuse_all_distinct(n_classes, n_labeled)
    return codes


def refuse_signs(y: object, codes: Integers) -> None:
    """Raise InputError where the rows without one of the codes are called -1, and all others are of one class."""
    signs = as_labels(y)[codes < 0].astype(object)
    if any(value in (-1, "-1", b"-1") for value in signs.tolist() if isinstance(value, (int, float, str, bytes))):
        remedy = "if -1 is a class here, recode the labels (to 0 and 1, say): -1 means unlabeled"
        raise InputError("all labeled rows are of one class", where="y", got="-1 and one label", remedy=remedy)


def label_codes(y: object) -> Integers:
    """Return the codes of `encode_labels` whatever the number of classes, for labels that are only shown."""
    y = in_memory(y, "y")
    labels = as_labels(y)
    unlabeled = is_unlabeled(labels)
    codes = np.full(len(labels), -1, dtype=np.int64)
    known = labels[~unlabeled]
    if known.dtype.kind == "f":
        is_large = np.isfinite(labels) & (np.abs(labels) >= 2**53)
        broken = np.flatnonzero(~unlabeled & (is_large | ~(np.isfinite(labels) & (labels == np.floor(labels)))))
        if len(broken):
            got = f"y[{broken[0]}] = {labels[broken[0]]}"
            remedy = (
                "from 2**53 on a double stands for several integers: make text of the labels"
                if is_large[broken[0]]
                else None
            )
            raise InputError("not a class label", where="y", got=got, wanted=WANTED, remedy=remedy)
    try:
        # Sorted order, as scikit-learn's classes_ has it.
        codes[~unlabeled] = np.unique(known, return_inverse=True)[1]
    except TypeError as error:
        raise InputError("labels of types that do not compare", where="y", wanted=WANTED) from error
    return codes


def most_pairs_of_labels(n_labeled: int) -> int:
    """Return the number of pairs of each kind that learners draw from labels, where there are as many: all of 45 rows."""
    return max(PAIRS_OF_FEW_LABELS, PAIRS_PER_LABEL * n_labeled)


def sample_pairs(
    codes: Integers,
    n_must: int | None,
    n_cannot: int | None,
    random_state: int | np.integer | np.random.Generator | np.random.RandomState | None,
    most: int | None = None,
) -> tuple[Integers, Integers]:
    """Draw (must (n_must, 2), cannot (n_cannot, 2)): distinct pairs of labeled rows, uniformly.

    Pairs are unordered; must-links are within a class, cannot-links between two.

    codes (n,) as of `encode_labels`. The pairs of either kind are numbered 0, 1, ... without being formed; distinct numbers
    are drawn uniformly, and each is turned back into its pair. O(n log n + pairs log pairs) time, and no n^2 anywhere.
    most: of either kind where no number is given; None: the paper's share of the labeled rows.
    Errors: `InputError` for more pairs than exist.
    """
    rows = np.argsort(codes, kind="stable")[np.count_nonzero(codes < 0) :]  # labeled rows, class after class
    sizes = np.bincount(codes[rows]).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    # A class of s rows has s (s - 1) / 2 pairs inside, and s times the rows of later classes across.
    later = len(rows) - starts - sizes
    # Must-links are drawn first: the order is part of what a seed means.
    rng = generator(random_state)
    most = round(PAIRS_PER_PATTERN * len(rows)) if most is None else most
    kind, rank = _draw(sizes * (sizes - 1) // 2, n_must, most, "n_must", rng)
    second = _triangle_row(rank)
    first = rank - second * (second - 1) // 2
    must = rows[np.stack([starts[kind] + first, starts[kind] + second], axis=1)]
    kind, rank = _draw(sizes * later, n_cannot, most, "n_cannot", rng)
    first, second = np.divmod(rank, later[kind])
    cannot = rows[np.stack([starts[kind] + first, starts[kind] + sizes[kind] + second], axis=1)]
    return must, cannot


def _draw(
    counts: Integers, wanted: object, most: int, where: str, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Draw distinct pairs out of sum(counts), as (class, number within that class's pairs)."""
    total = int(counts.sum())
    if wanted is None:
        wanted = min(most, total)
    elif not isinstance(wanted, (int, np.integer)) or isinstance(wanted, bool) or not 0 <= wanted <= total:
        raise InputError("no such number of distinct pairs", where=where, got=wanted, wanted=f"0 to {total}")
    number = _drawn_numbers(total, int(wanted), rng)
    ends: Integers = np.cumsum(counts)
    kind = np.searchsorted(ends, number, side="right")
    return kind, number - (ends - counts)[kind]


MANY, SHARE = 2_000_000, 20
"""Numbers to draw from, and share drawn (1 / SHARE), beyond both of which NumPy's draw would hold all numbers in an array."""


def _drawn_numbers(total: int, wanted: int, rng: np.random.Generator) -> Integers:
    """Draw `wanted` distinct numbers below `total`, each such set as likely as any other; sorted."""
    if total <= MANY or wanted <= total // SHARE:
        # Sorted, so that a shuffle before would be lost.
        return np.sort(rng.choice(total, wanted, replace=False, shuffle=False)) if wanted else np.zeros(0, np.int64)
    if 2 * wanted > total:
        is_left = np.ones(total, bool)
        is_left[_drawn_numbers(total, total - wanted, rng)] = False
        return np.flatnonzero(is_left)
    found: Integers = np.zeros(0, np.int64)
    # The first `wanted` distinct ones of a sequence of draws: never are more drawn at a time than are missing.
    while len(found) < wanted:
        found = np.sort(np.concatenate([found, rng.integers(total, size=wanted - len(found))]))
        found = found[np.flatnonzero(np.diff(found, prepend=-1))]
    return found


def _triangle_row(rank: Integers) -> Integers:
    """Return the b of pair (a, b), a < b, number b (b - 1) / 2 + a.

    The root is rounded, so it is corrected by one where needed.
    """
    b = ((1.0 + np.sqrt(1.0 + 8.0 * rank)) / 2.0).astype(np.int64)
    b -= b * (b - 1) // 2 > rank
    b += b * (b + 1) // 2 <= rank
    return b


def sparse_pairs(matrix: Any, form: str) -> tuple[Integers, Integers]:
    """Return (must_link, cannot_link), (m, 2) each, of a sparse matrix (n, n) as of `Pairs.from_sparse`."""
    if not issparse(matrix) or matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        got = f"{type(matrix).__name__} of shape {getattr(matrix, 'shape', None)}"
        raise InputError("not a square sparse matrix", where="matrix", got=got, wanted="n x n, scipy sparse")
    if form not in ("signed", "target"):
        raise InputError("no such form", where="form", got=repr(form), wanted='"signed" or "target"')
    entries = coo_array(csr_array(matrix))  # entries stored twice are added up on the way
    values: npt.NDArray = entries.data
    ends = np.stack(entries.coords, axis=1).astype(np.int64)
    must, cannot = (values > 0, values < 0) if form == "signed" else (values == 1, values == 0)
    if not np.all(must | cannot):
        position = int(np.flatnonzero(~(must | cannot))[0])
        i, j = ends[position]
        wanted = "stored entries above or below 0" if form == "signed" else "stored entries 1 or 0"
        remedy = 'form="target" reads stored zeros as cannot-link' if form == "signed" else None
        got = f"matrix[{i}, {j}] = {values[position]}"
        raise InputError("neither must-link nor cannot-link", where="matrix", got=got, wanted=wanted, remedy=remedy)
    apart = ends[:, 0] != ends[:, 1]  # that a row is in its own class says nothing
    return ends[must & apart], ends[cannot]
