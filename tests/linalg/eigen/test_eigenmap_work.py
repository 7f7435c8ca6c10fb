"""Levels of graphs whose levels are known, and what grows with what."""

import numpy as np
import pytest
from scipy import sparse

from dkl.linalg.eigen.eigenmap_work import factor_work, filter_work, graph_levels


def path(n):
    return sparse.diags_array([np.full(n, 2.0), np.ones(n - 1), np.ones(n - 1)], offsets=[0, -1, 1])


def test_a_path_has_a_level_a_row_and_names_do_not_matter(rng):
    names = rng.permutation(40)
    for matrix in (path(40), sparse.csr_array(path(40))[names][:, names]):
        levels = graph_levels(sparse.csr_array(matrix))
        assert (levels.parts, levels.depth, levels.cubes) == (1, 39, 1.0)
        assert levels.strips == pytest.approx(40)


def test_a_complete_graph_has_one_level_of_all_rows():
    levels = graph_levels(sparse.csr_array(np.ones((30, 30))))
    assert (levels.parts, levels.depth) == (1, 1) and levels.cubes == pytest.approx(29**3)


def test_parts_are_counted_and_the_deepest_is_as_deep():
    matrix = sparse.csr_array(sparse.block_diag([path(5), path(9), sparse.csr_array((3, 3)), sparse.eye_array(2)]))
    levels = graph_levels(matrix)
    assert (levels.parts, levels.depth) == (7, 8)
    assert graph_levels(sparse.csr_array((4, 4))).parts == 4


def test_depth_is_the_filter_s_work_and_width_the_factor_s():
    """A strip of 20 x 400 and a square of 90 x 89 grid points have as many rows and entries, to a hundredth."""
    strip, square = (
        sparse.csr_array(sparse.kron(path(a), sparse.eye_array(b)) + sparse.kron(sparse.eye_array(a), path(b)))
        for a, b in ((400, 20), (90, 89))
    )
    one, other = graph_levels(strip), graph_levels(square)
    assert filter_work(one, strip.nnz, 16) > 1.5 * filter_work(other, square.nnz, 16)
    assert factor_work(one, strip.shape[0], strip.nnz, 10) < factor_work(other, square.shape[0], square.nnz, 10)
