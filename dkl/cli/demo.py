"""`dkl demo`: handwritten digits, pairs from their labels, a small cluster; numbers and a picture."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.datasets import load
from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.metrics import adjusted_rand_index, pair_accuracy
from dkl.plotting.figures import can_draw, figure_of, save
from dkl.quality import Quality, proof_text
from dkl.resources import format_bytes, n_cpus
from dkl.runs import driver, registry
from dkl.runs.backends import Cluster
from dkl.runs.inputs.files import Files, Lazy, check_new
from dkl.runs.interrupt import echo, resume_command
from dkl.runs.pairwise.stored import factor_blocks, history
from dkl.runs.report import NOT_CONVERGED, SOLVED
from dkl.side_information.pairs import Pairs
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json

SETTINGS = PairwiseSettings(gamma=10.0, target_gap=1e-3)
CLUSTERS = 10
FOLDER = "dkl-demo"
SEED = 0
NEW_ROWS = 100
CUSTOMERS = 150
"""Rows of the table with ids, an even number."""


def run_demo(out: str | None, workers: int | None) -> int:
    """Run the demonstration with its outputs in a new folder; return the exit code."""
    began = time.perf_counter()
    folder = check_new(out) if out is not None else _free_folder()
    digits = load("digits")
    X, y = digits.X, digits.y
    pairs = Pairs.from_labels(y, random_state=SEED)
    folder.mkdir(mode=0o700)
    write_inputs(folder, X, y, pairs)
    echo(f"{len(X):,} handwritten digits of 8 x 8 pixels; {pairs.n_must:,} must-link and {pairs.n_cannot:,} "
               "cannot-link pairs drawn from their labels")  # fmt: skip

    seconds: dict[str, float] = {}
    run_path = folder / "run.zarr"
    cluster = Cluster(workers=workers or min(2, n_cpus()))
    kind = registry.kind("pairwise")
    with kind.interrupt(resume_command(run_path), SETTINGS) as interrupt:
        started = time.perf_counter()
        with cluster.session() as session:
            seconds["start of the workers"] = time.perf_counter() - started
            given = {"data": folder / "X.npz", "pairs": folder / "pairs.csv"}
            files = Files.of(kind.declaration.files, given)
            inputs = kind.read(files, SETTINGS, values=True)
            kind.check_values(inputs, SETTINGS)
            run = RunStore.create(run_path, driver.config_of(kind, inputs, SETTINGS))
            try:
                held = Lazy(lambda: driver.read_again(kind, run, SETTINGS), inputs)
                result = driver.work(kind, run, held, SETTINGS, session, interrupt)
                factor = np.concatenate([rows for _, rows in factor_blocks(run)])
            finally:
                run.close()
            seconds |= {name: value for name, value in result.seconds.items() if name != "total"}
            with _timed(seconds, "kernel k-means"):
                labels = KernelKMeans(CLUSTERS, random_state=SEED, client=session.client).fit_predict(factor)
        found = {**_baselines(X, seconds), "learned kernel": labels}
        echo("\n" + table(y, found, pairs))
        report = run.report()
        picture = draw(folder, X, y, factor, run, found, report, seconds)
    echo("\n" + summary(report, seconds, time.perf_counter() - began, picture, folder))
    return SOLVED if result.outcome.converged else NOT_CONVERGED


def _free_folder() -> Path:
    """Return dkl-demo, dkl-demo-2, ...: the first folder that does not exist."""
    path, number = Path.cwd() / FOLDER, 1
    while path.exists() or path.is_symlink():
        number += 1
        path = path.with_name(f"{FOLDER}-{number}")
    return check_new(path)


def write_inputs(folder: Path, X: NDArray, y: NDArray, pairs: Pairs) -> None:
    """Write the files that `dkl fit` would be given."""
    np.savez(folder / "X.npz", X=X, y=y)
    lines = [
        f"{i},{j},{'must' if sign > 0 else 'cannot'}" for i, j, sign in zip(pairs.i, pairs.j, pairs.sign, strict=True)
    ]
    _write_table(folder / "pairs.csv", "i,j,label", lines)
    patients = load("diabetes")
    _write_halves(folder, "diabetes", patients.X, patients.y)  # for `dkl fit regression`
    _write_halves(folder, "digits", X, y)  # for `dkl fit svc`, `logdet`, `metric` and `mvu`
    _write_customers(folder)  # for `dkl cluster`


def _write_halves(folder: Path, name: str, X: NDArray, y: NDArray) -> None:
    """Write a file of rows to learn from, and one of rows that are then new."""
    order = np.random.default_rng(SEED).permutation(len(y))
    for part, rows in ((name, order[NEW_ROWS:]), (f"{name}-new", order[:NEW_ROWS])):
        np.savez(folder / f"{part}.npz", X=X[rows], y=y[rows])


def _write_customers(folder: Path) -> None:
    """Write a table of synthetic customers of three kinds, with ids, a column of text, and pairs of ids."""
    rng = np.random.default_rng(SEED)
    kinds = np.arange(CUSTOMERS) % 3
    values = np.array([[2.0, 300.0, 30.0], [9.0, 40.0, 60.0], [20.0, 120.0, 45.0]])[kinds]
    values += rng.normal(size=values.shape) * [2.0, 30.0, 6.0]
    ids, cities = [f"C{1000 + i}" for i in range(CUSTOMERS)], rng.choice(["Bonn", "Oslo", "Rome"], CUSTOMERS)
    rows = [f"{name},{city},{a:.1f},{b:.1f},{c:.1f}" for name, city, (a, b, c) in zip(ids, cities, values, strict=True)]
    _write_table(folder / "customers.csv", "customer,city,visits,spent,age", rows)
    links = [
        f"{ids[i]},{ids[j]},{'must-link' if kinds[i] == kinds[j] else 'cannot-link'}"
        for i, j in rng.permutation(CUSTOMERS).reshape(-1, 2)
    ]
    _write_table(folder / "customer-pairs.csv", "customer_a,customer_b,link", links)


def _write_table(path: Path, header: str, lines: list[str]) -> None:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")


def _baselines(X: NDArray, seconds: dict[str, float]) -> dict[str, NDArray]:
    """Return clusterings that do not know the pairs."""
    from sklearn.cluster import KMeans, SpectralClustering

    methods: dict[str, Callable[[], Any]] = {
        "k-means": lambda: KMeans(CLUSTERS, n_init=10, random_state=SEED),
        "spectral clustering": lambda: SpectralClustering(
            CLUSTERS, affinity="nearest_neighbors", n_neighbors=10, random_state=SEED
        ),
    }
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the graph has several components is no news here
        for name, method in methods.items():
            with _timed(seconds, name):
                found[name] = method().fit_predict(X)
    return found


def table(y: NDArray, found: dict[str, NDArray], pairs: Pairs) -> str:
    """Return a table of pair accuracy and adjusted Rand index, over all patterns and over unpaired ones."""
    free = np.ones(len(y), dtype=bool)
    free[pairs.i] = free[pairs.j] = False
    lines = [
        f"{'':<22}{'all ' + format(len(y), ','):>24}{f'the {np.count_nonzero(free)} in no pair':>28}",
        f"{'':<22}{'pair accuracy':>15}{'ARI':>9}{'pair accuracy':>19}{'ARI':>9}",
    ]
    for name, labels in found.items():
        cells = [
            measure(y, labels, subset=rows) for rows in (None, free) for measure in (pair_accuracy, adjusted_rand_index)
        ]
        lines.append(f"{name:<22}{cells[0]:>15.4f}{cells[1]:>9.4f}{cells[2]:>19.4f}{cells[3]:>9.4f}")
    return "\n".join(lines)


def draw(
    folder: Path,
    X: NDArray,
    y: NDArray,
    factor: NDArray,
    run: RunStore,
    found: dict[str, NDArray],
    report: Json,
    seconds: dict[str, float],
) -> Path | None:
    """Draw the picture and return its path; None without matplotlib."""
    if not can_draw():
        return None
    from dkl.estimators.pairwise.plot_data import kernel_plot

    accuracy = ", ".join(f"{name} {pair_accuracy(y, labels):.1%}" for name, labels in found.items())
    proof = proof_text(report["certificate"]["relative_gap"])
    title = f"handwritten digits; pairs treated rightly: {accuracy}\n{proof}"
    with _timed(seconds, "picture"):
        figure = figure_of(kernel_plot(factor, X, y, history=history(run), title=title))
        return save(figure, folder / "report.png")


def summary(report: Json, seconds: dict[str, float], total: float, picture: Path | None, folder: Path) -> str:
    """Return lines on certificate, costs, and where the files are."""
    certificate = report["certificate"]
    peak, worker = format_bytes(report["peak_bytes"]), format_bytes(report["worker_peak_bytes"] or 0)
    measured = Quality.from_dict(report["quality"], "report.json")
    lines = [
        *([] if measured is None else [f"quality       {measured}"]),
        f"certificate   objective {certificate['objective']:.6g}; {proof_text(certificate['relative_gap'])}",
        f"seconds       {total:.1f} in all; " + ", ".join(f"{name} {value:.1f}" for name, value in seconds.items()),
        f"peak memory   {peak} here, {worker} a worker",
        f"picture       {picture or 'none: matplotlib is missing'}",
        f"data and run  {folder}; see `dkl info {folder.name}/run.zarr`",
    ]
    return "\n".join(lines)


class _timed:
    """Add the seconds of its block to a dictionary."""

    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self.seconds, self.name = seconds, name

    def __enter__(self) -> None:
        self.start = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.seconds[self.name] = time.perf_counter() - self.start
