"""Rules for settings: check, description, parsing of a command's text. Imports nothing large."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from numbers import Real as RealNumber
from typing import Any, Protocol

from dkl.errors import InputError
from dkl.resources import parse_bytes


class Rule(Protocol):
    """Interface of a rule: a kind of value."""

    @property
    def wanted(self) -> str:
        """Describe the allowed values, to follow "must be ..."."""

    def accepts(self, value: object) -> bool:
        """Return whether the rule allows the value."""

    def parse(self, text: str) -> object:
        """Parse a command's text; raises ValueError if invalid."""


@dataclass(frozen=True)
class Real:
    """Rule for a finite number, within inclusive or exclusive bounds."""

    above: float | None = None
    least: float | None = None
    below: float | None = None
    most: float | None = None

    @property
    def wanted(self) -> str:
        """Describe the allowed values."""
        bound = (
            f" > {self.above:g}" if self.above is not None else f" >= {self.least:g}" if self.least is not None else ""
        )
        upper = (
            f" < {self.below:g}" if self.below is not None else f" <= {self.most:g}" if self.most is not None else ""
        )
        return f"a finite number{bound}{' and' if bound and upper else ''}{upper}"

    def accepts(self, value: object) -> bool:
        """Return whether the value is a finite number within the bounds."""
        if not isinstance(value, RealNumber) or isinstance(value, bool):
            return False
        try:
            number = float(value)
        except OverflowError:  # an integer beyond every float
            return False
        low = -math.inf if self.least is None else self.least
        high = math.inf if self.below is None else self.below
        is_within = low <= number < high and (self.most is None or number <= self.most)
        return math.isfinite(number) and is_within and (self.above is None or number > self.above)

    def parse(self, text: str) -> float:
        """Parse a command's text as a float; raises ValueError if invalid."""
        return _accepted(self, float(text))


@dataclass(frozen=True)
class Integer:
    """Rule for an integer from `least` on, as JSON and NumPy can hold it."""

    least: int

    @property
    def wanted(self) -> str:
        """Describe the allowed values."""
        return f"an integer >= {self.least}"

    def accepts(self, value: object) -> bool:
        """Return whether the value is an integer from `least` on that fits in 64 bits."""
        return isinstance(value, Integral) and not isinstance(value, bool) and self.least <= int(value) < 2**63

    def parse(self, text: str) -> int:
        """Parse a command's text as an integer; raises ValueError if invalid."""
        return _accepted(self, int(text))


@dataclass(frozen=True, init=False)
class Word:
    """Rule for one of a few words."""

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    @property
    def wanted(self) -> str:
        """Describe the allowed values."""
        return " or ".join(map(repr, self.words))

    def accepts(self, value: object) -> bool:
        """Return whether the value is one of the words."""
        return isinstance(value, str) and value in self.words

    def parse(self, text: str) -> str:
        """Return a command's text if it is one of the words; else raises ValueError."""
        return _accepted(self, text)


@dataclass(frozen=True)
class Flag:
    """Rule for True or False, of Python or NumPy."""

    wanted = "True or False"

    def accepts(self, value: object) -> bool:
        """Return whether the value is a Boolean, of Python or NumPy."""
        # By name, as NumPy is not imported here; its Boolean is `bool_` before version 2.
        return isinstance(value, bool) or type(value).__name__ in ("bool_", "bool")

    def parse(self, text: str) -> bool:
        """Raise ValueError: flags of a command have no text."""
        raise ValueError(text)  # options of flags have no text


@dataclass(frozen=True)
class Exactly:
    """Rule for one integer."""

    value: int

    @property
    def wanted(self) -> str:
        """Describe the allowed value."""
        return str(self.value)

    def accepts(self, value: object) -> bool:
        """Return whether the value is this integer."""
        return isinstance(value, Integral) and not isinstance(value, bool) and int(value) == self.value

    def parse(self, text: str) -> int:
        """Return the value of a command's text; raise ValueError for another."""
        return _accepted(self, int(text))


@dataclass(frozen=True)
class NotGiven:
    """Rule for None."""

    wanted = "None"

    def accepts(self, value: object) -> bool:
        """Return whether the value is None."""
        return value is None

    def parse(self, text: str) -> object:
        """Raise ValueError: a command leaves the option out instead."""
        raise ValueError(text)  # an option that is left out says it


