"""Arrays, declarations and report entries common to the runs of all estimators, and the machine that computed them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError, printable
from dkl.quality import Quality
from dkl.solvers.watch import Outcome, Result
from dkl.stores.arrays import declaration_of
from dkl.stores.registry import FLOATS, INTEGERS, Arrays, StoredArray
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.linalg.rows import Rows


def check_lengths(run: RunStore, folder: str, found: dict[str, NDArray], what: str, where: str, **known: int) -> None:
    """Raise StoreError(what, where) unless dimensions of the same name have the same length in a folder.

    found: the arrays, by the names that their declarations have. known: lengths that follow from elsewhere, by dimension.
    """
    lengths = dict(known)
    for name, values in found.items():
        dims = declaration_of(run.arrays, f"{folder}/{name}", run.path).dims_of(values.ndim)
        for dim, length in zip(dims, values.shape, strict=True):
            if lengths.setdefault(dim, length) != length:
                raise StoreError(what, where=where)


def columns_of(rows: list[dict[str, object]], *names: str) -> dict[str, NDArray]:
    """Return numbers (rows,) by name, of rows that have them all: of a history, or of a report's outputs."""
    return {name: np.array([row[name] for row in rows]) for name in names}


def trained_on(run: RunStore) -> tuple[int, int]:
    """Return the shape (n, d) of the rows in a run's configuration; StoreError if it is missing."""
    try:
        n, n_features = run.config["inputs"]["data"]["shape"]
        return int(n), int(n_features)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StoreError("no shape of the training rows", where=f"{run.path}/config.json", got=error) from error


def check_rows(n: int, numbers: NDArray, where: str, least: int = 0) -> None:
    """Raise StoreError unless all `numbers` are from `least` to n - 1: NumPy would take a negative one from the end."""
    if numbers.size and (numbers.min() < least or numbers.max() >= n):
        got, wanted = f"{numbers.min()} to {numbers.max()}", f"{least} to {n - 1}"
        raise StoreError("row numbers out of range", where=where, got=got, wanted=wanted)


def point_arrays(points: Any) -> dict[str, NDArray]:
    """Return points (m, d), dense or CSR, or (m,) numbers of columns, as arrays to store."""
    if not sp.issparse(points):
        return {"points": np.ascontiguousarray(points)}
    return {
        "points_data": points.data,
        "points_indices": points.indices,
        "points_indptr": points.indptr,
        "points_shape": np.array(points.shape),
    }


def read_points(found: dict[str, NDArray], where: str) -> Rows:
    """Restore the points, dense or sparse, that `point_arrays` stored; StoreError if they are damaged."""
    if "points" in found:
        return found["points"]
    try:
        parts = (found["points_data"], found["points_indices"], found["points_indptr"])
        points = sp.csr_array(parts, shape=tuple(found["points_shape"]))
        points.check_format(full_check=True)  # compiled code reads and writes by its indices
        return points
    except (KeyError, ValueError, OverflowError, IndexError) as error:
        raise StoreError("points that cannot be read", where=where, got=error) from error


def report_of(result: Result, settings: dict[str, object], **own: object) -> dict[str, object]:
    """Build the JSON report of a run; `own`: learner-specific entries."""
    return {
        "outcome": result.outcome.value,
        "remedy": result.remedy,
        "proven": result.proven,
        "asked": result.asked,
        "measure": result.measure,
        "n_iter": result.n_iter,
        **own,
        "quality": None if result.quality is None else result.quality.as_dict(),
        "no_quality": result.no_quality,
        "placement": result.placement,
        "seconds": result.seconds,
        "peak_bytes": result.peak_bytes,
        "restarts": result.restarts,
        "plan": result.plan,
        "settings": settings,
    }


