"""Must-link and cannot-link pairs: one object that scikit-learn passes on whole, and the checks that every pair must pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from dkl.datasets import generator
from dkl.errors import InputError
from dkl.side_information.labels import encode_labels, sample_pairs, sparse_pairs
from dkl.side_information.pair_checks import (
    Integers,
    Weights,
    as_ids,
    as_pairs,
    as_weights,
    consistent,
    distinct,
    numbered,
    refuse_bad_ends,
    renumbered,
    rows_of_ids,
)

if TYPE_CHECKING:
    from dkl.side_information.pair_checks import Integers, Weights


class Pairs:
    """Pairs of rows that belong to the same class (must-link) or to different classes (cannot-link); immutable.

    It has no length, shape, items or array form on purpose: scikit-learn cuts whatever is as long as X, and passes
    this on whole. In cross-validation route it together with `sample_ids`, which scikit-learn cuts as it cuts X:

        GridSearchCV(learner, grid).fit(X, pairs=Pairs(ml, cl), sample_ids=numpy.arange(len(X)))

    Parameters
    ----------
    must_link, cannot_link : (m, 2) integer arrays or lists
        A row a pair; the order of the two ends means nothing.
    ids : (n,) distinct integers, optional
        Without it the entries are row numbers, or identifiers already. With it they are row numbers, and identifiers
        ids[row] are stored, ready for `select`.
    weights : (n_must + n_cannot,) finite numbers >= 0, optional
        How sure one is of each pair, those of the must-links first; the weight of its term in a learner's loss. 1 by
        default; a pair of weight 2 counts as two, of weight 0 as none. Every method below keeps them, but for the forms
        of other libraries, which have no place for them.

    Attributes
    ----------
    must_link, cannot_link : (n_must, 2) and (n_cannot, 2) int64, read-only
    n_must, n_cannot, is_weighted : int, int, bool
    i, j, sign, weights : (n_must + n_cannot,) ends, +1 or -1, and weights, the must-links first

    Raises
    ------
    InputError
        For anything that is not an (m, 2) array of integers, or not a weight a pair. The rest is checked by `check(n)`,
        which the learners call: only they know n.

    See Also
    --------
    Triplets : Relative comparisons instead of pairs.
    pair_train_test_split : Pairs to learn from, and pairs to score by.

    References
    ----------
    E.-L. Hu, J. T. Kwok, Efficient kernel learning from side information using ADMM, IJCAI 2013, sections 1 and 4.

    Examples
    --------
    >>> from dkl import Pairs
    >>> pairs = Pairs(must_link=[[0, 1]], cannot_link=[[1, 2], [0, 2]])
    >>> pairs
    Pairs(n_must=1, n_cannot=2, ends 0 to 2)
    >>> pairs.select([2, 1]).cannot_link  # of rows 2 and 1 alone, renumbered
    array([[1, 0]])
    >>> Pairs.from_labels(["a", "a", "b", None], n_must=1, n_cannot=2).must_link
    array([[0, 1]])
    >>> Pairs([[0, 1]], [[1, 2], [0, 2]], weights=[1.0, 0.5, 3.0]).select([2, 1]).weights
    array([0.5])
    """

    def __init__(
        self, must_link: object = None, cannot_link: object = None, ids: object = None, weights: object = None
    ) -> None:
        must, cannot = as_pairs(must_link, "must_link"), as_pairs(cannot_link, "cannot_link")
        if ids is not None:
            known = as_ids(ids, "ids")
            for pairs, where in ((must, "must_link"), (cannot, "cannot_link")):
                # Before NumPy takes them: a negative row number would count from the end of ids.
                refuse_bad_ends(pairs, len(known), where)
            must, cannot = as_pairs(known[must], "must_link"), as_pairs(known[cannot], "cannot_link")
        self._must, self._cannot = must, cannot
        self._weights = as_weights(weights, len(must), len(cannot))

    @classmethod
    def from_labels(
        cls,
        y: object,
        n_must: int | None = None,
        n_cannot: int | None = None,
        random_state: int | np.integer | np.random.Generator | np.random.RandomState | None = None,
    ) -> Pairs:
        """Draw distinct random pairs of labeled rows, uniformly, never of a row with itself.

        Parameters
        ----------
        y : (n,) labels
            Integers, floats with whole values, booleans or strings. Unlabeled are None, NaN and pandas' NA; in text, in any
            case: nothing, NA, N/A, NaN, null, none, ?, ., and "-" where no label is "+"; and -1, in numbers and in text.
        n_must, n_cannot : int, optional
            By default round(0.6 n) each for n labeled rows (Hu & Kwok 2013, section 4), or all the pairs there are where
            they are fewer.
        random_state : None, an integer, a NumPy Generator or RandomState

        Returns
        -------
        Pairs

        Raises
        ------
        InputError
            For fractional labels, for more pairs than exist, where y holds -1 and only one other label (labels -1/+1 would
            be half unlabeled), and where more than ten rows all have different labels.
        """
        return cls(*sample_pairs(encode_labels(y), n_must, n_cannot, random_state))

    @classmethod
    def from_index(
        cls, index: object, must_link: object = None, cannot_link: object = None, weights: object = None
    ) -> Pairs:
        """Build pairs of row numbers from pairs of ids.

        Parameters
        ----------
        index : a data frame, its index, or any sequence of distinct ids, one a row
        must_link, cannot_link : (m, 2) lists or arrays of ids
        weights : as in `Pairs`

        Returns
        -------
        Pairs

        Raises
        ------
        InputError
            For ids that are repeated, and for a pair of an id that no row has.

        Examples
        --------
        >>> Pairs.from_index(["ann", "bob", "eve"], must_link=[("ann", "eve")]).must_link
        array([[0, 2]])
        """
        rows = rows_of_ids(index)
        ends = (numbered(must_link, rows, 2, "must_link"), numbered(cannot_link, rows, 2, "cannot_link"))
        return cls(*ends, weights=weights)

    @classmethod
    def from_metric_learn(cls, pairs: object, y_pairs: object) -> Pairs:
        """Build pairs from metric-learn's form, row numbers and signs.

        Parameters
        ----------
        pairs : (m, 2) row numbers
        y_pairs : (m,) signs, +1 must-link, -1 cannot-link

        Returns
        -------
        Pairs

        Raises
        ------
        InputError
            For arrays of other shapes, and for other signs.

        Examples
        --------
        >>> Pairs.from_metric_learn([[0, 1], [1, 2]], [1, -1])
        Pairs(n_must=1, n_cannot=1, ends 0 to 2)
        """
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
    def from_sparse(cls, matrix: object, form: str = "signed") -> Pairs:
        """Build pairs from an n x n scipy sparse matrix: a symmetric one, or either half of it.

        Must-links on the diagonal are passed over. Beware that `eliminate_zeros`, `todense` and most arithmetic of
        scipy lose stored zeros, and with them the cannot-links of the second form.

        Parameters
        ----------
        matrix : (n, n) scipy sparse matrix or array
        form : "signed" or "target"
            "signed": an entry above 0 is must-link, below 0 cannot-link; a stored zero is refused. "target": the T of Hu &
            Kwok 2013, (2): a stored 1 is must-link, a stored 0 is cannot-link.

        Returns
        -------
        Pairs

        Raises
        ------
        InputError
            For anything but a square sparse matrix, another form, and entries that the form does not have.

        Examples
        --------
        >>> Pairs.from_sparse(Pairs([[0, 1]], [[1, 2]]).to_sparse(3)).check(3) == Pairs([[0, 1]], [[1, 2]])
        True
        """
        return cls(*sparse_pairs(matrix, form))

    @property
    def must_link(self) -> Integers:
        """Return the must-link pairs, (n_must, 2) int64, read-only."""
        return self._must

    @property
    def cannot_link(self) -> Integers:
        """Return the cannot-link pairs, (n_cannot, 2) int64, read-only."""
        return self._cannot

    @property
    def n_must(self) -> int:
        """Return the number of must-link pairs."""
        return len(self._must)

    @property
    def n_cannot(self) -> int:
        """Return the number of cannot-link pairs."""
        return len(self._cannot)

    @property
    def i(self) -> Integers:
        """Return the first ends (n_must + n_cannot,): those of the must-links, then of the cannot-links."""
        return np.concatenate([self._must[:, 0], self._cannot[:, 0]])

    @property
    def j(self) -> Integers:
        """Return the second ends (n_must + n_cannot,), in the order of `i`."""
        return np.concatenate([self._must[:, 1], self._cannot[:, 1]])

    @property
    def sign(self) -> Integers:
        """Return the signs (n_must + n_cannot,), +1 must-link and -1 cannot-link, in the order of `i`."""
        return np.repeat(np.array([1, -1]), [self.n_must, self.n_cannot])

    @property
    def weights(self) -> Weights:
        """Return the weights (n_must + n_cannot,) float64, in the order of `i`; ones by default."""
        return np.ones(self.n_must + self.n_cannot) if self._weights is None else self._weights

    @property
    def is_weighted(self) -> bool:
        """Return whether any pair has a weight other than 1."""
        return self._weights is not None

    def to_metric_learn(self) -> tuple[Integers, Integers]:
        """Return (m, 2) row numbers and (m,) signs +1, -1, without weights, for metric-learn.

        That takes them with its `preprocessor=X`.
        """
        return np.concatenate([self._must, self._cannot]), self.sign

    def to_sparse(self, n: int) -> csr_array:
        """Return a symmetric n x n int8 matrix with +1 (must-link) and -1 (cannot-link), without weights.

        Raises
        ------
        InputError, InconsistentPairsError
            Where the pairs do not pass `check(n)`.
        """
        checked = self.check(n)  # or scipy would add up repeated pairs
        rows, columns = np.r_[checked.i, checked.j], np.r_[checked.j, checked.i]
        return csr_array((np.tile(checked.sign, 2).astype(np.int8), (rows, columns)), shape=(n, n))

    def select(self, sample_ids: object) -> Pairs:
        """Return the pairs with both ends among `sample_ids`, renumbered to positions in it.

        Parameters
        ----------
        sample_ids : (n,) distinct integers

        Returns
        -------
        Pairs

        Raises
        ------
        InputError
            For repeated identifiers, as in a bootstrap.
        """
        ids = as_ids(sample_ids)
        order = np.argsort(ids)
        # In the order of `weights`, must-links first, as those that `renumbered` keeps of either kind.
        kept = np.isin(self.to_metric_learn()[0], ids).all(axis=1)
        must, cannot = (renumbered(pairs, ids, order) for pairs in (self._must, self._cannot))
        return Pairs(must, cannot, weights=self.weights[kept])

    def check(self, n: int, contradictions: str = "raise") -> Pairs:
        """Return the pairs checked for n rows: each unordered pair once, smaller end first, sorted.

        Pairs of weight 0 are dropped before, and so are repeats within a set, quietly where their weights are equal. A pair
        that is given both ways, must-link and cannot-link, is an error of "raise"; otherwise both are left out where their
        weights are equal, and else the heavier is kept, with the difference of the weights. "keep" counts these too.

        Parameters
        ----------
        n : int
            Number of rows.
        contradictions : "raise", "keep" or "drop"
            What to do with cannot-links whose ends the must-links join, directly or through a chain. "raise" an error; "keep"
            them, with a DataWarning that counts them: the losses weigh one pair against another; "drop" these quietly.

        Returns
        -------
        Pairs
            In O(n + m log m).

        Raises
        ------
        InputError
            For no pairs at all, or none of a weight above 0, negative or too large row numbers, i = j, a repeated pair of
            different weights, and where no pair is left.
        InconsistentPairsError
            For contradictions, with "raise".
        """
        return self._checked(n, contradictions, stacklevel=3)

    def _checked(self, n: int, contradictions: str, stacklevel: int) -> Pairs:
        """Implement `check`; stacklevel: of its warning."""
        # 2**63: ends are int64, and n is compared with them.
        if not isinstance(n, (int, np.integer)) or not 0 <= n < 2**63:
            raise InputError("not a number of rows", where="n", got=repr(n), wanted="an integer >= 0")
        if contradictions not in ("keep", "drop", "raise"):
            wanted = '"keep", "drop" or "raise"'
            raise InputError("no such choice", where="contradictions", got=repr(contradictions), wanted=wanted)
        if not self.n_must + self.n_cannot:
            raise InputError("no pairs", where="must_link, cannot_link", got=0, wanted="at least one pair")
        must, cannot = self._must, self._cannot
        refuse_bad_ends(must, n, "must_link")
        refuse_bad_ends(cannot, n, "cannot_link")
        must_weights, cannot_weights = np.split(self.weights, [self.n_must])
        # Each pair of weight 0 is left out below; of none left the error would speak of pairs that are there.
        if not self.weights.any():
            raise InputError("all weights are 0", where="weights", got=f"{self!r}", wanted="one above 0, at least")
        pairs = must, cannot, must_weights, cannot_weights
        must, cannot, weights = consistent(*pairs, n, contradictions, stacklevel=stacklevel + 1)
        return Pairs(must, cannot, weights=weights)

    def __repr__(self) -> str:
        ends = np.concatenate([self._must.ravel(), self._cannot.ravel()])
        rows = f", ends {ends.min()} to {ends.max()}" if len(ends) else ""
        weights = "" if self._weights is None else f", weights {self._weights.min():g} to {self._weights.max():g}"
        return f"Pairs(n_must={self.n_must}, n_cannot={self.n_cannot}{rows}{weights})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Pairs):
            return NotImplemented
        same = np.array_equal(self._must, other._must) and np.array_equal(self._cannot, other._cannot)
        return same and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        # Adding 0 makes -0.0, which equals 0.0, the same bytes.
        weights = None if self._weights is None else (self._weights + 0.0).tobytes()
        return hash((self._must.tobytes(), self._cannot.tobytes(), weights))

    def __reduce__(self) -> tuple[object, ...]:
        # Copies and unpickled arrays are writable again; coming through __init__ they are not.
        return Pairs, (self._must, self._cannot, None, self._weights)


def pair_train_test_split(
    pairs: Pairs,
    test_size: float = 0.25,
    random_state: int | np.integer | np.random.Generator | np.random.RandomState | None = None,
) -> tuple[Pairs, Pairs]:
    """Split pairs into (train, test), with a random `test_size` share of either kind held out.

    Repeats are dropped first, so no unordered pair is on both sides; a held-out pair may still follow from the
    training pairs through must-links.

    Parameters
    ----------
    pairs : Pairs
        The pairs to split; each keeps its weight.
    test_size : float
        Between 0 and 1.
    random_state : None, an integer, a NumPy Generator or RandomState

    Returns
    -------
    train, test : Pairs

    Raises
    ------
    InputError
        For other types, a share that is not between 0 and 1, a pair that is repeated with another weight, and where
        one side would be empty.

    See Also
    --------
    Pairs : What is split.
    sklearn.model_selection.train_test_split : The same for rows.

    Examples
    --------
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
    must_weights, cannot_weights = np.split(pairs.weights, [pairs.n_must])
    kinds = [
        distinct(pairs.must_link, must_weights, "must_link"),
        distinct(pairs.cannot_link, cannot_weights, "cannot_link"),
    ]
    sides: tuple[list[tuple[Integers, Weights]], list[tuple[Integers, Weights]]] = ([], [])
    for kind, weights in kinds:
        held_out = np.zeros(len(kind), dtype=bool)
        held_out[rng.permutation(len(kind))[: round(test_size * len(kind))]] = True
        for side, chosen in zip(sides, (~held_out, held_out), strict=True):
            side.append((kind[chosen], weights[chosen]))
    train, test = (Pairs(must[0], cannot[0], weights=np.r_[must[1], cannot[1]]) for must, cannot in sides)
    if not all(side.n_must + side.n_cannot for side in (train, test)):
        raise InputError("too few pairs to split", got=f"{pairs!r}", wanted="at least one pair on either side")
    return train, test
