"""One declaration of each learner's settings: what it may be, its help, its default, in one line a setting.

    @dataclass(frozen=True)
    class RidgeSettings(Settings):
        alpha: Annotated[float, Real(above=0), "Weight of the penalty."] = 1.0

From it come the estimator's check, the option of `dkl fit` with its help and default, and the check of what a run's
folder holds. Markers after the help say where a setting differs from one place to another: RESUMABLE, NO_OPTION,
`InPython`, `Flagged`.

Settings modules import nothing large, so that a wrong option is reported before numpy and Dask are loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

from dkl.errors import InputError
from dkl.estimators.common.rules import Either, Flag, Instance, Integer, NotGiven, Rule


@dataclass(frozen=True)
class Marker:
    """Says where a setting is to be found."""

    name: str


RESUMABLE = Marker("resumable")
"""`dkl resume` may change it: it decides how far a run goes or how it gets there, not what it computes."""
NO_OPTION = Marker("no option")
"""Has no option at the command line."""


@dataclass(frozen=True)
class InPython:
    """The estimator takes more than a run's folder can hold: functions, arrays, dictionaries."""

    rule: Rule


@dataclass(frozen=True)
class Flagged:
    """The option that turns a setting which is on by default off."""

    off: str


@dataclass(frozen=True)
class Declared:
    """A setting: its rule, help text and default; whether it has an option, and whether resuming may change it."""

    name: str
    rule: Rule
    help: str
    default: Any
    in_python: Rule
    has_option: bool
    resumable: bool
    off: str | None

    @property
    def flag(self) -> str:
        """The option's name at the command line."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class Settings:
    """What decides a learner's result together with its data, and how the result is reached. A run's folder holds them.

    seed: of all that is random; `random_state` in Python.
    """

    in_python: ClassVar[Mapping[str, tuple[Any, Rule]]] = {}
    """Parameters of the estimator alone: name to (default, rule)."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON keeps them."""
        return asdict(self)

    def changed(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def checked(self) -> Self:
        """The same, if each setting keeps its rule and they fit together; InputError names the first that does not."""
        for name, setting in declared(type(self)).items():
            value = getattr(self, name)
            if not setting.rule.accepts(value):
                raise InputError("not a value for it", where=name, got=repr(value), wanted=setting.rule.wanted)
        self.check_together()
        return self

    def check_together(self) -> None:
        """Rules across settings: InputError where two do not fit together."""


@cache
def declared(kind: type[Settings]) -> dict[str, Declared]:
    """The settings of a learner by name, in their order."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: _declared(field.name, field.default, hints[field.name]) for field in fields(kind)}


def _declared(name: str, default: Any, hint: Any) -> Declared:
    rule, text, *markers = hint.__metadata__
    wider = next((marker.rule for marker in markers if isinstance(marker, InPython)), rule)
    off = next((marker.off for marker in markers if isinstance(marker, Flagged)), None)
    return Declared(name, rule, text, default, wider, NO_OPTION not in markers, RESUMABLE in markers, off)


def parameters(kind: type[Settings]) -> dict[str, tuple[Any, Rule]]:
    """(default, rule) of each parameter of the estimator: `seed` is its `random_state`."""
    own = {name: (known.default, known.in_python) for name, known in declared(kind).items() if name != "seed"}
    return {**own, **kind.in_python}


def check_parameters(estimator: Any, kind: type[Settings]) -> None:
    """Check all parameters of an estimator; InputError for the first that breaks its rule."""
    for name, (_, rule) in parameters(kind).items():
        value = getattr(estimator, name)
        if not rule.accepts(value):
            raise InputError(
                f"The {name!r} parameter of {type(estimator).__name__} must be {rule.wanted}", got=f"{value!r} instead"
            )


ANYTHING = Instance(lambda value: True, "anything")
"""Checked where it is used, with an error of its own."""

EVERYWHERE: dict[str, tuple[Any, Rule]] = {
    "client": (None, ANYTHING),
    "n_jobs": (None, Either(Integer(1), NotGiven())),
    "random_state": (None, ANYTHING),
    "callbacks": (None, ANYTHING),
    "verbose": (0, Either(Integer(0), Flag())),
}
"""Parameters that every estimator has."""
