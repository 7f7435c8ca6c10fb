"""Runs of kernel regression: one pass over the rows, whose sums are kept in between, then the solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.predictions import predict_block
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import InputError, StoreError
from dkl.estimators.base.plot_rows import MOST_ROWS
from dkl.estimators.regression.columns.candidates import (
    LEAST,
    are_too_small,
    kernel_of,
    n_candidates,
    plan_fit,
    quality_bytes,
    target_means,
)
from dkl.estimators.regression.model import RegressionModel, load_model
from dkl.estimators.regression.settings import RegressionSettings
from dkl.io.paths import table_suffix
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.plotting.figures import PlotData
from dkl.runs import report
from dkl.runs.inputs.files import Files, Lazy
from dkl.runs.inputs.readers import require_room_for_targets
from dkl.runs.output_files import OutputRequest
from dkl.runs.predictions import PointSizes, Predictor, applied_bytes, kernel_needs, with_later
from dkl.runs.recomputed import BLOCK_BYTES as VERIFY_BYTES
from dkl.runs.registry import Estimate, Facts, Notes
from dkl.runs.regression import DECLARATION
from dkl.runs.report import Comparison
from dkl.runs.stored import events_of, settings_of
from dkl.runs.supervised.inputs import (
    SupervisedInputs,
    file_of_targets,
    note_targets,
    read_rows,
    target_numbers,
    where_targets,
)
from dkl.runs.supervised.kind import WHOSE, SupervisedRuns
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore
from dkl.stores.seals import MEMORY

if TYPE_CHECKING:
    from dkl.estimators.regression.learner import LowRankKernelRegressor
    from dkl.stores.seals import Json


# -- inputs -------------------------------------------------------------------------------------------------------------


class RegressionInputs(SupervisedInputs):
    """Rows with targets that are finite numbers."""

    def centered(
        self, settings: RegressionSettings, known: list[float] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (targets (n, T) less their means, those means (T,)); without an intercept the means are 0.

        known: the means that the run was started with, which its sums are of; None for runs that kept none, the plain ones.
        Raises StoreError for means that are not a finite number of each target.
        """
        y = self.targets.reshape(self.rows.n, -1)
        means = np.average(y, axis=0) if known is None else _means(known, y.shape[1])
        offsets = means if settings.fit_intercept else np.zeros(y.shape[1])
        return y - offsets, offsets


def _means(known: Any, n_targets: int) -> NDArray[np.float64]:
    """Return the means that a configuration stores as an array (T,); StoreError if damaged."""
    is_list = isinstance(known, list) and len(known) == n_targets
    if not is_list or not all(type(mean) is float and np.isfinite(mean) for mean in known):
        wanted = f"{n_targets} finite numbers"
        raise StoreError("damaged means of the targets", where="config.json", got=str(known)[:200], wanted=wanted)
    return np.array(known)


def read(files: Files, settings: RegressionSettings, *, values: bool) -> RegressionInputs:
    """Read rows and targets, or the rows' shape without `values`."""
    rows = read_rows(files, settings.memory_limit, values=values, is_kernel=settings.kernel == "precomputed")
    if settings.nu == "cv" and rows.n < 2:
        remedy = "give --nu as a number"
        raise InputError("cross-validation needs 2 rows", where=str(files["data"]), got=f"{rows.n}", remedy=remedy)
    require_room_for_targets(file_of_targets(files), settings.memory_limit)
    targets = read_targets(files, rows.n)
    note_targets(files, rows)
    return RegressionInputs(files, rows, targets)


