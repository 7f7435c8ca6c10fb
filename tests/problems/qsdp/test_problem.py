"""The quadratic over the psd cone: its formula, its bound, and what it refuses."""

import numpy as np
import pytest
from qsdp_cases import clusters, conic_optimum, dimacs_errors, graph, strip
from scipy import sparse

from dkl.errors import InputError
from dkl.linalg.symmetric.psd_quadratic import smat, svec
from dkl.linalg.symmetric.symmetric_maps import RowForms
from dkl.problems.qsdp.problem import QuadraticSDP, default_nu, dependence, propagation, svec_form, unfolding, variance

CASES = {"unfolding": strip, "propagation": clusters}


@pytest.mark.parametrize("case", CASES)
def test_value_and_gradient_are_those_of_the_formula(rng, case):
    problem, value = CASES[case](rng, 5)
    R = rng.standard_normal((5, 3))
    point = problem.at(R)
    assert point.objective == pytest.approx(value(R @ R.T), rel=1e-11)
    along = rng.standard_normal((5, 5))
    along += along.T
    # f is a quadratic: its central difference is exact.
    slope = (value(R @ R.T + along) - value(R @ R.T - along)) / 2
    assert np.sum(point.gradient * along) == pytest.approx(slope, rel=1e-9)
    B, b = svec_form(problem)
    y = svec(R @ R.T)
    assert y @ B.T @ B @ y + b @ y + problem.targets @ problem.targets == pytest.approx(point.objective, rel=1e-11)


def test_labels_take_the_place_of_the_trace(rng):
    X, edges, vectors = graph(rng, 30)
    Q, d2 = vectors[:, :4], ((X[edges[:, 0]] - X[edges[:, 1]]) ** 2).sum(axis=1)
    side = np.eye(3)[np.arange(30) % 3]
    problem, plain = (unfolding(Q, edges, d2, 2.0, reward) for reward in (dependence(Q, side), variance(Q)))
    R = rng.standard_normal((4, 2))
    K, H = Q @ R @ R.T @ Q.T, np.eye(30) - 1 / 30
    wanted = plain.at(R).objective + np.trace(R @ R.T) - np.trace(H @ K @ H @ side @ side.T)
    assert problem.at(R).objective == pytest.approx(wanted, rel=1e-11)


def test_a_pair_of_weight_three_counts_as_three(rng):
    Q, pairs = graph(rng, 12)[2][:, :4], rng.permutation(12).reshape(-1, 2)
    must, cannot = pairs[:3], pairs[3:]
    weighted = propagation(Q, must, cannot, np.array([1.0, 3.0, 1.0, 1.0, 0.0, 3.0]))
    repeated = propagation(Q, must[[0, 1, 1, 1, 2]], cannot[[0, 2, 2, 2]])
    R = rng.standard_normal((4, 2))
    assert weighted.at(R).objective == pytest.approx(repeated.at(R).objective, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_is_below_the_optimum_and_reaches_it(rng, case):
    problem, value = CASES[case](rng, 4)
    best = conic_optimum(value, 4)
    for size in (0.1, 1.0, 3.0):
        found = problem.certificate(problem.at(size * rng.standard_normal((4, 2))))
        assert found.bound <= best + 1e-9 * abs(best)
        assert found.gap == pytest.approx(found.objective - found.bound) and np.isfinite(found.gap)


def test_where_all_targets_can_be_met_no_gap_is_above_f(rng):
    must, cannot = np.array([[0, 1], [2, 3]]), np.array([[0, 2]])
    problem = propagation(np.eye(6), must, cannot)
    met = np.zeros((6, 4))
    met[[0, 1], 0] = met[[2, 3], 1] = met[4, 2] = met[5, 3] = 1.0
    assert problem.at(met).objective == 0.0 == problem.certificate(problem.at(met)).gap
    for size in (1e-8, 1e-4, 1e-2, 1.0):
        found = problem.certificate(problem.at(met + size * rng.standard_normal((6, 4))))
        # The optimum is 0, and so f itself the gap.
        assert found.objective * (1 - 1e-12) <= found.gap <= found.objective * (1 + 1e-12)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0])
