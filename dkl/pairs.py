"""Must-link and cannot-link pairs: one object that scikit-learn passes on whole, and the checks that every pair must pass.

Sources: admm_hu_kwok_2013, section 1 (what the pairs mean) and section 4 (how many are drawn from labels).
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dkl._pair_checks import (
    Integers,
    as_ids,
    as_integers,
    as_pairs,
    canonical,
    contradicted,
    contradiction_error,
    in_both,
    inside_cross_validation,
    refuse_bad_ends,
    renumbered,
)
from dkl._pair_sources import encode_labels, read_pair_file, sample_pairs, sparse_pairs
from dkl.datasets import generator
from dkl.errors import DataWarning, InputError


class Pairs:
    """Pairs of rows that belong to the same class (must-link) or to different classes (cannot-link); immutable.

    must_link, cannot_link : (m, 2) integer arrays or lists, a row a pair; the order of the two ends means nothing.
    ids : (n,) distinct integers, optional. Without it the entries are row numbers, or identifiers already. With it
        they are row numbers, and identifiers ids[row] are stored, ready for `select`.

    It has no length, shape, items or array form on purpose: scikit-learn cuts whatever is as long as X, and passes
    this on whole. In cross-validation route it together with `sample_ids`, which scikit-learn cuts as it cuts X:

        GridSearchCV(learner, grid).fit(X, pairs=Pairs(ml, cl), sample_ids=numpy.arange(len(X)))

    >>> from dkl import Pairs
    >>> pairs = Pairs(must_link=[[0, 1]], cannot_link=[[1, 2], [0, 2]])
    >>> pairs
    Pairs(n_must=1, n_cannot=2, ends 0 to 2)
    >>> pairs.select([2, 1]).cannot_link  # of rows 2 and 1 alone, renumbered
    array([[1, 0]])
    >>> Pairs.from_labels(["a", "a", "b", None], n_must=1, n_cannot=2).must_link
    array([[0, 1]])

    Errors: `InputError` for anything that is not an (m, 2) array of integers. The rest is checked by `check(n)`,
    which the learners call: only they know n.
    """

    def __init__(self, must_link: Any = None, cannot_link: Any = None, ids: Any = None) -> None:
        must, cannot = as_pairs(must_link, "must_link"), as_pairs(cannot_link, "cannot_link")
        if ids is not None:
            known = as_ids(ids, "ids")
            for pairs, where in ((must, "must_link"), (cannot, "cannot_link")):
                refuse_bad_ends(pairs, len(known), where)
            must, cannot = as_pairs(known[must], "must_link"), as_pairs(known[cannot], "cannot_link")
        self._must, self._cannot = must, cannot

    @classmethod
    def from_labels(
        cls, y: Any, n_must: int | None = None, n_cannot: int | None = None, random_state: Any = None
    ) -> Pairs:
        """Random pairs of labeled rows, uniform among all valid ones, distinct and never of a row with itself.

        y : (n,) labels: integers, floats with whole values, booleans or strings; -1 in numbers, and None among
            objects, mean unlabeled.
        n_must, n_cannot : how many; by default round(0.6 n) each for n labeled rows (admm_hu_kwok_2013, section 4),
            or all the pairs there are where they are fewer.
        random_state : None, an integer, a NumPy Generator or RandomState.

        Errors: `InputError` for NaN or fractional labels, for more pairs than exist, and where y holds -1 and only
        one label besides (labels -1/+1 would be half unlabeled).
        """
        return cls(*sample_pairs(encode_labels(y), n_must, n_cannot, random_state))

    @classmethod
    def from_metric_learn(cls, pairs: Any, y_pairs: Any) -> Pairs:
        """From metric-learn's form: `pairs` (m, 2) row numbers, `y_pairs` (m,) of +1 (must) and -1 (cannot)."""
        ends = as_pairs(pairs, "pairs")
        wanted = f"{len(ends)} values +1 or -1"
        try:
            sign = np.asarray(y_pairs)
        except ValueError as error:
            raise InputError("signs of different lengths", where="y_pairs", wanted=wanted) from error
        if sign.shape != (len(ends),) or sign.dtype.kind not in "iuf" or not np.all(np.isin(sign, (-1, 1))):
            got = f"shape {sign.shape}, dtype {sign.dtype}"
            raise InputError("not a sign a pair", where="y_pairs", got=got, wanted=wanted)
        return cls(ends[sign == 1], ends[sign == -1])

    @classmethod
    def from_sparse(cls, matrix: Any, form: str = "signed") -> Pairs:
        """From an n x n scipy sparse matrix, one half or both of a symmetric one.

        form="signed": an entry above 0 is must-link, below 0 cannot-link; a stored zero is refused.
        form="target": the paper's T of equation (2): a stored 1 is must-link, a stored 0 is cannot-link.
        Must-links on the diagonal are passed over. Beware that `eliminate_zeros`, `todense` and most arithmetic of
        scipy lose stored zeros, and with them the cannot-links of the second form.
        """
        return cls(*sparse_pairs(matrix, form))

    @property
    def must_link(self) -> Integers:
        """(n_must, 2) int64, read-only."""
        return self._must

    @property
    def cannot_link(self) -> Integers:
        """(n_cannot, 2) int64, read-only."""
        return self._cannot

    @property
    def n_must(self) -> int:
        """How many must-link pairs there are."""
        return len(self._must)

    @property
    def n_cannot(self) -> int:
        """How many cannot-link pairs there are."""
        return len(self._cannot)

    @property
    def i(self) -> Integers:
        """(n_must + n_cannot,) the first ends: those of the must-links, then those of the cannot-links."""
        return np.concatenate([self._must[:, 0], self._cannot[:, 0]])

    @property
    def j(self) -> Integers:
        """(n_must + n_cannot,) the second ends, in the order of `i`."""
        return np.concatenate([self._must[:, 1], self._cannot[:, 1]])

    @property
    def sign(self) -> Integers:
        """(n_must + n_cannot,) +1 for must-link and -1 for cannot-link, in the order of `i`."""
        return np.repeat(np.array([1, -1]), [self.n_must, self.n_cannot])

    def to_metric_learn(self) -> tuple[Integers, Integers]:
        """(m, 2) row numbers and (m,) signs +1, -1, as metric-learn wants them (with its `preprocessor=X`)."""
        return np.concatenate([self._must, self._cannot]), self.sign

    def to_sparse(self, n: int) -> csr_array:
        """Symmetric n x n int8 matrix with +1 (must-link) and -1 (cannot-link); the pairs must pass `check(n)`."""
        checked = self.check(n)  # or scipy would add up repeated pairs
        rows, columns = np.r_[checked.i, checked.j], np.r_[checked.j, checked.i]
        return csr_array((np.tile(checked.sign, 2).astype(np.int8), (rows, columns)), shape=(n, n))

    def select(self, sample_ids: Any) -> Pairs:
        """The pairs with both ends among `sample_ids` (n,), renumbered to positions in it.

        Errors: `InputError` for repeated identifiers, as in a bootstrap.
        """
        ids = as_ids(sample_ids)
        order = np.argsort(ids)
        return Pairs(*(renumbered(pairs, ids, order) for pairs in (self._must, self._cannot)))

    def check(self, n: int, contradictions: str = "raise") -> Pairs:
        """The same pairs, fit for n rows: every unordered pair once, smaller end first, in lexicographic order.

        contradictions : what to do with a cannot-link pair whose ends the must-links join, directly or through a
            chain. "raise" an error; "warn" and keep them, for a loss that can bear them, save those that are
            must-link pairs too, because K_ij has one target; "drop" them all quietly.

        Errors: `InputError` for no pairs at all, negative or too large row numbers and i = j;
        `InconsistentPairsError` for contradictions. Repeats within a set are dropped quietly. O(n + m log m).
        """
        if not isinstance(n, (int, np.integer)) or not 0 <= n < 2**63:
            raise InputError("not a number of rows", where="n", got=repr(n), wanted="an integer >= 0")
        if contradictions not in ("raise", "warn", "drop"):
            wanted = '"raise", "warn" or "drop"'
            raise InputError("no such choice", where="contradictions", got=repr(contradictions), wanted=wanted)
        if not self.n_must + self.n_cannot:
            raise InputError("no pairs", where="must_link, cannot_link", got=0, wanted="at least one pair")
        must, cannot = self._must, self._cannot
        refuse_bad_ends(must, n, "must_link")
        refuse_bad_ends(cannot, n, "cannot_link")
        bad = contradicted(must, cannot, n)
        if bad.any():
            error = contradiction_error(must, cannot, bad, n)
            if contradictions == "raise":
                raise error
            if contradictions == "warn":
                warnings.warn(str(error), DataWarning, stacklevel=2)
                bad = in_both(must, cannot, n)
            cannot = cannot[~bad]
        return Pairs(canonical(must), canonical(cannot))

    def __repr__(self) -> str:
        ends = np.concatenate([self._must.ravel(), self._cannot.ravel()])
        rows = f", ends {ends.min()} to {ends.max()}" if len(ends) else ""
        return f"Pairs(n_must={self.n_must}, n_cannot={self.n_cannot}{rows})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pairs):
            return NotImplemented
        return np.array_equal(self._must, other._must) and np.array_equal(self._cannot, other._cannot)

    def __hash__(self) -> int:
        return hash((self._must.tobytes(), self._cannot.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and unpickled arrays are writable again; coming through __init__ they are not.
        return Pairs, (self._must, self._cannot)


def resolve_pairs(
    n: int,
    *,
    y: Any = None,
    must_link: Any = None,
    cannot_link: Any = None,
    pairs: Any = None,
    sample_ids: Any = None,
    random_state: Any = None,
    contradictions: str = "raise",
) -> Pairs:
    """The checked pairs of n rows, from whichever form the caller of `fit` used.

    Plain arrays `must_link`, `cannot_link`, or one `Pairs`, or labels `y` (see `Pairs.from_labels`). Pairs given
    outright go before `y`, which a pipeline passes to every step. With `sample_ids` (n,), entries of the pairs are
    identifiers: pairs with an end elsewhere are left out.

    Inside scikit-learn's cross-validation, plain arrays are refused (they may have been cut to the length of the
    fold, or number the rows of the whole X), and so is a `Pairs` without `sample_ids`. A fit of your own in there,
    with pairs made for the very rows it gets, says so by `sample_ids=numpy.arange(n)`.

    Errors: `InputError`, `InconsistentPairsError` (see `Pairs.check`).
    """
    plain = must_link is not None or cannot_link is not None
    if plain and pairs is not None:
        raise InputError("pairs given twice", got="pairs and must_link or cannot_link", wanted="one of the two")
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
    given = pairs if pairs is not None else Pairs(must_link, cannot_link)
    return (given if sample_ids is None else _select_rows(given, sample_ids, n)).check(n, contradictions)


def _refuse_misplaced(must_link: Any, cannot_link: Any, pairs: Any) -> None:
    """InputError for a `Pairs` given as an array, or an array given as `pairs`."""
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


def _resolve_labels(n: int, y: Any, random_state: Any) -> Pairs:
    """Pairs drawn from the labels y (n,). InputError where there are none, or not one a row."""
    if y is None:
        wanted = "must_link and cannot_link, or pairs, or y with -1 for unlabeled"
        raise InputError("nothing to learn from", got="neither pairs nor labels", wanted=wanted)
    try:
        shape = np.asarray(y).shape
    except ValueError as error:
        raise InputError("labels of different lengths", where="y", wanted=f"shape ({n},)") from error
    if shape != (n,):
        raise InputError("labels and rows differ in number", where="y", got=f"shape {shape}", wanted=f"({n},)")
    return Pairs.from_labels(y, random_state=random_state).check(n)


def _select_rows(pairs: Pairs, sample_ids: Any, n: int) -> Pairs:
    """The pairs among the rows that `sample_ids` (n,) names. InputError where none is left."""
    ids = as_integers(sample_ids, "sample_ids", "one distinct integer a row of X")
    if ids.shape != (n,):
        raise InputError("not one a row", where="sample_ids", got=f"shape {ids.shape}", wanted=f"({n},)")
    selected = pairs.select(ids)
    if not selected.n_must + selected.n_cannot:
        got = f"none of {pairs.n_must + pairs.n_cannot} pairs with both ends among these {n} rows"
        raise InputError("no pairs left", where="sample_ids", got=got, wanted="at least one")
    return selected


def pair_train_test_split(pairs: Pairs, test_size: float = 0.25, random_state: Any = None) -> tuple[Pairs, Pairs]:
    """(train, test): a random `test_size` share of the must-links and of the cannot-links is held out.

    Repeats are dropped first, so no unordered pair is on both sides; a held-out pair may still follow from the
    training pairs through must-links. Errors: `InputError` where one side would be empty.

    >>> from dkl import Pairs, pair_train_test_split
    >>> train, test = pair_train_test_split(Pairs([[0, 1], [1, 2], [3, 4], [4, 5]]), test_size=0.25, random_state=0)
    >>> train, test
    (Pairs(n_must=3, n_cannot=0, ends 0 to 5), Pairs(n_must=1, n_cannot=0, ends 3 to 4))
    """
    if not isinstance(pairs, Pairs):
        raise InputError("not pairs", where="pairs", got=type(pairs).__name__, wanted="dkl.Pairs")
    if isinstance(test_size, bool) or not isinstance(test_size, float) or not 0.0 < test_size < 1.0:
        raise InputError("not a share", where="test_size", got=test_size, wanted="a float between 0 and 1")
    # Each kind by itself: a share of all pairs could leave one kind out of the test.
    rng = generator(random_state)
    train, test = [], []
    for kind in (canonical(pairs.must_link), canonical(pairs.cannot_link)):
        held_out = np.zeros(len(kind), dtype=bool)
        held_out[rng.permutation(len(kind))[: round(test_size * len(kind))]] = True
        train.append(kind[~held_out])
        test.append(kind[held_out])
    if not any(map(len, train)) or not any(map(len, test)):
        raise InputError("too few pairs to split", got=f"{pairs!r}", wanted="at least one pair on either side")
    return Pairs(*train), Pairs(*test)


def load_pairs(path: str | Path) -> Pairs:
    """Pairs from a file; what they mean for n rows is checked later, by `check(n)`.

    .csv : lines i,j,label, label one of must, cannot, 1, 0, -1 (0 and -1 are both cannot-link); a header that names
        the three columns is optional and may order them otherwise; empty lines are passed over.
    .npz : arrays must_link and cannot_link, (m, 2) integers each; one may be missing. Nothing is unpickled.

    Errors: `InputError` that names the file, and the line of a malformed one.
    """
    must_link, cannot_link = read_pair_file(path)
    return Pairs(must_link, cannot_link)
