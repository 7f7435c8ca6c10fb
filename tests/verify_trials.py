"""Random runs of every learner, over data and options, for `dkl verify`: it must agree, and see one changed number.

    python tests/verify_trials.py --trials 500 --learner logdet svc --first-seed 0

prints a line for each trial that fails, and a table of what the trials came to. Two processes by default; a seed and a learner
make the same run again.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.extend(map(str, [Path(__file__).parent, *(Path(__file__).parent / "support").iterdir()]))

from command_line import Answer, call
from learner_trials import options_of, print_table, trials

from dkl.estimators.base.rules import MATRIX_LOSSES, PAIR_LOSSES, TRIPLET_LOSSES

Rng = np.random.Generator
Rows = NDArray[np.float64]
Codes = NDArray[np.int64]

SEES = 1e-3
"""Relative change of one stored number that verify must see."""
REFUSED, DRAWS = 2, 30
"""Exit code of options that exclude each other, and how often others are drawn."""
WITH_CONSTRAINTS = 500
"""Seed from which constraint matrices, and hard pairs, are drawn, too: lower ones make the runs that they made before."""
SIZES, SMALL = (30, 100), (16, 30)
"""Least and largest number of rows, the latter not included; and those where a trial is to be quick."""
ENDS = (0, 3)
"""Exit codes of a fit that leaves a result: solved, or at its limit."""


@dataclass(frozen=True)
class Trial:
    """What one random run came to. fit, verify, changed: exit codes; verify and changed are None where the fit has left no result."""

    learner: str
    seed: int
    options: tuple[str, ...]
    fit: int
    verify: int | None = None
    changed: int | None = None
    what: str = ""
    message: str = ""

    @property
    def is_right(self) -> bool:
        """Whether a fit that has a result was found sound, and its changed copy was not."""
        return self.fit in ENDS and self.verify == 0 and self.changed in (6, None)


# -- data ------------------------------------------------------------------------------------------------------------------


def random_rows(rng: Rng, sizes: tuple[int, int]) -> tuple[Rows, Codes]:
    """Return rows (n, d) of a kind that people have, sizes[0] <= n < sizes[1], and a class of each."""
    n, d, k = int(rng.integers(*sizes)), int(rng.integers(1, 12)), int(rng.integers(2, 6))
    y = rng.permutation(np.arange(n) % k)
    X = rng.standard_normal((n, d)) + rng.uniform(0, 4) * rng.standard_normal((k, d))[y]
    kind = rng.choice(["as drawn", "whole numbers", "money", "far from 0", "copies", "tails", "counts", "tiny"])
    if kind == "whole numbers":
        X = np.round(2 * X) / 2
    elif kind == "money":
        X = X * 10.0 ** rng.uniform(-1, 6, d)
    elif kind == "far from 0":
        X = X + 10.0 ** rng.uniform(2, 6)
    elif kind == "copies":
        X = X[rng.integers(0, n // 2, n)]
    elif kind == "tails":
        X = X * np.abs(rng.standard_t(1.5, (n, 1)))
    elif kind == "counts":
        X = rng.poisson(np.exp(np.clip(X, -3, 3))).astype(float)
    elif kind == "tiny":
        X = X * 1e-6
    return X, y


def write_pairs(rng: Rng, y: Codes, path: Path) -> None:
    """Write n/4 to n pairs as CSV, up to a fifth of them wrong, some with weights."""
    count, wrong = int(rng.integers(len(y) // 4, len(y))), float(rng.choice([0.0, 0.0, 0.1, 0.2]))
    weighted = bool(rng.random() < 0.3)
    lines, seen = ["i,j,label,weight" if weighted else "i,j,label"], set()
    while len(seen) < count:
        i, j = sorted(rng.choice(len(y), 2, replace=False).tolist())
        if (i, j) not in seen:
            seen.add((i, j))
            says = (y[i] == y[j]) != (rng.random() < wrong)
            lines.append(
                f"{i},{j},{'must' if says else 'cannot'}" + (f",{rng.uniform(0.2, 3):.3f}" if weighted else "")
            )
    path.write_text("\n".join(lines) + "\n")


def write_triplets(rng: Rng, y: Codes, path: Path) -> None:
    """Write anchor, similar, other rows as CSV."""
    lines = ["anchor,similar,other"]
    for _ in range(int(rng.integers(10, 80))):
        a = int(rng.integers(len(y)))
        same, other = np.flatnonzero((y == y[a]) & (np.arange(len(y)) != a)), np.flatnonzero(y != y[a])
        lines.append(f"{a},{rng.choice(same)},{rng.choice(other)}")
    path.write_text("\n".join(lines) + "\n")


def write_constraints(rng: Rng, y: Codes, path: Path) -> None:
    """Write entries of symmetric matrices, of one entry to many, large and small, as CSV in any order."""
    n, lines = len(y), []
    for t in range(int(rng.integers(1, 60))):
        size = int(rng.choice([1, 2, 3, 20])) if rng.random() < 0.9 else n * n
        i, j = (ends.ravel() for ends in np.indices((n, n))) if size == n * n else rng.integers(0, n, (2, size))
        values = 10.0 ** rng.uniform(-2, 1) * rng.standard_normal(len(i)) + 0.1 * (y[i] == y[j])
        for a, b, value in zip(i, j, values, strict=True):
            lines += [f"{t},{a},{b},{float(value)!r}", f"{t},{b},{a},{float(value)!r}"]
    path.write_text("\n".join(["constraint,i,j,value", *rng.permutation(lines)]) + "\n")


# -- options -----------------------------------------------------------------------------------------------------------------


def chosen(rng: Rng, share: float = 0.35, **choices: tuple[Any, ...]) -> list[str]:
    """Return options with random values: each is given with probability `share`; True: a flag; None: left out."""
    words = []
    for name, values in choices.items():
        if rng.random() < share:
            value, option = values[int(rng.integers(len(values)))], "--" + name.replace("_", "-")
            words += [] if value is None else [option] if value is True else [option, str(value)]
    return words


STANDARDIZE = [["--standardize"], ["--no-standardize"], [], []]


def kernel_options(rng: Rng) -> list[str]:
    """Return a kernel of rows with its parameters, for supervised learners; by default the learner's own."""
    kernel = rng.choice(["rbf", "rbf", "laplacian", "linear", "poly", "cosine", "sigmoid"])
    words = ["--kernel", str(kernel)] if rng.random() < 0.5 else []
    if not words or kernel in ("rbf", "laplacian"):
        words += chosen(rng, gamma=(0.01, 0.1, 1.0))
    return words