def result_in(run: RunStore, history: list[dict[str, object]] | None = None) -> Result:
    """Read the result stored by `report_of`; StoreError if missing. history: if not in the report."""
    report = run.report()
    if not report:
        raise StoreError("no result yet", where=str(run.path), remedy="`dkl resume` it first")
    try:
        return Result(
            Outcome(report["outcome"]),
            int(report["n_iter"]),
            list(report.get("history", []) if history is None else history),
            dict(report["seconds"]),
            int(report["peak_bytes"]),
            int(report.get("restarts", 0)),
            dict(report.get("plan", {})),
            str(report.get("remedy", "")),
            float(report["proven"]),
            quality=Quality.from_dict(report.get("quality"), f"{run.path}/report.json"),
            no_quality=str(report.get("no_quality", "")),
            asked=float(report["asked"]),
            measure=str(report["measure"]),
            placement=str(report.get("placement", "this process")),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        got = f"{type(error).__name__}: {error}"
        raise StoreError("a damaged report", where=f"{run.path}/report.json", got=got) from error


# Names of the learned columns, in a run's folder, with which columns of other rows are matched.

NAMES = "feature_names"
"""Key of the names in a run's configuration; runs of rows without names have none."""
MOST_NAMED, MOST_CHARACTERS = 5, 200
"""Maximum numbers of names that an error lists, and of characters of those that it wants."""


def describe_names(names: Sequence[str] | None) -> dict[str, list[str]]:
    """Return the names of columns as a run's configuration keeps them; {} without names."""
    return {} if names is None else {NAMES: [str(name) for name in names]}


def stored_names(run: RunStore) -> tuple[str, ...] | None:
    """Return the names of the columns that a run learned from, if any; StoreError for damaged ones."""
    found = run.config.get(NAMES)
    if found is None:
        return None
    inputs = run.config.get("inputs")
    shape = inputs.get("data", {}).get("shape") if isinstance(inputs, dict) else None
    is_list = isinstance(found, list) and bool(found) and all(isinstance(name, str) for name in found)
    if not is_list or (isinstance(shape, list) and len(shape) == 2 and shape[1] != len(found)):
        where, got = f"{run.path}/config.json", str(found)[:MOST_CHARACTERS]
        raise StoreError("damaged names of the columns", where=where, got=got)
    return tuple(found)


def adopt_names(estimator: BaseEstimator, run: RunStore) -> Any:
    """Set `feature_names_in_` of a loaded estimator to its run's column names, if any, and return it."""
    names = stored_names(run)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return estimator


def order_of(names: Sequence[str], known: Sequence[str], where: str) -> list[int]:
    """Return the places among `names` of the learned columns `known`; InputError if names differ."""
    # In dictionaries: tables of 10^5 columns are searched for each of their names.
    places, learned = {name: place for place, name in enumerate(names)}, set(known)
    missing, extra = [n for n in known if n not in places], [n for n in names if n not in learned]
    if missing or extra or len(names) != len(known):
        parts = (f"missing {_listed(missing)}" if missing else "", f"extra {_listed(extra)}" if extra else "")
        got = ", ".join(filter(None, parts)) or f"{len(names)} columns"
        remedy = "rename the columns" if missing else f"leave the others out: --drop {extra[0] if extra else 1}"
        wanted = ", ".join(known)[:MOST_CHARACTERS]
        raise InputError("other columns than were learned from", where=where, got=got, wanted=wanted, remedy=remedy)
    return [places[name] for name in known]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(repr, names[:MOST_NAMED])) + more


# -- declarations ------------------------------------------------------------------------------------------------------
# Arrays that the runs of several learners declare alike: points, dense or CSR, and long histories.

# Points in a run's folder, dense or CSR.


def declared_points(folder: str, point: str, what: str) -> tuple[StoredArray, ...]:
    """Return declarations of what `point_arrays` makes of points (m, d), in `folder`.

    point: what a point is called, in `dims`.
    """
    dense = StoredArray(
        f"{folder}/points",
        (point, "feature"),
        (*FLOATS, "int64"),
        f"{what}; with a precomputed kernel the numbers of its columns, without a second dimension.",
        may_lack_last=True,
        optional=True,
    )
    entries = replace(
        dense.at(f"{folder}/points_data", "The same as CSR, if the rows were sparse: the entries."),
        dims=("entry",),
        dtypes=FLOATS,
        may_lack_last=False,
    )
    numbers = replace(entries, dtypes=("int64", "int32"))
    return (
        dense,
        entries,
        numbers.at(f"{folder}/points_indices", "CSR: the feature of each entry."),
        replace(numbers.at(f"{folder}/points_indptr", "CSR: where each point begins."), dims=(f"{point}_bound",)),
        replace(numbers.at(f"{folder}/points_shape", "CSR: points and features."), dims=("axis",)),
    )


# Storage of a long history as arrays in a run's folder, one a column; a short one is in the report.

