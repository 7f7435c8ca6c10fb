"""Inputs of supervised learners: rows, targets or class labels in their file or another, and kernels valid on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_matrix, check_square
from dkl.blocks.rows.row_sources import RowSource
from dkl.datasets import read_array, read_labels
from dkl.errors import InputError
from dkl.estimators.base.classes import checked_labels
from dkl.io.array_files import first_is_name, is_svmlight, label_line
from dkl.io.paths import AnyPath, table_suffix
from dkl.io.reading import TableOptions, reading
from dkl.io.table_lines import file_name
from dkl.io.tables import has_column, read_numbers
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.runs.inputs.files import Files
from dkl.runs.inputs.readers import CHECKED_BYTES, load_rows, peek_rows, require_room_for_targets, require_table
from dkl.stores.rows import whole_array

if TYPE_CHECKING:
    from dkl.stores.seals import Json


NONNEGATIVE = ("chi2", "additive_chi2")
"""Kernels of histograms, which take no negative features."""
SMALL_MATRIX = 1000
"""Rows of a kernel matrix that is checked before a fit's imports: it takes a second."""


def has_labels(path: AnyPath) -> bool:
    """Return whether a file is of a kind that may hold targets with the rows."""
    return path.suffix.lower() == ".npz" or is_svmlight(path)


@dataclass(frozen=True)
class SupervisedInputs:
    """Rows and targets (n,) or (n, T) that fit together, and the files that they came from."""

    files: Files
    rows: RowSource
    targets: NDArray

    def fingerprints(self) -> Json:
        """Return the fingerprints of the input files for the run's configuration."""
        return self.files.fingerprints(data=(self.rows.n, self.rows.n_features), targets=self.targets.shape)


def read_rows(files: Files, memory_limit: int | None, *, values: bool, is_kernel: bool) -> RowSource:
    """Read the rows, or their shape without `values`; is_kernel: they are a kernel matrix (n, n)."""
    rows = (load_rows if values else peek_rows)(files["data"], memory_limit, files.data_table)
    if is_kernel:
        check_square(rows.n, rows.n_features, str(files["data"]))
        require_dense(rows, files["data"])
    return rows


def require_dense(rows: RowSource, file: AnyPath) -> None:
    """Raise InputError for sparse rows of a precomputed kernel."""
    if rows.is_sparse:
        raise InputError("a precomputed kernel must be dense", where=str(file), remedy="store K.toarray()")


def file_of_targets(files: Files) -> AnyPath:
    """Return the file that has the targets; InputError if there can be none."""
    targets, data = files.paths["targets"], files["data"]
    if targets is None and not has_labels(data) and files.table.target_column is None:
        column = ", or their column by --target-column" if table_suffix(data) is not None else ""
        raise InputError("no targets", where=str(data), remedy=f"name their file by --targets{column}")
    return targets or data


def stored_targets(files: Files) -> NDArray | None:
    """Return the targets in a zarr array, whole; None where they are in a file. Errors as of `whole_array`."""
    targets = files.paths["targets"]
    if targets is None or not targets.is_dir():
        return None
    require_table(targets, files.table.for_targets())
    return whole_array(str(targets), str(targets))


def where_targets(files: Files) -> str:
    """Return where the targets are, for messages."""
    if files.paths["targets"] is None and files.table.target_column is not None:
        return f"column {files.table.target_column!r} of {files['data']}"
    return f"y of {files['data']}" if files.paths["targets"] is None else str(files["targets"])


def target_table(files: Files) -> TableOptions:
    """Return how the file of targets is read, where it is delimited text."""
    return files.table if files.paths["targets"] is None else files.table.for_targets()


def target_numbers(files: Files) -> NDArray:
    """Return the array of numbers in the file of targets, or next to the rows. Errors as of `read_array`."""
    file = file_of_targets(files)
    stored = stored_targets(files)
    if stored is not None:
        return stored
    if table_suffix(file) is not None:
        return read_numbers(file, target_table(files))
    require_table(file, None if files.paths["targets"] is None else files.table.for_targets())
    if files.paths["targets"] is None:
        return read_array(file, "y")
    try:
        return read_array(file, "y" if has_labels(file) else None)
    except InputError as error:
        # Of several arrays none is called X for us: what is missing is y.
        if error.what != "no such array" or len(str(error.wanted).split(", ")) > 1:
            raise
        return read_array(file)


def note_targets(files: Files, rows: RowSource) -> None:
    """Add to the rows' note that the first line of a text file of targets was taken for their name.

    Without one there are as many lines as rows, which leaves nothing to say.
    """
    file = files.paths["targets"]
    if file is not None and table_suffix(file) is not None:
        with reading(file):
            is_name = first_is_name(file, rows.n, target_table(files))
        note = f"{file_name(file)}: line 1 names the {rows.n:,} targets"
        if is_name:
            rows.note = f"{rows.note}; {note}" if rows.note else note


def may_have_targets(files: Files) -> bool:
    """Return whether targets are named, or the rows' file has a y."""
    if files.paths["targets"] is not None:
        return True
    if table_suffix(files["data"]) is not None:
        return has_column(files["data"], files.table, files.table.target_column)
    suffix = files["data"].suffix.lower()
    if suffix != ".npz":
        return is_svmlight(files["data"])
    try:
        read_array(files["data"], "y")
    except InputError as error:
        return error.what != "no such array"
    return True


