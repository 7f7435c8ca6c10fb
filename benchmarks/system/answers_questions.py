"""Questions of `answers.py`: methods that answer the same question, its cases and scores, and what no learner may fall below.

A method takes a `Draw` and returns its scores, and the fitted model where it has one. All settings of a learner are at their defaults,
but the seed and what the question fixes: as many clusters as classes, maps to 2 dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.cluster import SpectralClustering as SklearnSpectralClustering
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.decomposition import KernelPCA as SklearnKernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.manifold import Isomap, LocallyLinearEmbedding, trustworthiness
from sklearn.manifold import SpectralEmbedding as SklearnSpectralEmbedding
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import dkl
from benchmarks.system import answers_sets as sets
from benchmarks.system import constrained_peers as peers
from dkl import baselines

UNLABELED = -1


@dataclass(frozen=True)
class Draw:
    """Draw of a case: rows and unseen rows, with their classes or targets, and what the methods may learn from."""

    X: Any
    y: Any
    Z: Any
    wanted: Any
    seed: int
    pairs: Any = None
    labels: Any = None
    columns: int | None = None

    @property
    def k(self) -> int:
        """Number of classes."""
        return len(np.unique(self.y))

    @property
    def labeled(self) -> Any:
        """Numbers of the rows whose label is known."""
        return np.flatnonzero(self.labels != UNLABELED)


Answer = tuple[dict[str, float], Any]
Method = Callable[[Draw], Answer]


@dataclass(frozen=True)
class Question:
    """Question that several methods answer: learners, and what is there without them."""

    learners: dict[str, Method]
    peers: dict[str, Method]
    cases: tuple[str, ...] = ("all rows",)
    classes: bool = True


PAIR_CASES = {"n/4": (0.25, 0.0), "n": (1.0, 0.0), "n, 10 % wrong": (1.0, 0.1), "2 n, 10 % wrong": (2.0, 0.1)}
"""Number of pairs in rows, and the share of wrong ones; half must-links and half cannot-links."""
LABEL_CASES = {"5 % labeled": 0.05, "30 % labeled": 0.3}


def draw(name: str, case: str, seed: int, rows: int, columns: str, folder: Path) -> Draw:
    """Return the draw of a case; the same for every method."""
    classes = name not in sets.TARGETS
    X, y, Z, wanted = sets.split(sets.load(name, rows, seed, folder), columns, seed, classes)
    made = Draw(X, y, Z, wanted, seed)
    rng = np.random.default_rng([seed, 38])
    if case in PAIR_CASES:
        return replace(made, pairs=drawn_pairs(y, *PAIR_CASES[case], rng))
    if case in LABEL_CASES:
        return replace(made, labels=drawn_labels(y, LABEL_CASES[case], rng))
    return made


def drawn_pairs(y: Any, share: float, wrong: float, rng: Any) -> Any:
    """Return pairs of labels, of which a share is swapped from one kind to the other."""
    half = round(share * len(y) / 2)
    pairs = dkl.Pairs.from_labels(y, n_must=half, n_cannot=half, random_state=int(rng.integers(2**31)))
    ends = np.stack([pairs.i, pairs.j], axis=1)
    sign = pairs.sign.copy()
    sign[rng.permutation(len(sign))[: round(wrong * len(sign))]] *= -1
    return dkl.Pairs(ends[sign > 0], ends[sign < 0])


def drawn_labels(y: Any, share: float, rng: Any) -> Any:
    """Return y with UNLABELED for all but a share of each class, 2 rows of it at least."""
    labels = np.full(len(y), UNLABELED)
    for code in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == code))
        kept = rows[: max(2, round(share * len(rows)))]
        labels[kept] = code
    return labels


def clustered(draw: Draw, seen: Any, unseen: Any = None) -> dict[str, float]:
    """Return adjusted Rand indices of clusters."""
    scores = {"ARI": float(adjusted_rand_score(draw.y, seen))}
    return scores if unseen is None else scores | {"ARI, unseen": float(adjusted_rand_score(draw.wanted, unseen))}


def of_factor(learner: Any, factor: str, draw: Draw) -> Answer:
    """Cluster the rows of a learned factor, the attribute of that name, and unseen rows by their transform."""
    learner.fit(draw.X, pairs=draw.pairs)
    clusters = dkl.KernelKMeans(draw.k, random_state=draw.seed).fit(getattr(learner, factor))
    return clustered(draw, clusters.labels_, clusters.predict(learner.transform(draw.Z))), learner


def pairwise(draw: Draw) -> Answer:
    return of_factor(dkl.PairwiseKernelLearner(random_state=draw.seed), "factor_", draw)


def laplacian(draw: Draw) -> Answer:
    return of_factor(dkl.LaplacianKernelLearner(random_state=draw.seed), "embedding_", draw)


def k_means(draw: Draw) -> Answer:
    model = KMeans(draw.k, n_init=10, random_state=draw.seed).fit(draw.X)
    return clustered(draw, model.labels_, model.predict(draw.Z)), None


def under_pairs(make: Callable[..., Any], draw: Draw) -> Answer:
    """Cluster rows, seen and unseen, under pairs."""
    model = make(draw.k, random_state=draw.seed).fit(draw.X, pairs=draw.pairs)
    return clustered(draw, model.labels_, model.predict(draw.Z)), None


def cop_kmeans(draw: Draw) -> Answer:
    return under_pairs(baselines.COPKMeans, draw)


def pck_means(draw: Draw) -> Answer:
    return under_pairs(baselines.PCKMeans, draw)


def e2cp(draw: Draw) -> Answer:
    scores, model = under_pairs(baselines.E2CP, draw)
    return {"ARI": scores["ARI"]}, model  # the paper has no clusters of unseen rows


def rca(draw: Draw) -> Answer:
    A = peers.rca(draw.X, draw.pairs)
    return k_means(replace(draw, X=draw.X @ A, Z=draw.Z @ A))


def itml(draw: Draw) -> Answer:
    model = baselines.ITMLMetricLearner(random_state=draw.seed).fit(draw.X, pairs=draw.pairs)
    scores, _ = k_means(replace(draw, X=model.transform(draw.X), Z=model.transform(draw.Z)))
    return scores, model


def affinity_spectral(draw: Draw) -> Answer:
    return clustered(draw, peers.affinity_spectral(draw.X, draw.pairs, draw.k, draw.seed)), None


def spectral(draw: Draw) -> Answer:
    model = dkl.SpectralClustering(draw.k, random_state=draw.seed)
    return clustered(draw, model.fit_predict(draw.X), model.predict(draw.Z)), model


def sklearn_spectral(draw: Draw) -> Answer:
    model = SklearnSpectralClustering(draw.k, affinity="nearest_neighbors", random_state=draw.seed)
    return clustered(draw, model.fit_predict(draw.X)), None


def kept(draw: Draw, Y: Any) -> dict[str, float]:
    """Return how far neighbors in a map are neighbors of rows (trustworthiness), and the other way round (continuity)."""
    return {
        "trustworthiness": float(trustworthiness(draw.X, Y, n_neighbors=10)),
        "continuity": float(trustworthiness(Y, draw.X, n_neighbors=10)),
    }


def mapped(make: Callable[[int], Any]) -> Method:
    """Return the method that maps rows by a model."""

    def method(draw: Draw) -> Answer:
        model = make(draw.seed)
        return kept(draw, model.fit_transform(draw.X)), model

    return method


def nearest(draw: Draw, change: Callable[[Any], Any]) -> dict[str, float]:
    """Return the accuracy of the nearest labeled row on unlabeled and on unseen rows, after `change`."""
    rows, known = change(draw.X), draw.labeled
    others = np.flatnonzero(draw.labels == UNLABELED)
    model = KNeighborsClassifier(1).fit(rows[known], draw.y[known])
    return {
        "1-NN, unlabeled": float(model.score(rows[others], draw.y[others])),
        "1-NN, unseen": float(model.score(change(draw.Z), draw.wanted)),
    }


def by_labels(make: Callable[[int], Any], labeled_only: bool = False) -> Method:
    """Return the method that learns a space from labels."""

    def method(draw: Draw) -> Answer:
        rows = draw.labeled if labeled_only else np.arange(len(draw.X))
        model = make(draw.seed).fit(draw.X[rows], draw.labels[rows])
        return nearest(draw, model.transform), model

    return method


def euclid(draw: Draw) -> Answer:
    return nearest(draw, lambda rows: rows), None


def lmnn(draw: Draw) -> Answer:
    L = peers.lmnn(draw.X[draw.labeled], draw.y[draw.labeled])
    return nearest(draw, lambda rows: rows @ L), None


def predicting(make: Callable[[int], Any], score: str) -> Method:
    """Return the method that predicts classes (accuracy) or targets (R2) of unseen rows."""

    def method(draw: Draw) -> Answer:
        model = make(draw.seed).fit(draw.X, draw.y)
        return {score: float(model.score(draw.Z, draw.wanted))}, model

    return method


def nystroem(draw: Draw, columns: int) -> Answer:
    parts = Nystroem(n_components=min(columns, len(draw.X)), random_state=draw.seed), RidgeCV(np.logspace(-6, 3, 19))
    model = make_pipeline(*parts).fit(draw.X, draw.y)
    return {"R2": float(model.score(draw.Z, draw.wanted))}, None


def at_equal_columns(draw: Draw) -> Answer:
    """Nystroem with as many columns as the learner kept on this draw."""
    return nystroem(draw, draw.columns or 100)


def seeded(model: Any, *parts: Any, **settings: Any) -> Callable[[int], Any]:
    """Return a maker of a model by seed."""
    return lambda seed: model(*parts, random_state=seed, **settings)


def centered_kernel_ridge(seed: int) -> Any:
    """Return scikit-learn's KernelRidge, which has no intercept, on standardized targets."""
    return TransformedTargetRegressor(KernelRidge(kernel="rbf"), transformer=StandardScaler())


