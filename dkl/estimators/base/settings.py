"""Declaration of each learner's settings: allowed values, help and default, in one line a setting.

    @dataclass(frozen=True)
    class RidgeSettings(Settings):
        alpha: Annotated[float, Real(above=0), "Weight of the penalty."] = 1.0

From it come the estimator's check, the option of `dkl fit` with its help and default, and the check of what a run's
folder holds. Markers after the help say where a setting differs from one place to another: RESUMABLE, NO_OPTION,
`InPython`, `Flagged`, `RecordedAs`.

Settings modules import nothing large, so that a wrong option is reported before numpy and Dask are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace
from numbers import Integral
from numbers import Real as RealNumber
from typing import Annotated, Any, ClassVar, Self, TypeVar, get_type_hints

from dkl.errors import InputError
from dkl.estimators.base.rules import (
    CONTRADICTIONS,
    DICTIONARY,
    KERNEL,
    KERNEL_FUNCTION,
    Either,
    Exactly,
    Flag,
    Instance,
    Integer,
    NotGiven,
    Real,
    Rule,
    Size,
    Word,
)
from dkl.stores.registry import StoredArray


@dataclass(frozen=True)
class Marker:
    """Marker of where a setting is found."""

    name: str


RESUMABLE = Marker("resumable")
"""Marker of settings that `dkl resume` may change: how far a run goes or how, not what it computes."""
NO_OPTION = Marker("no option")
"""Marker of settings without an option at the command line."""


@dataclass(frozen=True)
class InPython:
    """Marker with the estimator's wider rule, for what a run's folder cannot hold (functions, arrays)."""

    rule: Rule


@dataclass(frozen=True)
class Flagged:
    """Marker of a setting that is on by default: the option that turns it off, with its help."""

    option: str
    help: str


@dataclass(frozen=True)
class RecordedAs:
    """Marker with the value that a run's folder stores in place of a Python value that no folder can hold."""

    value: object


@dataclass(frozen=True)
class SettingDeclaration:
    """Declaration of a setting: its rule, help and default; whether it has an option or may be resumed.

    in_python: the estimator's rule. off: the option that turns a flag off which is on by default. recorded: values beyond the rule that
    a run's folder may hold.
    """

    name: str
    rule: Rule
    help: str
    default: object
    in_python: Rule
    has_option: bool
    resumable: bool
    off: Flagged | None
    recorded: tuple[object, ...]

    @property
    def flag(self) -> str:
        """Return the option's name at the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Settings:
    """Base of a learner's settings, which with its data decide its result; stored in a run's folder.

    seed: of all that is random; `random_state` in Python.
    """

    in_python: ClassVar[Mapping[str, tuple[object, Rule]]] = {}
    """Parameters of the estimator alone: name to (default, rule)."""
    not_in_python: ClassVar[tuple[str, ...]] = ()
    """Settings of runs that are no parameters of the estimator, apart from `seed` (its `random_state`)."""
    absent: ClassVar[Mapping[str, object]] = {}
    """Values, other than the defaults, of settings that are missing from the runs of earlier versions."""

    def as_dict(self) -> dict[str, object]:
        """Return the settings as stored in JSON."""
        return asdict(self)

    def changed(self, **changes: object) -> Self:
        """Return a copy with some settings changed."""
        return replace(self, **changes)

    def checked(self) -> Self:
        """Return the settings if each is valid and they fit together; InputError names the first that is not."""
        for name, setting in declared(type(self)).items():
            value = getattr(self, name)
            if not setting.rule.accepts(value):
                raise InputError("not a value for it", where=name, got=repr(value), wanted=setting.rule.wanted)
        self.check_together()
        return self

    def check_together(self) -> None:
        """Check rules across settings: InputError where two do not fit together."""


S = TypeVar("S", bound=Settings)


# Kept, as get_type_hints evaluates each annotation, and every fit asks.
_DECLARED: dict[type[Settings], dict[str, SettingDeclaration]] = {}


def declared(kind: type[Settings]) -> dict[str, SettingDeclaration]:
    """Return the settings of a learner by name, in their order."""
    if kind not in _DECLARED:
        # Annotations are text in these modules (from __future__ import annotations): only this makes objects of them.
        hints = get_type_hints(kind, include_extras=True)
        _DECLARED[kind] = {
            field.name: _declared(field.name, _default(field), hints[field.name]) for field in fields(kind)
        }
    return _DECLARED[kind]


def _default(field: Any) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _declared(name: str, default: object, hint: Any) -> SettingDeclaration:
    rule, text, *markers = hint.__metadata__
    wider = next((marker.rule for marker in markers if isinstance(marker, InPython)), rule)
    off = next((marker for marker in markers if isinstance(marker, Flagged)), None)
    recorded = tuple(marker.value for marker in markers if isinstance(marker, RecordedAs))
    return SettingDeclaration(
        name, rule, text, default, wider, NO_OPTION not in markers, RESUMABLE in markers, off, recorded
    )


def parameters(kind: type[Settings]) -> dict[str, tuple[object, Rule]]:
    """Return (default, rule) of each parameter of the estimator: `seed` is its `random_state`."""
    absent = {"seed", *kind.not_in_python}
    own = {name: (known.default, known.in_python) for name, known in declared(kind).items() if name not in absent}
    return {**own, **kind.in_python}


def check_parameters(estimator: object, kind: type[Settings]) -> None:
    """Check all parameters of an estimator; InputError for the first that breaks its rule, or for two that do not fit together."""
    for name, (_, rule) in parameters(kind).items():
        value = getattr(estimator, name)
        if not rule.accepts(value):
            raise InputError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {rule.wanted}",
                got=f"{_in_brief(value)} instead",
            )
    # After each alone: rules across settings may compare values, which must be of the right type by then.
    gathered(kind, estimator).check_together()


def gathered(kind: type[S], estimator: object, **known: object) -> S:
    """Return the settings of an estimator's parameters; `known`: those that are not simply its parameters."""
    values = {
        name: _plain(getattr(estimator, name), setting.default)
        for name, setting in declared(kind).items()
        if name not in known and hasattr(estimator, name)
    }
    return kind(**{**values, **known})


