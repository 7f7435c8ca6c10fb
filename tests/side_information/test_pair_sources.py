"""Where pairs come from: random draws from labels, sparse matrices, other libraries' forms, files."""

import itertools
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array
from scipy.stats import chisquare

from dkl.errors import InputError
from dkl.side_information import labels as labels_module
from dkl.side_information.labels import _triangle_row
from dkl.side_information.loading import load_pairs
from dkl.side_information.pairs import Pairs, pair_train_test_split


def as_sets(pairs: Pairs) -> tuple[set[frozenset[int]], set[frozenset[int]]]:
    must, cannot = ({frozenset(map(int, pair)) for pair in kind} for kind in (pairs.must_link, pairs.cannot_link))
    return must, cannot


# Labels.


def test_samples_are_uniform() -> None:
    y = np.array([1, 0, 0, 5, 0, 0, 1, 1, -1, -1])
    labelled = [row for row in range(len(y)) if y[row] >= 0]
    counts: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    for kind, same in enumerate((True, False)):
        valid = [frozenset(p) for p in itertools.combinations(labelled, 2) if (y[p[0]] == y[p[1]]) == same]
        counts[kind].update({frozenset(two): 0 for two in itertools.combinations(valid, 2)})
    rng = np.random.default_rng(3)
    for _ in range(2000):
        for kind, drawn in zip(counts, as_sets(Pairs.from_labels(y, 2, 2, rng)), strict=True):
            kind[frozenset(drawn)] += 1  # a KeyError: not two distinct valid pairs
    for kind in counts:
        assert chisquare(list(kind.values())).pvalue > 1e-3


@pytest.mark.parametrize("wanted", [1, 2, 3, 4, 6])
def test_samples_of_a_large_share_are_uniform(monkeypatch: pytest.MonkeyPatch, wanted: int) -> None:
    """As of many rows, of which no array of all pairs is made: one class of four rows has six pairs."""
    monkeypatch.setattr(labels_module, "MANY", 0)
    everything = map(frozenset, itertools.combinations(range(4), 2))
    counts = {frozenset(drawn): 0 for drawn in itertools.combinations(everything, wanted)}
    rng = np.random.default_rng(4)
    for _ in range(1500):
        counts[frozenset(as_sets(Pairs.from_labels(np.zeros(4, int), wanted, 0, rng))[0])] += 1
    assert len(counts) == 1 or chisquare(list(counts.values())).pvalue > 1e-3


def test_no_array_of_all_pairs_is_made() -> None:
    n = 4000
    total, y = n * (n - 1) // 2, np.zeros(n, dtype=int)
    wanted = int(0.06 * total)
    tracemalloc.start()
    try:
        must = Pairs.from_labels(y, wanted, 0, random_state=0).must_link
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * total  # bytes of such an array
    assert len(np.unique(must.min(axis=1) * n + must.max(axis=1))) == wanted == len(must)


@given(st.lists(st.integers(-1, 3), max_size=12), st.integers(0, 2**32 - 1))
def test_all_pairs_can_be_drawn(labels: list[int], random_state: int) -> None:
    if set(labels) in ({-1, k} for k in range(4)):
        return
    rows = [row for row, label in enumerate(labels) if label >= 0]
    both = list(itertools.combinations(rows, 2))
    same = {frozenset(pair) for pair in both if labels[pair[0]] == labels[pair[1]]}
    other = set(map(frozenset, both)) - same
    pairs = Pairs.from_labels(np.array(labels, dtype=int), len(same), len(other), random_state)
    assert as_sets(pairs) == (same, other)
    assert (pairs.n_must, pairs.n_cannot) == (len(same), len(other))
    for n_must, n_cannot in ((len(same) + 1, 0), (0, len(other) + 1), (-1, 0)):
        with pytest.raises(InputError, match="no such number of distinct pairs"):
            Pairs.from_labels(np.array(labels, dtype=int), n_must, n_cannot)


# admm_hu_kwok_2013, table 1: patterns, classes, constraints in T, rank.
TABLE_1 = [(100, 2, 340, 25), (214, 6, 728, 37), (150, 3, 510, 31), (47, 4, 161, 17), (11_220, 2, 38_148, 275)]


@pytest.mark.parametrize(("n", "n_classes", "n_constraints", "rank"), TABLE_1)
def test_as_many_pairs_as_in_the_paper(n: int, n_classes: int, n_constraints: int, rank: int) -> None:
    pairs = Pairs.from_labels(np.arange(n) % n_classes, random_state=0)
    m = n + 2 * (pairs.n_must + pairs.n_cannot)
    assert abs(m - n_constraints) <= 2  # where 0.6 n is no integer, the paper has rounded one of the two up
    assert max(r for r in range(400) if r * (r + 1) / 2 <= m) == rank