def read_targets(files: Files, n: int) -> NDArray[np.float64]:
    """Return finite targets (n,) or (n, T), from their own file or the rows'. One column is (n,)."""
    file, where = file_of_targets(files), where_targets(files)
    found = target_numbers(files)
    if not isinstance(found, np.ndarray) or found.ndim not in (1, 2) or len(found) != n or 0 in found.shape:
        shape = getattr(found, "shape", None)
        one_more = table_suffix(file) is not None and shape is not None and shape[0] == n + 1
        remedy = "a first line of numbers is read as a row; if it holds names: --header" if one_more else None
        wanted = f"({n},) or ({n}, T)"
        raise InputError("not targets of these rows", where=where, got=f"shape {shape}", wanted=wanted, remedy=remedy)
    y = np.array(found, dtype=np.float64)
    y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    bad = np.argwhere(~(np.abs(y) <= np.sqrt(np.finfo(float).max / n) / 4))  # their squares are added up
    if len(bad):
        place = ", ".join(map(str, bad[0]))
        raise InputError("not finite, or too large to square", where=f"{where} [{place}]", got=y[tuple(bad[0])])
    if are_too_small(y):
        raise InputError("too small to square", where=where, wanted=f"|y| >= {LEAST:.2g}", remedy="scale them")
    return y


# -- plan ---------------------------------------------------------------------------------------------------------------


REPORT_BYTES, TARGET_BYTES = 20_000, 1_000
"""Bytes of a report, and of a target in it."""


def _later(rows: RowSource, count: int, n_targets: int, settings: RegressionSettings, place: Place) -> dict[str, int]:
    """Return the bytes of `dkl predict` with targets, of `dkl verify`, and of reading the report, by name."""
    n, d = rows.n, rows.n_features
    sizes = PointSizes.of(rows, count, is_precomputed=settings.kernel == "precomputed")
    points = sizes.needs(n_targets, 8 * n_targets * count)
    known = 3 * 8 * n * n_targets
    models = (2 + bool(settings.holdout)) * 8 * n_targets * count
    quality = quality_bytes(rows, count, n_targets, settings)
    moments = 8 * (3 * count * n_targets + 3 * n * n_targets)
    passing = sizes.size + 2 * 8 * count * d + 3 * VERIFY_BYTES
    return {
        "dkl predict": applied_bytes(points, rows, place, known),
        "dkl verify": rows.own_bytes + models + moments + max(passing, quality),
        "reading the report": MEMORY * (REPORT_BYTES + TARGET_BYTES * n_targets),
    }


# -- info ---------------------------------------------------------------------------------------------------------------


MOST_NUS = 9
"""Lines of the table of nu."""


def _under_way(run: RunStore) -> str:
    commits = events_of(run, "commit")
    if commits and any((run.path / "sums").glob("sums-*")):
        last = commits[-1]
        panels = "" if last.get("panels", 1) == 1 else f" of pass {last.get('panel', 0) + 1} of {last['panels']}"
        return f"resumable at {last.get('done')} of {last.get('of')} groups of rows{panels}"
    return "not started" if not (run.path / "candidates").is_dir() else "not started; the columns are chosen"


def history(run: RunStore) -> list[Json]:
    """Return a row for each check of the solver; [] for runs that stored none."""
    rows = run.report().get("history", []) if run.is_complete else []
    return rows if isinstance(rows, list) else []


def _result(found: Json) -> dict[str, str]:
    outputs = found["outputs"]
    how = "by cross-validation" if found["settings"]["nu"] == "cv" else "given"
    lines = {
        "nu": f"{found['nu']:.6g}   {how}; from {found['nu_max']:.6g} on all weights are zero",
        "columns": f"{found['n_columns']:,}, of which active {found['n_active']:,}",
        "steps": str(found["n_iter"]),
    }
    for number, output in enumerate(outputs[: report.MOST_OUTPUTS]):
        lines |= report.certificate(output, "" if len(outputs) == 1 else f" of target {number}")
    if len(outputs) > report.MOST_OUTPUTS:
        lines["largest relative gap"] = report.largest_gap(outputs)
    refit = found.get("refit")
    if refit is not None:
        whose = "all" if refit["columns"] == "all" else "the lasso's"
        gap = report.largest_gap(refit["outputs"])
        lines["refit"] = f"ridge on {whose} columns, lambda {refit['lam']:.4g}; proven relative gap {gap}"
    return lines


