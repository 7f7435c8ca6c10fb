"""Checks of pairs before anything is learned from them: rows, weights, repeated and contradicting pairs; refusals name the pairs.

Rows may be named by their ids: labels of a data frame's index, or the cells of a column of ids, in place of row numbers.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Hashable, Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from dkl.errors import DataWarning, InconsistentPairsError, InputError
from dkl.io.plain_arrays import in_memory, refuse_text

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rows_of_ids(index: Any, *, as_text: bool = False) -> dict[Hashable, int]:
    """Return the row number of each id. index: a data frame, its index, or any sequence of ids; as_text: compare ids as text.

    Raises InputError for ids that are repeated or cannot be compared.
    """
    labels = getattr(index, "index", index) if hasattr(index, "iloc") else index
    wanted = "a distinct id a row: a data frame, its index, or a sequence of ids"
    try:
        found = [str(label) if as_text else label for label in labels]
        rows = {label: row for row, label in enumerate(found)}
    except TypeError as error:
        raise InputError("not ids of rows", where="index", got=type(index).__name__, wanted=wanted) from error
    if len(rows) < len(found):
        row, label = next((row, label) for row, label in enumerate(found) if rows[label] != row)
        got = f"{label!r} in rows {row} and {rows[label]}"
        raise InputError("two rows of one id", where="index", got=got, wanted=wanted)
    return rows


def numbered(tuples: object, rows: Mapping[Hashable, int], size: int, where: str, *, as_text: bool = False) -> Integers:
    """Return tuples of ids, a list or an array (m, size) of them, as row numbers (m, size); InputError names the first unknown id."""
    given = [] if tuples is None else _rows_of(tuples)
    found = np.empty((len(given), size), dtype=np.int64)
    for position, one in enumerate(given):
        try:
            ids = [str(each) if as_text else each for each in one]
            if isinstance(one, (str, bytes)) or len(ids) != size:
                raise TypeError("of another length")
            found[position] = [rows[each] for each in ids]
        except KeyError:
            unknown = next(each for each in ids if each not in rows)
            raise unknown_id(unknown, f"{where}[{position}]") from None
        except TypeError as error:
            raise InputError("not ids", where=f"{where}[{position}]", got=repr(one), wanted=f"{size} ids") from error
    return found


def _rows_of(tuples: Any) -> list[Any]:
    """Return the rows of a data frame, a table, an array or a sequence of tuples of ids."""
    if hasattr(tuples, "itertuples"):  # of pandas: each column keeps its type, as timestamps
        return list(tuples.itertuples(index=False, name=None))
    if hasattr(tuples, "__array__"):  # other frames and tables would be listed by columns
        tuples = np.asarray(tuples)
    return tuples.tolist() if isinstance(tuples, np.ndarray) else list(tuples)


def unknown_id(label: object, where: str) -> InputError:
    """Return the error of an id that no row has."""
    remedy = "rows that have ids are named by these, not by number" if str(label).isdecimal() else None
    wanted = "an id of a row of the data"
    return InputError("no row has this id", where=where, got=repr(label), wanted=wanted, remedy=remedy)


Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_CHAIN = 8  # rows of a chain of must-links that a message names
_SHOWN = 3  # offending pairs that a message names; it counts the others

# The functions of scikit-learn that fit on a part of the rows they were given: fit arguments as long as the rows
# are cut as the rows are, all others are passed on whole. None: every function of the module.
SLICERS: dict[str, frozenset[str] | None] = {
    "sklearn.model_selection._validation": None,
    "sklearn.model_selection._classification_threshold": frozenset({"_fit_and_score_over_thresholds"}),
    "sklearn.calibration": frozenset({"_fit_classifier_calibrator_pair"}),
    "sklearn.ensemble._bagging": frozenset({"_parallel_build_estimators"}),
    "sklearn.feature_selection._rfe": frozenset({"_rfe_single_fit"}),
    "sklearn.multiclass": frozenset({"_fit_ovo_binary", "_partial_fit_ovo_binary"}),
}


def inside_cross_validation() -> bool:
    """Return whether the call comes from a part of scikit-learn that fits on some of the rows only.

    A plain array of pairs does not show that its rows were cut or that X was, so the call stack is searched. That is
    crude but certain where it looks: the worker processes and threads of joblib run the very same functions.
    """
    return any(_is_slicer(frame) for frame in _callers())


def _callers() -> Iterator[FrameType]:
    """Yield the frames of the call stack, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_slicer(frame: FrameType) -> bool:
    """Return whether `frame` is that of a function in SLICERS."""
    names = SLICERS.get(frame.f_globals.get("__name__", ""), frozenset())
    return names is None or frame.f_code.co_name in names