FOLDER = "history"
ITERATION = {"iteration": "Of the solver's checks: its iteration."}
CERTIFICATE = {
    "objective": "Of the checks: the objective.",
    "gap": "Of the checks: the duality gap.",
    "relative_gap": "Of the checks: the gap relative to the objective.",
}
"""Columns that most solvers record, and what they mean."""


def declared_history(counts: dict[str, str], values: dict[str, str]) -> tuple[StoredArray, ...]:
    """Return declarations of a history's columns, names to meanings: `counts` (integers), then `values`."""
    value = StoredArray(FOLDER, ("check",), ("float64",), "", optional=True)
    count = replace(value, dtypes=INTEGERS)
    columns = [(count, counts), (value, values)]
    return tuple(one.at(f"{FOLDER}/{name}", text) for one, named in columns for name, text in named.items())


def write_history(run: RunStore, rows: list[dict[str, object]]) -> None:
    """Keep the declared columns that all rows have. Raises DiskError."""
    declared = [one.name for one in (run.arrays or Arrays()).inside(FOLDER)]
    run.write_arrays(FOLDER, columns_of(rows, *(name for name in declared if all(name in row for row in rows))))


def read_history(run: RunStore) -> list[dict[str, object]]:
    """Read the history, a row a check of the solver; StoreError where it is missing or damaged."""
    found = run.read_arrays(FOLDER)
    check_lengths(run, FOLDER, found, "columns of different lengths", f"{run.path}/{FOLDER}")
    names = sorted(found)
    # tolist: Python's numbers, as a row of a fit has them, and JSON takes no others.
    return [dict(zip(names, row, strict=True)) for row in zip(*(found[name].tolist() for name in names), strict=True)]


# -- machine -----------------------------------------------------------------------------------------------------------
# Versions and processor that a run is computed with: logged by each attempt, and compared by the next one.
# The last bits of a result depend on them, so a run that is resumed elsewhere may end in others than one that never stopped.

EVENT = "machine"
"""Name of the event in a run's log."""
KERNELS = "BLAS for"
"""Name of the processor that BLAS has chosen its kernels for, next to the names of packages."""
SHOWN = 40
"""Characters of a version that are shown: a log may hold one of any length."""
LOG = logging.getLogger("dkl")


def log_machine(run: RunStore) -> None:
    """Log what this attempt computes with, and say in a line what differs from the attempt before. Raises DiskError."""
    from dkl.blocks.workers.worker_checks import machine

    earlier = machines_of(run)
    run.log(event=EVENT, **asdict(machine()))
    if not earlier:  # new, or of a version that logged none
        return
    before, now = earlier[-1], machines_of(run)[-1]
    changed = [name for name in now if before.get(name) != now[name]]
    if changed:
        LOG.warning(
            "%s was computed with %s so far, from here on with %s: results may differ in the last bits",
            printable(run.name), _named(before, changed), _named(now, changed),
        )  # fmt: skip


class MachineLog:
    """Callback of a fit that logs the machine with the first row: an attempt that is refused before writes nothing."""

    def __init__(self, run: RunStore) -> None:
        self.run, self.is_logged = run, False

    def __call__(self, row: object) -> None:
        """Log the machine, once."""
        if not self.is_logged:
            self.is_logged = True
            log_machine(self.run)


def machines_of(run: RunStore) -> list[dict[str, str]]:
    """Return what each attempt computed with, in order: versions by package, and the processor as `KERNELS`.

    Events that hold none, of a damaged log, are left out.
    """
    found = []
    for event in run.events():
        versions, kernels = event.get("versions"), event.get("kernels")
        if event.get("event") == EVENT and isinstance(versions, dict) and isinstance(kernels, str):
            texts = {**versions, KERNELS: kernels}
            found.append({printable(name): printable(str(text))[:SHOWN] for name, text in texts.items()})
    return found


def describe_machines(run: RunStore) -> str:
    """Return what a run was computed with, as text: of several attempts what differs; "" if it was not logged."""
    found = machines_of(run)
    if not found:
        return ""
    parts = [_named(found[0], list(found[0]))]
    for before, now in zip(found, found[1:], strict=False):
        if changed := [name for name in now if before.get(name) != now[name]]:
            parts.append(_named(now, changed))
    return "; then ".join(parts)


def _named(machine: dict[str, str], names: list[str]) -> str:
    return ", ".join(f"{name} {machine.get(name)}" for name in names)
