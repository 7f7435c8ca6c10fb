"""Tables and figures of ONK (Liu et al. 2009).

Kernel exp(-|x - x'|^2 / sigma_k), sigma_k = 4^(k - 1) times the mean squared distance between two training rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.svm import SVC

from dkl.baselines.first_order_svc import ProjectedSubgradient
from dkl.blocks.kernels.kernel_operator import MemoryKernel
from dkl.blocks.rows.row_sources import row_source
from dkl.datasets import load
from dkl.estimators.svm.learner import OptimalNeighborhoodSVC
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.svm_dual import box_hyperplane
from dkl.problems.svm.problem import NeighborhoodSVM
from dkl.reproduce.item import CONIC, Axes, Case, Curve, Effort, Item, Measured
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.level import LevelMethod

Rows = NDArray[np.float64]
SETS = {
    "liver": "bupa",
    "diabetes": "pima",
    "ionosphere": "ionosphere",
    "hill valley": "hill_valley_with_noise",
    "a2a": "a2a",
    "a4a": "a4a",
}
"""The paper's names, and those of `dkl.datasets`."""
TABLE2 = {
    "liver": ((68.5, 60.8), (69.4, 62.8), (69.8, 67.0)),
    "diabetes": ((74.1, 66.6), (75.2, 70.6), (76.0, 73.6)),
    "ionosphere": ((93.0, 91.5), (92.1, 87.8), (89.7, 85.8)),
    "hill valley": ((63.4, 60.1), (63.6, 58.8), (63.0, 57.0)),
    "a2a": ((79.6, 79.0), (81.3, 78.0), (81.2, 76.8)),
    "a4a": ((81.5, 80.6), (83.2, 78.7), (83.3, 78.1)),
}
"""(G, K) at sigma_1, sigma_2, sigma_3; the paper prints no deviations."""
CS, RHOS = np.logspace(-2, 4, 7), np.logspace(-2, 13, 16)
"""Grids. To where G is nearly K: the ridge |alpha|^2 / (2 rho) is at most n C^2 / (2 rho), under 0.005 for every set and C."""
TOL = 1e-6
SOLVERS: dict[str, Callable[[int], Any]] = {
    "level": partial(LevelMethod, TOL),
    "gradient": partial(Accelerated, TOL, momentum=False, newton=False),
    "accelerated": partial(Accelerated, TOL),
}
MOST_CUTS = 100
"""Most linear programs of Kelley's method, whose size grows with each."""
RIVALS: dict[str, Callable[[int], Any]] = {
    "kelley": lambda max_iter: LevelMethod(TOL, min(max_iter, MOST_CUTS), tau=0.0),
    "subgradient": partial(ProjectedSubgradient, TOL),
}
"""Methods that the paper sets its own against in words, without a curve."""


def two_class(name: str) -> tuple[Any, Rows]:
    """Return (X, y of -1 and 1) of a set of the paper; ionosphere without its constant column."""
    data = load(SETS.get(name, name))
    X, y = data.X, np.where(data.y == np.unique(data.y)[1], 1.0, -1.0)
    if not sp.issparse(X):
        X = X[:, X.std(axis=0) > 0]
    return X, y


def paper_gamma(X: Any, k: int = 2) -> float:
    """Return 1 / sigma_k."""
    dense = X.toarray() if sp.issparse(X) else X
    # The mean of |x - x'|^2 over pairs is twice the sum of the variances.
    return float(1 / (4.0 ** (k - 1) * 2 * dense.var(axis=0).sum()))


