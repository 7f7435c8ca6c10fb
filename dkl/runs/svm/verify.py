"""`dkl verify` of a classifier: coefficients, objective and gap, from the training data and the store.

Nothing here comes from the solvers: kernels are scikit-learn's, block by block in double precision. For each machine, with
labels y of -1 and 1, bounds C_i and K the sum of the kernels by their stored weights,

    0 <= alpha_i <= C_i,  y'alpha = 0,    f = -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)
    f - min f  <=  alpha'g + sum_i C_i max(0, -g_i - 2 b y_i),    g = 2 (Y K Y alpha - e) + |alpha|^2 alpha / rho

for every b. The bound is convex and piecewise linear in b: it is least at one of its kinks, all of which are tried here.
The stored intercept must reach that, and be the middle of the b that do. Of several kernels, each with trace n times its
share theta_k, the weights count too: max_k q_k - theta'q is added, q_k = alpha'Y K_k Y alpha. The level method's bound is of all
its cuts, see below.

Of rho="scale" the number is recomputed: max_i C_i max over P of |alpha|^2 / (2 SHARE), P = {0 <= alpha <= C, y'alpha = 0}.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.svm.decisions import ClassifierModel, Scheme
from dkl.estimators.svm.model import load_model, reported_rho
from dkl.estimators.svm.quality import STEP
from dkl.estimators.svm.settings import SVCSettings
from dkl.quality import Quality, held_out
from dkl.runs.recomputed import Vector, diagonals, expansions, least_charge, middle_intercept
from dkl.runs.report import ALTERNATIVE, MOST_OUTPUTS, QUALITY, Comparison, named
from dkl.runs.supervised.inputs import ClassInputs
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.seals import Json


def claims(run: RunStore, inputs: ClassInputs, settings: SVCSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of each machine's numbers; MemoryBudgetError if `budget` holds no kernel block."""
    model = load_model(run)
    if not np.array_equal(inputs.classes, model.classes):
        raise StoreError("the stored classes are not those of the labels", where=f"{run.path}/config.json")
    outputs, machines = run.report()["outputs"], _machines(run, inputs, model, settings)
    if len(outputs) != len(machines):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(outputs))
    decided, rows = model.machines, inputs.rows
    support, coefficients, held = model.support, decided.coefficients, _held_out_model(run)
    if held is not None:
        support, coefficients = _joined(support, coefficients, held, rows.n, f"{run.path}/held_out")
    is_precomputed = decided.kernels[0].is_precomputed
    points = support if is_precomputed else read_rows(rows, support)
    if not is_precomputed and not abs(points[np.searchsorted(support, model.support)] - decided.points).max() == 0:
        raise StoreError("a stored support vector is not that row of the data", where=f"{run.path}/model")
    means = None
    if settings.solver == "level":
        means = stored_means(run, machines)
        wider = np.zeros((len(coefficients), rows.n))
        wider[:, support] = coefficients
        support, coefficients = np.arange(rows.n), np.concatenate([wider, signed(means, machines, rows.n)])
        points = support if is_precomputed else read_rows(rows, support)
    scores = expansions(decided.kernels, coefficients, points, rows, budget)
    diagonal = diagonals(decided.kernels, rows)
    # The factor that gives each kernel a mean of 1 on its diagonal.
    per_mean = np.ones(1) if is_precomputed else 1.0 / diagonal.mean(axis=1)
    scales = per_mean if len(decided.kernels) > 1 else np.ones(1)
    for number, (machine, output) in enumerate(zip(machines, outputs, strict=True)):
        which = "" if len(machines) == 1 else f" of machine {number + 1}"
        claim = {name: float(output[name]) for name in ("objective", "gap")}
        claim["rho"] = reported_rho(output, settings.rho)
        bound = None
        if means is not None:
            of_means = scores[:, number - len(machines)][:, machine.rows]
            bound = means[number].bound(machine, of_means, claim["rho"], diagonal[:, machine.rows])
        found = _of_machine(machine, claim, scores[:, number][:, machine.rows], scales, settings, bound)
        yield from named(found, which, quiet=number >= MOST_OUTPUTS)
    if held is not None:
        sizes = np.abs(1.0 / per_mean)
        yield from _of_held_out(
            run, inputs, settings, held, machines, scores[:, len(machines) :][:, : len(machines)], sizes
        )


