"""Tables 2 and 3 of Machart et al. (2011): kernel regression on learned columns beside the paper's, and its baselines.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_tables [--sets sinc,boston,abalone,usps] [--runs 20] [--protocol splits]

Kernel exp(-|x - x'|^2 / (2 sigma^2)) with the widths of the paper's table 1, lambda = 1, features with mean 0 and variance
1 on the training rows (sinc and USPS as they are), a constant fitted unless --raw-targets. Run s has random_state s
for everything that is drawn, from 0. --protocol splits: a new split (for sinc: new data) each run; columns: the split of
run 0 throughout, and new columns each run, as in the paper; USPS has one split.

Mean square error on the test rows, or on USPS the number of test errors of the sign (targets -1 and +1), mean and deviation
over the runs. m0: columns with a weight. --conventions: what else the paper's protocol may mean, on the baselines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import StandardScaler

from dkl import LowRankKernelRegressor
from dkl.baselines import KernelRidgeRegressor, NystromRegressor, UniformWeightsRegressor
from dkl.datasets import load

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Split:
    """Training and test rows."""

    X: Rows
    y: Rows
    X_test: Rows
    y_test: Rows


def sinc(seed: int, options: argparse.Namespace) -> Split:
    """sin|x| / |x| on [-5, 5]^2; noise on the 1000 training targets, none on the 1000 others."""
    stream = np.random.default_rng(seed)
    X = stream.uniform(-5, 5, (2000, 2))
    y = np.sinc(np.linalg.norm(X, axis=1) / np.pi)
    power = 1.0 if options.unit_signal else float(np.mean(y[:1000] ** 2))
    noise = stream.normal(scale=np.sqrt(power / 10), size=1000)  # 10 dB below the signal's power
    return Split(X[:1000], y[:1000] + noise, X[1000:], y[1000:])


def drawn(name: str, n_train: int) -> Callable[[int, argparse.Namespace], Split]:
    """A random split, standardised by its training rows."""

    def split(seed: int, options: argparse.Namespace) -> Split:
        data = load(name)
        order = np.random.default_rng(seed).permutation(len(data.y))
        train, test = order[:n_train], order[n_train:]
        scaler = StandardScaler().fit(data.X[train])
        return Split(scaler.transform(data.X[train]), data.y[train], scaler.transform(data.X[test]), data.y[test])

    return split


def usps(seed: int, options: argparse.Namespace) -> Split:
    """One digit against all others, on the set's own split."""
    data = load("usps")
    assert data.y_test is not None and data.classes is not None
    train, test = (np.where(labels == options.digit, 1.0, -1.0) for labels in (data.y, data.y_test))
    X, X_test = data.X.astype(float), data.X_test.astype(float)
    if options.pixels == "unit":  # [-1, 1] to [0, 1]
        X, X_test = (X + 1) / 2, (X_test + 1) / 2
    if options.pixels == "norm":
        X, X_test = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (X, X_test))
    return Split(X, train, X_test, test)


@dataclass(frozen=True)
class Task:
    """A column of the paper's tables: how it is split, sigma^2, M, and what the paper has: (mean, deviation) by method, m0."""

    split: Callable[[int, argparse.Namespace], Split]
    width: float
    counts: tuple[int, ...]
    paper: dict[str, tuple[tuple[float, float] | None, ...]]
    paper_m0: tuple[int | None, ...]


TASKS = {
    "sinc": Task(
        sinc,
        1.0,
        (256, 512, 1000),
        {
            "KRR_n": ((0.0099, 0.0),) * 3,
            "KRR_M": ((0.0146, 1e-3), (0.0124, 7e-4), (0.0099, 0.0)),
            "Unif": ((0.0124, 1e-4), (0.0124, 3e-5), (0.0124, 0.0)),
            "SLKL": ((0.0106, 4e-4), (0.0103, 2e-4), (0.0104, 1e-4)),
        },
        (83, 108, 139),
    ),
    "boston": Task(
        drawn("boston_housing", 350),
        3.25,
        (128, 256, 350),
        {
            "KRR_n": ((10.17, 0.0),) * 3,
            "KRR_M": ((33.27, 7.8), (16.89, 3.27), (10.17, 0.0)),
            "Unif": ((149.7, 5.57), (147.84, 2.24), (147.72, 0.0)),
            "SLKL": ((20.17, 2.3), (13.1, 0.87), (11.43, 0.06)),
        },
        (108, 161, 184),
    ),
    "abalone": Task(
        drawn("abalone_onehot", 3000),
        2.5,
        (512, 1024, 3000),
        {
            "KRR_n": ((6.91, 0.0),) * 3,
            "KRR_M": ((6.14, 0.25), (5.51, 0.09), (5.25, 0.0)),
            "Unif": ((10.04, 0.17), (9.96, 0.06), (9.99, 0.0)),
            "SLKL": ((5.04, 0.08), (4.94, 0.03), (4.95, 0.004)),
        },
        (None, None, 253),
    ),
    "usps": Task(
        usps,
        64.0,
        (64, 256, 1024),
        {
            "Nyst": ((101.3, 22.9), (34.5, 3.0), (35.9, 2.0)),
            "SLKL": ((76.3, 9.9), None, (41.5, 3.9)),
        },
        (61, None, 515),
    ),
}
"""None: not legible in the copy at hand."""

