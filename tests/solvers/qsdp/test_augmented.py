"""Hard constraints by an augmented Lagrangian: against Clarabel, optima known by reason, chosen optima, and its own proof once more."""

from dataclasses import replace

import numpy as np
import pytest
from qsdp_cases import graph
from scipy import sparse
from sdp_optimum import sdp_optimum
from sklearn.neighbors import kneighbors_graph

from dkl.errors import InputError
from dkl.linalg.eigen import lowest_by_factor
from dkl.linalg.eigen.lowest_by_factor import lowest_pairs
from dkl.problems.qsdp.linear import LinearSDP, propagation, unfolding
from dkl.solvers.qsdp import augmented_steps
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.watch import Outcome, Watch


def dense(problem):
    """The problem's A_s (p, n, n), by its entries."""
    found = np.zeros((len(problem.b), problem.n, problem.n))
    terms = sparse.coo_array(problem.forms)
    for s, entry, value in zip(*terms.coords, terms.data, strict=True):
        i, j = problem.i[entry], problem.j[entry]
        found[s, i, j] += value / 2
        found[s, j, i] += value / 2
    return found


def check(problem, found, tol=1e-6):
    """What is claimed of a solution, from dense matrices and nothing of the solver's."""
    C, A, K, n = problem.C.toarray(), dense(problem), found.factor @ found.factor.T, problem.n
    proven = found.certificate
    assert found.outcome is Outcome.SOLVED and proven.relative_gap <= tol and proven.infeasibility <= tol
    assert proven.objective == pytest.approx(np.sum(C * K), rel=1e-9)
    apart = np.einsum("sij,ij->s", A, K) - problem.b
    apart = np.where(problem.is_upper, np.maximum(apart, 0), apart)
    assert proven.infeasibility == pytest.approx(np.linalg.norm(apart) / np.linalg.norm(problem.b), rel=1e-6, abs=1e-14)
    S = C - np.einsum("s,sij->ij", found.dual, A)
    if problem.is_centered:
        basis = np.linalg.svd(np.ones((1, n)))[2][1:]
        S = basis @ S @ basis.T
        assert np.abs(found.factor.sum(axis=0)).max() <= 1e-9 * np.sqrt(n * np.trace(K))
    low = np.linalg.eigvalsh(S)[0]
    assert proven.min_eigenvalue <= low + 1e-12 * np.abs(S).max()
    value = problem.b @ found.dual
    bounds = [value + min(0, low) * problem.trace, value / (1 + low) if np.array_equal(C, -np.eye(n)) else -np.inf]
    assert proven.bound <= max(bounds) + 1e-9 * abs(proven.bound)
    assert (found.dual[problem.is_upper] <= 0).all()


def strip(rng, n=12, k=3):
    X, edges, _ = graph(rng, n, k)
    return X, edges, ((X[edges[:, 0]] - X[edges[:, 1]]) ** 2).sum(axis=1)


@pytest.mark.parametrize("is_upper", [False, True])
def test_an_unfolding_is_clarabel_s(rng, is_upper):
    X, edges, squared = strip(rng)
    bent = np.c_[np.cos(X[:, 0]), np.sin(X[:, 0]), X[:, 1]]
    squared = ((bent[edges[:, 0]] - bent[edges[:, 1]]) ** 2).sum(axis=1)
    problem = unfolding(len(X), edges, squared, is_upper=is_upper)
    found = solve_augmented(problem, start=bent)
    check(problem, found)
    matrices = [*dense(problem), np.ones((len(X), len(X)))]
    upper = np.r_[problem.is_upper, False]
    best, _ = sdp_optimum(-np.eye(len(X)), matrices, np.r_[squared, 0.0], upper)
    assert found.certificate.objective == pytest.approx(best, rel=3e-6)
    assert found.certificate.bound <= best + 1e-6 * abs(best)


