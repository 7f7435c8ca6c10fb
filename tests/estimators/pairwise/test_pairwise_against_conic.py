"""Random hard problems of pairs against a conic solver: what is called solved is within its goal, and nothing raises."""

import warnings

import numpy as np
import pytest
from pairwise_cases import dense_targets, objective, sdp_optimum
from repeats import but_for

import dkl
from dkl.errors import ConvergenceWarning, DataWarning
from dkl.solvers.watch import Outcome

WAYS = (
    {},
    {"dtype": "float32"},
    {"target_gap": 1e-4},
    {"target_gap": 1e-4, "dtype": "float32"},
    {"solver": "factored", "target_gap": 1e-6},
    {"target_gap": None},
)
FLOOR = np.sqrt(np.finfo(float).eps)
HANDFUL, MANY = 4, 200


def hard_problem(seed):
    """(affinity (n, n), must_link, cannot_link, gamma, laplacian): labels know nothing of the graph, which may fall apart,
    have weights of ten orders of magnitude, and isolated patterns; pairs of one kind alone, a single one, or nearly all there are."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 21))
    weights = np.triu(rng.random((n, n)) ** rng.choice([1, 20]), 1) * (rng.random((n, n)) < rng.choice([0.1, 0.4, 1.0]))
    weights[0, 1] = 1.0
    y = rng.integers(0, rng.integers(1, 5), n)
    ends = np.array([(i, j) for i in range(n) for j in range(i)])
    ends = ends[rng.permutation(len(ends))[: int(rng.choice([1, n, 3 * n]))]]
    alike = y[ends[:, 0]] == y[ends[:, 1]]
    kept = rng.choice([0, 1, 2, 2])
    must, cannot = ends[alike & (kept != 0)], ends[~alike & (kept != 1)]
    if len(must) + len(cannot) == 0:
        must = ends[:1]
    gamma = float(10.0 ** rng.uniform(-3, 5))
    return weights + weights.T, must, cannot, gamma, str(rng.choice(["normalized", "unnormalized"]))


def check(seed):
    """All ways of fitting the problem; how many were solved."""
    W, must, cannot, gamma, kind = hard_problem(seed)
    n, solved = len(W), 0
    target, mask = dense_targets(n, must, cannot)
    found = []
    for way in WAYS:
        learner = dkl.PairwiseKernelLearner(
            affinity="precomputed", laplacian=kind, gamma=gamma, random_state=seed, n_jobs=1, **way
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", DataWarning)
            learner.fit(W, must_link=must, cannot_link=cannot)
        laplacian, V = learner.graph_.laplacian.toarray(), np.asarray(learner.factor_, float)
        found.append((way, learner, objective(V @ V.T, laplacian, target, mask, gamma)))
    oracle = sdp_optimum(laplacian, target, mask, gamma)
    # It ends at 1e-10, relative to its own objective, which lacks the constant gamma / 2 |T|^2, or to 1.
    blur = 1e-8 * (1 + gamma * target.sum() / 2 + abs(oracle))
    # No optimum is above the objective of a kernel, and ours are V V'.
    best = min(oracle, *(value for _, _, value in found))
    assert oracle - best <= 100 * blur, seed
    for way, learner, value in found:
        told, goal = learner.certificate_, way.get("target_gap", 1e-2)
        outcome = learner.result_.outcome
        assert value == pytest.approx(told.objective, rel=1e-8, abs=blur), (seed, way)
        assert value - best <= told.gap + blur, (seed, way, value - best, told.gap)
        assert (outcome is Outcome.SOLVED) == (goal is not None and told.relative_gap <= goal), (seed, way, outcome)
        if outcome is Outcome.SOLVED:
            assert value - best <= goal * max(value, FLOOR * gamma * n / 2) + blur, (seed, way, value, best)
            solved += 1
    return solved


@pytest.mark.parametrize("seed", but_for(range(1, HANDFUL), range(HANDFUL)))
def test_solved_is_never_untrue(seed):
    assert check(seed) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HANDFUL, MANY))
def test_solved_is_never_untrue_of_many(seed):
    check(seed)
