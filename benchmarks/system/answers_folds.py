"""Whether five folds of what is learned from tell when the method that learns less is better: `python -m benchmarks.system.answers_folds`.

    python -m benchmarks.system.answers_folds pairwise --cases n/4 n --mlbench mlbench/usr/lib/R/site-library/mlbench
    python -m benchmarks.system.answers_folds metric --cases "5 % labeled" --mlbench mlbench/usr/lib/R/site-library/mlbench

Each draw of `answers.py` is fitted six times by the learner's defaults: on all that is given, and without each of five folds. Two
answers on the held-out fifth are compared, pooled over the folds. Of pairs: the AUC of the kernel next to that of distances, and how many
pairs the clusters get right next to k-means, both told the number of clusters, which a fit is not. Of labels: how many labeled rows their
nearest other labeled row gets right, by the learned metric or kernel next to Euclid. The alternative is called better where the
difference is more than its standard error (McNemar's for counts). What is true is known from all labels, by `answers.py`'s scores.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.system import answers_sets as sets
from benchmarks.system.answers_questions import LABEL_CASES, PAIR_CASES, UNLABELED, Draw, draw, nearest
from dkl.quality import auc_error, auc_of

FOLDS = 5
LOSS = 0.02


def is_less_often_right(mine: Any, other: Any) -> bool:
    """Return whether `mine` is right less often than `other`, by more than a standard error of the difference (McNemar)."""
    lost, won = np.count_nonzero(other & ~mine), np.count_nonzero(mine & ~other)
    return bool(lost - won > max(np.sqrt(lost + won), 1))


def of_pairs(made: Draw, learner: str) -> tuple[float, dict[str, bool]]:
    """Return (the learner's ARI less k-means', whether each number calls k-means better)."""
    make = {"pairwise": dkl.PairwiseKernelLearner, "laplacian": dkl.LaplacianKernelLearner}[learner]
    attribute = {"pairwise": "factor_", "laplacian": "embedding_"}[learner]

    def factor(pairs: Any) -> Any:
        return getattr(make(random_state=made.seed, holdout=0).fit(made.X, pairs=pairs), attribute)

    def clusters(rows: Any) -> Any:
        return dkl.KernelKMeans(made.k, random_state=made.seed).fit(rows).labels_

    i, j, is_must = made.pairs.i, made.pairs.j, made.pairs.sign > 0
    ends = np.stack([i, j], axis=1)
    scores, together = np.zeros(len(i)), np.zeros(len(i), bool)
    fold = np.random.default_rng(made.seed).permutation(len(i)) % FOLDS
    for k in range(FOLDS):
        learn, held = fold != k, fold == k
        rows = factor(dkl.Pairs(ends[learn & is_must], ends[learn & ~is_must]))
        found = clusters(rows)
        scores[held] = np.sum(rows[i[held]] * rows[j[held]], axis=1)
        together[held] = found[i[held]] == found[j[held]]
    plain = KMeans(made.k, n_init=10, random_state=made.seed).fit_predict(made.X)
    (value, first), (other, second) = (
        auc_of(scores, is_must),
        auc_of(-np.sum((made.X[i] - made.X[j]) ** 2, axis=1), is_must),
    )
    said = {
        "AUC": other - value > auc_error(first, second, is_must),
        "clusters": is_less_often_right(together == is_must, (plain[i] == plain[j]) == is_must),
    }
    difference = adjusted_rand_score(made.y, clusters(factor(made.pairs))) - adjusted_rand_score(made.y, plain)
    return float(difference), said


def of_labels(made: Draw, learner: str) -> tuple[float, dict[str, bool]]:
    """Return (the learner's 1-NN accuracy on unlabeled rows less Euclid's, whether the folds call Euclid better)."""
    make = {"metric": dkl.LogDetMetricLearner, "logdet": dkl.LogDetKernelLearner}[learner]

    def change(labels: Any) -> Any:
        return make(random_state=made.seed, holdout=0).fit(made.X, labels).transform

    def right(rows: Any, train: Any, test: Any) -> Any:
        return KNeighborsClassifier(1).fit(rows[train], made.y[train]).predict(rows[test]) == made.y[test]

    known = made.labeled
    fold = np.empty(len(known), int)
    order = np.lexsort((np.random.default_rng(made.seed).permutation(len(known)), made.y[known]))
    fold[order] = np.arange(len(known)) % FOLDS
    mine, other = np.zeros(len(known), bool), np.zeros(len(known), bool)
    for k in range(FOLDS):
        labels = made.labels.copy()
        labels[known[fold == k]] = UNLABELED
        train, test = known[fold != k], known[fold == k]
        if len(test):
            mine[fold == k] = right(change(labels)(made.X), train, test)
            other[fold == k] = right(made.X, train, test)
    score = "1-NN, unlabeled"
    difference = nearest(made, change(made.labels))[score] - nearest(made, lambda rows: rows)[score]
    return difference, {"1-NN": is_less_often_right(mine, other)}


def main() -> None:
    """Print a line a draw, and for each number how often it was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learner", choices=["pairwise", "laplacian", "metric", "logdet"])
    parser.add_argument("--cases", nargs="+", choices=[*PAIR_CASES, *LABEL_CASES], required=True)
    parser.add_argument(
        "--sets", nargs="+", choices=sets.NAMES, default=[n for n in sets.NAMES if n not in sets.TARGETS]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--mlbench", type=Path, default=Path(sets.MLBENCH))
    options = parser.parse_args()
    lacking = sets.missing(options.sets, options.mlbench)
    if lacking:
        print(lacking, file=sys.stderr)
    compare = of_pairs if options.learner in ("pairwise", "laplacian") else of_labels
    threadpool_limits(1)
    warnings.simplefilter("ignore")
    for case in options.cases:
        found = []
        for name in options.sets:
            if sets.missing([name], options.mlbench):
                continue
            for seed in range(options.seeds):
                made = draw(name, case, seed, options.rows, "standardized", options.mlbench)
                difference, said = compare(made, options.learner)
                found.append((difference, said))
                marks = ", ".join(f"{number} warns" for number, warns in said.items() if warns)
                print(f"{name}, {case}, seed {seed}: {difference:+.3f} {marks}", flush=True)
        for number in found[0][1]:
            lost = [said[number] for difference, said in found if difference < -LOSS]
            kept = [said[number] for difference, said in found if difference > LOSS]
            level = [said[number] for difference, said in found if abs(difference) <= LOSS]
            said_so = [f"{sum(part)} of {len(part)}" for part in (lost, level, kept)]
            print(f"| {options.learner} | {case} | {number} | {' | '.join(said_so)} |")


if __name__ == "__main__":
    main()
