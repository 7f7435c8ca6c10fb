"""Tables and figures of TRIN (Li et al. 2009)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import eigsh
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import StandardScaler

from dkl.baselines import ITMLMetricLearner
from dkl.baselines.logdet_gradient import Objective, descend
from dkl.datasets import load
from dkl.errors import InputError
from dkl.estimators.logdet.learner import LogDetKernelLearner
from dkl.estimators.logdet.metric import LogDetMetricLearner
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.problems.logdet.losses import LogLoss
from dkl.problems.logdet.problem import LogDetKernelProblem
from dkl.reproduce.item import Axes, Case, Curve, Effort, Item, Measured, Published, Scalar
from dkl.solvers.logdet.solve import LogDetSolution, led_by, solve_logdet

Array = NDArray[Any]
T = TypeVar("T")
SETS = {"breast": "breast_w", "sonar": "sonar", "ionosphere": "ionosphere", "heart": "heart", "wine": "wine"}
"""The paper's names, and those of `dkl.datasets`."""
LOWEST, HIGHEST = -12, 16
"""log2 of gamma."""
NEIGHBORS = 10
MULTIPLIERS = (2, 4, 8, 16, 32, 64, 128)
TABLE3: dict[str, tuple[float | None, ...]] = {
    "breast": (400.0, 221.6, 171.6, 139.1, 129.6, 122.1, 106.4, 55.4),
    "sonar": (70.8, 64.5, 106.9, 157.3, 520.4, 261.0, 2452.2, None),
    "ionosphere": (293.9, 538.9, 1051.5, 2930.3, 4067.6, 4460.5, 9232.4, None),
    "heart": (29.4, 27.2, 21.6, 17.5, 16.2, 15.0, 13.7, 5.4),
    "wine": (17.6, 10.6, 9.0, 7.6, 6.0, 5.6, 5.1, 1.8),
}
"""TRIN's seconds by multiplier, then of the highest gamma alone; None: more than 10,000."""
TABLE4: dict[str, tuple[float | None, ...]] = {
    "breast": (766.1, 483.6, 401.7, 343.6, 296.9, 285.1, 253.1, 815.2),
    "sonar": (4759.6, 3125.7, 2688.5, 2279.4, 2127.4, 1969.1, 1996.0, 3080.8),
    "ionosphere": (None, None, None, None, None, 11293.5, 9784.7, None),
    "heart": (97.4, 63.3, 50.5, 45.7, 42.8, 35.6, 36.6, 73.5),
    "wine": (24.6, 15.0, 11.8, 10.2, 9.1, 8.4, 8.4, 12.9),
}
"""Seconds of conjugate gradients."""
TABLE5: dict[str, tuple[Published, ...]] = {
    "breast": ((3.54, 0.73), (3.54, 0.74), (3.62, 1.26), (4.78, 0.84), (4.78, 0.87)),
    "sonar": ((17.79, 4.14), (17.52, 5.06), (17.37, 4.10), (16.22, 4.15), (18.50, 3.51)),
    "ionosphere": ((9.40, 1.46), (8.42, 2.05), (9.08, 1.70), (7.07, 1.81), (9.68, 1.85)),
    "heart": ((18.22, 2.65), (18.22, 2.61), (18.46, 3.29), (23.64, 3.61), (23.53, 3.35)),
    "wine": ((2.57, 1.39), (3.01, 1.41), (2.63, 1.51), (3.09, 1.95), (3.39, 1.09)),
}
"""Errors in % by log, LMNN, ITML and linear loss, and by Laplacian eigenmaps."""
LOSSES = ("log", "lmnn", "itml", "linear")


def rows_of(name: str) -> tuple[Array, Array]:
    """Return (features, labels): standardized but for USPS, NaN as the column's mean."""
    data = load(name)
    if name == "usps":
        return data.X_test, np.asarray(data.y_test)
    X = np.asarray(data.X, dtype=float)
    X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    return StandardScaler().fit_transform(X[:, X.std(axis=0) > 0]), data.y


def laplacian_kernel(X: Array) -> Array:
    """Return the pseudo-inverse of D - W of a Gaussian graph, its width the mean distance to the tenth neighbor."""
    distances, neighbors = NearestNeighbors(n_neighbors=NEIGHBORS + 1).fit(X).kneighbors(X)
    W = np.zeros((len(X), len(X)))
    np.put_along_axis(W, neighbors[:, 1:], np.exp(-((distances[:, 1:] / distances[:, -1].mean()) ** 2)), axis=1)
    W = np.maximum(W, W.T)
    K0 = np.linalg.pinv(np.diag(W.sum(axis=1)) - W, rcond=1e-10, hermitian=True)
    return (K0 + K0.T) / 2


