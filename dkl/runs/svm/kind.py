"""Runs of the classifier: a machine after another, whose coefficients are kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory_plan import Place, Plan
from dkl.blocks.rows.row_blocks import LARGEST_BLOCK
from dkl.blocks.session import Session
from dkl.estimators.base.classes import read_classes
from dkl.estimators.base.plain_models import linear_bytes
from dkl.estimators.base.plot_rows import MOST_DECIDED, pool_rows
from dkl.estimators.base.run_arrays import read_history
from dkl.estimators.svm.checkpoint import Machines, open_checkpoints
from dkl.estimators.svm.decisions import Scheme, kernels_for_plans, kernels_of
from dkl.estimators.svm.model import load_model, reported_rho
from dkl.estimators.svm.plan import LEVEL_VECTORS, KernelPlace, MachineSizes, plan_machines, points_bytes
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.plotting.figures import PlotData
from dkl.runs import report
from dkl.runs.estimate import time_of_matrices
from dkl.runs.inputs.files import Lazy
from dkl.runs.output_files import OutputRequest
from dkl.runs.predictions import Predictor, kernel_needs
from dkl.runs.recomputed import BLOCK_BYTES as VERIFY_BYTES
from dkl.runs.registry import Estimate, Facts, Notes
from dkl.runs.report import Comparison
from dkl.runs.stored import settings_of
from dkl.runs.supervised.inputs import ClassInputs, check_small_matrix
from dkl.runs.supervised.kind import VOTE_BYTES, WHOSE, ClassifierRuns, class_predictor
from dkl.runs.svm import DECLARATION
from dkl.solvers.svm.interface import TwoClasses, machines
from dkl.solvers.watch import Result, Watch
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.estimators.svm.learner import OptimalNeighborhoodSVC
    from dkl.stores.seals import Json


# -- plan ---------------------------------------------------------------------------------------------------------------


STATE_VECTORS = 20
"""Most vectors in the state of a machine's solver, which is stored if its limit stopped it."""
CUTS = 500
"""Most cuts to be expected of the level method, which keeps them all."""


