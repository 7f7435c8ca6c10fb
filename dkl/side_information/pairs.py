"""Must-link and cannot-link pairs: one object that scikit-learn passes on whole, and the checks that every pair must pass.

Sources: admm_hu_kwok_2013, section 1 (what the pairs mean) and section 4 (how many are drawn from labels).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from dkl.errors import DataWarning, InputError
from dkl.io.object_paths import AnyPath
from dkl.side_information.pair_checks import (
    Integers,
    as_ids,
    as_pairs,
    contradicted,
    contradiction_error,
    joined_ends,
    refuse_bad_ends,
    renumbered,
)
from dkl.side_information.pair_files import read_pair_file
from dkl.side_information.pair_sources import encode_labels, sample_pairs, sparse_pairs
from dkl.side_information.pair_weights import Weights, as_weights, distinct, without_opposites
from dkl.side_information.row_ids import numbered, rows_of_ids


class Pairs:
    """Pairs of rows that belong to the same class (must-link) or to different classes (cannot-link); immutable.

    must_link, cannot_link : (m, 2) integer arrays or lists, a row a pair; the order of the two ends means nothing.
    ids : (n,) distinct integers, optional. Without it the entries are row numbers, or identifiers already. With it
        they are row numbers, and identifiers ids[row] are stored, ready for `select`.
    weights : (n_must + n_cannot,) finite numbers >= 0, optional: how sure one is of each pair, those of the must-links
        first; the weight of its term in a learner's loss. 1 by default; a pair of weight 2 counts as two, of weight 0 as
        none. Every method below keeps them, but for the forms of other libraries, which have no place for them.

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
    >>> Pairs([[0, 1]], [[1, 2], [0, 2]], weights=[1.0, 0.5, 3.0]).select([2, 1]).weights
    array([0.5])

    Errors: `InputError` for anything that is not an (m, 2) array of integers, or not a weight a pair. The rest is
    checked by `check(n)`, which the learners call: only they know n.
    """

    def __init__(self, must_link: Any = None, cannot_link: Any = None, ids: Any = None, weights: Any = None) -> None:
        must, cannot = as_pairs(must_link, "must_link"), as_pairs(cannot_link, "cannot_link")
        if ids is not None:
            known = as_ids(ids, "ids")
            for pairs, where in ((must, "must_link"), (cannot, "cannot_link")):
                refuse_bad_ends(pairs, len(known), where)
            must, cannot = as_pairs(known[must], "must_link"), as_pairs(known[cannot], "cannot_link")
        self._must, self._cannot = must, cannot
        self._weights = as_weights(weights, len(must), len(cannot))

    @classmethod
    def from_labels(
        cls, y: Any, n_must: int | None = None, n_cannot: int | None = None, random_state: Any = None
    ) -> Pairs:
        """Draw distinct random pairs of labeled rows, uniformly, never of a row with itself.

        y : (n,) labels: integers, floats with whole values, booleans or strings. Unlabeled are None, NaN and pandas' NA; in text, in
            any case: nothing, NA, N/A, NaN, null, none, ?, ., and "-" where no label is "+"; and -1, in numbers and in text.
        n_must, n_cannot : how many; by default round(0.6 n) each for n labeled rows (admm_hu_kwok_2013, section 4),
            or all the pairs there are where they are fewer.
        random_state : None, an integer, a NumPy Generator or RandomState.

        Errors: `InputError` for fractional labels, for more pairs than exist, where y holds -1 and only one other label
        (labels -1/+1 would be half unlabeled), and where more than ten rows all have different labels.
        """
        return cls(*sample_pairs(encode_labels(y), n_must, n_cannot, random_state))

    @classmethod
    def from_index(cls, index: Any, must_link: Any = None, cannot_link: Any = None, weights: Any = None) -> Pairs:
        """Build pairs of row numbers from pairs of ids.

        index: a data frame, its index, or any sequence of distinct ids, one a row.
        must_link, cannot_link: lists or arrays (m, 2) of ids; weights as in `Pairs`.

        >>> Pairs.from_index(["ann", "bob", "eve"], must_link=[("ann", "eve")]).must_link
        array([[0, 2]])

        Raises InputError for ids that are repeated, and for a pair of an id that no row has.
        """
        rows = rows_of_ids(index)
        ends = (numbered(must_link, rows, 2, "must_link"), numbered(cannot_link, rows, 2, "cannot_link"))
        return cls(*ends, weights=weights)

    @classmethod
    def from_metric_learn(cls, pairs: Any, y_pairs: Any) -> Pairs:
        """Build pairs from metric-learn's `pairs` (m, 2), row numbers, and `y_pairs` (m,), +1 must, -1 cannot."""
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
        """Build pairs from an n x n scipy sparse matrix: a symmetric one, or either half of it.

        form="signed": an entry above 0 is must-link, below 0 cannot-link; a stored zero is refused.
        form="target": the paper's T of equation (2): a stored 1 is must-link, a stored 0 is cannot-link.
        Must-links on the diagonal are passed over. Beware that `eliminate_zeros`, `todense` and most arithmetic of
        scipy lose stored zeros, and with them the cannot-links of the second form.
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

        The pairs must pass `check(n)`.
        """
        checked = self.check(n)  # or scipy would add up repeated pairs
        rows, columns = np.r_[checked.i, checked.j], np.r_[checked.j, checked.i]
        return csr_array((np.tile(checked.sign, 2).astype(np.int8), (rows, columns)), shape=(n, n))

    def select(self, sample_ids: Any) -> Pairs:
        """Return the pairs with both ends among `sample_ids` (n,), renumbered to positions in it.

        Errors: `InputError` for repeated identifiers, as in a bootstrap.
        """
        ids = as_ids(sample_ids)
        order = np.argsort(ids)
        kept = np.isin(self.to_metric_learn()[0], ids).all(axis=1)
        must, cannot = (renumbered(pairs, ids, order) for pairs in (self._must, self._cannot))
        return Pairs(must, cannot, weights=self.weights[kept])

    def check(self, n: int, contradictions: str = "raise") -> Pairs:
        """Return the pairs checked for n rows: each unordered pair once, smaller end first, sorted.

        contradictions : what to do with cannot-links whose ends the must-links join, directly or through a chain. "raise"
            an error; "keep" them, with a DataWarning that counts them: the losses weigh one pair against another; "drop"
            these cannot-links quietly.

        Pairs of weight 0 are dropped before, and so are repeats within a set, quietly where their weights are equal. A pair
        that is given both ways, must-link and cannot-link, is an error of "raise"; otherwise both are left out where their
        weights are equal, and else the heavier is kept, with the difference of the weights. "keep" counts these too.

        Errors: `InputError` for no pairs at all, or none of a weight above 0, negative or too large row numbers, i = j,
        a repeated pair of different weights, and where no pair is left; `InconsistentPairsError`. O(n + m log m).
        """
        return self._checked(n, contradictions, stacklevel=3)

    def _checked(self, n: int, contradictions: str, stacklevel: int) -> Pairs:
        """Implement `check`; stacklevel: of its warning."""
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
        if not self.weights.any():
            raise InputError("all weights are 0", where="weights", got=f"{self!r}", wanted="one above 0, at least")
        if contradictions == "raise":
            joining = must[must_weights > 0]
            bad = contradicted(joining, cannot, n) & (cannot_weights > 0)
            if bad.any():
                raise contradiction_error(joining, cannot, bad, n)
        must, must_weights = distinct(must, must_weights, "must_link")
        cannot, cannot_weights = distinct(cannot, cannot_weights, "cannot_link")
        must_weights, cannot_weights, *opposites = without_opposites(must, must_weights, cannot, cannot_weights, n)
        if not must_weights.any() and not cannot_weights.any():
            got = f"{opposites[0]} given both as a must-link and as a cannot-link, with equal weights"
            raise InputError(
                "no pairs left", where="must_link, cannot_link", got=got, wanted="one that is given one way"
            )
        must, cannot = must[must_weights > 0], cannot[cannot_weights > 0]
        must_weights, cannot_weights = must_weights[must_weights > 0], cannot_weights[cannot_weights > 0]
        bad = contradicted(must, cannot, n)
        if contradictions == "keep" and (bad.any() or any(opposites)):
            warnings.warn(_said_of(must, cannot, bad, n, *opposites), DataWarning, stacklevel=stacklevel)
        elif bad.any():
            cannot, cannot_weights = cannot[~bad], cannot_weights[~bad]
        return Pairs(must, cannot, weights=np.concatenate([must_weights, cannot_weights]))

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

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and unpickled arrays are writable again; coming through __init__ they are not.
        return Pairs, (self._must, self._cannot, None, self._weights)


