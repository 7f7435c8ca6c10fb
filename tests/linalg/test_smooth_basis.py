"""The smoothest eigenvectors, by every method, against LAPACK."""

import numpy as np
import pytest
from scipy import sparse

from dkl.linalg import smooth_basis
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
@pytest.mark.parametrize("method", ["dense", "shift-invert", "filter"])
def test_every_method_finds_them(method, parts, monkeypatch):
    monkeypatch.setattr(smooth_basis, "DENSE", 600 if method == "dense" else 10)
    monkeypatch.setattr(smooth_basis, "FACTORED", 0 if method == "filter" else 10_000)
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
