"""The projection onto {0 <= x <= C, y'x = 0} against exact rational arithmetic, and against a conic solver."""

from fractions import Fraction

import clarabel
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from dkl.errors import InputError
from dkl.linalg.svm_dual import box_hyperplane, project

EPS = np.finfo(float).eps


def exact(v, y, C):
    """The projection in rational arithmetic: the root of the piecewise linear h between two sorted breakpoints."""
    v, C, y = [Fraction(a) for a in v.tolist()], [Fraction(a) for a in C.tolist()], [int(a) for a in y]

    def at(t):
        return [min(max(a - t * s, Fraction(0)), c) for a, s, c in zip(v, y, C, strict=True)]

    def h(t):
        return sum(s * x for s, x in zip(y, at(t), strict=True))

    breaks = sorted({s * (a - x) for a, s, c in zip(v, y, C, strict=True) for x in (0, c)})
    lo, hi = 0, len(breaks) - 1  # h(breaks[0]) > 0 > h(breaks[-1])
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if h(breaks[middle]) >= 0 else (lo, middle)
    above, below = h(breaks[lo]), h(breaks[hi])
    root = breaks[lo] + (breaks[hi] - breaks[lo]) * above / (above - below)
    assert h(root) == 0
    return np.array([float(x) for x in at(root)])


def conic(v, y, C):
    n = len(v)
    A = sparse.vstack([sparse.csc_matrix(y[None]), -sparse.eye(n), sparse.eye(n)], format="csc")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    bounds = np.concatenate([[0.0], np.zeros(n), C])
    return np.array(clarabel.DefaultSolver(sparse.eye(n, format="csc"), -v, A, bounds, cones, settings).solve().x)


def labels(rng, n):
    y = rng.choice([-1.0, 1.0], n)
    y[:2] = 1.0, -1.0
    return rng.permutation(y)


def cases(rng, count):
    """(v, y, C): scales of v and C from 1e-8 to 1e8, apart or together, ties, few free, none free."""
    for k in range(count):
        n = int(rng.integers(2, 11))
        y = labels(rng, n)
        v = rng.standard_normal(n) * 10.0 ** rng.integers(-8, 9)
        C = np.full(n, 10.0 ** rng.integers(-8, 9))
        match k % 8:
            case 1:
                C = 10.0 ** rng.uniform(-8, 8, n)
            case 2:
                v = 10.0 ** rng.uniform(-8, 8, n) * rng.choice([-1, 1], n)
            case 3:  # ties
                v, C = rng.integers(-2, 3, n).astype(float), rng.integers(1, 3, n).astype(float)
            case 4:  # one free
                C = np.ones(n)
                v = np.where(rng.random(n) < 0.5, -5.0, 5.0) + 0.1 * y
                v[0] = 0.5
            case 5:  # nothing to move
                v = -np.abs(v)
            case 6:
                v = np.abs(v) + C
            case 7:
                v = v / np.abs(v).max() * C
        yield v, y, C


def test_against_rational_arithmetic(rng):
    for v, y, C in cases(rng, 1000):
        found, wanted = box_hyperplane(v, y, C), exact(v, y, C)
        assert (found >= 0).all() and (found <= C).all()
        assert abs(y @ found) <= 4 * len(v) * EPS * found.sum(), (v, y, C)
        assert np.abs(found - wanted).max() <= 8 * EPS * (np.abs(v).max() + C.max()), (v, y, C)


def test_against_a_conic_solver(rng):
    for _ in range(100):
        n = int(rng.integers(2, 40))
        v, y, C = 2 * rng.standard_normal(n), labels(rng, n), rng.uniform(0.1, 2.0, n)
        assert_allclose(box_hyperplane(v, y, C), conic(v, y, C), atol=1e-7)


def test_a_feasible_point_stays(rng):
    for v, y, C in cases(rng, 200):
        once = box_hyperplane(v, y, C)
        assert_allclose(box_hyperplane(once, y, C), once, rtol=0, atol=8 * len(v) * EPS * max(once.max(), 1e-300))


