"""Sums in a fixed tree: the same bits whoever adds which part, and in whatever order the parts come."""

import numpy as np
import pytest

from dkl.linalg.rows.tree_sum import MAX_GROUPS, absorb, group_bounds, share, subtrees, total


def wild(rng, groups, size=50):
    """Vectors of which the sum depends on the order of addition."""
    return rng.standard_normal((groups, size)) * 10.0 ** rng.integers(-8, 9, (groups, size))


def by_halves(vectors):
    """The tree's sum by its definition."""
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    return by_halves(vectors[:half]) + by_halves(vectors[half:])


def added_up(vectors, groups, order=None):
    """What an owner of a range of groups holds after adding them up, in a given order."""
    partials = {}
    for k in groups if order is None else order:
        absorb(partials, (0, k), vectors[k].copy())
    return partials


@pytest.mark.parametrize("n_slabs", [1, 2, 3, 5, 8, 13, 15, 16, 17, 31, 32, 52, 1000])
def test_groups_are_a_power_of_two_and_cover_the_slabs(n_slabs):
    bounds = group_bounds(n_slabs)
    assert len(bounds) in (1, 2, 4, 8, 16, 32, 64)
    assert len(bounds) <= min(n_slabs, MAX_GROUPS) < 2 * len(bounds) or len(bounds) == MAX_GROUPS
    assert [k for lo, hi in bounds for k in range(lo, hi)] == list(range(n_slabs))
    sizes = [hi - lo for lo, hi in bounds]
    assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("n_groups", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("n_owners", [1, 2, 3, 5, 7, 16, 40])
def test_owners_get_equal_contiguous_shares(n_groups, n_owners):
    shares = share(n_groups, n_owners)
    assert [k for part in shares for k in part] == list(range(n_groups))
    assert len(shares) == min(n_groups, n_owners)
    sizes = [len(part) for part in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("groups", [1, 2, 4, 8, 16])
def test_the_bits_do_not_depend_on_owners_or_order(rng, groups):
    vectors = wild(rng, groups)
    expected = by_halves(vectors).tobytes()
    if groups > 2:
        assert vectors.cumsum(axis=0)[-1].tobytes() != expected, "these sums would be the same in any order"
    for owners in range(1, groups + 1):
        parts = [added_up(vectors, part) for part in share(groups, owners)]
        assert total(parts).tobytes() == expected
        assert total(reversed(parts)).tobytes() == expected
    for _ in range(20):
        order = rng.permutation(groups).tolist()
        assert total([added_up(vectors, range(groups), order)]).tobytes() == expected
        cuts = np.sort(rng.integers(0, groups + 1, 2))
        pieces = np.split(rng.permutation(groups), cuts)  # owners of anything, not ranges alone
        assert total([added_up(vectors, piece.tolist()) for piece in pieces if len(piece)]).tobytes() == expected


def test_an_aligned_range_is_one_subtree(rng):
    vectors = wild(rng, 16)
    for level in range(5):
        for index in range(16 >> level):
            part = range(index << level, (index + 1) << level)
            assert list(added_up(vectors, part)) == [(level, index)]
    assert sorted(added_up(vectors, range(3, 13))) == [(0, 3), (0, 12), (2, 1), (2, 2)]


def test_subtrees_are_counted(rng):
    vectors = wild(rng, 32, 1)
    for start in range(33):
        for stop in range(start, 33):
            assert subtrees(range(start, stop)) == len(added_up(vectors, range(start, stop)))


def test_in_order_there_are_never_more_than_a_path_of_vectors(rng):
    vectors, partials = wild(rng, 16), {}
    for k in range(16):
        absorb(partials, (0, k), vectors[k].copy())
        assert len(partials) == (k + 1).bit_count()


def test_every_buffer_is_kept_or_given_back(rng):
    vectors, partials, free = wild(rng, 8), {}, []
    buffers = [vector.copy() for vector in vectors]
    for k in rng.permutation(8).tolist():
        free += absorb(partials, (0, k), buffers[k])
    held = [*partials.values(), *free]
    assert sorted(map(id, held)) == sorted(map(id, buffers))
    assert list(partials) == [(3, 0)]


def test_a_sum_leaves_its_parts_as_they_were(rng):
    vectors = wild(rng, 8)
    parts = [added_up(vectors, part) for part in share(8, 3)]
    before = [{node: vector.tobytes() for node, vector in part.items()} for part in parts]
    first, second = total(parts), total(parts)
    assert first.tobytes() == second.tobytes()
    assert before == [{node: vector.tobytes() for node, vector in part.items()} for part in parts]


def test_the_only_part_is_not_copied(rng):
    part = added_up(wild(rng, 4), range(4))
    assert total([part]) is part[2, 0]


def test_what_does_not_cover_the_tree_is_refused(rng):
    vectors = wild(rng, 8)
    parts = [added_up(vectors, part) for part in share(8, 3)]
    for missing in range(3):
        with pytest.raises(ValueError, match="do not cover the tree"):
            total(parts[:missing] + parts[missing + 1 :])
    with pytest.raises(ValueError, match="do not cover the tree"):
        total([])


def test_matrices_are_added_up_too(rng):
    matrices = wild(rng, 8, 6).reshape(8, 2, 3)
    for owners in (1, 2, 3, 8):
        found = total([added_up(matrices, part) for part in share(8, owners)])
        assert found.shape == (2, 3) and found.tobytes() == by_halves(matrices).tobytes()


def test_sums_are_put_into_vectors_that_are_given(rng):
    """However many owners there are; the parts are read-only."""
    vectors = wild(rng, 16)
    for owners in range(2, 17):
        parts = [added_up(vectors, part) for part in share(16, owners)]
        for part in parts:
            for vector in part.values():
                vector.flags.writeable = False
        given = []

        def empty(size, given=given):
            given.append(np.full(size, np.nan))
            return given[-1]

        found = total(parts, empty)
        assert found.tobytes() == by_halves(vectors).tobytes()
        assert any(np.shares_memory(found, vector) for vector in given)
        assert len(given) <= 4


def test_empty_vectors_have_an_empty_sum():
    vectors = np.empty((4, 0))
    assert total([added_up(vectors, part) for part in share(4, 2)]).shape == (0,)
