"""Bounds on the smallest eigenvalue against dense eigenvalues, beyond the size at which these are used themselves."""

import numpy as np
import pytest
from repeats import but_for, crossed
from scipy import sparse

from dkl.linalg.eigen import extreme_eigenvalues
from dkl.linalg.eigen.extreme_eigenvalues import DENSE, Shifted, lowest_eigenpairs, min_eigenvalue

N = DENSE + 60


def symmetric(rng, n, density=0.02):
    upper = np.triu(rng.standard_normal((n, n)) * (rng.random((n, n)) < density))
    return upper + upper.T


def laplacian(weights):
    return np.diag(weights.sum(axis=1)) - weights


def path(rng, n):
    """The lower end is (pi k / n)^2, k = 0, 1, ...: ever closer to each other."""
    return laplacian(np.diag(np.ones(n - 1), 1) + np.diag(np.ones(n - 1), -1))


def components(rng, n):
    """A graph of twenty parts: the eigenvalue 0 twenty times."""
    weights = abs(symmetric(rng, n, 0.2)) * (np.arange(n)[:, None] % 20 == np.arange(n) % 20)
    return laplacian(weights - np.diag(np.diag(weights)))


def cluster(rng, n):
    """Thirty eigenvalues within 1e-9 at the lower end, mixed by sparse rotations."""
    values = np.concatenate([-2.0 + 1e-9 * rng.random(30), rng.uniform(0, 5, n - 30)])
    matrix = np.diag(values)
    for _ in range(2 * n):
        i, j = rng.choice(n, 2, replace=False)
        angle = rng.uniform(0, 2 * np.pi)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        matrix[[i, j]] = turn @ matrix[[i, j]]
        matrix[:, [i, j]] = matrix[:, [i, j]] @ turn.T
    return 0.5 * (matrix + matrix.T)


def one_localised(rng, n):
    matrix = components(rng, n)
    matrix[7, 7] -= 50.0
    return matrix


