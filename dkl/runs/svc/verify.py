"""`dkl verify` of a classifier: coefficients, objective and gap once more, from the training data and what is stored.

Nothing here comes from the solvers: kernels are scikit-learn's, block by block in double precision. For each machine, with
labels y of -1 and 1, bounds C_i and K the sum of the kernels by their stored weights,

    0 <= alpha_i <= C_i,  y'alpha = 0,    f = -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)
    f - min f  <=  alpha'g + sum_i C_i max(0, -g_i - 2 b y_i),    g = 2 (Y K Y alpha - e) + |alpha|^2 alpha / rho

for every b. The bound is convex and piecewise linear in b: it is least at one of its kinks, all of which are tried here.
The stored intercept must reach that. Of several kernels, each with trace n times its share theta_k, the weights count too:
max_k q_k - theta'q is added, q_k = alpha'Y K_k Y alpha.

Of rho="scale" the number is recomputed: max_i C_i max over P of |alpha|^2 / (2 SHARE), P = {0 <= alpha <= C, y'alpha = 0}.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.svc.decisions import Model
from dkl.estimators.svc.model import load_model, reported_rho
from dkl.estimators.svc.settings import SVCSettings
from dkl.runs.class_inputs import ClassInputs
from dkl.runs.comparison import Comparison, named
from dkl.runs.recomputed import Vector, expansions, least_charge, unit_traces
from dkl.runs.report import MOST_OUTPUTS
from dkl.stores.run import RunStore

AGREE = 1e-9
"""Relative to the sizes that are summed up."""
SHARE = 0.25
"""Of the margin, by which rho="scale" is a number. Runs keep the word: with another share it would have to be another."""


@dataclass(frozen=True)
class Machine:
    """The rows of a machine, their labels, bounds and alpha; its b, and the shares of the kernels in its K."""

    rows: NDArray[np.intp]
    y: Vector
    C: Vector
    alpha: Vector
    b: float
    shares: Vector


def claims(run: RunStore, inputs: ClassInputs, settings: SVCSettings, budget: int) -> Iterator[Comparison]:
    """Each machine's numbers, from kernels made block by block of at most `budget` bytes."""
    model = load_model(run)
    if not np.array_equal(inputs.classes, model.classes):
        raise StoreError("the stored classes are not those of the labels", where=f"{run.path}/config.json")
    outputs, machines = run.report()["outputs"], _machines(run, inputs, model, settings)
    if len(outputs) != len(machines):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(outputs))
    decided, rows = model.machines, inputs.rows
    scores, apart = expansions(decided.kernels, decided.coefficients, decided.points, model.support, rows, budget)
    if not apart == 0:
        raise StoreError("a stored support vector is not that row of the data", where=f"{run.path}/model")
    scales = unit_traces(decided.kernels, rows) if len(decided.kernels) > 1 else np.ones(1)
    for number, (machine, output) in enumerate(zip(machines, outputs, strict=True)):
        which = "" if len(machines) == 1 else f" of machine {number + 1}"
        claim = {name: float(output[name]) for name in ("objective", "gap")}
        claim["rho"] = reported_rho(output, settings.rho)
        found = _of_machine(machine, claim, scores[:, number][:, machine.rows], scales, settings)
        yield from named(found, which, quiet=number >= MOST_OUTPUTS)


def _machines(run: RunStore, inputs: ClassInputs, model: Model, settings: SVCSettings) -> list[Machine]:
    """The two-class problems, from the labels alone, with what is stored of each."""
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
        found.append(Machine(rows, y, bounds, y * signed[rows], b, shares))
    return found


def _of_machine(
    machine: Machine, claim: dict[str, float], scores: NDArray[np.float64], scales: Vector, settings: SVCSettings
) -> Iterator[Comparison]:
    """rho, f, the least gap over b and that at the stored b, from scores (kernels, rows)."""
    alpha, y, C = machine.alpha, machine.y, machine.C
    rho = scaled_rho(y, C) if isinstance(settings.rho, str) else settings.rho
    product, square = y * (machine.shares @ scores), float(alpha @ alpha)
    quadratic, linear, quartic = float(alpha @ product), 2 * float(alpha.sum()), square**2 / (4 * rho)
    gradient = 2 * (product - 1) + square / rho * alpha
    slack = _weights_gap(scores @ (y * alpha), machine.shares, scales)
    inner = float(alpha @ gradient)
    objective, gap = quadratic - linear + quartic, max(inner + least_charge(gradient, y, C), 0.0) + slack
    gap_at_b = inner + float(C @ np.maximum(0.0, -gradient - 2 * machine.b * y)) + slack
    outside = float(max(0.0, -alpha.min(), (alpha - C).max()))
    allowed = AGREE * (float(np.abs(alpha) @ np.abs(gradient)) + quadratic + linear + quartic)
    # A gap may be larger than it need be: the claim holds all the same. The level method has a bound and an
    # intercept of all its cuts, of which the last alpha does not tell.
    on_gap = np.inf if settings.solver == "level" else allowed
    yield Comparison("rho", claim["rho"], rho, AGREE * rho)
    yield Comparison("objective", claim["objective"], objective, allowed)
    yield Comparison("gap", claim["gap"], gap, on_gap, "above")
    yield Comparison("gap at the intercept", gap, gap_at_b, on_gap, "above")
    yield Comparison("y'alpha", 0.0, float(y @ alpha), allowed)
    yield Comparison("outside of [0, C]", 0.0, outside, AGREE * settings.C)


def scaled_rho(y: Vector, C: Vector) -> float:
    """rho="scale" of labels and bounds. |alpha|^2 is largest in P where the largest bounds are full, as far as the class of the
    smaller sum has what the other needs."""
    unit, square = C / C.max(), 0.0  # C^3 may be beyond every double
    most = min(unit[y > 0].sum(), unit[y < 0].sum())
    for side in (np.sort(unit[y > 0])[::-1], np.sort(unit[y < 0])[::-1]):
        before = np.append(0.0, np.cumsum(side)[:-1])
        square += float((np.clip(most - before, 0.0, side) ** 2).sum())
    limits = np.finfo(float)
    with np.errstate(over="ignore", under="ignore"):
        return float(np.clip(C.max() ** 3 * (square / (2 * SHARE)), limits.tiny, limits.max))


def _weights_gap(q: Vector, shares: Vector, scales: Vector) -> float:
    """max_k q_k - theta'q of kernels of equal traces; 0 of one kernel."""
    if len(q) == 1:
        return 0.0
    q, theta = scales * q, shares / scales
    return max(float(q.max() - theta @ q), 0.0)