def pairwise(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a fit of pairs."""
    write_pairs(rng, y, Path("pairs.csv"))
    words = ["--data", "X.npz", "--pairs", "pairs.csv"]
    words += chosen(rng, gamma=(1, 10, 100, 1000, "cv"), contradictions=("keep", "drop"), wrong_pairs=("find", "trust"))
    words += chosen(rng, rank=(2, 5, 12), solver=("admm", "factored"), n_neighbors=(5, 15), sigma=("local", 0.5, 2.0))
    words += chosen(rng, laplacian=("normalized", "unnormalized"), rho=(10, 1000), max_iter=(3, 50), tol=(1e-2, 1e-6))
    return words + chosen(
        rng, target_gap=("none", 1e-3, 0.1), holdout=(0, 0.2, 0.5), dtype=("float32",), seed=(1, 2, 3)
    )


def regression(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a regression; targets (n,) or (n, 2)."""
    T = np.sin(X @ rng.standard_normal(X.shape[1]) / (np.abs(X).max() or 1) * 5) + 0.3 * rng.standard_normal(len(y))
    T = T * 10.0 ** rng.uniform(-3, 5) + rng.choice([0.0, 1e3])
    np.savez("X.npz", X=X, y=T if rng.random() < 0.8 else np.stack([T, y.astype(float)], axis=1))
    words = ["--data", "X.npz", *kernel_options(rng)]
    words += chosen(rng, 0.9, n_columns=(5, 20, 60), n_nus=(5, 12)) + chosen(
        rng, columns=("rpcholesky",), no_intercept=(True,)
    )
    words += chosen(
        rng, dtype=("float32",), nu=(0.01, 0.1, 1.0, "cv"), lam=(0.1, 10.0), solver=("active-set", "exact", "newton")
    )
    words += chosen(rng, sampling=("greedy",), stopping=("gap", "paper"), tol=(1e-3, 1e-9), cv=(3, 10))
    if "exact" in words or "newton" in words:  # the default of 10,000 passes takes up to half a minute
        words += chosen(rng, 1.0, max_iter=(20, 200))
    else:
        words += chosen(rng, max_iter=(20, 10000))
    return words + chosen(rng, refit=("active", "all", "best", "never"), holdout=(0, 0.3), seed=(1, 2))


def svc(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a classifier."""
    words = ["--data", "X.npz", *kernel_options(rng)]
    words += chosen(
        rng, C=(0.01, 1, 100), rho=(0.1, 2.0, 100.0, "cv", "scale"), solver=("accelerated", "gradient", "level")
    )
    words += chosen(rng, multi_class=("ovr", "ovo"), class_weight=("balanced",), tol=(1e-2, 1e-4), max_iter=(5, 1000))
    return words + chosen(rng, holdout=(0, 0.3), dtype=("float32",))


def seed_of(rng: Rng) -> int:
    """Return the seed of a trial."""
    return int(rng.bit_generator.seed_seq.entropy[0])  # type: ignore[attr-defined]


def kind_of(rng: Rng) -> str:
    """Return what a LogDet learner learns from."""
    seed = seed_of(rng)
    kinds = ["labels", "labels", "triplets", "pairs"]
    return str(rng.choice(kinds if seed < WITH_CONSTRAINTS else ["constraints", *kinds[1:]]))


def logdet(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a LogDet kernel, from labels, triplets, pairs or constraints."""
    words, by = ["--data", "X.npz"], kind_of(rng)
    if by == "labels":
        np.savez("X.npz", X=X, y=np.where(rng.random(len(y)) < 0.5, y, -1))
        words += chosen(rng, n_in=(1, 3), n_out=(1, 3))
    if by == "triplets":
        write_triplets(rng, y, Path("triplets.csv"))
        words += ["--triplets", "triplets.csv"]
    if by == "pairs":
        write_pairs(rng, y, Path("pairs.csv"))
        words += ["--pairs", "pairs.csv", *chosen(rng, 1.0, loss=PAIR_LOSSES)]
    elif by == "constraints":
        write_constraints(rng, y, Path("constraints.csv"))
        words += ["--constraints", "constraints.csv", *chosen(rng, 0.7, loss=MATRIX_LOSSES)]
    else:
        words += chosen(rng, 0.5, loss=TRIPLET_LOSSES)
    words += [
        f"--gamma={g}" for g in sorted(rng.choice([0.1, 1.0, 4.0, 16.0, 64.0, 256.0], int(rng.integers(0, 3)), False))
    ]
    words += chosen(
        rng, kernel=("laplacian", "linear", "poly", "cosine", "rbf"), n_neighbors=(5, 12), whole_gamma=(True,)
    )
    words += chosen(
        rng, solver=("pcg", "direct"), tol=(1e-3, 1e-8), max_iter=(3, 100), holdout=(0, 0.3), n_components=(1, 5)
    )
    return words + chosen(rng, not_centered=(True,), contradictions=("keep", "drop"))


def metric(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a LogDet metric, from labels, triplets, pairs or constraints."""
    words, by = ["--data", "X.npz"], kind_of(rng)
    if by == "labels":
        np.savez("X.npz", X=X, y=np.where(rng.random(len(y)) < 0.5, y, -1))
        words += chosen(rng, n_in=(1, 3), n_out=(1, 3)) + chosen(rng, 0.5, loss=(*PAIR_LOSSES, *TRIPLET_LOSSES))
    if by == "triplets":
        write_triplets(rng, y, Path("triplets.csv"))
        words += ["--triplets", "triplets.csv", *chosen(rng, 1.0, loss=TRIPLET_LOSSES)]
    if by == "pairs":
        write_pairs(rng, y, Path("pairs.csv"))
        words += ["--pairs", "pairs.csv", *chosen(rng, 0.7, loss=PAIR_LOSSES)]
    if by == "constraints":
        write_constraints(rng, y, Path("constraints.csv"))
        words += ["--constraints", "constraints.csv", *chosen(rng, 1.0, loss=MATRIX_LOSSES)]
    gammas = sorted(rng.choice([0.1, 1.0, 4.0, 16.0, 64.0, 256.0], int(rng.integers(0, 3)), False))
    words += [f"--gamma={g}" for g in gammas]
    words += chosen(rng, prior=("covariance",), whole_gamma=(True,), contradictions=("keep", "drop"))
    words += chosen(rng, n_components=(1, 2, 5))
    return words + chosen(rng, solver=("pcg", "direct"), tol=(1e-3, 1e-8), max_iter=(3, 100), holdout=(0, 0.3))


def basis_options(rng: Rng) -> list[str]:
    """Return options that both learners of smooth bases have."""
    words = chosen(rng, n_neighbors=(4, 12), tol=(1e-3, 1e-9), max_iter=(5, 300), holdout=(0,))
    words += chosen(rng, 0.3, solver=("low-rank", "sqlp", "scsdp"))
    if "scsdp" in words:  # 24 eigenvectors take most of a minute
        return words + chosen(rng, 1.0, n_basis=(3, 6))
    return words + chosen(rng, n_basis=(3, 10, 25))


def mvu(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of an unfolding."""
    np.savez("X.npz", X=X, y=np.where(rng.random(len(y)) < 0.8, y, -1))
    words = [
        "--data",
        "X.npz",
        *chosen(rng, n_components=(1, 3)),
        *chosen(rng, 0.4, constraints=("hard", "hard", "at-most")),
    ]
    if "--constraints" in words:
        return words + chosen(rng, 0.5, n_neighbors=(2, 4, 12), tol=(1e-3, 1e-8), max_iter=(3, 30), holdout=(0,))
    return words + basis_options(rng) + chosen(rng, nu=(1.0, 100.0)) + chosen(rng, 0.3, colored=(True,))


def laplacian(rng: Rng, X: Rows, y: Codes) -> list[str]:
    """Return files and options of a kernel of smooth functions from pairs."""
    write_pairs(rng, y, Path("pairs.csv"))
    words = ["--data", "X.npz", "--pairs", "pairs.csv"]
    sigma: Any = {"sigma": ("local", 0.5, 2.0)}
    if seed_of(rng) >= WITH_CONSTRAINTS and rng.random() < 0.6:  # of weights it is refused, and drawn again
        words += ["--constraints", "hard", "--contradictions", "drop", *chosen(rng, **sigma)]
        return words + chosen(rng, 0.5, n_neighbors=(2, 4, 12), tol=(1e-3, 1e-8), max_iter=(3, 30), holdout=(0, 0.4))
    return words + basis_options(rng) + chosen(rng, **sigma, contradictions=("keep", "drop"))


LEARNERS: dict[str, Callable[[Rng, Rows, Codes], list[str]]] = {
    "pairwise": pairwise,
    "regression": regression,
    "svc": svc,
    "logdet": logdet,
    "metric": metric,
    "mvu": mvu,
    "laplacian": laplacian,
}
RESULTS = {
    "pairwise": ("factor",),
    "regression": ("model/weights", "model/intercepts", "model/kernel_weights"),
    "svc": ("model/coefficients", "model/intercepts"),
    "logdet": ("model/M", "model/multipliers", "model/weights"),
    "metric": ("model/components", "model/prior", "model/whole_components"),
    "mvu": ("model/Y", "model/embedding"),
    "laplacian": ("model/Y", "model/embedding"),
}
HARD = ("model/Q", "model/dual")
"""Others of runs whose constraints are hard."""
"""Stored numbers of which one is changed, for each learner.

Not what proves the level method's bound: any vectors prove one, and those that are off by 1e-3 one that is lower by some 1e-6.
Nor multipliers of a metric: those of constraints on equal rows, which no metric sees, are held by nothing (1 of 150 runs);
tests/cli/test_metric_commands.py changes others.
"""
ROUNDING = 1e-5
"""Intercepts that are smaller, beside scores of about 1, may be rounding."""


# -- trials ------------------------------------------------------------------------------------------------------------------


def change_one(rng: Rng, learner: str, run: Path) -> str | None:
    """Change the largest number of one stored array of the result by SEES; return which, or None where all are 0 or rounding."""
    from run_cases import change

    from dkl.stores.run import RunStore

    is_hard = (run / "model" / "Q").is_dir()
    for name in rng.permutation(RESULTS[learner] + (HARD if is_hard else ())):
        folder, _, key = str(name).partition("/")
        values = RunStore.open(run).read_arrays(folder).get(key) if key else None
        if key and values is None:  # of some runs alone
            continue
        least = ROUNDING if (learner, name) == ("svc", "model/intercepts") else 0.0
        if values is None or (values.size and np.abs(values).max() > least):
            change(run, str(name), SEES)
            return str(name)
    return None


def fitted(rng: Rng, learner: str, sizes: tuple[int, int]) -> tuple[list[str], Answer]:
    """Return the options of a random fit in the working folder, and its answer; options that exclude each other are drawn again."""
    for _ in range(DRAWS):
        X, y = random_rows(rng, sizes)
        np.savez("X.npz", X=X, y=y)
        options = LEARNERS[learner](rng, X, y) + STANDARDIZE[int(rng.integers(len(STANDARDIZE)))]
        answer = call("fit", learner, *options, "--out", "run.zarr", "--no-picture")
        if answer.code != REFUSED:
            break
    return options, answer


def trial(learner: str, seed: int, sizes: tuple[int, int] = SIZES) -> Trial:
    """Fit one random run in the working folder, verify it, change one number, verify it again."""
    rng = np.random.default_rng([seed, *learner.encode()])
    options, fit = fitted(rng, learner, sizes)
    made = {"learner": learner, "seed": seed, "options": tuple(options), "fit": fit.code}
    if fit.code not in ENDS:
        return Trial(**made, message=last_line(fit))
    verified = call("verify", "run.zarr")
    if verified.code != 0:
        return Trial(**made, verify=verified.code, message=last_line(verified))
    what = change_one(rng, learner, Path("run.zarr"))
    if what is None:
        return Trial(**made, verify=0)
    changed = call("verify", "run.zarr")
    return Trial(**made, verify=0, changed=changed.code, what=what, message=last_line(changed))


def last_line(answer: Answer) -> str:
    """Return the last line of stderr, or of stdout where that is empty."""
    return ((answer.err or answer.out).strip().splitlines() or [""])[-1]


def in_a_folder(learner: str, seed: int, sizes: tuple[int, int] = SIZES) -> Trial:
    """Make the trial in a temporary folder."""
    folder = tempfile.mkdtemp(prefix="verify-")
    try:
        with chdir(folder):
            return trial(learner, seed, sizes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Make the trials that the command line asks for; return 1 if any is wrong."""
    options = options_of(__doc__, list(LEARNERS), 500)
    counts: dict[str, Counter[str]] = {name: Counter() for name in options.learner}
    for one in trials(in_a_folder, options):
        count = counts[one.learner]
        count[f"fit {one.fit}"] += 1
        count["agree"] += one.verify == 0
        count["changed, seen"] += one.changed == 6
        count["wrong"] += not one.is_right
        if not one.is_right or one.fit not in ENDS:
            print(
                one.learner, one.seed, (one.fit, one.verify, one.changed), one.what, one.message, " ".join(one.options)
            )
            sys.stdout.flush()
    print_table(counts)
    return int(any(count["wrong"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