Result = tuple[float, float]
"""Error and m0."""


@dataclass(frozen=True)
class Method:
    """A line of the table. every_m: whether it depends on M; paper: the paper's line that it stands beside."""

    make: Callable[..., Any]
    paper: str
    every_m: bool = True


def slkl(nu: Any, columns: str = "uniform") -> Callable[..., Any]:
    def make(M: int, **shared: Any) -> LowRankKernelRegressor:
        return LowRankKernelRegressor(nu=nu, n_columns=M, columns=columns, **shared)

    return make


def tuned(M: int, **shared: Any) -> GridSearchCV:
    """scikit-learn's kernel ridge regression on all rows, lambda and width by cross-validation."""
    grid = {"alpha": np.logspace(-3, 1, 5), "gamma": shared["gamma"] * np.logspace(-1, 0.5, 4)}
    return GridSearchCV(KernelRidge(kernel="rbf"), grid, scoring="neg_mean_squared_error")


REGRESSION = {
    "KRR_n": Method(lambda M, **shared: KernelRidgeRegressor(**shared), "KRR_n", every_m=False),
    "KRR_M": Method(lambda M, **shared: KernelRidgeRegressor(n_columns=M, **shared), "KRR_M"),
    "Unif, mu = 1/M": Method(lambda M, **shared: UniformWeightsRegressor(mu="mean", n_columns=M, **shared), "Unif"),
    "Unif, mu = 1": Method(lambda M, **shared: UniformWeightsRegressor(mu=1.0, n_columns=M, **shared), "Unif"),
    "Nystrom": Method(lambda M, **shared: NystromRegressor(n_columns=M, **shared), ""),
    "SLKL, nu = cv": Method(slkl("cv"), "SLKL"),
    "SLKL, nu = 1": Method(slkl(1.0), "SLKL"),
    "SLKL, nu = 0.1": Method(slkl(0.1), "SLKL"),
    "SLKL, nu = 0.01": Method(slkl(0.01), "SLKL"),
    "SLKL, nu = cv, rpcholesky": Method(slkl("cv", "rpcholesky"), "SLKL"),
    "KRR_n, tuned": Method(tuned, "", every_m=False),
}

CLASSIFICATION = {
    "Nystrom": Method(lambda M, **shared: NystromRegressor(n_columns=M, **shared), "Nyst"),
    "Nystrom, lambda = 1e-3": Method(lambda M, **shared: NystromRegressor(lam=1e-3, n_columns=M, **shared), "Nyst"),
    **{name: method for name, method in REGRESSION.items() if name.startswith("SLKL")},
}


def error(name: str, data: Split, found: Rows, options: argparse.Namespace) -> float:
    """Mean square error, or on USPS errors of the sign."""
    if name != "usps":
        return float(np.mean((found - data.y_test) ** 2))
    thresholds = np.linspace(-0.6, 0.6, 25) if options.best_threshold else np.zeros(1)
    return float(min(np.count_nonzero((found > threshold) != (data.y_test > 0)) for threshold in thresholds))


def run(name: str, method: Method, M: int, seed: int, options: argparse.Namespace) -> Result:
    """One fit. `GridSearchCV` gets centred targets, for scikit-learn's kernel ridge has no constant."""
    data = TASKS[name].split(seed if options.protocol == "splits" else 0, options)
    gamma = options.gamma_factor / (2 * TASKS[name].width)
    if method.make is tuned:
        middle = data.y.mean()
        found = tuned(M, gamma=gamma).fit(data.X, data.y - middle).predict(data.X_test) + middle
        return error(name, data, found, options), len(data.y)
    model = method.make(M, gamma=gamma, fit_intercept=not options.raw_targets, random_state=seed, n_jobs=1)
    model.fit(data.X, data.y)
    return error(name, data, model.predict(data.X_test), options), model.n_active_


def lines(name: str, options: argparse.Namespace) -> dict[str, Method]:
    """The methods asked for."""
    known = CLASSIFICATION if name == "usps" else REGRESSION
    wanted = options.methods.split(";") if options.methods else list(known)
    return {line: known[line] for line in wanted if line in known}


def repeats(name: str, line: str, options: argparse.Namespace) -> int:
    """As many runs as asked for, but where all would be the same; and no more than `--slow-runs` of what takes minutes."""
    chooses = REGRESSION.get(line, CLASSIFICATION.get(line))
    assert chooses is not None
    if options.protocol == "columns" and name != "usps" and not chooses.every_m:
        return 1
    slow = name == "abalone" and chooses.make is tuned
    return min(options.runs, options.slow_runs) if slow else int(options.runs)


