"""Hard MVU on the face that cliques leave: against Clarabel, optima known by reason, its own proof once more, and rigid rows."""

import numpy as np
import pytest
from qsdp_cases import graph
from scipy import linalg
from sdp_optimum import sdp_optimum
from sklearn.datasets import load_digits, make_swiss_roll
from sklearn.neighbors import kneighbors_graph

from dkl.problems.qsdp.linear import face_of_cliques, unfolding
from dkl.solvers.qsdp.interior import solve_interior
from dkl.solvers.watch import Outcome, Watch


def squares(X, edges):
    return ((X[edges[:, 0]] - X[edges[:, 1]]) ** 2).sum(axis=1)


def neighbors(X, k):
    """Edges (e, 2) to the nearest k rows, i < j."""
    near = kneighbors_graph(X, k).toarray()
    return np.stack(np.nonzero(np.triu(near + near.T)), axis=1)


def solve(X, edges, **options):
    squared = squares(X, edges)
    face = face_of_cliques(len(X), edges, squared)
    return face, solve_interior(unfolding(len(X), edges, squared), face, edges, start=X, **options)


def check(X, edges, face, found, tol=1e-6):
    """What is claimed, from the rows and nothing of the solver's."""
    K, proven, n = found.factor @ found.factor.T, found.certificate, len(X)
    assert found.outcome is Outcome.SOLVED and proven.relative_gap <= tol and proven.infeasibility <= tol
    i, j = edges.T
    lengths, squared = K[i, i] + K[j, j] - 2 * K[i, j], squares(X, edges)
    assert np.linalg.norm(lengths - squared) <= 1.01 * tol * np.linalg.norm(squared)
    assert proven.objective == pytest.approx(-np.trace(K), rel=1e-9)
    assert np.abs(K.sum(axis=0)).max() <= 1e-9 * np.trace(K)
    S = -np.eye(n)
    for s, (a, b) in enumerate(edges):
        S[[a, b], [a, b]] -= found.dual[s]
        S[[a, b], [b, a]] += found.dual[s]
    low = np.linalg.eigvalsh(face.T @ S @ face)[0]
    assert proven.min_eigenvalue <= low + 1e-13 * np.abs(S).max()
    assert proven.bound <= squared @ found.dual / (1 + low) + 2e-6 * abs(proven.bound)


def test_the_face_is_of_the_rows_own_dimension_where_cliques_share_enough(rng):
    X = rng.normal(size=(9, 3))
    X -= X.mean(axis=0)
    whole = np.stack(np.triu_indices(9, 1), axis=1)
    assert face_of_cliques(9, whole, squares(X, whole)).shape == (9, 3)
    # Five rows and five rows: with three rows in common they may still turn against each other, with two more so.
    for shared, m in ((4, 3), (3, 4), (2, 5)):
        n = 10 - shared
        first, second = range(5), range(n - 5, n)
        edges = np.array(sorted({(a, b) for part in (first, second) for a in part for b in part if a < b}))
        face = face_of_cliques(n, edges, squares(X[:n], edges))
        assert face.shape == (n, m)
        rows = X[:n] - X[:n].mean(axis=0)
        np.testing.assert_allclose(face @ (face.T @ rows), rows, atol=1e-10)
        np.testing.assert_allclose(face.T @ face, np.eye(m), atol=1e-12)
        assert np.abs(face.sum(axis=0)).max() < 1e-10


def test_equal_rows_have_one_place():
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    face = face_of_cliques(4, edges, np.array([1.0, 0.0, 1.0]))
    assert face.shape == (4, 2)
    np.testing.assert_allclose(face[1], face[2], atol=1e-12)


def test_copies_of_rows_leave_edges_of_no_length_and_a_chain_of_them_is_a_line():
    group = np.repeat(np.arange(5), [20, 6, 5, 3, 2])
    X = np.array([0.0, 2.0, 5.0, 6.0, 9.0])[group][:, None]
    i, j = np.triu_indices(len(X), 1)
    first = np.searchsorted(group, np.arange(5))
    chain = np.isin(i, first) & np.isin(j, first) & (group[j] - group[i] == 1)
    edges = np.stack([i, j], axis=1)[(group[i] == group[j]) | chain]
    face, found = solve(X, edges)
    check(X, edges, face, found)
    assert np.trace(found.factor @ found.factor.T) == pytest.approx(np.square(X - X.mean()).sum(), rel=1e-5)


