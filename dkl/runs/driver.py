"""Verbs of a run, written once for all learners: plan, fit, resume, verify, info, picture, predict.

What a learner does differently is behind its `RunKind`. Functions here return the command's exit code, or print; the
same verbs for Python are in `dkl/runs/public.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.blocks.memory_plan import Plan
from dkl.blocks.session import Session
from dkl.blocks.workers.worker_checks import RequiredPaths, bytes_of, check_workers
from dkl.errors import DklError, InputError, InterruptedRunError, MemoryBudgetError, StoreError, printable
from dkl.estimators.base.progress import progress
from dkl.estimators.base.run_arrays import MachineLog, describe_names, stored_names
from dkl.estimators.base.settings import FOLDER
from dkl.estimators.base.standardize import check_standardize, read_scale
from dkl.plotting.figures import can_draw
from dkl.resources import machine_memory
from dkl.runs import registry, report
from dkl.runs.backends import Cluster
from dkl.runs.estimate import check_disk, describe_disk, describe_picture, plan_of, worker_peak
from dkl.runs.inputs.applied_rows import ids_of_request, looked_at
from dkl.runs.inputs.files import Files, Lazy, check_new
from dkl.runs.inputs.readers import files_within, is_peeked
from dkl.runs.interrupt import Interrupt, echo, resume_command
from dkl.runs.output_files import Output, OutputRequest, check_output, write_rows
from dkl.runs.registry import RunKind
from dkl.runs.report import (
    Comparison,
    Spending,
    compare,
    conclude,
    conclude_again,
    draw_picture,
    has_room,
    picture_bytes,
)
from dkl.runs.stored import new_run, open_run, settings_of
from dkl.solvers.watch import Result, Watch
from dkl.stores.folders import remove_folders, require_place
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.blocks.rows.row_sources import RowSource
    from dkl.estimators.base.settings import Settings
    from dkl.solvers.watch import Callback
    from dkl.stores.seals import Json

Given = Mapping[str, Any]


# -- plan ---------------------------------------------------------------------------------------------------------------


def plan(task: str, files: Given, out: str, picture: bool, chosen: Given, placing: Given) -> None:
    """Print what a fit takes, or refuse it as the fit would. Reads shapes, writes nothing."""
    declaration = registry.declaration(task)
    settings: Any = declaration.settings(**chosen).checked()
    check_standardize(settings)
    place = new_run(out, writes=False)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    inputs = declaration.read(Files.of(declaration.files, files), settings, values=False)
    show_note(inputs.rows)
    kind = registry.kind(task)
    settings = kind.adapted(settings, inputs)
    with cluster.planned() as session:
        made, disk = check_fits(kind, inputs, settings, session, place.parent)
        estimate = kind.estimate(inputs, settings, made, session)
    rows, lines = inputs.rows, [*estimate.before, made.describe()]
    if picture:
        lines.append(describe_picture(picture_bytes(kind, rows.n, rows.n_features, rows.own_bytes)))
    for line in (*lines, describe_disk(disk, place.parent), *estimate.after):
        echo(line)


def show_note(rows: RowSource | None) -> None:
    """Print how delimited text was read."""
    if rows is not None and rows.note:
        echo(f"note: {rows.note}", err=True)


def check_fits(kind: RunKind, inputs: object, settings: Settings, session: Session, folder: Path) -> tuple[Plan, int]:
    """Return (plan, bytes of disk); MemoryBudgetError or DiskError if it does not fit."""
    made = plan_of(kind, inputs, settings, session)
    disk = kind.disk_bytes(inputs, settings, made)
    check_disk(disk, folder, f"choose another --out, or {kind.declaration.less_disk}")
    return made, disk


# -- begin and resume ---------------------------------------------------------------------------------------------------


def begin(task: str, files: Given, out: str, picture: bool, chosen: Given, placing: Given) -> int:
    """Check everything, make the run, and work on it to its end. The exit code."""
    settings: Any = registry.declaration(task).settings(**chosen).checked()
    check_standardize(settings)
    if picture and not can_draw():
        raise InputError("matplotlib is missing", where="--picture", remedy="pip install 'dkl[report]'")
    place = new_run(out)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    planned = cluster.planned() if cluster.address is None else None  # one that runs is asked when we are connected
    kind, inputs, settings = ready(task, files, settings, planned, place.parent)
    interrupt = kind.interrupt(resume_command(place.name), settings)
    with interrupt, cluster.session() as session:
        run = place.create(config_of(kind, inputs, settings, picture))
        with _worth_keeping(kind, run):
            held = Lazy(lambda: read_again(kind, run, settings), inputs)
            del inputs  # for a fit to release them
            check_places(kind, run, held, settings, session)
            result = work(kind, run, held, settings, session, interrupt)
            return conclude(kind, run, result)


def ready(
    task: str,
    files: Given,
    settings: Settings,
    planned: AbstractContextManager[Session] | None,
    folder: Path,
) -> tuple[RunKind, Any, Any]:
    """Return (`RunKind`, inputs, settings) of a new run below `folder`, with every value checked.
    It must fit on the workers of `planned`, if given. Raises InputError, MemoryBudgetError, DiskError."""
    declaration = registry.declaration(task)
    named = Files.of(declaration.files, files)
    # Shapes first: what does not fit is refused before gigabytes are read.
    inputs = declaration.read(named, settings, values=False)
    show_note(inputs.rows)
    kind = registry.kind(task)
    settings = kind.adapted(settings, inputs)
    if planned is not None:
        with planned as session:
            check_fits(kind, inputs, settings, session, folder)
    if is_peeked(inputs.rows):
        inputs = declaration.read(named, settings, values=True)
    kind.check_values(inputs, settings)
    return kind, inputs, settings


def config_of(kind: RunKind, inputs: Any, settings: Any, picture: bool = False) -> Json:
    """Return the configuration of a new run, as its folder stores it."""
    from importlib.metadata import version

    task = kind.declaration.task
    return {
        "command": f"fit {task}",
        "task": task,
        "dkl": version("dkl"),
        "inputs": inputs.fingerprints(),
        "settings": settings.as_dict(),
        "picture": picture,
        **describe_names(getattr(inputs.rows, "names", None)),
        **kind.config(inputs),
    }


def check_places(kind: RunKind, run: RunStore, inputs: Lazy, settings: Settings, session: Session) -> None:
    """Check that workers of a foreign cluster see the data that they open, and the folders; errors as `check_workers`."""
    # Our own workers are processes of this machine.
    if not session.is_distributed or session.own:
        return
    files: dict[str, int] = {}
    if kind.needs_inputs(run) and inputs().rows.is_stored:
        path = inputs().files["data"]
        files[str(path)] = bytes_of(path)
    folders = kind.written_by_workers(run, settings)
    # The token is in the folder's lock: workers that see another folder of the same path do not find it.
    token = f"attempt {run.attempt}" if folders[:1] == [str(run.path)] else ""
    check_workers(session, RequiredPaths(files, folders, token))


@contextmanager
def _worth_keeping(kind: RunKind, run: RunStore) -> Iterator[None]:
    """Close a new run at the end; delete its folder if the inputs were invalid and it holds no progress."""
    try:
        with run.at_its_place():
            yield
    except (InputError, MemoryBudgetError):
        if not kind.has_progress(run):
            run.remove()  # made just now, by us
        raise
    finally:
        run.close()


def resume(path: str, changes: Given, placing: Given) -> int:
    """Resume a run from its last commit; return its exit code, of a complete run the earlier one."""
    run = open_run(path, to_work=True)
    task, settings = registry.task_of(run), settings_of(run, changes)
    cluster = Cluster.of(**placing, memory_limit=settings.memory_limit)
    kind = registry.kind(task)
    inputs: Lazy = Lazy(lambda: read_again(kind, run, settings))
    with report.damages(run, "run", "."):
        if run.is_complete and not kind.goes_further(run, dict(changes)):
            damage = damaged_result(kind, run)
            if damage is None:
                run.publish()  # of one that was kept while its store was away
                return conclude_again(kind, run)
            echo(f"note: the result is damaged and is made again: {damage}", err=True)
        if kind.needs_inputs(run):
            inputs()  # an error of theirs comes before any cluster is started
    interrupt = kind.interrupt(resume_command(run.name, dict(changes)), settings)
    with resumed(kind, run), interrupt, cluster.session() as session:
        check_places(kind, run, inputs, settings, session)
        return conclude(kind, run, work(kind, run, inputs, settings, session, interrupt))


def damaged_result(kind: RunKind, run: RunStore) -> StoreError | None:
    """Return the first error in a complete run's result, all bytes read; None if intact.
    Raises StoreError if what the result would be recomputed from is damaged."""
    return next(iter(_damaged_parts(kind, run, whole=True).values()), None)


def _damaged_parts(kind: RunKind, run: RunStore, *, whole: bool) -> dict[str, StoreError]:
    """Map each damaged part that a fit recomputes to its error; raise StoreError for any other one."""
    damages = run.damages(whole=whole)
    for part in (*kind.made_from, FOLDER):
        if part in damages:
            raise damages[part]
    return damages


@contextmanager
def resumed(kind: RunKind, run: RunStore) -> Iterator[None]:
    """Lock an old run, remove leftovers of dead attempts, and reopen it if it was complete.

    Raises StoreError before the work, rather than after it, for a part that the end could not report.
    """
    try:
        run.lock()
        run.take_over()
        run.remove_leftovers()
        if run.is_complete:  # its report is kept under another name
            with report.damages(run):
                kept = f"report-{int(run.report()['n_iter']):06d}.json"
                # A part whose seal is not the report's would be taken for sound once the report is aside.
                remove_folders(run.path / part for part in _damaged_parts(kind, run, whole=False))
            (run.path / "report.json").rename(run.path / kept)
        with report.damages(run, "run", "."):
            kind.facts(run)
        report.note_damaged_states(run)
        with run.at_its_place():
            yield
    finally:
        run.close()


def read_again(kind: RunKind, run: RunStore, settings: Any) -> Any:
    """Return the inputs of a run if they are unchanged; their values were checked when it was made."""
    with files_within(settings.memory_limit):
        return kind.read(Files.again(run, kind.declaration.files), settings, values=True)


def name_of_work(kind: RunKind, run: RunStore) -> str:
    """Return the name of a run's span on Dask's dashboard, without "dkl-": its task and the last part of its name."""
    return f"{kind.declaration.task}-{Path(run.name).name}"


def work(
    kind: RunKind,
    run: RunStore,
    inputs: Lazy,
    settings: Any,
    session: Session,
    interrupt: Interrupt,
    *,
    callbacks: tuple[Callback, ...] = (),
    show: bool = True,
) -> Result:
    """Resume the locked run from its last commit; write its report, and its picture if asked for."""
    from dkl.runs.inputs.applied_rows import standardized_inputs

    spending, watch = Spending(session), Watch([MachineLog(run), *callbacks, *progress(show), interrupt])

    def notes(report: Json) -> Json:
        total = watch.seconds  # to the end of the fit, with what it has stored
        spent = spending.split(total - watch.earlier)
        seconds = report["seconds"] | {"total": total}
        return report | {"seconds": seconds, "worker_peak_bytes": worker_peak(session), "spent": spent}

    session.work = name_of_work(kind, run)
    try:
        with watch:
            if kind.needs_inputs(run):
                inputs = standardized_inputs(run, inputs, settings, session)
            result = kind.fit(run, inputs, settings, session, watch, notes)
    except InterruptedRunError as stopped:
        if run.is_behind:  # its store is away: what was committed is in the folder alone
            known = run.name
            interrupt.again = interrupt.again.replace(known, str(run.keep()))
        raise KeyboardInterrupt(interrupt.line(f"{stopped.what}, which is committed")) from stopped
    except KeyboardInterrupt as stopped:
        if interrupt.signal and not str(stopped):
            raise KeyboardInterrupt(interrupt.line("what was committed is kept")) from stopped
        raise
    if run.config.get("picture", False) and can_draw():
        _draw(kind, run, inputs, settings.memory_limit)
    # A folder that was removed or replaced under a running fit must not pass for a result.
    require_place(run.path)
    run.publish()
    return result


def _draw(kind: RunKind, run: RunStore, inputs: Lazy, memory_limit: int | None) -> None:
    """Draw report.png; an error is only printed, as the run is complete without it."""
    try:
        if not has_room(kind, run, memory_limit):
            echo(f"note: no picture within memory_limit: dkl info {run.name} --picture FILE draws it", err=True)
            return
        draw_picture(kind, run, inputs, run.path / "report.png")
        echo(f"picture: {printable(run.name)}/report.png")
    except (OSError, DklError) as error:
        echo(f"note: no picture: {' '.join(str(error).split())}", err=True)


# -- verify, info, apply ------------------------------------------------------------------------------------------------


def verify(path: str, memory_limit: int | None) -> None:
    """Print the report's numbers next to the same recomputed; raise StoreError where they differ."""
    run = open_run(path)
    report.require(run)
    run.check(whole=True)
    kind, settings = registry.kind(registry.task_of(run)), settings_of(run, {})
    inputs: Lazy = Lazy(lambda: read_again(kind, run, settings))
    with report.damages(run):
        compare(run, all_claims(kind, run, inputs, memory_limit))


