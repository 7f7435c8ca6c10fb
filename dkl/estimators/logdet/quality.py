"""The quality of a kernel or metric on what it did not learn from, next to the kernel or distances that it started from.

Of labeled rows a tenth of each class is held out, and gets the class of its nearest neighbor among the others; of triplets, and of
pairs that do not follow from the others, a tenth. The problem is solved once more without these, at the final gamma, to a gap of 1 %,
on the rows that the others touch, and extended to the held-out rows. The final fit does not change by it.
"""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DataWarning, DklError
from dkl.estimators.common.metric_constraints import constraints_and_loss
from dkl.estimators.common.outcomes import warn_if_worse
from dkl.estimators.common.side_information import SideInformation
from dkl.estimators.logdet.fit import Posed
from dkl.pairs import Pairs
from dkl.problems.logdet_constraints import ConstraintSet
from dkl.problems.pair_folds import follows
from dkl.quality import Quality, auc_error, auc_of, held_out, paired_error
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.triplets import Triplets

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]

STEP = 5
"""Key of the random stream that draws what is held out; the seed is 0, as a fit has none."""
TOL = 1e-2
"""Relative gap of the problem without it."""
ADVICE = "try another gamma, prior or loss, or more labels, triplets or pairs"
ROWS_AT_A_TIME = 256
KERNEL, METRIC = "the unlearned kernel", "Euclidean distances"


@dataclass(frozen=True)
class Part:
    """What is learned from without the held-out part, and what that is. Row numbers are places among the problem's points.

    known (k,): the points that constraints touch; constraints and loss on these; tests: triplets (t, 3) or pairs (t, 2), or rows (t,)
    with codes (p,) of all points; is_must (t,) of pairs.
    """

    known: Rows
    constraints: ConstraintSet
    loss: Any
    n_labelled: int | None
    tests: Rows
    codes: NDArray[np.int64] | None = None
    triplets: Rows | None = None
    is_must: Flags | None = None


def part_of(posed: Posed, side: SideInformation, share: float, loss: Any, params: Any, distances: Any) -> Part | None:
    """Hold out a share of what is learned from; None where too little would be held out, or left. distances: see `constraints_and_loss`."""
    points = posed.points
    if side.codes is not None and side.triplets is not None:
        codes = side.codes[points]
        tests = held_out(len(points), share, 0, STEP, codes)
        is_known = np.isin(np.arange(side.n), np.setdiff1d(points, points[tests]))
        rows = np.searchsorted(points, side.triplets.triplets)
        is_out = np.isin(rows, tests)
        made = Triplets(side.triplets.triplets[is_known[side.triplets.triplets].all(axis=1)])
        n_labelled = None if side.n_labelled is None else side.n_labelled - len(tests)
        rest = SideInformation(side.n, made, None if not made.n_triplets else made.to_pairs().check(side.n), n_labelled)
        is_test = is_out[:, 0] & ~is_out[:, 1:].any(axis=1) & np.isin(side.triplets.triplets, points).all(axis=1)
        more: dict[str, Any] = {"codes": codes, "triplets": rows[is_test]}
    elif side.triplets is not None:
        rows = np.searchsorted(points, side.triplets.triplets)
        out = held_out(len(rows), share, 0, STEP)
        is_left = ~np.isin(np.arange(len(rows)), out)
        rest, tests, more = SideInformation(side.n, Triplets(side.triplets.triplets[is_left])), rows[out], {}
    else:
        assert side.pairs is not None
        tests, is_left = _pairs_out(side.n, side.pairs, share)
        pairs = side.pairs
        rest = SideInformation(side.n, pairs=_some(pairs, is_left))
        tests = tests[np.isin(pairs.i[tests], points) & np.isin(pairs.j[tests], points)]
        more = {"is_must": pairs.sign[tests] > 0}
        tests = np.searchsorted(points, np.stack([pairs.i, pairs.j], axis=1)[tests])
    if not len(tests) or not rest.n_constraints:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)  # the fit itself has warned of equal rows
            constraints, psi = constraints_and_loss(rest, loss, params, distances)
    except DklError:  # what is left is not a problem of this loss
        return None
    known = np.searchsorted(points, constraints.points)
    return Part(known, constraints.on_points(), psi, rest.n_labelled, tests, **more)


def _pairs_out(n: int, pairs: Pairs, share: float) -> tuple[Rows, Flags]:
    """(numbers of the held-out pairs that do not follow from the others, which pairs (m,) are left)."""
    strata = (pairs.sign > 0).astype(np.intp)
    out = held_out(len(strata), share, 0, STEP, strata)
    is_left = ~np.isin(np.arange(len(strata)), out)
    out = out[~follows(n, pairs, is_left)[out]]
    has_both = len(np.unique(strata[out])) == 2
    return (out if has_both else out[:0]), is_left


def _some(pairs: Pairs, chosen: Flags) -> Pairs:
    """The chosen pairs alone."""
    ends, is_must = np.stack([pairs.i, pairs.j], axis=1)[chosen], pairs.sign[chosen] > 0
    return Pairs(ends[is_must], ends[~is_must])


