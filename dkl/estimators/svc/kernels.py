"""A classifier's kernels: what its settings name, where their matrices stand, and whether they are kernel matrices."""

from __future__ import annotations

import shutil
import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from dkl.blocks.kernel_checks import check_psd, check_symmetric_products
from dkl.blocks.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernel_plan import KernelShape, plan_kernel
from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import MEMORY_SHARE, RowBlocks, machine_memory
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.blocks.stored_kernel import StoredKernel
from dkl.errors import DiskError, InputError
from dkl.estimators.common.kernel_width import width_of
from dkl.estimators.common.work_folder import claimed_folder, next_run
from dkl.estimators.svc.settings import SVCSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.linalg.kernel_operators import KernelOperator
from dkl.problems.column_pass import check_rows
from dkl.resources import format_bytes
from dkl.stores.kernel_tiles import stored_bytes


def kernel_names(settings: SVCSettings) -> list[Any]:
    """The kernel, or each of several."""
    return list(settings.kernel) if isinstance(settings.kernel, (list, tuple)) else [settings.kernel]


def refuse_several(settings: SVCSettings, names: list[Any]) -> None:
    """InputError for several kernels where the solver takes one."""
    if settings.solver == "level" and len(names) > 1:
        raise InputError("one kernel only", where="solver level", got=f"{len(names)} kernels")


def kernels_for_plans(settings: SVCSettings) -> list[Kernel]:
    """The kernels without the widths, which no value of the rows has to be known for."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    return [Kernel(name, None, settings.degree, settings.coef0) for name in names]


def kernels_of(settings: SVCSettings, source: RowSource, kernel_params: dict[str, Any] | None = None) -> list[Kernel]:
    """The kernel, or each of several, which may have parameters of their own, with the widths that the rows give them."""
    names = kernel_names(settings)
    refuse_several(settings, names)
    common = {
        "gamma": settings.gamma,
        "degree": settings.degree,
        "coef0": settings.coef0,
        "kernel_params": kernel_params,
    }
    made = []
    for item in names:
        chosen = {**common, **(item if isinstance(item, dict) else {"kernel": item})}
        gamma = width_of(chosen["kernel"], chosen["gamma"], source)
        params = dict(chosen["kernel_params"] or {})
        of_matrices = callable(chosen["kernel"])  # as SVC calls it
        made.append(Kernel(chosen["kernel"], gamma, chosen["degree"], chosen["coef0"], params, of_matrices))
    return made


def kernel_place(source: RowSource, settings: SVCSettings, session: Session) -> KernelPlace:
    """Where the kernels stand. The level method's bound is of all its cuts: none is evaluated again, in double, at its
    last point, so all its work is in double."""
    dtype = "float64" if settings.solver == "level" else settings.dtype
    return KernelPlace(source, session, dtype, settings.memory_limit, settings.work_dir, settings.solver != "level")


@dataclass(frozen=True)
class KernelPlace:
    """Where the kernels' rows are, in which precision K is held, and within what."""

    source: RowSource
    session: Session
    dtype: str
    memory_limit: int | None
    work_dir: Any = None
    may_be_single: bool = True

    def plan(self, kernels: list[Kernel], largest_machine: int, *, is_whole: bool, may_use_disk: bool) -> Plan:
        """MemoryBudgetError or DiskError where K cannot stand anywhere."""
        place, here = Place.of(self.session), int(MEMORY_SHARE * machine_memory())
        shape = KernelShape(
            self.source.n,
            self.source.n_features,
            self.dtype,
            len(kernels),
            largest_machine if largest_machine < self.source.n else None,
            is_whole,
            self.source.is_in_place and not place.distributed,
            self.source.own_bytes,
        )
        plan = plan_kernel(
            shape,
            processes=place.processes,
            threads=place.threads,
            limit=place.allowed(self.memory_limit) or here,
            driver_limit=self.memory_limit or here,
            may_use_disk=may_use_disk and self.work_dir is not None,
            may_be_single=self.may_be_single,
        )
        place.checked(plan, self.memory_limit)
        if plan.placement == "disk":
            self._check_disk(plan)
        return plan

    def _check_disk(self, plan: Plan) -> None:
        folder = next_run(self.work_dir, "kernel").parent
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
        """K of each kernel; what is on disk goes with `kept`. InputError for what is no kernel matrix."""
        if not (self.source.is_in_memory and plan.placement == "memory"):  # those in memory are checked already
            RowBlocks(self.source, self.session, self.memory_limit, once=True).map(check_rows)
        return [self._checked(kernel, plan, kept, len(kernels) > 1) for kernel in kernels]

    def recomputed(
        self, kernel: Kernel, dtype: str, part_bytes: int = 0, kept: ExitStack | None = None
    ) -> RecomputedKernel:
        """The kernel, recomputed in each product; parts of it beyond `part_bytes` go to the disk, if there is a `work_dir`."""
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
        """On disk, until nobody holds it, and no longer than `kept`; where the disk is too small, as it is."""
        folder = next_run(self.work_dir, "kernel").parent
        if stored_bytes(recomputed.n, self.dtype) > shutil.disk_usage(folder).free:
            return recomputed
        path = claimed_folder(self.work_dir, "kernel")
        remove = partial(shutil.rmtree, path, ignore_errors=True)
        with ExitStack() as unfinished:
            unfinished.callback(remove)
            found = StoredKernel.of(recomputed, path, self.dtype)
            unfinished.pop_all()
        # Once only: a traceback may hold it for longer than `kept`, and another fit may have taken the name by then.
        kept.callback(weakref.finalize(found, remove))
        return found

    def _checked(self, kernel: Kernel, plan: Plan, kept: ExitStack, is_one_of_many: bool) -> Any:
        operator = self._operator(kernel, plan, kept)
        if kernel.is_precomputed and plan.placement != "memory":
            check_symmetric_products(operator)
        if kernel.is_precomputed or is_one_of_many:
            check_psd(operator, kernel.where if is_one_of_many else "X")
        return operator

    def _operator(self, kernel: Kernel, plan: Plan, kept: ExitStack) -> KernelOperator:
        if plan.placement == "memory":
            return MemoryKernel.of(kernel, self.source, self.dtype, self.session.threads)
        found = self.recomputed(kernel, "float64", plan.shape["working_set_bytes"], kept)
        return found if plan.placement == "recomputed" else self._stored(kept, found)