def _machines(run: RunStore, inputs: ClassInputs, model: ClassifierModel, settings: SVCSettings) -> list[BinaryProblem]:
    """Return the two-class problems, from the labels alone, with what is stored of each."""
    n, support, decided = inputs.rows.n, model.support, model.machines
    if support.min() < 0 or support.max() >= n or len(np.unique(support)) != len(support):
        raise StoreError("support vectors that are no rows of the data", where=f"{run.path}/model")
    weights, found = inputs.weights(settings.class_weight), []
    for number, (positive, negative) in enumerate(inputs.sides(settings.multi_class)):
        signed = np.zeros(n)
        signed[support] = decided.coefficients[number]
        rows = np.flatnonzero(positive | negative)
        if np.count_nonzero(signed) != np.count_nonzero(signed[rows]):
            raise StoreError("coefficients of rows that are in neither class", where=f"{run.path}/model")
        y, bounds = np.where(positive[rows], 1.0, -1.0), settings.C * weights[rows]
        b, shares = float(decided.intercepts[number]), decided.shares[number]
        found.append(BinaryProblem(rows, y, bounds, y * signed[rows], b, shares))
    return found


def _of_machine(
    machine: BinaryProblem,
    claim: dict[str, float],
    scores: NDArray[np.float64],
    scales: Vector,
    settings: SVCSettings,
    bound: tuple[float, float] | None,
) -> Iterator[Comparison]:
    """Compare rho, f, the least gap over b and that at the stored b, from scores (kernels, rows).

    bound: a lower bound of f that is not alpha's own, and its rounding.
    """
    alpha, y, C = machine.alpha, machine.y, machine.C
    rho = scaled_rho(y, C) if isinstance(settings.rho, str) else settings.rho
    objective, gap, gap_at_b, allowed, of_gap = machine.proven(scores, rho)
    slack = _weights_gap(scores @ (y * alpha), machine.shares, scales)
    outside = float(max(0.0, -alpha.min(), (alpha - C).max()))
    # A gap may be larger than it need be: the claim holds all the same.
    proven, counts = (gap + slack, of_gap), "above"
    if bound is not None:  # the very one that was reported: it is no smaller either
        proven, counts = (max(objective - bound[0], 0.0), allowed + bound[1]), "both"
    yield Comparison("rho", claim["rho"], rho, AGREE * rho)
    yield Comparison("objective", claim["objective"], objective, allowed)
    yield Comparison("gap", claim["gap"], *proven, counts)
    yield Comparison("gap at the intercept", gap + slack, gap_at_b + slack, of_gap, "above")
    yield Comparison("intercept", machine.b, *machine.intercept(scores, rho))
    yield Comparison("y'alpha", 0.0, float(y @ alpha), allowed)
    yield Comparison("outside of [0, C]", 0.0, outside, AGREE * settings.C)


def _weights_gap(q: Vector, shares: Vector, scales: Vector) -> float:
    """Return max_k q_k - theta'q of kernels of equal traces; 0 for one kernel."""
    if len(q) == 1:
        return 0.0
    q, theta = scales * q, shares / scales
    return max(float(q.max() - theta @ q), 0.0)


# -- one machine -------------------------------------------------------------------------------------------------------
# A machine's numbers, from labels, bounds, alpha and scores alone.

AGREE = 1e-9
"""Tolerance relative to the sizes that are summed up."""
SHARE = 0.25
"""Share of the margin that rho="scale" means. Runs store the word: another share would need another."""