def _said_of(must: Integers, cannot: Integers, bad: Any, n: int, n_out: int, n_heavier: int) -> str:
    """Describe contradictions that are kept: the cannot-links in `bad` (c,), and the pairs that were given both ways."""
    said = []
    if n_out + n_heavier:
        out = [f"{n_out:,} left out"] * bool(n_out)
        out += [f"{n_heavier:,} kept on the heavier side with the difference of the weights"] * bool(n_heavier)
        said.append(f"{n_out + n_heavier:,} given both as must-link and as cannot-link: {', '.join(out)}")
    if bad.any():
        named = joined_ends(must, cannot, bad, n)
        said.append(
            f"{np.count_nonzero(bad):,} of {len(cannot):,} cannot-links lie inside must-link components: {named}"
        )
    return f"the pairs contradict each other, and are kept: {'; '.join(said)}"


def load_pairs(
    path: str | AnyPath,
    *,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    ids: Any = None,
) -> Pairs:
    """Return the pairs in a file; what they mean for n rows is checked later, by `check(n)`.

    .csv, .tsv : lines i,j,label or, in all of them, i,j,label,weight. label: must-link or must, 1, +1; cannot-link or cannot, 0, -1;
        words also with _, a space or nothing for the dash. The first line may hold names: these four in any order, or any others
        where it has no number, no word for a link and no id. Empty lines are passed over.
    .npz : arrays must_link and cannot_link, (m, 2) integers each; one may be missing. weights, (n_must + n_cannot,), those
        of must_link first, may be there. Nothing is unpickled.
    header, delimiter : of text: whether line 1 holds names, which is otherwise decided by its content; and what separates cells,
        which is otherwise recognized of commas, semicolons and tabs.
    decimal : "," or ".", in weights; a decimal comma is otherwise recognized where commas do not separate cells.
    ids : (n,) distinct ids of the rows, such as X.index of a data frame, or the frame: i and j are such ids, compared as text,
        and no row numbers.

    Raises InputError that names the file and the line of a malformed one, or of an id that no row has.
    """
    return pairs_in_file(path, header=header, delimiter=delimiter, decimal=decimal, ids=ids)[0]


def pairs_in_file(
    path: str | AnyPath, *, header: bool | None, delimiter: str | None, decimal: str | None, ids: Any
) -> tuple[Pairs, int]:
    """Return (pairs, number of the line of names, 0 for none or ours), as `load_pairs`."""
    rows = None if ids is None else rows_of_ids(ids, as_text=True)
    must_link, cannot_link, weights, named = read_pair_file(path, rows, header, delimiter, decimal)
    return Pairs(must_link, cannot_link, weights=weights), named