@dataclass(frozen=True)
class Halves:
    """Training and test rows, the kernel's width, and the folds of the training rows: (to fit, held out)."""

    X: Rows
    y: Rows
    X_test: Rows
    y_test: Rows
    gamma: float
    folds: list[tuple[NDArray[np.intp], NDArray[np.intp]]]

    def graded(self, decide: Callable[[Rows, Rows, Rows], Rows]) -> tuple[Rows, Rows]:
        """Return accuracies in %, (mean over the folds, on the test rows), of decide(X, y, new), over its last axis."""
        held = [_accuracy(decide(self.X[a], self.y[a], self.X[b]), self.y[b]) for a, b in self.folds]
        return np.mean(held, axis=0), _accuracy(decide(self.X, self.y, self.X_test), self.y_test)


def _accuracy(decisions: Rows, y: Rows) -> Rows:
    return np.asarray(100 * ((decisions > 0) == (y > 0)).mean(axis=-1))


def halves(name: str, k: int, seed: int) -> Halves:
    """Draw a fifth of the rows for training, and five stratified folds of it."""
    X, y = two_class(name)
    X = X.toarray() if sp.issparse(X) else X
    train, test = train_test_split(np.arange(len(y)), train_size=0.2, random_state=seed)
    folds = StratifiedKFold(5, shuffle=True, random_state=seed).split(X[train], y[train])
    return Halves(X[train], y[train], X[test], y[test], paper_gamma(X[train], k), list(folds))


def of_K(data: Halves) -> tuple[Rows, Rows]:
    """Grade scikit-learn's SVC at each C."""

    def decide(X: Rows, y: Rows, new: Rows) -> Rows:
        K, K_new = (rbf_kernel(rows, X, gamma=data.gamma) for rows in (X, new))
        return np.array([SVC(C=C, kernel="precomputed").fit(K, y).decision_function(K_new) for C in CS])

    return data.graded(decide)


def of_G(data: Halves) -> tuple[Rows, Rows]:
    """Grade the optimal neighborhood kernel at each C and rho, a path a fold."""
    model = OptimalNeighborhoodSVC(gamma=data.gamma, tol=1e-4, max_iter=2000, standardize=False, holdout=0, n_jobs=1)

    def decide(X: Rows, y: Rows, new: Rows) -> Rows:
        path = model.path(X, y, CS, RHOS)
        return np.asarray(path.coefficients[:, :, 0] @ rbf_kernel(X, new, gamma=data.gamma) + path.intercepts)

    return data.graded(decide)


def first_best(scores: Rows) -> tuple[int, ...]:
    """Return the place of the best score, the first of equals but for rounding."""
    # Means of folds that are equal in hits may differ in the last bit: the first of them, the least C and rho, is taken.
    return tuple(int(i) for i in np.argwhere(scores > scores.max() - 1e-9)[0])


@lru_cache(maxsize=2)
def draws_of(name: str, k: int, draws: int) -> dict[str, list[float]]:
    """Return test accuracies of G and K by draw, each at what its folds chose."""
    found: dict[str, list[float]] = {"G": [], "K": []}
    for seed in range(draws):
        data = halves(name, k, seed)
        for kernel, grade in (("G", of_G), ("K", of_K)):
            held, tested = grade(data)
            found[kernel].append(float(tested[first_best(held)]))
    return found


def accuracy(name: str, k: int, kernel: str, draws: int) -> Measured:
    """Measure the test accuracy of a kernel; for G also its difference to K."""
    both = draws_of(name, k, draws)
    apart = np.subtract(both["G"], both["K"])
    error = apart.std(ddof=1) / np.sqrt(draws) if draws > 1 else np.nan
    G, K = TABLE2[name][k - 1]
    more = {"G - K": f"{apart.mean():+.2f} ± {error:.2f}", "the paper's": f"{G - K:+.1f}"} if kernel == "G" else {}
    return Measured(both[kernel], more)


def table2(effort: Effort) -> list[Case]:
    """Return a case a set, width and kernel; quick: liver, sigma_2, G and K."""
    return [
        Case({"set": name, "sigma": f"sigma_{k}", "kernel": kernel}, partial(accuracy, name, k, kernel, effort.count(20)),
             (TABLE2[name][k - 1][place], None))
        for name in (list(SETS)[:1] if effort.quick else SETS)
        for k in ((2,) if effort.quick else (1, 2, 3))
        for place, kernel in enumerate(("G", "K"))
    ]  # fmt: skip


