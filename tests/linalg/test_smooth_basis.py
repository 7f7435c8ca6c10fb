"""The smoothest eigenvectors, by every method, against LAPACK."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import splu

from dkl.linalg import smooth_basis, smooth_bytes
from dkl.linalg.smooth_basis import smoothest


def ring(n, parts=1):
    """The Laplacian of `parts` rings of n patterns with a long chord each."""
    W = np.zeros((n * parts, n * parts))
    for part in range(parts):
        i = part * n + np.arange(n)
        W[i, np.roll(i, 1)] = W[np.roll(i, 1), i] = 1.0
        W[i[0], i[n // 3]] = W[i[n // 3], i[0]] = 0.5
    return sparse.csr_array(np.diag(W.sum(axis=0)) - W)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("method", ["dense", "shift-invert", "foreseen", "filter"])
def test_every_method_finds_them(method, parts, monkeypatch):
    monkeypatch.setattr(smooth_bytes, "DENSE", 600 if method == "dense" else 10)
    monkeypatch.setattr(smooth_bytes, "GAUGES", (20, 40))
    monkeypatch.setattr(smooth_bytes, "FACTORED", 10_000 if method == "shift-invert" else 0)
    monkeypatch.setattr(smooth_bytes, "FILL", 0 if method == "filter" else 2**20)
    method = "shift-invert" if method == "foreseen" else method
    L, count = ring(90 // parts, parts), 7 if parts == 1 else 9
    found = smoothest(L, count)
    values, vectors = np.linalg.eigh(L.toarray())
    assert found.method == method and found.residual <= 1e-8
    np.testing.assert_allclose(found.values, values[:count], atol=1e-7)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(count), atol=1e-12)
    # The next one lies apart, so the subspace is one.
    assert values[count] - values[count - 1] > 1e-4
    outside = found.vectors - vectors[:, :count] @ (vectors[:, :count].T @ found.vectors)
    assert np.abs(outside).max() < 1e-5
    assert (np.take_along_axis(found.vectors, np.abs(found.vectors).argmax(axis=0)[None], 0) > 0).all()


def test_as_many_as_there_are_are_found():
    found = smoothest(ring(12), 12)
    assert found.method == "dense" and found.vectors.shape == (12, 12) and found.residual < 1e-14


@pytest.mark.parametrize("kind", ["plane", "expander"])
def test_a_factor_s_size_is_foreseen(kind, rng, monkeypatch):
    monkeypatch.setattr(smooth_bytes, "GAUGES", (200, 400))
    n = 1600
    if kind == "plane":
        path = sparse.diags_array([np.ones(39), np.ones(39)], offsets=[-1, 1])
        W = sparse.kron(path, sparse.eye_array(40)) + sparse.kron(sparse.eye_array(40), path)
    else:
        i, j = rng.integers(0, n, (2, 5 * n))
        W = sparse.coo_array((np.ones(5 * n), (i, j)), shape=(n, n))
        W = ((W + W.T) > 0).astype(float)
        W = sparse.csr_array(W - sparse.diags_array(W.diagonal()))
    L = sparse.csr_array(sparse.diags_array(W.sum(axis=0)) - W)
    numbers = splu(sparse.csc_array(L + 1e-3 * sparse.eye_array(n)), permc_spec="MMD_AT_PLUS_A").L.nnz
    assert 0.3 < smooth_basis.factor_bytes(L) / (smooth_bytes.NUMBER * numbers) < 3
