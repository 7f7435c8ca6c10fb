"""Where a classifier's kernel matrices stand, and what they take, before any of it is made: one guard for learner, plan and runs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any, Self

from dkl.blocks.kernel_plan import KernelShape, plan_kernel
from dkl.blocks.place import Place
from dkl.blocks.plan import Plan
from dkl.blocks.row_blocks import MEMORY_SHARE, machine_memory
from dkl.blocks.row_sources import RowSource
from dkl.blocks.session import Session
from dkl.errors import DiskError, InputError
from dkl.estimators.common.samples import pool_rows
from dkl.estimators.common.work_folder import next_run
from dkl.estimators.svc.settings import SVCSettings
from dkl.linalg.kernel_columns import Kernel
from dkl.quality import MAX_HELD_OUT
from dkl.resources import format_bytes
from dkl.solvers import svm_pairs


@dataclass(frozen=True)
class PlannedPlace:
    """Where the kernels' rows are, in which precision K is held, and within what."""

    source: RowSource
    session: Session
    dtype: str
    memory_limit: int | None
    work_dir: Any = None
    may_be_single: bool = True
    holdout: float = 0.0

    @classmethod
    def of(cls, source: RowSource, settings: SVCSettings, session: Session) -> Self:
        """As the settings have it. The level method's bound is of all its cuts: none is evaluated again, in double, at its last
        point, so all its work is in double."""
        by_level = settings.solver == "level"
        dtype = "float64" if by_level else settings.dtype
        return cls(source, session, dtype, settings.memory_limit, settings.work_dir, not by_level, settings.holdout)

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
            self._held_out_bytes(),
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

    def _held_out_bytes(self) -> int:
        """Bytes of the rows that are held out, twice, and of those that a linear classifier learns from with scaled copies."""
        if not self.holdout:
            return 0
        held, row = min(self.source.n * self.holdout, MAX_HELD_OUT), max(self.source.row_bytes, 8)
        return int(2 * held * row) + (4 * pool_rows(self.source, self.memory_limit) * row)

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


def plan_machines(
    place: PlannedPlace, kernels: list[Kernel], pairs: list[svm_pairs.TwoClasses], n_steps: int, settings: SVCSettings
) -> Plan:
    """K whole where many products are to come: of several machines, steps or kernels, or of a solver that takes all rows.

    MemoryBudgetError or DiskError where it can stand nowhere.
    """
    most, all_rows = max(len(pair.rows) for pair in pairs), place.source.n
    if settings.solver == "level" and most > svm_pairs.LARGEST_BY_LEVEL:
        raise InputError(
            "too many rows", where='solver="level"', got=most, wanted=f"at most {svm_pairs.LARGEST_BY_LEVEL} a machine"
        )
    in_parts = (
        settings.solver == "accelerated"
        and len(pairs) * n_steps * len(kernels) == 1
        and most > svm_pairs.SMALLEST_IN_PARTS
        and not (kernels[0].is_precomputed or callable(kernels[0].name))
    )
    return place.plan(kernels, most, is_whole=not in_parts, may_use_disk=most == all_rows)
