"""The lasso on the same kernel columns to the same duality gap: dkl, scikit-learn, celer, skglm.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_peers --data mnist abalone noisy --columns 1000 5000
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_peers --data noisy --n 3000 --columns 200 --cap 10    # a small try

All minimise P(w) = |y - C w|^2 + 2 kappa |w|_1 on the same centred columns in double precision. One function measures
the gap of whatever weights come back, on the columns themselves:

    gap = P(w) - max_s { |y|^2 - |y - s r|^2 : s |C'r| <= kappa },   r = y - C w,     stated relative to P(w)

Each contestant runs in a process of its own, forked when the columns are there and everything is compiled, once a
target: first with the tolerance that by its own definition gives the target, then with a tenth of it, and so on until
the measured gap is reached (a try's own seconds count, not those of the tries before). What is not reached within
`--cap` seconds a try is told with the gap of the last try that ended. C'C takes as long for all who use it: it is timed
once, and added in a column of its own. "path" contestants solve a path of `--nus` values down to the same kappa by
warm starts, with every value to the gap.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.regression.slkl import circumstances, table
from dkl.datasets import load
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.problems.regression.column_gram import CenteredGram, DenseGram
from dkl.problems.regression.column_lasso import ColumnLasso, output_problems
from dkl.solvers.regression.active_set import ActiveSet
from dkl.solvers.regression.coordinate_descent import CoordinateDescent
from dkl.solvers.regression.lasso_path import solve_path

LEAST_TOL = 1e-16
FIRST_TARGET = 1e-2
"""Tried before all others, for a gap to tell where no try at a target ends."""


@dataclass(frozen=True)
class Columns:
    """Centred C (n, M), Fortran order, y (n,), and their sums, with the seconds these took."""

    name: str
    C: NDArray[np.float64]
    y: NDArray[np.float64]
    gram: NDArray[np.float64]
    cross: NDArray[np.float64]
    gram_seconds: float

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def square(self) -> float:
        return float(self.y @ self.y)

    @property
    def largest_kappa(self) -> float:
        return float(np.abs(self.cross).max())

    def problem(self, kappa: float) -> ColumnLasso:
        return ColumnLasso(DenseGram(self.gram), self.cross, self.square, 1.0, kappa**2)

    def relative_gap(self, w: NDArray[np.float64], kappa: float) -> float:
        """Of weights (M,), from C and y alone."""
        r = self.y - self.C @ w
        correlations = np.abs(self.C.T @ r).max()
        value = r @ r + 2 * kappa * np.abs(w).sum()
        s = np.clip(self.y @ r / (r @ r), -kappa / correlations, kappa / correlations)
        return float((value - (self.square - np.sum((self.y - s * r) ** 2))) / value)


def columns_of(name: str, n: int, count: int, seed: int) -> Columns:
    """mnist: pixels, an eight or not; abalone: rings; noisy: a smooth function of ten features under as much noise."""
    rng = np.random.default_rng(seed)
    if name == "mnist":
        data = load("mnist")
        chosen = rng.permutation(len(data.X))[:n]
        X, y, gamma = data.X[chosen] / 255, np.where(data.y[chosen] == 8, 1.0, -1.0), 0.02
    elif name == "abalone":
        data = load("abalone_onehot")
        X, y, gamma = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0), data.y.astype(float), 0.2
    else:
        X = rng.standard_normal((n, 10))
        smooth = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.abs(X[:, 3])
        y, gamma = smooth + smooth.std() * rng.standard_normal(n), 0.05
    points = X[rng.choice(len(X), min(count, len(X)), replace=False)]
    C = np.asfortranarray(Kernel("rbf", gamma).columns(X, points))
    C -= C.mean(axis=0)
    y = y - y.mean()
    start = time.perf_counter()
    gram = C.T @ C
    cross = C.T @ y
    return Columns(name, C, y, gram, cross, time.perf_counter() - start)


# -- contestants ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contestant:
    """solve(columns, kappas, tol) gives weights (k, M), one row a kappa; `tol` is relative to its own scale.

    scale(columns, kappa, least objective): its tolerance for a relative gap of 1 by its own definition.
    """

    name: str
    uses_gram: bool
    solve: Callable[[Columns, NDArray[np.float64], float], NDArray[np.float64]]
    scale: Callable[[Columns, float, float], float]
    is_path: bool = False


def of_targets(columns: Columns, kappa: float, value: float) -> float:
    """scikit-learn and celer stop at gap / 2 <= tol |y|^2."""
    return value / (2 * columns.square)


def of_penalty(columns: Columns, kappa: float, value: float) -> float:
    """skglm stops when optimality is violated by tol at most, in the units of its penalty kappa / n."""
    return kappa / columns.n


def one(columns: Columns, kappa: float, value: float) -> float:
    return 1.0


def contestants() -> list[Contestant]:
    found = [
        Contestant("dkl, active set", True, by_active_set, one),
        Contestant("dkl, exact coordinate steps", True, by_coordinates, one),
        Contestant("scikit-learn Lasso(precompute=Gram)", True, by_sklearn, of_targets),
        Contestant("dkl, path", True, by_path, one, True),
        Contestant("scikit-learn lasso_path(precompute=Gram)", True, by_sklearn_path, of_targets, True),
    ]
    peers = (
        ("celer", Contestant("celer Lasso", False, by_celer, of_targets)),
        ("celer", Contestant("celer_path", False, by_celer_path, of_targets, True)),
        ("skglm", Contestant("skglm Lasso (working sets)", False, by_skglm, of_penalty)),
        ("skglm", Contestant("skglm GramCD (makes its Gram itself)", False, by_skglm_gram, of_penalty)),
    )
    for package, peer in peers:
        try:
            __import__(package)
        except ImportError:
            print(f"{peer.name} is left out: {package} is not installed (pip install {package})")
            continue
        found.append(peer)
    return found


def by_active_set(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    return ActiveSet(tol).solve(columns.problem(kappas[-1])).weights[None]


def by_coordinates(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    return CoordinateDescent("exact", tol=tol, max_iter=10**6).solve(columns.problem(kappas[-1])).weights[None]


def by_path(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    zeros = np.zeros(len(columns.cross))
    shared = CenteredGram(
        DenseGram(columns.gram),
        columns.cross[:, None],
        np.array([columns.square]),
        zeros,
        zeros[:1],
        float(columns.n),
        np.sqrt(np.diag(columns.gram)),
        np.sqrt([columns.square]),
    )

    def at(nu: float) -> list[ColumnLasso]:
        return output_problems(shared, 1.0, nu)

    return np.array([found[0].weights for found in solve_path(at, kappas**2, ActiveSet(tol))])


def by_sklearn(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from sklearn.linear_model import Lasso

    model = Lasso(
        kappas[-1] / columns.n, precompute=columns.gram, fit_intercept=False, copy_X=False, tol=tol, max_iter=10**7
    )
    return model.fit(columns.C, columns.y).coef_[None]


def by_sklearn_path(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from sklearn.linear_model import lasso_path

    _, coefs, _ = lasso_path(
        columns.C, columns.y, alphas=kappas / columns.n, precompute=columns.gram, Xy=columns.cross, copy_X=False,
        tol=tol, max_iter=10**7,
    )  # fmt: skip
    return coefs.T


def by_celer(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from celer import Lasso  # type: ignore[import-untyped]

    model = Lasso(kappas[-1] / columns.n, fit_intercept=False, tol=tol, max_iter=10_000, max_epochs=10**6)
    return model.fit(columns.C, columns.y).coef_[None]


def by_celer_path(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from celer import celer_path

    found = celer_path(
        columns.C, columns.y, "lasso", alphas=kappas / columns.n, tol=tol, max_iter=10_000, max_epochs=10**6
    )
    return found[1].T


def by_skglm(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from skglm import Lasso  # type: ignore[import-untyped]

    model = Lasso(kappas[-1] / columns.n, fit_intercept=False, tol=tol, max_iter=10_000, max_epochs=10**6)
    return model.fit(columns.C, columns.y).coef_[None]


def by_skglm_gram(columns: Columns, kappas: NDArray[np.float64], tol: float) -> NDArray[np.float64]:
    from skglm.penalties import L1  # type: ignore[import-untyped]
    from skglm.solvers import GramCD  # type: ignore[import-untyped]
    from skglm.utils.jit_compilation import compiled_clone  # type: ignore[import-untyped]

    solver = GramCD(10**7, use_acc=True, greedy_cd=False, tol=tol, fit_intercept=False)
    return solver.solve(columns.C, columns.y, None, compiled_clone(L1(kappas[-1] / columns.n)))[0][None]


# -- the race ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Try:
    target: float
    tol: float
    seconds: float
    gap: float
    active: int


def tries(
    columns: Columns, who: Contestant, kappas: NDArray[np.float64], value: float, targets: list[float], threads: int,
    cap: float,
) -> list[Try]:  # fmt: skip
    """Every try that ended within the cap, in a forked process."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=attempt, args=(columns, who, kappas, value, targets, threads, there))
    process.start()
    there.close()
    found: list[Try] = []
    try:
        while here.poll(cap + 30 * (not found)):  # the first may have to load libraries
            found.append(here.recv())
    except EOFError:
        pass
    process.kill()
    process.join()
    return [each for each in found if each.seconds <= cap]


