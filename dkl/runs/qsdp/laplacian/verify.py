"""`dkl verify` of a kernel from pairs in the basis of eigenvectors: graph, basis, gap and embedding.

f = sum over the diagonal, must-links and cannot-links of w_ij (K_ij - t_ij)^2,    t = 1, 1 and 0; w = 1 on the diagonal
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import DataWarning, StoreError
from dkl.estimators.base.plain_models import hold_out
from dkl.estimators.base.rules import width_rule
from dkl.estimators.qsdp.laplacian.fit import STEP
from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.quality import Quality
from dkl.runs import recomputed_basis as recomputed
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
