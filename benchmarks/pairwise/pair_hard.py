"""Pairs on rows with duplicates and outliers, to small gaps: `python -m benchmarks.pairwise.pair_hard [FOLDER | SET]`.

The factored solver from n/4 and n random pairs, all right or 5 % of them wrong, to 1e-3 and 1e-5: outcome, proven gap, rank,
iterations and CPU seconds of the fit. FOLDER holds segmentation.data and segmentation.test of UCI's image segmentation set: 2,310
rows, 224 of them duplicates; SET is one of DKL_DATA, as spambase (4,601 rows, 394 of them duplicates), of which rows with blanks are
left out; without either, rows of that kind are drawn: seven groups with heavy tails. Columns are scaled to unit variance. Fits before
the first compile. A Markdown row a fit, as they end.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.pairwise.pair_proofs import compile_steps
from dkl.datasets import load

N, DUPLICATES, GROUPS, COLUMNS = 2310, 224, 7, 19
CASES = ((0.25, 0.0), (0.25, 0.05), (1.0, 0.0), (1.0, 0.05))
GOALS = (1e-3, 1e-5)
SEEDS = (0, 1)
"""Of the draw of pairs."""


def drawn_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(X, y): groups with heavy tails, some rows twice."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, GROUPS, N - DUPLICATES)
    X = 2 * rng.normal(size=(GROUPS, COLUMNS))[y] + rng.standard_t(2, size=(len(y), COLUMNS))
    again = rng.permutation(len(y))[:DUPLICATES]
    return np.vstack([X, X[again]]), np.concatenate([y, y[again]])


def segmentation(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of UCI's two files: lines of a class and 19 numbers, below a head."""
    lines = [line.split(",") for part in ("data", "test") for line in (folder / f"segmentation.{part}").open()]
    rows = [line for line in lines if len(line) == 1 + COLUMNS and line[1].strip()[-1].isdigit()]
    return np.array([line[1:] for line in rows], float), np.unique([line[0] for line in rows], return_inverse=True)[1]


def hard_rows(name: str | None) -> tuple[np.ndarray, np.ndarray]:
    """(X, y) of a folder, a set's name, or drawn."""
    if name is not None and not Path(name).is_dir():
        found = load(name)
        kept = ~np.isnan(found.X).any(axis=1)
        return found.X[kept], found.y[kept]
    X, y = drawn_rows() if name is None else segmentation(Path(name))
    assert X.shape == (N, COLUMNS) and len(X) - len(np.unique(X, axis=0)) == DUPLICATES
    return X, y


def random_pairs(y: np.ndarray, count: int, wrong: float, seed: int) -> dkl.Pairs:
    """So many different pairs drawn at random, told by their labels but for a share told wrongly; less what contradicts must-links."""
    rng = np.random.default_rng(seed)
    ends: set[tuple[int, int]] = set()
    while len(ends) < count:
        i, j = sorted(map(int, rng.integers(0, len(y), 2)))
        if i != j:
            ends.add((i, j))
    chosen = np.array(sorted(ends))
    alike = (y[chosen[:, 0]] == y[chosen[:, 1]]) ^ (rng.random(count) < wrong)
    return dkl.Pairs(chosen[alike], chosen[~alike]).check(len(y), "drop")


def row(X: np.ndarray, y: np.ndarray, share: float, wrong: float, seed: int, goal: float) -> str:
    """A line of the table."""
    pairs = random_pairs(y, int(share * len(y)), wrong, seed)
    learner = dkl.PairwiseKernelLearner(solver="factored", target_gap=goal, random_state=0, n_jobs=1)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner.fit(X, pairs=pairs)
    seconds = time.process_time() - begin
    cells = (
        f"{share:g} n", f"{wrong:.0%}", seed, f"{goal:.0e}", learner.result_.outcome.value,
        f"{learner.certificate_.relative_gap:.1e}", learner.rank_, f"{learner.n_iter_:,}", f"{seconds:.1f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """All cases, draws, solvers and goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="?", metavar="FOLDER | SET")
    X, y = hard_rows(parser.parse_args().rows)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    compile_steps()
    for goal in GOALS:  # compiles what is left
        row(X[:500], y[:500], 0.25, 0.0, 0, goal)
    heads = ("pairs", "wrong", "draw", "goal", "outcome", "gap", "rank", "iterations", "CPU s")
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    for share, wrong in CASES:
        for seed in SEEDS:
            for goal in GOALS:
                print(row(X, y, share, wrong, seed, goal), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
