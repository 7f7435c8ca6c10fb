"""A classifier's kernel matrices: the plan of where they are, one guard for learner and runs, and what makes them there."""

from __future__ import annotations

import shutil
import weakref
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from dkl.blocks.kernels.kernel_checks import check_psd, check_symmetric_products
from dkl.blocks.kernels.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernels.stored_kernel import KernelShape, StoredKernel, plan_kernel
from dkl.blocks.memory_plan import Place, Plan, spare_workers
from dkl.blocks.rows.row_blocks import MEMORY_SHARE, RowBlocks, machine_memory
from dkl.blocks.rows.row_pieces import require_finite
from dkl.blocks.rows.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.estimators.base.plain_models import linear_bytes
from dkl.estimators.base.plot_rows import pool_rows
from dkl.estimators.base.work_folder import claimed_folder, next_run
from dkl.estimators.svm.checkpoint import Cached, CachedColumns
from dkl.estimators.svm.settings import SVCSettings
from dkl.linalg.kernels.kernel_columns import DENSE_POINTS_BYTES, POINTS_AT_A_TIME, Kernel
from dkl.linalg.kernels.kernel_operators import KernelOperator
from dkl.quality import MAX_HELD_OUT
from dkl.resources import format_bytes
from dkl.solvers.svm import interface
from dkl.stores.kernels import stored_bytes

STATE_VECTORS = 12
"""Vectors of a machine's rows that are kept of it: row numbers, coefficients, its solution, all twice where rows are held out, its
state for the run, and the history's rows."""
LEVEL_VECTORS = 4
"""Vectors more by the level method: what proves a machine's bound, and the same of all machines in one."""
MACHINE_BYTES = 12_000
"""Bytes of a machine's objects and history."""
SUM_BYTES = 30_000
"""Bytes more of the history of a machine of several kernels: at most some 20 rows of their weights, three times."""
COLUMNS_BYTES = 24_000_000
"""Bytes of tiles of kernel columns, at the stages of their making."""


@dataclass(frozen=True)
class MachineSizes:
    """Sizes of all machines: their `count`, the sum of their `rows`; n rows and classes of the data.

    vectors, history: vectors of its rows, and bytes of objects, that are held of each.
    """

    count: int
    rows: int
    n: int
    classes: int
    vectors: int = STATE_VECTORS
    history: int = MACHINE_BYTES

    @classmethod
    def of(cls, pairs: list[interface.TwoClasses], n: int, solver: str, n_kernels: int) -> Self:
        """Return the sizes of these machines."""
        classes = len({label for pair in pairs for label in pair.between if label is not None})
        vectors = STATE_VECTORS + (LEVEL_VECTORS if solver == "level" else 0)
        history = MACHINE_BYTES + (SUM_BYTES if n_kernels > 1 else 0)
        return cls(len(pairs), sum(len(pair.rows) for pair in pairs), n, classes, vectors, history)

    @property
    def states(self) -> int:
        """Return the bytes that are held of the machines until the model is made."""
        return self.vectors * 8 * self.rows + self.history * self.count

    @property
    def coefficients(self) -> int:
        """Return the bytes of the coefficients of all machines (count, n)."""
        return 8 * self.count * self.n

    @property
    def votes(self) -> int:
        """Return the bytes of the table of machines and classes by which votes are counted, while it is made."""
        # Two classes have one machine, whose sign is the vote.
        return 3 * 8 * self.count * self.classes if self.classes > 2 else 0


def points_bytes(count: int, n_features: int, *, is_sparse: bool) -> int:
    """Return the bytes of points as a kernel takes them for its columns, with the tiles of these."""
    dense = DENSE_POINTS_BYTES if is_sparse else 8 * (count + 2 * min(count, POINTS_AT_A_TIME)) * (n_features + 2)
    return dense + COLUMNS_BYTES


