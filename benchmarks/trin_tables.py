"""Tables 3 and 4 of Li et al. 2009: steps and seconds of LogDet paths by their multiplier, and of a cold start, by method.

    OMP_NUM_THREADS=1 DKL_DATA=... python benchmarks/trin_tables.py [SET ...] [--draws 3] [--methods dual primal paper gradient]

dual: Newton on the dual, what the log-loss gets. primal: Newton on the primal in the local norm, what other losses get. paper: the
same with the paper's region, a Frobenius norm. gradient: Polak-Ribiere+ conjugate gradients from K0 (`dkl.baselines`), cold alone.
All to a proven relative gap of --tol at every gamma from 2^-12 to 2^16; a mark "*" where some draw did not get there within
--max-iter steps of a gamma.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np
from trin import HIGHEST, SETS, Array, drawn, exponents_of, warm_up

from dkl.baselines.logdet_gradient import Objective, descend
from dkl.problems.logdet import LogDetKernelProblem
from dkl.problems.logdet_constraints import ConstraintSet
from dkl.problems.logdet_losses import LogLoss
from dkl.solvers.logdet import solve_logdet

MULTIPLIERS = (1, 2, 3, 4, 5, 6, 7)
"""log2 of the paper's."""
Counted = tuple[int, float, bool]
"""Steps, seconds, and whether every gamma was solved."""


class PlainLogLoss:
    """The log-loss without the inverse of its slope: the primal is solved."""

    lowest = 0.0
    value, first, second = LogLoss.value, LogLoss.first, LogLoss.second


def path(
    K0: Array, triplets: Array, m: int, exponents: list[float], method: str, options: argparse.Namespace
) -> Counted:
    """A path by warm starts."""
    began = time.process_time()
    loss = LogLoss() if method == "dual" else PlainLogLoss()
    problem = LogDetKernelProblem(K0, ConstraintSet.triplets(len(K0), triplets), loss, 1.0, n_labelled=m)
    before, steps, solved = None, 0, True
    region = "frobenius" if method == "paper" else "local"
    for exponent in exponents:
        at = problem.with_gamma(2.0**exponent)
        before = solve_logdet(at, start=before, tol=options.tol, region=region, max_iter=options.max_iter)
        steps += before.n_iter
        solved = solved and before.certificate.relative_gap <= options.tol
    return steps, time.process_time() - began, solved


def gradient(K0: Array, triplets: Array, m: int, options: argparse.Namespace) -> Counted:
    """Conjugate gradients on the labelled block, from K0."""
    began = time.process_time()
    constraints = ConstraintSet.triplets(len(K0), triplets)
    block = K0[np.ix_(constraints.points, constraints.points)]
    problem = Objective.of(block, constraints.on_points(), LogLoss(), 2.0**HIGHEST / m)
    end = descend(problem, options.tol, options.max_iter)
    return end.n_iter, time.process_time() - began, end.is_converged


def shown(run: Callable[[int], Counted], draws: int) -> str:
    """Mean steps and seconds."""
    counted = [run(draw) for draw in range(draws)]
    steps, seconds, solved = zip(*counted, strict=True)
    return f"{np.mean(steps):.0f}{'' if all(solved) else '*'}, {np.mean(seconds):.2f}"


def main() -> None:
    """A Markdown row a set and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["dual", "primal", "paper", "gradient"])
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--max-iter", type=int, default=1000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    warm_up()
    print("| set | method | " + " | ".join(str(2**k) for k in MULTIPLIERS) + " | cold |")
    for name in options.sets:
        cases = [drawn(SETS[name], 0.5, 100, seed) for seed in range(options.draws)]
        for method in options.methods:
            cells = [" "] * len(MULTIPLIERS)
            if method == "gradient":
                cold = shown(lambda i, cases=cases: gradient(*cases[i], options), options.draws)
            else:
                tables = [exponents_of(k) for k in MULTIPLIERS] + [[float(HIGHEST)]]
                *cells, cold = (
                    shown(
                        lambda i, at=at, cases=cases, method=method: path(*cases[i], at, method, options), options.draws
                    )
                    for at in tables
                )
            print(f"| {name} | {method} | {' | '.join(cells)} | {cold} |", flush=True)


if __name__ == "__main__":
    main()
