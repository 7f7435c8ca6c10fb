"""`dkl verify` of a classifier: coefficients, objective and gap once more, from the training data and what is stored.

Nothing here comes from the solvers: kernels are scikit-learn's, block by block in double precision. For each machine, with
labels y of -1 and 1, bounds C_i and K the sum of the kernels by their stored weights,

    0 <= alpha_i <= C_i,  y'alpha = 0,    f = -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)
    f - min f  <=  alpha'g + sum_i C_i max(0, -g_i - 2 b y_i),    g = 2 (Y K Y alpha - e) + |alpha|^2 alpha / rho

for every b. The bound is convex and piecewise linear in b: it is least at one of its kinks, all of which are tried here.
The stored intercept must reach that. Of several kernels, each with trace n times its share theta_k, the weights count too:
max_k q_k - theta'q is added, q_k = alpha'Y K_k Y alpha.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import pairwise_kernels

from dkl.blocks.row_sources import RowSource
from dkl.errors import StoreError
from dkl.estimators.svc.classifier import Model
from dkl.estimators.svc.kernels import kernel_names
from dkl.estimators.svc.model import load_model
from dkl.estimators.svc.settings import SVCSettings
from dkl.runs.comparison import Comparison
from dkl.runs.svc.inputs import SVCInputs
from dkl.stores.run import RunStore

AGREE = 1e-9
"""Relative to the sizes that are summed up."""
BLOCK_BYTES = 64_000_000
DIAGONAL_ROWS = 256
MOST_MACHINES = 8
"""Of which all numbers are printed."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Machine:
    """The rows of a machine, their labels, bounds and alpha."""

    rows: NDArray[np.intp]
    y: Vector
    C: Vector
    alpha: Vector


@dataclass(frozen=True)
class Found:
    """What a machine comes to: f, the least gap over b and that at the stored b, the sizes that rounding is relative to."""

    objective: float
    gap: float
    gap_at_intercept: float
    balance: float
    outside: float
    size: float


def claims(run: RunStore, inputs: SVCInputs, settings: SVCSettings, budget: int) -> Iterator[Comparison]:
    """Each machine's numbers, from kernels made block by block of at most `budget` bytes."""
    model = load_model(run)
    if not np.array_equal(inputs.classes, model.classes):
        raise StoreError("the stored classes are not those of the labels", where=f"{run.path}/config.json")
    reported = [{name: float(output[name]) for name in ("objective", "gap")} for output in run.report()["outputs"]]
    machines = _machines(run, inputs, model, settings)
    if len(reported) != len(machines):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(reported))
    scores = _scores(run, inputs.rows, model, settings, min(BLOCK_BYTES, budget))
    scales = _scales(inputs.rows, model, settings)
    for number, (machine, claim) in enumerate(zip(machines, reported, strict=True)):
        found = _found(machine, scores[:, number][:, machine.rows], model, number, scales, settings)
        name = "" if len(machines) == 1 else f" of machine {number + 1}"
        yield from _of_machine(name, claim, found, settings, quiet=number >= MOST_MACHINES)


def _machines(run: RunStore, inputs: SVCInputs, model: Model, settings: SVCSettings) -> list[Machine]:
    """The two-class problems, from the labels alone, with what is stored of each alpha."""
    n, classes = inputs.rows.n, inputs.classes
    masks = [inputs.labels == name for name in classes]
    weights = np.ones(n)
    if settings.class_weight == "balanced":
        for mask in masks:
            weights[mask] = n / (len(classes) * np.count_nonzero(mask))
    if len(classes) == 2:
        sides = [(masks[1], masks[0])]
    elif settings.multi_class == "ovr":
        sides = [(mask, ~mask) for mask in masks]
    else:
        sides = [(first, other) for k, first in enumerate(masks) for other in masks[k + 1 :]]
    if model.support.min() < 0 or model.support.max() >= n or len(np.unique(model.support)) != len(model.support):
        raise StoreError("support vectors that are no rows of the data", where=f"{run.path}/model")
    found = []
    for coefficients, (positive, negative) in zip(model.machines.coefficients, sides, strict=True):
        signed = np.zeros(n)
        signed[model.support] = coefficients
        rows = np.flatnonzero(positive | negative)
        if np.count_nonzero(signed) != np.count_nonzero(signed[rows]):
            raise StoreError("coefficients of rows that are in neither class", where=f"{run.path}/model")
        y = np.where(positive[rows], 1.0, -1.0)
        found.append(Machine(rows, y, settings.C * weights[rows], y * signed[rows]))
    return found


