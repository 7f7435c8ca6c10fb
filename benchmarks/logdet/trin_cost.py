"""What a LogDet fit of 200,000 triplets on 2,007 labelled rows costs beside the dense operations that it consists of, and its memory.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.logdet.trin_cost [--gamma 8] [--max-iter 200]

USPS' test images, all labelled, 100 triplets of each. "bare" is as many Cholesky factorizations with inverse as the fit made kernels, and
as many pairs of matrix products in single precision as it made Hessian products, of the same size, timed in the same process.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from benchmarks.logdet.trin import drawn, warm_up
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import LogLoss
from dkl.problems.logdet.problem import LogDetKernelProblem, logdet_plan
from dkl.solvers.logdet.solve import solve_logdet


def seconds(run: Callable[[], Any]) -> float:
    """Of the processor; the least of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def inverted(K: Any) -> Any:
    """By Cholesky's factor."""
    return lapack.dpotri(lapack.dpotrf(K, lower=1)[0], lower=1, overwrite_c=1)[0]


def counting(form: Any) -> dict[str, int]:
    """How often the form makes a kernel and a product, counted from now on."""
    counts = {"at": 0, "congruence": 0}
    for name in counts:
        made = getattr(form, name)

        def counted(*given: Any, _made: Any = made, _name: str = name, **options: Any) -> Any:
            counts[_name] += 1
            return _made(*given, **options)

        setattr(form, name, counted)
    return counts


def main() -> None:
    """Print one line each of sizes, fit, bare operations and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=float, default=8.0)
    parser.add_argument("--max-iter", type=int, default=200)
    options = parser.parse_args()
    warm_up()
    K0, triplets, m = drawn("usps", 1.0, 100, 0)
    constraints = ConstraintSet.triplets(len(K0), triplets)
    b, c, q = len(constraints.points), len(constraints), len(constraints.rows)
    print(f"{b} rows, {c} triplets, {q} entries")
    tracemalloc.start()
    problem = LogDetKernelProblem(K0, constraints, LogLoss(), options.gamma, n_labelled=m)
    counts = counting(problem.form)
    began = time.process_time()
    found = solve_logdet(problem, max_iter=options.max_iter)
    fit = time.process_time() - began
    peak, plan = tracemalloc.get_traced_memory()[1], logdet_plan(b, c, q).bytes
    tracemalloc.stop()
    print(
        f"{found.outcome.value}, gap {found.certificate.relative_gap:.1e}: {found.n_iter} steps, {counts}, {fit:.2f} s"
    )
    K, single = np.asfortranarray(K0 + np.eye(b)), K0.astype(np.float32)
    bare = counts["at"] * seconds(lambda: inverted(K)) + counts["congruence"] * seconds(
        lambda: single @ (single @ single)
    )
    print(f"bare {bare:.2f} s, ratio {fit / bare:.2f}; peak {peak / 2**20:.0f} MiB of {plan / 2**20:.0f} planned")


if __name__ == "__main__":
    main()