def triplets_of(X: Array, y: Array, labeled: Array, each: int, rng: np.random.Generator) -> Array:
    """Return (anchor, similar, dissimilar): `each` of the 10 x 10 nearest in-class and out-of-class rows of each labeled row."""
    # kind="stable": equal distances keep the order of rows, so that a draw is the same on any machine.
    order = np.argsort(pairwise_distances(X[labeled]), axis=1, kind="stable")
    made = []
    for anchor, row in enumerate(order):
        others = labeled[row[row != anchor]]
        alike = y[others] == y[labeled[anchor]]
        both = np.meshgrid(others[alike][:NEIGHBORS], others[~alike][:NEIGHBORS], indexing="ij")
        grid = np.stack(both, -1).reshape(-1, 2)
        grid = grid[rng.choice(len(grid), min(each, len(grid)), replace=False)]
        made.append(np.column_stack([np.full(len(grid), labeled[anchor]), grid]))
    return np.concatenate(made)


def drawn(stored: str, share: float, each: int, seed: int) -> tuple[Array, Array, int]:
    """Return (K0 (n, n), triplets, number of labeled rows): a random share of the rows is labeled."""
    X, y = rows_of(stored)
    rng = np.random.default_rng(seed)
    n_labeled = round(share * len(X))
    labeled = np.sort(rng.choice(len(X), n_labeled, replace=False))
    return laplacian_kernel(X), triplets_of(X, y, labeled, each, rng), n_labeled


def exponents_of(steps: int) -> list[float]:
    """Return log2 of the gammas of a path."""
    exponents = [float(e) for e in np.arange(LOWEST, HIGHEST + 1e-9, steps)]
    return exponents + [float(HIGHEST)] * (exponents[-1] < HIGHEST)


def error_of(K: Array, y: Array, labeled: Array, components: int | None) -> float:
    """Return the error in % of the nearest labeled row, by the kernel's distances or its leading principal components.

    Where all rows are labeled, each is classified by the others.
    """
    if components is not None:
        centered = K - K.mean(axis=0)
        centered -= centered.mean(axis=1)[:, None]
        # A fixed start for ARPACK, so that errors are the same each time; not all ones, which centering maps to 0.
        start = np.ones(len(K)) + np.arange(len(K)) / len(K)
        values, vectors = eigsh((centered + centered.T) / 2, components, v0=start)
        rows = vectors * np.sqrt(values)
        K = rows @ rows.T
    distances = np.diag(K)[:, None] + np.diag(K)[labeled] - 2.0 * K[:, labeled]
    distances[labeled, np.arange(len(labeled))] = np.inf
    rest = np.setdiff1d(np.arange(len(K)), labeled) if len(labeled) < len(K) else labeled
    return 100.0 * float(np.mean(y[labeled[distances[rest].argmin(axis=1)]] != y[rest]))


def path(K0: Array, triplets: Array, m: int, exponents: list[float], tol: float) -> list[LogDetSolution]:
    """Solve a path of gammas by warm starts, by Newton's method on the dual."""
    problem = LogDetKernelProblem(K0, ConstraintSet.triplets(len(K0), triplets), LogLoss(), 1.0, n_labelled=m)
    found: list[LogDetSolution] = []
    for exponent in exponents:
        found.append(solve_logdet(problem.with_gamma(2.0**exponent), **led_by(found), tol=tol, max_iter=1000))
    return found


def conjugate_gradients(
    K0: Array, triplets: Array, m: int, exponents: list[float], tol: float, most: int
) -> tuple[int, bool]:
    """Return (steps, whether every gamma was solved) of conjugate gradients on the labeled block, at most `most` steps."""
    constraints = ConstraintSet.triplets(len(K0), triplets)
    block = K0[np.ix_(constraints.points, constraints.points)]
    problem = Objective.of(block, constraints.on_points(), LogLoss(), 1.0)
    start, steps = None, 0
    for exponent in exponents:
        end = descend(replace(problem, weight=2.0**exponent / m), tol, most - steps, start)
        start, steps = end.B, steps + end.n_iter
        if not end.is_converged:
            return steps, False
    return steps, True


def clocked(work: Callable[[], T]) -> tuple[T, float]:
    """Return the result of `work` and its CPU seconds."""
    began = time.process_time()
    return work(), time.process_time() - began


