"""Steps and seconds of LogDet paths by multiplier and Newton method; tables 3 and 4 themselves: `dkl reproduce trin-table3`.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.logdet.trin_tables [SET ...] [--draws 3] [--methods dual primal paper gradient]
    ... sonar --draws 3 --tol 1e-3 --multipliers 2 --advantage

dual: Newton on the dual, what the log-loss gets. primal: Newton on the primal in the local norm, what other losses get. paper: the
same with the paper's region, a Frobenius norm. gradient: Polak-Ribiere+ conjugate gradients (`dkl.baselines`), of --max-gradient steps
in all at most, as the paper counts to 10,000, and of --seconds. All to a proven relative gap of --tol at every gamma from 2^-12 to
2^16; a mark "*" where some draw did not get there, for Newton within 1,000 steps of a gamma.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.logdet.trin import warm_up
from dkl.baselines.logdet_gradient import Objective, descend
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import LogLoss
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.reproduce.trin import HIGHEST, MULTIPLIERS, SETS, Array, drawn, exponents_of
from dkl.solvers.logdet.solve import LogDetSolution, led_by, solve_logdet

MOST_STEPS = 1000
"""Of Newton's method at a gamma."""
BETWEEN = 200
"""Steps of the gradient's between two looks at the clock; its directions begin anew there."""
LEAST = 1.0
"""Seconds that a path is repeated for."""
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
    found: list[LogDetSolution] = []
    region = "frobenius" if method == "paper" else "local"
    for exponent in exponents:
        at = problem.with_gamma(2.0**exponent)
        found.append(solve_logdet(at, **led_by(found), tol=options.tol, region=region, max_iter=MOST_STEPS))
    solved = all(one.certificate.relative_gap <= options.tol for one in found)
    return sum(one.n_iter for one in found), time.process_time() - began, solved


def gradient(K0: Array, triplets: Array, m: int, exponents: list[float], options: argparse.Namespace) -> Counted:
    """Conjugate gradients on the labelled block, by warm starts, until --max-gradient steps are taken."""
    began = time.process_time()
    constraints = ConstraintSet.triplets(len(K0), triplets)
    block = K0[np.ix_(constraints.points, constraints.points)]
    problem = Objective.of(block, constraints.on_points(), LogLoss(), 1.0)
    start, steps = None, 0
    for exponent in exponents:
        at, is_converged = replace(problem, weight=2.0**exponent / m), False
        while not is_converged and steps < options.max_gradient and time.process_time() - began < options.seconds:
            end = descend(at, options.tol, min(BETWEEN, options.max_gradient - steps), start)
            start, steps, is_converged = end.B, steps + end.n_iter, end.is_converged
            if end.n_iter == 0:
                break
        if not is_converged:
            break
    return steps, time.process_time() - began, is_converged


def repeated(run: Callable[[], Counted]) -> Counted:
    """The same with the mean of its seconds over LEAST of them, at least one run: of one alone they differ by a half here."""
    steps, seconds, solved = run()
    runs, total = 1, seconds
    while total < LEAST:
        runs, total = runs + 1, total + run()[1]
    return steps, total / runs, solved


def shown(run: Callable[..., Counted], cases: list[Any], exponents: list[float], options: argparse.Namespace) -> str:
    """Mean steps and seconds of the draws."""
    each = [repeated(partial(run, *case, exponents, options=options)) for case in cases]
    steps, seconds, solved = zip(*each, strict=True)
    return f"{np.mean(steps):.0f}{'' if all(solved) else '*'}, {np.mean(seconds):.2f}"


def advantage(cases: list[Any], exponents: list[float], options: argparse.Namespace) -> str:
    """Seconds of conjugate gradients over the dual's, which are taken before and after each draw's: speeds here change by the minute."""
    theirs, ours = 0.0, 0.0
    for case in cases:
        dual = partial(path, *case, exponents, method="dual", options=options)
        before, (_, seconds, solved), after = repeated(dual), gradient(*case, exponents, options), repeated(dual)
        if not (solved and before[2]):
            return "-"
        theirs, ours = theirs + seconds, ours + (before[1] + after[1]) / 2
    return f"{theirs / ours:.0f}"


def main() -> None:
    """A Markdown row a set and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["dual", "primal", "paper", "gradient"])
    parser.add_argument("--multipliers", nargs="*", type=int, default=list(MULTIPLIERS), help="powers of 2")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--max-gradient", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=np.inf, help="of a column of the gradient's")
    parser.add_argument("--advantage", action="store_true", help="how many times the dual's seconds the gradient takes")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    warm_up()
    print("| set | method | " + " | ".join(map(str, options.multipliers)) + " | cold |")
    columns = [exponents_of(one.bit_length() - 1) for one in options.multipliers] + [[float(HIGHEST)]]
    for name in options.sets:
        cases = [drawn(SETS[name], 0.5, 100, seed) for seed in range(options.draws)]
        for method in () if options.advantage else options.methods:
            run = gradient if method == "gradient" else partial(path, method=method)
            print(f"| {name} | {method}", end="", flush=True)
            for exponents in columns:
                print(" |", shown(run, cases, exponents, options), end="", flush=True)
            print(" |", flush=True)
        if options.advantage:
            print(
                f"| {name} | CG / dual | {' | '.join(advantage(cases, one, options) for one in columns)} |", flush=True
            )


if __name__ == "__main__":
    main()
