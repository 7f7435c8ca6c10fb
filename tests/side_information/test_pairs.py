"""Pairs as a value, the checks at the door against brute force, and what `fit` may be given."""

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone

from dkl.errors import DataWarning, InconsistentPairsError, InputError
from dkl.estimators.base.side_information import resolve_pairs
from dkl.side_information.pairs import Pairs

Edges = list[tuple[int, int]]
N = 7
edges = st.lists(st.tuples(st.integers(0, N - 1), st.integers(0, N - 1)).filter(lambda p: p[0] != p[1]), max_size=12)


def as_sets(pairs: Pairs) -> tuple[set[frozenset[int]], set[frozenset[int]]]:
    must, cannot = ({frozenset(map(int, pair)) for pair in kind} for kind in (pairs.must_link, pairs.cannot_link))
    return must, cannot


def joined(must: Edges, start: int) -> set[int]:
    """All rows that a walk along must-links reaches from `start`."""
    reached = {start}
    while new := {b for pair in must for a, b in (pair, pair[::-1]) if a in reached} - reached:
        reached |= new
    return reached


# What it is: opaque, immutable, a value.


def test_opaque_to_scikit_learn() -> None:
    pairs = Pairs([[0, 1]], [[1, 2]])
    for name in ("__len__", "shape", "__array__", "__getitem__", "__iter__", "iloc"):
        assert not hasattr(pairs, name)


def test_is_immutable_and_a_value() -> None:
    source = np.array([[0, 1], [2, 3]])
    pairs = Pairs(source, [[4, 5]])
    source[:] = 9
    for same in (pairs, copy.copy(pairs), copy.deepcopy(pairs), pickle.loads(pickle.dumps(pairs))):
        assert same == pairs
        assert hash(same) == hash(pairs)
        np.testing.assert_array_equal(same.must_link, [[0, 1], [2, 3]])
        with pytest.raises(ValueError, match="read-only"):
            same.must_link[0, 0] = 7
        with pytest.raises(AttributeError):
            same.must_link = source  # type: ignore[misc]
    assert pairs != Pairs([[0, 1], [2, 3]])
    assert pairs != Pairs([[4, 5]], [[0, 1], [2, 3]])
    assert pairs != "pairs"
    assert repr(pairs) == "Pairs(n_must=2, n_cannot=1, ends 0 to 5)"


def test_survives_clone_as_a_parameter() -> None:
    class Holder(BaseEstimator):
        def __init__(self, pairs: Pairs | None = None) -> None:
            self.pairs = pairs

    pairs = Pairs([[0, 1]])
    assert clone(Holder(pairs)).get_params()["pairs"] == pairs


def test_columns_go_together() -> None:
    pairs = Pairs([[0, 1], [2, 3]], [[4, 5]])
    assert (pairs.i.tolist(), pairs.j.tolist(), pairs.sign.tolist()) == ([0, 2, 4], [1, 3, 5], [1, 1, -1])
    assert (pairs.n_must, pairs.n_cannot) == (2, 1)
    assert pairs.i.dtype == pairs.must_link.dtype == np.int64


