"""`dkl verify` of a classifier's accuracy on held-out rows, by the stored machines of the other rows.

The rows are drawn once more. A machine without them is feasible, and its gap at its intercept is small, over the other
rows, or over those of them that are support vectors of the fit where these include all of the machine's: it was solved
not in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.svm.decisions import Scheme
from dkl.estimators.svm.quality import STEP
from dkl.estimators.svm.settings import SVCSettings
from dkl.quality import Quality, held_out
from dkl.runs.supervised.inputs import ClassInputs
from dkl.runs.svm.verify_machine import AGREE, BinaryProblem, scaled_rho
from dkl.runs.verify.comparison import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

ROUNDINGS = 16
"""Multiple of the kernel's precision, relative to the coefficients' norm, for a sure class.
A decision value nearer to 0 may be of either class."""

Matrix = NDArray[np.float64]
Vector = NDArray[np.float64]
Rows = NDArray[np.intp]


def model(run: RunStore) -> Json | None:
    """Return the stored machines of the rows not held out; None if not stored."""
    if run.report().get("quality") is None or not (run.path / "held_out").is_dir():
        return None
    return run.read_arrays("held_out")


def joined(support: Rows, coefficients: Matrix, held: Json, n: int, where: str) -> tuple[Rows, Matrix]:
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


def claims(
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
        yield from _of_machine(machine, signed, b, is_test, scores[:, number], gap, settings, number, moved)
    truth = inputs.numbers[tests]
    weights = 1.0 / (len(np.unique(truth)) * np.bincount(truth)[truth])
    found = Scheme(len(inputs.classes), settings.multi_class).classes(decided)
    on_value = AGREE + float(weights[ambiguous].sum())
    yield Comparison(QUALITY, quality.value, float(weights @ (found == truth)), on_value)
    plain = _alternative(inputs, settings, quality.alternative, report["settings"]["memory_limit"], tests)
    yield Comparison(ALTERNATIVE, quality.alternative_value, float(weights @ (plain == truth)), AGREE)


def _of_machine(
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
