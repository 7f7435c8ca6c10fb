"""Held-out quality of a kernel or metric, next to the kernel or distances that it started from.

Of labeled rows a tenth of each class is held out, and gets the class of its nearest neighbor among the others; of triplets, of
constraints, and of pairs that do not follow from the others, a tenth. The problem without these is solved first, at the final gamma, to a
gap of 1 %, near the same K0, whose inverse or factor the two share. The fit of all begins at that solution, which repays most of what it
took: "solved" means for it what it means for any start.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.errors import DklError
from dkl.estimators.base.plain_models import hold_out, quality_of_pairs
from dkl.estimators.base.progress import warn_if_worse
from dkl.estimators.base.side_information import SideInformation
from dkl.estimators.logdet.fit import GammaProblem
from dkl.linalg.eigen.principal_coordinates import metric_components
from dkl.linalg.graph.neighbors import nearest_rows
from dkl.problems.logdet.constraints import ConstraintSet
from dkl.quality import Quality, held_out, paired_error, too_few
from dkl.solvers.logdet.solve import LogDetSolution, solve_logdet
from dkl.solvers.watch import Result, Watch

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]
Arrays = dict[str, NDArray[Any]]

STEP = 5
"""Key of the random stream that draws what is held out; the seed is 0, as a fit has none."""
TOL = 1e-2
"""Relative gap of the problem without the held-out part."""
ADVICE = "try another gamma, prior or loss, or more labels, triplets, pairs or constraints"
MORE = "try more components,"
KERNEL, METRIC = "the unlearned kernel", "Euclidean distances"


@dataclass(frozen=True)
class Part:
    """The problem without the held-out part, and that part. Row numbers index the problem's points.

    chosen (c,): the constraints that are left; n_labelled: as of the problem; tests: triplets
    (t, 3) or pairs (t, 2), or rows (t,) with codes (p,) of all points; is_must (t,) of pairs; or numbers (t,) of `constraints`.
    """

    chosen: Flags
    n_labelled: int | None
    tests: Rows
    codes: NDArray[np.int64] | None = None
    triplets: Rows | None = None
    is_must: Flags | None = None
    constraints: ConstraintSet | None = None


def part_of(posed: GammaProblem, side: SideInformation, share: float) -> Part | None:
    """Hold out a share of what is learned from; None where too little would be held out, or left."""
    points, constraints = posed.points, posed.constraints
    if side.codes is not None and side.triplets is not None:
        codes = side.codes[points]
        tests = held_out(len(points), share, 0, STEP, codes)
        is_out = np.isin(np.arange(len(points)), tests)
        # A constraint is left out if any of its entries is of a held-out row.
        seen = (is_out[constraints.rows] | is_out[constraints.columns])[constraints.incidence.indices]
        chosen = ~np.logical_or.reduceat(seen, constraints.incidence.indptr[:-1])
        # Tested by triplets of a held-out anchor whose other rows are learned from.
        is_left, is_test = (np.isin(np.arange(side.n), some) for some in (points[~is_out], points[tests]))
        triplets = side.triplets.triplets[is_test[side.triplets.triplets[:, 0]]]
        triplets = np.searchsorted(points, triplets[is_left[triplets[:, 1:]].all(axis=1)])
        # gamma is divided by the labeled rows, which are fewer here.
        n_labelled = None if side.n_labelled is None else side.n_labelled - len(tests)
        part = Part(chosen, n_labelled, tests, codes, triplets)
    elif side.matrices is not None:
        out = held_out(len(constraints), share, 0, STEP)
        is_out = np.isin(np.arange(len(constraints)), out)
        part = Part(~is_out, None, out, constraints=constraints.some(is_out))
    elif side.triplets is not None:
        rows = np.searchsorted(points, side.triplets.triplets)
        out = held_out(len(rows), share, 0, STEP)
        part = Part(~np.isin(np.arange(len(rows)), out), None, rows[out])
    else:
        assert side.pairs is not None
        pairs, masks = side.pairs, hold_out(side.n, side.pairs, share, STEP)
        if masks is None:
            return None
        is_left, is_test = masks
        ends = np.stack([pairs.i, pairs.j], axis=1)
        # A pair has one entry off the diagonal, whose row and column are its ends.
        is_off = constraints.rows != constraints.columns
        keys = (points[constraints.rows] * side.n + points[constraints.columns])[is_off]
        used = np.isin(ends.min(axis=1) * side.n + ends.max(axis=1), keys)  # a loss may leave pairs of equal rows out
        tests = np.flatnonzero(is_test & np.isin(ends, points).all(axis=1))
        part = Part(is_left[used], None, np.searchsorted(points, ends[tests]), is_must=pairs.sign[tests] > 0)
    return part if len(part.tests) and part.chosen.any() else None


def measured(
    posed: GammaProblem, part: Part, gamma: float, watch: Watch | None = None
) -> tuple[Quality | None, LogDetSolution | None, Arrays]:
    """Solve without the held-out part at `gamma`; return (comparison, start of the fit, stored arrays).

    Runs wherever the problem is.

    None where the solver finds no solution.
    """
    whole, settings = posed.problem.with_gamma(gamma), posed.settings
    rest = whole.some(part.chosen, part.n_labelled)
    try:
        found = solve_logdet(
            rest, solver=settings.solver, tol=max(TOL, settings.tol), max_iter=settings.max_iter, watch=watch
        )
        if posed.W0 is None:
            learned = LearnedDistances(rest.block(found.multipliers))
            quality = _compared(part, learned, LearnedDistances(posed.base), KERNEL)
        else:
            if posed.spread is None:
                rows = rest.rows(found.multipliers)
            else:  # cut as what is handed out
                rows = posed.base @ posed.cut(metric_components(rest.learned(found.multipliers))).T
            quality = _compared(part, RowDistances(rows), RowDistances(posed.base), METRIC)
            if posed.spread is not None and settings.n_components < posed.base.shape[1]:
                quality = replace(quality, advice=f"{MORE}{ADVICE.removeprefix('try')}")
    # Without a solution there is no quality, which is no reason for the fit to fail.
    except DklError:
        return None, None, {}
    arrays = {"multipliers": found.multipliers, "relative_gap": np.array([found.certificate.relative_gap])}
    multipliers = np.zeros(len(part.chosen))
    # Multipliers grow with the weight gamma / m of a constraint, and m is smaller without the held-out part.
    multipliers[part.chosen] = found.multipliers * (whole.weight / rest.weight)
    point = whole.point(multipliers)
    if point is None:
        return quality, None, arrays
    # The problem's own state, with its products, is then the point at which the fit of all starts.
    whole.accept()
    return quality, replace(found, multipliers=multipliers, margins=point.margins), arrays


class Distances(ABC):
    """Squared distances and inner products of points."""

    @abstractmethod
    def products(self, i: Rows, j: Rows) -> Matrix:
        """Return the inner products (m,) of the points i and j (m,)."""

    @abstractmethod
    def between(self, i: Rows, j: Rows) -> Matrix:
        """Return the squared distances (m,) between the points i and j (m,)."""

    @abstractmethod
    def nearest(self, i: Rows, among: Rows) -> Rows:
        """Return the nearest (m,) of the points `among` to each of the points i (m,)."""

    def holds(self, triplets: Rows) -> Matrix:
        """Return 1 for triplets that hold, 0 for others, a half for ties, (m,)."""
        apart = self.between(triplets[:, 0], triplets[:, 2]) - self.between(triplets[:, 0], triplets[:, 1])
        return np.asarray(0.5 + 0.5 * np.sign(apart))

    def meets(self, constraints: ConstraintSet) -> Matrix:
        """Return 1 for constraints of a positive margin tr(K A_t), 0 for others, a half for margins of 0, (c,)."""
        margins = constraints.incidence @ self.products(constraints.rows, constraints.columns)
        return np.asarray(0.5 + 0.5 * np.sign(margins))


@dataclass(frozen=True)
class LearnedDistances(Distances):
    """Squared distances K_ii + K_jj - 2 K_ij of a kernel (p, p)."""

    K: Matrix

    def products(self, i: Rows, j: Rows) -> Matrix:
        """Return the kernel's values (m,) of the points i and j; see `Distances`."""
        return np.asarray(self.K[i, j])

    def between(self, i: Rows, j: Rows) -> Matrix:
        """Return the squared distances (m,) between the points i and j; see `Distances`."""
        diagonal = np.diagonal(self.K)
        return np.asarray(diagonal[i] + diagonal[j] - 2 * self.K[i, j])

    def nearest(self, i: Rows, among: Rows) -> Rows:
        """Return the nearest (m,) of `among` to each of the points i; see `Distances`."""
        diagonal = np.diagonal(self.K)
        return np.asarray(among[(diagonal[among] - 2 * self.K[np.ix_(i, among)]).argmin(axis=1)])


