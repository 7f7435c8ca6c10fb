"""Request of a sweep, and the points that it makes.

sweep.json keeps it: the same command continues the sweep, another one in the same folder is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.errors import InputError
from dkl.estimators.base.rules import Flag
from dkl.estimators.base.settings import SettingDeclaration, declared
from dkl.resources import format_bytes
from dkl.runs.registry import Declaration
from dkl.stores.seals import read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dkl.stores.seals import Json

CONSTRAINTS = "n_constraints"
MEMORY = "memory_limit"


@dataclass(frozen=True)
class SweepPoint:
    """A fit of a sweep. varied: its values of the options, other than n, that have several in the sweep."""

    n: int
    varied: Mapping[str, object]
    repeat: int = 1

    @property
    def group(self) -> str:
        """Return all but n and the repeat, for a line of the picture: "rank 64, workers 2"."""
        return ", ".join(f"{name.replace('_', '-')} {shown(value, name)}" for name, value in self.varied.items())

    @property
    def label(self) -> str:
        """Return the label for a person: "n 10,000, rank 64"."""
        return ", ".join(part for part in (f"n {self.n:,}", self.group) if part)

    @property
    def name(self) -> str:
        """Return the name of the point's folder."""
        parts = [f"n{self.n}", *(f"{name}-{value}" for name, value in self.varied.items()), f"repeat{self.repeat}"]
        # A value may be a path or an address, whose slashes would make folders.
        return "_".join(parts).replace("/", "-")


@dataclass(frozen=True)
class SweepRequest:
    """A sweep of `task` over `n` and whatever in `settings` or `place` has several values, each `repeat` times.

    settings: of the learner, name to values; an option that is itself a list, such as a path of gammas, is one value.
    place: options of the place, name to values. files: given inputs, absolute. n_constraints: how much side information is
    drawn; none: by the data's own rule. shuffled: n rows are drawn of given data, not its first n. table: options by which
    delimited text is read.
    """

    task: str
    n: list[int]
    repeat: int = 1
    settings: dict[str, list[Any]] = field(default_factory=dict)
    place: dict[str, list[Any]] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    n_constraints: list[int] = field(default_factory=list)
    data_seed: int = 0
    shuffled: bool = False
    table: Json = field(default_factory=dict)

    def checked(self) -> SweepRequest:
        """Return the request itself; InputError for a value that is there twice."""
        lists = {"n": self.n, CONSTRAINTS: self.n_constraints, **self.settings, **self.place}
        for name, values in lists.items():
            twice = next((value for place, value in enumerate(values) if value in values[:place]), None)
            if twice is not None:
                raise InputError("a value that is there twice", where=flag(name), got=shown(twice))
        return self

    @property
    def varied(self) -> dict[str, list[Any]]:
        """Return all but n that have several values, by name, in the options' order."""
        lists = {CONSTRAINTS: self.n_constraints, **self.settings, **self.place}
        return {name: values for name, values in lists.items() if len(values) > 1}

    def points(self) -> list[SweepPoint]:
        """Return all points, from small n to large.
        All come once before any is repeated, so that a slow hour of the machine does not fall on one point alone."""
        names, values = list(self.varied), list(self.varied.values())
        return [
            SweepPoint(n, dict(zip(names, chosen, strict=True)), repeat)
            for repeat in range(1, self.repeat + 1)
            for n in sorted(self.n)
            for chosen in product(*values)
        ]

    def chosen(self, point: SweepPoint) -> Json:
        """Return the settings of a point, as `dkl fit` has them."""
        return _at(self.settings, point)

    def placing(self, point: SweepPoint) -> Json:
        """Return the options of a point's place."""
        return _at(self.place, point)

    def n_constraints_of(self, point: SweepPoint) -> int | None:
        """Return the point's amount of side information; None: by the data's own rule."""
        return _at({CONSTRAINTS: self.n_constraints}, point).get(CONSTRAINTS)

    def as_dict(self) -> Json:
        """Return the request as sweep.json stores it."""
        found = {"dkl": version("dkl"), **asdict(self)}
        # Left out where empty, as earlier versions had no tables: their sweeps can be continued.
        return found if self.table else {name: value for name, value in found.items() if name != "table"}

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> SweepRequest:
        """Return the request from what `as_dict` gave."""
        return cls(**{name: value for name, value in found.items() if name != "dkl"})


def check_same(path: Path, request: SweepRequest) -> None:
    """Raise InputError if the sweep in a folder was asked for something else."""
    before, now = read_json(path, sealed=True), request.as_dict()
    for name in {**now, "table": None}:
        if before.get(name) != now.get(name):
            raise InputError(
                "another sweep is there",
                where=str(path.parent),
                got=f"{name} {_few(now.get(name))}",
                wanted=f"{name} {_few(before.get(name))}",
                remedy="give the command that started it, or choose another --out",
            )


def words_of(declaration: Declaration, chosen: Mapping[str, object]) -> list[str]:
    """Return settings as options of `dkl fit`."""
    known, words = declared(declaration.settings), list[str]()
    for name, value in chosen.items():
        words += _words(known[name], value)
    return words


def place_words(placing: Mapping[str, object]) -> list[str]:
    """Return the options of the place as they are typed."""
    words = []
    for name, value in placing.items():
        words += [flag(name)] if value is True else [] if value in (None, False) else [flag(name), str(value)]
    return words


def flag(name: str) -> str:
    """Return the option of a name."""
    return f"--{name.replace('_', '-')}"


def shown(value: Any, name: str = "") -> str:
    """Return the text of an option's value in a line or a column."""
    if name == MEMORY and value is not None:
        return format_bytes(value)
    if isinstance(value, list):
        return "+".join(map(shown, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _words(known: SettingDeclaration, value: object) -> list[str]:
    if isinstance(known.rule, Flag):
        return [known.off.option if known.off else known.flag]
    if isinstance(value, bool):  # where words, such as "auto", are values too: --standardize or --no-standardize
        return [known.flag if value else f"--no-{known.flag[2:]}"]
    values = value if isinstance(value, list) else [value]
    return [word for one in values for word in (known.flag, str(one))]


def _at(lists: Mapping[str, Sequence[object]], point: SweepPoint) -> Json:
    # Options with one value do not vary: it is the first.
    return {name: point.varied.get(name, values[0]) for name, values in lists.items() if values}


def _few(value: object) -> str:
    text = str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
