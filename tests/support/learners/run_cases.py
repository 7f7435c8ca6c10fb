"""For each learner of the registry: small inputs, a fit by the command, the same by the estimator, a number to change.

A learner that is registered without a case here fails the contract: tests/runs/test_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import dkl
from dkl.side_information.loading import load_pairs
from dkl.stores.run import RunStore


@dataclass(frozen=True)
class Case:
    """write: makes the inputs in a folder. files: options that name them. options: what makes the fit small and exact.
    fit: the estimator, fitted by the same data and settings, with the callbacks given. result: parts of the run's folder
    that hold what was learned. tamper: changes one number of it."""

    write: Callable[[Path], None]
    files: tuple[str, ...]
    options: tuple[str, ...]
    fit: Callable[[Path, dict[str, Any]], Any]
    result: tuple[str, ...]
    attributes: tuple[str, ...]
    tamper: Callable[[Path], None]
    ends: str = "solved"
    task: str = ""
    """Learner of a further form, in FORMS."""


def change(run: Path, array: str, by: float = 1e-3) -> None:
    """Make the largest number of a stored array another, and all checksums fit it: nothing but `verify` can tell."""
    folder, _, name = array.partition("/")
    store = RunStore.open(run)
    if name:
        held = store.read_arrays(folder)
        held[name].flat[np.abs(held[name]).argmax()] *= 1 + by
        store.write_arrays(folder, held)
    else:
        stored = zarr.open_array(str(run / array), mode="r+")
        values = np.asarray(stored[...])
        values.flat[np.abs(values).argmax()] *= 1 + by
        stored[...] = values
        store.seal_part(array)
    store.write_report(store.report())


# -- pairs --------------------------------------------------------------------------------------------------------------

PATTERNS = 60


def write_pairs(folder: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(PATTERNS) % 4
    np.savez(folder / "X.npz", X=rng.standard_normal((PATTERNS, 6)) + 4 * np.eye(6)[y], y=y)
    lines = ["i,j,label"]
    for i, j in rng.permutation(PATTERNS).reshape(-1, 2):
        lines.append(f"{i},{j},{'must' if y[i] == y[j] else 'cannot'}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")


def fit_pairs(folder: Path, more: dict[str, Any]) -> Any:
    pairs, X = load_pairs(folder / "pairs.csv").check(PATTERNS), np.load(folder / "X.npz")["X"]
    # random_state=s draws the seed of the start, which the command is given: 0 there is this stream's first number here.
    learner = dkl.PairwiseKernelLearner(
        rank=6, max_iter=40, tol=0.0, target_gap=None, n_jobs=1, random_state=_Seed(0), **more
    )
    return learner.fit(X, must_link=pairs.must_link, cannot_link=pairs.cannot_link)


class _Seed(np.random.RandomState):
    """A stream whose first integer is given: estimators draw the seed that a command is given."""

    def __init__(self, seed: int) -> None:
        super().__init__(0)
        self.seed_given = seed

    def randint(self, *arguments: Any, **keywords: Any) -> Any:
        return self.seed_given


# -- rows and targets -----------------------------------------------------------------------------------------------------


def write_targets(folder: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((120, 3))
    np.savez(folder / "X.npz", X=X, y=np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.standard_normal(120))


def fit_regression(folder: Path, more: dict[str, Any]) -> Any:
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    return dkl.LowRankKernelRegressor(n_columns=30, n_nus=12, n_jobs=1, random_state=_Seed(0), **more).fit(X, y)


def write_labels(folder: Path) -> None:
    rng = np.random.default_rng(2)
    numbers = np.arange(90) % 3
    X = rng.standard_normal((90, 3)) + 1.5 * np.eye(3)[numbers]
    np.savez(folder / "X.npz", X=X, y=np.array(["blue", "green", "red"])[numbers])


def fit_svc(folder: Path, more: dict[str, Any]) -> Any:
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    return dkl.OptimalNeighborhoodSVC(rho=2.0, n_jobs=1, **more).fit(X, y)


GAMMAS = [0.5, 1.0, 2.0]


def write_some_labels(folder: Path) -> None:
    rng = np.random.default_rng(3)
    numbers = np.arange(40) % 2
    X = rng.standard_normal((40, 3)) + 1.2 * np.eye(3)[numbers]
    np.savez(folder / "X.npz", X=X, y=np.where(np.arange(40) % 3 == 0, -1, numbers))


def fit_logdet(folder: Path, more: dict[str, Any]) -> Any:
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    settings = {"kernel": "laplacian", "n_in": 2, "n_out": 2, "n_components": 4, "n_jobs": 1} | more
    return dkl.LogDetKernelLearner(**settings).path(X, y, GAMMAS).model(-1)


def fit_metric(folder: Path, more: dict[str, Any]) -> Any:
    with np.load(folder / "X.npz") as held:
        X, y = held["X"], held["y"]
    settings = {"prior": "covariance", "n_in": 2, "n_out": 2, "n_jobs": 1} | more
    return dkl.LogDetMetricLearner(**settings).path(X, y, GAMMAS).model(-1)


def write_strip(folder: Path) -> None:
    """A rolled strip, with labels by its two ends, and pairs of these: every seventh wrong, or, in hard.csv, none."""
    rng = np.random.default_rng(4)
    place = np.stack([np.sort(rng.random(70)) * 9.0, rng.random(70) * 3.0], axis=1)
    angle, y = 1.0 + place[:, 0] / 3.0, (place[:, 0] > 4.5).astype(int)
    np.savez(folder / "X.npz", X=np.stack([2 * np.cos(angle), 2 * np.sin(angle), place[:, 1]], axis=1), y=y)
    ends = rng.permutation(70)[:40].reshape(-1, 2)
    says = [(y[i] == y[j]) != (k % 7 == 0) for k, (i, j) in enumerate(ends)]
    lines = [
        f"{i},{j},{'must' if same else 'cannot'},{0.5 + k % 3}"
        for k, ((i, j), same) in enumerate(zip(ends, says, strict=True))
    ]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label,weight", *lines]) + "\n")
    says = [f"{i},{j},{'must' if y[i] == y[j] else 'cannot'}" for i, j in rng.permutation(70).reshape(-1, 2)]
    says += [f"{i},{j},{'must' if y[i] == y[j] else 'cannot'}" for i, j in rng.permutation(68).reshape(-1, 2)]
    (folder / "hard.csv").write_text("\n".join(["i,j,label", *dict.fromkeys(says)]) + "\n")


def fit_unfolding(folder: Path, more: dict[str, Any]) -> Any:
    X = np.load(folder / "X.npz")["X"]
    return dkl.MaximumVarianceUnfolding(n_basis=34, n_neighbors=6, tol=1e-10, n_jobs=1, **more).fit(X)


def fit_propagation(folder: Path, more: dict[str, Any]) -> Any:
    learner = dkl.LaplacianKernelLearner(8, n_neighbors=6, tol=1e-8, n_jobs=1, **more)
    return learner.fit(np.load(folder / "X.npz")["X"], pairs=load_pairs(folder / "pairs.csv"))


def fit_hard_distances(folder: Path, more: dict[str, Any]) -> Any:
    learner = dkl.MaximumVarianceUnfolding(constraints="hard", n_neighbors=5, n_jobs=1, **more)
    return learner.fit(np.load(folder / "X.npz")["X"])


def fit_hard_pairs(folder: Path, more: dict[str, Any]) -> Any:
    learner = dkl.LaplacianKernelLearner(n_neighbors=6, constraints="hard", holdout=0.4, n_jobs=1, **more)
    return learner.fit(np.load(folder / "X.npz")["X"], pairs=load_pairs(folder / "hard.csv"))


CASES = {
    "pairwise": Case(
        write_pairs,
        ("--data", "X.npz", "--pairs", "pairs.csv"),
        ("--rank", "6", "--max-iter", "40", "--tol", "0", "--target-gap", "none"),
        fit_pairs,
        ("factor",),
        ("factor_", "rank_"),
        lambda run: change(run, "factor"),
        ends="iteration_limit",
    ),
    "regression": Case(
        write_targets,
        ("--data", "X.npz"),
        ("--n-columns", "30", "--n-nus", "12"),
        fit_regression,
        ("model", "candidates"),
        ("coef_", "intercept_", "weights_", "support_", "support_vectors_", "nu_", "objective_", "duality_gap_"),
        lambda run: change(run, "model/weights"),
    ),
    "svc": Case(
        write_labels,
        ("--data", "X.npz"),
        ("--rho", "2"),
        fit_svc,
        ("model",),
        ("dual_coef_", "intercept_", "support_", "support_vectors_", "classes_", "objective_", "duality_gap_"),
        lambda run: change(run, "model/coefficients"),
    ),
    "logdet": Case(
        write_some_labels,
        ("--data", "X.npz"),
        (
            "--kernel",
            "laplacian",
            "--n-in",
            "2",
            "--n-out",
            "2",
            "--n-components",
            "4",
            *(f"--gamma={g}" for g in GAMMAS),
        ),
        fit_logdet,
        ("model",),
        ("points_", "M_", "_weights", "_weights_at_points", "_offset"),
        lambda run: change(run, "model/M"),
    ),
    "metric": Case(
        write_some_labels,
        ("--data", "X.npz"),
        ("--prior", "covariance", "--n-in", "2", "--n-out", "2", *(f"--gamma={g}" for g in GAMMAS)),
        fit_metric,
        ("model",),
        ("components_", "_prior_metric", "_rows_kept"),
        lambda run: change(run, "model/components"),
    ),
    "mvu": Case(
        write_strip,
        ("--data", "X.npz"),
        ("--n-basis", "34", "--n-neighbors", "6", "--tol", "1e-10"),
        fit_unfolding,
        ("model",),
        ("embedding_", "basis_", "basis_kernel_", "edges_", "nu_"),
        lambda run: change(run, "model/Y"),
    ),
    "laplacian": Case(
        write_strip,
        ("--data", "X.npz", "--pairs", "pairs.csv"),
        ("--n-basis", "8", "--n-neighbors", "6", "--tol", "1e-8"),
        fit_propagation,
        ("model",),
        ("embedding_", "basis_", "basis_kernel_"),
        lambda run: change(run, "model/Y"),
    ),
}

FORMS = {
    "mvu, hard": Case(
        write_strip,
        ("--data", "X.npz"),
        ("--constraints", "hard", "--n-neighbors", "5"),
        fit_hard_distances,
        ("model",),
        ("embedding_", "basis_", "basis_kernel_", "edges_"),
        lambda run: change(run, "model/Y"),
        task="mvu",
    ),
    "laplacian, hard": Case(
        write_strip,
        ("--data", "X.npz", "--pairs", "hard.csv"),
        ("--constraints", "hard", "--n-neighbors", "6", "--holdout", "0.4"),
        fit_hard_pairs,
        ("model", "held_out"),
        ("embedding_", "basis_", "basis_kernel_"),
        lambda run: change(run, "model/Y"),
        task="laplacian",
    ),
}
"""Further forms of learners, for the battery alone: what they store is not what a learner stores by default."""
