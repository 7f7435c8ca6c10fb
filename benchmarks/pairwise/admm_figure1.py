"""KL-ADMM's objective by iteration beside the proven optimum, after figure 1 of Hu and Kwok (2013).

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.pairwise.admm_figure1 [--sets heart a1a] [--picture FILE.png]

Pairs, graph and rank as in table 2 (admm_table2.py, draw 0, raw features), gamma = 100, normalised Laplacian. ADMM runs past its own
residual test, to --max-iter; the optimum is the factored solver's, to a proven relative gap of 1e-8, so that how far ADMM's
objective lies above it is known to that. Objectives are (1) at K = U U', which is psd. A Markdown row a set; the picture beside it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import dkl
from benchmarks.pairwise.admm_table2 import ADULT
from benchmarks.pairwise.pair_proofs import compile_steps
from dkl.datasets import load

PROVEN, GAMMA = 1e-8, 100.0
SHOWN = (10, 50, 100, 500, 1000, 5000)


def fitted(name: str, **settings: Any) -> tuple[Any, float]:
    """(a learner of the set's draw 0, CPU seconds)."""
    data, n_neighbors, began = load(name), 50 if name in ADULT else 5, time.process_time()
    learner = dkl.PairwiseKernelLearner(gamma=GAMMA, n_neighbors=n_neighbors, random_state=0, n_jobs=1, **settings)
    learner.fit(data.X, pairs=dkl.Pairs.from_labels(data.y, random_state=0))
    return learner, time.process_time() - began


def curve(name: str, max_iter: int) -> tuple[NDArray[Any], int, Any, dict[str, str]]:
    """(ADMM's objective by iteration (k,), its own stop, the optimum's certificate, a row by heads)."""
    stopped, seconds = fitted(name, solver="admm", target_gap=None, max_iter=max_iter)
    longer, _ = fitted(name, solver="admm", target_gap=None, tol=0.0, max_iter=max_iter)
    best, best_seconds = fitted(name, solver="factored", target_gap=PROVEN, max_iter=max_iter)
    optimum, stop = best.certificate_, stopped.n_iter_
    objective = np.array([row["objective"] for row in longer.result_.history])
    assert abs(objective[stop - 1] / stopped.result_.history[-1]["objective"] - 1) < 1e-9
    above = objective / optimum.objective - 1
    row = {
        "set": name, "n": f"{len(best.factor_):,}", "optimum": f"{optimum.objective:.6f}", "proven to": f"{optimum.relative_gap:.1e}",
        "its rank": f"{best.rank_}", "CPU s": f"{best_seconds:.1f}", "ADMM's rank": f"{longer.rank_}", "its stop": f"{stop}",
        "CPU s to it": f"{seconds:.1f}", "gap it proves": f"{stopped.certificate_.relative_gap:.1e}",
        "above the optimum there": f"{above[stop - 1]:.1e}",
        "by iteration": ", ".join(f"{k:,}: {above[k - 1]:.1e}" for k in SHOWN if k <= len(above)),
    }  # fmt: skip
    return objective, stop, optimum, row


def draw(curves: dict[str, tuple[NDArray[Any], int, Any]], path: str) -> None:
    """A column a set: the objective with the optimum as a line, and how far above it as far as that is known."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(curves), 6.5), layout="constrained")
    axes = figure.subplots(2, len(curves), squeeze=False)
    for (upper, lower), (name, (objective, stop, optimum)) in zip(axes.T, curves.items(), strict=True):
        steps = np.arange(1, len(objective) + 1)
        upper.loglog(steps, objective, label="KL-ADMM")
        upper.axhline(optimum.objective, color="C1", linestyle="--", label=f"optimum, {optimum.objective:.4g}")
        above = objective / optimum.objective - 1
        lower.loglog(steps, np.where(above > PROVEN, above, np.nan), label="KL-ADMM above the optimum")
        lower.axhline(PROVEN, color="C1", linestyle="--", label=f"the optimum is proven to {PROVEN:g}")
        for panel in (upper, lower):
            panel.axvline(stop, color="0.5", linestyle=":", label=f"ADMM's own stop, {stop}")
            panel.legend(frameon=False)
        upper.set(title=name, ylabel="objective (1)")
        lower.set(xlabel="iteration", ylabel="objective / optimum - 1", ylim=(1e-4 * PROVEN, None))
    figure.savefig(path, dpi=80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["heart", "a1a"])
    parser.add_argument("--max-iter", type=int, default=5000)
    parser.add_argument("--picture", help="a file for the picture")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    compile_steps()
    fitted("iris", solver="admm", target_gap=1e-6)  # compiles what is left
    curves = {}
    for name in options.sets:
        *curves[name], row = curve(name, options.max_iter)
        if len(curves) == 1:
            print("| " + " | ".join(row) + " |\n|" + "---|" * len(row))
        print("| " + " | ".join(row.values()) + " |", flush=True)
    if options.picture:
        draw(curves, options.picture)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
