"""BLAS called without the interpreter's lock gives what NumPy gives, in place."""

import threading

import numpy as np
import pytest

from dkl.linalg import free_blas


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (5, 7), (300, 130)])
def test_the_upper_triangle_is_that_of_the_gram_matrix(rng, shape, dtype):
    C = rng.standard_normal(shape).astype(dtype)
    start = rng.standard_normal((shape[1], shape[1])).astype(dtype)
    total = start.copy()
    free_blas.add_gram(total, C, beta=0.5)
    wanted = 0.5 * start.astype(float) + C.astype(float).T @ C.astype(float)
    above = np.triu_indices(shape[1])
    np.testing.assert_allclose(total[above], wanted[above], rtol=0, atol=8 * shape[0] * np.finfo(dtype).eps)
    below = np.tril_indices(shape[1], -1)
    np.testing.assert_array_equal(total[below], start[below])


def test_what_has_not_the_layout_is_refused(rng):
    C = rng.standard_normal((6, 4))
    for total, columns in ((np.zeros((4, 4), np.float32), C), (np.zeros((4, 4)), np.asfortranarray(C))):
        with pytest.raises(ValueError, match="C-contiguous"):
            free_blas.add_gram(total, columns)


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
    free_blas.add_gram(total, C)
    during = counted[0] - before
    done.set()
    counter.join()
    assert during > 100
