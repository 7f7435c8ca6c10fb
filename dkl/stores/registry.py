"""The registry of stored arrays: what each is called, its dimensions, types and chunks, and what it means.

An array is declared once, and all else follows from the declaration: how it is made and what is compared when it is
opened (stores/arrays.py), and the page that describes a run's folder (stores/page.py, stores/README.md). Arrays that
the stores make themselves are declared next to their code; a learner declares its own in its own folder, whose name is
that of its task, so nothing here knows a learner, and none is imported before one of its runs is opened:

    # dkl/estimators/mine/arrays.py
    ARRAYS = Arrays(StoredArray("model/weights", ("output", "column"), ("float64",), "Weights of the columns."))

One outside this package contributes its module by name:

    contribute("mine", "another_package.arrays")

Here is neither zarr nor numpy: `import dkl` takes its lines from here.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

FLOATS = ("float64", "float32")
INTEGERS = ("int64",)
CHECKED = ("bytes", "crc32c")
"""Codecs of arrays with checksums: zarr's defaults read flipped bits as numbers (37 of 41 tried).

crc32c misses none and costs a memory pass. State is not compressed: its bits are noise."""
UNCHECKED = ("bytes",)
COMPRESSED = ("bytes", "zstd", "crc32c")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Chunks:
    """Rule on how an array is cut into chunks.

    cut: along its first dimension; the others are whole in every chunk. Else the array is one chunk. length: of a chunk
    along the first dimension; None: as the writer likes.
    """

    name: str
    cut: bool
    length: int | None = None

    def allow(self, shape: Shape, chunks: Shape) -> bool:
        """Return whether an array of shape `shape` may have chunks of shape `chunks`."""
        # Other dimensions are whole in every chunk: a reader of some rows then reads one file a chunk.
        if chunks[1:] != _at_least_1(shape[1:]):
            return False
        first = max(1, shape[0])
        return chunks[0] == (self.length or chunks[0] if self.cut else first) and 1 <= chunks[0] <= first

    def of(self, shape: Shape, rows: int | None = None) -> Shape:
        """Return the chunks of a new array; `rows` of the first dimension in each, if the writer chooses."""
        first = max(1, shape[0])
        return (self.length or min(first, rows or first) if self.cut else first, *_at_least_1(shape[1:]))


def _at_least_1(shape: Shape) -> Shape:
    """Return a shape with each length at least 1: zarr has no chunks of length 0."""
    return tuple(max(1, length) for length in shape)


WHOLE = Chunks("one chunk", cut=False)
ROWS = Chunks("whole rows", cut=True)
ONE_EACH = Chunks("one each of the first dimension", cut=True, length=1)


@dataclass(frozen=True)
class ArrayLayout:
    """Layout of an array on disk by its metadata. dims: None if not named; version: 1 if not given."""

    shape: Shape
    chunks: Shape
    dtype: str
    dims: tuple[str | None, ...] | None
    codecs: tuple[str, ...]
    version: object = 1


@dataclass(frozen=True)
class Fault:
    """A difference of a layout from its declaration: what is wrong, got, wanted."""

    what: str
    got: object
    wanted: object


@dataclass(frozen=True)
class StoredArray:
    """The declaration of an array, or of all whose path in the run's folder matches `path` (`*` within a name).

    dims: names of the dimensions, the same name for the same thing throughout a learner. dtypes: those allowed, by
    NumPy's names. doc: what it means, with formula or units. chunks, codecs (zarr's names, in order). fill: what zarr
    gives for a chunk that is not there: None is NaN (or -1 for integers), so that a chunk that was never written is seen
    and never taken for zeros, zarr having no other sign of it; 0 where a foreign format asks for it, and then every
    chunk is written, also one of zeros. separator: of the chunk's numbers in its file's name. version: of meaning and
    layout; written to the array's attributes from 2 on. optional: not in every run. may_lack_last: whether the last
    dimension may be missing. named: whether the dimensions'
    names are written; a foreign format may have none.
    """

    path: str
    dims: tuple[str, ...]
    dtypes: tuple[str, ...]
    doc: str
    chunks: Chunks = WHOLE
    codecs: tuple[str, ...] = CHECKED
    fill: int | None = None
    separator: str = "/"
    version: int = 1
    optional: bool = False
    may_lack_last: bool = False
    named: bool = True

    @property
    def name(self) -> str:
        """Return the last part of the path."""
        return self.path.rpartition("/")[2]

    def at(self, path: str, doc: str | None = None) -> StoredArray:
        """Return this declaration for another `path`, with its own `doc` if given."""
        return replace(self, path=path, doc=doc or self.doc)

    def matches(self, path: str) -> bool:
        """Return whether this declares the array at `path` in a run's folder."""
        mine, parts = self.path.split("/"), path.split("/")
        # Part by part, as the * of fnmatch matches slashes too.
        return len(mine) == len(parts) and all(map(fnmatchcase, parts, mine))

    def fault(self, found: ArrayLayout) -> Fault | None:
        """Return the first thing in which a layout is not as declared; None if it is."""
        if found.version != self.version:
            return Fault("an array of another version", found.version, self.version)
        dims = self.dims_of(len(found.shape))
        if len(found.shape) != len(dims):
            return Fault("an array of other dimensions", f"shape {found.shape}", f"({', '.join(self.dims)})")
        if not self._may_be_called(found.dims, dims):
            return Fault("an array of other dimensions", found.dims, dims)
        if found.dtype not in self.dtypes:
            return Fault("an array of another type", found.dtype, " or ".join(self.dtypes))
        if found.codecs != self.codecs:
            return Fault("an array with other codecs", ", ".join(found.codecs), ", ".join(self.codecs))
        if not self.chunks.allow(found.shape, found.chunks):
            return Fault("an array in other chunks", f"{found.chunks} of {found.shape}", self.chunks.name)
        return None

    def dims_of(self, count: int) -> tuple[str, ...]:
        """Return the names of the dimensions of an array with `count` of them."""
        return self.dims[:-1] if self.may_lack_last and count == len(self.dims) - 1 else self.dims

    def _may_be_called(self, found: tuple[str | None, ...] | None, dims: tuple[str, ...]) -> bool:
        if found is None:
            return not self.named
        # Before this registry small arrays had their dimensions numbered: weights_0, weights_1, or axis_0.
        return found == dims or all(str(dim).endswith(f"_{axis}") for axis, dim in enumerate(found))