@dataclass(frozen=True)
class BinaryProblem:
    """The rows of a machine, their labels, bounds and alpha; its b, and the shares of the kernels in its K."""

    rows: NDArray[np.intp]
    y: Vector
    C: Vector
    alpha: Vector
    b: float
    shares: Vector

    def proven(self, scores: NDArray[np.float64], rho: float) -> tuple[float, float, float, float, float]:
        """Return (f, least gap over b, gap at the stored b, rounding of f, rounding of gaps).
        From scores (kernels, rows)."""
        alpha, y, square = self.alpha, self.y, float(self.alpha @ self.alpha)
        product = y * (self.shares @ scores)
        quadratic, linear, quartic = float(alpha @ product), 2 * float(alpha.sum()), square**2 / (4 * rho)
        gradient = 2 * (product - 1) + square / rho * alpha
        inner = float(alpha @ gradient)
        gap = max(inner + least_charge(gradient, y, self.C), 0.0)
        over = np.maximum(0.0, -gradient - 2 * self.b * y)
        gap_at_b = inner + float(self.C @ over)
        # Rows are charged their C for a gradient of scores that may be large where alpha, and so the objective, is tiny.
        charged = float(self.C @ np.where(over > 0, 2 * np.abs(product) + 2 + 2 * abs(self.b), 0.0))
        allowed = AGREE * (float(np.abs(alpha) @ np.abs(gradient)) + quadratic + linear + quartic)
        return quadratic - linear + quartic, gap, gap_at_b, allowed, allowed + AGREE * charged

    def intercept(self, scores: NDArray[np.float64], rho: float) -> tuple[float, float]:
        """Return (b, how far rounding may move it): the middle of the b of least gap, which may be flat."""
        alpha, y = self.alpha, self.y
        parts = 2 * self.shares @ scores, -2 * y, float(alpha @ alpha) / rho * y * alpha
        gradient = y * sum(parts)
        return middle_intercept(gradient, y, self.C), AGREE * max(float(np.abs(part).max()) for part in parts)


def scaled_rho(y: Vector, C: Vector) -> float:
    """Return the number that rho="scale" means for these labels and bounds.
    |alpha|^2 is largest in P where the largest bounds are full, as far as the class of the smaller sum has what the
    other needs."""
    unit, square = C / C.max(), 0.0  # C^3 may be beyond every double
    most = min(unit[y > 0].sum(), unit[y < 0].sum())
    for side in (np.sort(unit[y > 0])[::-1], np.sort(unit[y < 0])[::-1]):
        before = np.append(0.0, np.cumsum(side)[:-1])
        square += float((np.clip(most - before, 0.0, side) ** 2).sum())
    limits = np.finfo(float)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(C.max() ** 3 * (square / (2 * SHARE)), limits.tiny, limits.max))