@dataclass(frozen=True)
class KernelPlace:
    """Location of the kernels' rows, precision of K, and limits on memory; plans where K is, and makes it there."""

    source: RowSource
    session: Session
    dtype: str
    memory_limit: int | None
    work_dir: Any = None
    may_be_single: bool = True
    holdout: float = 0.0
    n_classes: int = 2

    @classmethod
    def of(cls, source: RowSource, settings: SVCSettings, session: Session, n_classes: int = 2) -> Self:
        """Build from the settings.

        The level method's bound is of all its cuts: none is evaluated again, in double, at its last point, so all
        its work is in double.
        """
        by_level = settings.solver == "level"
        dtype = "float64" if by_level else settings.dtype
        return cls(
            source, session, dtype, settings.memory_limit, settings.work_dir, not by_level, settings.holdout, n_classes
        )

    def plan(
        self, kernels: list[Kernel], largest_machine: int, sizes: MachineSizes, *, is_whole: bool, may_use_disk: bool
    ) -> Plan:
        """Plan where K is kept; MemoryBudgetError or DiskError if it, or what follows, does not fit anywhere."""
        place, here = Place.of(self.session), int(MEMORY_SHARE * machine_memory())
        shape = KernelShape(
            self.source.n,
            self.source.n_features,
            self.dtype,
            len(kernels),
            # Machines of some rows each take their own part of K, one of all rows takes K as it is.
            largest_machine if largest_machine < self.source.n else None,
            is_whole,
            self.source.is_in_place and not place.distributed,
            self.source.own_bytes,
            sizes.states,
            kernels[0].is_precomputed,
        )
        plan = plan_kernel(
            shape,
            processes=place.processes,
            threads=place.threads,
            # Without any limit a share of the machine, not all: what else runs there needs the rest.
            limit=place.allowed(self.memory_limit) or here,
            driver_limit=self.memory_limit or here,
            may_use_disk=may_use_disk and self.work_dir is not None,
            may_be_single=self.may_be_single,
        )
        plan = replace(plan, stages=plan.stages | self._after(sizes))
        if plan.placement == "memory":
            plan = replace(plan, idle_workers=spare_workers(self.session, 0, "the kernel matrix fits in this process"))
        place.checked(plan, self.memory_limit)
        if plan.placement == "disk":
            self._check_disk(plan)
        return plan

    def _after(self, sizes: MachineSizes) -> dict[str, int]:
        """Return the bytes of the stages after K is released: the quality, and the model.

        The model's support may be all rows.
        """
        source = self.source
        n, d, row = source.n, source.n_features, max(source.row_bytes, 8)
        # Of a mapped file the system drops pages where memory is short.
        held = sizes.states + (source.own_bytes if not source.is_mapped else 0)
        stages = {"the model": held + 3 * n * row + 4 * sizes.coefficients}
        if self.holdout:
            tests = int(min(n * self.holdout, MAX_HELD_OUT))
            decided = n * row + points_bytes(n, d, is_sparse=source.is_sparse) + 4 * 8 * tests * sizes.count
            classes = 1 if self.n_classes == 2 else self.n_classes
            pool = pool_rows(source, self.memory_limit)
            plain = linear_bytes(pool, d, row, classes, is_sparse=source.is_sparse)
            extra = 2 * tests * row + 2 * sizes.coefficients + sizes.votes
            stages["measuring the quality"] = held + extra + max(decided, plain)
        return stages

    def _check_disk(self, plan: Plan) -> None:
        folder = next_run(self.work_dir, "kernel").parent
        # Of the parent: the folder itself is made only once the kernel is known to fit.
        free = shutil.disk_usage(folder).free
        needed = plan.disk["kernel matrix"]
        if needed > free:
            raise DiskError(
                "the kernel matrix does not fit on the disk",
                where="work_dir",
                got=f"{format_bytes(free)} free in {folder}",
                wanted=format_bytes(needed),
                remedy="choose another folder, or leave work_dir out: columns are then recomputed",
            )

    def operators(self, kernels: list[Kernel], plan: Plan, kept: ExitStack) -> list[Any]:
        """Return K of each kernel; what is on disk goes with `kept`. InputError if K is not a kernel matrix."""
        if not (self.source.is_in_memory and plan.placement == "memory"):  # those in memory are checked already
            RowBlocks(self.source, self.session, self.memory_limit, once=True).map(require_finite)
        return [self._checked(kernel, plan, kept, len(kernels) > 1) for kernel in kernels]

    def recomputed(
        self, kernel: Kernel, dtype: str, part_bytes: int = 0, kept: ExitStack | None = None
    ) -> RecomputedKernel:
        """Return the kernel recomputed in products; parts beyond `part_bytes` go to disk if `work_dir` is set."""
        store = None if self.work_dir is None or kept is None else partial(self._stored, kept)
        return RecomputedKernel(
            kernel,
            self.source,
            self.session,
            self.memory_limit,
            dtype,
            part_dtype=self.dtype,
            part_bytes=part_bytes,
            store=store,
        )

    def _stored(self, kept: ExitStack, recomputed: RecomputedKernel) -> KernelOperator:
        """Store the kernel on disk while it is in use, at most for `kept`; unchanged if the disk is too small."""
        folder = next_run(self.work_dir, "kernel").parent
        if stored_bytes(recomputed.n, self.dtype) > shutil.disk_usage(folder).free:
            return recomputed
        path = claimed_folder(self.work_dir, "kernel")
        remove = partial(shutil.rmtree, path, ignore_errors=True)
        # `kept` removes a whole kernel; after an error or interrupt while it is made, the folder is removed here.
        with ExitStack() as unfinished:
            unfinished.callback(remove)
            found = StoredKernel.of(recomputed, path, self.dtype)
            unfinished.pop_all()
        # Once only: a traceback may hold it for longer than `kept`, and another fit may have taken the name by then.
        kept.callback(weakref.finalize(found, remove))
        return found

    def _checked(self, kernel: Kernel, plan: Plan, kept: ExitStack, is_one_of_many: bool) -> Any:
        operator: Any = self._operator(kernel, plan, kept)
        if kernel.is_precomputed and plan.placement != "memory":
            # In memory K is compared with its transpose as it is made; elsewhere there are only its products.
            check_symmetric_products(operator)
        if kernel.is_precomputed or is_one_of_many:
            # Of several kernels a sum is learned, so each must be one by itself.
            check_psd(operator.times, operator.diagonal(), kernel.where if is_one_of_many else "X", operator.dtype)
        return operator

    def _operator(self, kernel: Kernel, plan: Plan, kept: ExitStack) -> KernelOperator:
        if plan.placement == "memory":
            return MemoryKernel.of(kernel, self.source, self.dtype, self.session.threads)
        # In double whatever `dtype` is: products prove the gap, and only a solver's own parts are in `dtype`.
        found = self.recomputed(kernel, "float64", plan.shape["working_set_bytes"], kept)
        return found if plan.placement == "recomputed" else self._stored(kept, found)