@dataclass(frozen=True)
class RowDistances(Distances):
    """Squared distances |z_i - z_j|^2 of rows (p, d)."""

    rows: Matrix

    def products(self, i: Rows, j: Rows) -> Matrix:
        """Return the inner products (m,) of the points i and j; see `Distances`."""
        return np.einsum("md,md->m", self.rows[i], self.rows[j])

    def between(self, i: Rows, j: Rows) -> Matrix:
        """Return the squared distances (m,) between the points i and j; see `Distances`."""
        return np.asarray(np.square(self.rows[i] - self.rows[j]).sum(axis=1))

    def nearest(self, i: Rows, among: Rows) -> Rows:
        """Return the nearest (m,) of `among` to each of the points i; see `Distances`."""
        return np.asarray(among[nearest_rows(self.rows[i], self.rows[among], 1).rows[:, 0]])


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
    if part.constraints is not None:
        right = [one.meets(part.constraints) for one in (own, plain)]
        return _quality("held-out constraints that hold", right, f"{len(tests):,} constraints", name, {})
    if part.is_must is None:
        return _quality("held-out triplets that hold", [one.holds(tests) for one in (own, plain)],
                        f"{len(tests):,} triplets", name, {})  # fmt: skip
    scores = [-one.between(tests[:, 0], tests[:, 1]) for one in (own, plain)]
    return quality_of_pairs(scores[0], scores[1], part.is_must, f"{len(tests):,} pairs", name, ADVICE)


