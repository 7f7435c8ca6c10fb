"""Sums over rows of columns, against plain products."""

import threading

import numpy as np
import pytest

from dkl.linalg.lasso import line_minimum, subtract_rows
from dkl.linalg.rows.column_moments import add_gram, add_moments, mirrored, syrk, zero_moments


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-13), (np.float32, 1e-5)])
def test_upper_triangle_of_the_gram_matrix_is_added_to(rng, dtype, rtol, order):
    C = np.asarray(rng.standard_normal((40, 9)), dtype, order=order)
    before = rng.standard_normal((9, 9))
    total = before.copy()
    add_gram(total, C)
    wanted = before + C.astype(float).T @ C.astype(float)
    np.testing.assert_allclose(np.triu(total), np.triu(wanted), rtol=rtol, atol=rtol * 40)


def test_single_precision_rounds_blocks_and_not_their_sum(rng):
    """A hundred thousand small terms behind a large one: a float32 sum would lose them."""
    total = np.full((2, 2), 1e8)
    for _ in range(100):
        add_gram(total, np.full((10, 2), 0.3, np.float32))
    np.testing.assert_allclose(np.triu(total - 1e8), np.triu(np.full((2, 2), 90.0)), rtol=1e-6)


@pytest.mark.parametrize("size", [1, 5, 511, 512, 513, 1100])
def test_mirrored_is_symmetric_with_the_upper_triangle(rng, size):
    matrix = rng.standard_normal((size, size))
    wanted = np.triu(matrix) + np.triu(matrix, 1).T
    assert mirrored(matrix) is matrix
    np.testing.assert_array_equal(matrix, wanted)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_panels_make_up_the_whole(rng, dtype, rtol):
    C, Y = rng.standard_normal((30, 11)).astype(dtype), rng.standard_normal((30, 3))
    folds = rng.integers(2, size=30)
    whole = zero_moments(2, 11, 2)
    add_moments(whole, C, Y, folds)
    panels = []
    for lo, hi in ((0, 4), (4, 9), (9, 11)):
        part = zero_moments(2, 11, 2, hi - lo)
        add_moments(part, C[:17], Y[:17], folds[:17], (lo, hi))
        add_moments(part, C[17:], Y[17:], folds[17:], (lo, hi))
        panels.append(part[0])
        np.testing.assert_allclose(part[1], whole[1], rtol=rtol, atol=rtol * 10)
    for k in range(2):
        full = np.concatenate([panel[k] for panel in panels])
        D = C[folds == k].astype(float)
        np.testing.assert_allclose(full, D.T @ D, rtol=rtol, atol=rtol * 10)
        np.testing.assert_allclose(np.triu(full), np.triu(whole[0][k]), rtol=rtol, atol=rtol * 10)
        np.testing.assert_allclose(whole[1][k], D.T @ Y[folds == k], rtol=rtol, atol=rtol * 10)
        np.testing.assert_allclose(whole[2][k], Y[folds == k].T @ Y[folds == k], rtol=1e-12, atol=1e-13)


def test_rows_are_subtracted(rng):
    rows, out = rng.standard_normal((5, 8)), rng.standard_normal(8)
    wanted = out - 2.0 * rows[3] + 0.5 * rows[0]
    subtract_rows(out, rows, np.array([3, 0]), np.array([2.0, -0.5]))
    np.testing.assert_allclose(out, wanted, rtol=1e-13)


def test_line_minimum_is_the_least_of_a_fine_grid(rng):
    """And the weight it names is zero there."""
    stopped = 0
    for _ in range(150):
        A = rng.standard_normal((4, 4))
        B, g = A.T @ A * 10.0 ** rng.integers(-3, 3), rng.standard_normal(4)
        w = rng.standard_normal(4) * (rng.random(4) < 0.7)
        d = rng.standard_normal(4) * 3
        d[rng.random(4) < 0.2] = 0
        kappa = rng.uniform(0, 2)
        signs = np.where(w != 0, np.sign(w), np.sign(d))

        def value(t, d=d, B=B, g=g, w=w, kappa=kappa):
            return t**2 * d @ B @ d / 2 - t * g @ d + kappa * np.abs(w + t * d).sum()

        t, k = line_minimum(float(d @ B @ d), -float(g @ d), w, d, signs, kappa)
        scale = abs(value(0.0)) + abs(value(1.0)) + 1
        assert 0 <= t <= 1
        assert value(t) <= min(map(value, np.linspace(0, 1, 201))) + 1e-10 * scale
        if k >= 0:
            stopped += 1
            assert w[k] + t * d[k] == pytest.approx(0, abs=1e-12) and w[k] != 0
    assert stopped > 10


# -- BLAS called without the interpreter's lock gives what NumPy gives, in place ---------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (5, 7), (300, 130)])
def test_the_upper_triangle_is_that_of_the_gram_matrix(rng, shape, dtype):
    C = rng.standard_normal(shape).astype(dtype)
    start = rng.standard_normal((shape[1], shape[1])).astype(dtype)
    total = start.copy()
    syrk(total, C, beta=0.5)
    wanted = 0.5 * start.astype(float) + C.astype(float).T @ C.astype(float)
    above = np.triu_indices(shape[1])
    np.testing.assert_allclose(total[above], wanted[above], rtol=0, atol=8 * shape[0] * np.finfo(dtype).eps)
    below = np.tril_indices(shape[1], -1)
    np.testing.assert_array_equal(total[below], start[below])


def test_what_has_not_the_layout_is_refused(rng):
    C = rng.standard_normal((6, 4))
    for total, columns in ((np.zeros((4, 4), np.float32), C), (np.zeros((4, 4)), np.asfortranarray(C))):
        with pytest.raises(ValueError, match="C-contiguous"):
            syrk(total, columns)


def test_the_lock_is_let_go(rng):
    """While BLAS works for long, another thread of Python runs."""
    C, total = rng.standard_normal((20_000, 400)), np.zeros((400, 400))
    counted, started, done = [0], threading.Event(), threading.Event()

    def count():
        started.set()
        while not done.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    counter.start()
    started.wait()
    before = counted[0]
    syrk(total, C)
    during = counted[0] - before
    done.set()
    counter.join()
    assert during > 100
