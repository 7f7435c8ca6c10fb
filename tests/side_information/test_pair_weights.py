"""Weights of pairs: what they may be, and that they stay with their pairs whatever becomes of these."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import KFold

import dkl
from dkl.baselines import ITMLMetricLearner
from dkl.errors import InconsistentPairsError, InputError
from dkl.estimators.base.side_information import resolve_pairs
from dkl.side_information.loading import load_pairs
from dkl.side_information.pairs import Pairs, pair_train_test_split

MUST, CANNOT = [[0, 1], [3, 2]], [[1, 2], [4, 0]]


def by_ends(pairs: Pairs) -> dict[tuple[frozenset[int], int], float]:
    """Weight of each pair, by its ends and sign."""
    ends = np.stack([pairs.i, pairs.j], axis=1)
    return {(frozenset(two), sign): w for two, sign, w in zip(ends.tolist(), pairs.sign, pairs.weights, strict=True)}


def random_pairs(rng: Any, n: int) -> Pairs:
    drawn = Pairs.from_labels(rng.integers(0, 3, n), n, n, int(rng.integers(99)))
    return Pairs(drawn.must_link[:, ::-1], drawn.cannot_link, weights=rng.random(2 * n) + 0.1)


def test_weights_are_part_of_the_value() -> None:
    given = np.array([1.0, 0.5, 2.0, 3.0])
    pairs = Pairs(MUST, CANNOT, weights=given)
    given[:] = 9
    for same in (pairs, copy.deepcopy(pairs), pickle.loads(pickle.dumps(pairs))):
        assert same == pairs and hash(same) == hash(pairs)
        assert same.weights.tolist() == [1.0, 0.5, 2.0, 3.0] and same.is_weighted
        with pytest.raises(ValueError, match="read-only"):
            same.weights[0] = 7
    assert pairs != Pairs(MUST, CANNOT) and pairs != Pairs(MUST, CANNOT, weights=[1, 1, 2, 3])
    assert repr(pairs) == "Pairs(n_must=2, n_cannot=2, ends 0 to 4, weights 0.5 to 3)"


def test_ones_say_nothing() -> None:
    plain, ones = Pairs(MUST, CANNOT), Pairs(MUST, CANNOT, weights=[1, 1, 1, 1])
    assert plain == ones and hash(plain) == hash(ones) and repr(plain) == repr(ones)
    assert not ones.is_weighted and ones.weights.tolist() == plain.weights.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0, 3.0], r"weights: not a weight a pair; got shape \(3,\).*2 of must_link and then 2"),
        ([[1.0, 2.0, 3.0, 4.0]], r"got shape \(1, 4\)"),
        (2.0, r"got shape \(\)"),
        ([1.0, -0.5, -2.0, 4.0], r"not a weight; got weights\[1\] = -0.5 and 1 more; wanted a finite number >= 0"),
        ([1.0, 2.0, np.nan, 4.0], r"weights\[2\] = nan"),
        ([1.0, 2.0, np.inf, 4.0], r"weights\[2\] = inf"),
        ([True, True, False, True], "dtype bool"),
        (["1", "2", "3", "4"], "weights"),
        ([1j, 2, 3, 4], "dtype complex128"),
        (np.ma.masked_equal([1.0, 2.0, 3.0, 4.0], 2.0), "masked"),
    ],
)
def test_refuses_what_is_no_weight_a_pair(weights: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        Pairs(MUST, CANNOT, weights=weights)
    assert "\n" not in str(caught.value)


def test_they_go_with_their_pairs_through_folds_and_splits(rng: Any) -> None:
    n = 40
    pairs = random_pairs(rng, n)
    known = by_ends(pairs)
    assert by_ends(pairs.check(n)) == known
    for chosen, _ in KFold(3, shuffle=True, random_state=0).split(np.empty(n)):
        rows = rng.permutation(chosen)
        found = resolve_pairs(len(rows), pairs=pairs, sample_ids=rows, takes_weights=True)
        back = {(frozenset(rows[list(two)].tolist()), sign): w for (two, sign), w in by_ends(found).items()}
        assert back == {pair: w for pair, w in known.items() if pair[0] <= set(rows.tolist())}
    train, test = pair_train_test_split(pairs, 0.3, random_state=0)
    assert by_ends(train) | by_ends(test) == known and len(by_ends(train)) + len(by_ends(test)) == len(known)
    ids = rng.permutation(1000)[:n]
    named = Pairs(pairs.must_link, pairs.cannot_link, ids=ids, weights=pairs.weights)
    assert by_ends(named.select(ids)) == known


def test_weight_0_is_no_pair() -> None:
    pairs = Pairs([[0, 1], [1, 2], [2, 3]], [[0, 2], [3, 4]], weights=[2.0, 0.0, 1.0, 1.0, 1.0]).check(5)
    assert pairs == Pairs(
        [[0, 1], [2, 3]], [[0, 2], [3, 4]], weights=[2.0, 1.0, 1.0, 1.0]
    )  # 0-1-2 is no chain any more
    assert Pairs([[0, 1]], [[1, 0]], weights=[1.0, 0.0]).check(2) == Pairs([[0, 1]])
    with pytest.raises(InputError, match="weights: all weights are 0"):
        Pairs([[0, 1]], [[1, 2]], weights=[0.0, 0.0]).check(3)


def test_repeats_count_once_or_are_refused() -> None:
    twice = Pairs([[0, 1], [1, 0], [2, 3], [1, 0]], weights=[2.0, 2.0, 1.0, 0.0])
    assert twice.check(4) == Pairs([[0, 1], [2, 3]], weights=[2.0, 1.0])
    with pytest.raises(
        InputError, match=r"cannot_link\[1\] = \(4, 0\), cannot_link\[2\] = \(0, 4\), of weights 1 and 3"
    ):
        Pairs(None, [[1, 2], [4, 0], [0, 4]], weights=[5.0, 1.0, 3.0]).check(5)


def test_contradictions_are_named_by_their_place() -> None:
    pairs = Pairs([[0, 1], [1, 2]], [[3, 4], [0, 2]], weights=[1.0, 2.0, 0.0, 0.5])
    with pytest.raises(InconsistentPairsError, match=r"cannot_link\[1\] = \(0, 2\), must-linked through 0-1-2"):
        pairs.check(5)
    assert pairs.check(5, "drop") == Pairs([[0, 1], [1, 2]], weights=[1.0, 2.0])


@pytest.mark.parametrize(
    "text",
    [
        "0,1,must,2\n1,2,cannot,0.25\n3,2,must,1e1\n4,0,cannot,1\n",
        "weight,label,i,j\n2,1,0,1\n\n.25,0,1,2\n10.0,1,3,2\n1,-1,4,0\n",
    ],
)
def test_csv(tmp_path: Path, text: str) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    assert load_pairs(tmp_path / "pairs.csv") == Pairs(MUST, CANNOT, weights=[2.0, 10.0, 0.25, 1.0])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0,1,must,2\n2,3,must\n", 2),
        ("0,1,must\n2,3,must,2\n", 2),
        ("0,1,must,-2\n", 1),
        ("0,1,must,nan\n", 1),
        ("i,j,label,weight\n0,1,must,inf\n", 2),
        ("i,j,label,weight\n0,1,must,\n", 2),
        ("0,1,must,1_0\n", 1),
        ("i,j,label,sureness\n", 1),
    ],
)
def test_malformed_csv(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "pairs.csv").write_text(text)
    with pytest.raises(InputError, match=f"pairs.csv, line {line}: malformed line"):
        load_pairs(tmp_path / "pairs.csv")


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "pairs.npz"
    np.savez(path, must_link=MUST, cannot_link=CANNOT, weights=[1, 2, 3, 4])
    assert load_pairs(path) == Pairs(MUST, CANNOT, weights=[1, 2, 3, 4])
    np.savez(path, must_link=MUST, weights=[1.0, 2.0, 3.0])
    with pytest.raises(InputError, match="not a weight a pair"):
        load_pairs(path)


def test_plain_arrays_have_theirs_beside_them() -> None:
    given = {"must_link": MUST, "cannot_link": CANNOT, "weights": [1.0, 2.0, 3.0, 4.0]}
    assert resolve_pairs(5, **given, takes_weights=True) == Pairs(MUST, CANNOT, weights=[1.0, 2.0, 3.0, 4.0]).check(5)
    for arguments in ({"pairs": Pairs(MUST, CANNOT)}, {"y": [0, 0, 1, 1, 0]}):
        with pytest.raises(InputError, match="pair_weights: weights without their pairs"):
            resolve_pairs(5, **arguments, weights=[1.0, 2.0, 3.0, 4.0], takes_weights=True)


@pytest.mark.parametrize("learner", [ITMLMetricLearner(), dkl.LogDetKernelLearner(), dkl.LogDetMetricLearner()])
def test_methods_without_weights_refuse_them(rng: Any, learner: Any) -> None:
    weighted = Pairs(MUST, CANNOT, weights=[1.0, 2.0, 3.0, 4.0])
    with pytest.raises(InputError, match="pairs: this method takes no weights of pairs"):
        learner.fit(rng.standard_normal((5, 2)), pairs=weighted)
