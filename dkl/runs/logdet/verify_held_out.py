"""`dkl verify` of a learned kernel's, or metric's, number on held-out side information, from the stored multipliers without it.

The part is drawn once more, and F of what is left has a small gap at the kernel of the multipliers: it learned from that alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.quality import STEP, TOL
from dkl.problems.pair_folds import follows
from dkl.quality import Quality, held_out
from dkl.runs.logdet.verify_proof import Terms, inner_of, of_inner, proven
from dkl.runs.recomputed import auc
from dkl.runs.report import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.runs.logdet.inputs import AnyRunSettings
    from dkl.stores.seals import Json

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
NEAR = 1e-7
"""Share of the largest squared distance: two distances that differ by less may be in either order."""
ROUNDED = 1e-9


@dataclass(frozen=True)
class Measures:
    """Squared distances and inner products of p points: of points i and j, which broadcast; largest: 4 times the largest squared length."""

    between: Callable[[Rows, Rows], Matrix]
    products: Callable[[Rows, Rows], Matrix]
    largest: float

    @classmethod
    def of_kernel(cls, K: Matrix) -> Measures:
        """Return the distances under a kernel K (p, p)."""
        diagonal = np.diagonal(K)
        # |x - z|^2 is at most (|x| + |z|)^2.
        largest = 4 * float(np.abs(diagonal).max())
        return cls(lambda i, j: diagonal[i] + diagonal[j] - 2 * K[i, j], lambda i, j: K[i, j], largest)


class Learned(Protocol):
    """Interface of kernels near K0, or metrics near W0, as they are learned from some of the terms."""

    def without(
        self, w: float, multipliers: Matrix, terms: Terms
    ) -> tuple[tuple[float, float, float, float], Measures]:
        """Return ((F, its bound, rounding of F, scale of a gap), distances) of what the multipliers of the `terms` give."""

    def plain(self) -> Measures:
        """Return the distances before anything is learned."""


@dataclass(frozen=True)
class OfKernel:
    """Kernels near K0 = L L' (p, p) at the points that constraints touch."""

    K0: Matrix
    L: Matrix

    def without(
        self, w: float, multipliers: Matrix, terms: Terms
    ) -> tuple[tuple[float, float, float, float], Measures]:
        """Return the proof and the distances; see `Learned`."""
        M, K = of_inner(self.L, inner_of(self.L, terms.matrix(multipliers)))
        return proven(K, w, M, multipliers, self.L, terms), Measures.of_kernel(K)

    def plain(self) -> Measures:
        """Return the distances under K0."""
        return Measures.of_kernel(self.K0)


def claims(
    run: RunStore, side: SideInformation, points: Rows, learned: Learned, whole: Terms, settings: AnyRunSettings, gamma: float
) -> Iterator[Comparison]:  # fmt: skip
    """Compare the numbers of the kernel or metric without the held-out part, and its gap.

    points (p,): the rows that constraints touch; whole: all terms.
    """
    quality = Quality.from_dict(run.report().get("quality"), "report.json")
    if quality is None or not (run.path / "held_out").is_dir():
        return
    held, (chosen, n_labelled, tests, more) = run.read_arrays("held_out"), _split(side, points, whole, settings.holdout)
    terms, multipliers = whole.some(chosen, n_labelled), held["multipliers"]
    if multipliers.shape != (terms.count,):
        raise StoreError("not a multiplier for each constraint that is left", where=f"{run.path}/held_out")
    w = gamma / (terms.m if settings.normalize_gamma else 1.0)
    (objective, bound, allowed, scale), own = learned.without(w, multipliers, terms)
    stored, tol = float(held["relative_gap"][0]), max(TOL, settings.tol)
    # A bound may be proven at another step than the last, of which nothing is kept.
    on_gap = 2 * allowed / scale + (tol - stored if stored <= tol else np.inf)
    yield Comparison("relative gap without held-out part", stored, (objective - bound) / scale, on_gap, "above")
    for name, value, measures in (
        (QUALITY, quality.value, own),
        (ALTERNATIVE, quality.alternative_value, learned.plain()),
    ):
        found, doubtful = _measured(measures, len(points), tests, **more)
        yield Comparison(name, value, found, doubtful + ROUNDED)


def _split(
    side: SideInformation, points: Rows, terms: Terms, share: float
) -> tuple[NDArray[np.bool_], int | None, Rows, Json]:
    """Return (terms (c,) that are left, number of labeled rows, tests, further arguments of `_measured`).
    Rows are given by their place."""
    if side.codes is not None and side.n_labelled is not None and side.triplets is not None:
        codes = side.codes[points]
        tests = held_out(len(points), share, 0, STEP, codes)
        is_out = np.isin(np.arange(len(points)), tests)
        is_left = np.asarray(~(is_out[terms.i] | is_out[terms.j]).any(axis=1))
        return is_left, side.n_labelled - len(tests), tests, {"codes": codes}
    if side.pairs is None:
        out = held_out(terms.count, share, 0, STEP)
        is_left = ~np.isin(np.arange(terms.count), out)
        if side.triplets is None:
            return is_left, None, out, {"terms": terms.some(~is_left, None)}
        return is_left, None, np.searchsorted(points, side.triplets.triplets[out]), {}
    pairs, ends = side.pairs, np.stack([side.pairs.i, side.pairs.j], axis=1)
    is_must = pairs.sign > 0
    is_left = ~np.isin(np.arange(len(ends)), held_out(len(ends), share, 0, STEP, is_must.astype(np.intp)))
    is_test = ~is_left & ~follows(side.n, pairs, is_left) & np.isin(ends, points).all(axis=1)
    i, j = (points[one[terms.i != terms.j]] for one in (terms.i, terms.j))
    used = np.isin(ends.min(axis=1) * side.n + ends.max(axis=1), np.minimum(i, j) * side.n + np.maximum(i, j))
    return is_left[used], None, np.searchsorted(points, ends[is_test]), {"is_must": is_must[is_test]}


def _measured(
    measures: Measures, count: int, tests: Rows, codes: NDArray | None = None, is_must: NDArray | None = None,
    terms: Terms | None = None,
) -> tuple[float, float]:  # fmt: skip
    """Return (measure on the tests by the distances between `count` points, or on `terms`, share that equal distances leave open)."""
    near, between = NEAR * measures.largest, measures.between
    if terms is not None:
        margins = (terms.signs * measures.products(terms.i, terms.j)).sum(axis=1)
        is_near = np.abs(margins) <= near * np.abs(terms.signs).sum(axis=1)
        return float((0.5 + 0.5 * np.sign(margins)).mean()), float(is_near.mean())
    if codes is not None:
        among, margins = np.setdiff1d(np.arange(count), tests), np.empty(len(tests))
        for k, test in enumerate(tests):  # a row at a time: all of them may be a matrix larger than what was learned
            apart, same = between(test, among), codes[test] == codes[among]
            margins[k] = apart[~same].min(initial=np.inf) - apart[same].min(initial=np.inf)
    elif is_must is None:
        margins = between(tests[:, 0], tests[:, 2]) - between(tests[:, 0], tests[:, 1])
    else:
        return auc(-between(*tests.T), is_must, near)
    return float((0.5 + 0.5 * np.sign(margins)).mean()), float((np.abs(margins) <= near).mean())