def check_kernels(rows: RowSource, kernels: list[Kernel]) -> None:
    """Raise InputError for negative features of a kernel that takes none, or one not finite on two rows."""
    histograms = [kernel for kernel in kernels if kernel.name in NONNEGATIVE]
    if histograms and not rows.is_sparse:  # invalid on sparse rows, as the first rows show
        _require_nonnegative(rows, histograms[0])
    for kernel in kernels:
        if not kernel.is_precomputed:
            # Two rows: enough to show a function of another shape or an overflow, and read in no time.
            some = rows.read(0, min(rows.n, 2))
            kernel.diagonal(some)
            if not np.isfinite(kernel.columns(some, some)).all():
                raise InputError("the kernel is not finite", where=kernel.where, remedy="scale the features")


def check_small_matrix(rows: RowSource) -> None:
    """Raise InputError for a small precomputed matrix (n, n) that is not a kernel matrix.
    The fit itself checks a large one, with which it takes as many products."""
    if rows.n <= SMALL_MATRIX:
        check_matrix(np.asarray(rows.read(0, rows.n), np.float64))


def _require_nonnegative(rows: RowSource, kernel: Kernel) -> None:
    # By blocks: of rows on disk no more than one is in memory.
    step = max(1, CHECKED_BYTES // rows.row_bytes)
    for lo in range(0, rows.n, step):
        block = rows.read(lo, min(lo + step, rows.n))
        if block.min() < 0:
            i, j = np.argwhere(block < 0)[0]
            raise InputError(
                "the kernel takes no negative numbers", where=f"{kernel.where}, X[{lo + i}, {j}]", got=block[i, j],
                remedy="shift the columns, or choose another kernel",
            )  # fmt: skip


_ROW = re.compile(r"y\[([0-9]+)\]")


@dataclass(frozen=True)
class ClassInputs(SupervisedInputs):
    """Rows and their class labels, targets (n,); the classes (k,) in order, and each row's number of one (n,)."""

    classes: NDArray
    numbers: NDArray[np.intp]

    @classmethod
    def read(cls, files: Files, memory_limit: int | None, *, values: bool, is_kernel: bool) -> ClassInputs:
        """Read rows and labels from files; without `values` only the shape of the rows.
        is_kernel: the rows must be (n, n). Raises InputError for invalid labels and for fewer than two classes."""
        rows = read_rows(files, memory_limit, values=values, is_kernel=is_kernel)
        require_room_for_targets(file_of_targets(files), memory_limit)
        labels = read_class_labels(files, rows.n)
        try:
            classes, numbers = checked_labels(labels, rows.n)
        except InputError as error:
            raise in_file(error, files, rows.n) from error
        note_targets(files, rows)
        return cls(files, rows, labels, classes, numbers)

    def masks(self) -> list[NDArray[np.bool_]]:
        """Return for each class a mask (n,) of the rows with its label."""
        return [self.targets == name for name in self.classes]

    def sides(self, multi_class: str) -> list[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
        """Return masks (n,) of positive and negative rows for each two-class problem, from the labels alone.

        Two classes: the second is positive. "ovr": each class against the rest; "ovo": each against each that comes later.
        """
        masks = self.masks()
        if len(masks) == 2:
            return [(masks[1], masks[0])]
        if multi_class == "ovr":
            return [(mask, ~mask) for mask in masks]
        # In the order of scikit-learn's one-against-one, by which votes are counted.
        return [(first, other) for k, first in enumerate(masks) for other in masks[k + 1 :]]

    def weights(self, class_weight: Any) -> NDArray[np.float64]:
        """Return weights (n,) of the rows: 1, or n / (k n_c) for a class of n_c rows if "balanced"."""
        weights = np.ones(self.rows.n)
        if class_weight == "balanced":
            for mask in self.masks():
                weights[mask] = self.rows.n / (len(self.classes) * np.count_nonzero(mask))
        return weights


def read_class_labels(files: Files, n: int) -> NDArray:
    """Return labels (n,), of which some may be missing: from their own file or zarr array, or those next to the rows."""
    file, stored = file_of_targets(files), stored_targets(files)
    if stored is None:
        return read_labels(file, n, target_table(files))
    if stored.shape not in ((n,), (n, 1)):
        got = f"shape {stored.shape}"
        raise InputError("not labels of these rows", where=str(file), got=got, wanted=f"({n},)")
    return stored.reshape(n)


def in_file(error: InputError, files: Files, n: int) -> InputError:
    """Return an error about y as one about the file of n labels, by its line in text; others unchanged."""
    if not error.where or not error.where.startswith("y"):
        return error
    row, file, table = _ROW.fullmatch(error.where), file_of_targets(files), target_table(files)
    if row and table_suffix(file) is not None:
        column = "" if table.target_column is None else f", column {table.target_column!r}"
        where = f"{file}, line {label_line(file, n, int(row[1]), table)}{column}"
    else:
        where = " ".join([where_targets(files), error.where.removeprefix("y")]).rstrip()
    return InputError(error.what, where=where, got=error.got, wanted=error.wanted, remedy=error.remedy)


def read(files: Files, settings: Any, *, values: bool) -> ClassInputs:
    """Read the inputs of a learner with a setting `kernel`; see `ClassInputs.read`."""
    is_kernel = settings.kernel == "precomputed"
    return ClassInputs.read(files, settings.memory_limit, values=values, is_kernel=is_kernel)
