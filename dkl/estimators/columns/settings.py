"""The parameters of a fit on kernel columns, those that decide the result and those that decide how it is reached; its plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from dkl.blocks.column_plan import RowsHeld, Shape, plan_columns
from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.row_sources import RowSource
from dkl.linalg.kernel_columns import Kernel
from dkl.problems.column_pass import block_rows
from dkl.resources import n_cpus


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

    @property
    def whole_columns(self) -> bool:
        """Whether the solver takes the columns themselves, not sums of them."""
        return False

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

    @property
    def whole_columns(self) -> bool:
        return self.solver == "paper"


def n_candidates(n: int, settings: ColumnSettings, given: Any) -> int:
    return len(given) if given is not None else min(settings.n_columns, n)


def plan_fit(
    source: RowSource,
    n_columns: int,
    n_targets: int,
    settings: ColumnSettings,
    place: Place,
    *,
    has_folder: bool,
    refuse: bool = True,
) -> Plan:
    """What a fit will take; MemoryBudgetError where that is more than it may."""
    machine = int(MEMORY_SHARE * machine_memory())
    own_limit = machine if settings.memory_limit is None else settings.memory_limit
    limit = place.allowed(settings.memory_limit)
    shape = Shape(
        n_columns,
        n_targets,
        settings.n_folds,
        settings.dtype,
        block_rows(n_columns, source.n_features, settings.dtype),
        solvers=n_cpus() if place.distributed else place.threads,
        columns=settings.columns,
        store_columns=settings.store_columns,
        checkpoints=has_folder,
        whole_columns=settings.whole_columns,
        in_place=settings.kernel == "rbf" and not source.is_sparse,
    )
    plan = plan_columns(
        rows_held(source, place),
        shape,
        place,
        limit or machine // (place.processes if place.distributed else 1),
        own_limit=own_limit,
        may_use_disk=has_folder and not settings.whole_columns,
    )
    return plan.validate() if refuse else plan


def rows_held(source: RowSource, place: Place) -> RowsHeld:
    """How a process of `place` comes by the rows."""
    if source.is_mapped or (source.is_in_memory and not place.distributed):
        array: Any = source.array
        straight = source.is_in_memory and (source.is_sparse or array.flags.c_contiguous)
        kept, copies = "here", 0 if straight else 1
    elif source.is_stored:
        kept, copies = "read", 1
    elif source.is_dask:
        kept, copies = "sent" if place.distributed else "read", 2
    else:
        kept, copies = "sent" if place.distributed else "streamed", 1
    return RowsHeld(
        source.n, source.n_features, source.row_bytes, kept, source.rows_per_chunk, source.is_sparse, copies
    )