def cv_table(run: RunStore) -> list[Json]:
    """Return for each nu mean squared held-out error, its spread over folds, active columns; [] without."""
    found = run.read_arrays("model")
    if "cv_errors" not in found:
        return []
    try:
        nus, errors, active = found["cv_nus"], found["cv_errors"], found["cv_active"]
        return [_row(float(nu), errors[k], active[k], run.report()["nu"]) for k, nu in enumerate(nus)]
    except (KeyError, IndexError, ValueError, OverflowError) as error:
        raise StoreError("damaged errors of cross-validation", where=f"{run.path}/model", got=error) from error


def _row(nu: float, errors: NDArray[np.float64], active: NDArray[np.int64], chosen: float) -> Json:
    """Return a row of the table of nu, from its errors and active columns (K, T)."""
    return {
        "nu": nu,
        "error": errors.mean(axis=0).tolist(),
        "spread": errors.std(axis=0, ddof=1).tolist(),
        "n_active": float(active.mean()),
        "chosen": nu == chosen,
    }


def _describe_cv(table: list[Json]) -> list[str]:
    """Return the table of nu in brief: both ends, the chosen nu and its neighbors."""
    place = next((k for k, row in enumerate(table) if row["chosen"]), 0)
    near = {k for k in range(place - 2, place + 3) if 0 <= k < len(table)}
    spread = np.linspace(0, len(table) - 1, max(2, MOST_NUS - len(near))).astype(int).tolist()
    targets = len(table[0]["error"])
    head = "mean squared error on rows held out" + (", mean of targets" if targets > 1 else "")
    lines = [f"{head}: {len(table)} values of nu", f"{'nu':>14}{'error':>14}{'+-':>12}{'active':>10}"]
    for k in sorted(near | set(spread)):
        row = table[k]
        mark = "   chosen" if row["chosen"] else ""
        error, plus = np.mean(row["error"]), np.mean(row["spread"])
        lines.append(f"{row['nu']:>14.5g}{error:>14.6g}{plus:>12.3g}{row['n_active']:>10.1f}{mark}")
    return lines


# -- predict ------------------------------------------------------------------------------------------------------------


def _features_wanted(run: RunStore, model: RegressionModel, found: int) -> int:
    if model.n_features >= 0:
        return model.n_features
    # Rows of a precomputed kernel: as many numbers as there were rows.
    wanted = int(run.config.get("inputs", {}).get("data", {}).get("shape", [0, found])[1])
    return wanted if found > max(model.points, default=0) else int(max(model.points)) + 1