@pytest.mark.exhaustive
def test_a_million_rows() -> None:
    n = 1_000_000
    y = np.random.default_rng(0).integers(0, 1000, n)
    pairs = Pairs.from_labels(y, random_state=0)
    must, cannot = pairs.must_link, pairs.cannot_link
    assert len(must) == len(cannot) == 600_000
    assert np.all(y[must[:, 0]] == y[must[:, 1]])
    assert np.all(y[cannot[:, 0]] != y[cannot[:, 1]])
    for kind in (must, cannot):
        assert np.all(kind[:, 0] != kind[:, 1])
        assert len(np.unique(kind.min(axis=1) * n + kind.max(axis=1))) == 600_000
    one_class = Pairs.from_labels(np.zeros(n, dtype=int), n_must=1000, random_state=1)
    assert (one_class.n_must, one_class.n_cannot) == (1000, 0)
    assert one_class.must_link.max() > 0.98 * n


def test_fewer_pairs_than_the_default_are_all_taken() -> None:
    assert as_sets(Pairs.from_labels([0, 0, 1]))[0] == {frozenset((0, 1))}
    assert Pairs.from_labels([0, 1, 2, 3, 4]).n_must == 0


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 0, -1, 1, 1]),
        np.array([0.0, 0.0, -1.0, 1.0, 1.0]),
        ["a", "a", None, "b", "b"],
        ["a", "a", -1, "b", "b"],
        ["a", "a", "-1", "b", "b"],
        np.array(["a", "a", "-1", "b", "b"]),
        np.array(["a", "a", None, "b", "b"], dtype=object),
    ],
)
def test_forms_of_labels(labels: Any) -> None:
    must, cannot = as_sets(Pairs.from_labels(labels, 2, 4, np.random.RandomState(0)))
    assert must == {frozenset((0, 1)), frozenset((3, 4))}
    assert cannot == {frozenset(pair) for pair in itertools.product((0, 1), (3, 4))}


