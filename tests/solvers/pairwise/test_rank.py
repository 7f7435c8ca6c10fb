"""The exact mixing of columns: its quadratic by brute force, and how far it goes for a goal."""

import numpy as np
import pytest
from pairwise_cases import dense_targets, objective, random_problem

import dkl
from dkl.estimators.pairwise.fit import make_problem
from dkl.linalg.symmetric.psd_quadratic import svec
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise import rank as module


@pytest.fixture
def mixing(rng):
    """(problem, its dense objective as a function of K, a factor of rank 3, orthonormal vectors (40, 12))."""
    laplacian, must, cannot = random_problem(rng, 40)
    given = make_problem(laplacian, dkl.Pairs(must, cannot), 30.0)
    problem = FactoredPairwise(given.laplacian, given.targets, 30.0)
    target, mask = dense_targets(40, must, cannot)
    vectors = np.linalg.qr(rng.standard_normal((40, 12)))[0]
    return (
        problem,
        lambda K: objective(K, laplacian.toarray(), target, mask, 30.0),
        rng.standard_normal((40, 3)),
        vectors,
    )


@pytest.mark.parametrize("chunk", [7, 512])
def test_the_quadratic_is_the_objective(mixing, rng, chunk, monkeypatch):
    """Pairs are summed over once, with both their entries, whatever the chunks."""
    problem, value, _, q = mixing
    monkeypatch.setattr(module, "CHUNK", chunk)
    normal, linear = module._quadratic(problem, q)
    constant = value(np.zeros((40, 40)))
    for _ in range(3):
        Y = rng.standard_normal((12, 12))
        Y, y = Y + Y.T, svec(Y + Y.T)
        assert value(q @ Y @ q.T) == pytest.approx(constant + 30.0 * (0.5 * y @ normal @ y + linear @ y), rel=1e-10)


def test_few_columns_are_mixed_in_where_few_are_asked_for(mixing, monkeypatch):
    problem, value, factor, vectors = mixing
    widths, given = [], module._quadratic
    monkeypatch.setattr(module, "_quadratic", lambda p, q: widths.append(q.shape[1]) or given(p, q))
    mixed = {
        few: module.mix_in(problem, factor, -np.ones(12), vectors, 40, relative=1e-2, few=few) for few in (True, False)
    }
    assert widths == [3 + module.LITTLE_WIDER, 3 + 12]
    values = [value(V @ V.T) for V in (factor, mixed[True], mixed[False])]
    assert values[0] > values[1] >= (1 - 1e-6) * values[2]


@pytest.mark.parametrize("goal", [1e-2, 1e-5])
def test_the_mixing_is_as_good_as_the_goal_asks(mixing, goal):
    """Against one to rounding: f is within a thousandth of the goal."""
    problem, value, factor, vectors = mixing
    found, best = (
        value(V @ V.T)
        for V in (module.mix_in(problem, factor, -np.ones(12), vectors, 40, relative=one) for one in (goal, 1e-9))
    )
    assert abs(found - best) <= 1e-3 * goal * best