def as_integers(value: object, where: str, wanted: str) -> Integers:
    """Return a read-only int64 copy of `value`; raise InputError unless of an integer type (3.0, True).

    Floats are refused even where whole: above 2^53 they may be another row number than the one that was written.
    """
    value = in_memory(value, where)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError("rows of different lengths", where=where, wanted=wanted) from error
    if array.size == 0:
        array = array.astype(np.int64)  # an empty list is a float array to NumPy
    if array.dtype.kind not in "iu":
        whole = array.dtype.kind == "f" and bool(np.all(array == np.floor(array)))
        remedy = "the values are whole: convert them with .astype(numpy.int64)" if whole else None
        raise InputError(
            "not of an integer type", where=where, got=f"dtype {array.dtype}", wanted=wanted, remedy=remedy
        )
    if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError("too large for a 64-bit integer", where=where, got=array.max(), wanted=wanted)
    # Always a copy: what the caller changes later must not change pairs that were checked.
    array = np.array(array, dtype=np.int64, order="C")
    array.setflags(write=False)
    return array


def as_pairs(value: object, where: str) -> Integers:
    """Return `value` as a read-only (m, 2) int64 array, or raise InputError; None and [] are no pairs."""
    return _as_tuples(value, where, "pair", "[[i, j]]", 2)


def as_triplets(value: object) -> Integers:
    """Return `value` as a read-only (m, 3) int64 array, or raise InputError; None and [] are no triplets."""
    return _as_tuples(value, "triplets", "triplet", "[[i, j, k]]", 3)


def _as_tuples(value: object, where: str, kind: str, one: str, size: int) -> Integers:
    wanted = f"an (m, {size}) array of integers, a row a {kind}"
    array = as_integers([] if value is None else value, where, wanted)
    if array.size == 0 and (array.ndim == 1 or array.shape[1:] == (size,)):
        return array.reshape(0, size)
    if array.ndim != 2 or array.shape[1] != size:
        remedy = f"one {kind} is written {one}" if array.shape == (size,) else None
        got = f"shape {array.shape}"
        raise InputError(f"not an array of {kind}s", where=where, got=got, wanted=wanted, remedy=remedy)
    return array


def as_ids(value: object, where: str = "sample_ids") -> Integers:
    """Return `value` as a read-only (n,) int64 array without repeats, or raise InputError."""
    wanted = "one distinct integer a row of X"
    ids = as_integers(value, where, wanted)
    if ids.ndim != 1:
        raise InputError("not one-dimensional", where=where, got=f"shape {ids.shape}", wanted=wanted)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        repeated = [int(value) for value in distinct[counts > 1][:_SHOWN]]
        remedy = "pairs cannot be carried over to rows drawn with replacement"
        raise InputError("repeated identifiers", where=where, got=f"{repeated}", wanted=wanted, remedy=remedy)
    return ids


def renumbered(tuples: Integers, ids: Integers, order: Integers) -> Integers:
    """Return rows of `tuples` (m, size) with all entries in `ids` (n,), as positions there.

    `order` sorts `ids`.
    """
    if not len(ids):
        return tuples[:0]
    # Above all ids the place found is beyond the last: that of another id will do, as the next line compares.
    position = order[np.minimum(np.searchsorted(ids, tuples, sorter=order), len(ids) - 1)]
    kept: Integers = position[(ids[position] == tuples).all(axis=1)]
    return kept


def refuse_bad_ends(pairs: Integers, n: int, where: str) -> None:
    """Raise InputError, with the first offending pairs, for ends out of 0 to n - 1 or equal ends."""
    within = f"row numbers from 0 to {n - 1}"
    another = "these look like pairs of another X; for a part of the rows pass dkl.Pairs together with sample_ids"
    diagonal = "leave them out: that K_ii is to be 1 is always asked for"
    for bad, what, wanted, remedy in (
        (pairs.min(axis=1, initial=0) < 0, "negative row numbers", within, None),
        (pairs.max(axis=1, initial=0) >= n, "row numbers out of range", within, another),
        (pairs[:, 0] == pairs[:, 1], "a row paired with itself", "two different rows", diagonal),
    ):
        positions = np.flatnonzero(bad)
        if len(positions):
            raise InputError(what, where=where, got=shown(pairs, positions, where), wanted=wanted, remedy=remedy)