def measured(posed: Posed, part: Part, gamma: float) -> Quality | None:
    """Solve without the held-out part at `gamma`, and compare on it. Runs wherever the problem is.

    None where the solver finds no solution.
    """
    is_kernel, known = posed.W0 is None, part.known
    posed.__dict__.pop("problem", None)  # it is solved, and as large as what follows
    base = posed.base[np.ix_(known, known)] if is_kernel else posed.base[known]
    settings = posed.settings.changed(tol=max(TOL, posed.settings.tol))
    rest = replace(posed, base=base, constraints=part.constraints, loss=part.loss, n_labelled=part.n_labelled,
                   points=known, settings=settings)  # fmt: skip
    try:
        learned = rest.learned(rest.solve(gamma, (), Watch()))
    except DklError:
        return None
    if is_kernel:
        at_known = posed.base[:, known]
        own: Distances = KernelDistances(posed.base + at_known @ learned.M @ at_known.T)
        return _compared(part, own, KernelDistances(posed.base), KERNEL)
    values, vectors = np.linalg.eigh(learned)
    own = RowDistances(posed.base @ (vectors * np.sqrt(np.maximum(values, 0.0))))
    return _compared(part, own, RowDistances(posed.base), METRIC)


class Distances(ABC):
    """Squared distances of points."""

    @abstractmethod
    def between(self, i: Rows, j: Rows) -> Matrix:
        """(m,) those of the points i and j (m,)."""

    @abstractmethod
    def nearest(self, i: Rows, among: Rows) -> Rows:
        """(m,) the nearest of the points `among` to each of the points i (m,)."""

    def holds(self, triplets: Rows) -> Matrix:
        """(m,) 1 for triplets that hold, 0 for others, a half for ties."""
        apart = self.between(triplets[:, 0], triplets[:, 2]) - self.between(triplets[:, 0], triplets[:, 1])
        return np.asarray(0.5 + 0.5 * np.sign(apart))


@dataclass(frozen=True)
class KernelDistances(Distances):
    """K_ii + K_jj - 2 K_ij of a kernel (p, p)."""

    K: Matrix

    def between(self, i: Rows, j: Rows) -> Matrix:
        """See `Distances`."""
        diagonal = np.diagonal(self.K)
        return np.asarray(diagonal[i] + diagonal[j] - 2 * self.K[i, j])

    def nearest(self, i: Rows, among: Rows) -> Rows:
        """See `Distances`."""
        diagonal = np.diagonal(self.K)
        return np.asarray(among[(diagonal[among] - 2 * self.K[np.ix_(i, among)]).argmin(axis=1)])


@dataclass(frozen=True)
class RowDistances(Distances):
    """|z_i - z_j|^2 of rows (p, d)."""

    rows: Matrix

    def between(self, i: Rows, j: Rows) -> Matrix:
        """See `Distances`."""
        return np.asarray(np.square(self.rows[i] - self.rows[j]).sum(axis=1))

    def nearest(self, i: Rows, among: Rows) -> Rows:
        """See `Distances`."""
        others = self.rows[among]
        sizes, found = np.square(others).sum(axis=1), []
        for lo in range(0, len(i), ROWS_AT_A_TIME):
            some = self.rows[i[lo : lo + ROWS_AT_A_TIME]]
            found.append((sizes - 2 * some @ others.T).argmin(axis=1))
        return np.asarray(among[np.concatenate(found)])


def _compared(part: Part, own: Distances, plain: Distances, name: str) -> Quality:
    tests = part.tests
    if part.codes is not None:
        codes, among = part.codes, np.setdiff1d(np.arange(len(part.codes)), tests)
        right = [(codes[one.nearest(tests, among)] == codes[tests]).astype(float) for one in (own, plain)]
        others = {}
        if part.triplets is not None and len(part.triplets):
            others = {"share of triplets": float(own.holds(part.triplets).mean()),
                      f"share under {name}": float(plain.holds(part.triplets).mean())}  # fmt: skip
        how = f"{len(tests):,} of {len(codes):,} labeled rows"
        return _quality("held-out accuracy of 1-NN", right, how, name, others)
    if part.is_must is None:
        return _quality("held-out triplets that hold", [one.holds(tests) for one in (own, plain)],
                        f"{len(tests):,} triplets", name, {})  # fmt: skip
    scores = [-one.between(tests[:, 0], tests[:, 1]) for one in (own, plain)]
    (value, first), (other, second) = (auc_of(one, part.is_must) for one in scores)
    error, how = auc_error(first, second, part.is_must), f"{len(tests):,} pairs"
    return Quality("held-out AUC of pairs", value, len(tests), how, name, other, error, {}, ADVICE)


def _quality(measure: str, right: list[Matrix], how: str, name: str, others: dict[str, float]) -> Quality:
    own, plain = right
    error = paired_error(own - plain)
    return Quality(measure, float(own.mean()), len(own), how, name, float(plain.mean()), error, others, ADVICE)


def with_quality(
    result: Result, posed: Posed, side: SideInformation, gamma: float, distances: Any, params: Any, watch: Watch,
    call: Callable[..., Any] | None = None,
) -> Result:  # fmt: skip
    """Return the result with its quality, and warn where the alternative is better; None where nothing is held out, or it was stopped.

    distances, params: see `constraints_and_loss`. call: call(function, *arguments) runs function(posed, *arguments) where the
    problem was solved; None: here.
    """
    share = posed.settings.holdout
    if not share or watch.outcome is not None:
        return result
    start = time.perf_counter()
    part = part_of(posed, side, share, posed.settings.loss, params, distances)
    if part is None:
        return result
    quality = measured(posed, part, gamma) if call is None else call(measured, part, gamma)
    warn_if_worse(quality, stacklevel=3)
    took = time.perf_counter() - start
    seconds = result.seconds | {"quality": took, "total": result.seconds["total"] + took}
    return replace(result, quality=quality, seconds=seconds)