def test_a_positive_definite_C_bounds_all_but_its_part_of_f(rng, size):
    plain, value = clusters(rng, 4)
    root = rng.standard_normal((4, 4))
    C = size * (root @ root.T + 0.1 * np.eye(4))
    problem = QuadraticSDP(plain.map, plain.targets, C)
    best = conic_optimum(lambda Y: value(Y) + np.sum(C * Y), 4)
    for scale in (1e-3, 0.1, 1.0, 3.0):
        point = problem.at(scale * rng.standard_normal((4, 2)))
        found = problem.certificate(point)
        assert found.bound <= best + 1e-9 * (1 + abs(best))
        assert found.gap <= point.objective * (1 + 1e-12)


def test_without_targets_a_positive_definite_C_bounds_it(rng):
    """B sees nothing of diag(0, 0, 1), so no direction leads inside; C does."""
    rows = np.stack([svec(np.diag([1.0, -1.0, 0.0]))])
    problem = QuadraticSDP.from_rows(rows, svec(np.diag([1.0, 2.0, 3.0])))
    found = problem.certificate(problem.at(rng.standard_normal((3, 2))))
    assert -np.inf < found.bound <= 0.0
    assert problem.certificate(problem.at(np.zeros((3, 1)))).gap == 0.0


def test_a_bound_that_nothing_gives_is_infinite():
    """Errors are those of the point's own dual then."""
    problem = QuadraticSDP.from_rows(np.zeros((1, 3)), svec(np.diag([1.0, -1.0])))
    point = problem.at(np.diag([2.0, 1.0]))
    found = problem.certificate(point)
    assert found.gap == np.inf == -found.bound
    np.testing.assert_array_equal(point.proof.dual, 2.0 * point.residual)
    errors, low = dimacs_errors(problem, np.diag([4.0, 1.0]), point.proof.dual)
    assert found.dimacs == pytest.approx(errors) and errors[3] == 0.5 and found.min_eigenvalue == low == -1.0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("beside", [0.0, 0.3])
def test_errors_are_of_the_dual_that_is_proven_by(rng, case, beside):
    """Which is feasible, so that error 5 is the gap and 6 is within it; also where C is psd, and the best point lies towards 0."""
    plain, _ = CASES[case](rng, 6)
    problem = QuadraticSDP(
        plain.map, plain.targets, plain.C + 2.0 * (beside > 0) * np.eye(6) + beside * np.ones((6, 6))
    )
    corrected = []
    for size in (1e-3, 0.1, 1.0, 3.0):
        point = problem.at(size * rng.standard_normal((6, 2)))
        corrected.append(point.slopes[0] < 0)
        found, z = problem.certificate(point), point.proof.dual
        errors, low = dimacs_errors(problem, point.factor @ point.factor.T, z)
        norm = 1.0 + np.abs(problem.map.adjoint(np.abs(z))).max() + np.abs(problem.C).max()
        np.testing.assert_allclose(found.dimacs, errors, rtol=1e-9, atol=1e-13 * norm)
        assert abs(found.min_eigenvalue - low) < 1e-12 * norm and low > -1e-12 * norm and found.dimacs[3] < 1e-12
        bound = -z @ z / 4 - z @ problem.targets
        scale = 1 + abs(found.objective) + abs(bound)
        assert found.bound == pytest.approx(bound, rel=1e-9, abs=1e-12 * scale)
        assert found.dimacs[4] == pytest.approx(found.gap / scale, rel=1e-9)
        assert found.dimacs[5] <= found.dimacs[4] * (1 + 1e-12)
    assert corrected.count(True) > 1


@pytest.mark.parametrize("case", CASES)
def test_errors_of_a_given_pair_are_its_own(rng, case):
    """As a conic solver hands one out: the gap is of a corrected dual, the errors tell how far the given one is from it."""
    problem, value = CASES[case](rng, 5)
    half, z = rng.standard_normal((5, 5)), rng.standard_normal(len(problem.targets))
    Y = half + half.T
    found = problem.certify(Y, z)
    errors, low = dimacs_errors(problem, Y, z)
    assert (
        found.dimacs[:4] == pytest.approx(errors[:4])
        and errors[1] > 0 < errors[3]
        and found.min_eigenvalue == pytest.approx(low)
    )
    values, vectors = np.linalg.eigh(Y)
    psd = vectors * np.maximum(values, 0.0) @ vectors.T
    assert found.objective == pytest.approx(value(psd))
    assert found.dimacs[4:] == pytest.approx(dimacs_errors(problem, psd, z)[0][4:])
    assert np.isfinite(found.gap) and found.bound <= conic_optimum(value, 5) + 1e-9


