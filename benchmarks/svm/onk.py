"""ONK: the projection, seconds against scikit-learn's SVC, and more rows than a kernel holds.

    python -m benchmarks.svm.onk speed          # a4a whole, and USPS 3 against the rest: fit against SVC(kernel="rbf")
    python -m benchmarks.svm.onk projection     # box_hyperplane against a general QP solver (clarabel), n to 10^7
    python -m benchmarks.svm.onk large          # 50,000 rows under memory_limit="3 GB"
    python -m benchmarks.svm.onk small          # CPU of fits of 150 to 1,000 rows, and of one row predicted, beside scikit-learn's
    python -m benchmarks.svm.onk peers          # CPU of a4a and 8,000 rows of MNIST beside SVC, and scikit-learn-intelex'

But for `small`, one BLAS thread (OMP_NUM_THREADS=1) for every process; `--threads` of this one work on the kernel and its products.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.regression.slkl import circumstances, spread, table
from dkl import OptimalNeighborhoodSVC
from dkl.datasets import load
from dkl.linalg.svm_dual import box_hyperplane
from dkl.reproduce.onk import two_class
from dkl.resources import format_bytes, peak_rss

TRAINING = 60_000
"""Of MNIST's digits, whose last 10,000 are tested on."""


def timed(repeats: int, work: Callable[..., Any], *arguments: Any) -> tuple[Any, list[float]]:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work(*arguments)
        seconds.append(time.perf_counter() - start)
    return result, seconds


def speed(options: argparse.Namespace) -> None:
    """Fit against SVC at its default tolerance on the same rows, alternately; gamma="scale" for both."""
    from sklearn.svm import SVC

    X, y = two_class("a4a")
    usps = load("usps")
    problems = {"a4a": (X.toarray(), y), "usps 3": (usps.X, np.where(usps.y == 3, 1.0, -1.0))}
    rows = []
    for name, (rows_of, labels) in problems.items():
        ours: dict[str, list[float]] = {"float64": [], "float32": []}
        peer: list[float] = []
        gaps = {}
        for dtype in ours:
            OptimalNeighborhoodSVC(dtype=dtype, n_jobs=options.threads).fit(rows_of[:500], labels[:500])  # compiles
        for _ in range(options.repeats):
            for dtype, seconds in ours.items():
                model = OptimalNeighborhoodSVC(C=1, rho=100, dtype=dtype, n_jobs=options.threads)
                fitted, taken = timed(1, model.fit, rows_of, labels)
                seconds += taken
                gaps[dtype] = float(fitted.relative_gap_.max())
            peer += timed(1, SVC().fit, rows_of, labels)[1]
        for dtype, seconds in ours.items():
            ratios = [a / b for a, b in zip(seconds, peer, strict=True)]
            rows.append([name, len(labels), dtype, spread(seconds), f"{gaps[dtype]:.1e}", spread(peer), spread(ratios)])
    print(table(["set", "n", "kernel", "seconds", "relative gap", "SVC, seconds", "ratio"], rows))


def projection(options: argparse.Namespace) -> None:
    """box_hyperplane on random points, and a conic solver on the same while it takes less than a minute."""
    rng = np.random.default_rng(0)
    rows = []
    for n in (10**3, 10**4, 10**5, 10**6, 10**7):
        v, y = rng.standard_normal(n), rng.choice([-1.0, 1.0], n)
        box_hyperplane(v, y, 1.0)
        x, ours = timed(options.repeats, box_hyperplane, v, y, 1.0)
        other, difference = "", ""
        if n <= 10**5:
            found, taken = timed(1, by_clarabel, v, y)
            other, difference = f"{taken[0] / np.median(ours):.0f}", f"{np.abs(found - x).max():.1e}"
        rows.append([f"{n:,}", f"{1e3 * np.median(ours):.3f}", f"{1e9 * np.median(ours) / n:.1f}", other, difference])
    print(table(["n", "milliseconds", "ns a number", "clarabel's time over ours", "apart"], rows))