def test_booleans_have_no_unlabeled() -> None:
    assert Pairs.from_labels([True, True, False], 1, 2).n_cannot == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0.0, np.inf, 1.0], r"y\[1\] = inf"),
        ([0.0, 1.5], r"y\[1\] = 1.5"),
        (np.array(["a", 3, None], dtype=object), "do not compare"),
        ([[0, 1]], "one-dimensional"),
        ([-1, 1, 1, -1], "recode"),  # two classes written -1 and +1
        (np.array(["-1", "+1", "+1", "-1"]), "recode"),
    ],
)
def test_refuses_labels(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.from_labels(labels)


def test_same_seed_same_pairs() -> None:
    y = np.arange(50) % 3
    assert Pairs.from_labels(y, random_state=5) == Pairs.from_labels(y, random_state=5)
    assert Pairs.from_labels(y, random_state=5) != Pairs.from_labels(y, random_state=6)


@pytest.mark.parametrize("b", [1, 2, 1000, 94_906_267, 3_000_000_000])
def test_numbers_turn_back_into_pairs_exactly(b: int) -> None:
    first = b * (b - 1) // 2  # the pairs (0, b), ..., (b - 1, b) have the numbers from here on
    rank = np.array([first, first + b - 1, first + b], dtype=np.int64)
    assert _triangle_row(rank).tolist() == [b, b, b + 1]


# Other forms.


def test_metric_learn_form() -> None:
    pairs = Pairs.from_metric_learn([[0, 1], [2, 3], [4, 5]], [1, -1, 1])
    assert pairs == Pairs([[0, 1], [4, 5]], [[2, 3]])
    assert Pairs.from_metric_learn(*pairs.to_metric_learn()) == pairs
    for y_pairs in ([1, 0, 1], [1, -1], [[1], [-1], [1]]):
        with pytest.raises(InputError, match="not a sign a pair"):
            Pairs.from_metric_learn([[0, 1], [2, 3], [4, 5]], y_pairs)


def test_sparse_forms() -> None:
    dense = np.array([[1, 2.5, 0, -1], [2.5, 0, 0, 0], [0, 0, 0, 3], [-1, 0, 3, 1]])
    wanted = Pairs([[0, 1], [2, 3]], [[0, 3]])
    assert Pairs.from_sparse(csr_array(dense)).check(4) == wanted
    assert Pairs.from_sparse(csr_array(np.triu(dense))).check(4) == wanted
    np.testing.assert_array_equal(wanted.to_sparse(4).toarray(), np.sign(dense) - np.diag([1, 0, 0, 1]))
    target = coo_array(([1, 1, 0, 1], ([0, 0, 0, 2], [0, 1, 3, 3])), shape=(4, 4))
    assert Pairs.from_sparse(target, form="target").check(4) == wanted


@pytest.mark.parametrize(
    ("matrix", "form", "message"),
    [
        (np.eye(3), "signed", "not a square sparse matrix"),
        (csr_array((2, 3)), "signed", r"shape \(2, 3\)"),
        (csr_array((3, 3)), "neither", "no such form"),
        (coo_array(([0.0], ([0], [1])), shape=(3, 3)), "signed", r"matrix\[0, 1\] = 0.*target"),
        (coo_array(([1, -1], ([0, 0], [1, 1])), shape=(3, 3)), "signed", r"matrix\[0, 1\] = 0"),
        (coo_array(([0.5], ([0], [1])), shape=(3, 3)), "target", r"matrix\[0, 1\] = 0.5"),
        (coo_array(([np.nan], ([0], [1])), shape=(3, 3)), "signed", "nan"),
    ],
)
def test_refuses_matrices(matrix: Any, form: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.from_sparse(matrix, form=form)


def test_split_holds_out_a_share_of_either_kind() -> None:
    pairs = Pairs.from_labels(np.arange(100) % 2, 60, 40, random_state=0)
    twice = Pairs(np.r_[pairs.must_link, pairs.must_link[:, ::-1]], pairs.cannot_link)
    train, test = pair_train_test_split(twice, test_size=0.25, random_state=1)
    assert (test.n_must, test.n_cannot, train.n_must, train.n_cannot) == (15, 10, 45, 30)
    for kind in range(2):
        assert as_sets(train)[kind] | as_sets(test)[kind] == as_sets(pairs)[kind]
    assert (train, test) == pair_train_test_split(pairs, test_size=0.25, random_state=1)
    assert test != pair_train_test_split(pairs, test_size=0.25, random_state=2)[1]
    for size in (0.0, 1.0, 5, float("nan")):
        with pytest.raises(InputError, match="not a share"):
            pair_train_test_split(pairs, test_size=size)
    with pytest.raises(InputError, match="too few"):
        pair_train_test_split(Pairs([[0, 1]]))


# Files.


@pytest.mark.parametrize(
    "text",
    [
        "0,1,must\n2,3,cannot\n4,5,must\n",
        "i,j,label\n0,1,1\n2,3,0\n4,5,1\n",
        "\ufeffi,j,label\r\n0,1,+1\r\n\r\n2,3,-1\r\n4,5,1\r\n",
        "label, i, j\nMust, 0, 1\ncannot-link, 2, 3\nmust_link, 4, 5\n",
    ],
)
def test_csv(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(text.encode())
    assert load_pairs(path) == Pairs([[0, 1], [4, 5]], [[2, 3]])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0,1,must\n2,3,perhaps\n", 2),
        ("i,j,label\n\n1.0,2,must\n", 3),
        ("0,1\n", 1),
        ("0,1,must,one\n", 1),
        ("a,b,c\n", 1),
        ("0,1,must\ni,j,label\n", 2),
        ("0,--1,must\n", 1),
    ],
)
def test_malformed_csv(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=f"pairs.csv, line {line}: malformed line"):
        load_pairs(path)


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "pairs.npz"
    np.savez(path, must_link=[[0, 1]], cannot_link=[[2, 3]])
    assert load_pairs(str(path)) == Pairs([[0, 1]], [[2, 3]])
    np.savez(path, cannot_link=[[2, 3]])
    assert load_pairs(path) == Pairs(None, [[2, 3]])


def damaged(path: Path) -> None:
    np.savez(path, must_link=np.arange(200).reshape(-1, 2))
    path.write_bytes(path.read_bytes()[:500])


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("absent.csv", lambda path: None, "absent.csv: no such file"),
        ("absent.npz", lambda path: None, "absent.npz: no such file"),
        ("pairs.txt", lambda path: path.write_text("0,1,must"), "not a file of pairs"),
        ("bytes.csv", lambda path: path.write_bytes(b"0,1,\xff"), "cannot be read"),
        ("other.npz", lambda path: np.savez(path, X=[1]), "no pairs in the file; got X"),
        ("object.npz", lambda path: np.savez(path, must_link=np.array([None])), "objects are never read"),
        ("torn.npz", damaged, "torn.npz: the file cannot be read"),
    ],
)
def test_refuses_files(tmp_path: Path, name: str, write: Callable[[Path], Any], message: str) -> None:
    write(tmp_path / name)
    with pytest.raises(InputError, match=message):
        load_pairs(tmp_path / name)
