"""Leading eigenpairs by block Krylov spaces, against matrices whose eigenpairs are known."""

import numpy as np
import pytest

from dkl.solvers import leading_eigenpairs as module
from dkl.solvers.leading_eigenpairs import leading_eigenpairs
from dkl.solvers.watch import Outcome, Watch


class Known:
    """Q diag(values) Q', which counts its products."""

    def __init__(self, rng, values):
        self.values, self.products = np.asarray(values, float), 0
        self.vectors = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]

    def times(self, V):
        self.products += 1
        return self.vectors @ (self.values[:, None] * (self.vectors.T @ V))


def found(operator, start, count, tol=1e-11, max_iter=200):
    result = leading_eigenpairs(operator, start, count, tol=tol, max_iter=max_iter, watch=Watch())
    assert result.n_iter == operator.products
    return result


def check(operator, result, count):
    """Values, orthonormal vectors, and the residuals that are told."""
    values, vectors = result.values, result.vectors
    np.testing.assert_allclose(
        values, np.sort(operator.values)[::-1][:count], atol=1e-12 * np.abs(operator.values).max()
    )
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    rest = np.linalg.norm(operator.times(vectors) - vectors * values, axis=0) / operator.values.max()
    np.testing.assert_allclose(result.residuals, rest, atol=1e-14 + 0.01 * rest.max())
    assert result.outcome is Outcome.SOLVED


@pytest.mark.parametrize("blocks", [6, 4])  # with room for all, and begun again and again
def test_close_multiple_and_negative_values(blocks, rng, monkeypatch):
    monkeypatch.setattr(module, "BLOCKS", blocks)
    operator = Known(rng, np.concatenate([[5, 5, 5, 4.999], np.linspace(4.0, -8, 296)]))
    result = found(operator, rng.standard_normal((300, 8)), 6, max_iter=400)
    assert operator.products > 2 * blocks  # the space was begun again
    check(operator, result, 6)


def test_low_rank_ends_by_itself_and_a_pair_that_the_start_has_almost_missed_is_found(rng):
    operator = Known(rng, np.concatenate([[3, 2, 1], np.zeros(197)]))
    result = found(operator, rng.standard_normal((200, 9)), 5)
    assert operator.products <= 3
    check(operator, result, 5)
    operator = Known(rng, np.concatenate([10 * 0.5 ** np.arange(20), np.full(180, 1e-9)]))
    start = operator.vectors[:, 1:7] + 1e-9 * rng.standard_normal((200, 6))  # the first is not among them
    check(operator, found(operator, np.hstack([start, rng.standard_normal((200, 2))]), 4), 4)


def test_its_limits_are_told(rng):
    operator = Known(rng, np.linspace(1, 0, 300))
    result = found(operator, rng.standard_normal((300, 8)), 3, tol=1e-12, max_iter=3)
    assert result.outcome is Outcome.ITERATION_LIMIT and result.n_iter == 3 and result.residuals.max() > 1e-6
    noisy = Known(rng, np.linspace(1, 0, 300) ** 4)
    exact, noise = noisy.times, 1e-6 * rng.standard_normal((300, 300))
    noisy.times = lambda V: exact(V).astype(np.float32) + noise @ V  # not even symmetric
    result = found(noisy, rng.standard_normal((300, 8)), 3, tol=1e-12)
    assert result.outcome is Outcome.STALLED and result.residuals.max() < 1e-3
