"""What fits take against the plan and the limit, by learner and kind of file: of each process, as the system counts it."""

import io
import json
import zipfile
from pathlib import Path

import measured_runs
import numpy as np
import pytest
from command_line import call
from command_runs import refused
from measured_runs import FORMS, STREAMED, write_forms
from patience import PATIENCE
from preloaded import Forked
from repeats import but_for, crossed

from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.errors import InputError
from dkl.runs import registry, report
from dkl.runs.backends import Cluster
from dkl.runs.inputs import readers

SPARE = 21_000_000
"""Bytes that the allocator and libraries may take beside what is planned; the plan's base has as many to spare."""
SIZES = {"pairwise": 40_000_000, "regression": 100_000_000, "svc": 40_000_000, "logdet": 12_800_000}
"""Of X in float64."""
ROOM = 55_000_000
"""Above the plan's base, for regressions on rows that are streamed: less than X."""
OPTIONS = {
    "pairwise": ("--pairs", "pairs.csv", "--rank", "4", "--max-iter", "2", "--target-gap", "none"),
    "regression": ("--targets", "y.npy", "--n-columns", "20", "--nu", "50"),
    "svc": ("--targets", "labels.npy", "--max-iter", "2"),
    "logdet": ("--targets", "labels.npy", "--n-in", "1", "--n-out", "1", "--max-iter", "2", "--solver", "pcg"),
}
FEATURES = {"pairwise": 2000, "regression": 100, "svc": 2500, "logdet": 2000}
MOST = {"regression": ROOM, "pairwise": 1.5 * SIZES["pairwise"], "svc": 4 * SIZES["svc"], "logdet": 8 * SIZES["logdet"]}
"""That applying a run is planned to take."""
SMALL = ("X.npy", "X.zarr")
SOME = ("X.npy", "packed.npz", "X.zarr")
APPLIED = [
    ("regression", "X.npy"),
    ("regression", "X.zarr"),
    ("svc", "X.npy"),
    ("pairwise", "other.npy"),
    ("logdet", "other.npy"),
]
CASES = [("regression", form) for form in FORMS] + [(task, form) for task in ("pairwise", "svc") for form in SOME]
CASES.append(("logdet", "X.npy"))


def fit(task, form, room=None):
    limit = () if room is None else ("--memory-limit", str(PROCESS_BASE + room))
    place = ("--threads", "1", "--no-picture", "--out", f"{task}-{form}.zarr")
    return ["fit", task, "--data", form, *OPTIONS[task], *limit, *place]