def solved(name: str, solver: str, max_iter: int) -> tuple[Any, float]:
    """Return (result, seconds with the kernel) of a solver on all rows, C = 1, rho = 100, sigma_2."""
    X, y = two_class(name)
    # The kernel matrix counts: a user of any of the methods waits for it too.
    began = time.process_time()
    kernel = MemoryKernel.of(Kernel("rbf", paper_gamma(X)), row_source(X), np.float64, 1)
    found = {**SOLVERS, **RIVALS}[solver](max_iter).solve(NeighborhoodSVM(kernel, y, np.ones(len(y)), 100.0))
    return found, time.process_time() - began


def convergence(name: str, solver: str, max_iter: int) -> Measured:
    """Measure the iterations to a proven relative gap of 1e-6."""
    found, _ = solved(name, solver, max_iter)
    curve = ([row["iteration"] for row in found.history], [row["objective"] for row in found.history])
    more = {"objective": float(found.point.objective), "relative gap": float(found.point.relative_gap)}
    return Measured([found.n_iter], more, {solver: curve})


def figure1(effort: Effort) -> list[Case]:
    """Return a case a set and solver."""
    names, most = (("liver",), 300) if effort.quick else (("liver", "a4a"), 5000)
    methods = (*SOLVERS, *RIVALS)
    return [
        Case({"set": name, "method": one}, partial(convergence, name, one, most)) for name in names for one in methods
    ]


def seconds(name: str, solver: str, max_iter: int) -> Measured:
    """Measure seconds to a relative gap of 1e-6, or to the limit of iterations."""
    solved("liver", solver, 5)  # compiles
    found, taken = solved(name, solver, max_iter)
    more = {"iterations": found.n_iter, "seconds an iteration": taken / max(found.n_iter, 1)}
    return Measured([taken], {**more, "relative gap": float(found.point.relative_gap)})


def by_quadratic_program(point: Rows, y: Rows, C: Rows) -> Rows:
    """Project onto {0 <= x <= C, y'x = 0} by a general interior point solver (`pip install 'dkl[conic]'`), as the paper by MOSEK."""
    import clarabel

    eye = sp.eye_array(len(point), format="csc")
    A = sp.csc_matrix(sp.vstack([sp.csr_array(y[None]), -eye, eye]))
    b = np.concatenate([[0.0], np.zeros(len(point)), C])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * len(point))]
    return np.array(clarabel.DefaultSolver(sp.csc_matrix(eye), -point, A, b, cones, settings).solve().x)


PROJECTIONS: dict[str, tuple[Callable[[Rows, Rows, Rows], Rows], int]] = {
    "box_hyperplane": (box_hyperplane, 1_000_000),
    "quadratic program, Clarabel": (by_quadratic_program, 10_000),
}
"""Methods of the projection, and the most variables that each is measured with."""


def projections(method: str, sizes: tuple[int, ...]) -> Measured:
    """Measure 100 projections by number of variables."""
    project, most = PROJECTIONS[method]
    sizes = tuple(n for n in sizes if n <= most)
    rng, taken = np.random.default_rng(0), []
    for n in (10, *sizes):  # the first compiles
        y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
        # Ten of the large ones are enough for a mean, and 100 of a million numbers would be 800 MB.
        points = rng.standard_normal((100 if n < 10_000 else 10, n))
        began = time.process_time()
        for point in points:
            project(point, y, np.ones(n))
        taken.append((time.process_time() - began) * 100 / len(points))
    curves: dict[str, Curve] = {"100 projections": (sizes, taken[1:])}
    return Measured([taken[-1]], {"variables": sizes[-1], "seconds a projection": taken[-1] / 100}, curves)


