"""`dkl cluster`: kernel k-means of the rows of a run, or of rows that the run is applied to, and the files it writes."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.blocks.rows.row_blocks import MEMORY_SHARE
from dkl.blocks.rows.row_sources import row_source
from dkl.blocks.session import Session
from dkl.errors import InputError, MemoryBudgetError
from dkl.estimators.base.run_arrays import stored_names
from dkl.estimators.base.standardize import read_scale
from dkl.io.paths import AnyPath, as_source
from dkl.io.reading import TableOptions
from dkl.resources import format_bytes, machine_memory
from dkl.runs import registry, report
from dkl.runs.backends import Cluster
from dkl.runs.driver import Given, applied
from dkl.runs.inputs.applied_rows import ids_of_file, ids_of_request, learned_from, looked_at
from dkl.runs.inputs.files import check_new, check_unchanged, stored_table
from dkl.runs.interrupt import echo
from dkl.runs.output_files import Output, OutputRequest, RowIds, appearing, check_output, write_rows
from dkl.runs.report import NOT_CONVERGED, SOLVED
from dkl.runs.stored import open_run
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    import os

    from dkl.estimators.kmeans.file import Clusters
    from dkl.estimators.kmeans.learner import KernelKMeans

READ_WHOLE = 64_000_000
"""Bytes of a part of a run up to which all of it is compared with its checksum before it is clustered."""
SHOWN_SIZES = 20
"""Clusters whose sizes are printed."""
COLUMN = "cluster"
"""Name of the column of labels in a .csv file."""


@dataclass(frozen=True)
class ClusterOptions:
    """Options of `dkl cluster`: either `k` new clusters, or those of the file `clusters`; data: other rows than the run's."""

    out: tuple[str, ...]
    k: int | None = None
    clusters: str | None = None
    data: str | None = None
    table: TableOptions = TableOptions()
    seed: int = 0
    n_init: int = 10
    max_iter: int = 300
    picture: str | None = None
    as_json: bool = False
    memory_limit: int | None = None


@dataclass(frozen=True)
class Coordinates:
    """Rows to cluster: `stored` (n, r) in the run, or `made` from rows of a file; row_ids: of the file, if it has any."""

    stored: Any
    made: Output | None
    row_ids: RowIds | None

    @property
    def shape(self) -> tuple[int, int]:
        """Return numbers of rows and of coordinates."""
        n, r = self.stored.shape if self.made is None else self.made.shape
        return int(n), int(r)

    def read(self, session: Session, memory_limit: int | None) -> Any:
        """Return the rows; MemoryBudgetError where those that are made do not fit into this process."""
        if self.made is None:
            return self.stored
        need, limit = int(np.prod(self.shape)) * 8, memory_limit or int(MEMORY_SHARE * machine_memory())
        if need > limit:
            got, wanted = f"a limit of {format_bytes(limit)}", format_bytes(need)
            remedy = "raise --memory-limit, or cluster some of the rows and label the others by --clusters"
            what = "the coordinates of the rows do not fit"
            raise MemoryBudgetError(what, where="dkl cluster", got=got, wanted=wanted, remedy=remedy)
        # Into one array: a list of blocks would be held twice while it is joined.
        rows, start = np.empty(self.shape, self.made.dtype), 0
        for block in self.made.blocks(session):
            rows[start : start + len(block)] = block
            start += len(block)
        return rows


def cluster(path: str, given: ClusterOptions, placing: Given) -> int:
    """Cluster rows, write labels and a picture, and print the result; return the exit code."""
    run = open_run(path)
    registry.require_verb(run, "transform")
    report.require(run)
    targets, picture = _targets(given)
    # Larger parts are compared chunk by chunk as they are read: a factor of many GB is not read twice.
    run.check(whole=True, largest=READ_WHOLE)
    if (given.k is None) == (given.clusters is None):
        raise InputError("how many clusters is not clear", where="--k, --clusters", wanted="one of the two")
    place = Cluster.of(**placing, memory_limit=given.memory_limit)
    rows = _coordinates(run, given, place, wants_ids=any(target.suffix != ".npy" for target in targets))
    # Before the session: no workers are started for what cannot be.
    if given.k is not None and given.k > rows.shape[0]:
        raise InputError("more clusters than rows", where="--k", got=given.k, wanted=f"at most {rows.shape[0]:,}")
    known = None if given.clusters is None else _known_clusters(run, given.clusters, rows.shape[1])
    with place.session() as session:
        found = _found(run, rows, given, known, session)
    for target in targets:
        _write(found, target, rows.row_ids)
    if picture is not None:
        from dkl.plotting import figures

        figures.save(found.model.plot(), picture)
    _show(found, [*map(str, targets)], picture, as_json=given.as_json)
    result = found.model.result_
    if result.outcome.converged:
        return SOLVED
    echo(f"dkl: not converged: {result.ended}: raise --max-iter; the result is written", err=True)
    return NOT_CONVERGED


def _targets(given: ClusterOptions) -> tuple[list[AnyPath], Path | None]:
    """Return the files to write and the picture; InputError where one exists, or is there twice."""
    targets = [check_output(out) for out in given.out]
    picture = None if given.picture is None else check_new(given.picture, option="--picture")
    if picture is not None:
        from dkl.plotting import figures

        figures.check_matplotlib("--picture")
        figures.check_kind(picture)
    twice = next((target for k, target in enumerate(targets) if target in targets[:k]), None)
    if twice is not None:
        raise InputError("the same file twice", where="--out", got=str(twice), wanted="different files")
    return targets, picture


