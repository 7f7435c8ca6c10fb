"""Rejection of what NumPy and scikit-learn convert without a word: masked values, numerals, rounded integers, promises of Dask."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array, issparse

from dkl.errors import InputError, InputTypeError
from dkl.io.packed_arrays import MARKS, OFFSET, SCALE, UnpackedArray, packing_of

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

DATA_REMEDY = "drop the row, fill the gap or scale the column"
PROMISE = "only a promise of a value"
PROMISE_REMEDY = "compute it, or name its shape and dtype: dask.array.from_delayed(value, shape, dtype)"
WORDS_REMEDY = "encode the column, as by sklearn.preprocessing.OneHotEncoder, or drop it"


def in_memory(values: Any, where: str) -> Any:
    """Return `values`: of a Dask array, Series or bag what it computes to, of a zarr array what it holds, decoded.

    An ndarray at an address that its numbers may not have, as one that came over a network, is copied: np.vdot gives it to BLAS as it is,
    and some of OpenBLAS' kernels (ddot of Prescott) end the process there.

    Raises InputError for masked entries, a Delayed or a Future, or a list of such.
    """
    if _promise(type(values)) != "Bag":
        refuse_promise(values, where)
    if hasattr(type(values), "__dask_graph__"):
        refuse_packed_blocks(values, where)
        values = values.compute()
    elif is_zarr_array(values):
        values = np.asarray(unpacked(values, where))
    refuse_masked(values, where)
    if isinstance(values, np.ndarray) and not values.flags.aligned:
        return values.copy()
    return values


def refuse_promise(values: object, where: str) -> None:
    """Raise InputError for a Delayed or a Future, which stands for anything, for a list of such, and for a bag."""
    name, items = _promise(type(values)), values
    if name is not None:
        remedy = {"Bag": f"{where}.compute() is a list of its items, {where}.to_dataframe() a data frame"}.get(
            name, PROMISE_REMEDY
        )
        raise InputTypeError(PROMISE, where=where, got=f"a {name}", wanted="an array", remedy=remedy)
    while isinstance(items, (list, tuple)) or (isinstance(items, np.ndarray) and items.dtype == object and items.ndim):
        if not len(items):
            return
        found = {name for kind in set(map(type, items)) if (name := _promise(kind)) is not None}
        if found:
            some, form = found.pop(), "an array" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
            remedy = {
                "Future": f"gather their values: numpy.asarray(client.gather({where}))",
                "Bag": f"compute their items: [bag.compute() for bag in {where}]",
            }.get(some, f"compute their values: numpy.asarray(dask.compute(*{where}))")
            raise InputTypeError(PROMISE, where=where, got=f"{form} of {some}s", wanted="an array", remedy=remedy)
        items = items[0]


def _promise(kind: type) -> str | None:
    """Return "Delayed", "Future" or "Bag" for a class of Dask's that stands for values whose form is not known; None for others."""
    if kind.__module__ == "dask.delayed" or (kind.__module__.startswith("dask.bag") and kind.__name__ == "Item"):
        return "Delayed"
    if kind.__module__.startswith("dask.bag"):
        return "Bag"
    return "Future" if kind.__module__.startswith("distributed.") and "Future" in kind.__name__ else None