def contradicted(must: Integers, cannot: Integers, n: int) -> Flags:
    """Return which cannot-link pairs have both ends in one connected component of the must-link graph.

    must (m, 2), cannot (c, 2) -> (c,) bool; O(n + m + c). A pair that is in both sets is the shortest such case.
    """
    _, component = connected_components(_graph(must, n), directed=False)
    flags: Flags = component[cannot[:, 0]] == component[cannot[:, 1]]
    return flags


def contradicted_triplets(triplets: Integers) -> Flags:
    """Return (m,) bool: True for each triplet (i, j, k) whose reverse (i, k, j) is there too."""
    # Both of a contradiction have the same rows in order, so they share a number; one with two orders is bad.
    ordered = np.concatenate([triplets[:, :1], np.sort(triplets[:, 1:], axis=1)], axis=1)
    number = np.unique(ordered, axis=0, return_inverse=True)[1].ravel()
    ascends = triplets[:, 1] < triplets[:, 2]
    counts = np.bincount(number, minlength=1)
    up = np.bincount(number, weights=ascends, minlength=1)
    return ((up > 0) & (up < counts))[number]


def contradiction_error(must: Integers, cannot: Integers, bad: Flags, n: int) -> InconsistentPairsError:
    """Return the error that names the first contradicted cannot-link pairs and the must-links that join their ends."""
    return InconsistentPairsError(
        "cannot-link pairs whose ends the must-links join",
        where="cannot_link",
        got=joined_ends(must, cannot, bad, n, "cannot_link[{}] = "),
        wanted="ends in different must-link components",
        remedy='correct the pairs, or take "keep" or "drop" for contradictions',
    )


def joined_ends(must: Integers, cannot: Integers, bad: Flags, n: int, place: str = "") -> str:
    """Name the first cannot-links in `bad` (c,), each with the must-links that join its ends; place: format of a position."""
    graph = _graph(must, n)
    positions = np.flatnonzero(bad)
    named = []
    for position in positions[:_SHOWN]:
        i, j = (int(end) for end in cannot[position])
        chain = _chain(graph, i, j)
        rows = chain if len(chain) <= _CHAIN else [*chain[: _CHAIN - 2], "...", chain[-1]]
        reason = "also in must_link" if len(chain) == 2 else "must-linked through " + "-".join(map(str, rows))
        named.append(f"{place.format(position)}({i}, {j}), {reason}")
    return "; ".join(named) + _others(len(positions))


def _graph(pairs: Integers, n: int) -> csr_array:
    """Return the must-link graph (n, n) for scipy's graph functions; either triangle may hold a pair."""
    # Repeated pairs are summed: in floats, where 256 of them do not add up to 0.
    return csr_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))


def _chain(graph: csr_array, start: int, end: int) -> list[int]:
    """Return the shortest path of must-links from `start` to `end`, which lie in one component."""
    _, before = breadth_first_order(graph, start, directed=False)
    chain = [end]
    while chain[-1] != start:
        chain.append(int(before[chain[-1]]))
    return chain[::-1]


def shown(tuples: Integers, positions: Integers, where: str) -> str:
    """Describe the first offending rows of `tuples` (m, size) by position, and how many more there are."""
    named = (f"{where}[{row}] = {tuple(tuples[row].tolist())}" for row in positions[:_SHOWN].tolist())
    return ", ".join(named) + _others(len(positions))


def _others(count: int) -> str:
    return f" and {count - _SHOWN} more" if count > _SHOWN else ""


Weights = npt.NDArray[np.float64]