def test_an_unfolding_is_clarabel_s(rng):
    X, edges, _ = graph(rng, 12, 3)
    bent = np.c_[np.cos(X[:, 0]), np.sin(X[:, 0]), X[:, 1]]
    face, found = solve(bent, edges)
    check(bent, edges, face, found)
    G = face[edges[:, 0]] - face[edges[:, 1]]
    matrices, squared = G[:, :, None] * G[:, None, :], squares(bent, edges)
    # Of constraints that depend on each other Clarabel is given as many as are independent.
    _, R, order = linalg.qr(matrices.reshape(len(edges), -1).T, mode="economic", pivoting=True)
    kept = order[: np.count_nonzero(np.abs(np.diag(R)) > 1e-9 * np.abs(R[0, 0]))]
    best, _ = sdp_optimum(-np.eye(face.shape[1]), list(matrices[kept]), squared[kept])
    assert found.certificate.objective == pytest.approx(best, rel=3e-6)
    assert found.certificate.bound <= best + 2e-6 * abs(best)


def test_a_chain_is_a_line_and_a_ring_a_polygon():
    n, places = 24, np.arange(24)
    edges = np.stack([places[:-1], places[1:]], axis=1)
    zigzag = np.stack([places % 2, np.zeros(n)], axis=1).astype(float)
    face, line = solve(zigzag, edges)
    check(zigzag, edges, face, line)
    assert -line.certificate.objective == pytest.approx(n * (n * n - 1) / 12, rel=2e-6)
    ring = np.concatenate([edges, [[0, n - 1]]])
    face, found = solve(zigzag, ring)
    check(zigzag, ring, face, found)
    assert -found.certificate.objective == pytest.approx(n / (4 * np.sin(np.pi / n) ** 2), rel=2e-6)


def test_rigid_rows_are_their_own_unfolding(rng):
    X = rng.normal(size=(30, 3))
    X -= X.mean(axis=0)
    edges = np.stack(np.triu_indices(30, 1), axis=1)
    face, found = solve(X, edges, tol=1e-8)
    check(X, edges, face, found, tol=1e-8)
    np.testing.assert_allclose(found.factor @ found.factor.T, X @ X.T, atol=1e-5)


# Rolls of seeds 7 and 4 stalled where steps were rounded in coordinates of the face: their multipliers are 1e6 and more.
@pytest.mark.parametrize(
    ("n", "k", "seed"), [(100, 4, 0), (100, 6, 0), (150, 4, 7), pytest.param(300, 4, 4, marks=pytest.mark.exhaustive)]
)
def test_a_roll_of_rigid_cliques_is_solved(n, k, seed):
    X = make_swiss_roll(n, random_state=seed)[0]
    edges = neighbors(X, k)
    face, found = solve(X, edges)
    assert face.shape[1] < n - 1  # some cliques are rigid
    check(X, edges, face, found)
    assert -found.certificate.objective > 1.1 * np.square(X - X.mean(axis=0)).sum()


def test_no_rounding_of_a_stiff_slack_is_taken_from_the_bound():
    X = make_swiss_roll(150, random_state=7)[0]
    edges = neighbors(X, 4)
    face, found = solve(X, edges, tol=1e-7)
    check(X, edges, face, found, tol=1e-7)
    # The eigenvalues of S are known to its size times some 1e-16 by doubles: more than the gap.
    assert np.abs(found.dual).max() > 1e6
    # That none is negative is seen by Gauss' pivots in long doubles.
    wide = np.longdouble
    G = (face[edges[:, 0]] - face[edges[:, 1]]).astype(wide)
    left = -(G.T * found.dual.astype(wide)) @ G - (1 - wide(1e-10)) * np.eye(face.shape[1], dtype=wide)
    for k in range(len(left)):
        assert left[k, k] > 0
        left[k + 1 :, k + 1 :] -= np.outer(left[k + 1 :, k], left[k, k + 1 :] / left[k, k])
    assert found.certificate.min_eigenvalue >= 0


def test_digits_are_solved():
    X = load_digits().data[:80]
    edges = neighbors(X, 8)
    face, found = solve(X, edges)
    check(X, edges, face, found)


def test_units_and_numbers_of_rows_change_nothing(rng):
    X, edges, _ = graph(rng, 14, 3)
    X = np.c_[np.cos(X[:, 0]), np.sin(X[:, 0]), X[:, 1]]
    one = solve(X, edges, tol=1e-8)[1]
    other = solve(1e6 * X, edges, tol=1e-8)[1]
    assert other.certificate.objective == pytest.approx(1e12 * one.certificate.objective, rel=1e-7)
    order = rng.permutation(14)
    moved = solve(X[order], np.sort(np.argsort(order)[edges], axis=1), tol=1e-8)[1]
    assert moved.certificate.objective == pytest.approx(one.certificate.objective, rel=1e-7)


def test_a_callback_and_the_limit_of_steps_end_it(rng):
    X, edges, _ = graph(rng, 12, 3)
    stopped = solve(X, edges, watch=Watch([lambda row: row["iteration"] == 2]))[1]
    assert stopped.outcome is Outcome.STOPPED and stopped.n_iter == 2
    assert solve(X, edges, max_iter=1)[1].outcome is Outcome.ITERATION_LIMIT
