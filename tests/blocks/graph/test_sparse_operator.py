"""Products on workers are scipy's products, to the bit, and survive the loss of what was sent."""

import numpy as np
import pytest
from pairwise_cases import random_problem
from scipy import sparse

from dkl.blocks.graph.distributed_products import WorkerMatrix, product_on
from dkl.blocks.session import Session
from dkl.linalg.eigen import extreme_eigenvalues
from dkl.problems.pairwise import certificate
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.problems.pairwise.terms import target_matrix


def test_product_is_scipy_s_to_the_bit(rng, client):
    matrix = sparse.csr_array(rng.random((501, 501)) * (rng.random((501, 501)) < 0.05))
    shared = WorkerMatrix(matrix, Session(client))
    assert len(shared.blocks) == 2
    for _ in range(3):
        x = rng.standard_normal(501)
        assert shared.product(x).tobytes() == (matrix @ x).tobytes()
    for _, block in shared.blocks:
        block.release()
    assert shared.product(x).tobytes() == (matrix @ x).tobytes()


@pytest.mark.exhaustive
def test_the_certificate_on_workers_is_the_certificate(rng, client, monkeypatch):
    monkeypatch.setattr(certificate, "LIFTING_ROUNDS", 1)  # thousands of products otherwise
    monkeypatch.setattr(extreme_eigenvalues, "DENSE", 50)
    n = 60  # beyond the size of dense eigenvalues
    laplacian, must, cannot = random_problem(rng, n, density=0.3)
    problem = PairwiseKernel(laplacian, target_matrix(n, must, cannot), 10.0)
    entries, smooth = problem.evaluate(rng.standard_normal((n, 6)) / 6**0.5)
    here = problem.certificate(entries, smooth)
    there = problem.certificate(entries, smooth, product=product_on(Session(client), least=0))
    assert there.as_dict() == here.as_dict()
    target = problem.targets
    dense = laplacian.toarray()
    rows = np.repeat(np.arange(n), np.diff(target.indptr))
    dense[rows, target.indices] += 10.0 * (entries - target.data)
    smallest = np.linalg.eigvalsh(dense)[0]
    assert here.min_eigenvalue <= smallest + 1e-12
    assert here.min_eigenvalue == pytest.approx(smallest, abs=1e-6)