def _scores(
    run: RunStore, rows: RowSource, model: Model, settings: SVCSettings, block_bytes: int
) -> NDArray[np.float64]:
    """(kernels, machines, n): K_k Y alpha; StoreError where the stored support vectors are not the rows they are said to be."""
    support, points, n = model.support, model.machines.points, rows.n
    kernels = range(len(kernel_names(settings)))
    out = np.empty((len(kernels), len(model.machines.coefficients), n))
    step = max(1, block_bytes // (8 * 2 * max(len(support), rows.n_features)))
    for lo in range(0, n, step):
        block = rows.read(lo, min(lo + step, n))
        for k in kernels:
            out[k, :, lo : lo + step] = model.machines.coefficients @ _kernel(block, model, k, settings, points).T
        here = np.flatnonzero((support >= lo) & (support < lo + block.shape[0]))
        if here.size and settings.kernel != "precomputed":
            apart = abs(points[here] - block[support[here] - lo]).max()
            if not apart == 0:
                raise StoreError("a stored support vector is not that row of the data", where=f"{run.path}/model")
    return out


def _kernel(rows: Any, model: Model, k: int, settings: SVCSettings, points: Any) -> NDArray[np.float64]:
    """k(x, z) in double precision."""
    if settings.kernel == "precomputed":
        return np.asarray(rows[:, points], np.float64)
    given = {"gamma": model.machines.kernels[k].gamma, "degree": settings.degree, "coef0": settings.coef0}
    rows, points = rows.astype(np.float64), points.astype(np.float64)
    metric = kernel_names(settings)[k]
    return np.asarray(pairwise_kernels(rows, points, metric=metric, filter_params=True, **given), np.float64)


def _scales(rows: RowSource, model: Model, settings: SVCSettings) -> Vector:
    """Of several kernels, what gives each a mean of 1 on its diagonal."""
    count = len(kernel_names(settings))
    sums = np.zeros(count)
    for lo in range(0, rows.n if count > 1 else 0, DIAGONAL_ROWS):
        block = rows.read(lo, min(lo + DIAGONAL_ROWS, rows.n))
        for k in range(count):
            sums[k] += float(np.diagonal(_kernel(block, model, k, settings, block)).sum())
    return rows.n / sums if count > 1 else np.ones(1)


def _found(
    machine: Machine, scores: NDArray[np.float64], model: Model, number: int, scales: Vector, settings: SVCSettings
) -> Found:
    """From scores (kernels, rows)."""
    shares, b = model.machines.shares[number], float(model.machines.intercepts[number])
    alpha, y, C, rho = machine.alpha, machine.y, machine.C, settings.rho
    product, square = y * (shares @ scores), float(alpha @ alpha)
    quadratic, linear, quartic = float(alpha @ product), 2 * float(alpha.sum()), square**2 / (4 * rho)
    gradient = 2 * (product - 1) + square / rho * alpha
    slack = _weights_gap(scores @ (y * alpha), shares, scales)
    inner = float(alpha @ gradient)
    here = inner + float(C @ np.maximum(0.0, -gradient - 2 * b * y))
    return Found(
        quadratic - linear + quartic,
        max(inner + least_charge(gradient, y, C), 0.0) + slack,
        here + slack,
        float(y @ alpha),
        float(max(0.0, -alpha.min(), (alpha - C).max())),
        float(np.abs(alpha) @ np.abs(gradient)) + quadratic + linear + quartic,
    )


def least_charge(gradient: Vector, y: Vector, C: Vector) -> float:
    """The least over b of sum_i C_i max(0, -g_i - 2 b y_i), at one of the kinks b_i = -g_i y_i / 2."""
    kinks = -gradient * y / 2
    order = np.argsort(kinks)
    b, weight, positive = kinks[order], C[order], y[order] > 0
    up, down = np.where(positive, weight, 0.0), np.where(positive, 0.0, weight)
    # sum over positive rows beyond b of 2 C (kink - b), and over negative rows below b of 2 C (b - kink)
    above = np.cumsum((up * b)[::-1])[::-1] - b * np.cumsum(up[::-1])[::-1]
    below = b * np.cumsum(down) - np.cumsum(down * b)
    return float(2 * (above + below).min())


def _weights_gap(q: Vector, shares: Vector, scales: Vector) -> float:
    """max_k q_k - theta'q of kernels of equal traces; 0 of one kernel."""
    if len(q) == 1:
        return 0.0
    q, theta = scales * q, shares / scales
    return max(float(q.max() - theta @ q), 0.0)


def _of_machine(
    name: str, claim: dict[str, float], found: Found, settings: SVCSettings, *, quiet: bool
) -> Iterator[Comparison]:
    """A machine's numbers."""
    allowed = AGREE * found.size
    # A gap may be larger than it need be: the claim holds all the same. The level method has a bound and an
    # intercept of all its cuts, of which the last alpha does not tell.
    on_gap = np.inf if settings.solver == "level" else allowed
    yield Comparison("objective" + name, claim["objective"], found.objective, allowed, quiet=quiet)
    yield Comparison("gap" + name, claim["gap"], found.gap, on_gap, "above", quiet)
    yield Comparison("gap at the intercept" + name, found.gap, found.gap_at_intercept, on_gap, "above", quiet)
    yield Comparison("y'alpha" + name, 0.0, found.balance, AGREE * found.size, quiet=quiet)
    yield Comparison("outside of [0, C]" + name, 0.0, found.outside, AGREE * settings.C, quiet=quiet)
