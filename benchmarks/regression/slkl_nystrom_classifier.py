"""Errors of the Nystrom classifier on USPS by its prior's variance, and by what new rows are compared with.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_nystrom_classifier [--columns 64,256,1024] [--draws 5,5,1]

Digit 4 against the others on the set's own split, as in table 3 of Machart et al. 2011, whose "Nyst" is Williams and Seeger's own
figure. "rows": v k(x, X) a of all 7,291 training rows X; "columns": the approximation itself in the place of k, of the M rows drawn.
"""

from __future__ import annotations

import argparse

import numpy as np

from benchmarks.regression.slkl import circumstances, table
from dkl.baselines import NystromClassifier
from dkl.reproduce.driver import pair
from dkl.reproduce.slkl import TASKS, VARIANCES, usps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", default="64,256,1024")
    parser.add_argument("--draws", default="5,5,1")
    options = parser.parse_args()
    print(circumstances(1))
    task, split, rows = TASKS["usps"], usps(0), []
    for M, draws in zip(map(int, options.columns.split(",")), map(int, options.draws.split(",")), strict=True):
        printed = dict(zip(task.counts, task.paper["Nyst"], strict=True)).get(M)
        for extension, variances in VARIANCES.items():
            for variance in variances:
                made = [
                    NystromClassifier(gamma=1 / (2 * task.width), variance=variance, extension=extension, n_columns=M,
                                      standardize=False, random_state=seed, n_jobs=1).fit(split.X, split.y)
                    for seed in range(draws)
                ]  # fmt: skip
                wrong = [np.count_nonzero(one.predict(split.X_test) != split.y_test) for one in made]
                spread = float(np.std(wrong, ddof=1)) if draws > 1 else None
                evidence = float(np.mean([one.log_evidence_[0] for one in made]))
                figures = pair((float(np.mean(wrong)), spread), 1)
                rows.append([M, extension, f"{variance:g}", draws, figures, pair(printed, 1), f"{evidence:.0f}"])
    print(table(["M", "new rows by", "variance", "draws", "errors", "the paper's Nyst", "log evidence"], rows))


if __name__ == "__main__":
    main()