def as_weights(value: object, n_must: int, n_cannot: int) -> Weights | None:
    """Return a read-only copy of the weights (n_must + n_cannot,); None if they are all 1.

    Errors: `InputError` for anything that is not a finite number >= 0 a pair.
    """
    if value is None:
        return None
    wanted = f"a finite number >= 0 a pair, {n_must} of must_link and then {n_cannot} of cannot_link"
    value = in_memory(value, "weights")
    refuse_text(value, "weights")
    try:
        given = np.asarray(value)
        is_real = given.dtype.kind in "fiu" or given.size == 0
        weights = np.array(given, dtype=float) if is_real else None
    except (ValueError, TypeError) as error:
        raise InputError("not numbers", where="weights", wanted=wanted) from error
    if weights is None or weights.shape != (n_must + n_cannot,):
        got = f"shape {given.shape}, dtype {given.dtype}"
        raise InputError("not a weight a pair", where="weights", got=got, wanted=wanted)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(bad):
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        got = f"weights[{bad[0]}] = {weights[bad[0]]}{more}"
        raise InputError("not a weight", where="weights", got=got, wanted=wanted)
    weights.setflags(write=False)
    return None if np.all(weights == 1) else weights


def without_opposites(
    must: Integers, must_weights: Weights, cannot: Integers, cannot_weights: Weights, n: int
) -> tuple[Weights, Weights, int, int]:
    """Return both kinds' weights without the pairs given both ways, and how many of these are left out and how many are kept.

    Of a pair that is in `must` and in `cannot`, each as `distinct` returns it, the heavier side keeps the difference of the
    weights; a weight of 0, which both sides have where their weights are equal, leaves the pair out.
    """
    must_keys, cannot_keys = (pairs[:, 0] * n + pairs[:, 1] for pairs in (must, cannot))
    _, in_must, in_cannot = np.intersect1d(must_keys, cannot_keys, assume_unique=True, return_indices=True)
    must_weights, cannot_weights = must_weights.copy(), cannot_weights.copy()
    difference = must_weights[in_must] - cannot_weights[in_cannot]
    must_weights[in_must], cannot_weights[in_cannot] = np.maximum(difference, 0.0), np.maximum(-difference, 0.0)
    n_kept = int(np.count_nonzero(difference))
    return must_weights, cannot_weights, len(difference) - n_kept, n_kept


def distinct(pairs: Integers, weights: Weights, where: str) -> tuple[Integers, Weights]:
    """Return (pairs (k, 2), weights (k,)) of weight above 0: each once, smaller end first, sorted.

    The order is lexicographic. Errors: `InputError` where repeats have different weights: only the user knows whether
    these are to be added up or one is right.
    """
    at = np.flatnonzero(weights > 0)
    at = at[np.lexsort((pairs[at].max(axis=1), pairs[at].min(axis=1)))]
    ordered, sizes = np.sort(pairs[at], axis=1), weights[at]
    is_repeat = np.r_[False, (ordered[1:] == ordered[:-1]).all(axis=1)][: len(at)]
    differs = np.flatnonzero(is_repeat[1:] & (sizes[1:] != sizes[:-1]))
    if len(differs):
        both = np.sort(at[differs[0] : differs[0] + 2])
        got = f"{shown(pairs, both, where)}, of weights {weights[both[0]]:g} and {weights[both[1]]:g}"
        remedy = "give it once, with the sum of its weights if each is to count"
        raise InputError("a pair is repeated with another weight", where=where, got=got, wanted="one", remedy=remedy)
    return ordered[~is_repeat], sizes[~is_repeat]


def consistent(
    must: Integers,
    cannot: Integers,
    must_weights: Weights,
    cannot_weights: Weights,
    n: int,
    contradictions: str,
    *,
    stacklevel: int,
) -> tuple[Integers, Integers, Weights]:
    """Return (must-links, cannot-links, weights) of n rows as `dkl.Pairs.check` describes them.

    stacklevel: of the warning that counts what is kept, as in `warnings.warn`.
    """
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
        raise InputError("no pairs left", where="must_link, cannot_link", got=got, wanted="one that is given one way")
    must, cannot = must[must_weights > 0], cannot[cannot_weights > 0]
    must_weights, cannot_weights = must_weights[must_weights > 0], cannot_weights[cannot_weights > 0]
    bad = contradicted(must, cannot, n)
    if contradictions == "keep" and (bad.any() or any(opposites)):
        warnings.warn(_said_of(must, cannot, bad, n, *opposites), DataWarning, stacklevel=stacklevel)
    elif bad.any():
        cannot, cannot_weights = cannot[~bad], cannot_weights[~bad]
    return must, cannot, np.concatenate([must_weights, cannot_weights])


def _said_of(must: Integers, cannot: Integers, bad: NDArray[np.bool_], n: int, n_out: int, n_heavier: int) -> str:
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
