"""Interface that a learner supplies for its runs, and the learners that have runs; each verb of `dkl` is written once, for all of them.

A learner has a folder here. Its `__init__` holds a `Declaration`, which imports nothing large, so that a wrong option is
reported at once; the function that it names reads the inputs, and the `RunKind` plans and does the work. CONTRIBUTING.md has
the steps to add a learner. Nothing of a learner is imported before its name is asked for.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dkl.errors import InputError, StoreError
from dkl.estimators.base.settings import Settings
from dkl.stores.registry import OLDEST_TASK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dkl.blocks.memory_plan import Plan
    from dkl.blocks.session import Session
    from dkl.plotting.canvas import Picture
    from dkl.runs.inputs.files import Files, Lazy
    from dkl.runs.interrupt import Interrupt
    from dkl.runs.output_files import Output, OutputRequest
    from dkl.runs.report import Comparison
    from dkl.solvers.watch import Result, Watch
    from dkl.stores.run import RunStore
    from dkl.stores.seals import Json

Notes = Callable[[dict[str, Any]], dict[str, Any]]
"""Function from a report to the report with what the verb adds to it."""


@dataclass(frozen=True)
class InputFile:
    """A file that a fit takes. what: its content in the plural, for messages ("the pairs of this run are gone")."""

    name: str
    what: str
    help: str
    required: bool = True
    beside: str | None = None
    """Name of the input whose file may also hold this one, if no file is named."""
    one_of: bool = False
    """True if exactly one of several inputs is given: a run's configuration has null for the others."""
    is_swept: bool = True
    """False if `dkl sweep` does not take it: it cannot be cut to fewer rows."""


@dataclass(frozen=True)
class Declaration:
    """A learner as the command line sees it before anything large is imported.

    reader, kind: "module:name" of the function that reads its inputs, and of its `RunKind`. verb: the command that uses its
    result, "predict" or "transform".
    """

    task: str
    help: str
    settings: type[Settings]
    files: tuple[InputFile, ...]
    reader: str
    kind: str
    verb: str = "predict"
    remedies: dict[str, str] = field(default_factory=dict)
    """Remedies by outcome, other than convergence, in terms of the command's options."""
    less_disk: str = "free space"
    """Remedy that makes a run smaller on the disk."""
    generated: str = ""
    """Address "module:name" of the `MadeUp` data that `dkl sweep` takes without files; empty: no data."""

    def read(self, files: Files, settings: Settings, *, values: bool) -> Any:
        """Return the inputs, checked with the settings, or shapes alone without `values`; InputError."""
        return _named(self.reader)(files, settings, values=values)

    def runs(self) -> RunKind:
        """Return the learner's `RunKind`, which does the work."""
        made: RunKind = _named(self.kind)()
        return made


def _named(name: str) -> Any:
    """Import and return the object that "module:name" names."""
    module, _, of_module = name.partition(":")
    return getattr(importlib.import_module(module), of_module)


@dataclass(frozen=True)
class Facts:
    """Facts of a run that `dkl info` shows.

    state: as text. config: lines on what it was started with, beyond its files and settings; result: lines on its
    result, by name (empty before); table: lines; details: more for programs, as JSON.
    """

    state: str
    config: dict[str, str] = field(default_factory=dict)
    result: dict[str, str] = field(default_factory=dict)
    table: list[str] = field(default_factory=list)
    details: Json = field(default_factory=dict)


S = TypeVar("S", bound=Settings)
I = TypeVar("I")  # noqa: E741  # of inputs


@dataclass(frozen=True)
class Estimate:
    """Lines of `dkl plan` before the memory plan, and after it."""

    before: list[str]
    after: list[str]


