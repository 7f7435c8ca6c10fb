"""scipy's L-BFGS on the factor beside the factored solver, to the same objective.

    python -m benchmarks.pairwise.pair_lbfgs DATA [options]

    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.pair_lbfgs a6a --goal 1e-3 1e-4 1e-6
    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.pair_lbfgs five --rows 11220 --spread 2 3 4 --wrong 0 0.1 --gamma 10 100 1000

DATA as in pair_proofs.py, or five: groups in 10 dimensions of such a --spread. 0.6 n pairs of each kind, a share of them told wrongly.
L-BFGS minimizes f(V V') from random rows of norm 1, with as many columns as the factored solver ends with and --beside more, until its
objective is the one that the factored solver proved; it has no certificate, which is not held against it. CPU seconds of one thread;
graph and compilation are not in them. One JSON object a goal.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

from benchmarks.pairwise.pair_proofs import SETS, by_factored, graph, pairs
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import make_problem
from dkl.side_information.pairs import Pairs

PAIRS, MEMORY = 1.2, 10
"""Pairs a row; what L-BFGS keeps of its way, scipy's default."""


class Objective:
    """f(V V') of problem (1) and its gradient, by scipy's products alone: nothing of it is the solver's."""

    def __init__(self, laplacian: sparse.csr_array, given: Pairs, gamma: float) -> None:
        n = laplacian.shape[0]
        ends, must = np.vstack([given.must_link, given.cannot_link]), len(given.must_link)
        self.laplacian, self.gamma = laplacian, gamma
        self.rows = np.concatenate([np.arange(n), ends[:, 0], ends[:, 1]])
        self.columns = np.concatenate([np.arange(n), ends[:, 1], ends[:, 0]])
        kinds = np.repeat([1.0, 0.0], [must, len(ends) - must])
        self.targets = np.concatenate([np.ones(n), kinds, kinds])

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        V = flat.reshape(self.laplacian.shape[0], -1)
        far = np.einsum("ij,ij->i", V[self.rows], V[self.columns]) - self.targets
        smooth = self.laplacian @ V
        pulled = sparse.coo_array((far, (self.rows, self.columns)), shape=self.laplacian.shape).tocsr() @ V
        value = np.vdot(V, smooth) + 0.5 * self.gamma * np.vdot(far, far)
        return float(value), (2 * smooth + 2 * self.gamma * pulled).ravel()


def by_lbfgs(objective: Objective, rank: int, goal: float, limit: float, seed: int) -> dict[str, Any]:
    """L-BFGS until its objective is `goal`, or out of seconds, or at rest."""
    V = np.random.default_rng(seed).standard_normal((objective.laplacian.shape[0], rank))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    begin = time.process_time()

    def stop(intermediate_result: Any) -> None:
        if intermediate_result.fun <= goal or time.process_time() - begin > limit:
            raise StopIteration

    options = {"maxcor": MEMORY, "maxiter": 10**6, "maxfun": 10**6, "ftol": 0.0, "gtol": 0.0}
    found = minimize(objective, V.ravel(), jac=True, method="L-BFGS-B", callback=stop, options=options)
    seconds = time.process_time() - begin
    return {
        "cpu": round(seconds, 2), "iterations": found.nit, "calls": found.nfev, "rank": rank,
        "reached": bool(found.fun <= goal), "above": float(found.fun / goal - 1),
    }  # fmt: skip


def spread_graph(n: int, spread: float) -> tuple[sparse.csr_array, np.ndarray]:
    """(L, y) of five groups in 10 dimensions."""
    X, y = make_blobs(n, 10, centers=5, cluster_std=spread, random_state=0)
    return build_graph(X, n_neighbors=10, laplacian="normalized", session=Session.find(None, threads=1)).laplacian, y


def main() -> None:
    """A line a goal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=SETS)
    parser.add_argument("--rows", type=int, default=11_220)
    parser.add_argument("--spread", type=float, nargs="+", default=[3.0], help="Of each of five's groups.")
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0])
    parser.add_argument("--gamma", type=float, nargs="+", default=[100.0])
    parser.add_argument("--goal", type=float, nargs="+", default=[1e-3])
    parser.add_argument("--beside", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300.0, help="CPU seconds of each.")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    for spread in asked.spread if asked.data == "five" else [None]:
        laplacian, y = (
            graph(asked.data, asked.rows, asked.folder) if spread is None else spread_graph(asked.rows, spread)
        )
        for wrong, gamma, goal in product(asked.wrong, asked.gamma, asked.goal):
            given = pairs(y, int(PAIRS * len(y)), "equal", wrong, 0)
            with threadpool_limits(1):
                proven = by_factored(make_problem(laplacian, given, gamma), goal, asked.limit, 1)
                objective, rank = Objective(laplacian, given, gamma), proven["rank"] + asked.beside
                plain = by_lbfgs(objective, rank, proven["objective"], asked.limit, 0)
            case = {"data": asked.data, "n": len(y), "spread": spread, "wrong": wrong, "gamma": gamma, "goal": goal}
            print(
                json.dumps(
                    case | {"factored": proven, "lbfgs": plain, "ratio": round(plain["cpu"] / proven["cpu"], 1)}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