def one_barely_below(rng, n):
    """The lowest eigenvalue is 1e-6 below a sea of zeros, on one coordinate."""
    matrix = np.diag(np.concatenate([[-1e-6], np.zeros(n // 2), np.ones(n - n // 2 - 1)]))
    order = rng.permutation(n)
    return matrix[np.ix_(order, order)]


KINDS = {
    "sparse": symmetric,
    "dense": lambda rng, n: symmetric(rng, n, 0.5),
    "huge": lambda rng, n: 1e9 * symmetric(rng, n),
    "tiny": lambda rng, n: 1e-9 * symmetric(rng, n),
    "positive": lambda rng, n: symmetric(rng, n) + 30 * np.eye(n),
    "negative": lambda rng, n: symmetric(rng, n) - 30 * np.eye(n),
    "diagonal": lambda rng, n: np.diag(rng.standard_normal(n)),
    "zero": lambda rng, n: np.zeros((n, n)),
    "identity": lambda rng, n: -3.0 * np.eye(n),
    "one entry": lambda rng, n: np.diag(np.concatenate([np.zeros(n - 1), [-1.0]])),
    "path": path,
    "components": components,
    "cluster": cluster,
    "localised": one_localised,
    "barely below": one_barely_below,
}


@pytest.mark.parametrize(("kind", "n"), crossed([*KINDS], [1, 2, 30, DENSE, DENSE + 1, N]))
def test_the_bound_is_below_the_smallest_eigenvalue_and_near_it(rng, kind, n):
    dense = KINDS[kind](rng, max(n, 50))[:n, :n]
    values = np.linalg.eigvalsh(dense)
    low, residual, vector = min_eigenvalue(Shifted.of(sparse.csr_array(dense)))
    norm = abs(values).max()
    assert low <= values[0] + 1e-14 * norm  # the oracle rounds, too
    assert low >= values[0] - 1e-5 * norm
    assert vector.shape == (n,) and np.linalg.norm(vector) == pytest.approx(1.0)
    theta = vector @ dense @ vector
    assert low <= theta + 1e-14 * norm
    # Where all eigenvalues were computed no residual is taken off.
    distance = np.linalg.norm(dense @ vector - theta * vector)
    assert distance == pytest.approx(residual if n > DENSE else 0.0, abs=1e-12 * norm)


@pytest.mark.parametrize("seed", but_for(range(6, 20), range(20)))
def test_many_random_matrices(seed):
    rng = np.random.default_rng(seed)
    dense = symmetric(rng, N, density=10 ** rng.uniform(-3, -1)) * 10 ** rng.uniform(-3, 3)
    shift = rng.standard_normal(N) * rng.integers(0, 2) * 10 ** rng.uniform(-3, 3)
    smallest = np.linalg.eigvalsh(dense + np.diag(shift))[0]
    low = min_eigenvalue(Shifted.of(sparse.csr_array(dense)).plus(shift), seed=seed)[0]
    norm = np.linalg.norm(dense + np.diag(shift), 2)
    assert smallest - 1e-5 * norm <= low <= smallest + 1e-14 * norm


@pytest.mark.parametrize("kind", ["sparse", "localised", "components", "zero"])
def test_a_product_computed_elsewhere_is_used_and_gives_the_same(rng, kind):
    matrix, calls = sparse.csr_array(KINDS[kind](rng, N)), []

    def product(x):
        assert x.shape == (N,)
        calls.append(1)
        return matrix @ x

    shift = rng.random(N)
    for lift in (np.zeros(N), shift):
        calls.clear()
        here = min_eigenvalue(Shifted.of(matrix).plus(lift))
        there = min_eigenvalue(Shifted.of(matrix, product).plus(lift))
        assert calls and here[:2] == there[:2] and np.array_equal(here[2], there[2])
        calls.clear()
        here = lowest_eigenpairs(Shifted.of(matrix).plus(lift), 4)
        there = lowest_eigenpairs(Shifted.of(matrix, product).plus(lift), 4)
        assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))
        assert calls or (kind == "zero" and not lift.any())


def test_a_residual_is_taken_off(rng, monkeypatch):
    """Whatever Lanczos returns, the bound lies below its Ritz value by the residual."""
    dense = symmetric(rng, N)
    rough = rng.standard_normal(N)
    monkeypatch.setattr(extreme_eigenvalues, "_lanczos", lambda matrix, start, tol: rough.copy())
    low, residual, vector = min_eigenvalue(Shifted.of(sparse.csr_array(dense)))
    theta = vector @ dense @ vector
    assert residual == pytest.approx(np.linalg.norm(dense @ vector - theta * vector), rel=1e-12) and residual > 0.1
    assert low == pytest.approx(theta - residual, abs=1e-10) and low < theta - residual


def test_without_convergence_the_norm_bounds_the_eigenvalue(rng, monkeypatch):
    """A Ritz value on the way may be far above the smallest eigenvalue, by more than its residual."""
    dense = path(rng, N) + np.diag(np.where(np.arange(N) == 7, -1e-3, 0.0))
    matrix = Shifted.of(sparse.csr_array(dense))
    monkeypatch.setattr(extreme_eigenvalues, "ATTEMPTS", ((3, 1.0, 1e-6), (4, 1.0, 1e-6)))
    low, _, vector = min_eigenvalue(matrix)
    assert -4.1 <= low <= -np.linalg.norm(dense, 2)
    assert vector.shape == (N,) and np.linalg.norm(vector) == pytest.approx(1.0)


def test_a_rough_answer_comes_where_a_fine_one_does_not(rng, monkeypatch):
    dense = path(rng, N)
    monkeypatch.setattr(extreme_eigenvalues, "ATTEMPTS", ((20, 1.0, 1e-6), (20, 1e5, 1.0)))
    low, residual, _ = min_eigenvalue(Shifted.of(sparse.csr_array(dense)))
    assert residual > 1e-6
    assert -0.1 < low <= 0.0


def test_the_lowest_pairs_where_they_stand_apart(rng):
    wells = np.zeros(N)
    wells[:5] = [-90.0, -80.0, -70.0, -60.0, -50.0]
    dense = np.diag(wells) + 0.5 * symmetric(rng, N)
    values, vectors = lowest_eigenpairs(Shifted.of(sparse.csr_array(dense)), 5)
    exact = np.linalg.eigvalsh(dense)[:5]
    np.testing.assert_allclose(np.sort(values), exact, rtol=1e-2)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(5), atol=1e-8)
    np.testing.assert_allclose(np.sum(vectors * (dense @ vectors), axis=0), values, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 3, 40])
def test_the_lowest_pairs_of_small_matrices_are_exact(rng, n):
    dense = symmetric(rng, n, 0.5)
    values, vectors = lowest_eigenpairs(Shifted.of(sparse.csr_array(dense)), 16)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(dense)[:16], atol=1e-12)
    np.testing.assert_allclose(dense @ vectors, vectors * values, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_lowest_pairs_or_none_but_never_an_error(rng, kind):
    dense = KINDS[kind](rng, N)
    values, vectors = lowest_eigenpairs(Shifted.of(sparse.csr_array(dense)), 16)
    assert vectors.shape == (N, values.size) and values.size <= 16
    norm = np.linalg.norm(dense, 2)
    smallest = np.linalg.eigvalsh(dense)[0]
    assert (values >= smallest - 1e-10 * norm).all()  # Ritz values
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=0), 1.0, atol=1e-8)


def test_shifts_add_up(rng):
    dense, a, b, x = symmetric(rng, 40), *rng.standard_normal((3, 40))
    shifted = Shifted.of(sparse.csr_array(dense)).plus(a).plus(b)
    expected = dense + np.diag(a + b)
    np.testing.assert_allclose(shifted.toarray(), expected, atol=1e-14)
    np.testing.assert_allclose(shifted(x), expected @ x, atol=1e-12)
    np.testing.assert_allclose(shifted.operator @ x, expected @ x, atol=1e-12)
    assert shifted.rounding >= np.finfo(float).eps * np.linalg.norm(expected, 2)
    assert Shifted.of(sparse.csr_array((3, 3))).rounding == 0.0
