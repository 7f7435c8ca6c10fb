"""`dkl verify`: objective and certificate once more, from what is on disk, in plain numpy and scipy.

Nothing here comes from the solvers or the problem: only the stores are read. With V the factor, K = V V', T the pairs and
the diagonal, R the entries of K - T on T, W their weights (times 1 - P(wrong) of pairs that look wrong: verify_held_out.py),
Q = W R entry by entry:

    f = tr(V'LV) + gamma/2 <Q, R>,   S = L + gamma Q,   <S, K> = tr(V'LV) + gamma <Q, K>,
    f - f* <= max(<S, K>, 0) + <M, T> + |W^(-1/2) M| sqrt(2 f / gamma)
    f - f* <= max(<S, K>, 0) + <M, K> + |W^(-1/2) M|^2 / (2 gamma)

for any symmetric M on the pattern of T with S + M psd: M = D + max(0, -lambda_min(S + D)) I for D = 0, and for the D that the run
keeps as its lift, on the diagonal and on pairs; the smallest counts. A relative gap is to f, but to at least sqrt(eps) gamma n / 2,
below which f and its gap are rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import StoreError
from dkl.estimators.pairwise.fold_store import stored_pairs
from dkl.runs.pairwise.stored import factor_blocks, open_factor
from dkl.runs.pairwise.verify_held_out import of_held_out_pairs, of_quality, trust_in
from dkl.runs.verify.comparison import Comparison
from dkl.stores.graph import read_csr
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.stores.sealed_json import Json

ROUNDING = 8.0
"""A sum of N terms is off by at most ROUNDING eps sqrt(N) times the sum of their sizes, but for a chance of 2 exp(-ROUNDING^2 / 2):
Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J. Sci. Comput. 41 (2019), theorem 2.4."""
UNIT = ROUNDING * float(np.finfo(float).eps)
RESIDUAL = 1e-12
"""Residual of the Ritz pair for lambda_min, relative to the norm, at which Lanczos ends.
The Ritz value is too high by as much at most, and by far less outside clusters."""
DENSE = 1500
VECTORS, ENTRIES = 3, 100_000
"""Vectors in memory next to the columns of V, and entries of K that are computed at a time."""
FIRST_LOOK, LATER, MOST_STEPS = 100, 1.2, 500_000
"""First step of Lanczos with a check of the residual, growth to the next, and largest number of steps."""


@dataclass(frozen=True)
class RecomputedCertificate:
    """Recomputed numbers of the certificate, as they follow from the stores: see the head of this file."""

    objective: float
    inner_product: float
    min_eigenvalue: float
    trace_bound: float
    gap: float
    scale: float
    allowed: dict[str, float]
    """Bounds of what rounding may change in each of these numbers, here or in the report."""

    @property
    def relative_gap(self) -> float:
        """Return gap / f, or the gap relative to the floor of f."""
        return self.gap / self.scale


def claims(run: RunStore, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's certificate with one recomputed by `budget` bytes of V at a time.

    What may differ is rounding. That an eigenvalue was found by steps, there or here, is no excuse: the report's is a lower
    bound, and the one found here lies above lambda_min, so that an honest gap is not below the gap found here.
    """
    report = run.report()
    found = recompute(run, float(report.get("gamma", report["settings"]["gamma"])), budget)
    if (run.path / "choice").is_dir():
        yield from of_held_out_pairs(run, report)
    if (run.path / "held_out").is_dir():
        yield from of_quality(run, report)
    for name, allowed in found.allowed.items():
        # A gap may be larger and an eigenvalue smaller than it need be: the claim holds all the same.
        counts = {"gap": "above", "relative_gap": "above", "min_eigenvalue": "below"}.get(name, "both")
        yield Comparison(name, float(report["certificate"][name]), float(getattr(found, name)), allowed, counts)