def table(name: str, options: argparse.Namespace) -> Iterator[str]:
    """Markdown, line by line: ours over the runs, with m0, and the paper's line behind each."""
    task = TASKS[name]
    yield f"| {name} | " + " | ".join(f"M = {M} | m0 | paper" for M in task.counts) + " | s |"
    yield "|---|" + "---|" * (3 * len(task.counts) + 1)
    for label, method in lines(name, options).items():
        start, cells, found = time.process_time(), [], None
        for k, M in enumerate(task.counts):
            if method.every_m or found is None:
                count = repeats(name, label, options)
                found = np.array([run(name, method, M, seed, options) for seed in range(count)])
            cells.append(_cell(found, name) + " | " + _papers(task, method.paper, k, name))
        yield f"| {label} | " + " | ".join(cells) + f" | {time.process_time() - start:.0f} |"


def _cell(found: Rows, name: str) -> str:
    errors, m0 = found.T
    deviation = errors.std(ddof=1) if len(errors) > 1 else 0.0
    runs = f" ({len(errors)})" if len(errors) > 1 else ""
    return f"{_pair(errors.mean(), deviation, name)}{runs} | {m0.mean():.0f}"


def _papers(task: Task, line: str, k: int, name: str) -> str:
    known = task.paper.get(line, (None,) * len(task.counts))[k]
    if known is None:
        return "lost" if line in task.paper else ""
    m0 = f", {task.paper_m0[k]}" if line == "SLKL" and task.paper_m0[k] else ""
    return f"{_pair(*known, name)}{m0}"


def _pair(mean: float, deviation: float, name: str) -> str:
    digits = {"sinc": 5, "usps": 1}.get(name, 2)
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def conventions(options: argparse.Namespace) -> Iterator[str]:
    """The baselines under each reading of the width and of the targets: which one do the paper's figures go with?"""
    yield "| set | kernel | targets | KRR_n: mean ± dev. (least) | paper | KRR_M, least M | paper | Unif 1/M | paper |"
    yield "|---|---|---|---|---|---|---|---|---|"
    names = [name for name in options.sets.split(",") if name != "usps"]
    for name in names:
        task = TASKS[name]
        M = task.counts[0]
        for options.gamma_factor, kernel in ((1.0, "exp(-d^2 / 2 sigma^2)"), (2.0, "exp(-d^2 / sigma^2)")):
            for options.raw_targets, targets in ((True, "as they are"), (False, "centred")):
                cells = []
                for label in ("KRR_n", "KRR_M", "Unif, mu = 1/M"):
                    method = REGRESSION[label]
                    errors = np.array([run(name, method, M, seed, options)[0] for seed in range(options.runs)])
                    least = f" ({errors.min():.{5 if name == 'sinc' else 2}f})" if label == "KRR_n" else ""
                    known = task.paper[method.paper][0]
                    assert known is not None
                    cells += [_pair(errors.mean(), errors.std(ddof=1), name) + least, _pair(*known, name)]
                yield f"| {name} | {kernel} | {targets} | " + " | ".join(cells) + " |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(TASKS), help="names, separated by commas")
    parser.add_argument("--methods", help="names of lines, separated by semicolons; default: all")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--slow-runs", type=int, default=5, help="of scikit-learn's search on abalone")
    parser.add_argument("--protocol", default="splits", choices=("splits", "columns"))
    parser.add_argument("--raw-targets", action="store_true", help="no constant is fitted")
    parser.add_argument("--gamma-factor", type=float, default=1.0, help="2 is the kernel exp(-|x - x'|^2 / sigma^2)")
    parser.add_argument("--unit-signal", action="store_true", help="sinc: noise of variance 0.1, 10 dB below 1")
    parser.add_argument("--digit", type=int, default=4, help="USPS: the digit told from all others")
    parser.add_argument(
        "--best-threshold", action="store_true", help="USPS: the best on the test rows, which is cheating"
    )
    parser.add_argument("--pixels", default="raw", choices=("raw", "unit", "norm"), help="[-1, 1], [0, 1], norm 1")
    parser.add_argument("--conventions", action="store_true", help="instead of the tables")
    options = parser.parse_args()
    if unknown := set(options.sets.split(",")) - set(TASKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(TASKS)}")
    if options.methods and (unknown := set(options.methods.split(";")) - {*REGRESSION, *CLASSIFICATION}):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {'; '.join({**REGRESSION, **CLASSIFICATION})}")
    return options


def main() -> None:
    options = arguments()
    if options.conventions:
        print("\n".join(conventions(options)))
        return
    for name in options.sets.split(","):
        for text in table(name, options):
            print(text, flush=True)
        print()


if __name__ == "__main__":
    main()
