"""Packed arrays of zarr, as xarray and CF writers store numbers: scale, offset and marks of missing values among the attributes.

    value = scale_factor * stored + add_offset,   NaN where stored is _FillValue or missing_value

as `xarray.open_zarr` decodes them; https://cfconventions.org, sections 2.5.1 and 8.1. zarr itself hands out what is stored.
"""

from __future__ import annotations

import base64
import struct
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

SCALE, OFFSET = "scale_factor", "add_offset"
MARKS = ("_FillValue", "missing_value")
UNSIGNED = "_Unsigned"
DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute by which xarray marks its arrays of zarr's format 2, whose fill value is its mark of missing values."""


@dataclass(frozen=True)
class Packing:
    """Scale and offset of stored numbers, and those that stand for a missing value."""

    scale: float
    offset: float
    marks: tuple[float, ...]

    def decoded(self, stored: NDArray) -> NDArray[np.float64]:
        """Return the values of stored numbers of any shape, NaN where one is missing."""
        found = np.asarray(stored, np.float64) * self.scale + self.offset
        for mark in self.marks:
            found[np.asarray(stored) == mark] = np.nan
        return found


def packing_of(array: Any, where: str) -> Packing | None:
    """Return how a zarr array is packed, None where its numbers are its values; InputError for attributes that are not understood."""
    if array.dtype.kind not in "biuf":
        return None
    attrs = dict(array.attrs)
    marks = [_mark(attrs[name], name, where) for name in MARKS if name in attrs]
    scale, offset = _number(attrs.get(SCALE, 1.0), SCALE, where), _number(attrs.get(OFFSET, 0.0), OFFSET, where)
    is_packed = scale != 1 or offset != 0
    if UNSIGNED in attrs:
        remedy = "decode it: xarray.open_zarr(...), then .to_zarr of its values without an encoding"
        raise InputError("integers that are to be read with another sign", where=where, got=UNSIGNED, remedy=remedy)
    # The fill value of an array that is not packed is 0 by default, and means nothing.
    if DIMENSIONS in attrs and array.metadata.zarr_format == 2 and (array.fill_value or is_packed):
        marks.append(_mark(array.fill_value, MARKS[0], where))
    kept = tuple(sorted({mark for mark in marks if mark is not None and mark == mark}))
    return Packing(scale, offset, kept) if is_packed or kept else None


class UnpackedArray:
    """Values of a packed array, decoded as slices of rows are taken."""

    def __init__(self, array: Any, packing: Packing) -> None:
        self.array, self.packing = array, packing
        self.shape, self.ndim, self.dtype = tuple(array.shape), int(array.ndim), np.dtype(np.float64)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: object) -> NDArray[np.float64]:
        return self.packing.decoded(self.array[rows])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        return np.asarray(self.packing.decoded(self.array[...]), dtype)


def _mark(value: object, name: str, where: str) -> float | None:
    """Return a mark of missing values as a number; xarray writes those of floats in zarr's format 3 as the bytes of a double."""
    if value is None:
        return None
    if isinstance(value, str):
        with suppress(ValueError, struct.error):
            (value,) = struct.unpack("<d", base64.b64decode(value, validate=True))
    return _number(value, name, where)


def _number(value: Any, name: str, where: str) -> float:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value == "NaN" and name in MARKS:
        value = float("nan")
    is_number = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
    if not is_number or not (np.isfinite(float(value)) or name in MARKS):
        wanted, remedy = "a finite number", "decode the array first, or take the attribute away"
        raise InputError(
            f"its attribute {name} is not understood", where=where, got=repr(value)[:60], wanted=wanted, remedy=remedy
        )
    return float(value)