def refuse_masked(values: object, where: str, first: tuple[int, ...] = ()) -> None:
    """Raise InputError for an array with masked entries: NumPy silently uses the values below the mask.

    first: the position in the whole of a part's first entry.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        masked = np.argwhere(np.ma.getmaskarray(values))[0]
        place = ", ".join(map(str, masked + first if first else masked))
        count = int(np.ma.count_masked(values))
        remedy = "fill them, or drop their rows"
        raise InputError("masked values", where=f"{where}[{place}]", got=f"{count} of them", remedy=remedy)


def plain_rows(rows: Any, where: str = "X", first: tuple[int, ...] = ()) -> Any:
    """Return rows (m, d) that another library read as an ndarray or a scipy sparse matrix of real numbers. InputError for others.

    first: row and column in the whole of their first entry.
    """
    refuse_masked(rows, where, first)
    if isinstance(rows, np.ma.MaskedArray):
        rows = rows.data
    elif not (isinstance(rows, np.ndarray) or issparse(rows)):
        try:
            rows = np.asarray(rows)
        except Exception as error:  # libraries refuse in ways of their own
            got = f"{type(rows).__name__}: {error}"
            raise InputTypeError(
                "a block is not an array", where=where, got=got, wanted="numpy or scipy.sparse"
            ) from error
    if rows.dtype.kind not in "biuf":
        got, wanted = f"a block of dtype {rows.dtype}", "float32 or float64"
        raise InputError("rows must be real numbers", where=where, got=got, wanted=wanted)
    return rows


def first_not_finite(rows: Any) -> tuple[int, int, float] | None:
    """Return row, column and value of the first NaN or infinity of numbers (m, features), or None."""
    if issparse(rows):
        entries = coo_array(rows)
        bad = np.flatnonzero(~np.isfinite(entries.data))
        return (int(entries.row[bad[0]]), int(entries.col[bad[0]]), float(entries.data[bad[0]])) if bad.size else None
    places = np.argwhere(~np.isfinite(rows))
    return (int(places[0][0]), int(places[0][1]), float(rows[tuple(places[0])])) if places.size else None


def with_short_indices(rows: Any) -> Any:
    """Return rows, CSR ones with 32-bit indices where these reach: some functions of scikit-learn take no others.

    The values are shared. Rows that are dense, or None, are returned unchanged.
    """
    largest = np.iinfo(np.int32).max
    if (
        not issparse(rows)
        or rows.indices.dtype == rows.indptr.dtype == np.int32
        or max(rows.nnz, rows.shape[1]) > largest
    ):
        return rows
    parts = (rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32))
    return csr_array(parts, shape=rows.shape)


def largest_value(n_squares: int, dtype: DTypeLike = np.float64) -> float:
    """Return the largest |x| with which no sum of `n_squares` squared differences overflows, with a margin for the sums on the way."""
    return float(np.sqrt(float(np.finfo(dtype).max) / (64 * max(1, n_squares))))


def first_beyond(rows: Any, limit: float) -> tuple[int, int, float] | None:
    """Return row, column and value of the first entry, in row order, that is not within `limit`, NaN too, or None."""
    values = rows.data if issparse(rows) else rows
    bad = ~(np.abs(values) <= np.float64(limit))  # not `>`, which passes NaN; in double, as float32 has no such limit
    if not bad.any():
        return None
    if not issparse(rows):
        i, j = np.argwhere(bad)[0]
        return int(i), int(j), float(rows[i, j])
    entry = int(np.argmax(bad))
    row = int(np.searchsorted(rows.indptr, entry, side="right")) - 1
    return row, int(rows.indices[entry]), float(values[entry])


def too_large(where: str, value: float, limit: float, remedy: str = "drop the row or scale the columns") -> InputError:
    """Return the error for a value among the rows that cannot be squared."""
    return InputError(
        "a value is so large that distances overflow", where=where, got=f"{value:g}", wanted=f"|x| <= {limit:.3g}", remedy=remedy
    )  # fmt: skip


def refuse_too_large(rows: object, limit: float, where: str = "X", first: int = 0, **more: str) -> None:
    """Raise InputError for the first value of rows (m, d), CSR or dense, beyond `limit`, or not finite; first: number of the first row."""
    found = first_beyond(rows, limit)
    if found is not None:
        row, column, value = found
        place = f"{where}[{first + row}, {column}]"
        raise too_large(place, value, limit, **more) if np.isfinite(value) else not_finite(place, value)


def refuse_overflow(values: NDArray, rows: Any, others: Any = None) -> None:
    """Raise InputError for kernel values of rows X with others, or themselves, that are not finite; it names the row's value if it can."""
    if np.isfinite(values).all():
        return
    for one, where in ((rows, "X"), (others, "Z")):
        if one is not None:
            refuse_too_large(one, largest_value(one.shape[1]), where)
    raise InputError("values are so large that the kernel overflows", where="X", remedy="scale the columns")


def not_finite(where: str, value: float) -> InputError:
    """Return the error for a NaN or an infinity among the rows at `where`, in scikit-learn's words."""
    return InputError(f"Input X contains {'NaN' if np.isnan(value) else 'infinity'}", where=where, remedy=DATA_REMEDY)