@dataclass(frozen=True)
class Size:
    """Rule for bytes: 4000000000, "4 GB" or "2GiB"; or None for no explicit limit."""

    wanted = 'a size in bytes such as "4 GB", or None'

    def accepts(self, value: Any) -> bool:
        """Return whether the value is None or a size in bytes."""
        try:
            parse_bytes(value)
        except InputError:
            return False
        return True

    def parse(self, text: str) -> int | None:
        """Parse a command's text as a size in bytes; raises InputError, which is a ValueError, if invalid."""
        return parse_bytes(text)


@dataclass(frozen=True)
class Folder:
    """Rule for a path, or None."""

    wanted = "a path, or None"

    def accepts(self, value: object) -> bool:
        """Return whether the value is None or a path."""
        return value is None or isinstance(value, str) or hasattr(value, "__fspath__")

    def parse(self, text: str) -> str:
        """Return a command's text: any text is a path."""
        return text


@dataclass(frozen=True)
class Instance:
    """Rule for values that pass a Python function; not available as a command's option."""

    test: Callable[[object], bool]
    wanted: str

    def accepts(self, value: object) -> bool:
        """Return whether the value passes the test."""
        return bool(self.test(value))

    def parse(self, text: str) -> object:
        """Raise ValueError: no text of a command stands for such a value."""
        raise ValueError(text)


@dataclass(frozen=True)
class ListOf:
    """Rule for a list of two or more values of one kind: a single one is given without a list."""

    each: Rule

    @property
    def wanted(self) -> str:
        """Describe the allowed values."""
        return f"a list of two or more, each {self.each.wanted}"

    def accepts(self, value: object) -> bool:
        """Return whether the value is a list of two or more items that the rule `each` allows."""
        return isinstance(value, list) and len(value) > 1 and all(map(self.each.accepts, value))

    def parse(self, text: str) -> object:
        """Parse a command's text by the rule of each item; raises ValueError if invalid."""
        return self.each.parse(text)  # an option that is given several times


@dataclass(frozen=True, init=False)
class Either:
    """Rule that allows what any of some rules allows."""

    rules: tuple[Rule, ...]

    def __init__(self, *rules: Rule) -> None:
        object.__setattr__(self, "rules", rules)

    @property
    def wanted(self) -> str:
        """Describe the allowed values."""
        return ", or ".join(rule.wanted for rule in self.rules)

    def accepts(self, value: object) -> bool:
        """Return whether any of the rules allows the value."""
        return any(rule.accepts(value) for rule in self.rules)

    def parse(self, text: str) -> object:
        """Parse a command's text by the first rule that can; raises ValueError if none can."""
        for rule in self.rules:
            try:
                return rule.parse(text)
            except ValueError:
                continue
        raise ValueError(text)


WIDTH = Either(Real(above=0), Word("auto", "local", "average", "kth"))
"""Width of a graph's similarity: a number, a rule by name, or the learner's own rule."""


def width_rule(sigma: float | str, auto: str) -> float | str:
    """Return sigma as the graph takes it: what "auto" stands for, or what was given."""
    return auto if sigma == "auto" else sigma


def _accepted(rule: Rule, value: object) -> Any:
    if not rule.accepts(value):
        raise ValueError(value)
    return value


DICTIONARY = Either(Instance(lambda value: isinstance(value, dict), "a dictionary"), NotGiven())
AN_ARRAY = Instance(lambda value: not isinstance(value, str), "an array")
CONTRADICTIONS = Word("keep", "drop", "raise")
"""Rule for what `check` of pairs and of triplets does with those that contradict each other."""


# Rules for kernels, for the settings of every learner that has one. Imports nothing large.

KERNEL_NAMES = (
    *("additive_chi2", "chi2", "cosine", "laplacian", "linear", "poly", "polynomial", "precomputed", "rbf"),
    "sigmoid",
)
"""scikit-learn's kernel names, and "precomputed"; a test holds them equal."""

