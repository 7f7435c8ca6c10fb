"""Fit learners to arrays at addresses that their numbers may not have: `python odd_addresses.py NAME ...` names each other answer.

Such arrays come over networks, out of packed records and files that are mapped from the middle. NumPy's functions take them, but
`np.vdot` hands the address on to BLAS, and OpenBLAS' kernels for old processors (OPENBLAS_CORETYPE=Prescott) end the process there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import door_cases as doors
import numpy as np
import scipy.sparse as sp

Moved = Callable[[Any], Any]


def at_odd_address(values: Any) -> Any:
    """Return a copy of an array at an odd address."""
    values = np.ascontiguousarray(values)
    memory = np.empty(values.nbytes + 16, np.uint8)
    first = 1 - memory.ctypes.data % 2
    moved = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    moved[...] = values
    assert not moved.flags.aligned
    return moved


def _sparse(rows: Any, moved: Moved) -> Any:
    found = sp.csr_array(rows)
    found.data, found.indices, found.indptr = moved(found.data), moved(found.indices), moved(found.indptr)
    return found


def cases(name: str) -> Iterator[tuple[str, Callable[[Moved], Any]]]:
    """Yield what a learner may be given as arrays, and its answer for all of them that are moved."""
    case, X, Y, fresh = doors.LEARNERS[name], doors.X, doors.Y, doors.FRESH
    yield "rows", lambda moved: doors.answer(case.fit(moved(X)), moved(fresh))
    yield (
        "rows of 32 bits",
        lambda moved: doors.answer(case.fit(moved(X.astype(np.float32))), moved(fresh.astype(np.float32))),
    )
    yield "sparse rows", lambda moved: doors.answer(case.fit(_sparse(X, moved)), _sparse(fresh, moved))
    if case.takes:
        for kind in (int, float):
            yield (
                f"y of {kind.__name__}",
                lambda moved, kind=kind: doors.answer(case.fit(X, moved(Y.astype(kind))), fresh),
            )
    if case.weights:
        yield "weights", lambda moved: doors.answer(case.fit(X, sample_weight=moved(doors.W)), fresh)
    if case.kernel:
        yield "kernel", lambda moved: doors.answer(case.fit(moved(doors.K), kernel="precomputed"), moved(doors.K[:5]))
    if case.affinity:
        yield "affinity", lambda moved: _found(case.fit(moved(doors.K), affinity="precomputed"))


def _found(fitted: Any) -> Any:
    return next(getattr(fitted, found) for found in ("factor_", "embedding_", "labels_") if hasattr(fitted, found))


def main(names: list[str]) -> None:
    """Print a line for each learner and array whose answer is another at an odd address."""
    for name in names:
        for what, answer in cases(name):
            here, there = (np.asarray(answer(moved)) for moved in (np.array, at_odd_address))
            if here.tobytes() != there.tobytes():
                print(f"{name}, {what}: apart by {np.abs(here - there).max():.1e}")


if __name__ == "__main__":
    main(sys.argv[1:])