def all_claims(kind: RunKind, run: RunStore, inputs: Lazy, memory_limit: int | None) -> Iterator[Comparison]:
    """Yield comparisons of a run's columns and of its learner, for rows standardized as the run's were."""
    from dkl.runs.inputs import applied_rows

    yield from applied_rows.claims(run, inputs)
    scaled = applied_rows.scaled_inputs(inputs, read_scale(run))
    yield from kind.claims(run, scaled, memory_limit or machine_memory() // 4)


def info(path: str, *, as_json: bool, picture: str | None = None) -> None:
    """Print what a run holds, for a person or a program; draw it into a file."""
    run = open_run(path)
    target = None if picture is None else check_new(picture, option="--picture")
    if run.is_complete:
        run.check()
    kind, settings = registry.kind(registry.task_of(run)), settings_of(run, {})
    if target is not None:
        report.require(run)
        with report.damages(run, "run", "."):
            draw_picture(kind, run, Lazy(lambda: read_again(kind, run, settings)), target)
    with report.damages(run, "run", "."):
        report.show(run, kind.facts(run), [file.name for file in kind.declaration.files], as_json=as_json)


def apply(verb: str, path: str, out: str, options: Given, placing: Given) -> None:
    """Write what a run's learner makes of the rows of a file: all of it, or nothing."""
    run = open_run(path)
    registry.require_verb(run, verb)
    report.require(run)
    target = check_output(out)
    run.check()
    cluster = Cluster.of(**placing, memory_limit=options.get("memory_limit"))
    request = looked_at(run, OutputRequest(**options, scale=read_scale(run), names=stored_names(run)))
    show_note(request.rows)
    row_ids = ids_of_request(request) if target.suffix == ".csv" else None
    prepared = applied(run, request, cluster)
    with cluster.session() as session:
        blocks = prepared.blocks(session)
        write_rows(target, prepared.shape, blocks, prepared.dtype, prepared.name, prepared.column, row_ids)
    echo(f"{printable(str(target))}: {prepared.summary}")
    for line in prepared.remarks():
        echo(line)


def applied(run: RunStore, request: OutputRequest, cluster: Cluster) -> Output:
    """Return a run's output for a request's rows; MemoryBudgetError if it does not fit on the cluster."""
    with report.damages(run, "run", "."):
        prepared = registry.kind(registry.task_of(run)).apply(run, request)
    if prepared.plan is not None and cluster.address is None:  # one that runs is asked when we are connected
        with cluster.planned() as session:
            prepared.plan(session)
    return prepared
