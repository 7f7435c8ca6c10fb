"""The eigenvalue that `verify` recomputes of a run of pairs, against LAPACK's and known spectra."""

import numpy as np
import pytest
from pairwise_cases import random_problem
from scipy import sparse

from dkl.runs.pairwise import verify


def test_it_is_that_of_lapack(rng, monkeypatch):
    monkeypatch.setattr(verify, "DENSE", 0)
    for n in (1, 2, 60, 300):
        laplacian = random_problem(rng, n)[0]
        matrix = laplacian - sparse.diags_array(10.0 * rng.random(n) ** 8)
        exact = np.linalg.eigvalsh(matrix.toarray())
        assert verify.smallest_eigenvalue(matrix) == pytest.approx(exact[0], abs=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("spread", [1e-5, 1e-7])
def test_a_cluster_at_zero_takes_some_thousand_products(rng, monkeypatch, spread):
    """34 eigenvalues about 0, as duplicates leave them, below a quasi-continuum; Lanczos does not know that S is diagonal."""
    values = np.concatenate([spread * rng.standard_normal(34), np.geomspace(1e-2, 400.0, 1566)])
    products, given = [], sparse.csr_array.__matmul__
    monkeypatch.setattr(sparse.csr_array, "__matmul__", lambda a, b: products.append(1) or given(a, b))
    found = verify.smallest_eigenvalue(sparse.diags_array(values, format="csr"))
    assert len(products) < 20_000
    assert -1e-12 * 400 <= found - values.min() <= verify.EIGEN_TOLERANCE * 400


def test_spectra_of_one_number_are_found_at_once():
    assert verify.smallest_eigenvalue(sparse.eye_array(1600, format="csr")) == pytest.approx(1.0, rel=1e-12)
    assert verify.smallest_eigenvalue(sparse.csr_array((1600, 1600))) == 0.0