@pytest.mark.parametrize("empty", [None, [], np.empty((0, 2)), np.empty((0, 2), dtype=np.int32)])
def test_empty_forms(empty: Any) -> None:
    pairs = Pairs([[0, 1]], empty)
    assert pairs.cannot_link.shape == (0, 2)
    assert pairs.check(2) == pairs


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[0.0, 1.0]], r"must_link: not of an integer type; got dtype float64; .*astype"),
        ([[0.5, 1.0]], r"must_link: not of an integer type; got dtype float64; [^;]*$"),
        ([[True, False]], "dtype bool"),
        ([["0", "1"]], "not of an integer type"),
        ([[0, None]], "not of an integer type"),
        (np.array([[2**63, 0]], dtype=np.uint64), "64-bit"),
        ([[0, 1], [2]], "different lengths"),
        ([0, 1], r"shape \(2,\).*\[\[i, j\]\]"),
        ([[0, 1, 2]], r"shape \(1, 3\)"),
        (np.zeros((0, 3), dtype=int), r"shape \(0, 3\)"),
        (Pairs([[0, 1]]), "not of an integer type"),
    ],
)
def test_refuses_what_is_no_array_of_pairs(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs(value)


def test_ids_translate_row_numbers() -> None:
    pairs = Pairs([[0, 2]], [[1, 2]], ids=[70, 50, 60])
    assert pairs == Pairs([[70, 60]], [[50, 60]])
    assert pairs.select([50, 60, 70]) == Pairs([[2, 1]], [[0, 1]])
    with pytest.raises(InputError, match=r"cannot_link\[0\] = \(1, 3\)"):
        Pairs([[0, 2]], [[1, 3]], ids=[70, 50, 60])


# Checks at the door.


@pytest.mark.parametrize(
    ("must", "cannot", "message"),
    [
        ([], [], "no pairs"),
        ([[0, 1], [2, -1]], [], r"must_link: negative .*must_link\[1\] = \(2, -1\); .*0 to 4"),
        (
            [[0, 1]],
            [[1, 2], [5, 0]],
            r"cannot_link: row numbers out of range; got cannot_link\[1\] = \(5, 0\).*sample_",
        ),
        ([[3, 3]], [], r"itself; got must_link\[0\] = \(3, 3\)"),
        ([[9, 9 - k] for k in range(1, 6)], [], r"must_link\[2\] = \(9, 6\) and 2 more"),
    ],
)
def test_check_refuses(must: Edges, cannot: Edges, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Pairs(must, cannot).check(5)
    assert "\n" not in str(raised.value)


def test_check_names_the_chain_of_a_contradiction() -> None:
    pairs = Pairs([[0, 1], [2, 1], [2, 3], [4, 5]], [[4, 6], [3, 0], [5, 4]])
    with pytest.raises(InconsistentPairsError) as raised:
        pairs.check(7)
    message = str(raised.value)
    assert "cannot_link[1] = (3, 0), must-linked through 3-2-1-0" in message
    assert "cannot_link[2] = (5, 4), also in must_link" in message
    assert "(4, 6)" not in message
    with pytest.raises(InputError, match="no such choice"):
        pairs.check(7, contradictions="ignore")


def test_check_keeps_or_drops() -> None:
    pairs = Pairs([[0, 1], [1, 2], [0, 3], [3, 4]], [[2, 0], [4, 3], [3, 1]])
    # (3, 4) is given both ways, which speaks for neither; what contradicts through a chain is left to the loss.
    told = r"1 given both as .*: 1 left out; 2 of 2 cannot-links lie inside .*: \(0, 2\), must-linked through 0-1-2; \(1, 3\)"
    with pytest.warns(DataWarning, match=told) as seen:
        kept = pairs.check(5, "keep")
    assert seen[0].filename == __file__ and len(seen) == 1
    assert kept == Pairs([[0, 1], [0, 3], [1, 2]], [[0, 2], [1, 3]])
    assert pairs.check(5, "drop") == Pairs([[0, 1], [0, 3], [1, 2]])
    with pytest.warns(DataWarning, match="2 of 2 cannot-links"):
        assert kept.check(5, "keep") == kept
    with pytest.raises(InputError, match="no pairs left; got 2 given both as"):
        Pairs([[0, 1], [2, 1]], [[1, 0], [1, 2]]).check(5, "keep")


@given(
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(4, 6)), st.tuples(*[st.sampled_from([0.0, 1.0, 2.5])] * 2))
)
def test_a_pair_given_both_ways_counts_by_the_difference_of_its_weights(given_weights: Any) -> None:
    ends = list(given_weights)
    weights = [one for one, _ in given_weights.values()] + [other for _, other in given_weights.values()]
    pairs = Pairs(ends, [pair[::-1] for pair in ends], weights=weights)
    wanted = {pair: one - other for pair, (one, other) in given_weights.items() if one != other}
    if not wanted:
        with pytest.raises(InputError, match="no pairs|all weights are 0"):
            pairs.check(N, "keep")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        checked = pairs.check(N, "keep")
    signed = checked.sign * checked.weights
    assert {(int(i), int(j)): weight for i, j, weight in zip(checked.i, checked.j, signed, strict=True)} == wanted


def test_check_drops_repeats_and_orders_the_rest() -> None:
    checked = Pairs([[3, 1], [0, 2], [1, 3], [2, 0]], [[3, 0], [0, 3]]).check(4)
    assert checked.must_link.tolist() == [[0, 2], [1, 3]]
    assert checked.cannot_link.tolist() == [[0, 3]]


def test_a_pair_repeated_256_times_still_joins_its_ends() -> None:
    with pytest.raises(InconsistentPairsError):
        Pairs([[0, 1]] * 256, [[1, 0]]).check(2)


@given(edges, edges)
def test_contradictions_are_those_of_a_walk(must: Edges, cannot: Edges) -> None:
    if not must and not cannot:
        return
    pairs = Pairs(must, cannot)
    is_bad = any(pair[1] in joined(must, pair[0]) for pair in cannot)
    opposites = set(map(frozenset, must)) & set(map(frozenset, cannot))
    if is_bad:
        with pytest.raises(InconsistentPairsError):
            pairs.check(N)
    must, cannot = ([pair for pair in kind if frozenset(pair) not in opposites] for kind in (must, cannot))
    if not must and not cannot:
        return
    bad = {frozenset(pair) for pair in cannot if pair[1] in joined(must, pair[0])}
    dropped = pairs.check(N, "drop")
    assert as_sets(dropped) == (set(map(frozenset, must)), set(map(frozenset, cannot)) - bad)
    assert dropped.n_must == len({frozenset(pair) for pair in must})
    if bad or opposites:
        with pytest.warns(DataWarning, match="contradict each other"):
            kept = pairs.check(N, "keep")
        assert as_sets(kept) == (as_sets(dropped)[0], set(map(frozenset, cannot)))
    if not is_bad:
        assert pairs.check(N) == dropped == pairs.check(N, "keep")


