"""Small convex quadratics over the psd cone, and their optimum by Clarabel from the formula, entry by entry."""

import clarabel
import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from dkl.linalg.symmetric.psd_quadratic import smat, svec
from dkl.problems.qsdp.problem import propagation, svec_form, unfolding, variance


def graph(rng, n, k=4):
    """(points (n, 2) of a strip, edges (e, 2) to the k nearest, the eigenvectors of the Laplacian but the first)."""
    X = np.stack(np.divmod(np.arange(n), 4), axis=1) + 0.3 * rng.random((n, 2))
    near = cKDTree(X).query(X, k + 1)[1][:, 1:]
    edges = np.unique(np.sort(np.stack([np.repeat(np.arange(n), k), near.ravel()], axis=1), axis=1), axis=0)
    W = np.zeros((n, n))
    W[edges[:, 0], edges[:, 1]] = W[edges[:, 1], edges[:, 0]] = 1.0
    values, vectors = np.linalg.eigh(np.diag(W.sum(axis=0)) - W)
    assert values[1] > 1e-9
    return X, edges, vectors[:, 1:]


def strip(rng, m, nu=1.0, n=40):
    """(RegMVU of m eigenvectors, its f of a matrix Y by the formula)."""
    X, edges, vectors = graph(rng, n)
    Q = vectors[:, :m]
    d2 = ((X[edges[:, 0]] - X[edges[:, 1]]) ** 2).sum(axis=1)

    def value(Y):
        K = Q @ Y @ Q.T
        loss = sum((K[i, i] - 2 * K[i, j] + K[j, j] - d) ** 2 for (i, j), d in zip(edges, d2, strict=True))
        return nu * loss - np.trace(Y)

    return unfolding(Q, edges, d2, nu, variance(Q)), value


def clusters(rng, m, n=40):
    """The same of RegPCP, two classes."""
    _, _, vectors = graph(rng, n)
    Q, y = vectors[:, :m], np.arange(n) % 2
    pairs = np.stack([rng.permutation(n)[:20] for _ in range(2)], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    same = y[pairs[:, 0]] == y[pairs[:, 1]]

    def value(Y):
        K = Q @ Y @ Q.T
        return (
            ((np.diag(K) - 1) ** 2).sum()
            + sum((K[i, j] - 1) ** 2 for i, j in pairs[same])
            + sum(K[i, j] ** 2 for i, j in pairs[~same])
        )

    return propagation(Q, pairs[same], pairs[~same]), value


def conic_optimum(value, m):
    """min of a quadratic `value` of symmetric (m, m) matrices over the psd cone; its coefficients are read off its values."""
    columns, rows = np.tril_indices(m)  # Clarabel's triangle, column by column
    size = len(rows)
    basis = np.zeros((size, m, m))
    scale = np.where(rows == columns, 1.0, np.sqrt(0.5))
    basis[np.arange(size), rows, columns] = basis[np.arange(size), columns, rows] = scale
    zero = value(np.zeros((m, m)))
    plus, minus = (np.array([value(sign * unit) for unit in basis]) for sign in (1, -1))
    linear = (plus - minus) / 2
    P = np.diag(plus + minus - 2 * zero)
    for a in range(size):
        for b in range(a):
            both = value(basis[a] + basis[b]) - plus[a] - plus[b] + zero
            P[a, b] = P[b, a] = both
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    found = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(P)), linear, -sparse.eye(size, format="csc"), np.zeros(size),
        [clarabel.PSDTriangleConeT(m)], settings,
    ).solve()  # fmt: skip
    return found.obj_val + zero


def dimacs_errors(problem, Y, z):
    """The six of Y and z by their definition, and the lowest eigenvalue of S(z), from the rows of B and nothing else."""
    B, _ = svec_form(problem)
    seen, S = B @ svec(Y), problem.C + smat(B.T @ z, problem.m)
    f, D = ((seen - problem.targets) ** 2).sum() + np.sum(problem.C * Y), -z @ z / 4 - z @ problem.targets
    scale, low, lowest = 1 + abs(f) + abs(D), np.linalg.eigvalsh(S)[0], np.linalg.eigvalsh(Y)[0]
    psd = max(0.0, -lowest) / (1 + np.abs(problem.targets).max(initial=0))
    return (0.0, psd, 0.0, max(0.0, -low) / (1 + np.abs(problem.C).max()), (f - D) / scale, np.sum(S * Y) / scale), low
