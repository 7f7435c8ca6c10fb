"""`quadratic_sdp` against solutions that are known in closed form."""

import numpy as np
import pytest
from scipy import sparse

import dkl
from dkl.errors import ConvergenceWarning, InputError, MemoryBudgetError


def squares_of_entries(n):
    """Return B (p, n, n) with |B(Y) - t|^2 = |Y - T|_F^2, and the function of T that gives t."""
    i, j = np.triu_indices(n)
    weight = np.where(i == j, 1.0, 2.0**0.5)
    B = np.zeros((len(i), n, n))
    B[np.arange(len(i)), i, j] += weight / 2
    B[np.arange(len(i)), j, i] += weight / 2
    return B, lambda T: weight * T[i, j]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
def test_the_nearest_kernel_is_the_positive_part(scale):
    T = scale * np.random.default_rng(0).standard_normal((12, 12))
    T += T.T
    B, targets = squares_of_entries(12)
    found = dkl.quadratic_sdp(dkl.QuadraticSDP.from_matrices(B, targets(T)), tol=1e-10)
    values, vectors = np.linalg.eigh(T)
    wanted = (vectors * np.maximum(values, 0)) @ vectors.T
    assert found.outcome == "solved"
    assert np.abs(found.factor @ found.factor.T - wanted).max() < 1e-4 * scale
    assert found.certificate.objective == pytest.approx(np.square(values[values < 0]).sum(), rel=1e-9)


def test_a_trace_of_1_is_a_square():
    """Of |D Y D|^2 under tr Y = 1 the least Y is diagonal, in proportion to D^-4."""
    D = np.random.default_rng(1).uniform(0.5, 2.0, 7)
    B, _ = squares_of_entries(7)
    homogeneous = [D[:, None] * one * D for one in B]
    problem = dkl.QuadraticSDP.from_matrices(
        [*(sparse.csr_array(one) for one in homogeneous), np.eye(7)], [*np.zeros(len(B)), 1]
    )
    found = dkl.quadratic_sdp(problem, tol=1e-10)
    Y = found.factor @ found.factor.T
    wanted = np.diag(D**-4 / np.sum(D**-4))
    assert np.abs(Y / np.trace(Y) - wanted).max() < 1e-4


def test_a_linear_term_is_counted_and_a_start_is_taken():
    """Of |Y - T|^2 + <C, Y> the least Y is the positive part of T - C / 2."""
    rng = np.random.default_rng(2)
    T, C = (one + one.T for one in rng.standard_normal((2, 6, 6)))
    B, targets = squares_of_entries(6)
    found = dkl.quadratic_sdp(
        dkl.QuadraticSDP.from_matrices(B, targets(T), C), tol=1e-10, start=rng.standard_normal((6, 2))
    )
    values, vectors = np.linalg.eigh(T - C / 2)
    assert np.abs(found.factor @ found.factor.T - (vectors * np.maximum(values, 0)) @ vectors.T).max() < 1e-4


def test_an_end_at_the_limit_says_so():
    B, targets = squares_of_entries(8)
    problem = dkl.QuadraticSDP.from_matrices(B, targets(np.diag(np.arange(8.0) - 3)))
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert dkl.quadratic_sdp(problem, max_iter=0).outcome == "iteration_limit"


@pytest.mark.parametrize(
    ("B", "t", "error", "words"),
    [
        ([], [], InputError, "empty"),
        (np.eye(3), [1.0], InputError, "dimensions"),
        ([np.eye(3), np.eye(2)], [1.0, 1.0], InputError, r"B\[1\]"),
        ([[[0.0, 1.0], [0.0, 0.0]]], [1.0], InputError, "not symmetric"),
        ([np.full((2, 2), np.nan)], [1.0], InputError, "not finite"),
        ([np.eye(2)], [1.0, 2.0], InputError, "targets"),
        ("eye", [1.0], InputError, "no matrices"),
        (np.broadcast_to(0.0, (10**6, 3000, 3000)), [1.0], MemoryBudgetError, "do not fit"),
    ],
)
def test_matrices_that_are_none_are_refused(B, t, error, words):
    with pytest.raises(error, match=words):
        dkl.QuadraticSDP.from_matrices(B, t)


def test_what_cannot_be_solved_is_refused():
    problem = dkl.QuadraticSDP.from_matrices([np.diag([1.0, 0.0])], [1.0])
    with pytest.raises(InputError, match="no problem"):
        dkl.quadratic_sdp(np.eye(2))
    with pytest.raises(InputError, match="start"):
        dkl.quadratic_sdp(problem, start=np.ones((3, 1)))
    with pytest.raises(MemoryBudgetError, match="do not fit"):
        dkl.quadratic_sdp(problem, memory_limit=100)
    with pytest.raises(InputError):
        dkl.quadratic_sdp(dkl.QuadraticSDP.from_matrices([np.diag([1.0, 0.0])], [1.0], np.diag([0.0, -1.0])))
