"""Files that a sweep's points learn from, in its folder: written once for each n, whole or not at all.

Where none are given they are made up: rows by blocks, so that any n is written within little memory, and what is known of them. A learner's
declaration names its `MadeUp`.

Block b of a seed's rows is drawn from the stream (seed, b): of two sizes the smaller holds the first rows of the larger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource
from dkl.datasets import two_gaussians
from dkl.errors import InputError
from dkl.io.reading import TableOptions
from dkl.runs.driver import show_note
from dkl.runs.inputs.files import TABLE, Files
from dkl.runs.inputs.readers import peek_rows, read_pairs, read_triplets
from dkl.runs.output_files import write_rows
from dkl.runs.registry import Declaration
from dkl.runs.supervised.inputs import may_have_targets, read_class_labels, target_numbers
from dkl.runs.sweep.request import SweepRequest
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets
from dkl.stores.folders import create_private, disk_errors

BLOCK = 65_536
"""Rows drawn together: an even number, as the classes alternate."""
LABELLED = 400
"""Rows with a label by default, where labels make the problem's size: 40,000 triplets at the default neighbors."""

Block = tuple[NDArray[np.float64], NDArray[Any] | None]
Side = Callable[[NDArray[Any], int | None, int], dict[str, Any]]
"""side(y, count, seed): arrays of a file by their names, or one under "y"."""


@dataclass(frozen=True)
class MadeUp:
    """Synthetic data: a stream of rows, and side information drawn by their y.
    rows: (X (count, d), y (count,) or None) of a stream. side: what is drawn by y, for the input `side_input`; None: y
    itself is the input "targets" if `targets`."""

    rows: Callable[[int, list[int]], Block]
    n_features: int
    targets: bool = False
    side: Side | None = None
    side_input: str = ""

    def blocks(self, n: int, seed: int) -> Iterator[Block]:
        """Yield the n rows in blocks, in order."""
        for number, start in enumerate(range(0, n, BLOCK)):
            # A whole block even where few of its rows are left: rows are the same at any n.
            X, y = self.rows(BLOCK, [seed, number])
            count = min(BLOCK, n - start)
            yield X[:count], None if y is None else y[:count]

    def bytes_of(self, n: int) -> int:
        """Return the bytes on disk of rows, targets, and side information by the data's own rule."""
        return n * 8 * (self.n_features + self.targets + (3 if self.side else 0))


def gaussians(count: int, stream: list[int]) -> Block:
    """Return rows of the two Gaussians of admm_hu_kwok_2013, section 4.2, in 10 dimensions, with classes."""
    made = two_gaussians(count, random_state=stream)
    return made.X, made.y


def friedman(count: int, stream: list[int]) -> Block:
    """Return rows and Friedman's smooth function of five of ten features, with noise of deviation 1."""
    from sklearn.datasets import make_friedman1

    # scikit-learn takes no list of integers for a seed.
    X, y = make_friedman1(count, 10, noise=1.0, random_state=np.random.RandomState(stream))
    return X, y


def swiss_roll(count: int, stream: list[int]) -> Block:
    """Return rows on a plane rolled up in three dimensions."""
    from sklearn.datasets import make_swiss_roll

    return make_swiss_roll(count, random_state=np.random.RandomState(stream))[0], None