def recompute(run: RunStore, gamma: float, memory: int) -> RecomputedCertificate:
    """Return f, <S, K>, lambda_min(S + D) and the stored factor's gap, by `memory` bytes of it at a time."""
    laplacian = read_csr(str(run.path / "graph"))
    n = int(laplacian.shape[0])
    rows, columns, targets, weights = _targets(run, n)
    entries, smooth = _kernel_on(run, laplacian, rows, columns, memory)
    difference = entries - targets
    pull = weights * difference
    objective = smooth + gamma / 2 * float(pull @ difference)
    inner = smooth + gamma * float(pull @ entries)
    gradient = laplacian + sparse.csr_array((gamma * pull, (rows, columns)), shape=(n, n))
    lift = _lift(run, n, rows, columns)
    lifted = gradient + sparse.csr_array((lift, (rows, columns)), shape=(n, n))
    lowest = smallest_eigenvalue(lifted)
    spread = float(np.sqrt(2 * max(objective, 0.0) / gamma))
    trace_bound = n + float(np.sqrt(n)) * spread

    def charge_of(multipliers: NDArray, low: float) -> float:
        whole = multipliers + np.where(rows == columns, max(-low, 0.0), 0.0)
        size = float(np.sum(whole**2 / weights))
        return min(float(whole @ targets) + np.sqrt(size) * spread, float(whole @ entries) + size / (2 * gamma))

    charge = charge_of(lift, lowest)
    if lift.any():
        charge = min(charge, charge_of(0 * lift, smallest_eigenvalue(gradient)))
    gap = max(inner, 0.0) + charge
    scale = max(objective, float(np.sqrt(np.finfo(float).eps)) * gamma * n / 2)

    on = _roundings(laplacian, rows, columns, entries, difference, weights, gamma, open_factor(run).shape[1])
    on_spread = float(np.sqrt(2 * (max(objective, 0.0) + on["objective"]) / gamma)) - spread
    on["min_eigenvalue"] += UNIT * float(np.sqrt(n)) * _norm(lifted)
    on["trace_bound"] = float(np.sqrt(n)) * on_spread + UNIT * trace_bound
    # The charge is a sum of parts that are each at most in proportion to n + sqrt(n) spread, or to K's entries, and of lambda_min
    # times that, or times tr(K) + tr(M) / gamma. On the pairs parts of both signs cancel, and rounding is that of their sizes.
    steepest = trace_bound + float(np.abs(lift[:n]).sum() + n * max(-lowest, 0.0)) / gamma
    on_pairs = (
        float(np.abs(lift[n:]) @ on.pop("entries")[n:])
        + float(np.sqrt(np.sum(lift[n:] ** 2 / weights[n:]))) * on_spread
    )
    on["gap"] = on["inner_product"] + on["min_eigenvalue"] * steepest + charge * on["trace_bound"] / n + on_pairs
    on["relative_gap"] = (on["gap"] + gap * on["objective"] / scale) / scale
    return RecomputedCertificate(objective, inner, lowest, trace_bound, gap, scale, on)


def _lift(run: RunStore, n: int, rows: NDArray, columns: NDArray) -> NDArray:
    """Return M on the entries of T: the diagonal, then pairs both ways (stored by rows, for i < j)."""
    diagonal, stored = run.lift(), run.pair_lift()
    lift = np.zeros(rows.size)
    lift[:n] = diagonal if diagonal.shape == (n,) else np.nan
    if stored.size:
        upper = np.minimum(rows[n:], columns[n:]) * n + np.maximum(rows[n:], columns[n:])
        known, place = np.unique(upper, return_inverse=True)
        lift[n:] = stored[place] if stored.shape == known.shape else np.nan
    if not np.isfinite(lift).all():
        raise StoreError("the stored lift is not a number for each pattern and each pair", where=f"{run.path}/lift")
    return lift


def _roundings(
    laplacian: csr_array,
    rows: NDArray,
    columns: NDArray,
    entries: NDArray,
    difference: NDArray,
    weights: NDArray,
    gamma: float,
    rank: int,
) -> Json:
    """Return how far rounding may move f, <S, K> and, by the entries of S, its eigenvalues: see ROUNDING.

    The terms of an entry of K have sizes of |V_i| |V_j| in all, roots of its diagonal, which is first among the entries.
    """
    n = int(laplacian.shape[0])
    length = np.sqrt(np.maximum(entries[:n], 0.0))
    on_entries = UNIT * float(np.sqrt(rank)) * length[rows] * length[columns]
    many = UNIT * float(np.sqrt(max(rows.size, n * rank)))
    sizes = abs(laplacian)
    off, held = np.abs(difference), np.abs(entries)
    pull = weights * off
    on_smooth = many * float(length @ (sizes @ length))
    # ADMM reports tr(KL) by its updates' equation, what is left of gamma <W T, K>.
    on_smooth += UNIT * gamma * float((weights * np.abs(entries - difference)) @ held)
    on_gradient = np.bincount(rows, gamma * (weights * on_entries + UNIT * pull), minlength=n) + UNIT * sizes.sum(
        axis=1
    )
    return {
        "objective": on_smooth + gamma * float(pull @ on_entries + many / 2 * (pull @ off)),
        "inner_product": on_smooth + gamma * float((pull + weights * held) @ on_entries + many * (pull @ held)),
        "min_eigenvalue": float(on_gradient.max()),  # Gershgorin
        "entries": on_entries + many * np.abs(entries),
    }