def test_first_guesses_lead_to_one_point(rng):
    for v, y, C in cases(rng, 100):
        wanted = project(v, y, C, 0.0)[0]
        scale = np.abs(v).max() + C.max()
        for guess in (-1e300, 1e300, np.nan, scale, -scale, rng.standard_normal() * scale):
            assert np.abs(project(v, y, C, guess)[0] - wanted).max() <= 8 * EPS * scale


def test_bounds_are_reached_exactly(rng):
    """No rounding between a bound and its neighbors: solvers read the support off x."""
    for v, y, C in cases(rng, 200):
        found, wanted = box_hyperplane(v, y, C), exact(v, y, C)
        clear = 16 * EPS * (np.abs(v).max() + C.max())
        t = (v - wanted)[(wanted > clear) & (wanted < C - clear)] * y[(wanted > clear) & (wanted < C - clear)]
        if t.size:
            moved = v - t[0] * y
            assert (found[moved < -clear] == 0).all()
            assert (found[moved > C + clear] == C[moved > C + clear]).all()


def test_all_at_a_bound():
    y = np.array([1.0, -1.0, 1.0, -1.0])
    assert_array_equal(box_hyperplane([-1.0, -2.0, -3.0, -4.0], y, 1.0), np.zeros(4))
    assert_array_equal(box_hyperplane([9.0, 9.0, 9.0, 9.0], y, [1.0, 1.0, 2.0, 2.0]), [1.0, 1.0, 2.0, 2.0])


def test_a_million(rng):
    n = 10**6
    v, y, C = rng.standard_normal(n), labels(rng, n), rng.uniform(0.1, 1.0, n)
    x, t = project(v, y, C, 0.0)
    assert abs(y @ x) <= 1e-12 * x.sum()
    assert_array_equal(x, np.clip(v - t * y, 0, C))  # the optimality conditions
    assert_array_equal(box_hyperplane(v, y, C), x)


def test_a_number_or_a_list_will_do():
    assert_allclose(box_hyperplane([3, 1], [1, -1], 10), [2.0, 2.0])
    assert_allclose(box_hyperplane([3, 1], [1, -1], [1, 10]), [1.0, 1.0])


@pytest.mark.parametrize(
    ("v", "y", "C", "match"),
    [
        ([1.0, 2.0], [1, 1], 1.0, "both kinds.*one kind"),
        ([1.0, 2.0], [-1, -1], 1.0, "both kinds"),
        ([], [], 1.0, "both kinds"),
        ([1.0], [1], 1.0, "both kinds"),
        ([1.0, np.nan], [1, -1], 1.0, "v: not finite; got nan"),
        ([1.0, -np.inf], [1, -1], 1.0, "v: not finite; got -inf"),
        ([1.0, 2.0], [1, np.nan], 1.0, "labels must be -1 or 1"),
        ([1.0, 2.0], [0, 1], 1.0, "labels must be -1 or 1"),
        ([1.0, 2.0], [1, -1], 0.0, "C: bounds must be positive"),
        ([1.0, 2.0], [1, -1], [1.0, -1.0], "C: bounds must be positive"),
        ([1.0, 2.0], [1, -1], np.nan, "C: bounds must be positive"),
        ([1.0, 2.0], [1, -1], np.inf, "C: bounds must be positive"),
        ([1.0, 2.0], [1, -1], [1.0, 1.0, 1.0], "C: bounds must be one"),
        ([1.0, 2.0], [1, -1, 1], 1.0, "one length"),
        ([[1.0, 2.0]], [[1, -1]], 1.0, "vectors"),
        ("word", [1, -1], 1.0, "v: not numbers"),
        ([1.0, 2.0], ["a", "b"], 1.0, "y: not numbers"),
        ([1.0, 2.0], [1, -1], "a", "C: not numbers"),
        ([1.0 + 1j, 2.0], [1, -1], 1.0, "v: not numbers"),
    ],
)
def test_what_is_refused(v, y, C, match):
    with pytest.raises(InputError, match=match):
        box_hyperplane(v, y, C)