def figure2(effort: Effort) -> list[Case]:
    """Return a case a set and solver, and one of the projections."""
    names, most = (("liver", "diabetes"), 300) if effort.quick else (tuple(SETS), 5000)
    sizes = (100, 1000, 10_000) if effort.quick else (100, 1000, 10_000, 100_000, 1_000_000)
    known = {("hill valley", "gradient"): (0.5, None)}
    return [
        *(Case({"set": name, "method": one}, partial(seconds, name, one, most), known.get((name, one)))
          for name in names for one in (*SOLVERS, *RIVALS)),
        *(Case({"set": "projections", "method": one}, partial(projections, one, sizes)) for one in PROJECTIONS),
    ]  # fmt: skip


def sensitivity(name: str, draws: int) -> Measured:
    """Measure the mean test accuracy of G by rho at C = 1, and K's; the value is G's best less K."""
    tested = []
    for seed in range(draws):
        data, one = halves(name, 2, seed), int(np.flatnonzero(CS == 1)[0])
        tested.append((of_G(data)[1][one], of_K(data)[1][one]))
    G, K = (np.mean(column, axis=0) for column in zip(*tested, strict=True))
    curves: dict[str, Curve] = {"G": (RHOS.tolist(), G.tolist()), "K": ((RHOS[0], RHOS[-1]), [float(K)] * 2)}
    return Measured(
        [float(G.max() - K)], {"best rho": f"{RHOS[int(G.argmax())]:.0e}", "G at 1e13 less K": float(G[-1] - K)}, curves
    )


def figure3(effort: Effort) -> list[Case]:
    """Return a case a set; quick: liver."""
    names = ("liver",) if effort.quick else ("liver", "diabetes")
    return [Case({"set": name}, partial(sensitivity, name, effort.count(20))) for name in names]


ALL = tuple(SETS.values())
WHOLE = (
    f"all rows, C = 1, rho = 100, sigma_2, to a proven relative gap of 1e-6; Kelley's method to {MOST_CUTS} cuts at most, "
    "the others to 5,000 iterations"
)
ITEMS = (
    Item(
        "onk-table2", "table 2", "accuracy of the optimal neighborhood kernel G and of the given kernel K", "test accuracy in %", table2,
        ALL, ("bupa",),
        "a fifth of the rows for training; C, and rho for G, of the best mean accuracy over five stratified folds of the "
        "training rows, the first of equals, C in 10^-2 to 10^4, rho in 10^-2 to 10^13; K is scikit-learn's SVC. "
        "Features as they are. Draw s has seed s.",
        better="higher", digits=1, tested="kernel", own="G",
    ),
    Item(
        "onk-figure1", "figure 1", "objective by iteration: the paper's two methods, momentum, Kelley's cutting planes, subgradients",
        "iterations", figure1, ("bupa", "a4a"), ("bupa",), f"{WHOLE}. The paper plots level and gradient alone", digits=0,
        axes=Axes("iteration", "objective (7)", log_x=True, log_y=False),
    ),
    Item(
        "onk-figure2", "figure 2", "seconds of learning, and of 100 projections", "CPU seconds, with the kernel matrix", figure2,
        ALL, ("bupa", "pima"), f"{WHOLE}; projections of normal points onto the box [0, 1] and a hyperplane of signs.", digits=3,
        axes=Axes("variables", "CPU seconds", log_x=True), extras=CONIC,
    ),
    Item(
        "onk-figure3", "figure 3", "accuracy by rho", "best mean accuracy of G over rho less K's, in %",
        figure3, ("bupa", "pima"), ("bupa",), "C = 1, sigma_2, a fifth of the rows for training; every rho is drawn, "
        "and the best is of the test rows; features as they are. Draw s has seed s.",
        better="higher", axes=Axes("rho", "test accuracy in %", log_x=True, log_y=False),
    ),
)  # fmt: skip
