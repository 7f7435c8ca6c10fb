"""Table 2 of Liu et al. (2009): accuracy of the optimal neighbourhood kernel G and of the given kernel K, beside the paper's.

    OMP_NUM_THREADS=1 python -m benchmarks.svm.onk_table2 [--sets liver a2a] [--runs 20] [--sigmas 1 2 3] [--out table.md]

A run draws a fifth of the rows for training; kernel exp(-|x - x'|^2 / sigma_k), sigma_k = 4^(k - 1) times the mean squared
distance between two training rows. C, and rho for G, are those of the best mean accuracy over five stratified folds of the
training rows, the first of equals from small C and rho, as GridSearchCV has it. K is scikit-learn's SVC on the same
folds and the same C. Run s has seed s for split and folds, from 0. Accuracy on the other four fifths in %, mean and
deviation over runs; G - K is taken run by run, with the standard error of its mean.

gap: the largest relative duality gap of a G that was chosen. A path stops at 10^-4 or after --max-iter steps a machine.

Two tables, of which the second goes to table-readings.md. It has what else the paper's protocol may mean:

    K, finer C       C by quarter decades
    K at G's C       at the C chosen for G; of equals the first, or the last
    K, C = 10^4      not chosen at all; of G, rho alone is
    K best, G best   of the grid, on the test rows: no fair figure, but nothing on the grid is above it
    G, rho <= 10^3   a shorter grid
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from benchmarks.regression.slkl import circumstances
from dkl import OptimalNeighborhoodSVC
from dkl.errors import ConvergenceWarning
from dkl.reproduce.onk import CS, RHOS, paper_gamma, two_class
from dkl.reproduce.onk import TABLE2 as PAPER

Rows = NDArray[np.float64]

FINER = np.logspace(-2, 4, 25)
SHORT = RHOS < 2e3
SCALINGS: dict[str, Any] = {"raw": FunctionTransformer, "standardised": StandardScaler, "unit": MinMaxScaler}

MAIN = ("paper G", "paper K", "paper G - K", "G", "K", "G - K", "", "C of K", "C, rho of G", "gap")
FIXED = {p: int(np.argmin(np.abs(CS - 10.0**p))) for p in (0, 2, 3, 4)}
AT_FIXED = tuple(f"K, C = 10^{p}" for p in FIXED)
K_READINGS = ("K", "K, finer C", "K at G's C, first", "K at G's C, last", *AT_FIXED, "K best")
G_READINGS = ("G", "G, last", "G, C = 10^4", "G, rho <= 10^3", "G best")
READINGS = ("paper K", *K_READINGS, "paper G", *G_READINGS)


Run = dict[str, float]
"""Test accuracy of every reading, in %; log10 of what was chosen; the gap of G."""


@dataclass(frozen=True)
class Split:
    """Training and test rows, scaled, and the folds of the training rows: (to fit, held out)."""

    X: Rows
    y: Rows
    X_test: Rows
    y_test: Rows
    gamma: float
    folds: list[tuple[NDArray[np.intp], NDArray[np.intp]]]


def split(X: Rows, y: Rows, k: int, seed: int, options: argparse.Namespace) -> Split:
    strata = y if options.stratified else None
    train, test = train_test_split(np.arange(len(y)), train_size=0.2, random_state=seed, stratify=strata)
    scaler = SCALINGS[options.scaling]().fit(X[train])
    rows, others = scaler.transform(X[train]), scaler.transform(X[test])
    gamma = paper_gamma(np.vstack([rows, others]) if options.sigma_of == "all" else rows, k)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(rows, y[train])
    return Split(rows, y[train], others, y[test], gamma, list(folds))


def accuracy(decisions: Rows, y: Rows) -> Rows:
    """In %, over the last axis."""
    return np.asarray(100 * ((decisions > 0) == (y > 0)).mean(axis=-1))


def graded(data: Split, decisions: Callable[[Rows, Rows, Rows], Rows]) -> tuple[Rows, Rows]:
    """(mean accuracy over the folds, accuracy on the test rows) of what decides on new rows by (X, y, new)."""
    held = [accuracy(decisions(data.X[rows], data.y[rows], data.X[out]), data.y[out]) for rows, out in data.folds]
    return np.mean(held, axis=0), accuracy(decisions(data.X, data.y, data.X_test), data.y_test)


def of_K(data: Split, Cs: Rows) -> tuple[Rows, Rows]:
    """`graded` at each C."""

    def decisions(X: Rows, y: Rows, new: Rows) -> Rows:
        K, K_new = (rbf_kernel(rows, X, gamma=data.gamma) for rows in (X, new))
        return np.array([SVC(C=C, kernel="precomputed").fit(K, y).decision_function(K_new) for C in Cs])

    return graded(data, decisions)


def of_G(data: Split, max_iter: int) -> tuple[Rows, Rows, Rows]:
    """`graded` at each C and rho, by one path a fold; and the relative gaps of the last path."""
    model = OptimalNeighborhoodSVC(gamma=data.gamma, tol=1e-4, max_iter=max_iter, n_jobs=1)
    gaps: list[Rows] = []

    def decisions(X: Rows, y: Rows, new: Rows) -> Rows:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # told as gap
            path = model.path(X, y, CS, RHOS)
        gaps.append(path.gaps[..., 0])
        return np.asarray(path.coefficients[:, :, 0] @ rbf_kernel(X, new, gamma=data.gamma) + path.intercepts)

    return *graded(data, decisions), gaps[-1]


def best(scores: Rows, which: int = 0) -> tuple[int, ...]:
    """Where the best is, the first or the last (-1) of equals; equal but for the rounding of a mean."""
    return tuple(int(i) for i in np.argwhere(scores > scores.max() - 1e-9)[which])


def run(data: Split, max_iter: int) -> Run:
    K_folds, K_test = of_K(data, CS)
    finer_folds, finer_test = of_K(data, FINER)
    G_folds, G_test, gaps = of_G(data, max_iter)
    k, g, g_last = best(K_folds), best(G_folds), best(G_folds, -1)
    found = {
        "G": G_test[g],
        "K": K_test[k],
        "K, finer C": finer_test[best(finer_folds)],
        "K at G's C, first": K_test[g[0]],
        "K at G's C, last": K_test[g_last[0]],
        **dict(zip(AT_FIXED, K_test[list(FIXED.values())], strict=True)),
        "K best": K_test.max(),
        "G, last": G_test[g_last],
        "G, rho <= 10^3": G_test[:, SHORT][best(G_folds[:, SHORT])],
        "G, C = 10^4": G_test[-1][best(G_folds[-1])],
        "G best": G_test.max(),
        "C of K": np.log10(CS[k[0]]),
        "C of G": np.log10(CS[g[0]]),
        "rho of G": np.log10(RHOS[g[1]]),
        "gap": gaps[g],
    }
    return {name: float(value) for name, value in found.items()}


def series(runs: list[Run], what: str) -> Rows:
    return np.array([one[what] for one in runs])


def main_row(name: str, k: int, runs: list[Run]) -> list[str]:
    """ahead, behind: by more than two standard errors."""
    paper_G, paper_K = PAPER[name][k - 1]
    G, K = series(runs, "G"), series(runs, "K")
    difference, error = (G - K).mean(), (G - K).std(ddof=1) / np.sqrt(len(runs))
    verdict = "level" if abs(difference) <= 2 * error else "ahead" if difference > 0 else "behind"
    C_K, C_G, rho = (np.median(series(runs, what)) for what in ("C of K", "C of G", "rho of G"))
    return [
        name, str(k), f"{paper_G}", f"{paper_K}", f"{paper_G - paper_K:+.1f}", spread(G), spread(K),
        f"{difference:+.2f} ± {error:.2f}", verdict, f"10^{C_K:g}", f"10^{C_G:g}, 10^{rho:g}",
        f"{series(runs, 'gap').max():.0e}",
    ]  # fmt: skip


def readings_row(name: str, k: int, runs: list[Run]) -> list[str]:
    paper_G, paper_K = PAPER[name][k - 1]
    means = {reading: f"{series(runs, reading).mean():.1f}" for reading in (*K_READINGS, *G_READINGS)}
    return [name, str(k), f"{paper_K}", *(means[r] for r in K_READINGS), f"{paper_G}", *(means[r] for r in G_READINGS)]


def distances(found: dict[tuple[str, int], list[Run]]) -> list[str]:
    """Root mean square distance of each reading's means from the paper's column, over all rows."""
    row = ["rms distance", ""]
    for column, readings in ((1, K_READINGS), (0, G_READINGS)):
        row.append("0")
        for reading in readings:
            apart = [series(runs, reading).mean() - PAPER[name][k - 1][column] for (name, k), runs in found.items()]
            row.append(f"{np.sqrt(np.mean(np.square(apart))):.1f}")
    return row


def spread(values: Rows) -> str:
    return f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def tell(out: Path | None, lines: list[str]) -> None:
    """Printed, and added to the file as soon as they are known."""
    print("\n".join(lines), flush=True)
    if out is not None:
        with out.open("a") as file:
            file.write("\n".join(lines) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(PAPER), default=list(PAPER), metavar="SET")
    parser.add_argument("--runs", type=int, default=20, help="two at least")
    parser.add_argument("--sigmas", nargs="+", type=int, choices=[1, 2, 3], default=[1, 2, 3], metavar="K")
    parser.add_argument(
        "--scaling", choices=list(SCALINGS), default="raw", help="unit: to [0, 1], by the training rows"
    )
    parser.add_argument("--stratified", action="store_true", help="the training fifth too")
    parser.add_argument("--sigma-of", choices=["training", "all"], default="training", help="rows that make sigma")
    parser.add_argument("--max-iter", type=int, default=2000)
    parser.add_argument("--out", type=Path, help="a text that rows are added to")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    print(circumstances(1), "\n", sep="")
    found: dict[tuple[str, int], list[Run]] = {}
    tables = (options.out, options.out and options.out.with_stem(f"{options.out.stem}-readings"))
    for out, columns in zip(tables, (MAIN, READINGS), strict=True):
        tell(out, [line(("set", "sigma", *columns)), "|" + "---|" * (len(columns) + 2)])
    with threadpool_limits(1):
        for name in options.sets:
            X, y = two_class(name)
            X = X.toarray() if sp.issparse(X) else X
            for k in options.sigmas:
                splits = (split(X, y, k, seed, options) for seed in range(options.runs))
                found[name, k] = [run(data, options.max_iter) for data in splits]
            for out, row in zip(tables, (main_row, readings_row), strict=True):
                tell(out, [line(row(name, k, found[name, k])) for k in options.sigmas])
    tell(tables[1], [line(distances(found))])


if __name__ == "__main__":
    main()
