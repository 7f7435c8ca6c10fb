"""Random fits at the least memory limit that `dkl plan` accepts, and small files that claim gigabytes: what processes take.

    python tests/limit_trials.py --trials 200            # a point each: fit, predict or transform, verify, all at that limit
    python tests/limit_trials.py --bombs                 # every file of tests/support/faults/bombs.py
    python tests/limit_trials.py --first-seed 7 --trials 1 --task svc

A point is drawn by its seed: learner, numbers of rows, columns, classes, targets, widths and folds, kind of file, options. The peak is
the largest resident memory of a process of its own that runs the command (VmHWM). A point is right if it is at most SHARE of the limit
for every command, and none is refused under the limit that the fit was accepted with. The limit is the one that refusals name, at most
MOST_REFUSALS of them: a plan that is refused at the limit that it has named is not right. Options that exclude each other have no plan:
such points are listed by themselves. Each point's line comes as it ends. Exits with 1 where one is not right.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import zarr
from numpy.typing import NDArray

sys.path.extend(map(str, [Path(__file__).parent, *(Path(__file__).parent / "support").iterdir()]))

from bombs import BOMBS, LIMIT, burst, fitted, measured, plain_inputs
from command_line import call

SHARE = 0.95
"""Largest share of the least accepted limit that a process may take."""
SPARE, SECONDS = 200_000_000, 2.0
"""Bytes beyond the limit, and seconds of a processor, that a bomb may take."""
MOST_REFUSALS = 2
"""Refusals before a plan is accepted: that of a file, which is read before there is a plan, and that of the plan."""
REFUSED = 2
"""Exit code of options that exclude each other."""
ENDS = (0, 3)
SIZE = 40_000_000
"""Bytes of the rows of a point at most, in double precision."""
UNIT = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
FORMS = (".npy", ".npz", "packed.npz", ".csv", ".csv.gz", ".tsv", ".zarr", "chunks.zarr", "sparse.npz", ".svm")

MOST_COLUMNS = 500
"""Columns at most of a metric, whose matrices are as many rows and columns: 100,000 of them take 80 GB each."""
MOST_PAIRED = 60
"""Classes at most that are told apart two by two: 1,770 machines. 200 of them are 19,900, which take most of an hour."""
MOST_NEWTON = 150
"""Kernel columns at most of a solver by single coordinates: 680 of 71 targets take five minutes."""
PASSES = 50
"""Passes at most of a solver by coordinates, whose default of 10,000 takes most of an hour, and no more memory."""

Rng = np.random.Generator
Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """Result of a point. ended: (command, exit code, peak in bytes) of each; message: of one that was refused.

    refusals: of the plan, until one was accepted; plan: the exit code of the last one; cpu: processor seconds of the commands in `ended`.
    """

    seed: int
    what: str
    limit: int
    ended: tuple[tuple[str, int, int], ...] = ()
    message: str = ""
    refusals: int = 0
    plan: int = 0
    cpu: float = 0.0

    @property
    def share(self) -> float:
        """The largest peak as a share of the limit."""
        return max((peak for _, _, peak in self.ended), default=0) / max(self.limit, 1)

    @property
    def is_right(self) -> bool:
        """True if all stayed within SHARE of the limit, and nothing was refused for memory at a limit that a refusal named."""
        is_planned = self.plan in (0, REFUSED) and self.refusals <= MOST_REFUSALS
        return is_planned and self.share <= SHARE and all(code not in (1, 5) and code >= 0 for _, code, _ in self.ended)

    def __str__(self) -> str:
        ended = ", ".join(f"{verb} {code} {peak / 1e6:.0f} MB" for verb, code, peak in self.ended)
        says = "right" if self.is_right else "NOT RIGHT"
        says = says if self.ended else f"{says}, without a plan ({self.plan}, {self.refusals} refusals)"
        took = f"{self.limit / 1e6:.0f} MB, {self.share:.3f}, {self.cpu:.0f} s"
        return f"{self.seed}: {says}: {took}: {ended}: {self.what} {self.message}"


def number(rng: Rng, low: float, high: float) -> int:
    """Return an integer, each order of magnitude as likely as another."""
    return int(np.exp(rng.uniform(np.log(low), np.log(high))))


# -- data --------------------------------------------------------------------------------------------------------------


def write_rows(X: Rows, form: str, name: str) -> str:
    """Write rows as a file of this form; return its name."""
    path = Path(name + form.lstrip("."))
    path = path.with_name(path.name.replace(name, name + ".", 1) if form.startswith(".") else f"{name}-{form}")
    if form == ".npy":
        np.save(path, X)
    elif form == ".npz":
        np.savez(path, X=X)
    elif form == "packed.npz":
        np.savez_compressed(path, X=X)
    elif form == "sparse.npz":
        sp.save_npz(path, sp.csr_matrix(np.where(X > 5, X, 0)))
    elif form.endswith(".zarr"):
        rows = len(X) if form == ".zarr" else max(1, len(X) // 7)
        zarr.create_array(str(path), data=X, chunks=(rows, X.shape[1]))
    else:
        mark = "\t" if form == ".tsv" else ","
        with gzip.open(path, "wt", compresslevel=1) if form.endswith(".gz") else open(path, "w") as file:
            for k, row in enumerate(X.astype(int).tolist()):
                if form == ".svm":
                    file.write(" ".join([str(k % 2), *(f"{j + 1}:{v}" for j, v in enumerate(row) if v > 5 or not j)]))
                else:
                    file.write(mark.join(map(str, row)))
                file.write("\n")
    return str(path)


def write_pairs(rng: Rng, y: NDArray[np.int64], count: int) -> None:
    """Write pairs of rows, labeled by whether their labels are equal."""
    ends = np.unique(np.sort(rng.integers(len(y), size=(count, 2)), axis=1), axis=0)
    lines = [f"{i},{j},{'must' if y[i] == y[j] else 'cannot'}" for i, j in ends.tolist() if i != j]
    Path("pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def some(rng: Rng, share: float, **choices: tuple[object, ...]) -> list[str]:
    """Return options, each given with this probability."""
    words: list[str] = []
    for name, values in choices.items():
        if rng.random() < share:
            value = values[int(rng.integers(len(values)))]
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words


# -- learners ------------------------------------------------------------------------------------------------------------


def svc(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a classifier of 2 to 200 classes, whose labels it writes."""
    k = min(number(rng, 2, 201), n // 3)
    y = rng.permutation(np.arange(n) % k)
    kernels = [
        f"--kernel={name}" for name in rng.choice(["rbf", "linear", "laplacian", "poly"], int(rng.integers(4)), False)
    ]
    words = ["--targets", "y.csv", "--max-iter", str(rng.choice([2, 20, 200])), *kernels]
    words += some(rng, 0.4, multi_class=("ovr", "ovo"), solver=("accelerated", "gradient"), holdout=(0, 0.3))
    words += some(rng, 0.3, dtype=("float32",), class_weight=("balanced",), standardize=(True,))
    k = min(k, MOST_PAIRED) if "ovo" in words else k
    Path("y.csv").write_text("\n".join(f"class {c % k}" for c in y) + "\n")
    return words, f"{k} classes"


def regression(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a regression of 1 to 1,000 targets, which it writes."""
    T = min(number(rng, 1, 1001), 4_000_000 // n)
    np.save("y.npy", rng.standard_normal((n, T)) if T > 1 else rng.standard_normal(n))
    columns = min(number(rng, 5, 1000), n)
    words = ["--targets", "y.npy", "--n-columns", str(columns), "--nu", str(rng.choice(["cv", "1", "0.1"]))]
    words += some(rng, 0.4, cv=(2, 5, 20), n_nus=(3, 20), refit=("active", "all", "best", "never"), holdout=(0, 0.3))
    words += some(
        rng, 0.3, columns=("rpcholesky",), standardize=(True,), solver=("active-set", "newton"), max_iter=(PASSES,)
    )
    if "newton" in words:
        words += ["--max-iter", str(PASSES)] if "--max-iter" not in words else []
        columns = min(columns, MOST_NEWTON)
        words[words.index("--n-columns") + 1] = str(columns)
    return words, f"{T} targets, {columns} kernel columns"


def logdet(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a LogDet kernel by labels or pairs, at several gamma."""
    k = min(number(rng, 2, 50), n // 4)
    y = rng.permutation(np.arange(n) % k)
    gammas = [f"--gamma={g}" for g in rng.choice([0.5, 1, 4, 16, 64, 128], int(rng.integers(6)), False)]
    words = ["--max-iter", "3", *gammas]
    if rng.random() < 0.5:
        np.save("y.npy", y)
        words += ["--targets", "y.npy"]
    else:
        write_pairs(rng, y, number(rng, 10, 2000))
        words += ["--pairs", "pairs.csv", "--loss", "itml"]
    words += some(rng, 0.3, holdout=(0, 0.3), n_neighbors=(5, 20), kernel=("linear", "laplacian"), standardize=(True,))
    return words, f"{k} classes, {len(gammas)} gammas"


def metric(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a LogDet metric by labels or pairs, at several gamma."""
    words, what = logdet(rng, n)
    words = [word for word in words if word not in ("linear", "laplacian", "--kernel", "--n-neighbors", "5", "20")]
    return words + some(rng, 0.3, prior=("covariance",)), what


def pairwise(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a kernel of pairs."""
    count = number(rng, 10, 20_000)
    write_pairs(rng, rng.integers(number(rng, 2, 30), size=n), count)
    words = [
        "--pairs",
        "pairs.csv",
        *some(rng, 0.7, rank=(2, 8, 40), gamma=(1, 10, 100, "cv"), cv=(2, 5), n_gammas=(2, 4)),
    ]
    words += some(rng, 0.4, solver=("admm", "factored"), max_iter=(3, 20), dtype=("float32",), holdout=(0, 0.3))
    return words + some(rng, 0.3, standardize=(True,), n_neighbors=(5, 20)), f"{count} pairs"


def basis(rng: Rng, n: int) -> list[str]:
    """Return options that both learners of smooth bases have."""
    words = ["--max-iter", str(rng.choice([4, 30])), "--n-basis", str(number(rng, 3, min(60, n // 2)))]
    return words + some(rng, 0.3, n_neighbors=(4, 15), holdout=(0,), standardize=(True,))


def mvu(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of an unfolding."""
    return basis(rng, n), ""


def laplacian(rng: Rng, n: int) -> tuple[list[str], str]:
    """Return options of a kernel of smooth functions."""
    write_pairs(rng, rng.integers(4, size=n), number(rng, 10, 2000))
    return ["--pairs", "pairs.csv", *basis(rng, n)], ""


TASKS: dict[str, Callable[[Rng, int], tuple[list[str], str]]] = {
    "svc": svc,
    "regression": regression,
    "logdet": logdet,
    "pairwise": pairwise,
    "mvu": mvu,
    "laplacian": laplacian,
    "metric": metric,
}
SHARES = (0.4, 0.25, 0.1, 0.15, 0.05, 0.05, 0.0)
"""Share of the points that each learner has; points of metrics are asked for by name, so that seeds keep their points."""
MOST_ROWS = {
    "svc": 3000,
    "regression": 5000,
    "logdet": 400,
    "pairwise": 3000,
    "mvu": 2000,
    "laplacian": 2000,
    "metric": 1000,
}


# -- points --------------------------------------------------------------------------------------------------------------


def least_limit(command: list[str]) -> tuple[int, int, int, str]:
    """Return (bytes that the last plan was given, its exit code, refusals, its message), each limit as the refusal before names it."""
    limit, refusals = 100_000_000, 0
    for _ in range(40):
        answer = call("plan", *command, "--memory-limit", limit)
        found = re.search(r"wanted:? (?:at least )?([\d.]+) (B|kB|MB|GB)", answer.err)
        if answer.code != 5 or found is None:
            return limit, answer.code, refusals, answer.err.strip() if answer.code else ""
        # A limit of three digits may be less than what it was rounded from: the same one is named again, and is no other refusal.
        named = int(float(found[1]) * UNIT[found[2]])
        refusals += named > limit
        limit = max(named, int(1.006 * limit)) if named <= limit else named
    return limit, 5, refusals, "no limit is enough"


def drawn(seed: int, task: str | None = None) -> Point:
    """Make the point of a seed in the working folder."""
    rng = np.random.default_rng([seed, 41])
    name = str(rng.choice(list(TASKS), p=SHARES))
    name = task or name
    d = number(rng, 2, 100_001)
    d = min(d, MOST_COLUMNS) if name == "metric" else d
    n = max(40, min(number(rng, 60, MOST_ROWS[name]), SIZE // (8 * d)))
    form = str(rng.choice(FORMS))
    options, what = TASKS[name](rng, n)
    X = np.clip(np.round(4 + 3 * rng.standard_normal((n, d), np.float32)), 0, 9).astype(float)
    command = [name, "--data", write_rows(X, form, "X"), *options, "--threads", "1", "--out", "run", "--no-picture"]
    what = f"{name} {n} x {d} {form} {what}: {' '.join(options)}"
    limit, code, refusals, refused = least_limit(command)
    if code:
        return Point(seed, what, limit, (), refused, refusals, code)
    bound = ["--memory-limit", str(limit)]
    fit = measured(["fit", *command, *bound], Path())
    ended, message, cpu = [("fit", fit.code, fit.peak)], fit.message, fit.cpu
    if fit.code in ENDS:
        verb = "predict" if name in ("svc", "regression") else "transform"
        other = write_rows(X[: max(3, n // 3)][::-1], form if form != ".svm" else "sparse.npz", "other")
        applied = [verb, "run", "--data", other, "--out", "p.npy", "--threads", "1", *bound]
        for each in (applied, ["verify", "run", *bound]):
            found = measured(each, Path())
            ended.append((each[0], found.code, found.peak))
            cpu += found.cpu
            message = found.message if found.code else message
    point = Point(seed, what, limit, tuple(ended), refusals=refusals, cpu=cpu)
    is_plain = point.is_right and all(code in ENDS for _, code, _ in ended)
    return point if is_plain else replace(point, message=message.replace("\n", " ")[-400:])


def in_a_folder(given: tuple[int, str | None]) -> Point:
    """Make the point in a temporary folder."""
    folder = tempfile.mkdtemp(prefix="limit-")
    try:
        with contextlib.chdir(folder):
            return drawn(*given)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def points(seeds: range, task: str | None, jobs: int) -> Iterator[Point]:
    """Yield the points of all seeds, as they come, made by `jobs` processes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        for ended in as_completed([pool.submit(in_a_folder, (seed, task)) for seed in seeds]):
            yield ended.result()


def of_points(seeds: range, task: str | None, jobs: int) -> int:
    """Print each point as it ends, those without a plan once more, and counts; return how many are not right."""
    counts: Counter[str] = Counter()
    largest, cpu, refused = 0.0, 0.0, []
    for point in points(seeds, task, jobs):
        counts["points"] += 1
        counts["with a plan"] += bool(point.ended)
        counts["not right"] += not point.is_right
        for verb, code, _ in point.ended:
            counts[f"{verb} {code}"] += 1
        counts["refused at a limit that was named"] += point.refusals > MOST_REFUSALS
        largest, cpu = max(largest, point.share), cpu + point.cpu
        print(point, flush=True)
        if not point.ended:
            refused.append(point)
    for point in refused:
        print("without a plan:", point)
    told = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    print(told, f"largest share {largest:.3f}, {cpu / 60:.0f} minutes of processor")
    return counts["not right"]


def of_bombs() -> int:
    """Print the result of each bomb; return how many took more than they may."""
    bad = 0
    with tempfile.TemporaryDirectory() as made:
        plain_inputs(Path(made))
        fitted(Path(made))
        for name in BOMBS:
            found = burst(name, Path(made))
            is_bad = found.peak > LIMIT + SPARE or found.cpu > SECONDS or found.code not in (2, 5, 6)
            bad += is_bad
            print(f"{name:34}{found.code:3}{found.peak / 1e6:7.0f} MB{found.cpu:7.2f} s{' !' * is_bad}", flush=True)
    print(f"{len(BOMBS)} bombs, {bad} that take more than they may")
    return bad


def main() -> int:
    """Make the trials that the command line asks for; return 1 if any is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--task", choices=list(TASKS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--bombs", action="store_true")
    given = parser.parse_args()
    if given.bombs:
        return int(of_bombs() > 0)
    return int(of_points(range(given.first_seed, given.first_seed + given.trials), given.task, given.jobs) > 0)


if __name__ == "__main__":
    sys.exit(main())