def _later(found: ClassInputs, sizes: MachineSizes, settings: SVCSettings) -> dict[str, int]:
    """Return bytes of `dkl predict` of as many rows and `dkl verify`, if all rows are support vectors.
    They fit under the limit of a fit."""
    rows, several = found.rows, len(kernels_for_plans(settings))
    n, d, row = rows.n, rows.n_features, max(rows.row_bytes, 8)
    points = n * row + points_bytes(n, d, is_sparse=rows.is_sparse)
    weights = (2 if several > 1 else 1) * sizes.coefficients + sizes.votes
    classes = VOTE_BYTES * len(found.classes) + found.classes.itemsize
    predicted = 2 * max(LARGEST_BLOCK, row) + 2 * ((24 if several > 1 else 16) * sizes.count + classes)
    models = 1 + (settings.holdout > 0) + 2 * (settings.solver == "level")
    scores = models * (several + 1) * sizes.coefficients + 8 * 8 * sizes.rows
    # The linear classifier that the quality is compared with is fitted again.
    pool = pool_rows(rows, settings.memory_limit)
    plain = linear_bytes(pool, d, row, len(found.classes), is_sparse=rows.is_sparse) if settings.holdout > 0 else 0
    # Dense rows are taken in double precision and about the first of them; sparse ones would fill.
    copies = (1 if rows.is_sparse else 3) * n * 8 * (row // 8 if rows.is_sparse else d)
    return {
        "predictions, later": rows.own_bytes + points + weights + predicted + 3 * LARGEST_BLOCK,
        "dkl verify, later": rows.own_bytes + n * row + copies + scores + weights + plain + 4 * VERIFY_BYTES,
    }


def _machines(found: ClassInputs, settings: SVCSettings) -> list[TwoClasses]:
    """Return the two-class problems."""
    return machines(found.numbers, len(found.classes), settings.multi_class)


# -- info ---------------------------------------------------------------------------------------------------------------


def _under_way(run: RunStore) -> str:
    _, machines = open_checkpoints(run).load(Machines)
    if machines is None:
        return "not started"
    return f"resumable; machines solved: {sum(machine.result is not None for machine in machines.values())}"


def _result(found: Json) -> dict[str, str]:
    outputs = found["outputs"]
    lines = {"support vectors": f"{found['n_support']:,}", "steps": str(found["n_iter"]), "rho": _rho(found)}
    if len(outputs) != 1:
        return lines | {"machines": f"{len(outputs)}   their largest proven relative gap {report.largest_gap(outputs)}"}
    lines |= report.certificate(outputs[0])
    shares = outputs[0]["kernel_weights"]
    if len(shares) > 1:
        lines["weights of the kernels"] = ", ".join(f"{value:.4g}" for value in shares)
    return lines


def _rho(found: Json) -> str:
    """Return the rho of all machines, and where it comes from, as text."""
    setting = found["settings"]["rho"]
    rhos = [reported_rho(output, setting) for output in found["outputs"]]
    return report.spread(rhos) + ('   by the rule "scale"' if setting == "scale" else "   given")


def _table(found: Json) -> list[str]:
    """Return a line for each machine, the worst first if they are many."""
    head = f"{'machine':<32}{'rows':>10}{'support':>10}{'objective':>18}{'gap':>12}"
    return [head, *report.worst_first(found["outputs"], _line)]


def _line(output: Json) -> str:
    first, other = output["between"]
    name = f"{first} against {'the rest' if other is None else other}"
    sizes, objective = f"{output['rows']:>10,}{output['n_support']:>10,}", f"{output['objective']:>18.10g}"
    return f"{name:<32}{sizes}{objective}{output['relative_gap']:>12.3g}"


# -- runs ---------------------------------------------------------------------------------------------------------------


class SVCRuns(ClassifierRuns[SVCSettings]):
    """Runs of ONK in a folder."""

    declaration = DECLARATION
    drawn_rows = MOST_DECIDED

    def kernels(self, found: ClassInputs, settings: SVCSettings) -> list[Kernel]:
        """Return the kernel, or those that are combined."""
        return kernels_of(settings, found.rows)

    def check_values(self, found: ClassInputs, settings: SVCSettings) -> None:
        """Check the values as for other kernels; InputError for a small matrix that is not a kernel's."""
        super().check_values(found, settings)
        if kernels_for_plans(settings)[0].is_precomputed:
            check_small_matrix(found.rows)

    def plan(self, found: ClassInputs, settings: SVCSettings, session: Session) -> Plan:
        """Return bytes of memory and disk; MemoryBudgetError if they do not fit."""
        place, pairs = KernelPlace.of(found.rows, settings, session, len(found.classes)), _machines(found, settings)
        kernels = kernels_for_plans(settings)
        made = plan_machines(place, kernels, pairs, 1, settings)
        later = _later(found, MachineSizes.of(pairs, found.rows.n, settings.solver, len(kernels)), settings)
        made = replace(made, stages=made.stages | later)
        return Place.of(session).checked(made, settings.memory_limit)

    def disk_bytes(self, found: ClassInputs, settings: SVCSettings, plan: Plan) -> int:
        """Return bytes of two states of all machines, and of models with every row a support vector."""
        pairs, rows = _machines(found, settings), found.rows
        vectors = STATE_VECTORS + (
            2 * min(settings.max_iter, CUTS) + LEVEL_VECTORS if settings.solver == "level" else 0
        )
        states = 2 * 8 * vectors * sum(len(pair.rows) for pair in pairs)
        models = 2 if settings.holdout else 1
        return states + rows.n * (models * 8 * (len(pairs) + 1) + rows.row_bytes)

    def estimate(self, found: ClassInputs, settings: SVCSettings, plan: Plan, session: Session) -> Estimate:
        """Return sizes, shown before the plan, and seconds, after it, of kernels whose width needs no values."""
        rows, pairs = found.rows, _machines(found, settings)
        sizes = f"{len(pairs)} machine(s) of {max(len(pair.rows) for pair in pairs):,} rows at most"
        before = f"{rows.n:,} rows, {rows.n_features:,} features, {len(found.classes)} classes, {sizes}"
        return Estimate([before], time_of_matrices(kernels_for_plans(settings), rows, settings.dtype, plan))

    def fit(
        self,
        run: RunStore,
        found: Lazy[ClassInputs],
        settings: SVCSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """Fit or resume the run, and store its result and report."""
        from dkl.estimators.svm.decisions import Training
        from dkl.estimators.svm.store import fit_in_run

        inputs = found()
        kernels = self.kernels(inputs, settings)
        training = Training.of(inputs.rows, inputs.classes, inputs.numbers, kernels, settings.C, settings.class_weight)
        return fit_in_run(run, training, settings, session, watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """Return state, classes, support vectors, and the machines with their gaps."""
        classes = read_classes(run).tolist()
        details = {"classes": classes, "history": read_history(run) if run.is_complete else []}
        with report.damages(run):
            result, table = (_result(run.report()), _table(run.report())) if run.is_complete else ({}, [])
        return Facts(report.state(run, _under_way), {"classes": report.in_a_line(classes)}, result, table, details)

    def claims(self, run: RunStore, found: Lazy[ClassInputs], budget: int) -> Iterator[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed by verify.py in this folder."""
        from dkl.runs.svm import verify

        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> OptimalNeighborhoodSVC:
        """Return the fitted estimator, from the run alone."""
        from dkl.estimators.svm.store import load_classifier

        return load_classifier(run)

    def predictor(self, run: RunStore, request: OutputRequest) -> Predictor:
        """Return a predictor of the stored model's labels, or of its decision values."""
        model = load_model(run)
        found, scheme = model.machines, Scheme(len(model.classes), settings_of(run, {}).multi_class)
        needs = kernel_needs(found.points, found.coefficients, len(found.kernels))
        votes = MachineSizes(len(found.coefficients), 0, 0, len(model.classes)).votes
        needs = replace(needs, model=needs.model + votes)
        of_kernel = found.kernels[0].is_precomputed
        return class_predictor(model.classes, model.n_features, found.decide, scheme, request, needs, of_kernel)

    def plot_data(self, model: OptimalNeighborhoodSVC, X: Any, y: Any) -> PlotData:
        """Return the plot of the rows that the run learned from, if they are there."""
        from dkl.estimators.svm.plot_data import plot_data

        return plot_data(model, X, y, whose=WHOSE)