def attempt(
    columns: Columns, who: Contestant, kappas: NDArray[np.float64], value: float, targets: list[float], threads: int,
    out: Connection,
) -> None:  # fmt: skip
    warnings.simplefilter("ignore")
    with threadpool_limits(threads, "blas"):
        for target in [FIRST_TARGET, *targets]:
            tol = target * who.scale(columns, float(kappas[-1]), value)
            while tol >= LEAST_TOL * who.scale(columns, float(kappas[-1]), value):
                start = time.perf_counter()
                weights = who.solve(columns, kappas, tol)
                seconds = time.perf_counter() - start
                at = kappas if who.is_path else kappas[-1:]
                gap = max(columns.relative_gap(w, kappa) for w, kappa in zip(weights, at, strict=True))
                out.send(Try(target, tol, seconds, gap, int(np.count_nonzero(weights[-1]))))
                if gap <= target:
                    break
                tol /= 10
    out.close()


def race(name: str, count: int, share: float, options: argparse.Namespace) -> list[dict[str, Any]]:
    with threadpool_limits(options.threads, "blas"):
        columns = columns_of(name, options.n, count, options.seed)
        reference = ActiveSet(1e-9).solve(columns.problem(share * columns.largest_kappa))
    kappas = np.geomspace(columns.largest_kappa, share * columns.largest_kappa, options.nus + 1)[1:]
    value = reference.evaluation.objective
    n, M = columns.C.shape
    print(
        f"\n{name}: n = {n:,}, M = {M:,}, kappa = {share:g} of the largest (alpha = {kappas[-1] / n:.3g},"
        f" nu = {kappas[-1] ** 2:.3g}), m0 = {np.count_nonzero(reference.weights)},"
        f" R^2 = {1 - reference.evaluation.residual / columns.square:.3f};"
        f" C'C and C'y: {columns.gram_seconds:.2f} s; path of {options.nus}",
        flush=True,
    )
    found = []
    for who in contestants():
        if options.only and not any(part in who.name for part in options.only):
            continue
        runs = [
            tries(columns, who, kappas, value, options.targets, options.threads, options.cap)
            for _ in range(options.repeats)
        ]
        for target in options.targets:
            found.append(summary(columns, who, target, runs))
            print(line(found[-1]), flush=True)
    header = ["solver", "gap wanted", "solve, s", "C'C, s", "together, s", "gap measured", "m0"]
    print("\n" + table(header, [cells(row) for row in found]), flush=True)
    return [row | {"data": name, "n": n, "columns": M, "share": share, "kappa": kappas[-1]} for row in found]