class Arrays:
    """The arrays that the runs of a learner may hold; files: what else they may, path to meaning, for the page."""

    def __init__(self, *declared: StoredArray, files: Mapping[str, str] | None = None) -> None:
        self.declared, self.files = declared, dict(files or {})

    def __iter__(self) -> Iterator[StoredArray]:
        return iter(self.declared)

    def find(self, path: str) -> StoredArray | None:
        """Return the declaration of the array at `path`; None if undeclared."""
        return next((one for one in self.declared if one.matches(path)), None)

    def inside(self, folder: str) -> list[StoredArray]:
        """Return the declared arrays that are directly in `folder`."""
        return [one for one in self.declared if one.path.rpartition("/")[0] == folder]


OLDEST_TASK = "pairwise"
"""Task of runs that name none: the oldest, from before there were other learners."""

_MODULES = {
    "laplacian": "dkl.estimators.qsdp.basis.model:PROPAGATION",
    "logdet": "dkl.estimators.logdet.model",
    "metric": "dkl.estimators.logdet.model:METRIC_ARRAYS",
    "mvu": "dkl.estimators.qsdp.basis.model:UNFOLDING",
    "pairwise": "dkl.estimators.pairwise.arrays",
    "regression": "dkl.estimators.regression.model",
    "svc": "dkl.estimators.svm.model",
}
_CONTRIBUTED: dict[str, str] = {}


def contribute(learner: str, module: str) -> None:
    """Register the module whose `ARRAYS` are those of a learner outside this package; imported when first asked for.

    learner: what the runs' configuration calls their task.
    """
    _CONTRIBUTED[learner] = module


def learners() -> tuple[str, ...]:
    """Return the names, sorted, of this package's learners that declare arrays for their runs."""
    return tuple(sorted(_MODULES))


def arrays_of(learner: object) -> Arrays | None:
    """Return the arrays of a learner (None: of runs that name none); None if it declares none."""
    name = OLDEST_TASK if learner is None else learner
    if not isinstance(name, str):
        return None
    # A run's configuration may say anything: nothing is imported by its word alone.
    module = _CONTRIBUTED.get(name) or _MODULES.get(name)
    if module is None:
        return None
    module, _, constant = module.partition(":")
    arrays: Arrays = getattr(importlib.import_module(module), constant or "ARRAYS")
    return arrays
