"""The checkpoint codec: frozen dataclasses as arrays and JSON notes, and back.

The types of a state are its format and its validation. `encode` puts each array aside by its dotted path and leaves a
reference in the notes; an array that a state holds twice is stored once. `decode` rebuilds the state, and raises
StoreError, which names the field, for notes or arrays that no `encode` of that type has written: a checksum says that
they were sealed, not that a fit wrote them.

    str, bool, int, float, None, Literal, Enum, X | Y   as JSON has them; integers count something, so 0 or more; no NaN
    list, tuple, dict (of str or int), dataclasses      their parts; of a union of dataclasses the one with these fields
    Annotated[NDArray[np.float64], "row", "column"]     an array whose dimensions have these names
    NDArray[np.float64]                                 an array as it is stored, checked by its declaration alone
    Annotated[NDArray[np.intp], "*", "< row"]           an array of numbers from 0 to less than that dimension's length
    Annotated[int, "row"]                               the length of that dimension
    Row                                                 a row of a history

Dimensions of one name have one length throughout a state, those named "*" any; each value of a dict has other lengths.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from dkl.errors import StoreError

if TYPE_CHECKING:
    from dkl.stores.seals import Json

T = TypeVar("T")
Row = dict[str, Any]
"""Row of a history: numbers and words by the name of their column."""
CELLS = {"stage": str, "step": str, "iteration": int, "products": int, "rows": int, "rank": int}
"""Types of the cells of a history by column; all other cells are floats."""
COUNTS = "< "
"""Prefix of the name of a dimension that the numbers of an array count."""
REQUIRED_CELLS = {"iteration", "seconds", "objective"}


def encode(value: object) -> tuple[dict[str, NDArray], Any]:
    """Split `value` into arrays by dotted path, and JSON notes in which an array is a reference."""
    arrays: dict[str, NDArray] = {}
    paths: dict[int, str] = {}

    def notes_of(value: object, path: str) -> Any:
        if isinstance(value, np.ndarray):
            # One array in two places is stored once, and is one array again when it is read.
            arrays.setdefault(paths.setdefault(id(value), path), value)
            return {"array": paths[id(value)]}
        # Not dataclasses.asdict, which copies every array.
        if is_dataclass(value):
            value = {field.name: getattr(value, field.name) for field in fields(value)}
        if isinstance(value, Mapping):
            return {str(name): notes_of(part, f"{path}.{name}".lstrip(".")) for name, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [notes_of(part, f"{path}.{k}".lstrip(".")) for k, part in enumerate(value)]
        if isinstance(value, Enum):
            return value.value
        return value.item() if isinstance(value, np.generic) else value

    return arrays, notes_of(value, "")


def decode(kind: type[T], arrays: Mapping[str, object], notes: object, where: str = "state") -> T:
    """Rebuild a value of type `kind` from what `encode` returned; arrays are copies, aligned and in C order.

    Raises StoreError, which names the field below `where`, for anything else.
    """
    decoder = _Decoder(arrays)
    value = cast(T, decoder.value(kind, notes, where))
    decoder.check_counted()
    return value


class _Decoder:
    """Decoder of one state.

    lengths: of the dimensions met so far; counted: arrays whose numbers count a dimension, by path; decoded: by path and dtype.
    """

    def __init__(self, arrays: Mapping[str, object]) -> None:
        self.arrays = arrays
        self.lengths: dict[str, int] = {}
        self.counted: list[tuple[str, NDArray, str]] = []
        self.decoded: dict[tuple[str, np.dtype], NDArray] = {}

    def value(self, kind: Any, notes: Any, path: str) -> Any:
        """Rebuild the value at `path`."""
        origin, args = get_origin(kind), get_args(kind)
        if origin is Annotated and get_origin(args[0]) is np.ndarray:
            dims, counted = (tuple(a for a in args[1:] if a.startswith(COUNTS) == of) for of in (False, True))
            values = self.array(get_args(get_args(args[0])[1])[0], dims, notes, path)
            self.counted += [(path, values, one.removeprefix(COUNTS)) for one in counted]
            return values
        if origin is np.ndarray:
            return self.stored(notes, path)
        if origin is Annotated:
            number = self.value(args[0], notes, path)
            self.require(self.lengths.setdefault(args[1], number) == number, path, notes, f"the number of {args[1]}s")
            return number
        if origin in (Union, types.UnionType):
            return self.value(self.member(args, notes, path), notes, path)
        if is_dataclass(kind):
            hints = _hints(cast(type, kind))
            # All fields and no more: a default would hide that a state of an older version lacks one.
            self.require(isinstance(notes, dict) and notes.keys() == hints.keys(), path, notes, f"fields {[*hints]}")
            return cast(type, kind)(
                **{name: self.value(part, notes[name], f"{path}.{name}") for name, part in hints.items()}
            )
        # Before dict, which a row is too.
        if kind == Row:
            return self.row(notes, path)
        if origin is dict:
            self.require(isinstance(notes, dict), path, notes, "an object")
            return {self.key(args[0], name, path): self.item(args[1], notes[name], f"{path}.{name}") for name in notes}
        if origin in (list, tuple):
            self.require(isinstance(notes, list), path, notes, "a list")
            kinds = args if origin is tuple and args[-1] is not ... else (args[0],) * len(notes)
            self.require(len(kinds) == len(notes), path, notes, f"a list of {len(kinds)}")
            parts = zip(kinds, notes, strict=True)
            return origin(self.value(part, note, f"{path}[{k}]") for k, (part, note) in enumerate(parts))
        return self.scalar(kind, notes, path)

    def scalar(self, kind: object, notes: Any, path: str) -> Any:
        """Return the number or word at `path`."""
        if get_origin(kind) is Literal:
            self.require(type(notes) is str and notes in get_args(kind), path, notes, f"one of {get_args(kind)}")
            return notes
        if isinstance(kind, type) and issubclass(kind, Enum):
            known = {member.value: member for member in kind}
            self.require(type(notes) is str and notes in known, path, notes, f"one of {[*known]}")
            return known[notes]
        # A whole number may be written as 1 rather than 1.0; up to 2^53 it is the same one.
        if kind is float and type(notes) is int and abs(notes) <= 2**53:
            notes = float(notes)
        # Not isinstance, by which True is an int.
        is_valid = type(notes) is kind
        if kind is int:
            # JSON has integers of any length, which fail as an index or in an array later on.
            is_valid = is_valid and 0 <= notes < 2**63
        elif kind is float:
            is_valid = is_valid and not math.isnan(notes)
        self.require(is_valid, path, notes, getattr(kind, "__name__", str(kind)))
        return notes

    def array(self, dtype: Any, dims: tuple[str, ...], notes: Any, path: str) -> NDArray:
        """Return the array that `notes` refer to, of type `dtype` and with dimensions `dims`."""
        stored = self.stored(notes, path)
        self.require(stored.ndim == len(dims), path, f"shape {stored.shape}", f"dimensions {dims}")
        for dim, length in zip(dims, stored.shape, strict=True):
            wanted = length if dim == "*" else self.lengths.setdefault(dim, length)
            self.require(length == wanted, path, f"{length} {dim}s", f"{wanted} {dim}s")
        key = notes["array"], np.dtype(dtype)
        if key not in self.decoded:
            # A NaN or a large float as an integer warns here, and is refused by the comparison below.
            with np.errstate(invalid="ignore"):
                self.decoded[key] = np.array(stored, dtype, order="C")
            if stored.dtype != key[1]:  # stored as another type, which must hold the same numbers
                self.require(np.array_equal(self.decoded[key], stored), path, stored.dtype, dtype.__name__)
        return self.decoded[key]

    def stored(self, notes: Any, path: str) -> Any:
        """Return the array that `notes` refer to, as it is stored."""
        name = notes["array"] if isinstance(notes, dict) and notes.keys() == {"array"} else None
        self.require(isinstance(name, str) and name in self.arrays, path, notes, "the name of a stored array")
        return self.arrays[str(name)]

    def row(self, notes: Any, path: str) -> Row:
        """Return a row of a history."""
        is_row = isinstance(notes, dict) and notes.keys() >= REQUIRED_CELLS
        self.require(is_row, path, notes, f"a row with {sorted(REQUIRED_CELLS)}")
        row = {name: self.scalar(CELLS.get(name, float), cell, f"{path}.{name}") for name, cell in notes.items()}
        self.require(0 <= row["seconds"] < math.inf, f"{path}.seconds", row["seconds"], "0 or more")
        return row

    def member(self, kinds: tuple[object, ...], notes: object, path: str) -> Any:
        """Return the member of a union that `notes` can be of: None, or by the names of the fields."""
        if notes is None and type(None) in kinds:
            return type(None)
        others = [kind for kind in kinds if kind is not type(None)]
        names = set(notes) if isinstance(notes, dict) else None
        fitting = others if len(others) == 1 else [kind for kind in others if names == {*_hints(kind)}]
        self.require(
            len(fitting) == 1, path, notes, " or ".join(getattr(kind, "__name__", str(kind)) for kind in kinds)
        )
        return fitting[0]

    def item(self, kind: Any, notes: Any, path: str) -> Any:
        """Rebuild a value of a dict, whose dimensions have other lengths than those of its neighbors."""
        # Values of a dict share no dimensions, so the lengths met so far are set aside.
        (lengths, counted), (self.lengths, self.counted) = (self.lengths, self.counted), ({}, [])
        value = self.value(kind, notes, path)
        self.check_counted()
        self.lengths, self.counted = lengths, counted
        return value

    def check_counted(self) -> None:
        """Require arrays whose numbers count a dimension to stay within its length."""
        for path, values, dim in self.counted:
            length = self.lengths.get(dim, 0)
            is_within = not values.size or (values.min() >= 0 and values.max() < length)
            self.require(bool(is_within), path, "numbers beyond", f"0 to {length - 1}")

    def key(self, kind: Any, name: str, path: str) -> Any:
        """Return a key of a dict, an int or a str."""
        if kind is str:
            return name
        # Only as `str` writes a count: with 01 there could be two entries of one number. Cut, as `int` refuses 4,300 digits.
        self.require(name.isascii() and name.isdigit() and name == str(int(name[:20])), path, name, "a count")
        return int(name)

    def require(self, is_valid: bool, path: str, got: Any, wanted: str) -> None:
        """Raise StoreError, which names the field at `path`, unless `is_valid`."""
        if not is_valid:
            raise StoreError("not what a fit stores", where=path, got=str(got)[:80], wanted=wanted)


@cache
def _hints(kind: type) -> Json:
    """Return the types of a dataclass' fields by name, with their annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def pack(arrays: Mapping[str, NDArray]) -> tuple[NDArray[np.float64], dict[str, list[int]]]:
    """Return all arrays in one, one after the other as float64, and the shape of each by name."""
    flat = [np.empty(0), *(np.asarray(values, np.float64).ravel() for values in arrays.values())]
    return np.concatenate(flat), {name: list(values.shape) for name, values in arrays.items()}


def unpack(packed: NDArray[np.float64], shapes: Any) -> dict[str, NDArray[np.float64]]:
    """Return the arrays that `pack` put together, as views; StoreError where shapes and numbers do not agree."""
    arrays, at = {}, 0
    for name, shape in decode(dict[str, list[int]], {}, shapes, "shapes").items():
        size = math.prod(shape)
        # Left to the test at the end, which has the numbers for the message.
        if at + size > len(packed):
            break
        arrays[name] = packed[at : at + size].reshape(shape)
        at += size
    if at != len(packed) or len(arrays) != len(shapes):
        raise StoreError(
            "not what a fit stores", where="shapes", got=f"{len(packed)} numbers", wanted="one for each entry"
        )
    return arrays
