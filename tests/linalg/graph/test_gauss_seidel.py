"""A Gauss-Seidel sweep over the rows of V: it lowers f, and where it stands still f is stationary."""

import numpy as np
from pairwise_cases import dense_targets, objective, random_problem

from dkl.linalg.graph.gauss_seidel import sweep
from dkl.linalg.slabs.slab_ops import lanes_of
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import target_matrix


def test_sweeps_lower_f_to_a_stationary_point(rng):
    laplacian, must, cannot = random_problem(rng, 30)
    target, mask = dense_targets(30, must, cannot)
    dense, gamma = laplacian.toarray(), 8.0
    problem = PairwiseKernel(laplacian, target_matrix(30, must, cannot), gamma).factored(1)
    v, values = rng.standard_normal((30, 4)), []
    slope, k = np.inf, 0
    while k < 20_000 and slope > 1e-6 * gamma:
        sweep(*problem._l, *problem._t, problem._target, problem._weights, gamma, v, k % 2 == 1, lanes_of(4))
        values.append(objective(v @ v.T, dense, target, mask, gamma))
        slope, k = np.abs((dense + gamma * mask * (v @ v.T - target)) @ v).max(), k + 1
    assert (np.diff(values) <= 1e-12 * values[0]).all() and values[2] < 0.7 * values[0]
    assert slope <= 1e-6 * gamma
