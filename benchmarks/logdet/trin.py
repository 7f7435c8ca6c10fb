"""LogDet kernel learning (TRIN; Li et al. 2009, section 6) to a proven gap: processor seconds along paths of gamma.

    OMP_NUM_THREADS=1 python -m benchmarks.logdet.trin usps              # 6.4: 20 % labelled (401 images), 40,100 triplets, 7 gammas
    OMP_NUM_THREADS=1 python -m benchmarks.logdet.trin usps --all        # all 2,007 images labelled, 20 triplets of each: 40,140
    OMP_NUM_THREADS=1 python -m benchmarks.logdet.trin sets [--steps 5]  # 6.2: tables 3, 4, half labeled, 50n triplets, gamma 2^-12 to 2^16
    ... [--cold] [--tol 1e-6] [--solver pcg|direct|auto] [--region local|frobenius] [--loss log|lmnn]

Log-loss, K0 the pseudo-inverse of the Laplacian of a Gaussian graph of 10 nearest neighbours (the paper gives neither their number
nor sigma: here the mean distance to the tenth). Making data, graph and K0 is not in the seconds; making the problem is.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import as_loss
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.reproduce.trin import HIGHEST, SETS, drawn, error_of, exponents_of, rows_of
from dkl.solvers.logdet.solve import LogDetSolution, led_by, solve_logdet


def run(name: str, stored: str, share: float, each: int, steps: int, options: argparse.Namespace) -> None:
    """Print a path: Newton steps, products, proven gap and seconds of each gamma, and their sums."""
    K0, triplets, n_labelled = drawn(stored, share, each, options.seed)
    exponents = exponents_of(steps)
    began = time.process_time()
    constraints = ConstraintSet.triplets(len(K0), triplets)
    problem = LogDetKernelProblem(K0, constraints, as_loss(options.loss), 1.0, n_labelled=n_labelled)
    made = time.process_time() - began
    print(
        f"{name}: n {len(K0)}, |P| {len(problem.points)}, triplets {len(constraints)}, entries {len(constraints.rows)}; {made:.2f} s"
    )
    print(
        f"{'log2 gamma':>10} {'objective':>14} {'proven gap':>10} {'steps':>5} {'products':>8} {'seconds':>8}  outcome, solver"
    )
    found: list[LogDetSolution] = []
    for exponent in [] if options.cold else exponents:
        started = time.process_time()
        solution = solve_logdet(
            problem.with_gamma(2.0**exponent),
            **led_by(found),
            tol=options.tol,
            solver=options.solver,
            region=options.region,
        )
        found.append(solution)
        print(
            f"{exponent:10.0f} {solution.certificate.objective:14.8g} {solution.certificate.relative_gap:10.1e} {solution.n_iter:5d} "
            f"{solution.n_products:8d} {time.process_time() - started:8.2f}  {solution.outcome.value}, {solution.solver}",
            flush=True,
        )
        if options.errors:
            paused = time.process_time()
            kernel, y = problem.learned(solution.multipliers), rows_of(stored)[1]
            beside = K0[:, kernel.points]
            K, labelled = kernel.of(K0, beside, beside), np.unique(triplets[:, 0])
            shown = ", ".join(f"{error_of(K, y, labelled, k):.1f} % by {k or 'all'}" for k in (10, 30, None))
            print(f"{'':>10} errors: {shown} components", flush=True)
            began += time.process_time() - paused
    if options.cold:
        started = time.process_time()
        cold = solve_logdet(
            problem.with_gamma(2.0**HIGHEST), tol=options.tol, solver=options.solver, region=options.region
        )
        print(
            f"{'cold':>7} {HIGHEST} {cold.certificate.objective:14.8g} {cold.certificate.relative_gap:10.1e} {cold.n_iter:5d} "
            f"{cold.n_products:8d} {time.process_time() - started:8.2f}  {cold.outcome.value}, {cold.solver}\n"
        )
        return
    print(
        f"{name}: {len(exponents)} gammas, {sum(one.n_iter for one in found)} steps, "
        f"{sum(one.n_products for one in found)} products, {time.process_time() - began:.2f} s\n",
        flush=True,
    )


def warm_up() -> None:
    """Compile what is compiled, outside the seconds."""
    problem = LogDetKernelProblem(np.eye(4), ConstraintSet.triplets(4, [[0, 1, 2], [3, 2, 1]]), as_loss("log"), 1.0)
    solve_logdet(problem)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["usps", "sets"])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--steps", type=int, default=5, help="log2 of the multiplier from one gamma to the next")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--cold", action="store_true", help="the highest gamma alone, from K0")
    parser.add_argument("--errors", action="store_true", help="of the nearest labelled row, by each learned kernel")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--solver", default="auto")
    parser.add_argument("--region", default="local")
    parser.add_argument("--loss", default="log")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warm_up()
    if options.what == "usps":
        run("usps", "usps", 1.0 if options.all else 401 / 2007, 20 if options.all else 100, options.steps, options)
    else:
        for name in options.sets:
            run(name, SETS[name], 0.5, 100, options.steps, options)


if __name__ == "__main__":
    main()