def _norm(matrix: csr_array) -> float:
    """Return a bound on the size of every eigenvalue: the largest row sum of sizes."""
    return float(abs(matrix).sum(axis=1).max())


def _targets(run: RunStore, n: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Return (i, j, T_ij, W_ij) of the diagonal and of every pair both ways."""
    must, cannot = stored_pairs(run)
    weights = run.read_pair_weights()
    if weights is None:
        weights = np.ones(len(must) + len(cannot))
    weights = weights * trust_in(run, len(weights))
    if len(weights) != len(must) + len(cannot) or not np.all(np.isfinite(weights) & (weights > 0)):
        raise StoreError("the stored weights are no numbers > 0, one a pair", where=f"{run.path}/pairs/weights")
    of_must, of_cannot = np.split(weights, [len(must)])
    diagonal = np.arange(n)
    rows = np.concatenate([diagonal, must[:, 0], must[:, 1], cannot[:, 0], cannot[:, 1]])
    columns = np.concatenate([diagonal, must[:, 1], must[:, 0], cannot[:, 1], cannot[:, 0]])
    if rows.min() < 0 or rows.max() >= n:
        raise StoreError("stored pairs lie outside the graph", where=str(run.path))
    targets = np.repeat([1.0, 0.0], [n + 2 * len(must), 2 * len(cannot)])
    return rows, columns, targets, np.concatenate([np.ones(n), of_must, of_must, of_cannot, of_cannot])


def _kernel_on(
    run: RunStore, laplacian: csr_array, rows: NDArray, columns: NDArray, memory: int
) -> tuple[NDArray[np.float64], float]:
    """Return (K_ij of the entries, tr(V'LV)), by as many columns of V as fit in `memory` bytes.

    Both are summed column by column, so that neither depends on how many fit.
    """
    n, rank = open_factor(run).shape
    if n != laplacian.shape[0]:
        raise StoreError("factor and graph differ in size", where=str(run.path), got=n, wanted=laplacian.shape[0])
    width = int(max(1, min(rank, memory // (8 * n) - VECTORS)))
    entries, smooth = np.zeros(rows.size), 0.0
    for first in range(0, rank, width):
        part = np.empty((min(width, rank - first), n))
        for lo, block in factor_blocks(run):
            part[:, lo : lo + len(block)] = block[:, first : first + width].T
        for column in part:
            smooth += float(np.sum(column * (laplacian @ column)))
            for start in range(0, rows.size, ENTRIES):
                some = slice(start, start + ENTRIES)
                entries[some] += column[rows[some]] * column[columns[some]]
    return entries, smooth


def smallest_eigenvalue(matrix: csr_array) -> float:
    """Return the smallest eigenvalue of a symmetric matrix: of a large one by Lanczos.

    Without reorthogonalization: what rounding costs is copies of eigenvalues that were found, no lower one (Paige, Linear
    Algebra and its Applications 34, 1980). A step is one product and three vectors, so that the tens of thousands that a cluster
    at 0 takes are seconds; it ends at a residual of RESIDUAL times the norm, or FloatingPointError.
    """
    matrix = sparse.csr_array(matrix)
    n = int(matrix.shape[0])
    if n <= DENSE:
        return float(scipy.linalg.eigvalsh(matrix.toarray(), subset_by_index=[0, 0])[0])
    norm = _norm(matrix)
    before, now = np.zeros(n), np.random.default_rng(1).standard_normal(n)
    now /= np.linalg.norm(now)
    diagonal: list[float] = []
    off_diagonal: list[float] = [0.0]
    look = FIRST_LOOK
    while len(diagonal) < MOST_STEPS:
        ahead = matrix @ now - off_diagonal[-1] * before
        diagonal.append(float(now @ ahead))
        ahead -= diagonal[-1] * now
        off_diagonal.append(float(np.linalg.norm(ahead)))
        ended = off_diagonal[-1] <= np.finfo(float).eps * norm
        if len(diagonal) == look or ended:
            values, vectors = scipy.linalg.eigh_tridiagonal(
                diagonal, off_diagonal[1:-1], select="i", select_range=(0, 0)
            )
            # |S x - theta x| of a Ritz pair is the last component of its tridiagonal eigenvector times the next entry.
            if ended or off_diagonal[-1] * abs(vectors[-1, 0]) <= RESIDUAL * norm:
                return float(values[0])
            look = int(LATER * look)
        before, now = now, ahead / off_diagonal[-1]
    raise FloatingPointError("the smallest eigenvalue of the gradient was not found")