QUESTIONS = {
    "pairs": Question(
        learners={"PairwiseKernelLearner": pairwise, "LaplacianKernelLearner": laplacian},
        peers={
            "k-means": k_means,
            "PCKMeans": pck_means,
            "COP-KMeans": cop_kmeans,
            "RCA + k-means": rca,
            "ITML + k-means": itml,
            "E2CP": e2cp,
            "pairs in affinity": affinity_spectral,
        },
        cases=tuple(PAIR_CASES),
    ),
    "clusters": Question(
        learners={"SpectralClustering": spectral},
        peers={"scikit-learn": sklearn_spectral, "k-means": k_means},
    ),
    "labels": Question(
        learners={
            "LogDetKernelLearner": by_labels(seeded(dkl.LogDetKernelLearner)),
            "LogDetMetricLearner": by_labels(seeded(dkl.LogDetMetricLearner)),
        },
        peers={
            "Euclid": euclid,
            "NCA": by_labels(seeded(NeighborhoodComponentsAnalysis), labeled_only=True),
            "LMNN": lmnn,
            "ITML": by_labels(seeded(baselines.ITMLMetricLearner)),
        },
        cases=tuple(LABEL_CASES),
    ),
    "maps": Question(
        learners={
            "SpectralEmbedding": mapped(seeded(dkl.SpectralEmbedding, 2)),
            "MaximumVarianceUnfolding": mapped(seeded(dkl.MaximumVarianceUnfolding, 2)),
            "KernelPCA": mapped(seeded(dkl.KernelPCA, 2)),
        },
        peers={
            "PCA": mapped(seeded(PCA, 2)),
            "scikit-learn's SpectralEmbedding": mapped(seeded(SklearnSpectralEmbedding, 2)),
            "scikit-learn's KernelPCA": mapped(seeded(SklearnKernelPCA, 2, kernel="rbf")),
            "Isomap": mapped(lambda seed: Isomap(n_components=2)),
            "LLE": mapped(seeded(LocallyLinearEmbedding, n_components=2)),
        },
    ),
    "classes": Question(
        learners={"OptimalNeighborhoodSVC": predicting(seeded(dkl.OptimalNeighborhoodSVC), "accuracy")},
        peers={
            "SVC": predicting(seeded(SVC), "accuracy"),
            "LinearSVC": predicting(seeded(LinearSVC), "accuracy"),
            "LogisticRegression": predicting(seeded(LogisticRegression, max_iter=1000), "accuracy"),
        },
    ),
    "targets": Question(
        learners={"LowRankKernelRegressor": predicting(seeded(dkl.LowRankKernelRegressor), "R2")},
        peers={
            "Ridge": predicting(seeded(Ridge), "R2"),
            "KernelRidge": predicting(centered_kernel_ridge, "R2"),
            "Nystroem at equal columns": at_equal_columns,
            "Nystroem at 100 columns": lambda draw: nystroem(draw, 100),
        },
        classes=False,
    ),
}
LEARNERS = {
    "pairwise": ("pairs", "PairwiseKernelLearner", "k-means"),
    "spectral": ("clusters", "SpectralClustering", "k-means"),
    "laplacian": ("pairs", "LaplacianKernelLearner", "k-means"),
    "logdet": ("labels", "LogDetKernelLearner", "Euclid"),
    "metric": ("labels", "LogDetMetricLearner", "Euclid"),
    "embedding": ("maps", "SpectralEmbedding", "PCA"),
    "mvu": ("maps", "MaximumVarianceUnfolding", "PCA"),
    "kernel-pca": ("maps", "KernelPCA", "PCA"),
    "svc": ("classes", "OptimalNeighborhoodSVC", "SVC"),
    "regression": ("targets", "LowRankKernelRegressor", "Ridge"),
}
"""(question, method, baseline) of each learner, by the word of the command line, the most important first.

baseline: the peer that learns less, below which the learner may not fall without a warning.
"""