def plan_machines(
    place: KernelPlace, kernels: list[Kernel], pairs: list[interface.TwoClasses], n_steps: int, settings: SVCSettings
) -> Plan:
    """Plan K, whole if many products follow: several machines, steps or kernels, or a solver of all rows.

    MemoryBudgetError or DiskError if K does not fit anywhere.
    """
    most, all_rows = max(len(pair.rows) for pair in pairs), place.source.n
    if settings.solver == "level" and most > interface.LARGEST_BY_LEVEL:
        raise InputError(
            "too many rows",
            where='solver="level"',
            got=most,
            wanted=f"at most {interface.LARGEST_BY_LEVEL} a machine",
        )
    in_parts = (
        settings.solver == "accelerated"
        and len(pairs) * n_steps * len(kernels) == 1
        and most > interface.SMALLEST_IN_PARTS
        and not (kernels[0].is_precomputed or callable(kernels[0].name))
    )
    sizes = MachineSizes.of(pairs, all_rows, settings.solver, len(kernels))
    return place.plan(kernels, most, sizes, is_whole=not in_parts, may_use_disk=most == all_rows)


def cached_columns(kernels: list[KernelOperator]) -> Cached:
    """Return the cached columns of recomputed kernels: products have other bits without them."""
    return [CachedColumns.of(*kernel.held) if isinstance(kernel, RecomputedKernel) else None for kernel in kernels]


def restore_cache(kernels: list[KernelOperator], cached: Cached) -> None:
    """Have kernels compute again the columns that `cached_columns` returned of them."""
    # `cached` is empty for a machine of some of the rows.
    for kernel, columns in zip(kernels, cached, strict=False):
        if isinstance(kernel, RecomputedKernel) and columns is not None:
            kernel.hold(columns.rows, columns.dtype)