def refuse_text(values: object, where: str) -> None:
    """Raise InputError for text in an array, list or table, numerals too: which of them are numbers is not for us to guess.

    The remedy for numerals is to convert them; words have to be encoded.
    """
    numeral = None
    for name, column in _columns_of_objects(values):
        for text in (value for value in column if isinstance(value, (str, bytes))):
            if not _is_numeral(text):
                remedy = WORDS_REMEDY if where == "X" else f"pass {where} as numbers"
                raise _text(text, name, where, remedy)
            numeral = numeral or (text, name)
    if numeral is not None:
        raise _text(*numeral, where, f"convert it: numpy.asarray({where}, dtype=float)")


def refuse_dates(values: Any, where: str) -> None:
    """Raise InputError for a column of dates, times or text in a data frame or table, by its type: libraries make numbers of dates."""
    for name, kind in _kinds_of_columns(values):
        if re.match("date|time|duration|period|interval", str(kind).lower()):
            got, remedy = (
                f"dtype {kind} in column {name!r}",
                "make numbers of them, as the days since a date, or drop the column",
            )
            raise InputTypeError("dates or times, not numbers", where=where, got=got, wanted="numbers", remedy=remedy)
        if not hasattr(values, "iloc") and re.match(
            "str|utf8|categorical|enum|large_string|dictionary", str(kind).lower()
        ):
            raise _text(values[name][0], repr(name), where, WORDS_REMEDY)


