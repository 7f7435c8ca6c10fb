"""Groups of blocks: a power of two by n alone, folded in order, with the same bits wherever and in whatever waves."""

import numpy as np
import pytest

from dkl.blocks.rows import row_groups
from dkl.blocks.rows.row_groups import RowGroups, n_groups
from dkl.blocks.session import Session


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(row_groups, "ROWS_IN_GROUP", 100)


def add(block, total, factor=1.0):
    part = factor * block.rows.T @ block.rows, np.array([block.rows.shape[0]])
    if total is None:
        return part
    return total[0] + part[0], total[1] + part[1]


@pytest.mark.parametrize("n", [1, 99, 100, 150, 200, 1000, 12_345])
@pytest.mark.parametrize("block", [1, 30, 100, 5000])
def test_groups_are_a_power_of_two_of_whole_blocks(n, block):
    groups = RowGroups(np.ones((n, 2)), Session(threads=2), block_rows=block)
    count = groups.n_groups
    assert count == n_groups(n, block) and count & (count - 1) == 0 and count <= max(1, n // 100)
    assert [lo for lo, _ in groups.bounds] == list(range(0, n, block)) and groups.bounds[-1][1] == n
    assert sorted(set(groups._group_of)) == list(range(count)) == sorted(groups.in_turn())
    assert groups.fold(add)[1] == n


def test_the_same_bits_on_any_threads_and_in_any_waves(rng):
    X = rng.standard_normal((3000, 5))
    want = RowGroups(X, Session(threads=1), block_rows=70).fold(add, 2.0)[0]
    np.testing.assert_allclose(want, 2 * X.T @ X, rtol=1e-12)
    for threads in (2, 3):
        groups = RowGroups(X, Session(threads=threads), block_rows=70)
        np.testing.assert_array_equal(groups.fold(add, 2.0)[0], want)
        for size in (1, 3, 5):
            partials, order = {}, list(range(groups.n_groups))
            rng.shuffle(order)
            for lo in range(0, len(order), size):
                groups.fold_groups(add, order[lo : lo + size], partials, 2.0)
            (total,) = partials.values()
            np.testing.assert_array_equal(total[0], want)


def test_an_error_comes_through(rng):
    def fail(block, total):
        raise ValueError(f"row {block.start}")

    with pytest.raises(ValueError, match="row 0"):
        RowGroups(np.ones((1000, 2)), Session(threads=2), block_rows=50).fold(fail)
