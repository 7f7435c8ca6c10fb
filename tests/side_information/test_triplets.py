"""Triplets as a value, those made from labels against a plain loop, and the checks at the door."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.model_selection import cross_val_score

from dkl.errors import DataWarning, InconsistentPairsError, InputError
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets, resolve_triplets

N = 6
triples = st.permutations(range(N)).map(lambda order: tuple(order[:3]))


def test_is_opaque_immutable_and_a_value() -> None:
    source = np.array([[0, 1, 2], [2, 3, 0]])
    triplets = Triplets(source)
    source[:] = 9
    for name in ("__len__", "shape", "__array__", "__getitem__", "__iter__", "iloc"):
        assert not hasattr(triplets, name)
    for same in (triplets, copy.deepcopy(triplets), pickle.loads(pickle.dumps(triplets))):
        assert same == triplets and hash(same) == hash(triplets)
        with pytest.raises(ValueError, match="read-only"):
            same.triplets[0, 0] = 7
    assert triplets != Triplets([[0, 1, 2]]) and triplets != "triplets"
    assert repr(triplets) == "Triplets(n=2, rows 0 to 3)" and repr(Triplets([])) == "Triplets(n=0)"
    columns = (triplets.anchor, triplets.similar, triplets.dissimilar)
    assert [column.tolist() for column in columns] == [[0, 2], [1, 3], [2, 0]]
    assert triplets.to_pairs() == Pairs([[0, 1], [2, 3]], [[0, 2], [2, 0]])
    assert Triplets.from_metric_learn(triplets.to_metric_learn()) == triplets


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([[0.0, 1.0, 2.0]], r"triplets: not of an integer type; got dtype float64; .*astype"),
        ([0, 1, 2], r"not an array of triplets; got shape \(3,\); .*; one triplet is written \[\[i, j, k\]\]"),
        ([[0, 1]], r"not an array of triplets; got shape \(1, 2\); wanted an \(m, 3\) array"),
        ([[0, 1, 2], [3]], "different lengths"),
    ],
)
def test_what_is_no_array_of_triplets(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Triplets(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "no triplets"),
        ([[0, 1, -2]], r"triplets: negative row numbers; got triplets\[0\] = \(0, 1, -2\); wanted .* 0 to 4"),
        (
            [[0, 1, 2], [0, 1, 5]],
            r"out of range; got triplets\[1\] = \(0, 1, 5\); .*; these look like triplets of another",
        ),
        ([[0, 0, 1], [0, 1, 1], [1, 0, 1], [2, 1, 2]], r"a row twice .*triplets\[2\] = \(1, 0, 1\) and 1 more"),
        (
            [[0, 1, 2], [3, 1, 2], [0, 2, 1]],
            r"reverse .*triplets\[0\] = \(0, 1, 2\), triplets\[2\] = \(0, 2, 1\); wanted",
        ),
    ],
)
def test_check_refuses(value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Triplets(value).check(5)
    assert "\n" not in str(raised.value)


@given(st.lists(triples, min_size=1, max_size=25))
def test_contradictions_are_those_of_a_search(given_triplets: list[tuple[int, int, int]]) -> None:
    found = set(given_triplets)
    bad = {(i, j, k) for i, j, k in found if (i, k, j) in found}
    triplets = Triplets(given_triplets)
    if not bad:
        assert triplets.check(N).triplets.tolist() == sorted(map(list, found))
        return
    with pytest.raises(InconsistentPairsError):
        triplets.check(N)
    with pytest.warns(DataWarning, match="reverse"):
        assert triplets.check(N, "keep").triplets.tolist() == sorted(map(list, found))
    if found == bad:
        with pytest.raises(InputError, match="no triplets left"):
            triplets.check(N, "drop")
    else:
        assert triplets.check(N, "drop").triplets.tolist() == sorted(map(list, found - bad))


def by_hand(squared: Any, y: Any, n_in: int, n_out: int) -> list[list[int]]:
    """The triplets of labels y, from all squared distances."""
    found = []
    for i in np.flatnonzero(y >= 0):
        order = [j for j in np.lexsort((np.arange(len(y)), squared[i])) if y[j] >= 0 and j != i]
        near, far = ([j for j in order if (y[j] == y[i]) == alike] for alike in (True, False))
        found += [[int(i), int(j), int(k)] for j in near[:n_in] for k in far[:n_out]]
    return found


@pytest.mark.parametrize(("n_in", "n_out"), [(10, 10), (2, 3), (50, 1)])
def test_triplets_of_labels_are_those_of_a_loop(n_in: int, n_out: int, rng: Any) -> None:
    X = rng.integers(0, 4, (60, 2)).astype(float)  # many rows at equal distances
    y = rng.integers(-1, 3, 60)
    y[7] = 3  # alone in its class
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    wanted = by_hand(squared, y, n_in, n_out)
    assert Triplets.from_labels(X, y, n_in, n_out).triplets.tolist() == wanted
    assert Triplets.from_labels(sp.csr_array(X), y, n_in, n_out).triplets.tolist() == wanted
    assert Triplets.from_labels(X @ X.T, y, n_in, n_out, kernel="precomputed").triplets.tolist() == wanted
    assert 7 not in Triplets.from_labels(X, y, n_in, n_out).anchor


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("offset", [0.0, 1.7e9, np.array([1e9, 0.0, -1e9])])
@pytest.mark.parametrize("spread", [1, 2**12])  # of two clouds, each far from the mean of both
def test_triplets_of_labels_far_from_0_are_of_nearest_rows(make: Any, offset: Any, spread: int, rng: Any) -> None:
    X, y = np.round(rng.normal(size=(60, 3)) * 1024) / 1024, np.arange(60) % 2
    X[30:] *= spread
    X[30:, 0] += 2.0**20 * (spread - 1)
    wanted = by_hand(cdist(X, X, "sqeuclidean"), y, 3, 4)
    assert Triplets.from_labels(make(X + offset), y, 3, 4).triplets.tolist() == wanted


def test_triplets_of_labels_do_not_depend_on_blocks(rng: Any, monkeypatch: Any) -> None:
    X, y = rng.normal(size=(40, 3)), np.arange(40) % 3
    whole = Triplets.from_labels(X, y, 4, 4)
    monkeypatch.setattr("dkl.side_information.triplet_sources.QUERIES", 5)
    monkeypatch.setattr("dkl.side_information.triplet_sources.PAIR_BYTES", 100)
    assert Triplets.from_labels(X, y, 4, 4) == whole


@pytest.mark.parametrize(
    ("X", "y", "options", "message"),
    [
        ([[0.0], [1.0]], [0, 0], {}, "y: all labeled rows are of one class; got 1 class among 2 labeled rows"),
        ([[0.0], [1.0]], [-1, -1], {}, "y: no row has a label; got 0 classes among 0"),
        ([[0.0], [1.0]], [0, 1], {}, "no two rows of one class; got 2 classes of one row each"),
        ([[0.0], [1.0]], [0, 1, 1], {}, r"X: labels and rows differ in number; got shape \(2, 1\); wanted \(3, d\)"),
        ([[0.0], [1.0]], [0, 1], {"kernel": "precomputed"}, r"wanted \(2, 2\), the kernel matrix"),
        ([[0.0], [np.nan]], [0, 1], {}, "contains NaN"),
        (
            1e200 * np.eye(4),
            [0, 0, 1, 1],
            {},
            r"X\[0, 0\]: a value is so large that distances overflow; got 1e\+200; wanted \|x\| <= ",
        ),
        (1e308 * np.eye(4), [0, 0, 1, 1], {"kernel": "precomputed"}, "distances overflow"),
        ([[0.0], [1.0]], [0, 1], {"n_in": 0}, "n_in: not a number of neighbors; got 0"),
        ([[0.0], [1.0]], [0, 1], {"n_out": 1.5}, "n_out: not a number of neighbors"),
        ([[0.0], [1.0]], [0, 1], {"kernel": "rbf"}, "kernel: no such choice"),
        ([["a"], ["b"]], [0, 1], {}, "text, not numbers"),
    ],
)
def test_labels_without_triplets(X: Any, y: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Triplets.from_labels(X, y, **options)


def test_points_of_metric_learn_have_no_row_numbers() -> None:
    with pytest.raises(InputError, match="points, not row numbers.*LogDetMetricLearner"):
        Triplets.from_metric_learn(np.zeros((4, 3, 2)))


@given(st.lists(triples, max_size=12), st.permutations(range(N)), st.integers(0, N))
def test_select_renumbers(rows: list[tuple[int, int, int]], order: list[int], size: int) -> None:
    ids = [10 * row - 20 for row in order[:size]]
    selected = Triplets([[10 * row - 20 for row in triple] for triple in rows]).select(np.array(ids, dtype=int))
    wanted = [[order[:size].index(row) for row in triple] for triple in rows if set(triple) <= set(order[:size])]
    assert selected.triplets.tolist() == wanted
    with_ids = Triplets(wanted, ids=ids or None)
    assert with_ids.select(np.array(ids, dtype=int)).triplets.tolist() == wanted


def test_resolve_takes_and_refuses() -> None:
    wanted = Triplets([[0, 1, 2]])
    assert resolve_triplets(3, [[0, 1, 2], [0, 1, 2]]) == wanted
    assert resolve_triplets(3, Triplets([[7, 8, 9], [7, 8, 5]]), [7, 8, 9]) == wanted
    for sample_ids, message in (([0, 1], "not one a row"), ([1, 1, 2], "repeated"), ([5, 6, 7], "none of 1 triplets")):
        with pytest.raises(InputError, match=f"sample_ids: .*{message}"):
            resolve_triplets(3, wanted, sample_ids)


class Router(BaseEstimator):
    """Scores 1 where `fit` got exactly the triplets of its own rows, which tell their numbers."""

    def fit(self, X: Any, y: Any = None, *, triplets: Any = None, sample_ids: Any = None) -> "Router":
        rows = X[:, 0].astype(int)
        found = rows[resolve_triplets(len(X), triplets, sample_ids).triplets].tolist()
        self.is_right_ = sorted(found) == sorted(t for t in ALL if set(t) <= set(rows.tolist()))
        return self

    def score(self, X: Any, y: Any = None) -> float:
        return float(self.is_right_)


ALL = [[i, (i + 1) % 20, (i + 3) % 20] for i in range(20)]


def test_cross_validation_keeps_the_right_triplets() -> None:
    X = np.arange(20.0)[:, None]
    with sklearn.config_context(enable_metadata_routing=True):
        router = Router().set_fit_request(triplets=True, sample_ids=True)
        params = {"triplets": Triplets(ALL), "sample_ids": np.arange(20)}
        assert cross_val_score(router, X, cv=4, params=params, error_score="raise").tolist() == [1.0] * 4
        for wrong in ({"triplets": Triplets(ALL)}, {"triplets": np.array(ALL), "sample_ids": np.arange(20)}):
            with pytest.raises(InputError, match="cannot be followed through cross-validation"):
                cross_val_score(router, X, cv=4, params=wrong, error_score="raise")
