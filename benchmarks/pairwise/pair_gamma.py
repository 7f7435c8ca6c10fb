"""What pairs held out are worth where some pairs are wrong, and what they cost.

    python -m benchmarks.pairwise.pair_gamma [SET ...] [--draws 3]

For each set, with n or 2 n pairs of its labels, half of either kind, of which a share was given the other kind: the adjusted Rand
index of KernelKMeans, in as many clusters as classes, on the factor of pairs that are all trusted, of those without contradictions
(`contradictions="drop"`), and by `wrong_pairs="auto"`, `"find"` and `gamma="cv"` alone; the share of wrong pairs that "find" estimates; of
what it flags the share that is wrong, and of the wrong ones the share that it flags; CPU seconds of a fit that trusts all, and how many
times as many "auto" takes. A Markdown row a set, number and share, as they end: means over draws of the pairs, of what is CPU time medians.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.pairwise.pair_defaults import rows_of
from benchmarks.pairwise.pair_proofs import compile_steps

SETS = ("wine", "iris", "heart", "glass", "sonar", "ionosphere", "digits")
TIMES, WRONG = (1, 2), (0.0, 0.1, 0.2)
FITS: dict[str, dict[str, Any]] = {
    "trust": {"wrong_pairs": "trust"},
    "drop": {"wrong_pairs": "trust", "contradictions": "drop"},
    "auto": {},
    "find": {"wrong_pairs": "find"},
    "cv": {"gamma": "cv", "wrong_pairs": "trust"},
}
SETTINGS = {"random_state": 0, "n_jobs": 1}


def noisy_pairs(y: Any, count: int, share: float, seed: int) -> dkl.Pairs:
    """Return `count` pairs of the labels y (n,), half of either kind before a share of them is given the other kind."""
    drawn = dkl.Pairs.from_labels(y, n_must=count // 2, n_cannot=count // 2, random_state=seed)
    ends, _ = drawn.to_metric_learn()
    is_must = (drawn.sign > 0) ^ (np.random.default_rng(seed).random(len(ends)) < share)
    return dkl.Pairs(ends[is_must], ends[~is_must])


def clustered(X: Any, y: Any, pairs: dkl.Pairs, settings: dict[str, Any]) -> tuple[Any, float, float]:
    """Return (learner, adjusted Rand index, CPU seconds of the fit)."""
    start = time.process_time()
    model = dkl.PairwiseKernelLearner(**SETTINGS, **settings).fit(X, pairs=pairs)
    taken = time.process_time() - start
    found = dkl.KernelKMeans(len(np.unique(y)), n_init=4, random_state=0).fit_predict(model.factor_)
    return model, dkl.adjusted_rand_index(y, found), taken


def measured(X: Any, y: Any, count: int, share: float, seed: int) -> tuple[list[float], list[float]]:
    """Return (indices by fit, then estimated share, precision and recall; seconds of "trust", times of "auto") of one draw."""
    pairs = noisy_pairs(y, count, share, seed)
    found = {name: clustered(X, y, pairs, settings) for name, settings in FITS.items()}
    told = found["find"][0].result_.wrong_pairs
    wrong = (y[told.pairs.i] == y[told.pairs.j]) != (told.pairs.sign > 0)
    precision = wrong[told.flagged].mean() if told.flagged.any() else np.nan
    recall = told.flagged[wrong].mean() if wrong.any() else np.nan
    once = found["trust"][2]
    return [*(index for _, index, _ in found.values()), told.share, precision, recall], [once, found["auto"][2] / once]


def row(name: str, X: Any, y: Any, times: int, share: float, draws: int) -> str:
    """Return a line of the table."""
    found = [measured(X, y, times * len(y), share, seed) for seed in range(draws)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of draws that flag nothing
        numbers = np.nanmean([one for one, _ in found], axis=0)
    once, ratio = np.median([two for _, two in found], axis=0)
    said = [f"{number:.3f}" if np.isfinite(number) else "-" for number in numbers]
    cells = [name, f"{len(y):,}", f"{times} n", f"{share:.0%}", *said, f"{once:.2f}", f"{ratio:.1f}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure all sets, numbers and shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(SETS))
    parser.add_argument("--draws", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    compile_steps()
    X, y, _ = rows_of("wine")
    clustered(X, y, noisy_pairs(y, len(y), 0.2, 1), FITS["find"])  # compiles what is left
    head = ["set", "n", "pairs", "wrong", *FITS, "share", "precision", "recall", "s, trust", "auto / trust"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head), flush=True)
    for name in options.sets:
        X, y, _ = rows_of(name)
        for times in TIMES:
            for share in WRONG:
                print(row(name, X, y, times, share, options.draws), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
