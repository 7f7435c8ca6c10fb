"""Hard constraints (Wu, So, Li & Li 2009, (1)-(4) and (5)-(9)): the solvers of dkl next to interior-point codes.

    OMP_NUM_THREADS=1 python -m benchmarks.qsdp.hard [--problems mvu mvu-6 digits] [--rows 100 300] [--seeds 0 1] [--methods interior csdp]

mvu, mvu-6: a Swiss roll, 4 or 6 neighbors; digits: the first rows of scikit-learn's, 8 neighbors; at-most: the roll of 4 neighbors with
distances as upper bounds. pcp: four Gaussians in ten dimensions, 10 neighbors, n/8 must-links and n/8 cannot-links; must-linked rows are
one row of K. `interior` is the interior point on the face of cliques, `dkl` the augmented Lagrangian of a factor. Asked for 1e-6; LoRADS
by its own tolerance of 1e-5. A line has the processor's seconds of the solve (a program's with reading its file), the objective, the
relative gap and infeasibility as dkl's certificate has them (of others, of their K and y; SDPA and LoRADS print their own), and the rank;
of dkl also the largest multiplier.
Each solve is a process of its own, which `--limit` seconds by the clock end.

Clarabel comes with `pip install 'dkl[conic]'`; CSDP and SDPA are the Debian packages coinor-csdp and sdpa, LoRADS is built from its source:
programs `csdp`, `sdpa`, `lorads` on the PATH, which read SDPA's sparse format. What is not there is said to be missing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.datasets import load_digits, make_swiss_roll

from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.estimators.qsdp.mvu.fit import neighbor_edges
from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.linalg.eigen.lowest_by_factor import lowest_pairs
from dkl.problems.qsdp.linear import LinearSDP, face_of_cliques, propagation, unfolding
from dkl.solvers.qsdp.augmented import solve_augmented
from dkl.solvers.qsdp.augmented_steps import reduced
from dkl.solvers.qsdp.interior import solve_interior

Array = NDArray[np.float64]
TOL = 1e-6


def roll(n: int, seed: int, k: int = 4, is_upper: bool = False) -> tuple[LinearSDP, Array | None]:
    """(Hard MVU of a Swiss roll, or with distances as upper bounds; the rows as a start)."""
    return unfolded(make_swiss_roll(n, random_state=seed)[0], k, is_upper)


def digits(n: int, seed: int) -> tuple[LinearSDP, Array | None]:
    """(Hard MVU of images of digits, the rows as a start); there is one set, of no seed."""
    return unfolded(load_digits().data[:n], 8, False)


def unfolded(X: Array, k: int, is_upper: bool) -> tuple[LinearSDP, Array | None]:
    """(Hard MVU of rows, the rows as a start)."""
    n = len(X)
    _, edges, squared = neighbor_edges(X, UnfoldingSettings(n_neighbors=k), Session.find(None, threads=1))
    return unfolding(n, edges, squared, is_upper=is_upper), X


def gaussians(n: int, seed: int) -> tuple[LinearSDP, Array | None]:
    """(Hard PCP of four Gaussians, no start)."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.standard_normal((n, 10)) + 2.0 * rng.standard_normal((4, 10))[y]
    graph = build_graph(X, n_neighbors=10, sigma="local", laplacian="normalized", session=Session.find(None, threads=1))
    ends = rng.integers(n, size=(8 * n, 2))
    ends = ends[ends[:, 0] != ends[:, 1]]
    same = y[ends[:, 0]] == y[ends[:, 1]]
    return propagation(graph.laplacian, ends[same][: n // 8], ends[~same][: n // 8])[0], None


PROBLEMS: dict[str, Callable[[int, int], tuple[LinearSDP, Array | None]]] = {
    "mvu": roll,
    "mvu-6": partial(roll, k=6),
    "digits": digits,
    "at-most": partial(roll, is_upper=True),
    "pcp": gaussians,
}


def terms(problem: LinearSDP) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], Array, Array]:
    """(s, i, j, entry of A_s for i <= j, b), with the constraint 1'K1 = 0 of a centered problem."""
    own = sparse.coo_array(problem.forms)
    s, entry = own.coords
    i, j = problem.i[entry], problem.j[entry]
    values, b = np.where(i == j, own.data, 0.5 * own.data), problem.b
    if problem.is_centered:
        more_i, more_j = np.triu_indices(problem.n)
        s, i, j = np.r_[s, np.full(len(more_i), len(b))], np.r_[i, more_i], np.r_[j, more_j]
        values, b = np.r_[values, np.ones(len(more_i))], np.r_[b, 0.0]
    return s, i, j, values, b


