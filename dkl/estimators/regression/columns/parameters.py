"""Base of all estimators on kernel columns: their parameters, and the checks of these.

The regressors and the classifiers of the baselines derive from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.kernels.kernel_checks import check_square
from dkl.errors import InputError
from dkl.estimators.base.mixins import KernelParameter
from dkl.estimators.base.settings import check_parameters, gathered
from dkl.estimators.base.validation import random_stream
from dkl.estimators.regression.columns.settings import ColumnSettings
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.resources import parse_bytes

if TYPE_CHECKING:
    from dkl.estimators.base.user_types import UserSeed


class KernelColumnsEstimator(KernelParameter):
    """Parameters of the kernel and of the choice of its columns, and what the estimators make of them."""

    gamma: float | None
    degree: float
    coef0: float
    kernel_params: dict[str, object] | None
    n_columns: int
    columns: object
    dtype: str
    memory_limit: int | str | None
    n_jobs: int | None
    random_state: UserSeed

    SETTINGS: ClassVar[type[ColumnSettings]] = ColumnSettings
    SENT = ("kernel", "kernel_params")

    def _check_parameters(self) -> None:
        check_parameters(self, self.SETTINGS)
        parse_bytes(self.memory_limit)
        if self.kernel_params and not callable(self.kernel):
            raise InputError("only a function takes them", where="kernel_params", got=f"kernel={self.kernel!r}",
                             remedy="give gamma, degree or coef0 by these names")  # fmt: skip
        if not isinstance(self.columns, str):
            _check_columns(self.columns)

    def _kernel(self) -> Kernel:
        return Kernel(self.kernel, self.gamma, self.degree, self.coef0, dict(self.kernel_params or {}))

    @property
    def _given_columns(self) -> NDArray | None:
        return None if isinstance(self.columns, str) else np.asarray(self.columns)

    def _gathered(self, **known: object) -> Any:
        """Return the settings of the parameters; `known`: settings with values other than the parameters'."""
        return gathered(
            self.SETTINGS,
            self,
            **{
                "kernel": self.kernel,
                "kernel_params": dict(self.kernel_params or {}),
                "columns": self.columns if isinstance(self.columns, str) else "given",
                "seed": int(random_stream(self.random_state).randint(np.iinfo(np.int32).max)),
                "memory_limit": parse_bytes(self.memory_limit),
                **known,
            },
        )

    def _check_given(self, n: int) -> None:
        """Raise InputError where the given columns, or a precomputed kernel, do not fit n checked rows."""
        given = self._given_columns
        if given is not None and given.ndim == 1 and (given.min() < 0 or given.max() >= n):
            raise InputError("row numbers out of range", where="columns", got=f"{given.min()} to {given.max()}",
                             wanted=f"0 to {n - 1}")  # fmt: skip
        if given is not None and given.ndim == 2 and self._is_precomputed:
            raise InputError("a precomputed kernel has no points", where="columns", wanted="row numbers (M,)")
        if given is not None and given.ndim == 2 and given.shape[1] != self.n_features_in_:
            raise InputError("points of another number of features", where="columns", got=given.shape[1],
                             wanted=self.n_features_in_)  # fmt: skip
        if self._is_precomputed:
            check_square(n, self.n_features_in_)


def _check_columns(columns: object) -> None:
    """Require different row numbers, or points (M, d); InputError for other columns."""
    try:
        found = np.asarray(columns)
    except ValueError:
        found = np.empty(0, object)
    wanted = '"uniform", "rpcholesky", different row numbers (M,), or points (M, n_features)'
    whole = found.ndim == 1 and found.dtype.kind in "iu" and len(np.unique(found)) == found.size > 0
    points = found.ndim == 2 and found.size > 0 and found.dtype.kind in "iuf" and np.isfinite(found).all()
    if not (whole or points):
        raise InputError("not columns", where="columns", got=f"{type(columns).__name__}", wanted=wanted)
