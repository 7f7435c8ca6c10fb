"""`dkl verify` of a classifier: coefficients, objective and gap, from the training data and the store.

Nothing here comes from the solvers: kernels are scikit-learn's, block by block in double precision. For each machine, with
labels y of -1 and 1, bounds C_i and K the sum of the kernels by their stored weights,

    0 <= alpha_i <= C_i,  y'alpha = 0,    f = -2 e'alpha + alpha'Y K Y alpha + |alpha|^4 / (4 rho)
    f - min f  <=  alpha'g + sum_i C_i max(0, -g_i - 2 b y_i),    g = 2 (Y K Y alpha - e) + |alpha|^2 alpha / rho

for every b. The bound is convex and piecewise linear in b: it is least at one of its kinks, all of which are tried here.
The stored intercept must reach that, and be the middle of the b that do. Of several kernels, each with trace n times its
share theta_k, the weights count too: max_k q_k - theta'q is added, q_k = alpha'Y K_k Y alpha. The level method's bound is of all
its cuts: verify_level.py.

Of rho="scale" the number is recomputed: max_i C_i max over P of |alpha|^2 / (2 SHARE), P = {0 <= alpha <= C, y'alpha = 0}.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.plot_rows import read_rows
from dkl.estimators.svm.decisions import ClassifierModel
from dkl.estimators.svm.model import load_model, reported_rho
from dkl.estimators.svm.settings import SVCSettings
from dkl.runs.report import MOST_OUTPUTS
from dkl.runs.supervised.inputs import ClassInputs
from dkl.runs.svm import verify_held_out, verify_level
from dkl.runs.svm.verify_machine import AGREE, BinaryProblem, scaled_rho
from dkl.runs.verify.comparison import Comparison, named
from dkl.runs.verify.recomputed import Vector, diagonals, expansions
from dkl.stores.run import RunStore


def claims(run: RunStore, inputs: ClassInputs, settings: SVCSettings, budget: int) -> Iterator[Comparison]:
    """Yield comparisons of each machine's numbers; MemoryBudgetError if `budget` holds no kernel block."""
    model = load_model(run)
    if not np.array_equal(inputs.classes, model.classes):
        raise StoreError("the stored classes are not those of the labels", where=f"{run.path}/config.json")
    outputs, machines = run.report()["outputs"], _machines(run, inputs, model, settings)
    if len(outputs) != len(machines):
        raise StoreError("model and report do not fit together", where=str(run.path), got=len(outputs))
    decided, rows = model.machines, inputs.rows
    support, coefficients, held = model.support, decided.coefficients, verify_held_out.model(run)
    if held is not None:
        support, coefficients = verify_held_out.joined(support, coefficients, held, rows.n, f"{run.path}/held_out")
    is_precomputed = decided.kernels[0].is_precomputed
    points = support if is_precomputed else read_rows(rows, support)
    if not is_precomputed and not abs(points[np.searchsorted(support, model.support)] - decided.points).max() == 0:
        raise StoreError("a stored support vector is not that row of the data", where=f"{run.path}/model")
    means = None
    if settings.solver == "level":
        means = verify_level.stored_means(run, machines)
        wider = np.zeros((len(coefficients), rows.n))
        wider[:, support] = coefficients
        support, coefficients = np.arange(rows.n), np.concatenate([wider, verify_level.signed(means, machines, rows.n)])
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
        yield from verify_held_out.claims(
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
