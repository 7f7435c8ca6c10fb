"""Algorithm 2 of Machart et al., its slips mended, against dkl on the same columns: seconds to the same objective.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_paper                                       # n = 60,000, M = 1,000
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_paper --n 5000 --columns 200 --cap 30       # a small try

Algorithm 2 runs until its own rule stops it (a share of 1e-4) or the cap ends it. dkl then makes C'C from the same
columns and solves to an objective no higher. Where the cap ended it the ratio is a lower bound: nothing is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.regression.slkl import circumstances
from benchmarks.regression.slkl_peers import Columns, columns_of
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.paper import PaperState, objective, steps


def paper(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Seconds of every M steps of Algorithm 2, until its rule stops it or the cap does; and dkl's to the same objective."""
    found = []
    for count in options.columns:
        for share in options.shares:
            with threadpool_limits(options.threads, "blas"):
                columns = columns_of(options.data, options.n, count, options.seed)
                kappa = share * columns.largest_kappa
                found.append(against_paper(columns, kappa, options))
    return found


def against_paper(columns: Columns, kappa: float, options: argparse.Namespace) -> dict[str, Any]:
    C, y, nu, M = np.ascontiguousarray(columns.C), columns.y, kappa**2, columns.C.shape[1]
    draws = np.random.default_rng(options.seed)
    times: list[float] = []
    start, state, ended = time.perf_counter(), PaperState.zero(M), False
    before = objective(C, y, 1.0, nu, state)
    for _ in steps(C, y, 1.0, nu, state, lambda: draws.integers(M)):
        times.append(time.perf_counter() - start)
        if times[-1] > options.cap:
            break
        if len(times) % M == 0:  # the algorithm's own rule
            now = objective(C, y, 1.0, nu, state)
            ended, before = before - now < 1e-4 * before, now
            if ended:
                break
    ends = [0.0, *times[M - 1 :: M], *times[-1:][: len(times) % M]]
    passes = np.diff(ends).tolist()
    value = objective(C, y, 1.0, nu, state)
    ours = to_objective(columns, kappa, value)
    total = columns.gram_seconds + ours["seconds"]
    row = {
        "data": columns.name, "n": columns.n, "columns": M, "kappa": kappa, "seconds": times[-1], "steps": len(times),
        "passes": passes, "ended": ended, "objective": value, "active": len(state.support),
        "dkl": ours, "gram_seconds": columns.gram_seconds, "ratio": times[-1] / total,
    }  # fmt: skip
    print(
        f"\n{columns.name}: n = {columns.n:,}, M = {M:,}, kappa = {kappa / columns.largest_kappa:g} of the largest\n"
        f"Algorithm 2: {len(times):,} steps in {times[-1]:.1f} s, "
        f"{'ended by its rule (1e-4)' if ended else 'not ended by its rule: the cap'};"
        f" F = {value:.6g}, m0 = {len(state.support)}\n"
        f"seconds of each {M:,} steps: " + ", ".join(f"{seconds:.1f}" for seconds in passes) + "\n"
        f"dkl: C'C {columns.gram_seconds:.2f} s and solve {ours['seconds']:.3f} s to F = {ours['objective']:.6g}"
        f" (relative gap {ours['gap']:.1e}, m0 = {ours['active']})\n"
        f"ratio {'' if ended else 'at least '}{row['ratio']:.0f}",
        flush=True,
    )
    return row


def to_objective(columns: Columns, kappa: float, value: float) -> dict[str, Any]:
    """dkl's active set, to an objective no higher than `value`, on C'C that is there."""
    problem = columns.problem(kappa)
    ActiveSet(1e-2).solve(problem)  # compiles
    tol = 1e-4
    while True:
        start = time.perf_counter()
        solution = ActiveSet(tol).solve(problem)
        seconds = time.perf_counter() - start
        found = solution.evaluation
        if found.objective <= value or tol < 1e-12:
            break
        tol /= 10
    active = int(np.count_nonzero(solution.weights))
    return {"seconds": seconds, "objective": found.objective, "gap": found.relative_gap, "active": active}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["mnist", "abalone", "noisy"], default="mnist")
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[1000])
    parser.add_argument("--shares", type=float, nargs="+", default=[1e-2, 1e-3], help="kappa over the largest")
    parser.add_argument("--cap", type=float, default=600.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    print(circumstances(options.threads))
    rows = paper(options)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, default=float))


if __name__ == "__main__":
    main()
