"""What `gamma="cv"` is worth for clusters, and what it costs: `python benchmarks/pair_gamma.py [SET ...] [--draws 1]`.

For each set, with n/4 must-links and as many cannot-links drawn from the labels, of which a share has the wrong label: the adjusted Rand
index and the normalized mutual information of KernelKMeans, in as many clusters as classes, on the factor at the default gamma, at the
one that is chosen, and at that of the path with the best index, which nobody can know; the CPU seconds of the choice and its fit,
over those of a fit at the default. Contradictory pairs are dropped. A Markdown row a set and share, as they end: means over draws of the
pairs, of gamma and of what is CPU time medians.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from pair_defaults import rows_of
from pair_proofs import compile_steps
from sklearn.metrics import normalized_mutual_info_score
from threadpoolctl import threadpool_limits

import dkl
from dkl.problems.pairwise_terms import gamma_path

SETS = ("wine", "iris", "heart", "glass", "protein", "sonar", "ionosphere", "digits", "usps")
WRONG = (0.0, 0.1, 0.2)
DEFAULT = 100.0
SETTINGS = {"solver": "factored", "random_state": 0, "n_jobs": 1}


def wrong_pairs(y: Any, share: float, seed: int) -> dkl.Pairs:
    """Pairs of the labels y (n,), n/4 of either kind, of which a share is taken for the other kind."""
    half = len(y) // 4
    drawn = dkl.Pairs.from_labels(y, n_must=half, n_cannot=half, random_state=seed)
    ends, _ = drawn.to_metric_learn()
    is_must = (drawn.sign > 0) ^ (np.random.default_rng(seed).random(len(ends)) < share)
    return dkl.Pairs(ends[is_must], ends[~is_must]).check(len(y), "drop")


def clustered(X: Any, y: Any, pairs: dkl.Pairs, gamma: float | str) -> tuple[Any, float, float, float]:
    """(learner, ARI, NMI, CPU seconds of the fit)."""
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = dkl.PairwiseKernelLearner(gamma=gamma, **SETTINGS).fit(X, pairs=pairs)
        taken = time.process_time() - start
        found = dkl.KernelKMeans(len(np.unique(y)), n_init=4, random_state=0).fit_predict(model.factor_)
    return model, dkl.adjusted_rand_index(y, found), normalized_mutual_info_score(y, found), taken


def measured(X: Any, y: Any, share: float, seed: int) -> tuple[list[float], list[float]]:
    """(gamma, seconds at the default, cv's share of them; ARI and NMI at the default, by cv, best) of one draw."""
    pairs = wrong_pairs(y, share, seed)
    _, index, information, once = clustered(X, y, pairs, DEFAULT)
    model, chosen_index, chosen_information, taken = clustered(X, y, pairs, "cv")
    best = max(clustered(X, y, pairs, gamma)[1:3] for gamma in gamma_path(1.0, 9))
    return [model.gamma_, once, taken / once], [index, chosen_index, best[0], information, chosen_information, best[1]]


def row(name: str, X: Any, y: Any, share: float, draws: int) -> str:
    """A line of the table."""
    found = [measured(X, y, share, seed) for seed in range(draws)]
    gamma, once, ratio = np.median([one for one, _ in found], axis=0)
    indices = np.mean([two for _, two in found], axis=0)
    cells = [name, f"{len(y):,}", f"{share:.0%}", f"{gamma:.3g}", *(f"{index:.3f}" for index in indices)]
    return "| " + " | ".join([*cells, f"{once:.2f}", f"{ratio:.1f}"]) + " |"


def main() -> None:
    """All sets and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(SETS))
    parser.add_argument("--draws", type=int, default=1)
    options = parser.parse_args()
    compile_steps()
    X, y, _ = rows_of("wine")
    for gamma in (DEFAULT, "cv"):  # compiles what is left
        clustered(X, y, wrong_pairs(y, 0.0, 1), gamma)
    heads = [f"{index}, {of}" for index in ("ARI", "NMI") for of in ("100", "cv", "best")]
    head = ["set", "n", "wrong", "gamma", *heads, "s, 100", "cv / 100"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for name in options.sets:
        X, y, _ = rows_of(name)
        for share in WRONG:
            print(row(name, X, y, share, options.draws), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