def _kinds_of_columns(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (name, type) of each column of a data frame of pandas or polars, or a table of pyarrow; nothing of others."""
    schema: Any = getattr(values, "schema", None)
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        yield from values.dtypes.items()
    elif hasattr(schema, "types"):
        yield from zip(schema.names, schema.types, strict=True)
    elif isinstance(schema, Mapping):
        yield from schema.items()


def _text(text: str | bytes, column: str, where: str, remedy: str) -> InputTypeError:
    """Return the error for a text in a column (its name, or "") of what should be numbers."""
    plain = str(text) if isinstance(text, str) else bytes(text)  # NumPy's own would be printed with their type
    got = f"{repr(plain)[:60]}{f' in column {column}' if column else ''}"
    return InputTypeError("text, not numbers", where=where, got=got, wanted="numbers", remedy=remedy)


def _is_numeral(text: str | bytes) -> bool:
    """Return whether NumPy reads `text` as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _columns_of_objects(values: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name or "", values) of each column that may hold text; nothing of arrays of numbers."""
    if hasattr(values, "iloc") and hasattr(values, "dtypes"):
        columns = (
            ((repr(name), column) for name, column in values.items()) if hasattr(values, "columns") else [("", values)]
        )
        yield from (one for one in columns if getattr(one[1].dtype, "kind", "O") in "OUS")
    elif isinstance(values, np.ndarray):
        if values.dtype.kind in "OUS":
            yield "", values.flat
    elif isinstance(values, (list, tuple)):
        yield from (("", row if isinstance(row, (list, tuple)) else [row]) for row in values)


# -- arrays of zarr ---------------------------------------------------------------------------------------------------

METADATA = frozenset({"zarr.json", ".zarray", ".zattrs", ".zmetadata", ".zgroup"})
"""Names of zarr's metadata files, next to those of chunks."""
_SOURCE, _MOVES = "original-", ("rechunk", "getitem", "concatenate")
"""Prefixes of the layers of Dask's graphs that hold an array of zarr, and that only move entries."""


def is_zarr_array(X: object) -> bool:
    """Return whether X is an array of zarr, which nothing can be while zarr is not imported, or another thread imports it."""
    kind = getattr(sys.modules.get("zarr"), "Array", None)
    return kind is not None and isinstance(X, kind)


def unpacked(X: object, where: str = "X") -> Any:
    """Return X; of a packed zarr array one whose slices of rows are its values."""
    if not is_zarr_array(X):
        return X
    packing = packing_of(X, where)
    return X if packing is None else UnpackedArray(X, packing)


def refuse_packed_blocks(X: object, where: str) -> None:
    """Raise InputError for a Dask array of the stored numbers of a packed zarr array, at most cut and joined: Dask drops attributes."""
    layers = getattr(getattr(X, "dask", None), "layers", {}) if hasattr(X, "rechunk") else {}
    sources = {name.removeprefix(_SOURCE): layer[name] for name, layer in layers.items() if name.startswith(_SOURCE)}
    if not all(name in sources or name.startswith((_SOURCE, *_MOVES)) for name in layers):
        return  # computed with, as code that decodes it does
    for array in filter(is_zarr_array, sources.values()):
        if packing_of(array, where) is not None:
            got = ", ".join(name for name in (SCALE, OFFSET, *MARKS) if name in array.attrs)
            remedy = "pass the zarr array or its path in its place, or decode it: xarray.open_zarr(...)[name].data"
            raise InputError(
                "stored numbers of a packed zarr array, not its values: Dask drops its attributes", where=where, got=got, remedy=remedy
            )  # fmt: skip


# -- integers that no double is ----------------------------------------------------------------------------------------

LARGEST = 2**53
"""Largest size up to which every integer is a double."""


def refuse_rounded(values: Any, where: str = "X", first: int = 0) -> None:
    """Raise InputError for the first integer of rows, a list or a data frame that would be rounded to a double.

    first: number of the first row.
    """
    if isinstance(values, np.ndarray) or issparse(values):
        if values.dtype.kind == "O":
            _refuse_object(values.flat, where)
        elif (found := _first_of_rows(values)) is not None:
            place = ", ".join(str(index + first * (k == 0)) for k, index in enumerate(found[0]))
            raise rounded(f"{where}[{place}]", found[1])
    elif isinstance(values, (list, tuple)):
        for row in values:
            _refuse_object(row if isinstance(row, (list, tuple)) else [row], where)
    else:
        for name, column in _columns_of_integers(values):
            place = f"{where}, column {name!r}"
            if column.dtype.kind == "O":
                _refuse_object(column, place)
            elif (found := _first_of_rows(column)) is not None:
                raise rounded(place, found[1])


def is_rounded(value: object) -> bool:
    """Return whether a number is an integer that no double is."""
    # Beyond 1024 bits there is no double at all, which others refuse.
    return isinstance(value, int) and LARGEST < abs(value) < 1 << 1024 and _significant_bits(value) > 53


REMEDY = "drop the column if it holds ids; else subtract an offset, or pass floats, rounded as you want them"


def rounded(where: str, value: int, remedy: str = REMEDY) -> InputError:
    """Return the error for an integer that would be rounded."""
    wanted = "integers of at most 2**53, beyond which doubles round them"
    return InputError("an integer would be rounded", where=where, got=value, wanted=wanted, remedy=remedy)


def _significant_bits(value: int) -> int:
    """Return the bits of |value| up to its last 1; an integer with at most 53 of them is a double."""
    size = abs(value)
    return size.bit_length() - ((size & -size).bit_length() - 1)


def _refuse_object(values: Any, where: str) -> None:
    for value in values:
        number = int(value) if isinstance(value, np.integer) else value
        if is_rounded(number):
            raise rounded(where, number)


def _first_of_rows(values: Any) -> tuple[tuple[int, ...], int] | None:
    """Return (position, value) of the first of an array's or sparse matrix' integers of 64 bits that no double is."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return None
    entries: NDArray = values.data if issparse(values) else values
    # Two passes settle nearly all arrays: the exact look is at large entries alone.
    if entries.size == 0 or (entries.max() <= LARGEST and entries.min() >= -LARGEST):
        return None
    if issparse(values):
        whole = coo_array(values)
        entries, places = whole.data, np.stack(whole.coords, axis=1)
    else:
        places = None
    large = np.argwhere((entries > LARGEST) | (entries < -LARGEST))
    for place in large:
        value = int(entries[tuple(place)])
        if is_rounded(value):
            position = place if places is None else places[place[0]]
            return tuple(int(index) for index in position), value
    return None


def _columns_of_integers(values: Any) -> Iterator[tuple[Any, NDArray]]:
    """Yield (name, its values that are there) of columns of integers or objects of a pandas, polars or pyarrow table."""
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        for name, column in values.items():
            if getattr(column.dtype, "kind", "O") in "iuO":
                yield name, column.dropna().to_numpy()
    elif hasattr(values, "get_columns"):
        for column in values.get_columns():
            if str(column.dtype).lower() in ("int64", "uint64", "object", "int128"):
                yield column.name, column.drop_nulls().to_numpy()
    elif hasattr(values, "schema") and hasattr(values.schema, "types"):
        for name, kind in zip(values.schema.names, values.schema.types, strict=True):
            if str(kind) in ("int64", "uint64"):
                yield name, values.column(name).drop_null().to_numpy()
