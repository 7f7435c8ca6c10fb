"""The held-out accuracy of a classifier, next to that of a linear classifier.

A tenth of the rows of each class is held out. After the fit, while its kernel matrices are there, each machine is solved again on the
other rows, from its final coefficients, to a loose gap. A matrix in memory is used as it is; otherwise only that of the support vectors
is computed. Several kernels keep their final weights. The fit itself is not changed.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_operator import MemoryKernel
from dkl.blocks.rows.predictions import rows_to_predict
from dkl.blocks.session import Session
from dkl.estimators.base.plain_models import linear_predictions
from dkl.estimators.base.plot_rows import pool_rows, read_rows, some_rows
from dkl.estimators.svm.decisions import Machines, Scheme, Training
from dkl.estimators.svm.fit import FittedMachine
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_operators import HeldKernel, RowsOf
from dkl.problems.svm.problem import NeighborhoodSVM, rho_of
from dkl.quality import Quality, held_out, paired_error, too_few
from dkl.resources import one_blas_thread
from dkl.solvers.svm.gradient import Accelerated
from dkl.solvers.svm.interface import machines
from dkl.solvers.svm.kernel_combination import CombinedKernel
from dkl.solvers.svm.working_set import MAX_ROWS, pair_start
from dkl.solvers.watch import Result, Watch

Rows = NDArray[np.intp]

STEP = 4
"""Key of the random stream that draws the held-out rows; the seed is 0, as a fit has none."""
TOL = 1e-2
"""Relative gap of the machines without the held-out rows."""
START = 1e-3
"""Share of that gap to which a start by pairs is solved. That takes few rounds; from a looser start the number is off by a row or two."""
ADVICE = "try standardized features, another gamma, kernel or C"


class HeldOutRows:
    """The rows that are held out of a fit, and its machines without them."""

    def __init__(self, training: Training, settings: SVCSettings, watch: Watch) -> None:
        self.training, self.settings, self.watch = training, settings, watch
        # Rows of weight 0 are in no machine: to hold them out would measure nothing.
        strata = np.where(training.bounds > 0, training.numbers, -1)
        self.rows = held_out(training.source.n, settings.holdout, 0, STEP, strata)
        self.machines: list[FittedMachine] = []
        self.arrays: dict[str, NDArray] = {}
        """Arrays that a run keeps of them: rows with a coefficient (s,), coefficients (M, s), intercepts (M,) and gaps (M,)."""
        self.seconds = 0.0

    def solve(self, whole: list[Any], found: list[FittedMachine]) -> None:
        """Solve the machines `found` again without the held-out rows. whole: the kernel matrices of all rows."""
        if len(self.rows) and self.watch.outcome is None:
            start = time.perf_counter()
            training = self.training
            pairs = machines(training.numbers, len(training.classes), self.settings.multi_class)
            positive = (pair.between[0] for pair in pairs)
            self.machines = [self._solved(whole, *machine) for machine in zip(found, positive, strict=True)]
            self.seconds = time.perf_counter() - start

    def _solved(self, whole: list[Any], machine: FittedMachine, positive: int) -> FittedMachine:
        is_left = ~np.isin(machine.rows, self.rows, assume_unique=True)
        y = np.where(self.training.numbers[machine.rows] == positive, 1.0, -1.0)
        bounds, alpha = self.training.bounds[machine.rows], y * machine.coefficients
        rho = rho_of(self.settings.rho, bounds[is_left], y[is_left])
        is_held = all(isinstance(part, MemoryKernel) for part in whole)
        # Where columns are computed again, rows without a coefficient are taken to have none without the held-out rows either.
        chosen = is_left if is_held else is_left & (alpha > 0)
        # A machine needs both classes.
        if not ((y[chosen] > 0).any() and (y[chosen] < 0).any()):
            chosen = is_left
        rows = machine.rows[chosen]
        is_view = is_held and len(machine.rows) == self.training.source.n  # a copy may not fit
        if is_held and len(rows) <= MAX_ROWS:
            parts: list[Any] = [HeldKernel(part.block(rows)) for part in whole]
        else:
            parts = [RowsOf(part, rows) if is_view else part.part(rows) for part in whole]
        kernel = parts[0] if len(parts) == 1 else CombinedKernel(parts, machine.shares)
        problem = NeighborhoodSVM(kernel, y[chosen], bounds[chosen], rho)
        tol, max_iter = max(TOL, self.settings.tol), self.settings.max_iter
        # From the fit's own coefficients, which a tenth fewer rows move little.
        start, _ = pair_start(problem, alpha[chosen], START * tol, max_iter)
        solution = Accelerated(tol, max_iter).solve(problem, start, watch=self.watch.quiet())
        return replace(machine, rows=rows, coefficients=problem.y * solution.point.alpha, solution=solution)

    def quality(self) -> Quality | None:
        """Return balanced accuracy, and accuracy, on the held-out rows; None without such rows or if stopped."""
        training, rows = self.training, self.rows
        if not self.machines or self.watch.outcome is not None:
            return None
        given, of_rows = read_rows(training.source, rows), training.numbers[rows]
        scheme = Scheme(len(training.classes), self.settings.multi_class)
        decided = self._decided().decide(rows_to_predict(given, Session(None, threads=1), None))
        is_right = scheme.classes(decided) == of_rows
        name, plain = self._alternative(given)
        plain_is_right = plain == of_rows
        counts = np.bincount(of_rows)
        # Each class counts the same, however many rows it has: accuracy alone says little where one class is most of them.
        weights = 1.0 / (np.count_nonzero(counts) * counts[of_rows])
        return Quality(
            "held-out balanced accuracy",
            float(weights @ is_right),
            len(rows),
            f"{len(rows):,} of {training.source.n:,} rows",
            name,
            float(weights @ plain_is_right),
            paired_error(is_right.astype(float) - plain_is_right, weights),
            {"accuracy": float(is_right.mean()), f"accuracy of {name}": float(plain_is_right.mean())},
            ADVICE,
        )

    def _decided(self) -> Machines:
        """Return the machines without the held-out rows, ready to predict."""
        training, source = self.training, self.training.source
        coefficients = np.zeros((len(self.machines), source.n))
        for row, machine in zip(coefficients, self.machines, strict=True):
            row[machine.rows] = machine.coefficients
        support = np.flatnonzero((coefficients != 0).any(axis=0))
        points = support if training.kernels[0].is_precomputed else read_rows(source, support)
        shares = np.array([machine.shares for machine in self.machines])
        intercepts = np.array([machine.solution.point.intercept for machine in self.machines])
        gaps = np.array([machine.solution.point.gap for machine in self.machines])
        coefficients = coefficients[:, support]
        self.arrays = {"support": support, "coefficients": coefficients, "intercepts": intercepts, "gaps": gaps}
        return Machines(training.kernels, shares, points, coefficients, intercepts)

    def _alternative(self, given: object) -> tuple[str, Rows]:
        """Return (name, class numbers of the held-out rows) of the alternative: linear, or the largest class.

        A precomputed kernel has no features to be linear in.
        """
        training = self.training
        sizes = np.bincount(training.numbers, weights=training.bounds)
        if training.kernels[0].is_precomputed:
            return "the largest class", np.full(len(self.rows), int(sizes.argmax()))
        pool = some_rows(training.source, pool_rows(training.source, self.settings.memory_limit))
        pool = np.setdiff1d(pool[training.bounds[pool] > 0], self.rows)
        if len(np.unique(training.numbers[pool])) < 2:
            return "the largest class", np.full(len(self.rows), int(sizes.argmax()))
        X, weights = read_rows(training.source, pool), training.bounds[pool] / training.bounds.max()
        return "a linear classifier", linear_predictions(X, training.numbers[pool], weights, given, of_classes=True)


@one_blas_thread()  # on few rows many threads would wait for each other
def with_quality(result: Result, held: HeldOutRows) -> Result:
    """Return the result with its quality, and the seconds that it took."""
    start = time.perf_counter()
    quality = held.quality()
    is_wanted = held.settings.holdout > 0 and held.watch.outcome is None
    reason = too_few(held.training.source.n, "rows") if is_wanted else ""
    return result.with_quality(quality, held.seconds + time.perf_counter() - start, reason, held.watch.seconds)