# -- level method ------------------------------------------------------------------------------------------------------
# A gap by the level method is proven by means over the points of its cuts.
# For any vectors u and v, of which the run stores those of each machine,
#     f(alpha)  >=  (2 Y K Y u - 2 e + v / rho)'alpha - u'Y K Y u - 3/4 |v|^(4/3) / rho
# by Fenchel's inequality for alpha'Y K Y alpha and |alpha|^4 / (4 rho). The right side is least over P at one of the kinks of
# `least_charge`. All that f can be less than 0 at has |alpha|^3 <= 8 rho sqrt(n), and so C counts up to that alone.

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Means:
    """Stored means of alpha and |alpha|^2 alpha, (rows,) each, of one machine."""

    alpha: Vector
    cubic: Vector

    def bound(
        self, machine: BinaryProblem, scores: NDArray[np.float64], rho: float, diagonal: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Return (lower bound of f, its rounding), from scores (kernels, rows) of y alpha and K's diagonal, alike."""
        y, pull = machine.y, self.cubic / rho
        C = np.minimum(machine.C, 2 * np.cbrt(rho * np.sqrt(len(y))))
        product = y * (machine.shares @ scores)
        gradient = 2 * (product - 1) + pull
        quadratic, quartic = float(self.alpha @ product), 0.75 * float(np.linalg.norm(self.cubic)) ** (4 / 3) / rho
        charge, b = least_charge(gradient, y, C), middle_intercept(gradient, y, C)
        terms = 2 * np.abs(product) + 2 + np.abs(pull) + 2 * abs(b)
        charged = float(C @ np.where(-gradient - 2 * b * y > 0, terms, 0.0))
        # Rounding of K times the alpha and the mean, of which the reported gap counts a part: terms are at most sqrt(K_ii K_jj) alpha_j.
        sizes = np.sqrt(np.maximum(machine.shares @ diagonal, 0.0))
        reached = 2 * sizes * float(sizes @ (machine.alpha + self.alpha))
        terms = reached + float(machine.alpha @ machine.alpha) / rho * machine.alpha + 2 + 2 * abs(machine.b)
        rounding = EPS * float((C + machine.alpha) @ terms)
        return -quadratic - quartic - charge, AGREE * (abs(quadratic) + quartic + charged) + rounding


def stored_means(run: RunStore, machines: list[BinaryProblem]) -> list[Means]:
    """Return the means of each machine; StoreError unless there is one for each of its rows."""
    where, ends = f"{run.path}/bound", np.cumsum([len(machine.rows) for machine in machines])
    if not (run.path / "bound").is_dir():
        raise StoreError("what proves the bound of the level method is not stored", where=where)
    found = run.read_arrays("bound")
    if not found["alpha"].shape == found["cubic"].shape == (int(ends[-1]),):
        raise StoreError("not a number for each row of each machine", where=where, got=found["alpha"].shape)
    parts = (np.split(found[name], ends[:-1]) for name in ("alpha", "cubic"))
    return [Means(*pair) for pair in zip(*parts, strict=True)]


def signed(means: list[Means], machines: list[BinaryProblem], n: int) -> NDArray[np.float64]:
    """Return y alpha (machines, n) of the means."""
    found = np.zeros((len(machines), n))
    for row, one, machine in zip(found, means, machines, strict=True):
        row[machine.rows] = machine.y * one.alpha
    return found


# -- held-out accuracy -------------------------------------------------------------------------------------------------
# Accuracy on held-out rows, by the stored machines of the other rows.
# The rows are drawn once more. A machine without them is feasible, and its gap at its intercept is small, over the other
# rows, or over those of them that are support vectors of the fit where these include all of the machine's: it was solved
# not in memory.

ROUNDINGS = 16
"""Multiple of the kernel's precision, relative to the coefficients' norm, for a sure class.
A decision value nearer to 0 may be of either class."""

Matrix = NDArray[np.float64]
Rows = NDArray[np.intp]


def _held_out_model(run: RunStore) -> Json | None:
    """Return the stored machines of the rows not held out; None if not stored."""
    if run.report().get("quality") is None or not (run.path / "held_out").is_dir():
        return None
    return run.read_arrays("held_out")


def _joined(support: Rows, coefficients: Matrix, held: Json, n: int, where: str) -> tuple[Rows, Matrix]:
    """Return (rows (u,) used by machines of the fit or without held-out rows, coefficients (2 M, u))."""
    other, count = held["support"], len(coefficients)
    is_whole = (
        held["coefficients"].shape == (count, len(other)) and held["intercepts"].shape == (count,) == held["gaps"].shape
    )
    if not is_whole or len(np.unique(other)) != len(other) or not ((other >= 0) & (other < n)).all():
        raise StoreError("not machines of the other rows", where=where)
    numbers = np.union1d(support, other)
    found = np.zeros((2 * count, len(numbers)))
    found[:count, np.searchsorted(numbers, support)] = coefficients
    found[count:, np.searchsorted(numbers, other)] = held["coefficients"]
    return numbers, found


def _of_held_out(
    run: RunStore, inputs: ClassInputs, settings: SVCSettings, held: Json, machines: list[BinaryProblem], scores: Matrix,
    sizes: Vector,
) -> Iterator[Comparison]:  # fmt: skip
    """Compare balanced accuracy, that of the alternative, and gaps.

    machines (M): of the fit; scores (kernels, M, n): without b; sizes (kernels,): means of the kernels' diagonals.
    """
    report, n = run.report(), inputs.rows.n
    quality = Quality.from_dict(report["quality"], "report.json")
    assert quality is not None
    tests = held_out(n, settings.holdout, 0, STEP, inputs.numbers)
    is_test, decided, ambiguous = (
        np.isin(np.arange(n), tests),
        np.empty((len(tests), len(machines))),
        np.zeros(len(tests), bool),
    )
    for number, machine in enumerate(machines):
        signed = np.zeros(n)
        signed[held["support"]] = held["coefficients"][number]
        b = float(held["intercepts"][number])
        decided[:, number] = machine.shares @ scores[:, number, tests] + b
        size = max(1.0, float(machine.shares @ sizes)) * float(np.abs(signed).sum())
        moved = ROUNDINGS * float(np.finfo(settings.dtype).eps) * max(1.0, size)
        ambiguous |= np.abs(decided[:, number]) <= moved
        gap = float(held["gaps"][number])
        yield from _of_rest(machine, signed, b, is_test, scores[:, number], gap, settings, number, moved)
    truth = inputs.numbers[tests]
    weights = 1.0 / (len(np.unique(truth)) * np.bincount(truth)[truth])
    found = Scheme(len(inputs.classes), settings.multi_class).classes(decided)
    on_value = AGREE + float(weights[ambiguous].sum())
    yield Comparison(QUALITY, quality.value, float(weights @ (found == truth)), on_value)
    plain = _alternative(inputs, settings, quality.alternative, report["settings"]["memory_limit"], tests)
    yield Comparison(ALTERNATIVE, quality.alternative_value, float(weights @ (plain == truth)), AGREE)


def _of_rest(
    machine: BinaryProblem, signed: Matrix, b: float, is_test: NDArray[np.bool_], scores: Matrix, gap: float, settings: SVCSettings,
    number: int, moved: float,
) -> Iterator[Comparison]:  # fmt: skip
    """Compare the gap of coefficients `signed` (n,) learned from the rows of `machine` that are not tests.

    moved: how far the roundings of a score may move it.
    """
    is_left, y = ~is_test[machine.rows], machine.y
    rho = scaled_rho(y[is_left], machine.C[is_left]) if isinstance(settings.rho, str) else settings.rho
    alpha, support = y * signed[machine.rows], is_left & (machine.alpha > 0)
    is_among = not alpha[~support].any() and len(np.unique(y[support])) == 2
    used = support if is_among else is_left
    rows = machine.rows[used]
    rest = replace(machine, rows=rows, y=y[used], C=machine.C[used], alpha=alpha[used], b=b)
    _, _, found, _, allowed = rest.proven(scores[:, rows], rho)
    allowed += _rounding(rest, scores[:, rows], moved)
    outside = max(0.0, -float(alpha.min()), float((alpha - np.where(used, machine.C, 0.0)).max()))
    beyond = float(np.abs(signed).sum() - np.abs(alpha).sum())
    which = f" of machine {number + 1}"
    yield Comparison(f"gap without held-out rows{which}", gap, found, allowed, "above", quiet=number > 0)
    apart = max(outside, beyond, abs(float(rest.y @ rest.alpha)))
    yield Comparison(f"feasible without held-out rows{which}", 0.0, apart, allowed, quiet=True)


def _rounding(machine: BinaryProblem, scores: Matrix, moved: float) -> float:
    """Return how far scores (kernels, rows), each off by `moved`, move the gap, which nothing refines.

    By that for each row of 0 < alpha_i, and for each whose g_i + 2 b y_i may change its sign.
    """
    margin = machine.y * (machine.shares @ scores + machine.b) - 1  # half of g_i + 2 b y_i, less the term of rho
    counts = (np.abs(margin) <= 4 * moved) | (machine.alpha > 0)
    return 2 * moved * float((machine.C + machine.alpha)[counts].sum())


def _alternative(inputs: ClassInputs, settings: SVCSettings, name: str, memory_limit: int | None, tests: Rows) -> Rows:
    """Return the class numbers of the tests by the alternative of this name."""
    weights = inputs.weights(settings.class_weight)
    if name == "the largest class":
        return np.full(len(tests), int(np.bincount(inputs.numbers, weights=weights).argmax()))
    pool = np.setdiff1d(some_rows(inputs.rows, pool_rows(inputs.rows, memory_limit)), tests)
    X, others = read_rows(inputs.rows, pool), read_rows(inputs.rows, tests)
    return linear_predictions(X, inputs.numbers[pool], weights[pool] / weights.max(), others, of_classes=True)