def _quality(measure: str, right: list[Matrix], how: str, name: str, others: dict[str, float]) -> Quality:
    own, plain = right
    error = paired_error(own - plain)
    return Quality(measure, float(own.mean()), len(own), how, name, float(plain.mean()), error, others, ADVICE)


@dataclass(frozen=True)
class HeldOutPart:
    """Result of the held-out part: its quality, the start of the whole fit (none or one), seconds, arrays."""

    quality: Quality | None = None
    start: tuple[LogDetSolution, ...] = ()
    seconds: float = 0.0
    arrays: Arrays = field(default_factory=dict, repr=False)
    no_quality: str = ""

    @classmethod
    def of(
        cls,
        posed: GammaProblem,
        side: SideInformation,
        gamma: float,
        watch: Watch,
        call: Callable[..., Any] | None = None,
    ) -> HeldOutPart:
        """Measure the quality on held-out side information, before a fit that ends at `gamma`.

        call: call(function, *arguments) runs function(posed, *arguments) where the problem is solved; None: here.
        """
        began, share = time.perf_counter(), posed.settings.holdout
        part = part_of(posed, side, share) if share and watch.outcome is None else None
        if part is None:
            things = "labeled rows" if side.codes is not None else side.kind
            count = side.n_constraints if side.codes is None else int(np.count_nonzero(side.codes >= 0))
            return cls(no_quality=too_few(count, things) if share else "")
        found = measured(posed, part, gamma, watch.quiet()) if call is None else call(measured, part, gamma)
        quality, start, arrays = found
        reason = "there is no solution without the held-out part"
        return cls(quality, () if start is None else (start,), time.perf_counter() - began, arrays, reason)

    def added_to(self, result: Result, watch: Watch) -> Result:
        """Return the result with the quality, unless stopped; warn where the alternative is better."""
        if watch.outcome is not None:
            return result
        if self.quality is None:
            return replace(result, no_quality=self.no_quality)
        warn_if_worse(self.quality, stacklevel=3)
        return result.with_quality(self.quality, self.seconds, "", watch.seconds)


# Quality of a kernel on labeled rows: the error of each one's nearest neighbor among the others.


def neighbor_error(K: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the share of p rows whose nearest other, by K_ii + K_jj - 2 K_ij, has another class.

    K (p, p), codes (p,).

    For rows that were learned from it is no estimate for others: it shows what the weight of the loss does.
    """
    diagonal = np.diagonal(K)
    distances = diagonal[:, None] + diagonal - 2.0 * K
    np.fill_diagonal(distances, np.inf)
    return float(np.mean(codes[distances.argmin(axis=1)] != codes))
