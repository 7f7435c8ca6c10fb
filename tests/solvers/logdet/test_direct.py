"""The direct Newton step against a dense solve of (I + D H) step = r."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from dkl.solvers.logdet.step import direct_step


class Dense:
    """H as a matrix."""

    def __init__(self, H):
        self.H = H

    def product(self, multipliers):
        return self.H @ multipliers

    def hessian(self, active):
        return self.H[np.ix_(active, active)].copy()


@pytest.mark.parametrize("least", [0.0, 5e-324, 1e-310, 1e-200])
def test_against_a_dense_solve_whatever_the_curvature(least, rng):
    """Of a logarithmic loss that is far met the curvature underflows: its inverse is no number."""
    B = rng.normal(size=(6, 6))
    curvatures = np.array([1.0, least, 0.3, least, 2.0, 1e-3])
    residual = np.where(curvatures > 1e-6, rng.normal(size=6), 0.0)
    found = direct_step(Dense(B @ B.T), residual, curvatures)
    wanted = np.linalg.solve(np.eye(6) + curvatures[:, None] * (B @ B.T), residual)
    assert_allclose(found.step, wanted, rtol=1e-9, atol=1e-12)