def by_clarabel(v: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """min |x - v|^2 / 2 with 0 <= x <= 1, y'x = 0."""
    import clarabel

    n = len(v)
    eye = sp.eye_array(n, format="csc")
    A = sp.csc_matrix(sp.vstack([sp.csr_array(y[None]), -eye, eye]))
    b = np.concatenate([[0.0], np.zeros(n), np.ones(n)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n)]
    return np.array(clarabel.DefaultSolver(sp.csc_matrix(eye), -v, A, b, cones, settings).solve().x)


def quietly(model: OptimalNeighborhoodSVC, X: Any, y: NDArray[np.float64]) -> OptimalNeighborhoodSVC:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def moved(images: NDArray[Any], down: int, right: int) -> NDArray[Any]:
    """28 x 28 images, moved by so many pixels over black."""
    found = np.roll(images.reshape(-1, 28, 28), (down, right), (1, 2))
    for axis, by in ((1, down), (2, right)):
        empty = slice(0, by) if by >= 0 else slice(by, None)
        found[(slice(None),) * axis + (empty,)] = 0
    return found.reshape(len(images), -1)


def digits(mnist: Any, n: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """n of MNIST's first 60,000 digits, even against odd; of more than there are, moved by a pixel in one direction after another."""
    X, y = np.empty((n, 784), np.float32), np.empty(n)
    for lo, by in zip(range(0, n, TRAINING), [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1)], strict=False):
        images = mnist.X[: min(TRAINING, n - lo)]
        X[lo : lo + len(images)] = moved(images, *by) / np.float32(255)
        y[lo : lo + len(images)] = np.where(mnist.y[: len(images)] % 2 == 0, 1.0, -1.0)
    return X, y


def large(options: argparse.Namespace) -> None:
    """MNIST's first n digits, even against odd, under a limit: seconds and rounds; their columns' rate."""
    mnist = load("mnist")
    X, y = digits(mnist, options.n)
    tested = (mnist.X[-10_000:] / np.float32(255)).astype(np.float32)
    answers = np.where(mnist.y[-10_000:] % 2 == 0, 1.0, -1.0)
    del mnist
    before = format_bytes(peak_rss())
    start = time.perf_counter()

    def tell(row: dict[str, Any]) -> None:
        passed = time.perf_counter() - start
        print(
            f"  {passed:6.1f} s: {row['rows']:,} rows, {row['products']} products, gap {row['relative_gap']:.1e}",
            flush=True,
        )

    model = OptimalNeighborhoodSVC(C=1, rho=options.rho, gamma=0.02, dtype=options.dtype, memory_limit=options.limit,
                                   n_jobs=options.threads, tol=options.tol, callbacks=tell)  # fmt: skip
    fitted, taken = timed(1, quietly, model, X, y)
    print(f"n {options.n:,}, {options.dtype}, rho {np.ravel(fitted.rho_)[0]:,.0f}: {fitted.result_.plan['placement']}, "
          f"{fitted.result_.outcome.value}, gap {fitted.relative_gap_.max():.1e}, {taken[0]:.0f} s, "
          f"{len(fitted.support_):,} support vectors; peak {format_bytes(peak_rss())} of {options.limit} ({before} before the fit), "
          f"planned {format_bytes(fitted.result_.plan['process_bytes'])}; "
          f"error on the last 10,000 of the set {100 * (1 - fitted.score(tested, answers)):.2f} %")  # fmt: skip
    if options.svc:
        from sklearn.svm import SVC

        peer, longer = timed(1, SVC(C=1, gamma=0.02, cache_size=1000).fit, X, y)
        print(f"SVC with a cache of 1 GB: {longer[0]:.0f} s, {longer[0] / taken[0]:.1f} times as long; "
              f"{len(peer.support_):,} support vectors, error {100 * (1 - peer.score(tested, answers)):.2f} %")  # fmt: skip


def small(options: argparse.Namespace) -> None:
    """CPU milliseconds at the defaults: fits of few rows, with and without the held-out number, and one row predicted."""
    from sklearn.svm import SVC
    from threadpoolctl import threadpool_info

    print("BLAS threads:", [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"], "\n")
    rows = []
    for name, (X, y) in small_sets().items():
        peer, plain, ours = SVC(), OptimalNeighborhoodSVC(holdout=0), OptimalNeighborhoodSVC()
        cpu = [cpu_times(options.repeats, model.fit, X, y) for model in (ours, plain, peer)]
        one = row_times(options.repeats, ours.predict, peer.predict, X[:1])
        fits = [f"{1e3 * seconds:.2f}" for seconds in cpu] + [f"{seconds / cpu[2]:.1f}" for seconds in cpu[:2]]
        rows.append([name, len(y), *fits, *(f"{1e3 * seconds:.3f}" for seconds in one), f"{one[0] / one[1]:.2f}"])
    print(
        table(["set", "n", "fit, ms", "holdout=0", "SVC", "ratio", "holdout=0", "a row, ms", "SVC", "ratio"], rows),
        "\n",
    )
    print(table(["one row", "ms", "peer", "ms", "ratio"], rows_predicted(options.repeats)))


def small_sets() -> dict[str, tuple[NDArray[np.float64], NDArray[Any]]]:
    """Sets of scikit-learn's own."""
    from sklearn import datasets
    from sklearn.preprocessing import scale

    digits_of, wine = datasets.load_digits(return_X_y=True), datasets.load_wine(return_X_y=True)
    cancer = datasets.load_breast_cancer(return_X_y=True)
    return {
        "iris": datasets.load_iris(return_X_y=True),
        "wine": (scale(wine[0]), wine[1]),
        "breast cancer": (scale(cancer[0])[:200], cancer[1][:200]),
        "two clouds": datasets.make_classification(200, 10, random_state=0),
        "digits": (digits_of[0][:1000], digits_of[1][:1000]),
    }


def rows_predicted(repeats: int) -> list[list[Any]]:
    """One row by each learner and by what scikit-learn has for it."""
    from sklearn.cluster import KMeans
    from sklearn.datasets import load_breast_cancer
    from sklearn.decomposition import KernelPCA as PeerPCA
    from sklearn.kernel_approximation import Nystroem
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import scale

    import dkl

    X, y = load_breast_cancer(return_X_y=True)
    X = scale(X)
    pairs = {
        ("regression", "KernelRidge"): (dkl.LowRankKernelRegressor(n_columns=200), KernelRidge(kernel="rbf")),
        ("regression", "Nystroem, Ridge"): (
            dkl.LowRankKernelRegressor(n_columns=200),
            make_pipeline(Nystroem(n_components=200), Ridge()),
        ),
        ("kernel PCA", "KernelPCA"): (dkl.KernelPCA(2), PeerPCA(2, kernel="rbf")),
        ("kernel k-means", "KMeans"): (dkl.KernelKMeans(3), KMeans(3)),
        ("metric", "NCA"): (dkl.LogDetMetricLearner(), NeighborhoodComponentsAnalysis(max_iter=5)),
    }
    rows = []
    for (name, peer_name), models in pairs.items():
        targets = X[:, 0] if name == "regression" else y
        fitted = [quietly(model, X, targets) for model in models]
        verb = "predict" if name == "kernel k-means" or not hasattr(fitted[0], "transform") else "transform"
        works = [getattr(model, verb if hasattr(model, verb) else "predict") for model in fitted]
        found = row_times(repeats, works[0], works[1], X[:1])
        rows.append([name, f"{1e3 * found[0]:.3f}", peer_name, f"{1e3 * found[1]:.3f}", f"{found[0] / found[1]:.2f}"])
    return rows


def row_times(repeats: int, ours: Callable[..., Any], peer: Callable[..., Any], row: Any) -> tuple[float, float]:
    """CPU seconds of a call of both, each the least of 12 blocks of 40 calls a repeat: in turn, or the machine's other work decides."""
    best = [float("inf")] * 2
    for _ in range(12 * repeats):
        for which, work in enumerate((ours, peer)):
            start = time.process_time()
            for _ in range(40):
                work(row)
            best[which] = min(best[which], (time.process_time() - start) / 40)
    return best[0], best[1]


def cpu_times(repeats: int, work: Callable[..., Any], *arguments: Any) -> float:
    """The median CPU seconds of a call, after two that are not counted."""
    for _ in range(2):
        work(*arguments)
    found = []
    for _ in range(repeats):
        start = time.process_time()
        work(*arguments)
        found.append(time.process_time() - start)
    return float(np.median(found))


def peers(options: argparse.Namespace) -> None:
    """CPU and wall seconds of fits in turn: ours to a gap of 1e-6, SVC and, where it can be imported, scikit-learn-intelex'."""
    from sklearn.svm import SVC

    models: dict[str, Callable[[], Any]] = {
        "float64": lambda: OptimalNeighborhoodSVC(C=1, rho=100, holdout=0, n_jobs=options.threads),
        "float32": lambda: OptimalNeighborhoodSVC(C=1, rho=100, holdout=0, dtype="float32", n_jobs=options.threads),
        "SVC": SVC,
    }
    try:
        from sklearnex.svm import SVC as IntelSVC

        models["intelex"] = IntelSVC
    except ImportError:
        print("scikit-learn-intelex is not installed\n")
    X, y = two_class("a4a")
    rows = []
    for name, (patterns, labels) in {"a4a": (X.toarray(), y), "MNIST": digits(load("mnist"), 8000)}.items():
        for make in models.values():
            quietly(make(), patterns[:500], labels[:500])  # compiles
        taken: dict[str, list[tuple[float, float]]] = {of: [] for of in models}
        for _ in range(options.repeats):
            for of, make in models.items():
                start = time.process_time(), time.perf_counter()
                quietly(make(), patterns, labels)
                taken[of].append((time.process_time() - start[0], time.perf_counter() - start[1]))
        medians = {of: np.median(seconds, axis=0) for of, seconds in taken.items()}
        for of, (cpu, wall) in medians.items():
            ratios = [f"{cpu / medians[peer][0]:.2f}" if peer in medians else "" for peer in ("SVC", "intelex")]
            rows.append([name, len(labels), of, f"{cpu:.2f}", f"{wall:.2f}", *ratios])
    print(table(["set", "n", "fit", "CPU, s", "wall, s", "CPU over SVC's", "CPU over intelex'"], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "projection", "large", "small", "peers"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--limit", default="3 GB")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--dtype", default="float32", help="of the kernel, in `large`")
    parser.add_argument(
        "--rho", type=lambda text: text if text == "scale" else float(text), default=100.0, help='a number or "scale"'
    )
    parser.add_argument("--svc", action="store_true", help="after `large`, scikit-learn's SVC on the same rows")
    options = parser.parse_args()
    print(circumstances(options.threads), "\n", sep="")
    globals()[options.what](options)


if __name__ == "__main__":
    main()