E = TypeVar("E")


def remade(estimator: Callable[..., E], kind: type[Settings], stored: Mapping[str, object], **others: object) -> E:
    """Return an unfitted estimator with a run's stored parameters; `others`: those that cannot be stored."""
    # A run of an earlier version lacks settings that were added since: it was computed with `absent`, not with today's defaults.
    held = {**kind.absent, **stored}
    known = {name: held[name] for name in parameters(kind) if name in held}
    return estimator(**{**known, **others})


MOST_SHOWN = 120
"""Maximum characters of a value in an error."""


def _in_brief(value: object) -> str:
    """Return the value as Python writes it, in a line and cut short: a whole array may be given in place of a number."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # an integer of more digits than Python writes
        return f"a number of type {type(value).__name__}"
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}..."


def _plain(value: object, default: object) -> Any:
    """Convert numbers of NumPy to Python's, for JSON; to a float where the default is one."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return float(value) if isinstance(default, float) else int(value)
    return float(value) if isinstance(value, RealNumber) and not isinstance(value, bool) else value


ANYTHING = Instance(lambda value: True, "anything")
"""Rule for settings that are checked where they are used, with a specific error."""

SHARE_HELD_OUT = Real(least=0, most=0.5)
"""Rule of `holdout`: the share of the data that the quality is measured on (`dkl.quality`)."""

IN_ALL: dict[str, tuple[object, Rule]] = {
    "client": (None, ANYTHING),
    "n_jobs": (None, Either(Integer(1), Exactly(-1), NotGiven())),
    "random_state": (None, ANYTHING),
}
"""Parameters that every estimator has."""
EVERYWHERE: dict[str, tuple[object, Rule]] = {
    **IN_ALL,
    "callbacks": (None, ANYTHING),
    "verbose": (0, Either(Integer(0), Flag())),
}
"""Parameters that every learner with runs has."""


# Settings of every learner of a kernel near a prior one.


@dataclass(frozen=True)
class LabelSettings(Settings):
    """Settings on side information from labels, and on the resources of the process."""

    n_in: Annotated[int, Integer(1), "Nearest rows of its class that a labeled row is compared with."] = 10
    n_out: Annotated[int, Integer(1), "Nearest rows of other classes."] = 10
    standardize: Standardize = "auto"
    contradictions: Annotated[
        str, CONTRADICTIONS, "Pairs or triplets that contradict each other: keep them, leave out, or refuse."
    ] = "keep"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None


@dataclass(frozen=True)
class PriorSettings(LabelSettings):
    """Settings of the prior kernel K0, and of the number of principal components that show rows."""

    kernel: Annotated[
        Any, KERNEL, "K0; the paper's is laplacian, of the neighbor graph.", InPython(Either(KERNEL, KERNEL_FUNCTION))
    ] = "rbf"
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph of --kernel laplacian."] = 10
    n_components: Annotated[int, Integer(1), "Principal components of transformed rows."] = 30
    center: Annotated[
        bool,
        Flag(),
        "Whether components are about the mean.",
        Flagged("--not-centered", "Take components about 0, not about the mean [about the mean]."),
    ] = True

    in_python = {"loss_params": (None, DICTIONARY), "kernel_params": (None, DICTIONARY), **EVERYWHERE}


# The setting `standardize` of learners that measure distances, and its arrays of means and spreads.

LARGEST_RATIO = 10
"""Largest spread of a column, relative to the median of those that vary, that "auto" accepts."""

Standardize = Annotated[
    bool | str,
    Either(Flag(), Word("auto")),
    f"Bring columns to mean 0 and spread 1 [where one of {LARGEST_RATIO} times the median spread, or several of 100 times, decide all].",
]

FOLDER = "column_scale"
"""The part of a run's folder that holds the arrays."""

COLUMN_ARRAYS = (
    StoredArray(
        f"{FOLDER}/means",
        ("feature",),
        ("float64",),
        "Means of the columns, which all rows are less by before anything is computed of them; none for sparse rows.",
        optional=True,
    ),
    StoredArray(
        f"{FOLDER}/spreads",
        ("feature",),
        ("float64",),
        "Standard deviations of the columns, which all rows are divided by; 1 of a constant column.",
        optional=True,
    ),
)
