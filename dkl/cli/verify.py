"""`dkl verify`: objective and certificate once more, from what is on disk, in plain numpy and scipy.

Nothing here comes from the solvers or the problem: only the stores are read. With V the factor, K = V V', T the pairs and
the diagonal, D the entries of K - T on T:

    f = tr(V'LV) + gamma/2 |D|^2,   S = L + gamma D,   <S, K> = tr(V'LV) + gamma <D, K>,
    f - f* <= max(<S, K>, 0) + max(0, -lambda_min(S)) (n + sqrt(2 n f / gamma)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from dkl.cli.runs import factor_blocks, open_run
from dkl.errors import StoreError
from dkl.stores.graph import read_csr
from dkl.stores.run import RunStore

AGREE = {"float64": 1e-8, "float32": 1e-5}
"""Relative; a factor in single precision was evaluated before it was rounded."""
EIGEN_TOLERANCE = 1e-9
"""Of lambda_min relative to the norm of S, beside the residual that was reported with it."""
DENSE = 1500


@dataclass(frozen=True)
class Recomputed:
    objective: float
    inner_product: float
    min_eigenvalue: float
    norm: float
    trace_bound: float
    gap: float


def verify_run(path: str, memory_limit: int | None) -> None:
    """Print both sets of numbers; StoreError where they differ."""
    run = open_run(path)
    report = run.report()
    if not report:
        raise StoreError("no result to verify", where=str(run.path), mend="`dkl resume` it first")
    try:
        settings, claimed = report["settings"], {name: float(value) for name, value in report["certificate"].items()}
        gamma, dtype = float(settings["gamma"]), str(settings["dtype"])
        claims = [claimed[name] for name in ("objective", "gap", "min_eigenvalue", "inner_product", "trace_bound")]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError("a damaged report", where=f"{run.path}/report.json", got=error) from error
    found = recompute(run, gamma, memory_limit or _quarter_of_memory())
    tolerance = AGREE.get(dtype, AGREE["float64"])
    scale, slack = abs(found.objective), EIGEN_TOLERANCE * found.norm + 2 * claimed.get("residual", 0.0)
    tolerances = [tolerance * scale, (tolerance * scale + slack * found.trace_bound), slack]
    tolerances += [tolerance * scale, tolerance * found.trace_bound]
    again = [found.objective, found.gap, found.min_eigenvalue, found.inner_product, found.trace_bound]
    names = ("objective", "gap", "min_eigenvalue", "inner_product", "trace_bound")
    click.echo(f"{run.path}\n  {'':<18}{'reported':>20}{'recomputed':>20}{'apart':>12}{'allowed':>12}")
    wrong = []
    for name, old, new, allowed in zip(names, claims, again, tolerances, strict=True):
        click.echo(f"  {name:<18}{old:>20.12g}{new:>20.12g}{abs(old - new):>12.2g}{allowed:>12.2g}")
        if not abs(old - new) <= allowed:
            wrong.append(name)
    if wrong:
        raise StoreError(
            "the report is not what the stored factor gives", where=str(run.path), got=f"other {', '.join(wrong)}"
        )
    click.echo("  they agree")


def recompute(run: RunStore, gamma: float, memory: int) -> Recomputed:
    laplacian = read_csr(str(run.path / "graph"))
    n = int(laplacian.shape[0])
    rows, columns, targets = _targets(run, n)
    entries, smooth = _kernel_on(run, laplacian, rows, columns, memory)
    difference = entries - targets
    objective = smooth + gamma / 2 * float(difference @ difference)
    inner = smooth + gamma * float(difference @ entries)
    gradient = laplacian + sparse.csr_array((gamma * difference, (rows, columns)), shape=(n, n))
    lowest = smallest_eigenvalue(sparse.csr_array(gradient))
    trace_bound = n + float(np.sqrt(2 * n * max(objective, 0.0) / gamma))
    gap = max(inner, 0.0) + max(-lowest, 0.0) * trace_bound
    return Recomputed(objective, inner, lowest, float(abs(gradient).sum(axis=1).max()), trace_bound, gap)


def _targets(run: RunStore, n: int) -> tuple[NDArray, NDArray, NDArray]:
    """(i, j, T_ij) of the diagonal and of every pair both ways."""
    must, cannot = run.read_pairs()
    diagonal = np.arange(n)
    rows = np.concatenate([diagonal, must[:, 0], must[:, 1], cannot[:, 0], cannot[:, 1]])
    columns = np.concatenate([diagonal, must[:, 1], must[:, 0], cannot[:, 1], cannot[:, 0]])
    if rows.min() < 0 or rows.max() >= n:
        raise StoreError("stored pairs lie outside the graph", where=str(run.path))
    return rows, columns, np.repeat([1.0, 0.0], [n + 2 * len(must), 2 * len(cannot)])


def _kernel_on(
    run: RunStore, laplacian: Any, rows: NDArray, columns: NDArray, memory: int
) -> tuple[NDArray[np.float64], float]:
    """(K_ij for the entries, tr(V'LV)), as many columns of V at a time as fit: both are sums over columns."""
    n, rank = run.factor().shape
    if n != laplacian.shape[0]:
        raise StoreError("factor and graph differ in size", where=str(run.path), got=n, wanted=laplacian.shape[0])
    width = int(max(1, min(rank, memory // (3 * 8 * n))))
    entries, smooth = np.zeros(rows.size), 0.0
    for first in range(0, rank, width):
        part = np.empty((n, min(width, rank - first)))
        for lo, block in factor_blocks(run):
            part[lo : lo + len(block)] = block[:, first : first + width]
        smooth += float(np.sum(part * (laplacian @ part)))
        for start in range(0, rows.size, 100_000):
            some = slice(start, start + 100_000)
            entries[some] += (part[rows[some]] * part[columns[some]]).sum(axis=1)
    return entries, smooth


def smallest_eigenvalue(matrix: sparse.csr_array) -> float:
    """All eigenvalues of a small matrix; of a large one the smallest, by Lanczos."""
    n = int(matrix.shape[0])
    if n <= DENSE:
        return float(scipy.linalg.eigvalsh(matrix.toarray(), subset_by_index=[0, 0])[0])
    start = np.random.default_rng(1).standard_normal(n)
    for size in (60, 200, 500):
        try:
            return float(eigsh(matrix, k=1, which="SA", ncv=min(size, n - 1), tol=1e-9, v0=start)[0][0])
        except ArpackNoConvergence as unfinished:
            if unfinished.eigenvectors.size:
                start = unfinished.eigenvectors[:, 0]
    raise FloatingPointError("the smallest eigenvalue of the gradient was not found")


def _quarter_of_memory() -> int:
    import os

    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