def apply(task, run, form, out, room=None):
    limit = () if room is None else ("--memory-limit", str(PROCESS_BASE + room))
    verb = registry.declaration(task).verb
    return [verb, run, "--data", form, "--out", out, "--threads", "1", *limit]


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Figures of a learner's fits by kind of file; all of a learner's are made in one process, when the first is asked for."""
    known = {}
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of a process cannot be set back here")

    def of(task):
        if task not in known:
            folder, d = tmp_path_factory.mktemp(task), FEATURES[task]
            forms = [form for name, form in CASES if name == task]
            write_forms(folder, SIZES[task] // (8 * d), d, forms)
            (folder / "small").mkdir()
            write_forms(folder / "small", 80, 5)
            for place in (folder, folder / "small"):
                np.save(place / "other.npy", np.load(place / "X.npy")[::-1])
            rooms = [ROOM if task == "regression" and form in STREAMED else None for form in forms]
            used = [form for name, form in APPLIED if name == task]
            commands = list(map(fit, [task] * len(forms), forms, rooms))
            for form in used:
                room = ROOM if task == "regression" else None
                commands.append(apply(task, f"{task}-X.npy.zarr", form, f"{form}.out.npy", room))
            names = [*forms, *(f"use of {form}" for form in used)]
            known[task] = dict(zip(names, run(folder, task, commands), strict=True))
        return known[task]

    return of


def run(folder, task, commands):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        small = [
            [f"small/{word}" if Path("small", word).exists() else word for word in fit(task, form)] for form in SMALL
        ]
        for number, command in enumerate(small):
            command[-1] = f"small-{number}.zarr"
        small.append(apply(task, "small-0.zarr", "small/other.npy", "small.npy"))
        given = [str(len(small)), json.dumps([*small, *commands]), str(folder / "figures.json")]
        process = Forked(measured_runs.main, *given)
        said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        return json.loads((folder / "figures.json").read_text())


@pytest.mark.parametrize(("task", "form"), but_for([case for case in CASES if case[0] != "pairwise"], CASES))
def test_a_fit_takes_no_more_than_it_plans(fits, task, form):
    found = fits(task)[form]
    assert found["code"] in (0, 3)
    assert found["risen"] <= found["planned"] + SPARE


@pytest.mark.exhaustive
@pytest.mark.parametrize("form", STREAMED)
def test_rows_that_stand_as_they_are_need_not_fit_into_the_limit(fits, form):
    found = fits("regression")[form]
    assert found["code"] == 0 and found["planned"] <= ROOM
    assert found["risen"] <= ROOM + SPARE < SIZES["regression"]


@pytest.mark.parametrize(("task", "form"), but_for([case for case in APPLIED if case[0] != "pairwise"], APPLIED))
def test_predict_and_transform_take_no_more_than_they_plan(fits, task, form):
    """The two of pairs together are as large again as X, and neither is held."""
    found = fits(task)[f"use of {form}"]
    assert found["code"] == 0 and found["risen"] <= found["planned"] + SPARE
    assert found["planned"] <= MOST[task]


@pytest.mark.slow
@pytest.mark.parametrize("task", sorted(OPTIONS))
def test_workers_that_predict_keep_to_the_limit_and_the_plan(tmp_path, monkeypatch, task):
    """Every process, whole: two workers, and the one that asks them; rows of 240 MB, which none of them holds."""
    monkeypatch.chdir(tmp_path)
    d, limit = FEATURES[task], 620_000_000
    write_forms(tmp_path, 80 if task == "svc" else 400, d)
    np.save("other.npy", np.tile(np.load("X.npy"), (-(-30_000_000 // (np.load("X.npy").size)), 1)))
    assert call(*fit(task, "X.npy")).code in (0, 3)
    verb = registry.declaration(task).verb
    place = ["--workers", "2", "--memory-limit", str(limit)]
    command = [verb, f"{task}-X.npy.zarr", "--data", "other.npy", "--out", "out.npy", *place]
    process = Forked(measured_runs.on_workers, json.dumps([command]), str(tmp_path / "figures.json"))
    said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    ((code, planned, own, below),) = json.loads((tmp_path / "figures.json").read_text())
    workers = below[-2:]
    assert code == 0 and len(workers) == 2
    assert planned <= 0.75 * limit and max(own, *workers) <= planned + SPARE


@pytest.mark.parametrize("task", but_for(["logdet", "regression"], sorted(OPTIONS)))
def test_what_does_not_fit_is_not_applied(tmp_path, monkeypatch, task):
    """A model that is too large for the limit is refused before any worker starts, and rows that must be read at once."""
    monkeypatch.chdir(tmp_path)
    write_forms(tmp_path, 400, 50)
    np.save("other.npy", np.load("X.npy")[::-1])
    assert call(*fit(task, "X.npy")).code in (0, 3)
    monkeypatch.setattr(Cluster, "_own", lambda self: pytest.fail("workers were started"))
    use = apply(task, f"{task}-X.npy.zarr", "other.npy", "out.npy", 1000)
    for place in (["--threads", "1"], ["--workers", "2"]):
        answer = call(*[word for word in use if word not in ("--threads", "1")], *place)
        refused(answer, 5)
        assert "memory_limit" in answer.err and "; raise memory_limit" in answer.err or "more memory" in answer.err
    write_bomb(tmp_path / "bomb.npz", 400_000, 50)
    answer = call(*apply(task, f"{task}-X.npy.zarr", "bomb.npz", "out.npy", 150 * 10**6))
    refused(answer, 5)
    assert "the rows do not fit" in answer.err and not Path("out.npy").exists()


@pytest.mark.parametrize(("task", "form"), crossed(sorted(OPTIONS), ["bomb.npz", "X.csv", "X.svm"]))
def test_what_does_not_fit_is_refused_before_it_is_read(tmp_path, monkeypatch, task, form):
    """By an archive's header, or by counting: the rows themselves are never made."""
    monkeypatch.chdir(tmp_path)
    write_forms(tmp_path, 400, 50)
    write_bomb(tmp_path / "bomb.npz", 400, 50_000)
    (tmp_path / "X.svm").write_bytes(b"1 1:1\n" * 400)
    monkeypatch.setattr(readers, "CSV_CELL", 8000)
    monkeypatch.setattr(readers, "SVMLIGHT_ENTRY", 400_000)
    for name in ("read_array", "read_table", "_owned"):
        monkeypatch.setattr(readers, name, lambda *given: pytest.fail("it was read"))
    limit = ("--memory-limit", str(PROCESS_BASE + 150 * 10**6), "--out", "run.zarr", "--threads", "1")
    for verb in ("plan", "fit"):
        answer = call(verb, task, "--data", form, *OPTIONS[task], *limit)
        refused(answer, 5)
        assert "memory_limit" in answer.err and "raise memory_limit" in answer.err
    assert not Path("run.zarr").exists()