def test_a_chain_is_a_line_and_a_ring_a_polygon():
    n = 24
    places = np.arange(n)
    edges = np.stack([places[:-1], places[1:]], axis=1)
    folded = np.stack([places % 2, np.zeros(n)], axis=1).astype(float)  # a saddle: all at two points
    line = solve_augmented(unfolding(n, edges, np.ones(n - 1)), start=folded)
    check(unfolding(n, edges, np.ones(n - 1)), line)
    assert -line.certificate.objective == pytest.approx(n * (n * n - 1) / 12, rel=1e-6)
    ring = np.concatenate([edges, [[0, n - 1]]])
    found = solve_augmented(unfolding(n, ring, np.ones(n)))
    check(unfolding(n, ring, np.ones(n)), found)
    assert -found.certificate.objective == pytest.approx(n / (4 * np.sin(np.pi / n) ** 2), rel=1e-6)


def test_distances_of_a_rigid_graph_leave_one_kernel(rng):
    X = rng.normal(size=(9, 3))
    X -= X.mean(axis=0)
    edges = np.stack(np.triu_indices(9, 1), axis=1)
    squared = ((X[edges[:, 0]] - X[edges[:, 1]]) ** 2).sum(axis=1)
    found = solve_augmented(unfolding(9, edges, squared), tol=1e-7)
    np.testing.assert_allclose(found.factor @ found.factor.T, X @ X.T, atol=1e-5)


def test_a_propagation_is_clarabel_s(rng):
    _, edges, _ = graph(rng, 18)
    W = np.zeros((18, 18))
    W[edges[:, 0], edges[:, 1]] = W[edges[:, 1], edges[:, 0]] = 1.0
    root = np.sqrt(W.sum(axis=0))
    L = np.eye(18) - W / np.outer(root, root)
    must, cannot = np.array([[0, 3], [3, 9], [5, 6]]), np.array([[0, 17], [9, 5], [2, 12]])
    problem, labels = propagation(sparse.csr_array(L), must, cannot)
    found = solve_augmented(problem)
    check(problem, found)
    assert problem.n == 15 and len(set(labels[[0, 3, 9]])) == 1

    def unit(i, j):
        matrix = np.zeros((18, 18))
        matrix[i, j] += 0.5
        matrix[j, i] += 0.5
        return matrix

    matrices = [unit(i, j) for i, j in [*((i, i) for i in range(18)), *must, *cannot]]
    best, _ = sdp_optimum(L, matrices, np.r_[np.ones(18 + len(must)), np.zeros(len(cannot))])
    assert found.certificate.objective == pytest.approx(best, rel=1e-5)
    assert found.certificate.bound <= best * (1 + 1e-5)


