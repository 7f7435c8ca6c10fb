"""The parameters of a fit on kernel columns: those that decide the result, and those that decide how it is reached."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dkl.linalg.kernel_columns import Kernel


@dataclass(frozen=True)
class ColumnSettings:
    """What the pass over the rows takes. columns: "uniform" or "rpcholesky"; others are given as data, not here."""

    kernel: Any = "rbf"
    gamma: float | None = None
    degree: float = 3
    coef0: float = 1
    kernel_params: dict[str, Any] = field(default_factory=dict)
    n_columns: int = 1000
    columns: str = "uniform"
    fit_intercept: bool = True
    dtype: str = "float64"
    seed: int = 0
    memory_limit: int | None = None
    checkpoint_every: int | str = "auto"
    store_columns: bool = False

    @property
    def kernel_function(self) -> Kernel:
        return Kernel(self.kernel, self.gamma, self.degree, self.coef0, dict(self.kernel_params))

    @property
    def n_folds(self) -> int:
        return 1

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RegressionSettings(ColumnSettings):
    """SLKL: nu a number or "cv"; lam the paper's lambda."""

    nu: float | str = "cv"
    lam: float = 1.0
    solver: str = "active-set"
    sampling: str = "uniform"
    stopping: str = "gap"
    tol: float = 1e-6
    max_iter: int = 10_000
    cv: int = 5
    n_nus: int = 60

    @property
    def n_folds(self) -> int:
        return self.cv if self.nu == "cv" else 1
