"""`dkl verify`: objective and certificate once more, from what is on disk, in plain numpy and scipy.

Nothing here comes from the solvers or the problem: only the stores are read. With V the factor, K = V V', T the pairs and
the diagonal, R the entries of K - T on T, W their weights (times 1 - P(wrong) of pairs that look wrong, see below),
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
from scipy.optimize import minimize

from dkl.errors import StoreError
from dkl.estimators.pairwise.store import stored_pairs
from dkl.runs.pairwise.stored import factor_blocks, open_factor
from dkl.runs.report import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.graph import read_csr
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from dkl.stores.seals import Json

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


# -- held-out pairs ----------------------------------------------------------------------------------------------------
# What held-out pairs show: likelihoods, gamma, and pairs that look wrong.
#     P(must | s) = e + (1 - 2 e) / (1 + exp(-a s - b)),   a >= 0,   0 < e <= 0.45
# There may be several maxima over a, b and e. Of the stored one the likelihood is computed again, and it must be a maximum: from there
# the simplex method, which shares no derivative with the fit, must find nothing better.

Vector = NDArray[np.float64]
NATS = 1.0
"""Gain in log-likelihood that a gamma needs to be chosen instead of the last of the path."""
CLOSE = 1e-3
"""Tolerance of a log-likelihood per pair: how far both searches may end from the maximum."""
RIDGE, LEAST_FLOOR, FLOOR = 5e-5, 1e-6, 0.45
"""Weight of a^2, of scores with variance 1, and the bounds of e."""
LEAST_TRUST = 1e-4
ROUNDED = 1e-9
"""Tolerance of numbers that differ by rounding alone, such as two areas under the same curve."""


def of_held_out_pairs(run: RunStore, report: Json) -> Iterator[Comparison]:
    """Compare the stored likelihoods, gamma and probabilities of held-out pairs with the same recomputed."""
    held = run.read_arrays("choice")
    must, cannot = stored_pairs(run)
    is_must = np.repeat([True, False], [len(must), len(cannot)])
    weights = run.read_pair_weights()
    even = np.ones(len(is_must)) if weights is None else weights / weights.mean()
    likely, gammas, curves = held["log_likelihood"], held["gammas"], held["curves"]
    if held["scores"].shape != (len(gammas), len(is_must)) or not len(likely) == len(curves) == len(gammas):
        raise StoreError("scores that are not of these pairs", where=f"{run.path}/choice")
    whole = np.flatnonzero(~np.isnan(likely))
    for place in whole:
        scored = ~np.isnan(held["scores"][place])
        here, best = _likelihoods(curves[place], held["scores"][place, scored], is_must[scored], even[scored])
        mean, which = float(likely[place]) / len(is_must), f" at gamma {gammas[place]:.4g}"
        yield Comparison(f"log-likelihood{which}", mean, here / len(is_must), ROUNDED)
        yield Comparison(f"most likely curve near it{which}", mean, best / len(is_must), CLOSE, quiet=True)
    chosen = len(gammas) - 1
    if len(whole):
        best, last = int(whole[np.argmax(likely[whole])]), int(whole[-1])
        chosen = best if likely[best] > likely[last] + NATS else last
    is_whole = len(whole) == len(gammas)
    if report["settings"]["gamma"] != "cv" and not is_whole:
        chosen = len(gammas) - 1
    yield Comparison("gamma", float(report["gamma"]), float(gammas[chosen]), 0.0)
    if "probability" in held:
        wrong = np.zeros(len(is_must))
        if is_whole:
            curve, cosines = held["curve"], held["cosines"][chosen]
            here, best = _likelihoods(curve, cosines, is_must, even)
            yield Comparison(
                "likelihood of the cosines' curve", here / len(is_must), best / len(is_must), CLOSE, quiet=True
            )
            yield Comparison("share of wrong pairs", float(report["wrong_pairs"]["share"]), float(curve[2]), ROUNDED)
            if chosen < len(gammas) - 1:
                wrong = _wrong(curve, cosines, is_must)
        apart = float(np.abs(held["probability"] - wrong).max(initial=0.0))
        yield Comparison("probabilities of wrong pairs, apart by", 0.0, apart, ROUNDED)
        yield Comparison("pairs that look wrong", *_flags(report, held["probability"]), 0.0)


def of_quality(run: RunStore, report: Json) -> Iterator[Comparison]:
    """Compare the report's AUCs of held-out pairs, of kernel and alternative, with scikit-learn's."""
    from sklearn.metrics import roc_auc_score

    held, claimed = run.read_arrays("held_out"), report.get("quality")
    if claimed is None:
        return
    must, cannot = stored_pairs(run)
    numbers, scores, plain = held["pair"], held.get("scores", np.empty(0)), held["plain"]
    if not len(numbers) == len(scores) == len(plain) or numbers.min() < 0 or numbers.max() >= len(must) + len(cannot):
        raise StoreError("invalid held-out pairs", where=f"{run.path}/held_out")
    is_must = numbers < len(must)
    if is_must.all() or not is_must.any():
        raise StoreError("held-out pairs of one kind alone", where=f"{run.path}/held_out")
    yield Comparison(QUALITY, float(claimed["value"]), float(roc_auc_score(is_must, scores)), ROUNDED)
    plainly = float(roc_auc_score(is_must, plain))
    yield Comparison(ALTERNATIVE, float(claimed["alternative_value"]), plainly, ROUNDED)


def _flags(report: Json, probability: Vector) -> tuple[float, float]:
    """Return the numbers of flagged pairs by the report and by the stored probabilities."""
    return float(report["wrong_pairs"]["flagged"]), float(np.count_nonzero(probability > 0.5))


def _likelihoods(curve: Vector, scores: Vector, is_must: NDArray[np.bool_], weights: Vector) -> tuple[float, float]:
    """Return the pairs' log-likelihoods by the curve (a, b, e) and by the most likely one near it."""
    if curve.shape != (3,) or not (np.isfinite(curve).all() and curve[0] >= 0 and 0 < curve[2] <= FLOOR):
        return float("nan"), float("nan")
    total = float(weights.sum())
    mean = float(weights @ scores) / total
    spread = float(np.sqrt(weights @ (scores - mean) ** 2 / total)) or 1.0
    standard = (scores - mean) / spread

    def likelihood(x: Vector) -> float:
        a, b, e = x
        p = e + (1 - 2 * e) * 0.5 * (1 + np.tanh(0.5 * (a * standard + b)))
        return float(weights @ np.log(np.where(is_must, p, 1 - p)))

    def loss(x: Vector) -> float:
        return RIDGE * x[0] ** 2 - likelihood(x) / total

    here = np.array([curve[0] * spread, curve[1] + curve[0] * mean, curve[2]])
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000, "maxfev": 4000}
    bounds = [(0.0, None), (None, None), (LEAST_FLOOR, FLOOR)]
    return likelihood(here), likelihood(minimize(loss, here, method="Nelder-Mead", bounds=bounds, options=options).x)


def _wrong(curve: Vector, cosines: Vector, is_must: NDArray[np.bool_]) -> Vector:
    """Return the probability (m,) that each pair is wrong."""
    a, b, e = curve
    right = 0.5 * (1 + np.tanh(0.5 * (a * cosines + b)))
    p = e + (1 - 2 * e) * right
    return np.where(is_must, e * (1 - right) / p, e * right / (1 - p))


def trust_in(run: RunStore, count: int) -> Vector:
    """Return the factors (count,) of the pairs' weights: 1 - P(wrong), where the run has that."""
    if not (run.path / "choice").is_dir():
        return np.ones(count)
    probability = run.read_arrays("choice").get("probability", np.zeros(count))
    if probability.shape != (count,) or not np.all((probability >= 0) & (probability <= 1)):
        raise StoreError("not probabilities of pairs", where=f"{run.path}/choice")
    return np.maximum(1 - probability, LEAST_TRUST)