def by_clarabel(problem: LinearSDP) -> tuple[Array, Array]:
    """(K, y) of Clarabel."""
    import clarabel

    n, (s, i, j, values, b) = problem.n, terms(problem)
    place = j * (j + 1) // 2 + i  # the upper triangle, column by column
    size = n * (n + 1) // 2
    root = np.sqrt(2.0)
    A = sparse.csc_array((np.where(i == j, values, root * values), (s, place)), shape=(len(b), size))
    C = sparse.coo_array(sparse.triu(problem.C))
    row, column = C.coords
    cost = np.zeros(size)
    cost[column * (column + 1) // 2 + row] = np.where(row == column, C.data, root * C.data)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOL
    upper = np.r_[problem.is_upper, np.zeros(len(b) - problem.p, bool)]
    order = np.argsort(upper, kind="stable")  # equations first
    G = sparse.csc_matrix(sparse.vstack([sparse.csr_array(A)[order], -sparse.eye_array(size)]))
    kinds = [clarabel.ZeroConeT(int((~upper).sum())), clarabel.NonnegativeConeT(int(upper.sum()))]
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)), cost, G, np.r_[b[order], np.zeros(size)],
        [*kinds, clarabel.PSDTriangleConeT(n)], settings,
    ).solve()  # fmt: skip
    K, (rows, columns) = np.zeros((n, n)), np.triu_indices(n)
    x = np.asarray(found.x)[columns * (columns + 1) // 2 + rows]
    K[rows, columns] = K[columns, rows] = np.where(rows == columns, x, x / root)
    y = np.zeros(len(b))
    y[order] = -np.asarray(found.z)[: len(b)]
    return K, y[: problem.p]


def write_sdpa(problem: LinearSDP, path: Path) -> None:
    """Write the problem in SDPA's sparse format, whose Y is K: max <-C, Y>."""
    if problem.is_upper.any():
        raise NotImplementedError("upper bounds take a block of slacks, which is not written")
    s, i, j, values, b = terms(problem)
    C = sparse.coo_array(sparse.triu(problem.C))
    with path.open("w") as file:
        file.write(f"{len(b)}\n1\n{problem.n}\n{' '.join(map(repr, b.tolist()))}\n")
        file.writelines(
            f"0 1 {r + 1} {c + 1} {-value!r}\n" for r, c, value in zip(*C.coords, C.data.tolist(), strict=True)
        )
        order = np.argsort(s, kind="stable")
        file.writelines(
            f"{k + 1} 1 {r + 1} {c + 1} {value!r}\n"
            for k, r, c, value in zip(*(part[order].tolist() for part in (s, i, j, values)), strict=True)
        )


def by_csdp(problem: LinearSDP) -> tuple[Array, Array]:
    """(K, y) of CSDP, by its program: y in the first line of the solution, then entries of Z (1) and X (2)."""
    with tempfile.TemporaryDirectory() as folder:
        path, solution = Path(folder, "problem.dat-s"), Path(folder, "solution")
        write_sdpa(problem, path)
        subprocess.run([str(shutil.which("csdp")), path, solution], check=False, stdout=subprocess.DEVNULL)
        y, *lines = solution.read_text().splitlines()
    K = np.zeros((problem.n, problem.n))
    for line in lines:
        which, _, i, j, value = line.split()
        if which == "2":
            K[int(i) - 1, int(j) - 1] = K[int(j) - 1, int(i) - 1] = float(value)
    return K, -np.array(y.split(), float)[: problem.p]


PRINTED = {
    "sdpa": {"objective": "objValPrimal", "gap": "relative gap", "infeas": "p.feas.error"},
    "lorads": {"objective": "1.Primal Objective", "gap": "3.Primal Dual Gap", "infeas": "1.Constraint Violation(1)"},
}
"""What the programs call the figures that they print last."""


def by_program(name: str, problem: LinearSDP) -> str:
    """Figures that a program prints of the problem in SDPA's format, negated where it maximizes; LoRADS writes no solution."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "problem.dat-s")
        write_sdpa(problem, path)
        given = [name, path] if name == "lorads" else [name, path, Path(folder, "solution")]
        printed = subprocess.run(given, check=False, capture_output=True, text=True).stdout
    last = {}
    for text in printed.splitlines():
        for column, label in PRINTED[name].items():
            if text.strip().startswith(label):
                last[column] = float(text.replace(":", "=").split("=")[-1])
    if len(last) < len(PRINTED[name]):
        return "    ended without figures"
    objective = -last["objective"] if name == "sdpa" else last["objective"]
    return f"{objective:17.10g} {last['gap']:9.1e} {last['infeas']:9.1e}        as it prints itself"


def line(problem: LinearSDP, K: Array, y: Array) -> str:
    """Objective, relative gap, infeasibility and rank of K and y, by the certificate of dkl."""
    values, vectors = np.linalg.eigh(K)
    R = reduced(problem.projected(vectors * np.sqrt(np.maximum(values, 0.0))), TOL)
    low = lowest_pairs(problem.slack(y), 1, 1e-9, is_centered=problem.is_centered)[0]
    found = problem.certify(R, y, low)
    return f"{found.objective:17.10g} {found.relative_gap:9.1e} {found.infeasibility:9.1e} {R.shape[1]:5d}"


def cpu(method: str) -> float:
    """Seconds of the processor: of programs that this process ran, if the method is one, else of this process."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime if method in ("csdp", *PRINTED) else time.process_time()


def solved(kind: str, n: int, seed: int, method: str) -> str:
    """The line of one solve."""
    problem, start = PROBLEMS[kind](n, seed)
    began = cpu(method)
    if method == "interior" and (not problem.is_centered or problem.is_upper.any()):
        return "    is of distances that hold alone"
    if method in ("dkl", "interior"):
        if method == "dkl":
            found = solve_augmented(problem, tol=TOL, start=start)
        else:
            own = sparse.coo_array(problem.forms)
            s, entry = own.coords
            across = problem.i[entry] != problem.j[entry]
            edges = np.empty((problem.p, 2), np.int64)
            edges[s[across]] = np.stack([problem.i, problem.j], axis=1)[entry[across]]
            face = face_of_cliques(problem.n, edges, problem.b)
            found = solve_interior(problem, face, edges, tol=TOL, start=start)
        seconds, proven = cpu(method) - began, found.certificate
        text = f"{proven.objective:17.10g} {proven.relative_gap:9.1e} {proven.infeasibility:9.1e} {found.factor.shape[1]:5d}"
        steps = f"{found.n_iter} rounds, {found.n_newton} steps, multipliers to {np.abs(found.dual).max():.0e}"
        return f"{seconds:9.2f} {text}  {found.outcome.value}, {steps}"
    if method in ("clarabel", "csdp"):
        K, y = {"clarabel": by_clarabel, "csdp": by_csdp}[method](problem)
        return f"{cpu(method) - began:9.2f} {line(problem, K, y)}"
    text = by_program(method, problem)
    return f"{cpu(method) - began:9.2f} {text}"


def work(connection: Connection, *given: Any) -> None:
    """Send the line of one solve."""
    connection.send(solved(*given))


def main() -> None:
    """Print a line for each problem, size and method."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--rows", nargs="+", type=int, default=[300, 1000, 3000, 11220])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0], help="Of rolls and Gaussians.")
    parser.add_argument("--methods", nargs="+", default=["interior", "dkl", "clarabel", "csdp", "sdpa", "lorads"])
    parser.add_argument("--limit", type=float, default=60.0, help="Seconds of a solve.")
    asked = parser.parse_args()
    print(f"{'':33}  seconds         objective       gap    infeas  rank")
    for kind, n, seed in product(asked.problems, asked.rows, asked.seeds):
        for method in asked.methods:
            head = f"{kind:7} {n:7,} {seed:4} {method:14}"
            if method not in ("interior", "dkl", "clarabel") and shutil.which(method) is None:
                print(f"{head}  no program {method} on the PATH")
                continue
            context = multiprocessing.get_context("spawn")
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(sender, kind, n, seed, method))
            process.start()
            sender.close()
            try:
                text = receiver.recv() if receiver.poll(asked.limit) else f"more than {asked.limit:g} s"
            except EOFError:
                text = "failed"
            if process.is_alive():
                process.kill()
            process.join()
            print(f"{head} {text}", flush=True)


if __name__ == "__main__":
    main()
