"""The `dkl` command with blocks of a few rows and a commit after each wave, so that small data makes many of both.

python small_blocks.py 17 fit regression ...     # killed by SIGKILL at its 17th write; 0: never
"""

import builtins
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

SIZES = {
    "dkl.blocks.rows.row_groups.ROWS_IN_GROUP": 32,
    "dkl.linalg.kernels.kernel_columns.SMALLEST_BLOCK": 16,
    "dkl.linalg.kernels.kernel_columns.LARGEST_BLOCK": 16,
    "dkl.problems.regression.column_pass.WAVE_SECONDS": 0.0,
    "dkl.stores.kernels.GRAM_CHUNK_BYTES": 8 * 10 * 80,
    "dkl.runs.regression.kind.VERIFY_BYTES": 1 << 16,
    "dkl.estimators.base.plain_models.BLOCK_BYTES": 1 << 16,
    # The smoothest eigenvectors of more rows than LAPACK takes, on workers where there are any.
    "dkl.linalg.eigen.laplacian_eigenmaps.FILL": 0,
    "dkl.blocks.graph.distributed_products.WORTHWHILE": 0,
    "os.fsync": lambda descriptor: None,  # no power is cut here, and a busy disk takes its time
}


def make_small(setattr_by_name: Callable[[str, Any], None]) -> None:
    for name, value in SIZES.items():
        setattr_by_name(name, value)


class Writes:
    """Counts writes to files, and calls `then` at write `at` and all that follow."""

    def __init__(self, patch: Callable[[Any, str, Any], None], then: Callable[[], None], at: int | None = None) -> None:
        self.then, self.at, self.count = then, at, 0
        for name in ("write", "pwrite"):
            patch(os, name, self._instead(getattr(os, name)))
        patch(io, "open", self._opening(io.open))  # pathlib's, and so zarr's
        patch(builtins, "open", self._opening(builtins.open))

    def _instead(self, real: Any) -> Any:
        def write(descriptor: int, *arguments: Any) -> Any:
            if descriptor > 2:
                self._take()
            return real(descriptor, *arguments)

        return write

    def _opening(self, real: Any) -> Any:
        def opening(file: Any, mode: str = "r", *arguments: Any, **keywords: Any) -> Any:
            if set(mode) & set("wax+") and not isinstance(file, int):
                self._take()
            return real(file, mode, *arguments, **keywords)

        return opening

    def _take(self) -> None:
        self.count += 1
        if self.at is not None and self.count >= self.at:
            self.then()


def _slow(real: Callable[..., Any]) -> Callable[..., Any]:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.1)
        return real(*arguments)

    return slow


def set_by_name(name: str, value: Any) -> None:
    """`setattr` for good, by "module.name"."""
    module, _, attribute = name.rpartition(".")
    setattr(import_module(module), attribute, value)


def main() -> None:
    from dkl.cli.main import main as dkl
    from dkl.estimators.logdet.store import PathCheckpointer
    from dkl.estimators.regression.store import StoredPass
    from dkl.estimators.svm.checkpoint import MachineCheckpointer
    from dkl.runs import registry

    registry.TASKS["ridge"] = "ridge_kind"  # a learner of the tests
    make_small(set_by_name)
    place = int(sys.argv[1])
    if place:
        Writes(setattr, lambda: os.kill(os.getpid(), signal.SIGKILL), place)
    else:  # long enough to be interrupted
        for keeper, name in (
            (StoredPass, "after"),
            (MachineCheckpointer, "on_state"),
            (PathCheckpointer, "on_solution"),
        ):
            setattr(keeper, name, _slow(getattr(keeper, name)))
    sys.argv = ["dkl", *sys.argv[2:]]
    dkl()


if __name__ == "__main__":
    main()
