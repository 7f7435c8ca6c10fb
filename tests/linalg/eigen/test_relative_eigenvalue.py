"""The lowest eigenvalue of V relative to K^-1, against a dense decomposition."""

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import eigh

from dkl.linalg.eigen.extreme_eigenvalues import lowest_relative


@pytest.mark.parametrize("n", [1, 2, 7, 60])
@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_it_bounds_the_lowest_eigenvalue_from_below_within_a_tenth(n, precision, rng):
    F, half = rng.normal(size=(n, n + 2)), rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.2)
    K = F @ F.T + 0.1 * np.eye(n)
    # One direction stands out, as where a step would leave the cone.
    far = np.zeros(n)
    far[0] = -20.0
    V = half + half.T + np.diag(far)
    exact = eigh(V, np.linalg.inv(K), eigvals_only=True)[0]
    found = lowest_relative(sparse.csr_array(V), lambda z: (K.astype(precision) @ z.astype(precision)).astype(float))
    assert 1.1 * exact <= found <= 0.999 * exact < 0


def test_of_no_step_it_is_zero():
    assert lowest_relative(sparse.csr_array((3, 3)), lambda z: z) == 0.0