KERNEL = Word(*KERNEL_NAMES)
NAMED_KERNELS = ListOf(Word(*(name for name in KERNEL_NAMES if name != "precomputed")))
"""Rule for kernels to be combined, as a run's folder holds them."""
KERNEL_FUNCTION = Instance(callable, "a function")
KERNEL_KEYS = {"kernel", "gamma", "degree", "coef0", "kernel_params"}
"""Keys of a dictionary that describes a kernel with its own parameters."""


def _is_combined(value: object) -> bool:
    """Return whether `value` is a list of kernels: names, functions, or dictionaries of KERNEL_KEYS."""
    if not isinstance(value, (list, tuple)) or not value:
        return False

    def is_kernel(item: object) -> bool:
        return callable(item) or (KERNEL.accepts(item) and item != "precomputed")

    return all(
        is_kernel(item) or (isinstance(item, dict) and set(item) <= KERNEL_KEYS and is_kernel(item.get("kernel")))
        for item in value
    )


KERNEL_LIST = Instance(_is_combined, "a list of kernels, each a name, a function or a dictionary")


# The losses of Li et al. 2009, Table 2, for the settings of learners. Imports nothing large.

TRIPLET_LOSSES = ("log", "lmnn", "hinge", "linear")
SIMILARITY_LOSSES = ("hoi", "hoi_hinge")
"""Losses of pairs' kernel values; "itml" is of their squared distances."""
PAIR_LOSSES = ("itml", *SIMILARITY_LOSSES)
MATRIX_LOSSES = (*TRIPLET_LOSSES, *SIMILARITY_LOSSES)
"""Losses of constraints that are given by their matrices: ITML's has a bound for similar pairs, and one for others."""
HINGES = ("hinge", "hoi_hinge")
"""Losses with a corner, which "lmnn" and "hoi" smooth."""
LOSS_PARAMETERS = {"lmnn": ("t",), "hoi": ("t",), "itml": ("upper", "lower")}
"""Names that `loss_params` may hold, by loss."""
PARAMETER_RULES = {"t": Real(above=-3, below=1), "upper": Real(above=0), "lower": Real(above=0)}
LOSS_NAME = Word(*TRIPLET_LOSSES, *PAIR_LOSSES)
SMOOTH_LOSS_NAME = Word(*(name for name in (*TRIPLET_LOSSES, *PAIR_LOSSES) if name not in HINGES))
LOSS_OBJECT = Instance(
    lambda value: all(callable(getattr(value, name, None)) for name in ("value", "first", "second")),
    "an object with value, first and second",
)


# Parameters of the kernel K0: which kernels have them, and allowed values. Imports nothing large.

KERNELS_WITH = {
    "gamma": ("rbf", "poly", "polynomial", "sigmoid", "chi2"),
    "degree": ("poly", "polynomial"),
    "coef0": ("poly", "polynomial", "sigmoid"),
    "sigma": ("laplacian",),
    "laplacian": ("laplacian",),
}
"""Kernels, by name, that have each parameter; "laplacian" is that of the neighbor graph."""
SHARPNESS = 3.0
"""Sharpness of the graph's local widths: exp(-3 d^2 / max(s_i, s_j)^2).

Many classes near one another need sharp weights.
"""
RULES: dict[str, Rule] = {
    "gamma": Either(Real(above=0), NotGiven()),
    "degree": Real(least=0),
    "coef0": Real(),
    "sigma": WIDTH,
    "laplacian": Word("normalized", "unnormalized"),
}


def check_kernel_params(kernel: Any, params: dict[str, object] | None) -> None:
    """Raise InputError for an unknown parameter of a named kernel or an invalid value; not for functions."""
    if not params or not isinstance(kernel, str):
        return
    known = [name for name, kernels in KERNELS_WITH.items() if kernel in kernels]
    unknown = sorted(map(str, set(params) - set(known)))
    if unknown:
        wanted = f"{', '.join(known) or 'none'} of kernel={kernel!r}"
        raise InputError("unknown parameters of the kernel", where="kernel_params", got=unknown, wanted=wanted)
    for name, value in params.items():
        if not RULES[name].accepts(value):
            where = f"kernel_params[{name!r}]"
            raise InputError(f"not a {name} of a kernel", where=where, got=repr(value), wanted=RULES[name].wanted)
