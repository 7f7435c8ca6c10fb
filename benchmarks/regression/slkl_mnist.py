"""MNIST by SLKL, ten one-versus-all outputs (+1/-1) of which the largest counts: errors, seconds, memory.

    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_mnist                                   # pixels, M = 1,000
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_mnist --features hog
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_mnist --columns 10000 --repeats 1 [--features hog]
    OMP_NUM_THREADS=1 python -m benchmarks.regression.slkl_mnist --n 5000 --columns 300 --repeats 2    # a small try

gamma and nu are those with the least error on a sixth of the training rows, which is held out; the test rows are looked
at once, at the end. nu is searched as alpha = sqrt(nu)/n, scikit-learn's penalty, which goes over to another n. Every
repeat then times, in turn: the fit of all outputs at that nu on all training rows; the bare work (slkl.py); and
scikit-learn's Nystroem + Ridge on the same rows, with as many columns and its alpha held out likewise.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.pairwise.admm import PeakMemory
from benchmarks.regression.slkl import bare_factors, bare_whole, bare_work, circumstances, spread, table
from dkl import LowRankKernelRegressor
from dkl.datasets import load
from dkl.linalg.kernels.kernel_columns import Kernel, block_rows
from dkl.reproduce.oriented_gradients import oriented_gradients
from dkl.resources import format_bytes

GAMMAS = {"pixels": (0.01, 0.02, 0.04), "hog": (0.125, 0.25, 0.5, 1.0)}
ALPHAS = tuple(np.geomspace(1e-3, 1e-6, 7))
RIDGES = tuple(np.geomspace(1e-3, 10, 5))


def signs(labels: NDArray) -> NDArray[np.float64]:
    """(n, 10) of +1 and -1."""
    return np.where(labels[:, None] == np.arange(10), 1.0, -1.0)


def error_rate(scores: NDArray, labels: NDArray) -> float:
    return float(np.mean(scores.argmax(axis=1) != labels))


def chosen(
    X: NDArray, labels: NDArray, kept: int, options: argparse.Namespace
) -> tuple[float, float, list[dict[str, Any]]]:
    """(gamma, alpha) with the least error on the rows from `kept` on, and the whole grid. One pass a gamma."""
    grid = []
    for gamma in options.gammas or GAMMAS[options.features]:
        model = make(options, gamma, nu=1.0, tol=1e-4)
        columns = np.random.default_rng(options.seed).choice(kept, min(options.columns, kept), replace=False)
        model.set_params(columns=columns)
        start = time.perf_counter()
        path = model.path(X[:kept], signs(labels[:kept]), [(alpha * kept) ** 2 for alpha in options.alphas])
        held_out = Kernel("rbf", gamma).columns(X[kept:], X[columns], options.dtype)
        for nu, weights, intercepts, active in zip(path.nus, path.weights, path.intercepts, path.n_active, strict=True):
            error = error_rate(held_out @ weights.T.astype(options.dtype) + intercepts, labels[kept:])
            grid.append({"gamma": gamma, "alpha": np.sqrt(nu) / kept, "error": error, "active": active.mean()})
        print(f"gamma = {gamma:g}: path in {time.perf_counter() - start:.1f} s", flush=True)
        for row in grid[-len(path.nus) :]:
            print(f"    alpha = {row['alpha']:.1e}   held-out error {row['error']:.2%}   m0 {row['active']:.0f}")
    best = min(grid, key=lambda row: row["error"])
    return best["gamma"], best["alpha"], grid


def make(options: argparse.Namespace, gamma: float, **others: Any) -> LowRankKernelRegressor:
    return LowRankKernelRegressor(
        gamma=gamma,
        n_columns=options.columns,
        dtype=options.dtype,
        n_jobs=options.threads,
        random_state=options.seed,
        **others,
    )


def chosen_ridge(X: NDArray, labels: NDArray, kept: int, gamma: float, options: argparse.Namespace) -> float:
    from sklearn.linear_model import Ridge

    features = nystroem(options, gamma).fit(X[:kept])
    inside, outside = features.transform(X[:kept]), features.transform(X[kept:])
    errors = [
        error_rate(Ridge(alpha).fit(inside, signs(labels[:kept])).predict(outside), labels[kept:]) for alpha in RIDGES
    ]
    return float(RIDGES[int(np.argmin(errors))])


def nystroem(options: argparse.Namespace, gamma: float) -> Any:
    from sklearn.kernel_approximation import Nystroem

    return Nystroem(kernel="rbf", gamma=gamma, n_components=options.columns, random_state=options.seed)


def fit(X: NDArray, y: NDArray, gamma: float, alpha: float, options: argparse.Namespace) -> dict[str, Any]:
    before = psutil.Process().memory_info().rss
    model = make(options, gamma, nu=float((alpha * len(X)) ** 2), tol=options.tol)
    with PeakMemory(0.01) as memory:
        start, used = time.perf_counter(), time.process_time()
        model.fit(X, y)
        seconds, used = time.perf_counter() - start, time.process_time() - used
    return {
        "model": model,
        "seconds": seconds,
        "processor": used,
        "peak": memory.peak,
        "before": before,
        **model.result_.seconds,
    }


def fit_nystroem(X: NDArray, y: NDArray, gamma: float, ridge: float, options: argparse.Namespace) -> dict[str, Any]:
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline

    with threadpool_limits(options.threads):
        start = time.perf_counter()
        model = make_pipeline(nystroem(options, gamma), Ridge(ridge)).fit(X, y)
        return {"model": model, "seconds": time.perf_counter() - start}


def compare(options: argparse.Namespace) -> dict[str, Any]:
    print(circumstances(options.threads))
    data = load("mnist")
    assert data.y_test is not None
    order = np.random.default_rng(options.seed).permutation(len(data.X))[: options.n]
    start = time.perf_counter()
    X, tests = features(data.X[order], options), features(data.X_test[: options.test], options)
    print(f"{options.features}: {X.shape[1]} features of {len(X) + len(tests):,} images, "
          f"{time.perf_counter() - start:.1f} s", flush=True)  # fmt: skip
    labels, y = data.y[order], signs(data.y[order])
    kept = len(X) - len(X) // 6
    fit(X[:2000], y[:2000], 0.1, 1e-4, options)  # compiles
    gamma, alpha, grid = chosen(X, labels, kept, options)
    with_peer = options.columns <= options.most_nystroem
    ridge = chosen_ridge(X, labels, kept, gamma, options) if with_peer else None
    # Read here, so that the bare work has what it needs in memory.
    points = X[np.random.default_rng(options.seed).choice(len(X), options.columns, replace=False)]
    A, Z = bare_factors(X, points, gamma, options.dtype)
    size = block_rows(options.columns, X.shape[1], options.dtype)
    fits, bare, bare_used, whole, peers = [], [], [], [], []
    for _ in range(options.repeats):
        used = time.process_time()
        bare.append(bare_work(A, Z, size, options.threads))
        bare_used.append(time.process_time() - used)
        fits.append(fit(X, y, gamma, alpha, options))
        if len(X) * options.columns * A.itemsize <= 4e9:
            whole.append(bare_whole(A, Z, options.threads))
        if ridge is not None:
            peers.append(fit_nystroem(X, y, gamma, ridge, options))
    model = fits[0]["model"]
    peer = peers[0]["model"] if peers else None
    counts = np.count_nonzero(np.atleast_2d(model.weights_), axis=1)
    report: dict[str, Any] = {
        "features": options.features, "n": len(X), "columns": options.columns, "dtype": options.dtype,
        "gamma": gamma, "alpha": alpha, "nu": model.nu_, "ridge": ridge, "grid": grid,
        "error": error_rate(model.predict(tests), data.y_test[: options.test]),
        "m0": counts.tolist(), "m0_union": model.n_active_, "gap": float(model.relative_gap_.max()),
        "seconds": [row["seconds"] for row in fits],
        "stages": {stage: [row[stage] for row in fits] for stage in ("columns", "pass", "solve")},
        "peak": [row["peak"] for row in fits], "before": [row["before"] for row in fits],
        "bare": [row.seconds for row in bare], "bare_columns": [row.columns for row in bare],
        "bare_gram": [row.gram for row in bare], "bare_whole": [row.seconds for row in whole],
        "nystroem": [row["seconds"] for row in peers],
        "nystroem_error": None if peer is None else error_rate(peer.predict(tests), data.y_test[: options.test]),
    }  # fmt: skip
    report["processor"], report["bare_processor"] = [row["processor"] for row in fits], bare_used
    report["processor_ratio"] = [ours / base for ours, base in zip(report["processor"], bare_used, strict=True)]
    report["ratio"] = [ours / base for ours, base in zip(report["seconds"], report["bare"], strict=True)]
    tell(report)
    return report


def features(images: NDArray, options: argparse.Namespace) -> NDArray:
    return oriented_gradients(images) if options.features == "hog" else images.astype(options.dtype) / 255


def tell(report: dict[str, Any]) -> None:
    rows = [
        ["error on the test rows", f"{report['error']:.2%}"],
        ["gamma; alpha; nu", f"{report['gamma']:g}; {report['alpha']:.2g}; {report['nu']:.3g}"],
        ["m0 of an output; of all together", f"{min(report['m0'])} to {max(report['m0'])}; {report['m0_union']}"],
        ["largest relative gap", f"{report['gap']:.1e}"],
        ["fit of ten outputs, s", spread(report["seconds"])],
        *([f"of it {stage}, s", spread(values)] for stage, values in report["stages"].items()),
        ["bare work, s", spread(report["bare"])],
        ["of it columns; Gram, s", f"{spread(report['bare_columns'])}; {spread(report['bare_gram'])}"],
        ["ratio of the fit to the bare work", spread(report["ratio"])],
        ["the same of processor seconds", spread(report["processor_ratio"])],
        ["of the fit; of the bare work", f"{spread(report['processor'])}; {spread(report['bare_processor'])}"],
        ["peak memory; before the fit", f"{format_bytes(max(report['peak']))}; {format_bytes(report['before'][0])}"],
    ]
    if report["bare_whole"]:
        rows.insert(-2, ["bare work on whole arrays, s", spread(report["bare_whole"])])
    if report["nystroem"]:
        rows += [
            ["Nystroem + Ridge: s", spread(report["nystroem"])],
            ["Nystroem + Ridge: error", f"{report['nystroem_error']:.2%} (ridge {report['ridge']:g})"],
        ]
    title = f"{report['features']}, n = {report['n']:,}, M = {report['columns']:,}, {report['dtype']}"
    print("\n" + table([title, f"{len(report['seconds'])} repeats"], rows), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", choices=["pixels", "hog"], default="pixels")
    parser.add_argument("--n", type=int, default=60_000)
    parser.add_argument("--test", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=1000)
    parser.add_argument("--gammas", type=float, nargs="+")
    parser.add_argument("--alphas", type=float, nargs="+", default=ALPHAS)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--most-nystroem", type=int, default=2000, help="columns beyond which scikit-learn is left out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json")
    options = parser.parse_args()
    report = compare(options)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1, default=float))


if __name__ == "__main__":
    main()