def pairs_of(y: NDArray, count: int | None, seed: int) -> dict[str, NDArray]:
    """Return must-link and cannot-link pairs, by default 0.6 n of each, as admm_hu_kwok_2013, section 4."""
    # The odd one of an odd count is a must-link.
    must, cannot = (None, None) if count is None else (count - count // 2, count // 2)
    pairs = Pairs.from_labels(y, must, cannot, random_state=seed)
    return {"must_link": pairs.must_link, "cannot_link": pairs.cannot_link}


def some_labels(y: NDArray, count: int | None, seed: int) -> dict[str, NDArray]:
    """Return labels of `count` rows, -1 for all others."""
    # A permutation, so that of two counts the smaller has the first rows of the larger.
    labelled = np.random.default_rng(seed).permutation(len(y))[: min(len(y), count or LABELLED)]
    found = np.full(len(y), -1, np.int64)
    found[labelled] = y[labelled]
    return {"y": found}


GAUSSIANS_WITH_PAIRS = MadeUp(gaussians, 10, side=pairs_of, side_input="pairs")
GAUSSIANS_WITH_CLASSES = MadeUp(gaussians, 10, targets=True)
GAUSSIANS_WITH_SOME_LABELS = MadeUp(gaussians, 10, side=some_labels, side_input="targets")
SMOOTH_FUNCTION = MadeUp(friedman, 10, targets=True)
SWISS_ROLL = MadeUp(swiss_roll, 3)


READ_BYTES = 16_000_000
"""Bytes of given rows that are read at a time."""


class Data(Protocol):
    """Data that the points of a sweep learn from."""

    def bytes_of(self, n: int) -> int:
        """Return the bytes on disk for n rows."""

    def is_there(self, n: int) -> bool:
        """Return whether the folder for n rows exists."""

    def files(self, n: int, count: int | None) -> dict[str, str]:
        """Return paths by the inputs' names for n rows, written if missing; count: of side information."""


def data_of(request: SweepRequest, declaration: Declaration, folder: Path) -> Data:
    """Return the data of a sweep, synthetic or given; InputError for options that do not fit to these."""
    if request.files:
        return GivenData(request, declaration, folder)
    if not declaration.generated:
        raise InputError(f"no data are made up for {declaration.task}", where="--data", remedy="name a file")
    module, _, name = declaration.generated.partition(":")
    made: MadeUp = getattr(import_module(module), name)
    if request.n_constraints and made.side is None:
        raise InputError(f"nothing is drawn for {declaration.task}", where="--n-constraints", remedy="leave it out")
    if request.shuffled:
        raise InputError("for rows of --data alone", where="--shuffled", remedy="leave it out")
    return MadeUpData(made, folder, request.data_seed)


class MadeUpData:
    """Rows drawn block by block from a seed."""

    def __init__(self, made: MadeUp, folder: Path, seed: int) -> None:
        self.made, self.folder, self.seed = made, folder, seed

    def bytes_of(self, n: int) -> int:
        """Return the bytes on disk for n rows."""
        return self.made.bytes_of(n)

    def is_there(self, n: int) -> bool:
        """Return whether the folder for n rows exists."""
        return _folder(self.folder, n).exists()

    def files(self, n: int, count: int | None) -> dict[str, str]:
        """Return paths by the inputs' names for n rows, drawn and written if missing; see `Data.files`."""
        made, place = self.made, _place(self.folder, n)
        found = {"data": _rows(place / "X.npy", (n, made.n_features), (X for X, _ in made.blocks(n, self.seed)))}
        if made.targets:
            found["targets"] = _rows(place / "y.npy", (n,), self._classes(n))
        if made.side is not None:
            # Named by its count: points of one n that differ in it share the rows.
            drawn = place / f"{made.side_input}{'' if count is None else f'-{count}'}.npz"
            if not drawn.exists():
                y = np.concatenate(list(self._classes(n)))
                _write_arrays(drawn, made.side(y, count, self.seed))
            found[made.side_input] = drawn
        return {name: str(path) for name, path in found.items()}

    def _classes(self, n: int) -> Iterator[NDArray]:
        return (y for _, y in self.made.blocks(n, self.seed) if y is not None)


class GivenData:
    """Data of a sweep from the user's files: n of the rows, the first or a seed's choice, with their side."""

    def __init__(self, request: SweepRequest, declaration: Declaration, folder: Path) -> None:
        for file in declaration.files:
            if file.required and file.name not in request.files:
                raise InputError(f"no {file.what}", where=f"--{file.name}", remedy="name their file, or give no --data")
        if request.n_constraints:
            raise InputError("for made up data alone", where="--n-constraints", remedy="leave it out")
        takes_targets = any(file.name == "targets" for file in declaration.files)
        table = replace(TableOptions.from_dict(request.table), takes_targets=takes_targets)
        self.given = Files.of(declaration.files, {**request.files, TABLE: table})
        limit = max(request.settings.get("memory_limit", [None]), default=None)
        self.rows = peek_rows(self.given["data"], limit, self.given.data_table)
        # Of the inputs that stand for labels, the one that is named.
        self.other = next((name for name in _READERS if self.given.paths.get(name) is not None), None)
        self.side = None if self.other is None else _READERS[self.other](self.given, self.rows)
        most = max(request.n)
        if most > self.rows.n:
            got, where = f"{most:,}", str(self.given["data"])
            raise InputError("fewer rows than --n asks for", where=where, got=got, wanted=f"at most {self.rows.n:,}")
        self.folder, self.seed, self.shuffled = folder, request.data_seed, request.shuffled
        self.has_targets = "targets" in self.given.paths and (
            may_have_targets(self.given) if self.other is None else False
        )
        show_note(self.rows)

    def bytes_of(self, n: int) -> int:
        """Return the bytes on disk for n rows."""
        return 0 if self._is_all(n) else n * (self.rows.row_bytes + 8 * self.has_targets)

    def is_there(self, n: int) -> bool:
        """Return whether the data for n rows exist: all those given, or a folder."""
        return self._is_all(n) or _folder(self.folder, n).exists()

    def files(self, n: int, count: int | None) -> dict[str, str]:
        """Return paths by the inputs' names for n rows: the files given, or written subsets; see `Data.files`."""
        if self._is_all(n):
            return {name: str(path) for name, path in self.given.paths.items() if path is not None}
        place = _place(self.folder, n)
        chosen, found = self._chosen(n), dict[str, Path]()
        found["data"] = self._take_rows(place, chosen)
        if self.has_targets:
            target = found["targets"] = place / "y.npy"
            if not target.exists():
                taken = self._targets()[chosen]
                write_rows(target, taken.shape, iter([taken]), taken.dtype)
        if self.other is not None and self.side is not None:
            target = found[self.other] = place / f"{self.other}.npz"
            if not target.exists():
                _write_arrays(target, _arrays_of(self.side.select(chosen)))
        return {name: str(path) for name, path in found.items()}

    def _is_all(self, n: int) -> bool:
        # Delimited text by options is written as .npy: each point would have to be given the options again.
        return n == self.rows.n and not self.shuffled and not self.given.table.as_dict()

    def _targets(self) -> NDArray:
        """Return what is known of all rows: numbers, or labels of text."""
        try:
            return np.asarray(target_numbers(self.given))
        except InputError:
            return read_class_labels(self.given, self.rows.n)

    def _chosen(self, n: int) -> NDArray[np.int64]:
        """Return row numbers (n,), ascending; those of a smaller n are among those of a larger one."""
        if not self.shuffled:
            return np.arange(n)
        return np.sort(np.random.default_rng(self.seed).permutation(self.rows.n)[:n])

    def _take_rows(self, place: Path, chosen: NDArray[np.int64]) -> Path:
        source = self.rows
        if source.is_sparse:
            target = place / "X.npz"
            if not target.exists():
                part = source.array[chosen]
                parts = {"data": part.data, "indices": part.indices, "indptr": part.indptr}
                _write_arrays(target, {**parts, "shape": np.array(part.shape)})
            return target
        shape = (len(chosen), source.n_features)
        return _rows(place / "X.npy", shape, _taken(self._loaded(), chosen), source.dtype)

    def _loaded(self) -> RowSource:
        """Return the rows with their entries."""
        from dkl.runs.inputs.readers import is_peeked, load_rows

        # Once more, where only shapes were read so far: a refused sweep reads no values.
        return load_rows(self.given["data"], None, self.given.data_table) if is_peeked(self.rows) else self.rows


def _taken(source: RowSource, chosen: NDArray[np.int64]) -> Iterator[NDArray]:
    """Yield the chosen rows, read in stretches of all."""
    height = max(1, READ_BYTES // source.row_bytes)
    for lo in range(0, int(chosen[-1]) + 1, height):
        inside = chosen[(chosen >= lo) & (chosen < lo + height)]
        if len(inside):
            yield source.read(lo, min(lo + height, source.n))[inside - lo]


def _arrays_of(side: Pairs | Triplets) -> dict[str, NDArray]:
    """Return what a file of pairs or triplets holds."""
    if isinstance(side, Triplets):
        return {"triplets": side.triplets}
    weights = {"weights": side.weights} if side.is_weighted else {}
    return {"must_link": side.must_link, "cannot_link": side.cannot_link, **weights}


_READERS: Mapping[str, Callable[[Files, RowSource], Pairs | Triplets]] = {
    "pairs": read_pairs,
    "triplets": read_triplets,
}


def _folder(folder: Path, n: int) -> Path:
    return folder / f"n{n}"


def _place(folder: Path, n: int) -> Path:
    """Create the folder for n rows and return it."""
    place = _folder(folder, n)
    with disk_errors("could not be made", place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    return place


def _rows(target: Path, shape: tuple[int, ...], blocks: Iterator[NDArray], dtype: Any = np.float64) -> Path:
    if not target.exists():
        # The first block says the type: classes may be integers, or text.
        first = next(blocks)
        write_rows(target, shape, _and(first, blocks), first.dtype if len(shape) == 1 else dtype)
    return target


def _and(first: NDArray, rest: Iterator[NDArray]) -> Iterator[NDArray]:
    yield first
    yield from rest


def _write_arrays(target: Path, arrays: Mapping[str, Any]) -> None:
    """Write an .npz archive that appears complete. Raises DiskError."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    with disk_errors("could not be written", target):
        try:
            with create_private(partial) as file:
                np.savez(file, **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
