"""What a learner supplies for its runs, and nothing else: every verb of `dkl` is written once, for all of them.

A learner has a folder here. Its `__init__` holds a `Declaration`, which imports nothing large, so that a wrong option is
reported at once; the function that it names reads the inputs, and the `RunKind` that it names does the work. To add a
learner: that folder, and a line in `dkl/runs/registry.py`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from dkl.estimators.common.settings import Settings

if TYPE_CHECKING:  # a declaration is to be had without them
    from dkl.blocks.plan import Plan
    from dkl.blocks.session import Session
    from dkl.runs.comparison import Comparison
    from dkl.runs.files import Files
    from dkl.runs.interrupt import Interrupt
    from dkl.runs.lazy import Lazy
    from dkl.runs.output import Output, Request
    from dkl.solvers.result import Result
    from dkl.solvers.watch import Watch
    from dkl.stores.run import RunStore

S = TypeVar("S", bound=Settings)
I = TypeVar("I")  # noqa: E741  # of inputs

Notes = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class InputFile:
    """A file that a fit takes. what: its content in the plural, for messages ("the pairs of this run are gone")."""

    name: str
    what: str
    help: str
    required: bool = True
    beside: str | None = None
    """The input in whose file this one may stand beside the other, where no file is named."""
    one_of: bool = False
    """Whether it is one of several, of which one is given: a run's configuration has null for the others."""


@dataclass(frozen=True)
class Declaration:
    """A learner as the command line sees it before anything large is imported.

    reader: "module:name" of the function that reads its inputs, and imports no more than that takes: whoever names a file that
    is none is told at once. kind: "module:name" of its RunKind. verb: the command that uses its result, "predict" or "transform".
    """

    task: str
    help: str
    settings: type[Settings]
    files: tuple[InputFile, ...]
    reader: str
    kind: str
    verb: str = "predict"
    remedies: dict[str, str] = field(default_factory=dict)
    """For outcomes that are not convergence: what to do about them, by the names of the command's options."""
    less_disk: str = "free space"
    """What makes a run smaller."""
    generated: str = ""
    """ "module:name" of the `MadeUp` data that `dkl sweep` takes where none are given; empty: there are none."""

    def read(self, files: Files, settings: Any, *, values: bool) -> Any:
        """The inputs, checked against each other and the settings; InputError. Without `values` shapes are enough."""
        module, _, name = self.reader.partition(":")
        return getattr(importlib.import_module(module), name)(files, settings, values=values)


@dataclass(frozen=True)
class Estimate:
    """What `dkl plan` says before the memory plan, and after it."""

    before: list[str]
    after: list[str]


@dataclass(frozen=True)
class Facts:
    """What `dkl info` says of a run.

    state: where it stands. config: lines of what it was begun with, beyond its files and settings; result: of what it
    has found, by name (empty before); table: lines; details: more for programs, as JSON keeps it.
    """

    state: str
    config: dict[str, str] = field(default_factory=dict)
    result: dict[str, str] = field(default_factory=dict)
    table: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)


class RunKind(ABC, Generic[S, I]):
    """The runs of one learner. S: its settings; I: its inputs, read and checked, with `fingerprints()`."""

    declaration: ClassVar[Declaration]
    made_from: ClassVar[tuple[str, ...]] = ()
    """Parts of a run's folder that a resumed fit reads and does not make again."""
    drawn_rows: ClassVar[int] = 0
    """Rows of the data that a picture reads, at most."""
    reads_to_draw: ClassVar[bool] = False
    """Whether a picture reads the data's file again, of which a fit has let go."""

    def read(self, files: Files, settings: S, *, values: bool) -> I:
        """By the declaration's reader."""
        found: I = self.declaration.read(files, settings, values=values)
        return found

    # -- what every learner supplies ----------------------------------------------------------------------------------

    @abstractmethod
    def plan(self, inputs: I, settings: S, session: Session) -> Plan:
        """Bytes of memory and disk; MemoryBudgetError where they do not fit. No value of the inputs is needed."""

    @abstractmethod
    def estimate(self, inputs: I, settings: S, plan: Plan, session: Session) -> Estimate:
        """Sizes and seconds, for a person who asks beforehand."""

    @abstractmethod
    def fit(
        self, run: RunStore, inputs: Lazy[I], settings: S, session: Session, watch: Watch, notes: Notes = dict
    ) -> Result:
        """From wherever the (locked) run stands to its result and report, which are stored. notes: more for the report,
        asked at the end.

        A watch that stops with `comes_back` ends in InterruptedRunError once all that is needed to resume is committed.
        """

    @abstractmethod
    def facts(self, run: RunStore) -> Facts:
        """What the run holds; StoreError for a part that is damaged."""

    @abstractmethod
    def claims(self, run: RunStore, inputs: Lazy[I], budget: int) -> Iterator[Comparison]:
        """The report's numbers beside the same recomputed from what is stored, within `budget` bytes, by code that shares
        nothing with the solvers; StoreError for what cannot be compared."""

    @abstractmethod
    def load(self, run: RunStore) -> Any:
        """The fitted estimator, from the run alone."""

    @abstractmethod
    def apply(self, run: RunStore, request: Request) -> Output:
        """What the command's verb writes for the rows of a file."""

    def picture(self, run: RunStore, inputs: Lazy[I]) -> Any:
        """A matplotlib figure of a complete run. Inputs may be gone, or have changed: what needs them is left out then."""
        return self.load(run).plot()

    # -- where a learner differs from most ----------------------------------------------------------------------------

    def adapted(self, settings: S, inputs: I) -> S:
        """The settings as these inputs allow them. A `work_dir` becomes an absolute path, if it can be written to."""
        from dkl.estimators.common.work_folder import checked_folder

        folder = getattr(settings, "work_dir", None)
        return settings if folder is None else settings.changed(work_dir=checked_folder(folder))

    def check_values(self, inputs: I, settings: S) -> None:
        """Look at all values once, when a run begins; InputError for the first that no fit can take."""

    def config(self, inputs: I) -> dict[str, Any]:
        """What else a run remembers of its inputs."""
        return {}

    def disk_bytes(self, inputs: I, settings: S, plan: Plan) -> int:
        """Of the run's folder, at most."""
        return plan.disk_bytes

    def written_by_workers(self, run: RunStore, settings: S) -> list[str]:
        """Folders that the workers of a cluster write to."""
        folder = getattr(settings, "work_dir", None)
        return [] if folder is None else [str(folder)]

    def needs_inputs(self, run: RunStore) -> bool:
        """Whether a run that is resumed reads its inputs again."""
        return True

    def goes_further(self, run: RunStore, changes: dict[str, Any]) -> bool:
        """Whether the changes ask a complete run for more than it has."""
        report = run.report()
        before = report.get("settings", {}).get("max_iter", 0)
        return report.get("outcome") == "iteration_limit" and changes.get("max_iter", 0) > before

    def interrupt(self, again: str, settings: S) -> Interrupt:
        """What answers Ctrl-C; `again` is the command that resumes."""
        from dkl.runs.interrupt import PassInterrupt

        return PassInterrupt(again)

    def is_begun(self, run: RunStore) -> bool:
        """Whether a run that ends in an error has anything worth keeping."""
        return False
