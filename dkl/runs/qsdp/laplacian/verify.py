"""`dkl verify` of a kernel from pairs, in the basis of eigenvectors (graph, basis, gap and embedding) and under hard pairs.

f = sum over the diagonal, must-links and cannot-links of w_ij (K_ij - t_ij)^2,    t = 1, 1 and 0; w = 1 on the diagonal

Under hard pairs what holds, the objective and the bound are computed once more, from data and what is stored:

    minimize tr(L K) over K psd, K_ii = 1, K_ij = 1 of must-links (i, j), K_ij = 0 of cannot-links

Rows that must-links join have one row of K: with P (n, m), P_ic = 1 of a row i of set c, K = P M P' and tr(L K) = tr(P'L P M). For
multipliers y of M_cc = 1 and of M_cd = 0, S = P'L P less y at (c, c) and half of y at (c, d) and (d, c), low its least eigenvalue, no
such kernel has less than b'y + min(0, low) m.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dkl.errors import DataWarning, StoreError
from dkl.estimators.base.plain_models import hold_out
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.laplacian.fit import STEP
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.quality import Quality
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.qsdp import verify_hard as shared
from dkl.runs.recomputed import auc, neighbor_graph, widths_apart
from dkl.runs.report import ALTERNATIVE, QUALITY, Comparison
from dkl.side_information.pairs import Pairs
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows
    from dkl.stores.seals import Json

Matrix = NDArray[np.float64]
AGREE = 1e-9
"""Relative tolerance of recomputed sums."""


def claims(run: RunStore, settings: PropagationSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's numbers with the same recomputed."""
    report = run.report()
    rows, basis, model = recomputed.read(run, budget)
    Q, pairs = basis["Q"], checked_pairs(run, basis, len(basis["Q"]))
    graph = neighbor_graph(
        rows, settings.n_neighbors, width_rule(settings.sigma, "local"), "normalized", warns_of_cuts=False
    )
    yield Comparison("widths of the similarity", 0.0, widths_apart(basis["widths"], graph.similarity.widths), 1e-12)
    yield from recomputed.of_basis(report, basis, graph.laplacian)
    yield Comparison("must-links", float(report["n_must"]), float(len(basis["must_link"])), 0.0)
    yield Comparison("cannot-links", float(report["n_cannot"]), float(len(basis["cannot_link"])), 0.0)
    squares = squares_of(Q, basis["must_link"], basis["cannot_link"], basis["weights"])
    yield from recomputed.of_solution(report, squares, model["Y"], model.get("dual"))
    yield from recomputed.of_embedding(report, basis, model, None)
    yield from _held_out(run, rows, basis, pairs, settings)


def squares_of(Q: Matrix, must: NDArray, cannot: NDArray, weights: Matrix) -> recomputed.Squares:
    """Return the terms of f, of the diagonal, must-links and cannot-links in that order."""
    n, m = Q.shape
    ends = np.concatenate([np.repeat(np.arange(n)[:, None], 2, axis=1), must, cannot])
    roots = np.sqrt(np.concatenate([np.ones(n), weights]))
    targets = roots * np.concatenate([np.ones(n + len(must)), np.zeros(len(cannot))])
    return recomputed.Squares(Q, ends, False, roots, targets, np.zeros((m, m)))


def checked_pairs(run: RunStore, basis: Json, n: int) -> Pairs:
    """Return the stored pairs of n rows, with their weights if they have any; StoreError for others."""
    must, cannot, weights = basis["must_link"], basis["cannot_link"], basis.get("weights")
    ends = np.concatenate([must, cannot])
    is_whole = ends.shape[1:] == (2,) and (weights is None or len(weights) == len(ends))
    if not is_whole or not ((ends >= 0) & (ends < n)).all():
        raise StoreError("not weighted pairs of rows", where=f"{run.path}/basis")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # of contradictions, which the fit has reported
        # Contradictions that the fit left out are not among the stored pairs; those that it kept must be kept here.
        return Pairs(must, cannot, weights=weights).check(n, "keep")


