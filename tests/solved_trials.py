"""Fits of every learner at scales of 1e-150 to 1e150, whose "solved" is checked in 60 digits: none may be false.

    python tests/solved_trials.py --trials 100

makes 100 of each learner, in two processes by default, and prints a line for each that is false, or ends by an error that is not
`dkl`'s own, and a table of what they came to. A learner and a seed make the same trial again.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf
from scipy import sparse

sys.path.extend(map(str, [Path(__file__).parent, *(Path(__file__).parent / "support").iterdir()]))

import solved_oracles as oracles
from learner_trials import options_of, print_table, trials
from solved_data import Rng, matrix_of, random_kernel, random_pairs, random_rows, random_triplets, scale
from solved_oracles import exact

import dkl
from dkl.errors import DklError

Check = Callable[[Any], "oracles.Left | None"]
MARGIN = 1e-2
"""Share by which more may be left than was asked for: the last digits of the bound."""


@dataclass(frozen=True)
class Trial:
    """Result of one fit: an outcome, "refused" or "error"; is_false: solved, and more was left than was asked for."""

    learner: str
    seed: int
    outcome: str
    is_false: bool = False
    is_checked: bool = False
    what: str = ""


def recorded(model: Any) -> list[Any]:
    """Return a list to which a learner of LogDet adds the multipliers (c,) of a fit, by which it proves what it claims."""
    multipliers, keep = [], model._keep

    def noting(*given: Any) -> None:
        multipliers.append(given[-1].multipliers)
        keep(*given)

    model._keep = noting
    return multipliers


# -- a learner each: (estimator, arguments of fit, oracle) ---------------------------------------------------------------------


def kpca(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, _ = random_rows(rng)
    name, rows, K, params = random_kernel(rng, X)
    dtype, tol = str(rng.choice(["float64", "float32"])), float(10.0 ** rng.uniform(-9, -3))
    model = dkl.KernelPCA(
        int(rng.integers(1, 4)),
        kernel=name,
        **params,
        standardize=False,
        tol=tol,
        dtype=dtype,
        holdout=0,
        random_state=0,
    )
    given = sparse.csr_array(rows) if K is None and rng.random() < 0.3 else rows
    return model, (given,), {}, lambda m: oracles.components(
        matrix_of(name, X, K, params), m.eigenvalues_, m.eigenvectors_, tol
    )  # fmt: skip


def kmeans(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, y = random_rows(rng)
    model = dkl.KernelKMeans(int(y.max()) + 1, kernel="linear", tol=0.0, n_init=2, random_state=0)
    return model, (X,), {}, lambda m: oracles.clusters(exact(X), m.cluster_centers_, m.labels_)


def spectral(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    n = int(rng.integers(8, 15))
    W = rng.random((n, n)) ** rng.choice([1, 10]) + 1e-3
    W = 0.5 * (W + W.T) * scale(rng)
    model = dkl.SpectralEmbedding(2, affinity="precomputed", random_state=0)
    return model, (W,), {}, lambda m: oracles.eigenmaps(exact(W), m.eigenvalues_, m.embedding_, m.result_.asked)


def svc(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, y = random_rows(rng)
    y = np.minimum(y, 1)
    name, rows, K, params = random_kernel(rng, X)
    C, tol = scale(rng), float(10.0 ** rng.uniform(-8, -2))
    rho: Any = "scale" if rng.random() < 0.5 else scale(rng)
    weights = 10.0 ** rng.uniform(-3, 3, len(y)) if rng.random() < 0.3 else np.ones(len(y))
    model = dkl.OptimalNeighborhoodSVC(
        C, rho=rho, kernel=name, **params, standardize=False, tol=tol, holdout=0, max_iter=2000,
        dtype=str(rng.choice(["float64", "float32"])), solver=str(rng.choice(["accelerated", "level", "gradient"])),
    )  # fmt: skip

    def check(m: Any) -> oracles.Left:
        alpha, sign = np.zeros(len(y)), np.where(y > 0, 1.0, -1.0)
        alpha[m.support_] = sign[m.support_] * m.dual_coef_[0]
        b, rho = float(np.ravel(m.intercept_)[0]), float(np.ravel(m.rho_)[0])
        return oracles.machine(matrix_of(name, X, K, params), exact(sign), alpha, C * weights, rho, b, tol)

    return model, (rows, y), {"sample_weight": weights}, check


def regression(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, _ = random_rows(rng)
    y = (np.sin(np.arange(len(X))) + 0.1 * rng.standard_normal(len(X)) + rng.choice([0, 0, 100, 1e6])) * scale(rng)
    name, rows, K, params = random_kernel(rng, X)
    tol, lam, intercept = float(10.0 ** rng.uniform(-8, -2)), scale(rng), bool(rng.random() < 0.5)
    size = float(np.square(y).sum()) / lam * 10.0 ** rng.uniform(-6, 1)
    nu = min(max(size, 1e-300), 1e300)
    weights = 10.0 ** rng.uniform(-3, 3, len(y)) if rng.random() < 0.3 else np.ones(len(y))
    model = dkl.LowRankKernelRegressor(
        kernel=name, **params, standardize=False, nu=nu, lam=lam, columns=np.arange(len(X)), fit_intercept=intercept, tol=tol,
        holdout=0, random_state=0, max_iter=2000,
    )  # fmt: skip

    def check(m: Any) -> oracles.Left:
        full = matrix_of(name, X, K, params)
        sizes = np.array([mp.sqrt(value) if value > 0 else mpf(0) for value in np.diag(full)])
        columns = np.array([full[:, k] / sizes[k] if sizes[k] > 0 else 0 * full[:, k] for k in range(len(X))]).T
        w = np.full(len(X), mpf(0), object)
        w[m.support_] = exact(m.coef_) * sizes[m.support_] if len(m.support_) else w[m.support_]
        kappa = mp.sqrt(mpf(lam) * mpf(nu))
        return oracles.lasso(columns, exact(y), w, m.intercept_, weights, kappa, intercept, tol)

    return model, (rows, y), {"sample_weight": weights}, check


def logdet(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, y = random_rows(rng)
    name, rows, K, params = random_kernel(rng, X)
    while name in ("poly", "cosine"):  # which may be of less rank than rows, and have no exact root
        name, rows, K, params = random_kernel(rng, X)
    triplets, gamma, tol = random_triplets(rng, y), 16.0 * scale(rng), float(10.0 ** rng.uniform(-8, -2))
    model = dkl.LogDetKernelLearner(
        gamma, kernel=name, kernel_params=params or None, standardize=False, tol=tol, holdout=0, max_iter=100
    )

    def check(m: Any) -> oracles.Left | None:
        points = m.points_
        K0 = matrix_of(name, X[points], None if K is None else K[np.ix_(points, points)], params)
        try:
            L = exact(X[points]) if name == "linear" else oracles.root_of(K0)
        except ValueError:  # the doubles of a matrix, as they are rounded, are not of one that is definite
            return None
        W = np.eye(L.shape[1]) + L.T @ exact(m.M_) @ L
        local = np.searchsorted(points, triplets)
        weight = mpf(gamma) / len(points)
        return oracles.log_det_problem(L, W, local, weight, multipliers[-1], tol)

    multipliers = recorded(model)
    return model, (rows,), {"triplets": triplets}, check


def metric(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, y = random_rows(rng)
    triplets, gamma, tol = random_triplets(rng, y), 16.0 * scale(rng), float(10.0 ** rng.uniform(-8, -2))
    model = dkl.LogDetMetricLearner(gamma, loss="log", standardize=False, tol=tol, holdout=0, max_iter=100)

    def check(m: Any) -> oracles.Left:
        points = np.unique(triplets)
        L, weight = exact(X[points]), mpf(gamma) / len(points)
        L = L - L[0]  # distances alone count
        local, W = np.searchsorted(points, triplets), exact(m.get_mahalanobis_matrix())
        return oracles.log_det_problem(L, W, local, weight, multipliers[-1], tol)

    multipliers = recorded(model)
    return model, (X,), {"triplets": triplets}, check


def laplacian(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, y = random_rows(rng)
    must, cannot = random_pairs(rng, y)
    weights = np.full(len(must) + len(cannot), float(np.clip(scale(rng), 1e-12, 1e12)))
    tol = float(10.0 ** rng.uniform(-7, -3))
    solver = str(rng.choice(["low-rank", "low-rank", "sqlp"]))
    pairs = dkl.Pairs(must, cannot, weights=weights)
    model = dkl.LaplacianKernelLearner(
        n_basis=int(rng.integers(2, min(8, len(X)))),
        standardize=False,
        tol=tol,
        solver=solver,
        holdout=0,
        random_state=0,
    )

    def check(m: Any) -> oracles.Left | None:
        Q, ends = exact(m.basis_), [*((i, i) for i in range(len(X))), *must.tolist(), *cannot.tolist()]
        roots = [mpf(1)] * len(X) + [mp.sqrt(weight) for weight in weights]
        ones = len(X) + len(must)
        forms = np.array(
            [r * (np.outer(Q[i], Q[j]) + np.outer(Q[j], Q[i])) / 2 for r, (i, j) in zip(roots, ends, strict=True)]
        )
        targets = np.array([r if k < ones else 0 * r for k, r in enumerate(roots)])
        least = mpf(1e-3) * (targets**2).sum()
        return oracles.quadratic(forms, targets, 0 * forms[0], m.basis_kernel_, least, tol)

    return model, (X,), {"pairs": pairs}, check


def mvu(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    X, _ = random_rows(rng)
    tol, nu = float(10.0 ** rng.uniform(-7, -3)), "scale" if rng.random() < 0.6 else scale(rng)
    model = dkl.MaximumVarianceUnfolding(
        n_basis=int(rng.integers(2, 7)), n_neighbors=4, nu=nu, standardize=False, tol=tol, holdout=0, random_state=0
    )

    def check(m: Any) -> oracles.Left | None:
        Q, rows, root = exact(m.basis_), exact(X), mp.sqrt(mpf(m.nu_))
        apart = [(Q[i] - Q[j], ((rows[i] - rows[j]) ** 2).sum()) for i, j in m.edges_]
        forms = np.array([root * np.outer(a, a) for a, _ in apart])
        targets = np.array([root * square for _, square in apart])
        C = -exact(np.eye(Q.shape[1]))
        return oracles.quadratic(forms, targets, C, m.basis_kernel_, mpf(1e-3) * (targets**2).sum(), tol)

    return model, (X,), {}, check


def pairwise(rng: Rng) -> tuple[Any, tuple[Any, ...], dict[str, Any], Check]:
    n = int(rng.integers(5, 9))
    y = np.arange(n) % 2
    must, cannot = random_pairs(rng, y)
    W = np.triu(rng.random((n, n)) + 0.01, 1) * scale(rng)
    kind, tol = str(rng.choice(["normalized", "unnormalized"])), float(10.0 ** rng.uniform(-5, -2))
    size = 1.0 if kind == "normalized" else float(W.sum() / n)
    gamma = float(np.clip(size * 10.0 ** rng.uniform(-11, 11), 1e-300, 1e300))
    weights = 10.0 ** rng.uniform(-3, 1, len(must) + len(cannot)) if rng.random() < 0.5 else None
    model = dkl.PairwiseKernelLearner(
        gamma=gamma, affinity="precomputed", laplacian=kind, target_gap=tol, holdout=0, wrong_pairs="trust", random_state=0,
        dtype=str(rng.choice(["float64", "float32"])), solver=str(rng.choice(["auto", "admm"])),
    )  # fmt: skip
    pairs = dkl.Pairs(must, cannot, weights=weights)

    def check(m: Any) -> oracles.Left | None:
        V, C = exact(np.asarray(m.factor_, float)), exact(m.graph_.laplacian.toarray())
        forms, targets = [], []
        each = np.ones(len(must) + len(cannot)) if weights is None else weights
        ends = [*((i, i, 1, 0.5) for i in range(n)), *((i, j, 1, w) for (i, j), w in zip(must, each, strict=False))]
        ends += [(i, j, 0, w) for (i, j), w in zip(cannot, each[len(must) :], strict=True)]
        for i, j, target, w in ends:  # both orders of a pair count
            form, root = np.full((n, n), mpf(0), object), mp.sqrt(mpf(gamma) * mpf(float(w)))
            form[i, j] += root / 2
            form[j, i] += root / 2
            forms.append(form)
            targets.append(root * target)
        least = mp.sqrt(mpf(2) ** -52) * mpf(gamma) * n / 2
        return oracles.quadratic(np.array(forms), np.array(targets), C, V @ V.T, least, tol)

    return model, (W + W.T,), {"pairs": pairs}, check


LEARNERS = {
    one.__name__: one for one in (pairwise, regression, svc, logdet, metric, laplacian, mvu, kpca, spectral, kmeans)
}


def trial(learner: str, seed: int) -> Trial:
    """Make the fit of a learner and a seed, and check what it claims."""
    rng = np.random.default_rng([seed, *learner.encode()])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        model, given, more, check = LEARNERS[learner](rng)
        try:
            model.fit(*given, **more)
        except DklError as error:
            return Trial(learner, seed, "refused", what=" ".join(str(error).split()))
        except Exception as error:
            return Trial(learner, seed, "error", what=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
        result = model.result_
        if not result.outcome.converged:
            return Trial(learner, seed, result.outcome.value)
        found = check(model)
    if found is None:
        return Trial(learner, seed, result.outcome.value)
    left, allowed = found
    is_false = not left <= allowed * (1 + MARGIN) + mpf(10) ** -13
    what = (
        f"{mp.nstr(left, 3)} is left, {mp.nstr(mpf(allowed), 3)} may be; proven {result.proven:.2g}" if is_false else ""
    )
    return Trial(learner, seed, result.outcome.value, is_false, True, what)


def main() -> int:
    """Make the trials that the command line asks for; return 1 if any is false or ends by an error."""
    options = options_of(__doc__, list(LEARNERS), 100)
    counts: dict[str, Counter[str]] = {name: Counter() for name in options.learner}
    for one in trials(trial, options):
        count = counts[one.learner]
        count[one.outcome] += 1
        count["checked"] += one.is_checked
        count["false"] += one.is_false
        if one.is_false or one.outcome == "error":
            print(one.learner, one.seed, one.outcome, one.what, flush=True)
    print_table(counts)
    return int(any(count["false"] or count["error"] for count in counts.values()))


if __name__ == "__main__":
    sys.exit(main())