def timed_path(name: str, exponents: list[float], draws: int) -> Measured:
    """Measure the seconds of a path, problem included, data and K0 not."""
    cases = [drawn(SETS[name], 0.5, 100, seed) for seed in range(draws)]
    found, seconds = zip(*(clocked(partial(path, *case, exponents, 1e-6)) for case in cases), strict=True)
    solved = sum(all(one.certificate.relative_gap <= 1e-6 for one in ends) for ends in found)
    steps = float(np.mean([sum(one.n_iter for one in ends) for ends in found]))
    return Measured(seconds, {"steps": steps, "solved": f"{solved} of {draws}"})


def descended_path(name: str, exponents: list[float], most: int, paper: float | None, draws: int) -> Measured:
    """Measure the seconds of a path by conjugate gradients, and by Newton's method next to it."""
    cases = [drawn(SETS[name], 0.5, 100, seed) for seed in range(draws)]
    # 1e-3 is the paper's tolerance, which conjugate gradients are held to; Newton's method is asked for more.
    descents = [partial(conjugate_gradients, *one, exponents, 1e-3, most) for one in cases]
    found, seconds = zip(*map(clocked, descents), strict=True)
    newton = [clocked(partial(path, *one, exponents, 1e-6))[1] for one in cases]
    steps, solved = np.transpose(found)
    more: dict[str, Scalar] = {
        "the paper's": "more than 10,000" if paper is None else paper, "steps": float(np.mean(steps)),
        "solved": f"{sum(solved)} of {draws}", "TRIN to 1e-6": float(np.mean(newton)),
    }  # fmt: skip
    return Measured(seconds, more)


def columns_of(effort: Effort) -> tuple[tuple[str, ...], dict[str, list[float]]]:
    """Return (sets, exponents of gamma by column): by multiplier, then the highest alone; quick: wine and three columns."""
    columns = {str(one): exponents_of(one.bit_length() - 1) for one in MULTIPLIERS} | {"baseline": [float(HIGHEST)]}
    if effort.quick:
        return ("wine",), {one: columns[one] for one in ("32", "128", "baseline")}
    return tuple(SETS), columns


def printed(table: dict[str, tuple[float | None, ...]], name: str, column: str) -> float | None:
    """Return the seconds that the paper prints; None: more than 10,000."""
    return table[name][-1 if column == "baseline" else MULTIPLIERS.index(int(column))]


def table3(effort: Effort) -> list[Case]:
    """Return a case a set and multiplier, and one of the highest gamma alone."""
    names, columns = columns_of(effort)
    return [
        Case({"set": name, "multiplier": column}, partial(timed_path, name, exponents, effort.count(20)),
             None if (figure := printed(TABLE3, name, column)) is None else (figure, None))
        for name in names
        for column, exponents in columns.items()
    ]  # fmt: skip


def table4(effort: Effort) -> list[Case]:
    """Return a case a set and multiplier. No verdict: of what is not solved, seconds are a count of steps."""
    names, columns = columns_of(effort)
    most = 500 if effort.quick else MOST_STEPS
    return [
        Case({"set": name, "multiplier": column},
             partial(descended_path, name, exponents, most, printed(TABLE4, name, column), effort.count(3)))
        for name in names
        for column, exponents in columns.items()
    ]  # fmt: skip


MOST_STEPS = 3000
"""Steps of conjugate gradients along a path, after which it ends unsolved."""
GAMMAS: tuple[float, ...] = (2.0**-4, 1.0, 16.0, 256.0)
SHARES = (2.0**-6, 2.0**-4, 0.25, 1.0)
"""Gammas of the linear loss, of the largest power of 2 at which it has a minimum."""


def graphs(X: Array) -> list[dict[str, Any]]:
    """Return two kernels K0: of the normalized Laplacian, and of D - W as the paper writes it, as wide as in tables 3 and 4."""
    distances, _ = NearestNeighbors(n_neighbors=NEIGHBORS + 1).fit(X).kneighbors(X)
    # The learner has 2 sigma^2 in the exponent, `laplacian_kernel` has sigma^2.
    wide = float(distances[:, -1].mean()) / np.sqrt(2.0)
    return [{"sigma": "average"}, {"laplacian": "unnormalized", "sigma": wide}]


