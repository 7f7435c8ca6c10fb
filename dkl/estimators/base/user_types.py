"""Types of what users pass to estimators, one a kind, for annotations alone; `fit` and `predict` check the values."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from typing import Any, TypeAlias

    import numpy as np

    from dkl.blocks.rows.row_sources import RowSource
    from dkl.linalg.rows import Rows
    from dkl.problems.logdet.losses import Loss
    from dkl.solvers.watch import Callback

    UserRows: TypeAlias = object
    """Rows (n, d): an array, a data frame, a sparse matrix, a Dask array, a stored array, a path, or lists of numbers."""
    UserLabels: TypeAlias = object
    """Labels or targets (n,): an array, a series, a list or a path of numbers or names, or None."""
    UserPairs: TypeAlias = object
    """Pairs or triplets of rows: `dkl.Pairs`, `dkl.Triplets`, integers (m, 2) or (m, 3), or None."""
    UserConstraints: TypeAlias = object
    """Symmetric matrices A_t (n, n), sparse or dense, in a list, or one table (m, 4) of their entries: constraint, i, j, value."""
    UserWeights: TypeAlias = object
    """Numbers (m,) >= 0 of rows or of pairs; None for equal weights."""
    UserSeed: TypeAlias = int | np.integer | np.random.RandomState | np.random.Generator | None
    """Seed of all that is random; None for a fresh one."""
    UserCallbacks: TypeAlias = Callback | Iterable[Callback] | None
    """Functions that are called with each row of the history."""
    UserFolder: TypeAlias = str | os.PathLike[str] | None
    """Path of a folder or file."""
    UserKernel: TypeAlias = str | Callable[..., object]
    """Kernel: its name at scikit-learn, or a function of two arrays of rows."""
    UserParams: TypeAlias = dict[str, Any]
    """Parameters of a kernel or a loss, by name."""
    CheckedRows: TypeAlias = Rows | RowSource
    """Rows after their check: in memory, or a source of them in place."""
    UserLoss: TypeAlias = str | Loss
    """Loss of triplets, pairs or constraints: its name, or an object with its value and slopes."""
