"""Kernels Q Y Q' (Wu, So, Li & Li 2009): the paper's tables 1 and 2 with its conic forms and the low-rank engine; an unrolled Swiss roll.

    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.sqlp swiss [--m 10 20 ...] [--methods scsdp sqlp direct scs engine]     # table 1: RegMVU
    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.sqlp usps  [--m 10 20 ...]                                              # table 2: RegPCP
    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.sqlp roll [--picture FOLDER]           # embeddings against the true parameters
    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.sqlp large [--rows 200000]             # MVU of many rows within a memory limit

Swiss roll: 2,000 rows of Roweis' generator, 4 neighbours. USPS: the first 200 training images of each digit, 20 neighbours, 20 must-links
a digit and 20 cannot-links each two digits. Relative gap 1e-8, proven by `dkl`'s certificate. Seconds are of the processor, of the solve
alone, as in the paper; graph and eigenvectors are told once. Each solve but the engine's is a process of its own, which `--limit` seconds
end. SCS is asked for less and less until the gap is proven, a line each: the seconds are of that solve alone.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import resource
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import scipy.linalg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.datasets import make_swiss_roll
from sklearn.manifold import Isomap, LocallyLinearEmbedding

import dkl
from dkl.errors import InputError, MemoryBudgetError
from dkl.problems.qsdp.problem import QuadraticSDP
from dkl.reproduce.sqlp import SEED, correlations, parameters, roll, swiss, usps
from dkl.solvers.qsdp.conic import solve_conic
from dkl.solvers.qsdp.low_rank import solve_low_rank

Array = NDArray[Any]
GAP = 1e-8
ASKED = {"scs": (1e-8, 1e-9, 1e-10, 1e-11, 1e-12)}
"""What methods are asked for until GAP is proven; others for GAP."""
SOLVERS: dict[str, Callable[[QuadraticSDP, float], Any]] = {
    "scsdp": lambda problem, tol: solve_conic(problem, "scsdp", tol=tol),
    "sqlp": lambda problem, tol: solve_conic(problem, "sqlp", tol=tol),
    "direct": lambda problem, tol: solve_conic(problem, "direct", tol=tol),
    "scs": lambda problem, tol: solve_conic(problem, "sqlp", engine="scs", tol=tol, max_iter=ROUNDS),
    "engine": lambda problem, tol: solve_low_rank(problem, tol=tol),
}
ROUNDS = 1000
"""Of 500 iterations of SCS each."""
Maker = Callable[[int], QuadraticSDP]


def rank_of(problem: QuadraticSDP) -> int:
    """rank(A), by Cholesky with pivots."""
    rows = problem.congruent(problem.scaling()).map.rows()
    A = rows.T @ rows
    return int(scipy.linalg.lapack.dpstrf(A, tol=1e-12 * A.diagonal().max())[2])


def solves(problem: QuadraticSDP, method: str) -> Iterator[str]:
    """A line for each solve: seconds, steps, objective, proven gap, worst DIMACS error, rank, how it ended."""
    for tol in ASKED.get(method, (GAP,)):
        started = time.process_time()
        try:
            found = SOLVERS[method](problem, tol)
        except MemoryBudgetError as error:
            yield f"{error.got} of memory"
            return
        seconds, proven = time.process_time() - started, found.certificate
        asked = "" if tol == GAP else f", asked for {tol:.0e}"
        yield (
            f"{seconds:9.2f} {found.n_iter:6d} {proven.objective:17.10g} {proven.relative_gap:10.1e} {max(proven.dimacs):8.1e} "
            f"{found.factor.shape[1]:4d}  {found.outcome.value}{asked}"
        )
        if proven.relative_gap <= GAP:
            return


def limited(problem: QuadraticSDP, method: str, seconds: float) -> Iterator[str]:
    """The lines of `solves`, by a process that may take so many seconds of the processor, and one more where they ended it."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def work(connection: Connection) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        for line in solves(problem, method):
            connection.send_bytes(line.encode())

    process = context.Process(target=work, args=(theirs,))
    process.start()
    theirs.close()
    try:
        while True:
            yield ours.recv_bytes().decode()
    except EOFError:
        process.join()
    if process.exitcode != 0:
        yield f"ended by the limit of {seconds:.0f} s" if process.exitcode == -9 else f"ended with {process.exitcode}"


def table(make: Callable[[], Maker], sizes: list[int], methods: list[str], limit: float, ranks: bool) -> None:
    """A line each m and solve."""
    began = time.process_time()
    maker = make()
    print(f"graph and eigenvectors: {time.process_time() - began:.2f} s")
    print(f"{'m':>4} {'rank(A)':>7} {'method':>7} {'seconds':>9} {'steps':>6} {'objective':>17} {'proven gap':>10} "
          f"{'DIMACS':>8} {'rank':>4}  outcome")  # fmt: skip
    SOLVERS["engine"](maker(min(40, max(sizes))), GAP)  # what is imported and compiled
    for m in sizes:
        problem = maker(m)
        rank = str(rank_of(problem)) if ranks else ""
        for method in methods:
            for line in solves(problem, method) if method == "engine" else limited(problem, method, limit):
                print(f"{m:4d} {rank:>7} {method:>7} {line}", flush=True)


