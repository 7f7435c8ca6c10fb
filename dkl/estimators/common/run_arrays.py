"""What the runs of all estimators keep alike: arrays by name, points dense or sparse, the common part of a report."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import StoreError
from dkl.solvers.result import Result
from dkl.stores.run import RunStore


def read_arrays(run: RunStore, folder: str, *names: str) -> dict[str, NDArray]:
    """Stored arrays, the named ones among them; StoreError where one is not there."""
    found = run.read_arrays(folder)
    for name in names:
        if name not in found:
            raise StoreError(f"no {name} in it", where=f"{run.path}/{folder}", got=", ".join(sorted(found)))
    return found


def point_arrays(points: Any) -> dict[str, NDArray]:
    """Points (m, d), dense or CSR, or (m,) numbers of columns, as arrays to store."""
    if not sp.issparse(points):
        return {"points": np.ascontiguousarray(points)}
    return {
        "points_data": points.data,
        "points_indices": points.indices,
        "points_indptr": points.indptr,
        "points_shape": np.array(points.shape),
    }


def read_points(found: dict[str, NDArray], where: str) -> Any:
    """What `point_arrays` was given."""
    if "points" in found:
        return found["points"]
    try:
        parts = (found["points_data"], found["points_indices"], found["points_indptr"])
        return sp.csr_array(parts, shape=tuple(found["points_shape"]))
    except (KeyError, ValueError, IndexError) as error:
        raise StoreError("points that cannot be read", where=where, got=error) from error


def report_of(result: Result, settings: dict[str, Any], **own: Any) -> dict[str, Any]:
    """The report of a run, JSON; `own`: what it came to."""
    return {
        "outcome": result.outcome.value,
        "remedy": result.outcome.remedy,
        "n_iter": result.n_iter,
        **own,
        "seconds": result.seconds,
        "peak_bytes": result.peak_bytes,
        "restarts": result.restarts,
        "plan": result.plan,
        "settings": settings,
    }
