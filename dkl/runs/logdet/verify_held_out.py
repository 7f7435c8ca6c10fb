"""`dkl verify` of a learned kernel's number on held-out labels, triplets or pairs, from the stored multipliers without these.

The part is drawn once more, and F of what is left has a small gap at the kernel of the multipliers: it learned from that alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.quality import STEP, TOL
from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.problems.pair_folds import follows
from dkl.quality import Quality, held_out
from dkl.runs.logdet.verify_proof import Terms, inner_of, of_inner, proven
from dkl.runs.verify.comparison import ALTERNATIVE, QUALITY, Comparison
from dkl.runs.verify.recomputed import auc
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
NEAR = 1e-7
"""Share of the largest squared distance: two distances that differ by less may be in either order."""
ROUNDED = 1e-9


def claims(
    run: RunStore, side: SideInformation, points: Rows, K0: Matrix, L: Matrix, whole: Terms, settings: LogDetRunSettings,
    gamma: float,
) -> Iterator[Comparison]:  # fmt: skip
    """Compare the numbers of the kernel without the held-out part, and its gap.

    K0 = L L' (p, p) at the points (p,) that constraints touch; whole: all terms.
    """
    quality = Quality.from_dict(run.report().get("quality"), "report.json")
    if quality is None or not (run.path / "held_out").is_dir():
        return
    held, (chosen, n_labelled, tests, more) = run.read_arrays("held_out"), _split(side, points, whole, settings.holdout)
    terms, multipliers = whole.some(chosen, n_labelled), held["multipliers"]
    if multipliers.shape != (terms.count,):
        raise StoreError("not a multiplier for each constraint that is left", where=f"{run.path}/held_out")
    w = gamma / (terms.m if settings.normalize_gamma else 1.0)
    M, K = of_inner(L, inner_of(L, terms.matrix(multipliers)))
    objective, bound, allowed, scale = proven(K, w, M, multipliers, L, terms)
    told, tol = float(held["relative_gap"][0]), max(TOL, settings.tol)
    # A bound may be proven at another step than the last, of which nothing is kept.
    on_gap = 2 * allowed / scale + (tol - told if told <= tol else np.inf)
    yield Comparison("relative gap without held-out part", told, (objective - bound) / scale, on_gap, "above")
    for name, value, kernel in ((QUALITY, quality.value, K), (ALTERNATIVE, quality.alternative_value, K0)):
        found, doubtful = _measured(kernel, tests, **more)
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
    if side.triplets is not None:
        out = held_out(terms.count, share, 0, STEP)
        is_left = ~np.isin(np.arange(terms.count), out)
        return is_left, None, np.searchsorted(points, side.triplets.triplets[out]), {}
    assert side.pairs is not None
    pairs, ends = side.pairs, np.stack([side.pairs.i, side.pairs.j], axis=1)
    is_must = pairs.sign > 0
    is_left = ~np.isin(np.arange(len(ends)), held_out(len(ends), share, 0, STEP, is_must.astype(np.intp)))
    is_test = ~is_left & ~follows(side.n, pairs, is_left) & np.isin(ends, points).all(axis=1)
    i, j = (points[one[terms.i != terms.j]] for one in (terms.i, terms.j))
    used = np.isin(ends.min(axis=1) * side.n + ends.max(axis=1), np.minimum(i, j) * side.n + np.maximum(i, j))
    return is_left[used], None, np.searchsorted(points, ends[is_test]), {"is_must": is_must[is_test]}


def _measured(
    K: Matrix, tests: Rows, codes: NDArray | None = None, is_must: NDArray | None = None
) -> tuple[float, float]:
    """Return (measure on the tests by the kernel K (p, p), share of it that equal distances leave open)."""
    diagonal, near = np.diagonal(K), NEAR * 4 * float(np.abs(np.diagonal(K)).max())

    def distances(i: Rows, j: Rows) -> Matrix:
        return np.asarray(diagonal[i] + diagonal[j] - 2 * K[i, j])

    if codes is not None:
        among = np.setdiff1d(np.arange(len(K)), tests)
        apart = distances(tests[:, None], among)
        same = codes[tests][:, None] == codes[among]
        margins = np.where(same, np.inf, apart).min(axis=1) - np.where(same, apart, np.inf).min(axis=1)
    elif is_must is None:
        margins = distances(tests[:, 0], tests[:, 2]) - distances(tests[:, 0], tests[:, 1])
    else:
        return auc(-distances(*tests.T), is_must, near)
    return float((0.5 + 0.5 * np.sign(margins)).mean()), float((np.abs(margins) <= near).mean())