def test_vec_and_svec_are_one_problem(rng):
    m = 3
    rows = rng.standard_normal((4, m, m))
    rows += rows.transpose(0, 2, 1)
    c = rng.standard_normal((m, m))
    c += c.T
    vec = QuadraticSDP.from_matrix(np.einsum("tij,tkl->ijkl", rows, rows).reshape(9, 9), c.ravel())
    half = QuadraticSDP.from_rows(np.stack([svec(row) for row in rows]), svec(c))
    R = rng.standard_normal((m, 2))
    wanted = (np.einsum("tij,ij->t", rows, R @ R.T) ** 2).sum() + np.sum(c * (R @ R.T))
    assert vec.at(R).objective == pytest.approx(wanted) == half.at(R).objective
    np.testing.assert_allclose(vec.at(R).gradient, half.at(R).gradient, atol=1e-10)
    assert vec.map.shape == half.map.shape == (4, 3)


@pytest.mark.parametrize(
    ("A", "b", "message"),
    [
        (np.diag([1.0, -0.5, 1.0]), np.zeros(3), "an eigenvalue of -0.5"),
        (np.triu(np.ones((3, 3))), np.zeros(3), "not symmetric"),
        (np.eye(3), np.zeros(4), "of different sizes"),
        (np.eye(5), np.zeros(5), "neither vec nor svec"),
        (np.eye(3) * np.nan, np.zeros(3), r"A: not finite; got A\[0, 0\] = nan and 8 more; wanted finite numbers"),
        (np.eye(3), [0.0, -np.inf, 0.0], r"b: not finite; got b\[1\] = -inf;"),
        (np.diag([1.0, -0.5, 1.0]), np.zeros(3), "wanted a convex objective.*correct A; .*numpy.linalg.eigh"),
        (np.triu(np.ones((3, 3))), np.zeros(3), r"A\[0, 1\] = 1 and A\[1, 0\] = 0; .*pass \(A \+ A.T\) / 2"),
        (np.eye(3) + 1j, np.zeros(3), "A: complex numbers; got dtype complex128; wanted real ones; pass A.real"),
        (np.eye(3), np.zeros(3, complex), "b: complex numbers"),
        (np.zeros((0, 0)), np.zeros(0), r"A, b: empty; got shapes \(0, 0\) and \(0,\)"),
        ([["1", "0"], ["0", "1"]], np.zeros(2), "A: text, not numbers; got '1'"),
        ([[1.0, 0.0], [0.0]], np.zeros(2), "A: rows of different lengths"),
        (sparse.eye_array(3), np.zeros(3), r"A: sparse; .*A.toarray\(\)"),
        (np.zeros((2, 2, 2)), np.zeros(2), "A: of another number of dimensions"),
        (np.eye(3), np.zeros((3, 1)), "b: of another number of dimensions"),
        (np.ma.masked_less(np.eye(3), 0.5), np.zeros(3), "A.*masked values"),
        (np.array([[{}]]), np.zeros(1), "A: not numbers; got dtype object"),
    ],
)
def test_bad_matrices_are_refused(A, b, message):
    with pytest.raises(InputError, match=message) as caught:
        QuadraticSDP.from_matrix(A, b)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("B", "b", "message"),
    [
        (np.ones((2, 3)) * 1j, np.zeros(3), "B: complex numbers"),
        (np.ones((2, 3)), ["0", "0", "0"], "b: text"),
        (np.ones((2, 3, 3)), np.zeros(3), "B: of another number of dimensions"),
        (sparse.eye_array(3), np.zeros(3), "B: sparse"),
        ([[1.0], [1.0, 2.0]], np.zeros(3), "B: rows of different lengths"),
        (np.ones((2, 4)), np.zeros(4), r"B, b: no svec; got shapes \(2, 4\) and \(4,\)"),
        (np.ones((2, 3)), np.zeros(6), "B, b: no svec"),
        (np.ones((1, 0)), np.zeros(0), "B, b: no svec"),
        ([[1.0, np.nan, 0.0]], np.zeros(3), r"B\[0, 1\] = nan"),
    ],
)
def test_bad_rows_are_refused(B, b, message):
    with pytest.raises(InputError, match=message):
        QuadraticSDP.from_rows(B, b)