class RunKind(ABC, Generic[S, I]):
    """Base of the runs of one learner.

    S: its settings; I: its inputs, read and checked, with `fingerprints()`. Its module imports neither Numba nor scikit-learn:
    a run that does not fit is refused within a second. A verb imports what it needs where it begins: who asks what a run holds,
    or applies it to what it is not for, does not wait for a solver, and for Numba and scikit-learn with it.
    """

    declaration: ClassVar[Declaration]
    made_from: ClassVar[tuple[str, ...]] = ()
    """Parts of a run's folder that a resumed fit reads and does not recompute."""
    drawn_rows: ClassVar[int] = 0
    """Rows of the data that a picture reads, at most."""
    reads_to_draw: ClassVar[bool] = False
    """True if a picture reads the data's file again, which a fit has released."""

    def read(self, files: Files, settings: S, *, values: bool) -> I:
        """Read the inputs by the declaration's reader."""
        found: I = self.declaration.read(files, settings, values=values)
        return found

    # -- what every learner supplies ----------------------------------------------------------------------------------

    @abstractmethod
    def plan(self, inputs: I, settings: S, session: Session) -> Plan:
        """Return bytes of memory and disk, without values of the inputs; MemoryBudgetError if they do not fit."""

    @abstractmethod
    def estimate(self, inputs: I, settings: S, plan: Plan, session: Session) -> Estimate:
        """Return sizes and seconds, for a person who plans a run."""

    @abstractmethod
    def fit(
        self, run: RunStore, inputs: Lazy[I], settings: S, session: Session, watch: Watch, notes: Notes = dict
    ) -> Result:
        """Fit or resume the (locked) run, and store its result and report.

        notes: called with the report at the end.

        A watch that stops with `comes_back` ends in InterruptedRunError once all that is needed to resume is committed.
        """

    @abstractmethod
    def facts(self, run: RunStore) -> Facts:
        """Return the facts of the run; StoreError for a damaged part."""

    @abstractmethod
    def claims(self, run: RunStore, inputs: Lazy[I], budget: int) -> Iterator[Comparison]:
        """Yield comparisons of the report's numbers with the same recomputed from what is stored.
        `budget`: bytes. The code shares nothing with the solvers. StoreError for what cannot be compared."""

    @abstractmethod
    def load(self, run: RunStore) -> Any:
        """Return the fitted estimator, from the run alone."""

    @abstractmethod
    def apply(self, run: RunStore, request: OutputRequest) -> Output:
        """Return the output of the command's verb for the rows of a file."""

    def coordinates(self, run: RunStore) -> NDArray | None:
        """Return the coordinates (n, r) of the rows learned from, in memory or on disk; None if not stored."""
        return None

    def picture(self, run: RunStore, inputs: Lazy[I]) -> Picture:
        """Return a figure of a complete run, without what needs inputs that are gone or have changed."""
        return self.load(run).plot()

    # -- where a learner differs from most ----------------------------------------------------------------------------

    def config(self, inputs: I) -> Json:
        """Return what else the run's configuration stores of its inputs."""
        return {}

    def remedies(self, run: RunStore) -> dict[str, str]:
        """Return the remedies by outcome, other than convergence, in terms of the command's options."""
        return self.declaration.remedies

    def written_by_workers(self, run: RunStore, settings: S) -> list[str]:
        """Return the folders that the workers of a cluster write to."""
        folder = getattr(settings, "work_dir", None)
        return [] if folder is None else [str(folder)]

    def needs_inputs(self, run: RunStore) -> bool:
        """Return whether a resumed run reads its inputs again."""
        return True

    def goes_further(self, run: RunStore, changes: Json) -> bool:
        """Return whether the changes ask a complete run for more than it has."""
        report = run.report()
        before = report.get("settings", {}).get("max_iter", 0)
        # Only the limit's end may go further by a higher one; other ends would repeat themselves.
        return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > before

    def interrupt(self, again: str, settings: S) -> Interrupt:
        """Return the handler of Ctrl-C and SIGTERM; `again` is the command that resumes."""
        from dkl.runs.interrupt import PassInterrupt

        return PassInterrupt(again)

    def has_progress(self, run: RunStore) -> bool:
        """Return whether a run that ends in an error holds anything worth keeping."""
        return False

    def adapted(self, settings: S, inputs: I) -> S:
        """Return the settings as these inputs allow them; a `work_dir` is made absolute, and must be writable."""
        from dkl.estimators.base.work_folder import checked_folder

        folder = getattr(settings, "work_dir", None)
        return settings if folder is None else settings.changed(work_dir=checked_folder(folder))

    def check_values(self, inputs: I, settings: S) -> None:
        """Look at all values once, when a run begins; InputError for the first that no fit can take."""

    def disk_bytes(self, inputs: I, settings: S, plan: Plan) -> int:
        """Return an upper bound on the bytes of the run's folder."""
        return plan.disk_bytes


