"""Tables and figures of SLKL (Machart et al. 2011).

Kernel exp(-|x - x'|^2 / (2 sigma^2)) with the widths of the paper's table 1, lambda = 1, features with mean 0 and variance 1 on
the training rows (sinc and USPS as they are), a constant fitted. Draw s has seed s for split, noise and columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from dkl.baselines import (
    FirstOrderRegressor,
    KernelRidgeRegressor,
    NystromClassifier,
    NystromRegressor,
    UniformWeightsRegressor,
)
from dkl.datasets import load
from dkl.estimators.regression.learner import LowRankKernelRegressor
from dkl.reproduce.item import Axes, Case, Effort, Item, Measured, Published
from dkl.reproduce.oriented_gradients import oriented_gradients

Rows = NDArray[np.floating]
Figures = tuple[Published | None, ...]
DIGIT = 4
"""Digit of USPS that is separated from all others."""


@dataclass(frozen=True)
class Split:
    """Training and test rows with their targets."""

    X: Rows
    y: Rows
    X_test: Rows
    y_test: Rows


def sinc(seed: int) -> Split:
    """Draw sin|x| / |x| on [-5, 5]^2: 1000 training targets with noise of 10 dB below the signal's power, 1000 others without."""
    stream = np.random.default_rng(seed)
    X = stream.uniform(-5, 5, (2000, 2))
    # NumPy's sinc is sin(pi x) / (pi x).
    y = np.sinc(np.linalg.norm(X, axis=1) / np.pi)
    # 10 dB are a factor of ten in power.
    noise = stream.normal(scale=np.sqrt(float(np.mean(y[:1000] ** 2)) / 10), size=1000)
    return Split(X[:1000], y[:1000] + noise, X[1000:], y[1000:])


def drawn(name: str, n_train: int, seed: int) -> Split:
    """Draw a split of a set, standardized by its training rows."""
    data = load(name)
    order = np.random.default_rng(seed).permutation(len(data.y))
    train, test = order[:n_train], order[n_train:]
    # By training rows alone: the test rows are to be unseen.
    scaler = StandardScaler().fit(data.X[train])
    return Split(scaler.transform(data.X[train]), data.y[train], scaler.transform(data.X[test]), data.y[test])


def usps(seed: int) -> Split:
    """Return one digit of USPS against all others, on the set's own split."""
    data = load("usps")
    train, test = (np.where(labels == DIGIT, 1.0, -1.0) for labels in (data.y, np.asarray(data.y_test)))
    return Split(data.X.astype(float), train, data.X_test.astype(float), test)


@dataclass(frozen=True)
class Task:
    """A set of the tables: its split, sigma^2, numbers of columns M, the paper's errors by method and M, and its m0."""

    split: Callable[[int], Split]
    width: float
    counts: tuple[int, ...]
    paper: dict[str, Figures]
    m0: tuple[int | None, ...]


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
    "boston_housing": Task(
        partial(drawn, "boston_housing", 350),
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
    "abalone_onehot": Task(
        partial(drawn, "abalone_onehot", 3000),
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
        {"Nyst": ((101.3, 22.9), (34.5, 3.0), (35.9, 2.0)), "SLKL": ((76.3, 9.9), None, (41.5, 3.9))},
        (61, None, 515),
    ),
}
"""None: not legible in the copy at hand."""


def slkl(M: int, **shared: Any) -> LowRankKernelRegressor:
    """Return the paper's learner: the lasso on M columns, nu by cross-validation over the training rows."""
    return LowRankKernelRegressor(nu="cv", refit="never", n_columns=M, standardize=False, holdout=0, **shared)


def with_refit(M: int, **shared: Any) -> LowRankKernelRegressor:
    """Return the learner with its default refit: a ridge if it is better on rows held out of the training rows."""
    return LowRankKernelRegressor(nu="cv", n_columns=M, standardize=False, holdout=0, **shared)


VARIANCES = {"rows": (0.3, 1.0, 3.0, 10.0), "columns": (10.0, 100.0, 1000.0)}
"""Variances of a Gaussian process' prior, by what new rows are compared with."""


@dataclass(frozen=True)
class ByHeldOutRows:
    """Nystrom classifier on M columns, with the variance of fewest errors on a fifth of the rows, held out; the least of equals."""

    M: int
    extension: str
    shared: dict[str, Any]

    def fit(self, X: Rows, y: Rows) -> NystromClassifier:
        """Return the classifier fitted to all rows X (n, d) and labels y (n,)."""
        settings = {"n_columns": self.M, "extension": self.extension, "standardize": False, **self.shared}
        rows, held, labels, wanted = train_test_split(X, y, test_size=0.2, random_state=self.shared["random_state"])
        made = [NystromClassifier(variance=variance, **settings) for variance in VARIANCES[self.extension]]
        best = min(made, key=lambda model: np.count_nonzero(model.fit(rows, labels).predict(held) != wanted))
        # Again, on all rows: `best` has seen four fifths.
        return best.fit(X, y)