def transformed(method: str, X: Array, y: Array) -> list[Array]:
    """Return 10 principal coordinates by graph and then gamma; y is -1 where a label is held out.

    "laplacian": of K0 itself, as they are and at unit length, which are eigenmaps.
    """
    maps = []
    for kernel_params in graphs(X):
        learner = LogDetKernelLearner(kernel="laplacian", kernel_params=kernel_params, n_components=10, n_neighbors=NEIGHBORS,
                                      standardize=False, holdout=0)  # fmt: skip
        if method == "laplacian":
            rows = learner.set_params(gamma=2.0**-30).fit(X, y).transform(X)  # learns nothing
            maps += [rows, rows / np.maximum(np.linalg.norm(rows, axis=0), np.finfo(float).tiny)]
            continue
        learner.set_params(loss=method)
        gammas = GAMMAS if method != "linear" else tuple(share * largest_gamma(learner, X, y) for share in SHARES)
        path = learner.path(X, y, gammas)
        maps += [path.model(i).transform(X) for i in range(len(gammas))]
    return maps


def largest_gamma(learner: LogDetKernelLearner, X: Array, y: Array) -> float:
    """Return the largest power of 2, up to 2^8, at which the linear loss has a minimum."""
    try:
        learner.set_params(gamma=2.0**8).fit(X, y)
    except InputError as refused:
        # The refusal names the gamma that is the first without a minimum: "less than 0.0141306".
        return float(2.0 ** (np.ceil(np.log2(float(str(refused.wanted).split()[-1]))) - 1))
    return 2.0**8


def nearest_errors(maps: list[Array], y: Array, known: Array, asked: Array) -> list[float]:
    """Return errors in % of the nearest known row, of the rows `asked`, a map each."""
    return [100.0 * (1.0 - KNeighborsClassifier(1).fit(Z[known], y[known]).score(Z[asked], y[asked])) for Z in maps]


def error_rate(name: str, method: str, folds: int, draws: int) -> Measured:
    """Measure 1-NN errors of half the rows; graph and gamma by folds of the labeled half, whose labels alone are used for it."""
    X, y = rows_of(SETS[name])
    rows, found, chosen = np.arange(len(y)), [], []
    for seed in range(draws):
        known, asked = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
        held = np.mean([
            nearest_errors(transformed(method, X, np.where(np.isin(rows, known[a]), y, -1)), y, known[a], known[b])
            for a, b in StratifiedKFold(folds, shuffle=True, random_state=seed).split(known, y[known])
        ], axis=0)  # fmt: skip
        chosen.append(int(np.argmin(held)))
        maps = transformed(method, X, np.where(np.isin(rows, known), y, -1))
        found.append(nearest_errors(maps, y, known, asked)[chosen[-1]])
    return Measured(found, {"graph of D - W": f"{sum(one >= len(held) // 2 for one in chosen)} of {draws}"})


def table5(effort: Effort) -> list[Case]:
    """Return a case a set and loss; quick: wine, log-loss and eigenmaps."""
    methods = (*LOSSES, "laplacian")
    return [
        Case({"set": name, "loss": method}, partial(error_rate, name, method, 2 if effort.quick else 5, effort.count(50)),
             TABLE5[name][methods.index(method)])
        for name in (("wine",) if effort.quick else SETS)
        for method in (("log", "laplacian") if effort.quick else methods)
    ]  # fmt: skip


def metric(method: str, count: int, gammas: tuple[float, ...], draws: int) -> Measured:
    """Measure the seconds of Mahalanobis metrics of Spambase by gamma, each from W0 = I; the value is their sum."""
    data = load("spambase")
    X, y = StandardScaler().fit_transform(data.X), data.y
    seconds, errors = np.zeros((draws, len(gammas))), np.zeros((draws, len(gammas)))
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        known, rest = np.array_split(rng.permutation(len(X)), 2)
        ends = np.stack([rng.choice(len(known), 2, replace=False) for _ in range(count)])
        alike = y[known][ends[:, 0]] == y[known][ends[:, 1]]
        for place, gamma in enumerate(gammas):
            learner: Any = ITMLMetricLearner(gamma, tol=1e-3, max_iter=8000, random_state=0)
            if method == "TRIN":
                learner = LogDetMetricLearner(
                    gamma, normalize_gamma=False, tol=1e-3, max_iter=1000, standardize=False, holdout=0
                )
            fit = partial(learner.fit, X[known], must_link=ends[alike], cannot_link=ends[~alike])
            seconds[seed, place] = clocked(fit)[1]
            errors[seed, place] = nearest_errors([learner.transform(X)], y, known, rest)[0]
    curves: dict[str, Curve] = {"": (gammas, seconds.mean(axis=0).tolist())}
    least = errors.mean(axis=0).min()
    return Measured(seconds.sum(axis=1).tolist(), {"least error over gamma, %": float(least)}, curves)


