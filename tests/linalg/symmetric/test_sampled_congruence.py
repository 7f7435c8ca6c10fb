"""Sampled products and both inverse forms, against dense arithmetic."""

import numpy as np
import pytest
from mpmath import mp

from dkl.linalg.symmetric.inverse_forms import DenseInverse, FactoredInverse, psd_factor
from dkl.linalg.symmetric.sampled_congruence import PANEL, SHARED, SymmetricPattern, mirror_upper


def pattern_of(rng, n, q):
    keys = np.unique(np.sort(rng.integers(0, n, size=(q, 2)), axis=1) @ [n, 1])
    return SymmetricPattern(n, keys // n, keys % n)


def dense(pattern, u):
    V = np.zeros((pattern.n, pattern.n))
    for weight, i, j in zip(u, pattern.rows, pattern.columns, strict=True):
        V[i, j] += weight / 2
        V[j, i] += weight / 2
    return V


def psd(rng, n, rank):
    F = rng.normal(size=(n, rank))
    return F @ F.T


@pytest.mark.parametrize("n", [1, 5, PANEL, PANEL + 1, 2 * PANEL + 7])
def test_entries_of_a_congruence(n, rng):
    pattern, K = pattern_of(rng, n, 3 * n), psd(rng, n, n)
    u = rng.normal(size=len(pattern))
    V = dense(pattern, u)
    np.testing.assert_allclose(pattern.matrix(u).toarray(), V, rtol=1e-14)
    np.testing.assert_allclose(
        pattern.congruence(K, u), pattern.of(K @ V @ K), rtol=1e-9, atol=1e-9 * np.abs(K).max() ** 2
    )
    z = rng.normal(size=n)
    np.testing.assert_allclose(u @ pattern.times(z).toarray(), V @ z, rtol=1e-12, atol=1e-12)
    held = K.copy()
    pattern.add_to(u, held)
    np.testing.assert_allclose(held, K + V, rtol=1e-14)


def test_threads_leave_the_bytes_of_a_congruence(rng):
    n = SHARED * PANEL + 5
    pattern, K = pattern_of(rng, n, n), rng.normal(size=(n, 3)).astype(np.float32)
    K, u = K @ K.T, rng.normal(size=len(pattern))
    assert pattern.congruence(K, u, threads=3).tobytes() == pattern.congruence(K, u).tobytes()


def test_the_gram_of_entries_is_that_of_traces(rng):
    pattern, K = pattern_of(rng, 6, 12), psd(rng, 6, 6)
    units = [dense(pattern, row) for row in np.eye(len(pattern))]
    traces = [[np.trace(a @ K @ b @ K) for b in units] for a in units]
    np.testing.assert_allclose(pattern.gram(K, np.arange(len(pattern))), traces, rtol=1e-12)


def test_mirror_upper(rng):
    A = rng.normal(size=(70, 70))
    whole = np.triu(A) + np.triu(A, 1).T
    mirror_upper(A)
    np.testing.assert_array_equal(A, whole)


@pytest.mark.parametrize("kind", ["inverse", "factor"])
def test_a_form_is_the_inverse_of_a_sum(kind, rng):
    n = 12
    K0, pattern = psd(rng, n, n + 2), pattern_of(rng, n, 30)
    form = DenseInverse.of(K0, pattern) if kind == "inverse" else FactoredInverse(pattern, np.linalg.cholesky(K0))
    u, v = 0.01 * rng.normal(size=(2, len(pattern)))
    K = np.linalg.inv(np.linalg.inv(K0) + dense(pattern, u))
    log_det = np.linalg.slogdet(np.eye(n) + K0 @ dense(pattern, u))[1]
    assert form.at(np.zeros_like(u)) == pytest.approx(0.0, abs=1e-10)
    form.accept()
    assert form.at(u) == pytest.approx(log_det, rel=1e-9)
    np.testing.assert_allclose(form.entries(trial=True), pattern.of(K), rtol=1e-8)
    np.testing.assert_allclose(form.entries(), pattern.of(K0), rtol=1e-8)
    form.accept()
    np.testing.assert_allclose(form.dense(), K, rtol=1e-7, atol=1e-9)
    V = dense(pattern, v)
    np.testing.assert_allclose(form.congruence(v), pattern.of(K @ V @ K), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(form.square_congruence(v), pattern.of(K @ K @ V @ K @ K), rtol=1e-7, atol=1e-6)
    assert form.log_det(u) == pytest.approx(log_det, rel=1e-9)
    assert form.at(-1e3 * np.ones(len(pattern))) is None
    np.testing.assert_allclose(form.entries(), pattern.of(K), rtol=1e-8)
    for _ in range(2):  # the current kernel once more, which may be at hand
        assert form.at(u) == pytest.approx(log_det, rel=1e-9)
        np.testing.assert_allclose(form.entries(trial=True), pattern.of(K), rtol=1e-8)
        form.accept()
    assert form.at(0 * u) == pytest.approx(0.0, abs=1e-10)
    form.accept()
    np.testing.assert_allclose(form.entries(), pattern.of(K0), rtol=1e-8)


def test_a_kernel_is_factored_to_its_rank(rng):
    K0 = psd(rng, 10, 4)
    L, N = psd_factor(K0)
    assert L.shape == (10, 4)
    np.testing.assert_allclose(L @ L.T, K0, atol=1e-12)
    np.testing.assert_allclose(K0 @ N, 0.0, atol=1e-11)
    np.testing.assert_allclose(N.T @ N, np.eye(6), atol=1e-12)
    assert psd_factor(K0 - 1e-6 * np.eye(10)) is None
    assert DenseInverse.of(K0, pattern_of(rng, 10, 5)) is None


@pytest.mark.parametrize("scale", [1e-4, 1e-7, 1e-15, 1e-200])
@pytest.mark.parametrize("form", [DenseInverse, FactoredInverse])
def test_log_det_of_what_is_next_to_nothing(form, scale, rng):
    """log det(I + K0 V) in 300 digits more: of a V that 1 + V would lose."""
    pattern, F = pattern_of(rng, 6, 9), np.linalg.qr(rng.normal(size=(6, 6)))[0] * np.linspace(1.0, 6.0, 6)
    K0 = F @ F.T
    made = DenseInverse.of(K0, pattern) if form is DenseInverse else FactoredInverse(pattern, F)
    u = scale * rng.normal(size=len(pattern)) / np.trace(K0)
    with mp.workdps(500):
        exact = mp.matrix(F) * mp.matrix(F).T * mp.matrix(dense(pattern, u))
        wanted = float(mp.log(mp.det(mp.eye(6) + exact)))
    # That log's condition, and that of K0, which DenseInverse has the inverse of.
    size = float(np.abs(F.T @ dense(pattern, u) @ F).sum())
    found = made.log_det(u), made.at(u)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=np.linalg.cond(K0) * 1e-15 * size)
    assert made.log_det(np.zeros_like(u)) == 0.0