def _coordinates(run: RunStore, given: ClusterOptions, place: Cluster, *, wants_ids: bool) -> Coordinates:
    """Return the run's rows if it stores them, else its result for a file: that of --data, or its own."""
    with report.damages(run, "run", "."):
        stored = None if given.data is not None else registry.kind(registry.task_of(run)).coordinates(run)
    table = stored_table(run)
    if stored is not None:
        has_ids = wants_ids and table.id_column is not None
        ids = ids_of_file(_own_file(run), table) if has_ids else None
        return Coordinates(stored, None, ids)
    data = _own_file(run) if given.data is None else given.data
    request = OutputRequest(
        data, table=given.table, memory_limit=given.memory_limit, scale=read_scale(run), names=stored_names(run)
    )
    request = looked_at(run, request)
    return Coordinates(None, applied(run, request, place), ids_of_request(request) if wants_ids else None)


def _own_file(run: RunStore) -> AnyPath:
    """Return the file that the run learned from; InputError where it is gone or has changed."""
    known = learned_from(run)
    if "path" not in known:
        remedy = "name a file with the rows by --data"
        raise InputError("the run does not say what it was learned from", where=run.name, remedy=remedy)
    return check_unchanged(known, "rows")


def _known_clusters(run: RunStore, path: str, width: int) -> Clusters:
    """Return clusters that were made of rows of this run; InputError for others."""
    from dkl.estimators.kmeans.file import read_clusters

    found = read_clusters(path)
    is_same = found.run.get("report") == _checksum(run) and found.model.n_features_in_ == width
    if not is_same:
        got = f"clusters of {found.run.get('path')}"
        raise InputError("clusters of another run", where=f"--clusters {path}", got=got, wanted=f"those of {run.name}")
    return found


def _found(
    run: RunStore, rows: Coordinates, given: ClusterOptions, known: Clusters | None, session: Session
) -> Clusters:
    """Return new clusters of the rows, or the rows in the clusters that are known."""
    from dkl.estimators.kmeans.file import Clusters
    from dkl.estimators.kmeans.learner import KernelKMeans
    from dkl.estimators.kmeans.plot_data import view_of

    values, about = rows.read(session, given.memory_limit), {"path": str(run.name), "report": _checksum(run)}
    ids = None if rows.row_ids is None else rows.row_ids.ids
    if known is None:
        model = KernelKMeans(
            given.k or 1,
            n_init=given.n_init,
            max_iter=given.max_iter,
            random_state=given.seed,
            memory_limit=given.memory_limit,
        )
        return Clusters(model._fit_on(values, session), about, ids)
    model = known.model
    model.labels_, model.inertia_ = model._labeled(values, session)
    model._view_kept = view_of(row_source(values), model.labels_, model.cluster_centers_)
    # It is of the rows that the clusters were found in, not of these.
    model.result_ = replace(model.result_, history=[])
    return Clusters(model, about, ids)


def _checksum(run: RunStore) -> int:
    """Return a checksum of the result of a run."""
    # Of the report: it names objective, seconds and settings, which no two fits share.
    return zlib.crc32(json.dumps(run.report(), sort_keys=True).encode())


def _write(found: Clusters, target: AnyPath, row_ids: RowIds | None) -> None:
    """Write labels as .csv or .npy, or all of the clustering as .npz."""
    labels = found.model.labels_
    if target.suffix == ".npz":
        with appearing(target) as file:
            found.write(file)
    else:
        write_rows(target, labels.shape, iter([labels]), labels.dtype, column=COLUMN, row_ids=row_ids)


# -- what is shown ------------------------------------------------------------------------------------------------------


def is_clusters(path: str | os.PathLike[str]) -> bool:
    """Return whether `path` is a file or an object, not a run, that may hold clusters."""
    return str(path).lower().endswith(".npz") and as_source(path).is_file()


def load(path: Any) -> KernelKMeans:
    """Return the fitted estimator in a file of clusters; InputError for a file that holds none."""
    from dkl.estimators.kmeans.file import read_clusters

    return read_clusters(path).model


def info(path: str, *, as_json: bool, picture: str | None = None) -> None:
    """Print what a file of clusters holds, and draw it to a file."""
    from dkl.estimators.kmeans.file import read_clusters
    from dkl.plotting import figures

    target = None
    if picture is not None:
        figures.check_matplotlib("--picture")
        target = check_new(picture, option="--picture")
        figures.check_kind(target)
    found = read_clusters(path)
    if target is not None:
        figures.save(found.model.plot(), target)
    _show(found, [path], target, as_json=as_json)


def _show(found: Clusters, files: list[str], picture: Path | None, *, as_json: bool) -> None:
    """Print sizes, inertia and how the fit ended, for a person or a program."""
    facts = found.facts()
    if as_json:
        echo(json.dumps({"files": files, **facts, "picture": None if picture is None else str(picture)}, indent=1))
        return
    sizes, result = facts["sizes"], found.model.result_
    more = f" and {len(sizes) - SHOWN_SIZES} more" if len(sizes) > SHOWN_SIZES else ""
    echo(f"{', '.join(files)}: {facts['n_rows']:,} rows in {len(sizes)} clusters")
    lines = {
        "run": str(facts["run"]),
        "sizes": ", ".join(f"{size:,}" for size in sizes[:SHOWN_SIZES]) + more,
        "inertia": f"{facts['inertia']:.10g}   sum of squared distances to the centers",
        "k-means": f"{result.outcome.value} in {facts['n_iter']} iterations, seed {facts['seed']}",
    }
    for name, value in lines.items():
        echo(report.line(name, value))
    if picture is not None:
        echo(f"picture: {picture}")