def figure1(effort: Effort) -> list[Case]:
    """Return a case a number of pairs and method; quick: 400 pairs, three gammas."""
    gammas = (1e-2, 1.0, 1e2) if effort.quick else tuple(float(g) for g in 10.0 ** np.arange(-4, 5))
    return [
        Case({"pairs": f"{count:,} pairs", "method": one}, partial(metric, one, count, gammas, effort.count(20, 1)))
        for count in ((400,) if effort.quick else (400, 800, 1600, 3200, 6400))
        for one in ("TRIN", "ITML")
    ]


def digits(draws: int) -> Measured:
    """Measure the seconds of the path of USPS' test set, a fifth labeled, multiplier 32; and the errors along it."""
    X, y = rows_of("usps")
    seconds, errors = [], []
    exponents = exponents_of(5)
    for seed in range(draws):
        K0, triplets, m = drawn("usps", 401 / 2007, 100, seed)
        found, spent = clocked(partial(path, K0, triplets, m, exponents, 1e-6))
        seconds.append(spent)
        problem = LogDetKernelProblem(K0, ConstraintSet.triplets(len(K0), triplets), LogLoss(), 1.0, n_labelled=m)
        labeled = np.unique(triplets[:, 0])
        kernels = [problem.learned(one.multipliers) for one in found]
        sides = [K0[:, kernel.points] for kernel in kernels]
        errors.append(
            [error_of(kernel.of(K0, side, side), y, labeled, 10) for kernel, side in zip(kernels, sides, strict=True)]
        )
    mean = np.mean(errors, axis=0)
    curves: dict[str, Curve] = {"error in %, 10 components": ([2.0**e for e in exponents], mean.tolist())}
    best = exponents[int(mean.argmin())]
    return Measured(seconds, {"least error, %": float(mean.min()), "at log2 gamma": best, "the paper's": -2}, curves)


def figure2(effort: Effort) -> list[Case]:
    """Return the case of USPS; the paper says less than an hour."""
    return [Case({"set": "usps, 2,007 images"}, partial(digits, effort.count(10, 1)), (3600.0, None))]


ALL = tuple(SETS.values())
GRAPH = (
    "half the rows labeled, 100 triplets of each; K0 the pseudo-inverse of D - W of a Gaussian graph of 10 neighbors, its width the mean "
    "distance to the tenth; gamma from 2^-12 to 2^16 by warm starts. Draw s has seed s"
)
ITEMS = (
    Item(
        "trin-table3", "table 3", "seconds of the path by multiplier, TRIN", "CPU seconds of the path", table3,
        ALL, ("wine",), f"log-loss, {GRAPH}. Newton on the dual, to a proven relative gap of 1e-6.", draws=50,
    ),
    Item(
        "trin-table4", "table 4", "seconds of the path by multiplier, conjugate gradients", "CPU seconds of the path",
        table4, ALL, ("wine",),
        f"log-loss, {GRAPH}. Polak-Ribiere+ to a proven relative gap of 1e-3, at most {MOST_STEPS:,} steps; \"solved\" counts "
        f"the draws that got there. Next to it Newton on the dual, to 1e-6, on the same draws.",
        draws=50,
    ),
    Item(
        "trin-table5", "table 5", "errors by loss", "1-NN error in % of the unlabeled half by 10 principal coordinates", table5, ALL,
        ("wine",),
        "a graph of 10 neighbors, its normalized Laplacian, or D - W as in table 3, and gamma from 2^-4, 1, 16, 256 (linear: shares of "
        "the largest that has a minimum), both by five folds of the labeled half; laplacian: K0's own coordinates, as they are or at unit "
        "length, chosen likewise. Draw s has seed s.", draws=50, tested="loss",
    ),
    Item(
        "trin-figure1", "figure 1", "seconds of a metric of Spambase by TRIN and ITML", "CPU seconds, sum over gamma", figure1,
        ("spambase",), ("spambase",),
        "ITML's loss, W0 the identity, gamma not divided, each gamma from W0, to a proven relative gap of 1e-3 or 8,000 sweeps; rows "
        "standardized, pairs among half of them. Draw s has seed s.", axes=Axes("gamma", "CPU seconds", log_x=True),
    ),
    Item(
        "trin-figure2", "figure 2", "seconds and errors along the path of USPS' test set", "CPU seconds of the path of 7 gammas", figure2,
        ("usps",), ("usps",), "log-loss, a fifth labeled, 40,100 triplets, multiplier 32, to a proven relative gap of "
        "1e-6. Draw s has seed s.",
        draws=10, axes=Axes("gamma", "1-NN error in %", log_x=True, log_y=False),
    ),
)  # fmt: skip