METHODS: dict[str, tuple[Callable[..., Any], str]] = {
    "SLKL": (slkl, "SLKL"),
    "SLKL, refit": (with_refit, "SLKL"),
    "KRR_n": (lambda M, **shared: KernelRidgeRegressor(**shared), "KRR_n"),
    "KRR_M": (lambda M, **shared: KernelRidgeRegressor(n_columns=M, **shared), "KRR_M"),
    "Unif, mu = 1/M": (lambda M, **shared: UniformWeightsRegressor(mu="mean", n_columns=M, **shared), "Unif"),
    "Nystrom": (lambda M, **shared: NystromRegressor(n_columns=M, **shared), "Nyst"),
    "Nystrom classifier": (lambda M, **shared: ByHeldOutRows(M, "rows", shared), "Nyst"),
    "Nystrom classifier, on columns": (lambda M, **shared: ByHeldOutRows(M, "columns", shared), "Nyst"),
}
"""Method and the paper's that it is compared with."""


def errors(name: str, method: str, place: int, draws: int) -> Measured:
    """Measure mean square errors on the test rows; on USPS the numbers of wrong signs."""
    task, (make, _) = TASKS[name], METHODS[method]
    found, active = [], []
    for seed in range(draws):
        split = task.split(seed)
        # The paper's kernel is exp(-d^2 / (2 sigma^2)), scikit-learn's exp(-gamma d^2).
        model = make(task.counts[place], gamma=1 / (2 * task.width), random_state=seed, n_jobs=1).fit(split.X, split.y)
        apart = model.predict(split.X_test)
        wrong = (apart > 0) != (split.y_test > 0) if name == "usps" else (apart - split.y_test) ** 2
        found.append(float(wrong.sum() if name == "usps" else wrong.mean()))
        active.append(model.n_columns_ if isinstance(model, NystromClassifier) else model.n_active_)
    m0 = task.m0[place] if method.startswith("SLKL") else None
    return Measured(found, {"m0": float(np.mean(active)), "the paper's m0": "" if m0 is None else m0})


def table(names: tuple[str, ...], methods: tuple[str, ...], effort: Effort) -> list[Case]:
    """Return a case a set, number of columns and method; quick: the fewest columns of the first set."""
    quick = effort.quick
    return [
        Case({"set": name, "M": f"{M:,}", "method": method},
             partial(errors, name, method, place, effort.count(5 if M == 3000 or (M == 1024 and "classifier" in method) else 20)),
             TASKS[name].paper.get(METHODS[method][1], (None,) * 3)[place])
        for name in (names[:1] if quick else names)
        for place, M in enumerate(TASKS[name].counts[: 1 if quick else None])
        for method in methods
    ]  # fmt: skip


@lru_cache
def paths(M: int, nu: float, draws: int) -> list[list[dict[str, Any]]]:
    """Return the histories of the paper's Algorithm 2 on sinc, by draw."""
    found = []
    for seed in range(draws):
        split = sinc(seed)
        model = LowRankKernelRegressor(
            nu=nu, n_columns=M, gamma=0.5, solver="paper", stopping="paper", tol=1e-4, standardize=False, holdout=0,
            max_iter=100 * M, random_state=seed, n_jobs=1,
        )  # fmt: skip
        found.append(list(model.fit(split.X, split.y).result_.history))
    return found


def by_step(column: str, M: int, draws: int) -> Measured:
    """Measure a column of the histories at the end."""
    runs = [[row for row in history if column in row] for history in paths(M, 0.01, draws)]
    curves = {
        f"run {k}": ([row["iteration"] for row in run], [row[column] for row in run]) for k, run in enumerate(runs)
    }
    return Measured(
        [run[-1][column] for run in runs], {"steps": float(np.mean([run[-1]["iteration"] for run in runs]))}, curves
    )


def steps(column: str, effort: Effort) -> list[Case]:
    """Return the case of figures 1 and 3."""
    M = 200 if effort.quick else 1000
    return [Case({"set": f"sinc, M = {M:,}, nu = 0.01"}, partial(by_step, column, M, effort.count(20)))]


RIVALS = {"coordinate descent, constant steps": "coordinate", "projected gradients": "projected"}


