"""A classifier's run that ends at any check, and is resumed, comes to the bytes of one that nothing disturbed."""

import random
import shutil
from dataclasses import replace

import numpy as np
import pytest
from command_runs import bytes_of
from repeats import but_for
from svc_files import rows_and_labels

from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InterruptedRunError
from dkl.estimators.base.classes import describe_classes
from dkl.estimators.svm.checkpoint import MachineCheckpointer
from dkl.estimators.svm.decisions import Training, kernels_of
from dkl.estimators.svm.plan import KernelPlace
from dkl.estimators.svm.settings import SVCSettings
from dkl.estimators.svm.store import fit_in_run
from dkl.solvers.svm import interface, working_set
from dkl.solvers.svm import working_set as svm_start
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
ALL = ("model", "history")


class Killed(BaseException):
    """Nothing is done after it, as after SIGKILL."""


def small_sets(patch):
    """Working sets as small, beside hundreds of rows, as they are beside many thousand."""
    patch.setattr(interface, "SMALLEST_IN_PARTS", 100)
    patch.setattr(working_set, "FEWEST_FIRST", 30)
    patch.setattr(working_set, "MOST_FIRST", 60)
    patch.setattr(working_set, "LEAST_OF_A_CLASS", 10)


def nowhere(patch):
    """As if no kernel matrix fitted anywhere: each product recomputes what it takes of it."""
    real = KernelPlace.plan

    def plan(self, kernels, most, sizes, *, is_whole, may_use_disk):
        found = real(self, kernels, most, sizes, is_whole=False, may_use_disk=may_use_disk)
        return replace(found, shape={**found.shape, "working_set_bytes": 0})

    patch.setattr(KernelPlace, "plan", plan)


MANY = {"tol": 1e-8, "rho": 2.0}
CASES = {
    "three classes": (150, 3, MANY, ()),
    "one against the rest": (150, 3, {**MANY, "multi_class": "ovr", "C": 100.0}, ()),
    "gradient": (120, 3, {"solver": "gradient", "tol": 1e-3}, ()),
    "level": (80, 3, {"solver": "level", "tol": 1e-2}, ()),
    "two kernels": (100, 3, {"kernel": ["rbf", "poly"], "tol": 1e-4}, ()),
    "float32": (150, 3, {**MANY, "tol": 1e-10, "dtype": "float32"}, ()),
    "at its limit": (150, 3, {**MANY, "max_iter": 15}, ()),
    "working sets": (900, 2, {"tol": 1e-8, "C": 10.0, "gamma": 0.1}, (small_sets,)),
    "working sets, float32": (900, 2, {"tol": 1e-8, "C": 10.0, "gamma": 0.1, "dtype": "float32"}, (small_sets,)),
    "working sets of several machines": (500, 3, {**MANY, "C": 10.0, "dtype": "float32"}, (small_sets,)),
    "most rows wanted": (400, 2, {"tol": 1e-8, "gamma": 10.0}, (small_sets,)),
    "recomputed": (300, 3, {**MANY, "multi_class": "ovr"}, (nowhere,)),
    "recomputed working sets": (400, 3, {**MANY, "multi_class": "ovr"}, (nowhere, small_sets)),
    "recomputed, two kernels": (80, 3, {"kernel": ["rbf", "poly"], "tol": 1e-3, "multi_class": "ovr"}, (nowhere,)),
}


FURTHER = (
    *("one against the rest", "gradient", "float32", "at its limit", "working sets", "working sets, float32"),
    *(
        "level",
        "working sets of several machines",
        "most rows wanted",
        "recomputed",
        "recomputed working sets",
        "recomputed, two kernels",
    ),
)


@pytest.fixture(params=but_for(FURTHER, CASES))
def case(request, monkeypatch):
    """(settings, training)"""
    n, classes, chosen, changes = CASES[request.param]
    for change in changes:
        change(monkeypatch)
    X, y = rows_and_labels(n, classes)
    settings, source = SVCSettings(**chosen, checkpoint_every=1), row_source(X)
    return settings, Training.of(source, np.arange(classes), y, kernels_of(settings, source), settings.C)


