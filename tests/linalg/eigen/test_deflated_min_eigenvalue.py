"""The lower bound outside a few vectors, against LAPACK's eigenvalues there."""

import numpy as np
import pytest

from dkl.linalg.eigen.lowest_subspace import lowest_outside
from dkl.linalg.rows.shared_rows import SharedMatrix


@pytest.mark.parametrize("lowest", [-0.3, 1e-3])
def test_it_is_below_the_least_eigenvalue_outside_and_near_it(rng, lowest):
    """q spans far lower directions, only nearly invariant ones: what steps bring back of them would be told."""
    n, k = 500, 12
    values = np.concatenate([np.linspace(-40, -20, k), [lowest], np.linspace(0.5, 30, n - k - 1)])
    basis = np.linalg.qr(rng.standard_normal((n, n)))[0]
    dense = (basis * values) @ basis.T
    q = np.linalg.qr(basis[:, :k] + 1e-5 * rng.standard_normal((n, k)))[0]
    inside = np.linalg.qr(q, mode="complete")[0][:, k:]
    exact = np.linalg.eigvalsh(inside.T @ dense @ inside)[0]
    found = lowest_outside(SharedMatrix.alone(0.5 * (dense + dense.T)), q, 0)
    assert exact - 0.5 * abs(exact) - 1e-12 <= found <= exact + 1e-12


def test_the_rest_of_a_small_space_is_found_to_its_end(rng):
    dense = rng.standard_normal((20, 20))
    dense = dense + dense.T
    q = np.linalg.qr(rng.standard_normal((20, 17)))[0]
    inside = np.linalg.qr(q, mode="complete")[0][:, 17:]
    exact = np.linalg.eigvalsh(inside.T @ dense @ inside)[0]
    assert lowest_outside(SharedMatrix.alone(dense), q, 3) == pytest.approx(exact, abs=1e-9)
