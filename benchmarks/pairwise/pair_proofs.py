"""What a proven kernel of pairs costs: `python -m benchmarks.pairwise.pair_proofs DATA [options]`.

    OMP_NUM_THREADS=1 python -m benchmarks.pairwise.pair_proofs usps --pairs 0.25 1 --drawn random equal --wrong 0 0.05 --draw 0 1 2 --admm

DATA: digits (UCI's pendigits.tra in --folder: 7,494 rows), usps, mnist (its first --rows rows), a6a (50 neighbours), gaussians and
five (groups in 10 dimensions, --rows of them). Normalised Laplacian of 10 neighbours; --pairs times n pairs, random ones or must- and
cannot-links in equal parts, a share of them told wrongly. Options of several values are crossed. The factored solver from its own start,
to each goal; with --admm Algorithm 1 to its own stop before it, on one thread. Graph and compilation are in the peak of memory, not in the
times; --folder keeps graphs. One JSON object a solve: PYTHONPATH says of which checkout, so that two can take turns.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import make_blobs
from threadpoolctl import threadpool_limits

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.datasets import load, two_gaussians
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.descent import minimize
from dkl.solvers.pairwise.low_rank import solve_to_gap
from dkl.solvers.watch import Watch

SETS = ("digits", "usps", "mnist", "a6a", "gaussians", "five")


def rows(name: str, n: int, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of a set."""
    if name == "digits":
        assert folder is not None, "--folder must hold pendigits.tra"
        table = np.loadtxt(folder / "pendigits.tra", delimiter=",")
        return table[:, :-1], table[:, -1].astype(int)
    if name == "five":
        X, y = make_blobs(n, 10, centers=5, cluster_std=3.0, random_state=0)
        return X, y
    data = two_gaussians(n, random_state=0) if name == "gaussians" else load(name)
    X = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X)
    few = n if name == "mnist" else len(X)
    return X[:few].astype(float), np.asarray(data.y)[:few]


def graph(name: str, n: int, folder: Path | None) -> tuple[sparse.csr_array, np.ndarray]:
    """(L, y): from the folder, if it has them."""
    kept = None if folder is None else folder / f"{name}-{n}.npz"
    if kept is None or not kept.exists():
        X, y = rows(name, n, folder)
        near = 50 if name == "a6a" else 10
        L = build_graph(X, n_neighbors=near, laplacian="normalized", session=Session.find(None, threads=1)).laplacian
        if kept is None:
            return L, y
        np.savez(kept, data=L.data, indices=L.indices, indptr=L.indptr, y=y)
    with np.load(kept) as held:
        count = len(held["y"])
        return sparse.csr_array((held["data"], held["indices"], held["indptr"]), shape=(count, count)), held["y"]


def pairs(y: np.ndarray, count: int, drawn: str, wrong: float, seed: int) -> Pairs:
    """So many different pairs, told by their labels but for a share that is told wrongly."""
    rng = np.random.default_rng(seed)
    if drawn == "equal":
        right = Pairs.from_labels(y, count // 2, count - count // 2, random_state=seed)
        ends = np.vstack([right.must_link, right.cannot_link])
    else:
        both = np.sort(rng.integers(0, len(y), (2 * count, 2)), axis=1)
        both = np.unique(both[both[:, 0] != both[:, 1]], axis=0)
        ends = both[rng.permutation(len(both))[:count]]
    alike = (y[ends[:, 0]] == y[ends[:, 1]]) ^ (rng.random(len(ends)) < wrong)
    return Pairs(ends[alike], ends[~alike])


def compile_steps() -> None:
    """The solver's steps at all widths of slabs, and a certificate, by a problem of few rows: memory is not to tell of it."""
    n = 5000  # more than LAPACK certifies
    path = sparse.diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1])
    laplacian = sparse.csr_array(sparse.diags_array(path.sum(axis=0)) - path)
    small = make_problem(laplacian, Pairs([[0, 1]], [[2, 3]]), 1.0).factored(1)
    for width in (4, 8, 16, 24, 32, 48, 64):
        minimize(small, np.random.default_rng(0).standard_normal((n, width)), tol=0.0, max_iter=2)
    solve_to_gap(small, target_gap=1.0, max_iter=1)
    small.close()


