"""A state of dataclasses is the same after it was stored; other notes are refused by the name of the field."""

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.stores.codec import Row, decode, encode, pack, unpack


class Color(Enum):
    RED = "red"


@dataclass(frozen=True)
class Part:
    chosen: Annotated[NDArray[np.intp], "chosen"]
    word: Literal["a", "b"]


@dataclass(frozen=True)
class Other:
    color: Color


@dataclass(frozen=True)
class Whole:
    n: Annotated[int, "row"]
    x: Annotated[NDArray[np.float64], "row", "column"]
    best: Annotated[NDArray[np.float64], "row", "column"] | None
    parts: dict[int, Part | Other | None]
    pair: tuple[float, bool]
    history: list[Row]


def whole():
    x = np.arange(6.0).reshape(2, 3)
    parts = {7: Part(np.arange(3), "a"), 10: Other(Color.RED), 2: None, 3: Part(np.arange(5), "b")}
    history = [{"stage": "one", "iteration": 1, "seconds": 0.5, "objective": np.float64(-np.inf)}]
    return Whole(2, x, x, parts, (np.inf, True), history)


def stored():
    arrays, notes = encode(whole())
    packed, shapes = pack(arrays)
    return packed, shapes, json.loads(json.dumps(notes))


def test_what_was_stored_comes_back():
    packed, shapes, notes = stored()
    assert shapes == {"x": [2, 3], "parts.7.chosen": [3], "parts.3.chosen": [5]}  # an array that it has twice, once
    found = decode(Whole, unpack(packed, shapes), notes)
    assert found.best is found.x and found.x.base is None and np.array_equal(found.x, whole().x)
    assert found.parts[7].chosen.dtype == np.intp and found.parts[3].chosen.tolist() == [0, 1, 2, 3, 4]
    assert (found.parts[10], found.parts[2], found.pair) == (Other(Color.RED), None, (np.inf, True))
    assert found.history == whole().history and type(found.history[0]["objective"]) is float


WRONG = {
    "": [3, None, {}],
    ".n": [3, -1, 2.0, "2", 2**63, True],
    ".x": [{"array": "y"}, {"array": 3}, {"array": "parts.7.chosen"}, None, "x"],
    ".parts": [{"x": None}, {"07": None}, {"-1": None}, [], {"7": {}}, {"7": {"color": "blue"}}, {"7": {"color": 3}}],
    ".pair": [[1.0], [1.0, True, 2.0], [float("nan"), True], [1.0, 1], ["1", True]],
    ".history": [{}, [3], [{"iteration": 1, "seconds": 0.5}], [{"iteration": 1, "seconds": -1.0, "objective": 0.0}]],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field in WRONG for value in WRONG[field]])
def test_what_no_fit_stores_is_refused_by_its_field(field, value):
    packed, shapes, notes = stored()
    notes = notes | {field[1:]: value} if field else value
    where = "state.x" if field == ".n" and value == 3 and type(value) is int else f"state{field}"
    with pytest.raises(StoreError, match=rf"^{where}.*: not what a fit stores; got .*; wanted "):
        decode(Whole, unpack(packed, shapes), notes)


def test_numbers_of_another_type_are_refused():
    packed, shapes, notes = stored()
    arrays = unpack(packed, shapes)
    arrays["parts.7.chosen"] = np.array([0.0, 0.5, np.nan])
    with pytest.raises(StoreError, match=r"state.parts.7.chosen: not what a fit stores; got float64; wanted int64"):
        decode(Whole, arrays, notes)


@pytest.mark.parametrize("shapes", [None, {}, {"x": "2"}, {"x": [15]}, {"x": [13]}, {"x": [-1]}, {"x": [14], "y": [1]}])
def test_shapes_that_do_not_add_up_are_refused(shapes):
    with pytest.raises(StoreError, match="not what a fit stores"):
        unpack(stored()[0], shapes)
