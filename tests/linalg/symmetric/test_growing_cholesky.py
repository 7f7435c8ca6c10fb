"""The factor of a matrix whose rows and columns come and go is that of the matrix as it stands."""

import numpy as np
import pytest

from dkl.linalg.symmetric import growing_cholesky
from dkl.linalg.symmetric.growing_cholesky import GrowingCholesky


def follow(rng, B, steps, share=0.1):
    """(factor, ids) after random entries and departures; the solution is checked after each."""
    factor, ids = GrowingCholesky(), []
    for _ in range(steps):
        outside = [i for i in range(len(B)) if i not in ids]
        entering = list(rng.choice(outside, min(len(outside), rng.integers(0, 7)), replace=False))
        ids = ids + entering
        if entering:
            factor.enter(B[np.ix_(entering, ids)])
        kept = rng.random(len(ids)) > share
        if ids and kept.any():
            factor.leave(kept)
            ids = [i for i, stays in zip(ids, kept, strict=True) if stays]
        assert factor.size == len(ids)
        assert np.array_equal(factor.matrix, B[np.ix_(ids, ids)])
        if ids:
            right = rng.standard_normal(len(ids))
            assert np.allclose(factor.solve(right), np.linalg.solve(B[np.ix_(ids, ids)], right), rtol=1e-7, atol=1e-9)
    return factor, ids


@pytest.mark.parametrize("size", [5, 40, 150])
def test_solutions_are_those_of_the_matrix_as_it_stands(rng, size):
    X = rng.standard_normal((2 * size + 20, size))
    follow(rng, X.T @ X, 120)


def test_updates_are_what_is_tested(rng, monkeypatch):
    """No factor is made from scratch meanwhile."""
    made = []
    plain = GrowingCholesky._factor
    monkeypatch.setattr(GrowingCholesky, "_factor", lambda self: (made.append(self.size), plain(self)))
    monkeypatch.setattr(growing_cholesky, "MOST_UPDATES", 10**9)
    X = rng.standard_normal((200, 60))
    B = X.T @ X
    factor = GrowingCholesky()
    factor.enter(B[:40, :40])
    factor.solve(np.ones(40))
    ids = list(range(40))
    for new in range(40, 60):
        ids.append(new)
        factor.enter(B[np.ix_([new], ids)])
        gone = int(rng.integers(len(ids)))
        kept = np.arange(len(ids)) != gone
        factor.leave(kept)
        del ids[gone]
        right = rng.standard_normal(len(ids))
        assert np.allclose(factor.solve(right), np.linalg.solve(B[np.ix_(ids, ids)], right), rtol=1e-9)
    assert made == []


def test_equal_columns_are_solved_with_a_ridge(rng):
    X = rng.standard_normal((30, 6))
    X = X[:, [0, 1, 2, 3, 4, 5, 2, 2]]
    B = X.T @ X
    factor = GrowingCholesky()
    factor.enter(B[:6, :6])
    factor.solve(np.ones(6))
    factor.enter(B[6:, :])
    right = B @ rng.standard_normal(8)
    solution = factor.solve(right)
    assert np.isfinite(solution).all()
    assert np.allclose(B @ solution, right, rtol=1e-4)
    assert factor.ridge > 0
    factor.leave(np.arange(8) < 6)
    factor.renew()
    assert np.allclose(factor.solve(right[:6]), np.linalg.solve(B[:6, :6], right[:6]))
    assert factor.ridge == 0


def test_what_cannot_be_factored_gives_a_scaled_right_side():
    factor = GrowingCholesky()
    factor.enter(np.array([[1.0, 5.0], [5.0, 1.0]]))
    assert np.array_equal(factor.solve(np.array([1.0, 2.0])), [1.0, 2.0])