@dataclass(frozen=True)
class HeldOut:
    """Quality of a run, the arrays that it keeps of its measurement, masks (p,) of the pairs learned from and measured on."""

    quality: Quality
    arrays: Json
    pairs: Pairs
    learn: NDArray[np.bool_]
    tests: NDArray[np.bool_]

    @classmethod
    def of(cls, run: RunStore, pairs: Pairs, n: int, settings: PropagationSettings) -> HeldOut | None:
        """Return what a run of n rows keeps; None if nothing was held out. StoreError where no pairs were to be."""
        quality = Quality.from_dict(run.report().get("quality"), "report.json")
        if quality is None or not (run.path / "held_out").is_dir():
            return None
        parts = hold_out(n, pairs, settings.holdout, STEP)
        if parts is None:
            raise StoreError("a quality without held-out pairs", where=f"{run.path}/report.json")
        return cls(quality, run.read_arrays("held_out"), pairs, *parts)

    @property
    def ends(self) -> NDArray[np.int64]:
        """Return the rows (p, 2) of all pairs."""
        return np.stack([self.pairs.i, self.pairs.j], axis=1)

    @property
    def left(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the must-links and the cannot-links that were learned from."""
        is_must = self.pairs.sign > 0
        return self.ends[self.learn & is_must], self.ends[self.learn & ~is_must]

    def of_auc(self, points: Matrix, rows: Rows) -> Iterator[Comparison]:
        """Compare the AUC of the held-out pairs by points (n, r), whose products are the kernel, and by distances of rows (n, d)."""
        i, j = self.ends[self.tests].T
        is_must, scores = self.pairs.sign[self.tests] > 0, np.sum(points[i] * points[j], axis=1)
        # In double precision, as the fit measures them: differences of rows in single are coarse for near pairs.
        apart = rows[i].astype(np.float64) - rows[j].astype(np.float64)
        square = apart.multiply(apart) if sparse.issparse(apart) else np.square(apart)
        plain = -np.asarray(square.sum(axis=1)).ravel()
        quality = self.quality
        for name, value, one in ((QUALITY, quality.value, scores), (ALTERNATIVE, quality.alternative_value, plain)):
            # Scores that differ by rounding may be ranked in either order: by `is_open` that may change the AUC.
            found, is_open = auc(one, is_must, AGREE * float(np.abs(one).max()))
            yield Comparison(name, value, found, is_open + AGREE)


def _held_out(
    run: RunStore, rows: Rows, basis: Json, pairs: Pairs, settings: PropagationSettings
) -> Iterator[Comparison]:
    """Compare the AUC of held-out pairs by the stored kernel of the others.
    Its gap shows that it learned from these alone."""
    Q = basis["Q"]
    if (found := HeldOut.of(run, pairs, len(Q), settings)) is None:
        return
    held, R = found.arrays, found.arrays["factor"]
    squares = squares_of(Q, *found.left, pairs.weights[found.learn])
    if len(R) != Q.shape[1] or held["dual"].shape != squares.targets.shape:
        raise StoreError("not a kernel of the other pairs", where=f"{run.path}/held_out")
    objective = float(np.sum((squares.seen(R @ R.T) - squares.targets) ** 2))
    gap, size = recomputed.gap_of(squares, objective, 0.0, held["dual"], squares.slack(held["dual"]))
    claimed = float(held["relative_gap"][0])
    yield Comparison(
        "relative gap without held-out pairs", claimed, gap / size, AGREE * (1 + objective / size), "above"
    )
    yield from found.of_auc(Q @ R, rows)


TOGETHER = 1e-10
"""Distance of rows of K's factor, each of length 1, that must-links join, by rounding."""


@dataclass(frozen=True)
class KnownPairs(shared.KnownConstraints):
    """P'L P (m, m), each row's set of must-linked rows (n,), and the sets (q, 2) that cannot-links keep apart; b: m ones, q zeros."""

    cost: sparse.csr_array
    sets: NDArray[np.integer]
    apart: NDArray[np.integer]

    @classmethod
    def of(cls, L: sparse.csr_array, must: NDArray, cannot: NDArray, where: str) -> KnownPairs:
        """Return the constraints of pairs; StoreError for a cannot-link within a set."""
        n = L.shape[0]
        links = sparse.csr_array((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
        labels = connected_components(links, directed=False)[1]
        # Sets in the order of their first rows.
        firsts = np.unique(labels, return_index=True)[1]
        # SciPy's order of components is not documented; the fit's multipliers are in that of the first rows.
        sets, m = np.argsort(np.argsort(firsts))[labels], len(firsts)
        # Two cannot-links between the same sets are one constraint with one multiplier, in the order of `np.unique`, as in the fit.
        apart = np.unique(np.sort(sets[cannot].reshape(-1, 2), axis=1), axis=0)
        if (apart[:, 0] == apart[:, 1]).any():
            raise StoreError("must-links that join the ends of a cannot-link", where=where)
        P = sparse.csr_array((np.ones(n), (np.arange(n), sets)), shape=(n, m))
        b = np.concatenate([np.ones(m), np.zeros(len(apart))])
        return cls(m, b, False, False, sparse.csr_array(P.T @ (L @ P)), sets, apart)

    def points(self, R: Matrix) -> Matrix:
        """Return the rows (m, r) of a factor R (n, r) of K: that of each set's first row."""
        return R[np.unique(self.sets, return_index=True)[1]]

    def images(self, R: Matrix) -> Matrix:
        """Return M_cc and M_cd (m + q,) of a factor R (m, r)."""
        c, d = self.apart.T
        return np.concatenate([np.square(R).sum(axis=1), (R[c] * R[d]).sum(axis=1)])

    def sizes(self, R: Matrix) -> Matrix:
        """Return what is summed up to the images, at most."""
        squares = np.square(R).sum(axis=1)
        return np.concatenate([squares, 0.5 * squares[self.apart].sum(axis=1)])

    def objective(self, R: Matrix) -> tuple[float, float]:
        """Return (tr(P'L P M), max|P'L P| tr(M))."""
        return float(np.sum((self.cost @ R) * R)), float(abs(self.cost).max()) * float(np.sum(R * R))

    def slack(self, y: Matrix) -> sparse.csr_array:
        """Return S (m, m)."""
        c, d = self.apart.T
        own, half = np.arange(self.n), 0.5 * y[self.n :]
        ends = np.concatenate([own, c, d]), np.concatenate([own, d, c])
        A = sparse.csr_array((np.concatenate([y[: self.n], half, half]), ends), shape=(self.n, self.n))
        return sparse.csr_array(self.cost - A)

    def bound(self, y: Matrix, low: float) -> float:
        """Return the bound on the objective by y."""
        return float(self.b @ y) + min(0.0, low) * self.n


def hard_claims(run: RunStore, settings: PropagationSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of the report's numbers with the same recomputed."""
    report, where = run.report(), f"{run.path}/basis"
    rows, basis, model = shared.read(run, budget)
    n = int(rows.shape[0])
    pairs = checked_pairs(run, basis, n)
    graph = neighbor_graph(
        rows, settings.n_neighbors, width_rule(settings.sigma, "local"), "normalized", warns_of_cuts=False
    )
    yield Comparison("widths of the similarity", 0.0, widths_apart(basis["widths"], graph.similarity.widths), 1e-12)
    edges, L = basis["edges"], graph.laplacian
    if edges.shape[1:] != (2,) or not ((edges >= 0) & (edges < n)).all() or len(edges) != len(basis["couplings"]):
        raise StoreError("not pairs of rows", where=f"{where}/edges")
    # With the other sign and above the diagonal, as they are stored: the sum with L's is 0 where they agree.
    kept = sparse.csr_array((basis["couplings"], (edges[:, 0], edges[:, 1])), shape=(n, n))
    yield Comparison("entries of the Laplacian", 0.0, float(abs(kept + sparse.triu(L, 1)).max()), shared.AGREE)
    yield Comparison("must-links", float(report["n_must"]), float(pairs.n_must), 0.0)
    yield Comparison("cannot-links", float(report["n_cannot"]), float(pairs.n_cannot), 0.0)
    given = KnownPairs.of(L, np.asarray(pairs.must_link), np.asarray(pairs.cannot_link), where)
    if len(model["dual"]) != len(given.b):
        raise StoreError("not a multiplier for each constraint", where=f"{run.path}/model/dual", got=len(model["dual"]))
    R = shared.factor_in(model)
    M = given.points(R)
    yield Comparison("must-linked rows of the kernel", 0.0, float(np.abs(R - M[given.sets]).max()), TOGETHER)
    yield from shared.of_kernel(report, given, M, model)
    yield from shared.of_bound(report, given, M, model["dual"], budget)
    yield from recomputed.of_embedding(report, model, model, None)
    if (held := HeldOut.of(run, pairs, n, settings)) is not None:
        yield from _held_out_of_hard(held, rows, L, budget, f"{run.path}/held_out")


def _held_out_of_hard(found: HeldOut, rows: Rows, L: sparse.csr_array, budget: int, where: str) -> Iterator[Comparison]:
    """Compare the AUC of held-out pairs by the stored kernel of the others.
    Its gap and infeasibility show that it learned from these alone."""
    held, given = found.arrays, KnownPairs.of(L, *found.left, where)
    if not {"points", "dual", "relative_gap", "infeasibility", "min_eigenvalue"} <= held.keys():
        raise StoreError("not a kernel of the other pairs", where=where, got=", ".join(sorted(held)))
    R, y = held["points"], held["dual"]
    if len(R) != given.n or len(y) != len(given.b):
        raise StoreError("not a kernel of the other pairs", where=where)
    name, claimed = "infeasibility without held-out pairs", float(held["infeasibility"][0])
    yield Comparison(name, claimed, given.infeasibility(given.images(R)), given.rounding(R))
    claimed = float(held["relative_gap"][0])
    if np.isfinite(claimed):  # else nothing was proven
        S, (objective, largest) = given.slack(y), given.objective(R)
        reported, spread = float(held["min_eigenvalue"][0]), given.spread(S)
        low, name = shared.lowest(S, None, budget, reported, spread, is_centered=False)
        yield Comparison(f"{name} without held-out pairs", reported, low, spread, "below")
        # By the eigenvalue of the report: a lower one is a weaker claim, though of a kernel below its bound the gap is smaller.
        bound = given.bound(y, reported)
        size = max(abs(objective), abs(bound), shared.SMALL * largest)
        rounded = shared.AGREE * (largest + float(np.abs(given.b * y).sum()))
        gap = abs(objective - bound) / size
        yield Comparison("relative gap without held-out pairs", claimed, gap, rounded / size)
    yield from found.of_auc(R[given.sets], rows)