@pytest.mark.parametrize("task", ["regression", "svc", "logdet"])
def test_targets_that_do_not_fit_are_refused_before_they_are_read(tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    write_forms(tmp_path, 400, 5)
    write_bomb(tmp_path / "y.npz", 400, 50_000, "y")
    limit = ("--memory-limit", str(PROCESS_BASE + 150 * 10**6), "--out", "run.zarr", "--threads", "1")
    answer = call("fit", task, "--data", "X.npy", "--targets", "y.npz", *limit)
    refused(answer, 5)
    assert "the targets do not fit" in answer.err


def write_bomb(path, n, d, name="X"):
    """An archive of a few kB that holds (n, d) of zeros: 160 MB."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (n, d)})
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open(f"{name}.npy", "w") as member,
    ):
        member.write(header.getvalue())
        for _ in range(n):
            member.write(bytes(8 * d))


def test_a_picture_that_does_not_fit_is_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_forms(tmp_path, 80, 5)
    monkeypatch.setattr(report, "current_rss", lambda: 2 * PROCESS_BASE)
    answer = call(*fit("regression", "X.npy", PROCESS_BASE)[:-3], "--picture", "--out", "run.zarr")
    assert answer.code == 0 and "note: no picture within memory_limit" in answer.err
    assert not Path("run.zarr", "report.png").exists()
    assert (
        "picture, after the fit"
        in call("plan", *fit("regression", "X.npy")[1:-3], "--picture", "--out", "other.zarr").out
    )


def test_rows_are_the_same_wherever_they_are_read_from(tmp_path):
    write_forms(tmp_path, 700, 5)
    known = np.load(tmp_path / "X.npy")
    for form in FORMS:
        rows = readers.load_rows(tmp_path / form)
        assert np.array_equal(rows.read(0, rows.n), known)
        assert np.array_equal(rows.read(650, 653), known[650:653])
        assert rows.own_bytes == (0 if rows.is_stored else known.nbytes)


def test_an_archive_that_is_not_packed_is_read_where_it_stands(tmp_path, monkeypatch):
    """Behind other members, in both orders; a file that has become shorter since is named."""
    monkeypatch.setattr(readers, "READ_AT_ONCE", 0)
    X = np.arange(600.0).reshape(60, 10)
    for array in (X, np.asfortranarray(X), X.astype(">f4")):
        np.savez(tmp_path / "X.npz", first=np.arange(7), X=array, last=np.arange(3))
        rows = readers.load_rows(tmp_path / "X.npz")
        assert rows.is_stored and not rows.is_mapped and np.array_equal(rows.read(11, 60), X[11:])
    content = (tmp_path / "X.npz").read_bytes()
    (tmp_path / "X.npz").write_bytes(content[:1000])
    with pytest.raises(InputError, match="shorter than its header says"):
        rows.read(0, 60)