@given(edges, st.permutations(range(N)), st.integers(0, N))
def test_select_renumbers(must: Edges, order: list[int], size: int) -> None:
    ids = [10 * row - 20 for row in order[:size]]
    selected = Pairs([(10 * a - 20, 10 * b - 20) for a, b in must]).select(np.array(ids, dtype=int))
    wanted = [[ids.index(10 * a - 20), ids.index(10 * b - 20)] for a, b in must if {a, b} <= set(order[:size])]
    assert selected.must_link.tolist() == wanted


def test_select_refuses_repeats() -> None:
    with pytest.raises(InputError, match=r"sample_ids: repeated identifiers; got \[4\].*replacement"):
        Pairs([[4, 5]]).select([4, 5, 4])


# What `fit` may be given (cross-validation: test_pairs_in_cross_validation.py).


def test_resolve_takes_every_form() -> None:
    wanted = Pairs([[0, 1]], [[1, 2]])
    assert resolve_pairs(3, must_link=[[1, 0]], cannot_link=[(1, 2)]) == wanted
    assert resolve_pairs(3, pairs=Pairs([[1, 0]], [[2, 1]])) == wanted
    assert resolve_pairs(3, must_link=[[1, 0]]) == Pairs([[0, 1]])
    assert resolve_pairs(3, y=[5, 6, 7], must_link=[[1, 0]], cannot_link=[(1, 2)]) == wanted
    assert resolve_pairs(3, must_link=[[7, 8]], cannot_link=[[8, 9], [1, 7]], sample_ids=[7, 8, 9]) == wanted
    assert resolve_pairs(3, pairs=wanted, sample_ids=np.arange(3)) == wanted
    y = np.arange(40) % 4
    assert resolve_pairs(40, y=y, random_state=3) == Pairs.from_labels(y, 180, 600).check(40)  # all of them
    many = np.arange(2000) % 4
    drawn = resolve_pairs(2000, y=many, random_state=3)
    assert (drawn.n_must, drawn.n_cannot) == (10_000, 10_000)
    assert (many[drawn.must_link[:, 0]] == many[drawn.must_link[:, 1]]).all()
    assert (many[drawn.cannot_link[:, 0]] != many[drawn.cannot_link[:, 1]]).all()
    some = resolve_pairs(2000, y=np.where(np.arange(2000) < 200, many, -1), random_state=3)
    assert (some.n_must, some.n_cannot) == (1_000, 1_000)
    with pytest.warns(DataWarning, match="cannot-links lie inside") as seen:
        kept = resolve_pairs(3, must_link=[[0, 1], [1, 2]], cannot_link=[[2, 0]], contradictions="keep")
    assert kept == Pairs([[0, 1], [1, 2]], [[0, 2]]) and len(seen) == 1
    assert resolve_pairs(3, pairs=kept, contradictions="drop") == Pairs([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "nothing to learn from"),
        ({"y": [0, 1]}, r"y: labels and rows differ in number; got shape \(2,\); wanted \(3,\)"),
        ({"y": [0, 0, 0, 1]}, "differ in number"),
        ({"y": [-1, -1, -1]}, "y: no row has a label"),
        ({"pairs": Pairs([[0, 1]]), "cannot_link": [[1, 2]]}, "given twice"),
        ({"pairs": [[0, 1]]}, "pairs in the wrong argument; got pairs of type list"),
        ({"must_link": Pairs([[0, 1]])}, "pairs in the wrong argument"),
        ({"cannot_link": Pairs([[0, 1]])}, "pairs in the wrong argument; got cannot_link of type Pairs"),
        ({"pairs": Pairs([[0, 1]]), "sample_ids": [0, 1]}, r"sample_ids: not one a row; got shape \(2,\)"),
        ({"pairs": Pairs([[0, 1]]), "sample_ids": [0.0, 1.0, 2.0]}, "sample_ids: not of an integer type"),
        ({"pairs": Pairs([[0, 1]]), "sample_ids": [0, 1, 1]}, "repeated identifiers"),
        ({"pairs": Pairs([[0, 1]], [[1, 9]]), "sample_ids": [1, 2, 3]}, "none of 2 pairs"),
        ({"must_link": [[0, 3]]}, "another X"),
    ],
)
def test_resolve_refuses(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        resolve_pairs(3, **arguments)