def crowded(rng, n):
    """Propagation of rows in ten dimensions, whose factors have few zeros."""
    y = rng.integers(3, size=n)
    X = rng.standard_normal((n, 10)) + 2.0 * rng.standard_normal((3, 10))[y]
    near = kneighbors_graph(X, 8, include_self=False)
    W = near.maximum(near.T).toarray()
    root = np.sqrt(W.sum(axis=0))
    ends = rng.integers(n, size=(2 * n, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    L = sparse.csr_array(np.eye(n) - W / np.outer(root, root))
    return propagation(L, ends[same][: n // 8], ends[~same][: n // 8])[0]


@pytest.fixture
def dense_from_few_rows(monkeypatch):
    """Dense factors, the diagonal first, from 30 rows on."""
    monkeypatch.setattr(augmented_steps, "DENSE", 30)
    monkeypatch.setattr(lowest_by_factor, "DENSE", 30)
    monkeypatch.setattr(augmented_steps, "FILLED", 0.0)


STAGES = {
    "rows": (augmented_steps.PRODUCTS, 0.0, 2.0**30),
    "columns": (20, 2.0, 2e5),
    "together, sparse": (20, 2.0, 2.0**30),
    "together, shared": (20, 0.0, 2.0**30),
}
"""PRODUCTS after which a preconditioner gives way to the next, FILLED, and bytes of factors."""


@pytest.mark.parametrize("stage", STAGES)
def test_each_preconditioner_comes_to_the_same_optimum(rng, stage, dense_from_few_rows, monkeypatch):
    problem, states = crowded(rng, 80), []
    best = solve_augmented(problem, tol=1e-7)
    most, filled, room = STAGES[stage]
    monkeypatch.setattr(augmented_steps, "PRODUCTS", most)
    monkeypatch.setattr(augmented_steps, "SLOW", min(most - 1, augmented_steps.SLOW))
    monkeypatch.setattr(augmented_steps, "PATIENCE", 1)
    monkeypatch.setattr(augmented_steps, "FILLED", filled)
    if stage == "together, sparse":
        monkeypatch.setattr(augmented_steps, "NUMBER_BYTES", 0)
    found = solve_augmented(problem, room=room, on_state=states.append)
    check(problem, found)
    assert states[0].is_by_rows and states[-1].is_by_rows == (stage == "rows")
    assert states[-1].is_full == stage.startswith("together")
    again = solve_augmented(problem, room=room, resume_from=states[len(states) // 2])
    assert again.factor.tobytes() == found.factor.tobytes() and again.dual.tobytes() == found.dual.tobytes()
    assert found.certificate.objective == pytest.approx(best.certificate.objective, rel=1e-5)


def test_a_factor_waits_for_slow_products_and_room(rng, dense_from_few_rows):
    problem, slow = crowded(rng, 80), augmented_steps.PRODUCTS
    for room, products, is_by_rows in ((2.0**30, slow, False), (2.0**30, slow - 1, True), (1e5, slow, True)):
        means = augmented_steps.ColumnPreconditioner(problem, room)
        for _ in range(augmented_steps.PATIENCE):
            assert means.is_by_rows and not means.is_full
            means.slow(4, products)
        assert means.is_by_rows == is_by_rows and means.is_full != is_by_rows


def hessian(problem, point, sigma):
    """The Lagrangian's Hessian on vec(D), by dense matrices A_s."""
    r = point.R.shape[1]
    columns = (dense(problem)[point.active] @ point.R).reshape(-1, point.R.size)
    return 2.0 * np.kron(point.S.toarray(), np.eye(r)) + 4.0 * sigma * columns.T @ columns


@pytest.mark.parametrize("is_upper", [False, True])
def test_dense_factors_invert_the_hessian(rng, is_upper):
    X, edges, squared = strip(rng)
    problem, sigma, n, r = unfolding(len(X), edges, squared, is_upper=is_upper), 7.0, len(X), 3
    R = problem.projected(rng.normal(size=(n, r)))
    point = augmented_steps.Point.of(problem, R, rng.normal(size=problem.p), sigma)
    root = problem.projected(rng.normal(size=(n, n)))
    point = replace(point, S=sparse.csr_array(root @ root.T + np.eye(n)))  # definite: no shift but one of rounding
    means = augmented_steps.ColumnPreconditioner(problem, 2.0**30)
    means.is_by_rows, means.is_full, means.is_dense = False, True, True
    residual = rng.normal(size=(n, r))
    # On vectors of mean 0 alone.
    basis = np.kron(np.linalg.svd(np.ones((1, n)))[2][1:], np.eye(r))
    wanted = basis.T @ np.linalg.solve(basis @ hessian(problem, point, sigma) @ basis.T, basis @ residual.ravel())
    np.testing.assert_allclose(means.at(point, sigma)(residual).ravel(), wanted, rtol=1e-5, atol=1e-8)


def test_blocks_of_rows_invert_the_hessian_where_nothing_couples_rows(rng):
    n, r, sigma = 9, 3, 5.0
    problem = propagation(sparse.csr_array(np.diag(rng.uniform(1.0, 2.0, n))), np.empty((0, 2)), np.empty((0, 2)))[0]
    point = augmented_steps.Point.of(problem, 2.0 * rng.normal(size=(n, r)), np.zeros(n), sigma)
    point = replace(point, S=sparse.csr_array(np.diag(rng.uniform(1.0, 1.5, n))))
    residual = rng.normal(size=(n, r))
    wanted = np.linalg.solve(hessian(problem, point, sigma), residual.ravel()).reshape(n, r)
    found = augmented_steps.ColumnPreconditioner(problem, 2.0**30).at(point, sigma)(residual)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_dense_factors_serve_centered_kernels(rng, dense_from_few_rows):
    X, edges, squared = strip(rng, 40)
    problem, states = unfolding(len(X), edges, squared, is_upper=True), []
    found = solve_augmented(problem, start=X, on_state=states.append)
    check(problem, found)
    assert states[0].is_by_rows


@pytest.mark.parametrize("n", [600, pytest.param(1500, marks=pytest.mark.exhaustive)])
def test_rows_in_many_dimensions_have_no_sparse_factor(rng, n):
    """Beyond DENSE rows, with nothing set: it would take a hundred times as long."""
    states = []
    found = solve_augmented(crowded(rng, n), on_state=states.append)
    assert states[0].is_by_rows and found.outcome is Outcome.SOLVED


def test_upper_bounds_and_any_matrices_are_clarabel_s(rng):
    n, p = 8, 7
    C, *A = (B + B.T for B in rng.normal(size=(p, n, n)))
    matrices, upper = [np.eye(n), *A], np.arange(p) % 2 == 1
    inside = np.cov(rng.normal(size=(n, 20)))
    b = np.array([np.sum(matrix * inside) for matrix in matrices]) + 0.3 * upper
    problem = LinearSDP.of_matrices(C, matrices, b, upper=upper, trace=b[0])
    found = solve_augmented(problem)
    check(problem, found)
    best, _ = sdp_optimum(C, matrices, b, upper)
    assert found.certificate.objective == pytest.approx(best, rel=1e-5)


@pytest.mark.parametrize("rank", [pytest.param(1, marks=pytest.mark.exhaustive), 3])
def test_a_chosen_optimum_is_found_however_rows_are_numbered(rng, rank):
    n, p = 16, 20
    R = rng.normal(size=(n, rank))
    i, j = np.triu_indices(n)
    chosen = rng.choice(len(i), p, replace=False)
    y = rng.normal(size=n + p)
    matrices = []
    for a, c in [*((k, k) for k in range(n)), *zip(i[chosen], j[chosen], strict=True)]:
        matrices.append(sparse.coo_array(([0.5, 0.5], ([a, c], [c, a])), shape=(n, n)))
    across = np.linalg.svd(R)[0][:, rank:]
    S = across @ np.diag(rng.uniform(0.5, 2.0, n - rank)) @ across.T  # psd, zero on R: R R' and y are optimal
    C = S + sum(weight * matrix.toarray() for weight, matrix in zip(y, matrices, strict=True))
    C = (C + C.T) / 2
    K = R @ R.T
    b = np.array([float((matrix.toarray() * K).sum()) for matrix in matrices])
    problem = LinearSDP.of_matrices(C, matrices, b)
    assert problem.trace == pytest.approx(np.trace(K))
    found = solve_augmented(problem, tol=1e-8)
    check(problem, found, 1e-8)
    assert found.certificate.objective == pytest.approx(np.sum(C * K), rel=1e-6)
    order = rng.permutation(n)
    moved = LinearSDP.of_matrices(
        C[np.ix_(order, order)], [sparse.csr_array(matrix)[order][:, order] for matrix in matrices], b
    )
    other = solve_augmented(moved, tol=1e-8)
    np.testing.assert_allclose(
        other.factor @ other.factor.T, (found.factor @ found.factor.T)[np.ix_(order, order)], atol=1e-3
    )


@pytest.mark.parametrize("is_dense", [False, True])
def test_the_lowest_eigenvalue_is_that_of_lapack_however_it_is_found(is_dense, monkeypatch):
    n = 700
    edges = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    incidence = sparse.csr_array((np.tile([1.0, -1.0], n - 1), (np.repeat(np.arange(n - 1), 2), edges.ravel())))
    path = sparse.csr_array(incidence.T @ incidence)
    second = 2 - 2 * np.cos(np.pi / n)  # of a path's Laplacian, whose least is 0 of the constant vector
    for moved in (0.5 * second, 2.0 * second):
        matrix = sparse.csr_array(path - moved * sparse.eye_array(n))
        low, values, vectors = lowest_pairs(matrix, 3, 1e-9, is_centered=True, is_dense=is_dense)
        # A dense factor without an eigenvalue below -1e-9 is all that is asked.
        least = min(second - moved, -1e-9) if is_dense else second - moved
        assert least - 2e-9 <= low <= least + 1e-12
        assert np.abs(vectors.mean(axis=0)).max() < 1e-8
    monkeypatch.setattr(lowest_by_factor, "DENSE", 1000)
    low, values, _ = lowest_pairs(path, 3, 1e-9, is_centered=True)
    assert low == pytest.approx(second, rel=1e-6) and values[1] == pytest.approx(
        2 - 2 * np.cos(2 * np.pi / n), rel=1e-6
    )


@pytest.mark.parametrize("may_factor", [True, False])
def test_a_bound_holds_where_lanczos_does_not_end(may_factor, monkeypatch):
    n = 700
    ends = np.ones(n - 1)
    path = sparse.csr_array(sparse.diags_array([ends, ends], offsets=[-1, 1]))
    least = 2 * np.cos(np.pi * n / (n + 1))  # eigenvalues are 2 cos(pi k / (n + 1))
    monkeypatch.setattr(lowest_by_factor, "LANCZOS", 8)
    monkeypatch.setattr(lowest_by_factor, "RESTARTS", 1)
    low, _, _ = lowest_pairs(path, 3, 1e-9, may_factor=may_factor)
    assert low <= least


def test_the_history_says_what_is_proven_and_a_callback_ends_it(rng):
    X, edges, squared = strip(rng)
    watch = Watch()
    found = solve_augmented(unfolding(len(X), edges, squared), start=X, watch=watch)
    last = watch.history[-1]
    assert min(max(row["relative_gap"], row["infeasibility"]) for row in watch.history) == found.certificate.error
    assert last["iteration"] == found.n_iter and last["newton"] == found.n_newton
    stopped = solve_augmented(
        unfolding(len(X), edges, squared), tol=1e-12, start=X, watch=Watch([lambda row: row["iteration"] == 2])
    )
    assert stopped.outcome is Outcome.STOPPED and stopped.n_iter == 2


def test_units_change_nothing(rng):
    X, edges, squared = strip(rng)
    one, other = (
        solve_augmented(unfolding(len(X), edges, size**2 * squared), start=size * X, tol=1e-8) for size in (1.0, 1e6)
    )
    assert other.certificate.objective == pytest.approx(1e12 * one.certificate.objective, rel=1e-6)


def test_constraints_that_no_kernel_meets_are_refused():
    triangle = np.array([[0, 1], [1, 2], [0, 2]])
    with pytest.raises(InputError, match="no kernel meets all constraints"):
        solve_augmented(unfolding(3, triangle, np.array([1.0, 1.0, 9.0])))
    chain, apart = np.array([[0, 1], [2, 3]]), np.ones(2)
    with pytest.raises(InputError, match="graph in components.*2 of 4 rows"):
        unfolding(4, chain, apart)
    with pytest.raises(InputError, match="must-links join the ends.*rows 0 and 2"):
        propagation(sparse.csr_array(np.eye(3)), np.array([[0, 1], [1, 2]]), np.array([[0, 2]]))
    with pytest.raises(InputError, match=r"no bound on the trace.*K\[1, 1\]"):
        LinearSDP.of_matrices(np.eye(2), [np.diag([1.0, 0.0])], np.ones(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": np.array([[1.0, 2.0], [0.0, 1.0]])}, "C: not symmetric"),
        ({"C": sparse.csr_array(np.array([[1.0, 2.0], [0.0, 1.0]]))}, "C: not symmetric"),
        ({"C": np.array([[np.nan, 0.0], [0.0, 1.0]])}, "C: not finite"),
        ({"matrices": [np.eye(3)]}, r"A\[0\]: of another size"),
        ({"b": np.ones(2)}, "b: not one a matrix"),
        ({"upper": np.ones(1)}, "upper: not one a matrix"),
        ({"trace": -1.0}, "trace: not a positive number"),
    ],
)
def test_bad_input_is_one_error(change, message):
    given = {"C": np.eye(2), "matrices": [np.eye(2)], "b": np.ones(1), "trace": 1.0} | change
    with pytest.raises(InputError, match=message):
        LinearSDP.of_matrices(given.pop("C"), given.pop("matrices"), given.pop("b"), **given)