def test_the_form_is_named_where_the_size_does_not_tell(rng):
    """36 numbers are svec of 8 rows and vec of 6; one number is both, alike."""
    half = rng.standard_normal((4, 36))
    A = half.T @ half
    with pytest.raises(InputError, match="36 numbers, svec of 8 rows or vec of 6; wanted form="):
        QuadraticSDP.from_matrix(A, np.zeros(36))
    assert QuadraticSDP.from_matrix(A, np.zeros(36), form="svec").m == 8
    vec = QuadraticSDP.from_matrix(A, np.zeros(36), form="vec")
    R = rng.standard_normal((6, 2))
    assert vec.at(R).objective == pytest.approx(((half @ (R @ R.T).ravel()) ** 2).sum())
    assert QuadraticSDP.from_matrix(np.eye(1), np.zeros(1)).m == 1
    for q, form, message in ((9, "svec", "no svec of Y"), (6, "vec", "no vec of Y"), (9, "Vec", "form: unknown")):
        with pytest.raises(InputError, match=message):
            QuadraticSDP.from_matrix(np.eye(q), np.zeros(q), form=form)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"targets": np.zeros(3)}, r"targets: not one a square; got shape \(3,\); wanted \(2,\) numbers"),
        ({"targets": np.array([0.0, np.nan])}, r"targets: not finite; got targets\[1\] = nan"),
        ({"C": np.eye(2)}, r"C: of another size; got shape \(2, 2\); wanted a symmetric \(3, 3\)"),
        ({"C": np.triu(np.ones((3, 3)))}, r"C: not symmetric; .*C\[0, 1\] = 1 and .*pass \(C \+ C.T\) / 2"),
        ({"C": np.eye(3) * 1j}, "C: complex"),
        ({"map": "B"}, "map: no map of matrices; got a str"),
    ],
)
def test_parts_of_a_problem_fit_together(changed, message):
    right = {"map": RowForms(np.stack([np.eye(3), np.ones((3, 3))])), "targets": [1, 2], "C": np.eye(3, dtype=int)}
    assert QuadraticSDP(**right).at(np.ones((3, 1))).objective == 3 + (3 - 1) ** 2 + (9 - 2) ** 2
    with pytest.raises(InputError, match=message):
        QuadraticSDP(**right | changed)


Q = np.linalg.qr(np.random.default_rng(0).standard_normal((20, 4)))[0]
EDGES = np.array([[0, 1], [1, 2]])
NONE = np.zeros((0, 2), int)
OF_UNFOLDING = {"Q": Q, "edges": EDGES, "squared": np.array([0.0, 2.0]), "nu": 1.0, "reward": np.eye(4)}
OF_PROPAGATION = {"Q": Q, "must_link": EDGES, "cannot_link": NONE, "weights": None}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"edges": np.array([[0, 10**6]])}, r"edges: row numbers out of range; got edges\[0\] = \(0, 1000000\)"),
        ({"edges": np.array([[0, 1], [5, 99]])}, r"edges\[1\] = \(5, 99\); wanted row numbers from 0 to 19"),
        ({"edges": np.array([[-1, 1], [1, 2]])}, "negative row numbers"),
        (
            {"edges": np.array([[3, 3], [1, 2]])},
            "edges: a row paired with itself.*leave out edges from a row to itself",
        ),
        ({"edges": EDGES * 1.0}, "edges: not of an integer type"),
        ({"squared": np.array([-1.0, 2.0])}, r"a negative square; got squared\[0\] = -1"),
        ({"squared": np.array([1.0, np.nan])}, r"squared: not finite; got squared\[1\] = nan"),
        ({"squared": np.ones(3)}, "squared: not one an edge"),
        ({"nu": -1}, "nu: not a positive number; got -1"),
        ({"nu": 0}, "nu: not a positive number; got 0"),
        ({"nu": 1e300}, r"nu, squared: out of the range.*sqrt\(nu\) d\^2 of up to 2e\+150.*scale the rows"),
        ({"nu": np.nan}, "nu: not a positive number; got nan"),
        ({"nu": 10**400}, "nu: not a positive number"),
        ({"nu": "1"}, "nu: not a positive number; got '1'"),
        ({"reward": np.eye(3)}, r"reward: of another size; got shape \(3, 3\); wanted a symmetric \(4, 4\)"),
        ({"Q": Q[0]}, "Q: of another number of dimensions"),
        ({"Q": np.where(np.arange(80).reshape(20, 4) == 14, np.inf, Q)}, r"Q: not finite; got Q\[3, 2\] = inf"),
    ],
)
def test_an_unfolding_is_checked_before_it_is_made(changed, message):
    unfolding(**OF_UNFOLDING)  # a zero length is that of equal rows
    with pytest.raises(InputError, match=message):
        unfolding(**OF_UNFOLDING | changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"must_link": np.array([[0, 10**6]])}, "must_link: row numbers out of range"),
        (
            {"cannot_link": np.array([[0, 99]])},
            r"cannot_link: row numbers out of range; got cannot_link\[0\] = \(0, 99\)",
        ),
        ({"must_link": np.array([[2, 2]])}, "must_link: a row paired with itself"),
        ({"weights": np.array([1.0, -1.0])}, r"weights: not a weight; got weights\[1\] = -1"),
        ({"weights": np.array([1.0, np.nan])}, "weights: not a weight"),
        ({"weights": np.ones(5)}, "weights: not a weight a pair"),
        ({"weights": np.array([1.0, 1e300])}, r"weights of pairs: too large .*got 1e\+300; wanted at most 1e\+12"),
        ({"Q": Q + 0j}, "Q: complex numbers"),
    ],
)
def test_a_propagation_is_checked_before_it_is_made(changed, message):
    propagation(**OF_PROPAGATION)
    with pytest.raises(InputError, match=message):
        propagation(**OF_PROPAGATION | changed)


