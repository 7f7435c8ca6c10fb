"""Predictions of few rows, without the plans and prepared points of a pass over many.

Those take ten times as long as such a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_pieces import Block
from dkl.blocks.rows.row_sources import tidy, working_dtype
from dkl.blocks.session import Session
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.one_blas_thread import one_blas_thread
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.blocks.session import Out
    from dkl.linalg.rows import Rows

FEW, FEW_BYTES = 64, 2 * 10**6
"""Maximum numbers of rows and bytes that count as few: one block of a pass, so that bits are equal."""
KEPT_BYTES = 256 * 10**6
"""Largest bytes of prepared points that a model keeps in addition to its own."""


MAX_KERNELS = 8
"""Most kernels for which a model keeps its points prepared."""


class FewRows:
    """Few dense rows in memory: `map` as that of `RowBlocks`, in this thread."""

    is_sparse = False

    def __init__(self, rows: Rows) -> None:
        self.dtype = working_dtype(rows.dtype)
        self.rows, self.n = tidy(rows, self.dtype), len(rows)

    def map(self, function: Callable[..., Out], *shared: object, only: Collection[int] | None = None) -> list[Out]:
        """Return [function(block, *shared)] of the only block; [] where `only` does not name it."""
        if only is not None and 0 not in only:
            return []
        with one_blas_thread():
            return [function(Block(0, 0, self.n, self.rows, {}), *shared)]


def rows_to_predict(X: Any, session: Session, memory_limit: int | float | str | None) -> RowBlocks | FewRows:
    """Return the checked rows X (m, d) for a model: few in memory, or blocks of them on `session`."""
    is_few = type(X) is np.ndarray and 0 < len(X) <= FEW and X.nbytes <= FEW_BYTES and not session.is_distributed
    if not is_few or X.shape[1] == 0:
        return RowBlocks(X, session, memory_limit)
    parse_bytes(memory_limit)
    return FewRows(X)


class KeptPoints:
    """A model's points and, once few rows were predicted, all that its kernels can compute of them beforehand.

    Copies and pickles have the points alone, which pickle stores once with the model's own.
    """

    def __init__(self, points: Rows) -> None:
        self.points = points
        self._prepared: list[tuple[Kernel, Any]] = []

    def __getstate__(self) -> Any:
        return self.points

    def __setstate__(self, points: Rows) -> None:
        self.__init__(points)  # type: ignore[misc]

    def for_rows(self, rows: RowBlocks | FewRows, kernel: Kernel) -> Rows:
        """Return the points as `kernel` takes them with these rows."""
        if not isinstance(rows, FewRows) or self.points.shape[0] == 0:
            return self.points
        return self.remembered(kernel, lambda: kernel.prepared(self.points))

    def remembered(self, kernel: Kernel, make: Callable[[], Any]) -> Any:
        """Return what `make` has made of the points for this kernel, or makes now, and keep it unless it is large."""
        for of, prepared in self._prepared:
            if of is kernel or of == kernel:
                return prepared
        prepared = make()
        if prepared is not self.points and prepared.nbytes <= KEPT_BYTES:
            self._prepared = [*self._prepared[1 - MAX_KERNELS :], (kernel, prepared)]
        return prepared