@dataclass
class RegressionScore:
    """Errors of predictions against targets (n, T), summed block by block."""

    targets: NDArray[np.float64]
    seen: int = 0
    squares: NDArray[np.float64] = field(default_factory=lambda: np.zeros(1))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the targets, three times: their spread takes two more copies."""
        return 3 * self.targets.nbytes

    @classmethod
    def of(cls, files: Files, n: int, n_targets: int) -> RegressionScore:
        """Return a score with the targets in the files; InputError for another number of them."""
        y = read_targets(files, n).reshape(n, -1)
        if y.shape[1] != n_targets:
            where = where_targets(files)
            raise InputError("another number of targets", where=where, got=y.shape[1], wanted=n_targets)
        return cls(y, squares=np.zeros(n_targets))

    def see(self, block: NDArray) -> None:
        """Add the squared errors of the next predictions (m,) or (m, T)."""
        known = self.targets[self.seen : self.seen + len(block)]
        self.squares += ((known - block.reshape(len(block), -1)) ** 2).sum(axis=0)
        self.seen += len(block)

    def describe(self) -> str:
        """Return R2 and mean squared error of each target, in lines."""
        spread = ((self.targets - self.targets.mean(axis=0)) ** 2).sum(axis=0)
        lines = []
        for number, (error, total) in enumerate(zip(self.squares, spread, strict=True)):
            name = "" if len(self.squares) == 1 else f"target {number}: "
            r2 = f"{1 - error / total:.6g}" if total > 0 else "none, the targets are constant"
            lines.append(f"  {name}R2 {r2}, mean squared error {error / self.seen:.8g}")
        return "\n".join(lines)


# -- runs ---------------------------------------------------------------------------------------------------------------


class RegressionRuns(SupervisedRuns[RegressionSettings, RegressionInputs]):
    """Runs of SLKL in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_ROWS
    made_from = ("candidates",)

    def kernels(self, found: RegressionInputs, settings: RegressionSettings) -> list[Kernel]:
        """Return the kernel of the columns."""
        return [kernel_of(settings)]

    def adapted(self, settings: RegressionSettings, found: RegressionInputs) -> RegressionSettings:
        """Return the settings with no more folds than rows."""
        return replace(settings, cv=min(settings.cv, found.rows.n)) if settings.nu == "cv" else settings

    def plan(self, found: RegressionInputs, settings: RegressionSettings, session: Session) -> Plan:
        """Return bytes of memory and disk; MemoryBudgetError if they do not fit."""
        count = n_candidates(found.rows.n, settings, None)
        n_targets = 1 if found.targets.ndim == 1 else found.targets.shape[1]
        place = Place.of(session)
        made = plan_fit(found.rows, count, n_targets, settings, place, has_folder=True)
        return with_later(made, place, settings.memory_limit, _later(found.rows, count, n_targets, settings, place))

    def estimate(self, found: RegressionInputs, settings: RegressionSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for `dkl plan`."""
        from dkl.runs.regression.estimate import estimate  # by the kernels and sums themselves

        return estimate(found, settings, plan, session)

    def config(self, found: RegressionInputs) -> Json:
        """Return the means of the targets, as the run's configuration stores them."""
        return {"target_means": target_means(found.targets.reshape(found.rows.n, -1)).tolist()}

    def fit(
        self,
        run: RunStore,
        found: Lazy[RegressionInputs],
        settings: RegressionSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.regression.store import fit_in_run

        y, offsets = found().centered(settings, run.config.get("target_means"))
        return fit_in_run(run, found().rows, y, None, offsets, settings, session, watch=watch, notes=notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return state, nu, columns, certificates, and errors of cross-validation."""
        cv = cv_table(run) if run.is_complete else []
        with report.damages(run):
            result = _result(run.report()) if run.is_complete else {}
        table = _describe_cv(cv) if cv else []
        return Facts(report.state(run, _under_way), {}, result, table, {"cv": cv, "history": history(run)})

    def claims(self, run: RunStore, found: Lazy[RegressionInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.regression import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> LowRankKernelRegressor:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.regression.load import load_regressor

        return load_regressor(run)

    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return a predictor by the stored model; InputError if decision values are asked for."""
        if request.decision:
            raise InputError("a regression has no decision values", where="--decision", remedy="leave it out")
        model = load_model(run)
        count = len(model.weights)
        targets = run.config.get("inputs", {}).get("targets", {}).get("shape", [0])
        is_flat = len(targets) == 1 and count == 1

        def blocks(rows: RowBlocks, some: set[int]) -> NDArray[np.float64]:
            parts = rows.map(predict_block, model.kernel, model.points, model.weights, model.intercepts, only=some)
            found = np.concatenate(parts)
            return found[:, 0] if is_flat else found

        return Predictor(
            () if is_flat else (count,),
            np.float64,
            lambda found: _features_wanted(run, model, found),
            blocks,
            lambda files, n: RegressionScore.of(files, n, count),
            f"predictions of {count} target(s)",
            kernel_needs(model.points, model.weights),
            of_kernel=model.kernel.is_precomputed,
        )

    def plot_data(self, model: LowRankKernelRegressor, X: Any, y: Any) -> PlotData:
        """Return the plot of the rows that the run learned from, if they are there."""
        from dkl.estimators.regression.plot_data import plot_data

        return plot_data(model, X, y, whose=WHOSE)