def test_the_default_nu_follows_the_scale_of_the_rows(rng):
    d2 = rng.random(9) + 0.5
    for scale in (100.0, 1e200, 1e-200):
        assert default_nu(scale * d2, 0.3) == pytest.approx(default_nu(d2, 0.3) / scale)


def test_rows_and_pairs_are_one_map(rng):
    problem, _ = clusters(rng, 4)
    B, _ = svec_form(problem)
    dense = QuadraticSDP.from_rows(B, svec(problem.C)).map
    R, D = rng.standard_normal((2, 4, 3))
    ours, theirs = problem.map.see(R), dense.see(R)
    z = rng.standard_normal(len(B))
    np.testing.assert_allclose(ours.squares(), theirs.squares(), atol=1e-12)
    np.testing.assert_allclose(ours.crossed(problem.map.see(D)), theirs.crossed(dense.see(D)), atol=1e-12)
    np.testing.assert_allclose(ours.curved(D), theirs.curved(D), atol=1e-12)
    np.testing.assert_allclose(ours.curved(D), problem.map.adjoint(ours.crossed(problem.map.see(D))) @ R, atol=1e-12)
    V = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    np.testing.assert_allclose(ours.curvature(V), theirs.curvature(V), atol=1e-12)
    i, j, scale = np.array([0, 1, 1]), np.array([2, 1, 3]), np.array([1.0, 2.0, 0.5])
    np.testing.assert_allclose(problem.map.gram(V, i, j, scale), dense.gram(V, i, j, scale), atol=1e-12)
    unit = V[:, [1]] @ np.eye(3)[[2]]  # the derivative along v_1 e_2'
    moved = ours.crossed(problem.map.see(unit))
    np.testing.assert_allclose(ours.curvature(V)[1, 2], moved @ moved, atol=1e-12)
    np.testing.assert_allclose(problem.map.adjoint(z), dense.adjoint(z), atol=1e-12)
    assert np.trace(problem.map.size()) >= np.trace(dense.size())
    edges, _ = strip(rng, 4)
    alike = QuadraticSDP.from_rows(svec_form(edges)[0], svec(edges.C)).map
    np.testing.assert_allclose(edges.map.gram(V, i, j, scale), alike.gram(V, i, j, scale), atol=1e-10)
    np.testing.assert_allclose(edges.map.see(R).curvature(V), alike.see(R).curvature(V), atol=1e-10)
    z = svec_form(edges)[0][:, 0]
    np.testing.assert_allclose(edges.map.single().adjoint(z), edges.map.adjoint(z), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(edges.map.size(), alike.size(), rtol=1e-6, atol=1e-10)
    np.testing.assert_allclose(smat(B[0], 4), dense.forms[0])