def by_factored(problem: PairwiseKernel, goal: float, limit: float, threads: int) -> dict:
    """The factored solver."""
    factored = problem.factored(threads)
    compile_steps()
    before, reached = factored.n_products, {}
    begin, began = time.process_time(), time.perf_counter()

    def reach(row: dict) -> bool:
        seconds, gap = time.process_time() - begin, row["relative_gap"]
        for share in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            if gap is not None and gap <= share and f"{share:g}" not in reached:
                reached[f"{share:g}"] = round(seconds, 2)
        return seconds > limit

    found = solve_to_gap(factored, target_gap=goal, seed=0, watch=Watch([reach]))
    seconds, wall = time.process_time() - begin, time.perf_counter() - began
    factored.close()
    return {
        "cpu": round(seconds, 2), "seconds": round(wall, 2), "threads": threads,
        "products": factored.n_products - before, "gap": found.certificate.relative_gap,
        "outcome": found.outcome.value, "objective": found.certificate.objective, "rank": found.factor.shape[1],
        "proofs": sum(row["relative_gap"] is not None for row in found.history), "reached": reached,
        "iterations": found.history[-1]["iteration"], "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }  # fmt: skip


def by_admm(problem: PairwiseKernel) -> dict:
    """Algorithm 1 until its residuals are small, and the certificate of what it gives."""
    session = Session.find(None, threads=1)
    settings = PairwiseSettings(solver="admm", target_gap=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_problem(problem, PairwiseSettings(solver="admm", target_gap=None, max_iter=2), session)  # compiles
        marks = [time.process_time()]
        found = fit_problem(problem, settings, session, watch=Watch([lambda row: marks.append(time.process_time())]))
    return {
        "cpu": round(marks[-1] - marks[0], 2), "iterations": found.result.n_iter, "gap": found.certificate.relative_gap,
        "outcome": found.result.outcome.value, "objective": found.certificate.objective,
    }  # fmt: skip


def main() -> None:
    """A line a solve."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=SETS)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--pairs", type=float, nargs="+", default=[0.25])
    parser.add_argument("--drawn", choices=("random", "equal"), nargs="+", default=["random"])
    parser.add_argument("--wrong", type=float, nargs="+", default=[0.0])
    parser.add_argument("--draw", type=int, nargs="+", default=[0])
    parser.add_argument("--gamma", type=float, nargs="+", default=[100.0])
    parser.add_argument("--goal", type=float, nargs="*", default=[1e-3], help="None: --admm alone.")
    parser.add_argument("--limit", type=float, default=600.0, help="CPU seconds.")
    parser.add_argument("--threads", type=int, default=1, help="The factored solver's.")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--admm", action="store_true")
    asked = parser.parse_args()
    laplacian, y = graph(asked.data, asked.rows, asked.folder)
    told = {"of": Path(dkl.__file__).parents[1].name, "data": asked.data, "n": len(y)}
    for share, drawn, wrong, draw, gamma in product(asked.pairs, asked.drawn, asked.wrong, asked.draw, asked.gamma):
        case = told | {"pairs": share, "drawn": drawn, "wrong": wrong, "draw": draw, "gamma": gamma}
        given = pairs(y, int(share * len(y)), drawn, wrong, draw)
        with threadpool_limits(1):
            problem = make_problem(laplacian, given, gamma)
            if asked.admm:
                print(json.dumps(case | {"by": "admm"} | by_admm(problem)), flush=True)
            for goal in asked.goal:
                solved = by_factored(problem, goal, asked.limit, asked.threads)
                print(json.dumps(case | {"by": "factored", "goal": goal} | solved), flush=True)


if __name__ == "__main__":
    main()
