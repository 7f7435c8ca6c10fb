"""Runs of the classifier: a machine after another, whose coefficients are kept in between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from dkl.blocks.plan import Plan
from dkl.blocks.session import Session
from dkl.errors import DklError
from dkl.estimators.common import drawing
from dkl.estimators.common.classes import describe_classes
from dkl.estimators.common.work_folder import checked_folder
from dkl.estimators.svc.classifier import Training
from dkl.estimators.svc.fit import plan_machines
from dkl.estimators.svc.kernels import kernel_place, kernels_of
from dkl.estimators.svc.learner import OptimalNeighborhoodSVC
from dkl.estimators.svc.model import load_classifier
from dkl.estimators.svc.picture import draw
from dkl.estimators.svc.settings import SVCSettings
from dkl.estimators.svc.shown import shown_of
from dkl.estimators.svc.store import fit_in_run
from dkl.runs.comparison import Comparison
from dkl.runs.files import Files
from dkl.runs.kind import Estimate, Facts, Notes, RunKind
from dkl.runs.lazy import Lazy
from dkl.runs.output import Output, Request
from dkl.runs.predictions import predictions
from dkl.runs.stored import settings_of
from dkl.runs.svc import DECLARATION, estimate, inputs, verify
from dkl.runs.svc.facts import facts
from dkl.runs.svc.inputs import SVCInputs
from dkl.runs.svc.predict import predictor
from dkl.solvers.result import Result
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore


class SVCRuns(RunKind[SVCSettings, SVCInputs]):
    """ONK in a run's folder."""

    declaration = DECLARATION

    def read(self, files: Files, settings: SVCSettings, *, values: bool) -> SVCInputs:
        """See `RunKind.read`."""
        return inputs.read(files, settings, values=values)

    def check_values(self, found: SVCInputs, settings: SVCSettings) -> None:
        """Every value is finite, and the kernel is one on these rows, where there is one."""
        inputs.check(found, settings)

    def adapted(self, settings: SVCSettings, found: SVCInputs) -> SVCSettings:
        """The folder for kernel matrices as an absolute path, if it can be written to."""
        if settings.work_dir is None:
            return settings
        return replace(settings, work_dir=checked_folder(settings.work_dir))

    def config(self, found: SVCInputs) -> dict[str, Any]:
        """What else the run remembers of its inputs."""
        return {"classes": describe_classes(found.classes)}

    def plan(self, found: SVCInputs, settings: SVCSettings, session: Session) -> Plan:
        """Bytes of memory and disk; MemoryBudgetError where they do not fit."""
        place = kernel_place(found.rows, settings, session)
        return plan_machines(place, kernels_of(settings, found.rows), found.machines(settings), 1, settings)

    def disk_bytes(self, found: SVCInputs, settings: SVCSettings, plan: Plan) -> int:
        """Of the run's folder, at most."""
        return estimate.run_bytes(found, settings)

    def estimate(self, found: SVCInputs, settings: SVCSettings, plan: Plan, session: Session) -> Estimate:
        """Sizes and seconds, for `dkl plan`."""
        return estimate.estimate(found, settings, plan)

    def fit(
        self,
        run: RunStore,
        found: Lazy[SVCInputs],
        settings: SVCSettings,
        session: Session,
        watch: Watch,
        notes: Notes = dict,
    ) -> Result:
        """From wherever the run stands to its stored result and report."""
        inputs = found()
        kernels = kernels_of(settings, inputs.rows)
        training = Training.of(inputs.rows, inputs.classes, inputs.numbers, kernels, settings.C, settings.class_weight)
        return fit_in_run(run, training, settings, session, watch, notes).result

    def facts(self, run: RunStore) -> Facts:
        """What `dkl info` says of the run."""
        return facts(run)

    def claims(self, run: RunStore, found: Lazy[SVCInputs], budget: int) -> Iterator[Comparison]:
        """The report's numbers beside the same recomputed, by verify.py beside this file."""
        return verify.claims(run, found(), settings_of(run, {}), budget)

    def load(self, run: RunStore) -> OptimalNeighborhoodSVC:
        """The fitted estimator, from the run alone."""
        return load_classifier(run)

    def apply(self, run: RunStore, request: Request) -> Output:
        """What the command's verb writes for the rows of a file."""
        return predictions(predictor(run, request), self.declaration.files, request)

    def picture(self, run: RunStore, found: Lazy[SVCInputs]) -> Any:
        """The learner's picture, of the rows it learned from where these are still there."""
        X = y = None
        with suppress(DklError):  # the rows are gone, or have changed: what needs them is left out
            X, y = found().rows, found().labels
        figure = drawing.new_figure()
        draw(figure, shown_of(self.load(run), X, y, whose="rows learned from"))
        return figure
