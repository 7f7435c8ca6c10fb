"""`dkl verify`: objective and certificate once more, from what is on disk, in plain numpy and scipy.

Nothing here comes from the solvers or the problem: only the stores are read. With V the factor, K = V V', T the pairs and
the diagonal, R the entries of K - T on T:

    f = tr(V'LV) + gamma/2 |R|^2,   S = L + gamma R,   <S, K> = tr(V'LV) + gamma <R, K>,
    f - f* <= max(<S, K>, 0) + max(0, -lambda_min(S + D)) (n + sqrt(2 n f / gamma)) + sum D + |D| sqrt(2 f / gamma)

for D = 0, and for the diagonal D >= 0 that the run keeps as its lift; the smaller counts. A relative gap is to f, but to at
least sqrt(eps) gamma n / 2, below which f and its gap are rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import StoreError
from dkl.runs.comparison import Comparison
from dkl.runs.pairwise.facts import factor_blocks, open_factor
from dkl.stores.graph import read_csr
from dkl.stores.run import RunStore

AGREE = 1e-8
"""Relative to the objective."""
EIGEN_TOLERANCE = 1e-9
"""Of lambda_min relative to the norm of S, beside the residual that was reported with it."""
LIFTED_TOLERANCE = 1e-7
"""The same for lambda_min(S + D), whose residual is not reported."""
DENSE = 1500
FIRST_LOOK, LATER, MOST_STEPS = 100, 1.2, 500_000
"""Lanczos steps after which the residual is looked at for the first time, how many times as many until the next, and at most."""


@dataclass(frozen=True)
class Recomputed:
    """The certificate's numbers, as they follow from the stores: see the head of this file."""

    objective: float
    inner_product: float
    min_eigenvalue: float
    norm: float
    trace_bound: float
    gap: float
    lifted: bool
    scale: float

    @property
    def relative_gap(self) -> float:
        """gap / f, or to the floor of f."""
        return self.gap / self.scale


def claims(run: RunStore, budget: int) -> Iterator[Comparison]:
    """The certificate of the report beside the one recomputed; of V, `budget` bytes are in memory at a time."""
    report = run.report()
    claimed = {name: float(value) for name, value in report["certificate"].items()}
    found = recompute(run, float(report["settings"]["gamma"]), budget)
    for name, allowed in _tolerances(found, claimed.get("residual", 0.0)).items():
        # A gap may be larger and an eigenvalue smaller than it need be: the claim holds all the same.
        counts = {"gap": "above", "relative_gap": "above", "min_eigenvalue": "below"}.get(name, "both")
        yield Comparison(name, claimed[name], float(getattr(found, name)), allowed, counts)


def _tolerances(found: Recomputed, residual: float) -> dict[str, float]:
    """How far a sound report may be off: rounding, and the convergence of the eigenvalue here and there."""
    scale, slack = AGREE * found.scale, EIGEN_TOLERANCE * found.norm + 2 * residual
    blur = max(slack, LIFTED_TOLERANCE * found.norm) if found.lifted else slack
    return {
        "objective": scale,
        "gap": scale + blur * found.trace_bound,
        "relative_gap": AGREE + blur * found.trace_bound / found.scale,
        "min_eigenvalue": slack,
        "inner_product": scale,
        "trace_bound": AGREE * found.trace_bound,
    }


def recompute(run: RunStore, gamma: float, memory: int) -> Recomputed:
    """f, <S, K>, lambda_min(S) and the gap of the stored factor, with at most `memory` bytes of it at a time."""
    laplacian = read_csr(str(run.path / "graph"))
    n = int(laplacian.shape[0])
    rows, columns, targets = _targets(run, n)
    entries, smooth = _kernel_on(run, laplacian, rows, columns, memory)
    difference = entries - targets
    objective = smooth + gamma / 2 * float(difference @ difference)
    inner = smooth + gamma * float(difference @ entries)
    gradient = laplacian + sparse.csr_array((gamma * difference, (rows, columns)), shape=(n, n))
    lowest, lift = smallest_eigenvalue(gradient), run.lift()
    if lift.shape != (n,) or not np.all(lift >= 0):
        raise StoreError("the stored lift is no diagonal of numbers >= 0", where=f"{run.path}/lift")
    spread = float(np.sqrt(2 * max(objective, 0.0) / gamma))
    trace_bound = n + float(np.sqrt(n)) * spread
    charge, lifted = max(-lowest, 0.0) * trace_bound, False
    if lift.any():
        other = max(-smallest_eigenvalue(gradient + sparse.diags_array(lift)), 0.0) * trace_bound
        other += float(lift.sum() + np.linalg.norm(lift) * spread)
        charge, lifted = min(charge, other), other < charge
    norm = float(abs(gradient).sum(axis=1).max() + lift.max())
    scale = max(objective, float(np.sqrt(np.finfo(float).eps)) * gamma * n / 2)
    return Recomputed(objective, inner, lowest, norm, trace_bound, max(inner, 0.0) + charge, lifted, scale)


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
    n, rank = open_factor(run).shape
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


def smallest_eigenvalue(matrix: Any) -> float:
    """All eigenvalues of a small matrix; of a large one the smallest, by Lanczos.

    Without reorthogonalization: what rounding costs is copies of eigenvalues that were found, no lower one (Paige, Linear
    Algebra and its Applications 34, 1980). A step is one product and three vectors, so that the tens of thousands that a cluster
    at 0 takes are seconds; it ends at a residual of EIGEN_TOLERANCE times the norm, or FloatingPointError.
    """
    matrix = sparse.csr_array(matrix)
    n = int(matrix.shape[0])
    if n <= DENSE:
        return float(scipy.linalg.eigvalsh(matrix.toarray(), subset_by_index=[0, 0])[0])
    norm = float(abs(matrix).sum(axis=1).max())
    before, now = np.zeros(n), np.random.default_rng(1).standard_normal(n)
    now /= np.linalg.norm(now)
    diagonal: list[float] = []
    beside: list[float] = [0.0]
    look = FIRST_LOOK
    while len(diagonal) < MOST_STEPS:
        ahead = matrix @ now - beside[-1] * before
        diagonal.append(float(now @ ahead))
        ahead -= diagonal[-1] * now
        beside.append(float(np.linalg.norm(ahead)))
        ended = beside[-1] <= np.finfo(float).eps * norm
        if len(diagonal) == look or ended:
            values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, beside[1:-1], select="i", select_range=(0, 0))
            # |S x - theta x| of a Ritz pair is the last component of its tridiagonal eigenvector times the next entry.
            if ended or beside[-1] * abs(vectors[-1, 0]) <= EIGEN_TOLERANCE * norm:
                return float(values[0])
            look = int(LATER * look)
        before, now = now, ahead / beside[-1]
    raise FloatingPointError("the smallest eigenvalue of the gradient was not found")
