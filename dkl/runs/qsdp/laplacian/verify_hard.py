"""`dkl verify` of a kernel under hard pairs: what holds, the objective and the bound once more, from data and what is stored.

    minimize tr(L K) over K psd, K_ii = 1, K_ij = 1 of must-links (i, j), K_ij = 0 of cannot-links

Rows that must-links join have one row of K: with P (n, m), P_ic = 1 of a row i of set c, K = P M P' and tr(L K) = tr(P'L P M). For
multipliers y of M_cc = 1 and of M_cd = 0, S = P'L P less y at (c, c) and half of y at (c, d) and (d, c), low its least eigenvalue, no
such kernel has less than b'y + min(0, low) m.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from dkl.errors import StoreError
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.runs import recomputed_basis as recomputed
from dkl.runs.qsdp import verify_hard as shared
from dkl.runs.qsdp.laplacian.verify import HeldOut, checked_pairs
from dkl.runs.recomputed import neighbor_graph, widths_apart
from dkl.runs.report import Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import Rows

Matrix = NDArray[np.float64]
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


def claims(run: RunStore, settings: PropagationSettings, budget: int) -> Iterator[Comparison]:
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
        yield from _held_out(held, rows, L, budget, f"{run.path}/held_out")


def _held_out(found: HeldOut, rows: Rows, L: sparse.csr_array, budget: int, where: str) -> Iterator[Comparison]:
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