def begin(folder, settings, training):
    classes = training.classes
    config = {"task": "svc", "classes": describe_classes(classes), "settings": settings.as_dict()}
    return RunStore.create(folder, config)


def fit(run, settings, training, watch=None):
    return fit_in_run(run, training, settings, Session(None, threads=1), watch or Watch())


def told(run):
    report = run.report()
    return {name: report[name] for name in ("outcome", "n_iter", "outputs")}


def killed_at(patch, at):
    """At the check or end number `at` of the machines, after its commit, if there is one."""
    real, seen = MachineCheckpointer.step_done, []

    def kept(self, *, at_end):
        seen.append(at_end)
        real(self, at_end=at_end)
        if len(seen) == at:
            raise Killed

    patch.setattr(MachineCheckpointer, "step_done", kept)
    return seen


def test_killed_at_any_check(case, tmp_path, seed):
    settings, training = case
    whole = begin(tmp_path / "whole", settings, training)
    with pytest.MonkeyPatch.context() as patch:
        seen = killed_at(patch, 0)
        fit(whole, settings, training)
    count = len(seen)
    wanted = bytes_of(whole.path, *ALL)
    draw = random.Random(seed)
    for at in {1, count, draw.randint(1, count)}:
        run = begin(tmp_path / "run", settings, training)
        left = settings.changed(checkpoint_every=draw.choice([1, 3]))
        for place in (at, max(1, (count - at) // 2)):  # and once more in what is left of it
            with pytest.MonkeyPatch.context() as patch:
                killed_at(patch, place)
                try:
                    fit(run, left, training)
                except Killed:
                    continue
        if not run.is_complete:
            fit(run, left, training)
        assert bytes_of(run.path, *ALL) == wanted, at
        assert told(run) == told(whole)
        run.close()
        shutil.rmtree(run.path)
    whole.close()


class ComesBack:
    """Ends the run at its row number `at`, to be resumed."""

    comes_back = True

    def __init__(self, at, error=None):
        self.at, self.seen, self.error = at, 0, error

    def __call__(self, row):
        self.seen += 1
        if self.error is not None and self.seen == self.at:
            raise self.error
        return self.seen >= self.at


@pytest.mark.parametrize("error", but_for([None], [None, KeyboardInterrupt]))
def test_interrupted_at_any_row(case, error, tmp_path, seed):
    settings, training = case
    settings = settings.changed(checkpoint_every=1000)
    whole, counter = begin(tmp_path / "whole", settings, training), ComesBack(10**9)
    fit(whole, settings, training, Watch([counter]))
    run, draw = begin(tmp_path / "run", settings, training), random.Random(seed)
    for at in sorted(draw.randint(1, counter.seen) for _ in range(3)):
        if run.is_complete:
            break
        ending = ComesBack(max(1, at // 2), error)
        try:
            fit(run, settings, training, Watch([ending]))
        except (InterruptedRunError, KeyboardInterrupt):
            assert ending.seen >= ending.at
    if not run.is_complete:
        fit(run, settings, training)
    assert bytes_of(run.path, *ALL) == bytes_of(whole.path, *ALL)
    assert told(run) == told(whole)
    run.close()
    whole.close()


def test_a_higher_limit_goes_on_to_the_bytes_of_a_run_that_had_it(tmp_path, monkeypatch):
    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)  # which ends these before the limit
    X, y = rows_and_labels(150, 3)
    source = row_source(X)
    few, many = SVCSettings(**MANY, max_iter=10, checkpoint_every=1), SVCSettings(**MANY, checkpoint_every=1)
    training = Training.of(source, np.arange(3), y, kernels_of(few, source), few.C)
    whole, run = begin(tmp_path / "whole", many, training), begin(tmp_path / "run", few, training)
    fit(whole, many, training)
    assert fit(run, few, training).result.outcome.value == "iteration_limit"
    with pytest.MonkeyPatch.context() as patch:
        killed_at(patch, 7)
        with pytest.raises(Killed):
            fit(run, many, training)
    fit(run, many, training)
    assert bytes_of(run.path, *ALL) == bytes_of(whole.path, *ALL)
    assert told(run) == told(whole)
    run.close()
    whole.close()
