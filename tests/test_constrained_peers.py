"""RCA of benchmarks/system/constrained_peers.py against what its paper says."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import sqrtm

import dkl

PATH = Path(__file__).parents[1] / "benchmarks" / "system" / "constrained_peers.py"


@pytest.fixture(scope="module")
def peers():
    spec = importlib.util.spec_from_file_location("constrained_peers", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("shrinkage", [0.0, 0.3])
def test_rca_whitens_the_covariance_within_chunklets(peers, shrinkage, rng):
    y = np.arange(60) % 3
    X = (rng.standard_normal((60, 3)) + 2.0 * rng.standard_normal((3, 3))[y]) @ rng.standard_normal((3, 3))
    chunklets = [np.flatnonzero(y == c)[:10] for c in range(3)]
    links = np.concatenate([np.stack([one[:-1], one[1:]], axis=1) for one in chunklets])
    A = peers.rca(X, dkl.Pairs(links, np.empty((0, 2), int)), shrinkage)
    C = np.mean([np.cov(X[one].T, bias=True) for one in chunklets], axis=0)
    C = (1 - shrinkage) * C + shrinkage * np.trace(C) / 3 * np.eye(3)
    np.testing.assert_allclose(A, np.linalg.inv(sqrtm(C).real), rtol=1e-8)
    if not shrinkage:
        within = np.concatenate([X[one] - X[one].mean(axis=0) for one in chunklets]) @ A
        np.testing.assert_allclose(within.T @ within / len(within), np.eye(3), atol=1e-9)