def summary(columns: Columns, who: Contestant, target: float, runs: list[list[Try]]) -> dict[str, Any]:
    reached = [min((t for t in run if t.gap <= target), key=lambda t: t.seconds, default=None) for run in runs]
    good = [t for t in reached if t is not None]
    last = min((t for run in runs for t in run), key=lambda t: t.gap, default=None)
    shown = good[0] if good else last
    return {
        "solver": who.name,
        "target": target,
        "reached": len(good) == len(runs),
        "seconds": [t.seconds for t in good],
        "gram_seconds": columns.gram_seconds if who.uses_gram else 0.0,
        "gap": None if shown is None else shown.gap,
        "gap_after": None if shown is None else shown.seconds,
        "active": None if shown is None else shown.active,
    }


def cells(row: dict[str, Any]) -> list[str]:
    head = [row["solver"], f"{row['target']:.0e}"]
    if not row["reached"]:
        so_far = "none ended" if row["gap"] is None else f"{row['gap']:.1e} after {row['gap_after']:.2f} s"
        return [*head, "did not reach", "", "", so_far, "" if row["active"] is None else str(row["active"])]
    seconds = row["seconds"]
    median = float(np.median(seconds))
    shown = f"{median:.3f} ({min(seconds):.3f} to {max(seconds):.3f})"
    gram = f"{row['gram_seconds']:.2f}" if row["gram_seconds"] else "-"
    return [*head, shown, gram, f"{median + row['gram_seconds']:.2f}", f"{row['gap']:.1e}", str(row["active"])]


def line(row: dict[str, Any]) -> str:
    return "   ".join(cells(row))


def warm_up() -> None:
    """Every contestant once, on columns so small that it takes nothing: what compiles is compiled."""
    columns = columns_of("noisy", 200, 20, 0)
    kappas = np.geomspace(columns.largest_kappa, 0.1 * columns.largest_kappa, 3)[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for who in contestants():
            weights = who.solve(columns, kappas, 1e-6 * who.scale(columns, float(kappas[-1]), columns.square))
            gap = columns.relative_gap(weights[-1], float(kappas[-1]))
            assert gap < 1e-2, (who.name, gap)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=["mnist", "abalone", "noisy"], default=["mnist"])
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--columns", type=int, nargs="+", default=[1000])
    parser.add_argument("--shares", type=float, nargs="+", default=[1e-2, 1e-3, 1e-4], help="kappa over the largest")
    parser.add_argument("--targets", type=float, nargs="+", default=[1e-4, 1e-6])
    parser.add_argument("--nus", type=int, default=20)
    parser.add_argument("--cap", type=float, default=120.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="solvers whose names have one of these in them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    print(circumstances(options.threads, "celer", "skglm"))
    warm_up()
    rows = [
        row
        for name in options.data
        for count in options.columns
        for share in options.shares
        for row in race(name, count, share, options)
    ]
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, default=float))


if __name__ == "__main__":
    main()
