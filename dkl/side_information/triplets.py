"""Triplets "row i is nearer to j than to k": one object that scikit-learn passes on whole, checked as `dkl.Pairs` are."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import DataWarning, InconsistentPairsError, InputError
from dkl.side_information.labels import encode_labels
from dkl.side_information.pair_checks import (
    Integers,
    as_ids,
    as_integers,
    as_triplets,
    contradicted_triplets,
    inside_cross_validation,
    numbered,
    renumbered,
    rows_of_ids,
    shown,
)
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class Triplets:
    """Triplets (anchor, similar, dissimilar) of rows: the anchor is nearer to the second than to the third; immutable.

    It has no length, shape, items or array form on purpose, as `dkl.Pairs`: scikit-learn passes it on whole. In
    cross-validation route it together with `sample_ids`, which scikit-learn cuts as it cuts X.

    Parameters
    ----------
    triplets : (m, 3) integer array or list, a row a triplet
    ids : (n,) distinct integers, optional
        As in `dkl.Pairs`.

    Attributes
    ----------
    triplets : (m, 3) int64, read-only
    anchor, similar, dissimilar : (m,) int64, its columns
    n_triplets : int

    Raises
    ------
    InputError
        For anything that is not an (m, 3) array of integers. The rest is checked by `check(n)`, which the learners call:
        only they know n.

    See Also
    --------
    Pairs : Pairs of rows instead of comparisons.
    LogDetKernelLearner, LogDetMetricLearner : The learners of triplets.

    References
    ----------
    F. Li, Y. Fu, Y.-H. Dai, C. Sminchisescu, J. Wang, Kernel learning by unconstrained optimization, AISTATS 2009,
    section 6.2 and table 2.

    Examples
    --------
    >>> from dkl import Triplets
    >>> triplets = Triplets([[0, 1, 2], [1, 0, 3]])
    >>> triplets
    Triplets(n=2, rows 0 to 3)
    >>> triplets.select([1, 0, 3]).triplets  # of rows 1, 0 and 3 alone, renumbered
    array([[0, 1, 2]])
    >>> Triplets.from_labels([[0.0], [1.0], [5.0]], ["a", "a", "b"]).triplets
    array([[0, 1, 2],
           [1, 0, 2]])
    """

    def __init__(self, triplets: ArrayLike, ids: ArrayLike | None = None) -> None:
        rows = as_triplets(triplets)
        if ids is not None:
            known = as_ids(ids, "ids")
            # Before NumPy takes them: a negative row number would count from the end of ids.
            _refuse_bad_rows(rows, len(known))
            rows = as_triplets(known[rows])
        self._triplets = rows

    @classmethod
    def from_index(cls, index: object, triplets: object) -> Triplets:
        """Build triplets of row numbers from triplets of ids.

        Parameters
        ----------
        index : a data frame, its index, or a sequence of distinct ids, one a row
        triplets : (m, 3) list or array of ids

        Returns
        -------
        Triplets

        Raises
        ------
        InputError
            For ids that are repeated, and for a triplet of an id that no row has.

        Examples
        --------
        >>> Triplets.from_index(["ann", "bob", "eve"], [("eve", "ann", "bob")]).triplets
        array([[2, 0, 1]])
        """
        return cls(numbered(triplets, rows_of_ids(index), 3, "triplets"))

    @classmethod
    def from_labels(
        cls, X: object, y: object, n_in: int = 10, n_out: int = 10, *, kernel: str | None = None
    ) -> Triplets:
        """Build triplets of each labeled row, a near row of its class and a near row of other classes.

        Parameters
        ----------
        X : (n, d) rows, dense or sparse
            With kernel="precomputed" a kernel matrix (n, n), of which the distances are K_ii + K_jj - 2 K_ij.
        y : (n,) labels
            As in `Pairs.from_labels`, with the same marks of unlabeled rows: None, NaN, NA, ?, -1 and others.
        n_in, n_out : int
            Number of neighbors of either kind, so that there are at most 100 n triplets for n labeled rows by default (Li et
            al. 2009, section 6.2). Fewer where a class has fewer.
        kernel : None or "precomputed"

        Returns
        -------
        Triplets

        Raises
        ------
        InputError
            For less than two classes, and where no class has two rows.
        """
        from dkl.side_information.triplet_sources import triplets_of_labels  # takes SciPy to import

        for name, value in (("n_in", n_in), ("n_out", n_out)):
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise InputError("not a number of neighbors", where=name, got=repr(value), wanted="an integer >= 1")
        if kernel not in (None, "precomputed"):
            raise InputError("no such choice", where="kernel", got=repr(kernel), wanted='None or "precomputed"')
        codes = encode_labels(y)
        found = triplets_of_labels(X, codes, int(n_in), int(n_out), is_kernel=kernel is not None)
        if not len(found):
            got = f"{len(np.unique(codes[codes >= 0]))} classes of one row each"
            raise InputError("no two rows of one class", where="y", got=got, wanted="a class of two rows or more")
        return cls(found)

    @classmethod
    def from_metric_learn(cls, triplets: ArrayLike) -> Triplets:
        """Build triplets from metric-learn's form: (m, 3) row numbers, first nearer to second than to third.

        Parameters
        ----------
        triplets : (m, 3) row numbers

        Returns
        -------
        Triplets

        Raises
        ------
        InputError
            For its other form, (m, 3, d) points, which has no row numbers: `LogDetMetricLearner.fit` takes that.
        """
        if np.ndim(triplets) == 3:
            remedy = "give row numbers, with preprocessor=X there; dkl.LogDetMetricLearner().fit takes the points"
            got = f"shape {np.shape(triplets)}"
            raise InputError("points, not row numbers", where="triplets", got=got, wanted="(m, 3)", remedy=remedy)
        return cls(triplets)

    @property
    def triplets(self) -> Integers:
        """Return the triplets, (m, 3) int64, read-only: anchor, similar, dissimilar."""
        return self._triplets

    @property
    def anchor(self) -> Integers:
        """Return the rows (m,) that are nearer to `similar` than to `dissimilar`."""
        return self._triplets[:, 0]

    @property
    def similar(self) -> Integers:
        """Return the rows (m,) that are to be near the anchors."""
        return self._triplets[:, 1]

    @property
    def dissimilar(self) -> Integers:
        """Return the rows (m,) that are to be far from the anchors."""
        return self._triplets[:, 2]

    @property
    def n_triplets(self) -> int:
        """Return the number of triplets."""
        return len(self._triplets)

    def to_metric_learn(self) -> Integers:
        """Return (m, 3) row numbers, as metric-learn wants them (with its `preprocessor=X`)."""
        return self._triplets.copy()

    def to_pairs(self) -> Pairs:
        """Return pairs: every anchor must-linked to its similar row, and cannot-linked to its dissimilar one.

        More than the triplets say, unless they were made from labels.
        """
        return Pairs(self._triplets[:, :2], self._triplets[:, [0, 2]])

    def select(self, sample_ids: object) -> Triplets:
        """Return the triplets with all three rows among `sample_ids`, renumbered to positions in it.

        Parameters
        ----------
        sample_ids : (n,) distinct integers

        Returns
        -------
        Triplets

        Raises
        ------
        InputError
            For repeated identifiers, as in a bootstrap.
        """
        ids = as_ids(sample_ids)
        return Triplets(renumbered(self._triplets, ids, np.argsort(ids)))

    def check(self, n: int, contradictions: str = "raise") -> Triplets:
        """Return the triplets checked for n rows: each once, in lexicographic order.

        Parameters
        ----------
        n : int
            Number of rows.
        contradictions : "raise", "keep" or "drop"
            What to do where both (i, j, k) and (i, k, j) are there. "raise" an error; "keep" them, with a DataWarning that
            counts them: every loss can bear them; "drop" both quietly. Longer circles, such as i nearer to j than to k, k to i
            than to j, j to k than to i, are common among triplets that people made, and left for the loss to weigh.

        Returns
        -------
        Triplets
            Repeats are dropped quietly, in O(m log m).

        Raises
        ------
        InputError
            For no triplets at all, negative or too large row numbers, a row twice in a triplet, and where none is left.
        InconsistentPairsError
            For contradictions, with "raise".
        """
        if not isinstance(n, (int, np.integer)) or not 0 <= n < 2**63:
            raise InputError("not a number of rows", where="n", got=repr(n), wanted="an integer >= 0")
        if contradictions not in ("keep", "drop", "raise"):
            wanted = '"keep", "drop" or "raise"'
            raise InputError("no such choice", where="contradictions", got=repr(contradictions), wanted=wanted)
        if not self.n_triplets:
            raise InputError("no triplets", where="triplets", got=0, wanted="at least one")
        _refuse_bad_rows(self._triplets, n)
        # Before repeats are dropped: the error names triplets by their places in what was given.
        bad = contradicted_triplets(self._triplets)
        if bad.any() and contradictions != "drop":
            named = shown(self._triplets, np.flatnonzero(bad), "triplets")
            if contradictions == "raise":
                raise InconsistentPairsError(
                    "triplets of which the reverse is there too", where="triplets", got=named,
                    wanted="(i, j, k) or (i, k, j), not both",
                    remedy='correct them, or take "keep" or "drop" for contradictions',
                )  # fmt: skip
            counted = (
                f"{np.count_nonzero(bad):,} of {self.n_triplets:,} triplets are given with their reverse, and are kept"
            )
            warnings.warn(f"{counted}: {named}", DataWarning, stacklevel=2)
        kept = self._triplets[~bad] if contradictions == "drop" else self._triplets
        if not len(kept):
            got = f"the reverse of each of {self.n_triplets} triplets"
            raise InputError("no triplets left", where="triplets", got=got, wanted="at least one without its reverse")
        # Sorted too: the same triplets in another order give the same bits of a fit.
        return Triplets(np.unique(kept, axis=0))

    def __repr__(self) -> str:
        rows = f", rows {self._triplets.min()} to {self._triplets.max()}" if self.n_triplets else ""
        return f"Triplets(n={self.n_triplets}{rows})"

    def __eq__(self, other: object) -> bool:
        return np.array_equal(self._triplets, other._triplets) if isinstance(other, Triplets) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._triplets.tobytes())

    def __reduce__(self) -> tuple[object, ...]:
        # Copies and unpickled arrays are writable again; coming through __init__ they are not.
        return Triplets, (self._triplets,)


def _refuse_bad_rows(triplets: Integers, n: int) -> None:
    """Raise InputError, with the first offending triplets, for a row not in X, or twice in a triplet."""
    i, j, k = triplets.T
    within = f"row numbers from 0 to {n - 1}"
    another = "these look like triplets of another X; for a part of the rows pass dkl.Triplets together with sample_ids"
    for bad, what, wanted, remedy in (
        (triplets.min(axis=1, initial=0) < 0, "negative row numbers", within, None),
        (triplets.max(axis=1, initial=0) >= n, "row numbers out of range", within, another),
        ((i == j) | (i == k) | (j == k), "a row twice in a triplet", "three different rows", None),
    ):
        positions = np.flatnonzero(bad)
        if len(positions):
            got = shown(triplets, positions, "triplets")
            raise InputError(what, where="triplets", got=got, wanted=wanted, remedy=remedy)


def resolve_triplets(n: int, triplets: Any, sample_ids: object = None, contradictions: str = "raise") -> Triplets:
    """Return the checked triplets of n rows, from `Triplets` or a plain (m, 3) array.

    With `sample_ids` (n,), entries are identifiers: triplets with a row elsewhere are left out. Inside scikit-learn's
    cross-validation a plain array is refused, and so is a `Triplets` without `sample_ids`; see
    `dkl.estimators.base.side_information.resolve_pairs`.

    Errors: `InputError`, `InconsistentPairsError` (see `Triplets.check`).
    """
    is_plain = not isinstance(triplets, Triplets)
    if inside_cross_validation() and (is_plain or sample_ids is None):
        raise InputError(
            "triplets cannot be followed through cross-validation",
            got="triplets as a plain array" if is_plain else "triplets without sample_ids",
            wanted="triplets=dkl.Triplets(triplets) together with sample_ids=numpy.arange(len(X))",
            remedy="scikit-learn cuts X and sample_ids, but cuts plain arrays wrongly or not at all",
        )
    given = Triplets(triplets) if is_plain else triplets
    if sample_ids is None:
        return given.check(n, contradictions)
    ids = as_integers(sample_ids, "sample_ids", "one distinct integer a row of X")
    if ids.shape != (n,):
        raise InputError("not one a row", where="sample_ids", got=f"shape {ids.shape}", wanted=f"({n},)")
    selected = given.select(ids)
    if not selected.n_triplets:
        got = f"none of {given.n_triplets} triplets with all rows among these {n}"
        raise InputError("no triplets left", where="sample_ids", got=got, wanted="at least one")
    return selected.check(n, contradictions)
