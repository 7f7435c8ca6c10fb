"""The bounds on the distance from the optimum, on random small problems whose optimum Clarabel knows.

    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.bounds [--problems 300] [--rows 40]

Of pairs: random weighted graphs on 5 to `--rows` rows, random pairs, gamma from 0.1 to 1,000; the factors after 3, 10, 30 and 100
steps of the factored solver. Of kernels in a smooth basis: the same graphs with up to 12 eigenvectors; factors after the first steps of
the low-rank engine, and random ones. At each of these the proven gap must not be below the true one; and it is set in relation to
the bound by the trace of an optimum alone, <S, K> + max(0, -lambda_min(S)) trace, with lambda_min by LAPACK. Seed 0.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.linalg.symmetric.psd_quadratic import svec
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.qsdp.problem import propagation, svec_form
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.qsdp.low_rank import solve_low_rank

Array = NDArray[Any]
GOALS = (1e-1, 1e-2, 1e-4, 1e-6)
"""Relative gaps that the bounds after 3, 10, 30 and 100 steps are to prove, which decides what multipliers are sought."""
ALLOWED = 1e-7
"""Of the size of the optimum's terms: what is known of it."""


def graph(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    """(the Laplacian (n, n) of a connected weighted graph, pairs (n, 2), each once)."""
    W = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    W[np.arange(n - 1), np.arange(1, n)] += 0.1
    W = W + W.T
    i, j = np.tril_indices(n, -1)
    chosen = rng.permutation(len(i))[:n]
    return np.diag(W.sum(axis=1)) - W, np.column_stack([i[chosen], j[chosen]])


def optimum(P: Array, q: Array, n: int) -> float:
    """min 1/2 y'P y + q'y over psd Y (n, n), y = svec(Y) by rows of the upper triangle."""
    i, j = np.triu_indices(n)
    order = np.lexsort((i, j))  # Clarabel's, by columns
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    matrix, size = sparse.csc_matrix(np.triu(P[np.ix_(order, order)])), len(q)
    found = clarabel.DefaultSolver(
        matrix, q[order], -sparse.eye(size, format="csc"), np.zeros(size), [clarabel.PSDTriangleConeT(n)], settings
    ).solve()  # fmt: skip
    return float(found.obj_val)


def of_pairs(rng: np.random.Generator, n: int) -> Iterator[tuple[float, float, float, float]]:
    """(true gap, proven, by the trace alone, size) at some factors."""
    laplacian, pairs = graph(rng, n)
    gamma, alike = 10.0 ** rng.uniform(-1, 3), rng.random(len(pairs)) < 0.5
    T, mask = np.eye(n), np.eye(n)
    for (i, j), t in zip(pairs, alike, strict=True):
        T[i, j] = T[j, i] = float(t)
        mask[i, j] = mask[j, i] = 1.0
    held = svec(mask) > 0
    best = optimum(np.diag(gamma * held), svec(laplacian) - gamma * held * svec(T), n) + 0.5 * gamma * np.sum(T**2)
    rows, columns = np.nonzero(mask)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    targets = sparse.csr_array((T[rows, columns], columns, indptr), shape=(n, n))
    problem = FactoredPairwise(sparse.csr_array(laplacian), targets, gamma, threads=1)
    start = problem.padded(rng.standard_normal((n, int(rng.integers(1, 5)))))
    for steps, goal in zip((3, 10, 30, 100), GOALS, strict=True):
        V = minimize(problem, start, tol=0.0, max_iter=steps).point.v
        found, _ = problem.certify(problem.at(V), goal, 0, last=True)
        K = V @ V.T
        S = laplacian + gamma * mask * (K - T)
        value = np.sum(laplacian * K) + 0.5 * gamma * np.sum(mask * (K - T) ** 2)
        trace = n + np.sqrt(2.0 * n * max(value, 0.0) / gamma)
        plain = max(np.sum(S * K), 0.0) + max(-np.linalg.eigvalsh(S)[0], 0.0) * trace
        yield value - best, found.gap, float(plain), max(abs(best), 0.5 * gamma * float(np.sum(T**2)))
    problem.close()


def of_basis(rng: np.random.Generator, n: int) -> Iterator[tuple[float, float, float, float]]:
    """The same of RegPCP, whose optimum has |K_ii - 1| of at most sqrt(f) all together, and so a trace of at most n + sqrt(n f)."""
    laplacian, pairs = graph(rng, n)
    Q = np.linalg.eigh(laplacian)[1][:, : int(rng.integers(2, min(n // 2, 12) + 1))]
    alike = rng.random(len(pairs)) < 0.5
    problem = propagation(Q, pairs[alike], pairs[~alike])
    B, b = svec_form(problem)
    best = optimum(2.0 * B.T @ B, b, Q.shape[1]) + float(problem.targets @ problem.targets)
    factors = [
        rng.standard_normal((Q.shape[1], 2)),
        *(solve_low_rank(problem, tol=0.0, max_iter=k, face=3).factor for k in (1, 2, 4, 8)),
    ]
    for factor in factors:
        point = problem.at(factor)
        low = max(-float(np.linalg.eigvalsh(point.gradient)[0]), 0.0)
        inner = max(float(np.sum((point.gradient @ factor) * factor)), 0.0)
        plain = inner + low * (n + np.sqrt(n * point.objective))
        yield (
            point.objective - best,
            problem.certificate(point).gap,
            plain,
            max(abs(best), float(problem.targets @ problem.targets)),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--rows", type=int, default=40)
    options = parser.parse_args()
    for name, case in (("pairs", of_pairs), ("smooth basis", of_basis)):
        rng, told = np.random.default_rng(0), []
        for _ in range(options.problems):
            n = int(np.exp(rng.uniform(np.log(5), np.log(options.rows + 1))))
            told.extend(case(rng, n))
        true, proven, plain, size = np.array(told).T
        below = (proven < true - ALLOWED * size).sum()
        open_ = proven > 1e-9 * size
        ratio, over = (plain / proven)[open_], (proven / np.maximum(true, 1e-300))[true > 1e-6 * size]
        print(f"{name}: {options.problems} problems, {len(true)} factors, {below} bounds below the true gap; the earlier bound is "
              f"{np.median(ratio):.3g} times it in the median (quartiles {np.quantile(ratio, 0.25):.3g}, {np.quantile(ratio, 0.75):.3g}, "
              f"least {ratio.min():.3g}, most {ratio.max():.3g}), the proven gap is {np.median(over):.3g} times the true one")  # fmt: skip


if __name__ == "__main__":
    main()