def rival(solver: str, M: int, draws: int) -> Measured:
    """Measure the objective of a gradient method after as many derivatives as SLKL took."""
    values, curves, above = [], {}, []
    for seed, history in enumerate(paths(M, 0.01, draws)):
        split, derivatives = sinc(seed), int(history[-1]["iteration"])
        shared: dict[str, Any] = {"nu": 0.01, "n_columns": M, "gamma": 0.5, "standardize": False, "random_state": seed,
                                  "n_jobs": 1}  # fmt: skip
        # tol=0: both spend all derivatives that SLKL took, and the objectives are compared at equal cost.
        model = FirstOrderRegressor(solver=solver, tol=0.0, max_iter=derivatives // M, **shared).fit(split.X, split.y)
        least = LowRankKernelRegressor(refit="never", holdout=0, **shared).fit(split.X, split.y).objective_
        rows = model.history_[0]
        curves[f"run {seed}"] = [row["iteration"] for row in rows], [row["objective"] for row in rows]
        values.append(rows[-1]["objective"])
        above.append(100 * (values[-1] / least - 1))
    return Measured(
        values, {"steps": float(curves["run 0"][0][-1]), "above the least, %": float(np.mean(above))}, curves
    )


def gradient_methods(effort: Effort) -> list[Case]:
    """Return the case of SLKL, and one of each gradient method."""
    M, draws = 200 if effort.quick else 1000, effort.count(5)
    work = {name: partial(rival, solver, M, draws) for name, solver in RIVALS.items()}
    return [
        Case({"set": f"sinc, M = {M:,}, nu = 0.01", "method": name}, one)
        for name, one in {"SLKL": partial(by_step, "objective", M, draws), **work}.items()
    ]


NUS = (1.0, 0.1, 0.01, 0.001)


def sparsity(nu: float, counts: tuple[int, ...], draws: int) -> Measured:
    """Measure m0 at the optimum by the number of columns."""
    split = [sinc(seed) for seed in range(draws)]
    means = []
    for M in counts:
        models = [LowRankKernelRegressor(nu=nu, n_columns=M, gamma=0.5, refit="never", standardize=False, holdout=0,
                                         random_state=seed, n_jobs=1) for seed in range(draws)]  # fmt: skip
        active = [float(model.fit(one.X, one.y).n_active_) for model, one in zip(models, split, strict=True)]
        means.append(float(np.mean(active)))
    return Measured(active, {f"at M = {counts[0]}": means[0]}, {"": (counts, means)})


def figure2(effort: Effort) -> list[Case]:
    """Return a case a nu."""
    counts = (100, 200, 400) if effort.quick else (100, 200, 400, 600, 800, 1000)
    return [Case({"set": "sinc", "nu": f"nu = {nu:g}"}, partial(sparsity, nu, counts, effort.count(20))) for nu in NUS]


ALPHAS = tuple(np.geomspace(1e-3, 1e-6, 7))
"""sqrt(nu) / n of MNIST, which goes over to another n."""


@lru_cache(maxsize=1)
def gradients(count: int) -> Split:
    """Return the oriented gradients of MNIST's first training images and of its test images, with their digits."""
    data = load("mnist")
    test, digits = np.asarray(data.X_test), np.asarray(data.y_test)
    return Split(oriented_gradients(data.X[:count]), data.y[:count], oriented_gradients(test), digits)


def wrong(scores: Rows, labels: Rows) -> float:
    """Return the errors in % where the largest of ten scores is taken."""
    return 100 * float(np.mean(scores.argmax(axis=1) != labels))


def digits(count: int, M: int, draws: int) -> Measured:
    """Measure the errors of ten outputs on the test images, nu chosen by a sixth of the training images."""
    data, kept, gamma = gradients(count), count - count // 6, 1 / (2 * 4.0)
    signs = np.where(data.y[:, None] == np.arange(10), 1.0, -1.0)
    found, chosen, active = [], [], []
    for seed in range(draws):
        # Of the rows that are fitted in the search of nu: the same columns then serve the fit on all rows.
        columns = np.random.default_rng(seed).choice(kept, M, replace=False)
        make = partial(LowRankKernelRegressor, gamma=gamma, columns=columns, refit="never", dtype="float32", tol=1e-4,
                       standardize=False, holdout=0, random_state=seed, n_jobs=1)  # fmt: skip
        path = make().path(data.X[:kept], signs[:kept], [(alpha * kept) ** 2 for alpha in ALPHAS])
        held = rbf_kernel(data.X[kept:], data.X[columns], gamma=gamma)
        errors = [wrong(held @ w.T + b, data.y[kept:]) for w, b in zip(path.weights, path.intercepts, strict=True)]
        # nu grows with n^2 at the same sparsity: scaled from the kept rows to all.
        chosen.append((ALPHAS[int(np.argmin(errors))] * count) ** 2)
        model = make(nu=chosen[-1]).fit(data.X, signs)
        found.append(wrong(model.predict(data.X_test), data.y_test))
        active.append(float(np.count_nonzero(model.weights_, axis=1).mean()))
    return Measured(found, {"median nu": float(np.median(chosen)), "m0 of an output": float(np.mean(active))})


def mnist(effort: Effort) -> list[Case]:
    """Return the case of MNIST; the paper says around 2 %."""
    count, M = (6000, 200) if effort.quick else (60_000, 1000)
    labels = {"set": f"MNIST, {count:,} images, M = {M:,}"}
    return [Case(labels, partial(digits, count, M, effort.count(3, 1)), (2.0, None))]


TABLE2, TABLE3 = ("boston_housing", "sinc", "abalone_onehot"), ("usps",)
NYSTROM = ("Nystrom", "Nystrom classifier", "Nystrom classifier, on columns")
RIDGES = ("KRR_n", "KRR_M", "Unif, mu = 1/M", "Nystrom")
PROTOCOL = (
    "widths of the paper's table 1, lambda = 1, nu by 5-fold cross-validation over the training rows; a new split (for "
    "sinc: new data) and new columns each draw, where the paper has its partitions and new columns"
)
PRINTED = "sinc with the width of table 1, lambda = 1; Algorithm 2 with the paper's stop, epsilon = 1e-4"
ITEMS = (
    Item(
        "slkl-table2", "table 2", "errors of kernel regression on learned columns", "mean square error on the test rows",
        partial(table, TABLE2, ("SLKL", "SLKL, refit", *RIDGES)), TABLE2, TABLE2[:1],
        f"{PROTOCOL}; 5 draws at M = 3,000. \"refit\": the learner's default.", digits=4, tested="method", own="SLKL",
    ),
    Item(
        "slkl-table3", "table 3", "errors of one digit of USPS against the others", "number of errors on the 2,007 test images",
        partial(table, TABLE3, ("SLKL", "SLKL, refit", *NYSTROM)), TABLE3, TABLE3,
        f"widths of the paper's table 1, lambda = 1, nu by 5-fold cross-validation over the training rows; "
        f"digit {DIGIT}, new columns each draw. \"Nystrom classifier\" is that of Williams and Seeger, its prior's variance (0.3, 1, 3 "
        f"or 10; on columns 10, 100 or 1,000) of the fewest errors on a fifth of the training rows, held out. It compares new rows with "
        f"all training rows, \"on columns\" with the M drawn alone; 5 draws at M = 1,024. \"Nystrom\" is least squares.",
        digits=1, tested="method", own="SLKL",
    ),
    Item(
        "slkl-figure1", "figure 1", "objective by step, every run", "objective at the stop", partial(steps, "objective"),
        ("sinc",), ("sinc",), PRINTED, digits=4, axes=Axes("step", "objective (14)"),
    ),
    Item(
        "slkl-gradients", "section 3.1", "objective of SLKL, and of gradient methods after as many derivatives", "objective at the end",
        gradient_methods, ("sinc",), ("sinc",), f"{PRINTED}, five draws. Gradient methods on the same columns end after as many partial "
        f"derivatives: coordinate descent with constant steps, and projected gradients, of M derivatives a step", digits=4,
        axes=Axes("derivatives", "objective (14)"),
    ),
    Item(
        "slkl-figure2", "figure 2", "nonzero weights by the number of columns, for each nu", "m0 at the largest M", figure2,
        ("sinc",), ("sinc",), "sinc with the width of table 1, lambda = 1, solved to a relative gap of 1e-6", digits=1,
        axes=Axes("M", "m0", log_y=False),
    ),
    Item(
        "slkl-figure3", "figure 3", "nonzero weights by step, every run", "m0 at the stop", partial(steps, "n_active"),
        ("sinc",), ("sinc",), PRINTED, digits=1, axes=Axes("step", "m0", log_y=False),
    ),
    Item(
        "slkl-mnist", "section 5.4", "errors on MNIST by oriented gradients, one digit against the others",
        "errors in % on the 10,000 test images", mnist, ("mnist",), ("mnist",),
        "2,172 oriented gradients of our own making, in the spirit of the paper's source; sigma^2 of the paper's table 1, "
        "lambda = 1, nu of the least errors on a sixth of the training images, then all of them; new columns each draw. "
        "Draw s has seed s.",
    ),
)  # fmt: skip
