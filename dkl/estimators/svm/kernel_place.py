"""A classifier's kernel matrices, in memory or on disk, and checks that they are kernel matrices."""

from __future__ import annotations

import shutil
import weakref
from contextlib import ExitStack
from functools import partial
from typing import Any

from dkl.blocks.kernels.kernel_checks import check_psd, check_symmetric_products
from dkl.blocks.kernels.kernel_operator import MemoryKernel, RecomputedKernel
from dkl.blocks.kernels.stored_kernel import StoredKernel
from dkl.blocks.memory.plan import Plan
from dkl.blocks.rows.row_blocks import RowBlocks
from dkl.blocks.rows.row_checks import require_finite
from dkl.estimators.base.work_folder import claimed_folder, next_run
from dkl.estimators.svm.checkpoint import Cached, CachedColumns
from dkl.estimators.svm.plan import PlannedPlace
from dkl.linalg.kernels.kernel_columns import Kernel
from dkl.linalg.kernels.kernel_operators import KernelOperator
from dkl.stores.kernels import stored_bytes


class KernelPlace(PlannedPlace):
    """Planned place in which the kernels' matrices are computed."""

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
            check_symmetric_products(operator)
        if kernel.is_precomputed or is_one_of_many:
            check_psd(operator.times, operator.diagonal(), kernel.where if is_one_of_many else "X", operator.dtype)
        return operator

    def _operator(self, kernel: Kernel, plan: Plan, kept: ExitStack) -> KernelOperator:
        if plan.placement == "memory":
            return MemoryKernel.of(kernel, self.source, self.dtype, self.session.threads)
        found = self.recomputed(kernel, "float64", plan.shape["working_set_bytes"], kept)
        return found if plan.placement == "recomputed" else self._stored(kept, found)


def cached_columns(kernels: list[KernelOperator]) -> Cached:
    """Return the cached columns of recomputed kernels: products have other bits without them."""
    return [CachedColumns.of(*kernel.held) if isinstance(kernel, RecomputedKernel) else None for kernel in kernels]


def restore_cache(kernels: list[KernelOperator], cached: Cached) -> None:
    """Have kernels compute again the columns that `cached_columns` returned of them."""
    for kernel, columns in zip(kernels, cached, strict=False):
        if isinstance(kernel, RecomputedKernel) and columns is not None:
            kernel.hold(columns.rows, columns.dtype)