# -- files that several learners take -----------------------------------------------------------------------------------


ROW_FORMATS = ".npz (key X), .npy, zarr, .csv, .tsv or svmlight, text also as .gz"
TARGET_FORMATS = ".npz (key y), .npy, zarr, .csv, .tsv or svmlight, text also as .gz"
PAIR_FORMATS = ".csv or .tsv of i,j,must-link|cannot-link{more}, also as .gz, or .npz"
CONSTRAINT_FORMATS = ".csv or .tsv of constraint,i,j,value, both halves, also as .gz, .npy, or .npz"
TRIPLET_FORMATS = ".npz, .npy, .csv or .tsv, text also as .gz"


def rows_file(what: str = "rows", more: str = "") -> InputFile:
    """Return the declaration of the rows, which are called `what`; more: what else they may be."""
    return InputFile("data", what, f"{what.capitalize()}: {ROW_FORMATS}{more}.")


def targets_file(help: str) -> InputFile:
    """Return the declaration of targets or labels, which may also be in the rows' file as `y`."""
    return InputFile(
        "targets", "targets", f"{help}: {TARGET_FORMATS} [y beside the rows].", required=False, beside="data"
    )


def pairs_file(
    before: str = "Pairs", *, weights: bool = True, required: bool = True, one_of: bool = False
) -> InputFile:
    """Return the declaration of pairs, with weights where the learner takes these."""
    formats = PAIR_FORMATS.format(more="[,weight]" if weights else "")
    return InputFile("pairs", "pairs", f"{before}: {formats}.", required=required, one_of=one_of)


TASKS = {
    "pairwise": "dkl.runs.pairwise",
    "regression": "dkl.runs.regression",
    "svc": "dkl.runs.svm",
    "logdet": "dkl.runs.logdet",
    "metric": "dkl.runs.logdet.metric",
    "laplacian": "dkl.runs.qsdp.laplacian",
    "mvu": "dkl.runs.qsdp.mvu",
}
"""The module of each task's `DECLARATION`."""


def declaration(task: str) -> Declaration:
    """Return the declaration of a task; KeyError for one that is not registered."""
    found: Declaration = importlib.import_module(TASKS[task]).DECLARATION
    return found


def kind(task: str) -> RunKind:
    """Return the `RunKind` that plans and does a task's work."""
    return declaration(task).runs()


def task_of(run: RunStore) -> str:
    """Return the task of a run; StoreError if unknown. The oldest runs, all of pairs, do not store it."""
    task = run.config.get("task", OLDEST_TASK)
    if not isinstance(task, str) or task not in TASKS:
        wanted = " or ".join(TASKS)
        raise StoreError("a run of a kind that is not understood", where=run.name, got=task, wanted=wanted)
    return task


def require_verb(run: RunStore, verb: str) -> str:
    """Return the run's task if `dkl <verb>` is for it; else raise InputError with the verb that is."""
    task = task_of(run)
    if declaration(task).verb != verb:
        wanted = " or ".join(f"`dkl fit {name}`" for name in TASKS if declaration(name).verb == verb)
        remedy = f"use `dkl {declaration(task).verb}` for it"
        raise InputError(f"not a run of {wanted}", where=run.name, got=task, remedy=remedy)
    return task


@contextmanager
def registered(task: str, module: str) -> Iterator[None]:
    """Register a learner of another package while the context is entered."""
    TASKS[task] = module
    try:
        yield
    finally:
        del TASKS[task]
