"""Clustering measures against a loop over all pairs and against values worked out by hand."""

import itertools
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkl.errors import InputError
from dkl.metrics import adjusted_rand_index, pair_accuracy

labellings = st.integers(2, 15).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2, st.sets(st.integers(0, n - 1)))
)


def counted(true: Any, pred: Any) -> float:
    """The formula of the paper, term by term."""
    pairs = list(itertools.combinations(range(len(true)), 2))
    return sum((true[i] == true[j]) == (pred[i] == pred[j]) for i, j in pairs) / len(pairs)


@given(labellings)
def test_pair_accuracy_counts_pairs(case: tuple[list[int], list[int], set[int]]) -> None:
    true, pred, rows = case
    assert pair_accuracy(true, pred) == pytest.approx(counted(true, pred), rel=1e-15)
    if len(rows) >= 2:
        mask = np.isin(np.arange(len(true)), list(rows))
        wanted = counted([true[row] for row in sorted(rows)], [pred[row] for row in sorted(rows)])
        assert pair_accuracy(true, pred, subset=mask) == pytest.approx(wanted, rel=1e-15)
        assert pair_accuracy(true, pred, subset=list(rows)) == pytest.approx(wanted, rel=1e-15)


def test_exact_for_a_million_patterns() -> None:
    n = 1_000_000
    halves, parity = np.arange(n) // (n // 2), np.arange(n) % 2
    # Two halves crossed with two parities: four cells of n / 4.
    total, together, both = comb(n, 2), 2 * comb(n // 2, 2), 4 * comb(n // 4, 2)
    assert pair_accuracy(halves, parity) == float(Fraction(total - 2 * together + 2 * both, total))
    chance = Fraction(together**2, total)
    assert adjusted_rand_index(halves, parity) == pytest.approx(float((both - chance) / (together - chance)), rel=1e-9)
    one_apart = halves.copy()
    one_apart[0] = 7  # parts from the n / 2 - 1 others of its half
    assert pair_accuracy(halves, one_apart) == float(Fraction(total - (n // 2 - 1), total))


def test_adjusted_rand_index_by_hand() -> None:
    # One pair together in the first, two in the second, one in both, of six: (1 - 2/6) / (3/2 - 2/6).
    assert adjusted_rand_index([0, 0, 1, 2], [5, 5, 6, 6]) == pytest.approx(4 / 7, rel=1e-15)
    assert adjusted_rand_index([0, 0, 1, 1, 9], [3, 3, 4, 4, 0], subset=[0, 1, 2, 3]) == 1.0


def test_names_of_labels_do_not_matter() -> None:
    assert pair_accuracy(["a", "a", "b", "c"], [-1, -1, 1, 1]) == 5 / 6
    assert pair_accuracy(np.arange(100), np.zeros(100, dtype=int)) == 0.0


@pytest.mark.parametrize(
    ("true", "pred", "subset", "message"),
    [
        ([0, 1], [0, 1, 1], None, r"shapes \(2,\) and \(3,\)"),
        ([[0, 1]], [[0, 1]], None, r"shapes \(1, 2\)"),
        ([0], [0], None, "got 1 patterns"),
        ([0, 1, 1], [0, 1, 1], [False, True, False], "got 1 patterns"),
        ([0, 1, 1], [0, 1, 1], [], "got 0 patterns"),
        ([0, 1, 1], [0, 1, 1], [True, True], "not a subset"),
        ([0, 1, 1], [0, 1, 1], [0, 3], "not a subset"),
        ([0, 1, 1], [0, 1, 1], [0, -1], "not a subset"),
        ([0, 1, 1], [0, 1, 1], [0, 0], "not a subset"),
        ([0, 1, 1], [0, 1, 1], [0.0, 1.0], "not a subset"),
    ],
)
def test_refuses(true: Any, pred: Any, subset: Any, message: str) -> None:
    for measure in (pair_accuracy, adjusted_rand_index):
        with pytest.raises(InputError, match=message):
            measure(true, pred, subset=subset)
