"""Convex quadratics over the psd cone against a conic solver."""

import clarabel
import numpy as np
import pytest
from scipy import sparse

from dkl.linalg.symmetric.psd_quadratic import psd_minimum, smat, svec


def conic_minimum(normal, linear, q):
    """The same by clarabel, which takes the upper triangle column by column."""
    columns, rows = np.tril_indices(q)
    place = {pair: k for k, pair in enumerate(zip(*np.triu_indices(q), strict=True))}
    order = [place[pair] for pair in zip(rows, columns, strict=True)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    P = sparse.csc_matrix(np.triu(normal[np.ix_(order, order)]))
    d = len(linear)
    cones = [clarabel.PSDTriangleConeT(q)]
    return clarabel.DefaultSolver(
        P, linear[order], -sparse.eye(d, format="csc"), np.zeros(d), cones, settings
    ).solve().obj_val  # fmt: skip


@pytest.mark.parametrize("q", [1, 2, 5, 8])
@pytest.mark.parametrize("rank", ["full", "half"])
def test_the_conic_optimum_is_reached(rng, q, rank):
    d = q * (q + 1) // 2
    rows = rng.standard_normal((d if rank == "full" else (d + 1) // 2, d))
    normal = rows.T @ rows
    linear = rows.T @ rng.standard_normal(len(rows)) + 0.1 * svec(np.eye(q))  # bounded below on the cone
    start = np.eye(q)
    found = psd_minimum(normal, linear, start, 1e-9)
    y = svec(found)
    assert np.linalg.eigvalsh(found)[0] > 0
    value, best = 0.5 * y @ normal @ y + linear @ y, conic_minimum(normal, linear, q)
    assert best - 1e-7 * (1 + abs(best)) <= value <= best + 1e-7 * (1 + abs(best))


def test_a_minimum_inside_the_cone_is_the_unconstrained_one(rng):
    q = 4
    rows = rng.standard_normal((30, q * (q + 1) // 2))
    half = rng.standard_normal((q, q))
    wanted = half @ half.T + np.eye(q)
    normal = rows.T @ rows
    found = psd_minimum(normal, -normal @ svec(wanted), np.diag([1.0, 0.0, 0.0, 0.0]), 1e-12)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_svec_keeps_inner_products(rng):
    a, b = (x + x.T for x in rng.standard_normal((2, 5, 5)))
    assert svec(a) @ svec(b) == pytest.approx(np.sum(a * b))
    np.testing.assert_allclose(smat(svec(a), 5), a)