def unrolled(only: str) -> None:
    """Embeddings of the Swiss roll in a plane, of the cases whose names begin with `only`."""
    X, places = roll()
    cases: dict[str, Any] = {}
    for k in (4, 6, 10):
        default = dkl.MaximumVarianceUnfolding(n_basis=5, n_neighbors=k).fit(X).nu_
        for m, times in itertools.product((30, 60, 100), (0.2, 1.0)):
            name = f"MVU, {k} neighbours, m {m}, nu {times:g} of the default's"
            cases[name] = dkl.MaximumVarianceUnfolding(n_basis=m, nu=times * default, n_neighbors=k)
        cases[f"Isomap, {k} neighbours"] = Isomap(n_neighbors=k)
        cases[f"LLE, {k} neighbours"] = LocallyLinearEmbedding(n_neighbors=k, random_state=0)
        cases[f"modified LLE, {k} neighbours"] = LocallyLinearEmbedding(
            n_neighbors=k, method="modified", random_state=0
        )
    print(f"{'':56} {'along':>7} {'height':>7} {'seconds':>8}")
    for name, method in ((name, case) for name, case in cases.items() if name.startswith(only)):
        started = time.process_time()
        along, height = correlations(method.fit_transform(X), places)
        print(f"{name:56} {along:7.4f} {height:7.4f} {time.process_time() - started:8.2f}", flush=True)


def picture(folder: Path) -> None:
    """roll.png: the roll, and its embeddings by MVU with m = 100, Isomap and LLE, of 4 neighbours each, coloured along it."""
    X, places = roll()
    methods = {
        "MVU, m 100": dkl.MaximumVarianceUnfolding(n_basis=100, n_neighbors=4),
        "Isomap": Isomap(n_neighbors=4),
        "LLE": LocallyLinearEmbedding(n_neighbors=4, random_state=0),
    }
    figure = Figure(figsize=(16, 4), layout="constrained")
    axes = figure.add_subplot(1, 4, 1, projection="3d")
    axes.scatter(*X.T, c=places[:, 0], s=4)
    axes.set_title(f"Swiss roll, {len(X)} rows, 4 neighbours")
    for column, (name, method) in enumerate(methods.items(), 2):
        embedding = method.fit_transform(X)
        along, height = correlations(embedding, places)
        plane = figure.add_subplot(1, 4, column)
        plane.scatter(*embedding.T, c=places[:, 0], s=4)
        plane.set_title(f"{name}: along {along:.3f}, height {height:.3f}")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "roll.png", dpi=80)


def large(n: int) -> None:
    """MVU with m = 50 within 4 GB, of the fewest neighbours whose graph is connected."""
    X, angle = make_swiss_roll(n, random_state=SEED)
    for k in (4, 5, 6, 8, 10):
        model = dkl.MaximumVarianceUnfolding(n_basis=50, n_neighbors=k, memory_limit="4 GB")
        started = time.process_time()
        try:
            model.fit(X)
        except InputError as error:
            print(f"{k} neighbours: {error}")
            continue
        seconds, solve = time.process_time() - started, model.result_.seconds["solve"]
        along, height = correlations(model.embedding_, parameters(X, angle))
        print(f"{k} neighbours, {len(model.edges_)} edges: {seconds:.1f} s of the processor, the solve {solve:.1f} s by the clock, "
              f"{model.result_.outcome.value} after {model.n_iter_} steps, gap {model.certificate_.relative_gap:.1e}, "
              f"peak {model.result_.peak_bytes / 2**30:.2f} GiB; along {along:.4f}, height {height:.4f}")  # fmt: skip
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["swiss", "usps", "roll", "large"])
    parser.add_argument("--m", type=int, nargs="+", default=[10, 15, 20, 30, 40, 60, 100])
    parser.add_argument("--methods", nargs="+", default=list(SOLVERS), choices=list(SOLVERS))
    parser.add_argument("--limit", type=float, default=480.0, help="seconds of the processor of a solve")
    parser.add_argument("--no-ranks", action="store_true", help="leave rank(A) out, which takes its own seconds")
    parser.add_argument("--only", default="", help="of the roll's cases: how their names begin")
    parser.add_argument("--picture", type=Path, help="a folder for roll.png, in the place of the roll's table")
    parser.add_argument("--rows", type=int, default=200_000)
    options = parser.parse_args()
    if options.what == "large":
        large(options.rows)
    elif options.what == "roll" and options.picture:
        picture(options.picture)
    elif options.what == "roll":
        unrolled(options.only)
    else:
        table(
            {"swiss": swiss, "usps": usps}[options.what],
            options.m,
            options.methods,
            options.limit,
            not options.no_ranks,
        )


if __name__ == "__main__":
    main()
