"""A learner for tests alone: kernel ridge regression of the baselines, with runs. All that a learner must supply."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from run_cases import Case, change, write_targets
from sklearn.metrics.pairwise import rbf_kernel

from dkl.baselines import KernelRidgeRegressor
from dkl.blocks.memory_plan import PROCESS_BASE, Plan
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.rules import Real, Size
from dkl.estimators.base.run_arrays import report_of, result_in
from dkl.estimators.base.settings import RESUMABLE, Settings
from dkl.plotting.figures import new_figure
from dkl.resources import peak_rss
from dkl.runs.output_files import Output
from dkl.runs.registry import Declaration, Estimate, Facts, InputFile, RunKind, targets_file
from dkl.runs.regression.kind import RegressionInputs, read_targets
from dkl.runs.report import Comparison
from dkl.runs.supervised.inputs import read_rows
from dkl.solvers.watch import Outcome, Result, Watch
from dkl.stores.registry import Arrays, StoredArray, contribute


@dataclass(frozen=True)
class RidgeSettings(Settings):
    """(y - K a)'(y - K a) + lam a'K a."""

    lam: Annotated[float, Real(above=0), "The ridge's lambda."] = 1.0
    gamma: Annotated[float, Real(above=0), "Of the Gaussian kernel."] = 1.0
    memory_limit: Annotated[int | None, Size(), "Bytes a process may use.", RESUMABLE] = None


DECLARATION = Declaration(
    task="ridge",
    help="Kernel ridge regression.",
    settings=RidgeSettings,
    files=(InputFile("data", "rows", "Rows."), targets_file("Targets.")),
    reader="ridge_kind:read",
    kind="ridge_kind:RidgeRuns",
    remedies={"iteration_limit": "raise --lam"},
)
ARRAYS = Arrays(
    StoredArray("model/a", ("support",), ("float64",), "Coefficients."),
    StoredArray("model/support", ("support",), ("int64",), "Rows with a coefficient."),
    StoredArray("model/points", ("support", "feature"), ("float64",), "Those rows."),
)
contribute("ridge", "ridge_kind")


class Ridge(KernelRidgeRegressor):
    """The estimator, with what a learner with runs has beyond a baseline."""

    def __init__(self, lam=1.0, *, gamma=1.0, callbacks=None, verbose=0, n_jobs=None):
        super().__init__(lam=lam, gamma=gamma, fit_intercept=False, n_jobs=n_jobs)
        self.callbacks, self.verbose = callbacks, verbose

    def fit(self, X, y, sample_weight=None):
        self._watched(X, y, watch_for(self.callbacks, self.verbose))
        return self

    def _watched(self, X, y, watch: Watch, plan: dict[str, Any] | None = None):
        KernelRidgeRegressor.fit(self, X, y)
        ended = watch.record({"iteration": 1, "of": 1, "stage": "solve", "objective": objective(self, X, y)})
        watch.raise_if_interrupted("stopped")
        seconds, outcome = {"total": watch.seconds}, ended or Outcome.SOLVED
        self.result_ = Result(outcome, 1, watch.history, seconds, peak_rss(), plan=plan or {}, proven=0.0, asked=0.0)
        self.n_iter_ = 1

    def plot(self, ax=None):
        (figure := new_figure()).subplots().plot(np.sort(np.abs(self.coef_)))
        return figure


def objective(model, X, y) -> float:
    K = rbf_kernel(X, gamma=model.gamma)
    a = np.zeros(len(X))
    a[model.support_] = model.coef_
    return float(np.sum((y - K @ a) ** 2) + model.lam * a @ K @ a)


def read(files, settings, *, values):
    rows = read_rows(files, settings.memory_limit, values=values, is_kernel=False)
    return RegressionInputs(files, rows, read_targets(files, rows.n))


class RidgeRuns(RunKind[RidgeSettings, RegressionInputs]):
    declaration = DECLARATION

    def plan(self, inputs, settings, session):
        items = {"the kernel matrix and its factor": 4 * 8 * inputs.rows.n**2}
        return Plan("memory", 1, 1, PROCESS_BASE, items, {}, settings.memory_limit, remedy="fewer rows").validate()

    def estimate(self, inputs, settings, plan, session):
        return Estimate([f"{inputs.rows.n} rows"], [])

    def fit(self, run, inputs, settings, session, watch, notes=dict):
        X, y = inputs().rows.read(0, inputs().rows.n), inputs().targets
        model = Ridge(settings.lam, gamma=settings.gamma, n_jobs=1)
        model._watched(X, y, watch, self.plan(inputs(), settings, session).as_dict())
        run.write_arrays("model", {"a": model.coef_, "support": model.support_, "points": model.support_vectors_})
        told = {"objective": model.result_.history[-1]["objective"], "history": model.result_.history}
        run.write_report(notes(report_of(model.result_, settings.as_dict(), **told)))
        return model.result_

    def facts(self, run):
        report = run.report()
        state = f"complete, {report['outcome']}" if report else "not started"
        result = {"objective": f"{report['objective']:.6g}"} if report else {}
        return Facts(state, {}, result, [], {"history": report.get("history", [])})

    def claims(self, run, inputs, budget):
        model, X = self.load(run), inputs().rows.read(0, inputs().rows.n)
        reported = run.report()["objective"]
        yield Comparison("objective", reported, objective(model, X, inputs().targets), 1e-9 * abs(reported))

    def load(self, run):
        settings, held = RidgeSettings(**run.config["settings"]), run.read_arrays("model")
        model = Ridge(settings.lam, gamma=settings.gamma)
        model.coef_, model.support_, model.support_vectors_ = held["a"], held["support"], held["points"]
        model._coef, model._is_flat, model.intercept_, model.gamma_ = held["a"][None], True, 0.0, settings.gamma
        model.n_features_in_, model.result_, model.n_iter_ = held["points"].shape[1], result_in(run), 1
        return model

    def apply(self, run, request):
        model = self.load(run)
        with np.load(request.data) as held:
            found = model.predict(held["X"])
        return Output(found.shape, found.dtype, "y", f"{len(found)} predictions", lambda session: iter([found]))


def fit(folder, more):
    with np.load(folder / "X.npz") as held:
        return Ridge(lam=0.1, gamma=0.5, n_jobs=1, **more).fit(held["X"], held["y"])


CASE = Case(
    write_targets,
    ("--data", "X.npz"),
    ("--lam", "0.1", "--gamma", "0.5"),
    fit,
    ("model",),
    ("coef_", "support_", "support_vectors_"),
    lambda run: change(run, "model/a"),
)
