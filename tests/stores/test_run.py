"""A run's folder: made once, locked, logged through crashes, and its arrays refused when they are not what was written."""

import errno
import json
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import zarr

from dkl.errors import DiskError, InputError, StoreError
from dkl.stores import arrays as arrays_module
from dkl.stores import run as run_module
from dkl.stores import seals
from dkl.stores.arrays import read_array, write_array
from dkl.stores.registry import StoredArray
from dkl.stores.run import RunStore
from dkl.stores.run_parts import write_factor_rows
from dkl.stores.seals import identity_of

CONFIG = {"settings": {"gamma": 100.0, "rank": "auto"}, "pi": 3.14}


@pytest.fixture
def run(tmp_path):
    made = RunStore.create(tmp_path / "run.zarr", CONFIG)
    yield made
    made.close()


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# -- life -------------------------------------------------------------------------------------------------------------


def test_a_run_is_made_and_opened_again(run):
    again = RunStore.open(run.path)
    assert again.config == CONFIG and again.path == run.path and again.attempt != run.attempt
    assert dict(zarr.open_group(str(run.path), mode="r").attrs) == {
        "kind": "dkl-run", "version": 1, "identity": identity_of(CONFIG)
    }  # fmt: skip
    assert not again.is_complete and again.report() == {} and again.events() == []


def test_a_run_is_the_owner_s_alone(tmp_path, run):
    before = os.umask(0)
    try:
        made = RunStore.create(tmp_path / "open.zarr", CONFIG)
        (tmp_path / "there").mkdir(mode=0o777)
        there = RunStore.create(tmp_path / "there", CONFIG)  # an empty folder that was there
        made.log(event="x")
    finally:
        os.umask(before)
    assert mode(made.path) == mode(there.path) == mode(run.path) == 0o700
    for name in ("LOCK", "config.json", "events.jsonl"):
        assert mode(made.path / name) == 0o600
    made.close()
    there.close()


@pytest.mark.parametrize("what", ["run", "file", "folder", "link", "dead link"])
def test_nothing_that_exists_is_overwritten(tmp_path, run, what):
    path = tmp_path / "taken"
    if what == "run":
        path = run.path
    elif what == "file":
        path.write_text("precious")
    elif what == "folder":
        path.mkdir()
        (path / "precious").touch()
    else:
        goal = tmp_path / "goal"
        if what == "link":
            goal.mkdir()
        path.symlink_to(goal)
    before = sorted((str(p), p.read_bytes() if p.is_file() else b"") for p in tmp_path.rglob("*"))
    with pytest.raises(InputError, match="never overwritten.*wanted a new path.*choose another path"):
        RunStore.create(path, {"other": 1})
    assert before == sorted((str(p), p.read_bytes() if p.is_file() else b"") for p in tmp_path.rglob("*"))


def test_a_parent_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(InputError, match="parent folder does not exist"):
        RunStore.create(tmp_path / "no" / "run.zarr", {})
    assert not (tmp_path / "no").exists()


def test_a_place_that_cannot_be_written_is_a_disk_error(tmp_path, monkeypatch):
    def refuse(*arguments, **keywords):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(run_module.Path, "mkdir", refuse)
    with pytest.raises(DiskError, match="cannot be written .Permission denied.*choose a path that you may write to"):
        RunStore.create(tmp_path / "run.zarr", {})


def test_a_disk_that_is_full_at_the_start_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "write_json", full)
        with pytest.raises(DiskError, match="No space left"):
            RunStore.create(tmp_path / "run.zarr", CONFIG)
    assert not (tmp_path / "run.zarr").exists()
    RunStore.create(tmp_path / "run.zarr", CONFIG).close()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: (path / "zarr.json").unlink(), "not a run of dkl"),
        (lambda path: (path / "config.json").unlink(), "not a run of dkl"),
        (lambda path: (path / "config.json").write_text("{"), "not readable as JSON"),
        (lambda path: (path / "config.json").write_text('{"pi": 3.14}'), "checksum does not match"),
        (lambda path: (path / "zarr.json").write_text("[]"), "not a JSON object"),
        (
            lambda path: (path / "zarr.json").write_text('{"attributes": 3}'),
            "not a run of dkl",
        ),
        (lambda path: (path / "zarr.json").write_text('{"attributes": {"kind": "dkl-run", "version": 9}}'), "got 9"),
    ],
)
def test_what_is_no_run_is_refused(run, damage, message):
    damage(run.path)
    with pytest.raises(StoreError, match=message):
        RunStore.open(run.path)


def test_a_path_without_a_run_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such run"):
        RunStore.open(tmp_path / "nowhere")


# -- the lock ---------------------------------------------------------------------------------------------------------


def test_one_at_a_time(run):
    other = RunStore.open(run.path)
    with pytest.raises(
        InputError, match=f"another process works on this run.*got pid {os.getpid()} on .*{run.attempt}"
    ):
        other.lock()
    run.close()
    other.lock()
    assert (run.path / "LOCK").read_text().endswith(other.attempt)
    with pytest.raises(InputError, match="another process"):
        run.lock()
    other.close()
    run.close()  # once more changes nothing


def test_who_has_just_taken_the_lock_is_waited_for(run, monkeypatch):
    """What stands there until he has signed is nothing, or of one who was killed."""
    mine, wrote = (run.path / "LOCK").read_text(), []
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()

    def sign(seconds):
        wrote.append(seconds)
        (run.path / "LOCK").write_text(mine)

    monkeypatch.setattr("dkl.stores.folders.time.sleep", sign)
    for before in ("", mine.replace(f"pid {os.getpid()} ", f"pid {ended.pid} ")):
        (run.path / "LOCK").write_text(before)
        with pytest.raises(InputError, match=f"got pid {os.getpid()} on "):
            RunStore.open(run.path).lock()
    assert len(wrote) == 2


def test_the_lock_goes_with_its_process(run):
    run.close()
    code = "import sys; from dkl.stores.run import RunStore; r = RunStore.open(sys.argv[1]); r.lock(); print(1, flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(run.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "1\n"
        with pytest.raises(InputError, match=f"got pid {child.pid} on"):
            run.lock()
        child.kill()
    run.lock()


# -- the log ----------------------------------------------------------------------------------------------------------


def test_events_come_back_in_order(run):
    for iteration in range(3):
        run.log(event="iteration", iteration=iteration, objective=np.float64(1.5), bad=float("nan"))
    events = run.events()
    assert [event["iteration"] for event in events] == [0, 1, 2]
    assert all(event["attempt"] == run.attempt and event["objective"] == 1.5 for event in events)
    assert all(np.isnan(event["bad"]) and event["at"] > 1e9 for event in events)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_cut_by_a_crash_costs_that_line_alone(run, cut):
    for iteration in range(3):
        run.log(iteration=iteration)
    log = run.path / "events.jsonl"
    os.truncate(log, log.stat().st_size - cut)
    last = [0, 1] if cut > 1 else [0, 1, 2]  # without its newline alone the line is whole
    assert [event["iteration"] for event in RunStore.open(run.path).events()] == last
    resumed = RunStore.open(run.path)
    resumed.log(iteration=10)
    resumed.log(iteration=11)
    assert [event["iteration"] for event in run.events()] == [*last, 10, 11]


def test_what_is_no_event_is_left_out(run):
    run.log(iteration=1)
    with open(run.path / "events.jsonl", "ab") as log:
        log.write(b"[1, 2]\n\xff\xfe\n\n3\n")
    run.log(iteration=2)
    assert [event["iteration"] for event in run.events()] == [1, 2]


def test_a_log_that_fails_is_a_disk_error_and_the_next_line_is_whole(run, monkeypatch):
    run.log(iteration=1)
    write = os.write

    def half_then_full(descriptor, line):
        write(descriptor, line[: len(line) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half_then_full)
        with pytest.raises(
            DiskError, match="the log could not be written .No space left.*events.jsonl|events.jsonl.*log"
        ):
            run.log(iteration=2)
    run.log(iteration=3)
    assert [event["iteration"] for event in run.events()] == [1, 3]


# -- arrays -----------------------------------------------------------------------------------------------------------

ARRAYS = {
    "vector": np.arange(7.0),
    "pairs": np.arange(12).reshape(6, 2),
    "none": np.empty((0, 2), np.int64),
    "one": np.array([3.5], np.float32),
}
DECLARED = StoredArray(
    "a", ("row", "column"), ("float64", "float32", "int64"), "Whatever is tried.", may_lack_last=True
)


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_come_back(tmp_path, name):
    values = ARRAYS[name]
    write_array(tmp_path / "a", values, DECLARED, attributes={"note": 1})
    back = read_array(tmp_path / "a", DECLARED)
    assert back.dtype == values.dtype and back.shape == values.shape and np.array_equal(back, values)
    assert zarr.open_array(str(tmp_path / "a"), mode="r").attrs["note"] == 1


def edit(path, **changes):
    content = json.loads((path / "zarr.json").read_text())
    content["attributes"].update(changes)
    (path / "zarr.json").write_text(json.dumps(content))


def chunk(path):
    return next(entry for entry in (path / "c").rglob("*") if entry.is_file())


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: chunk(path).unlink(),
        lambda path: os.truncate(chunk(path), 20),
        lambda path: os.truncate(chunk(path), 0),
        lambda path: chunk(path).write_bytes(bytes(chunk(path).stat().st_size)),
        lambda path: edit(path, rows=5),
        lambda path: edit(path, rows=7),
        lambda path: edit(path, rows="many"),
        lambda path: edit(path, crc32c=0),
        lambda path: (path / "zarr.json").unlink(),
        lambda path: (path / "zarr.json").write_text("{"),
    ],
)
def test_a_damaged_array_is_refused(tmp_path, damage):
    write_array(tmp_path / "a", ARRAYS["pairs"], DECLARED)
    damage(tmp_path / "a")
    with pytest.raises(StoreError, match="stored array"):
        read_array(tmp_path / "a", DECLARED)


def test_every_flipped_bit_of_a_chunk_is_caught(tmp_path):
    write_array(tmp_path / "a", ARRAYS["one"], DECLARED)
    content = chunk(tmp_path / "a").read_bytes()
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        chunk(tmp_path / "a").write_bytes(damaged)
        with pytest.raises(StoreError):
            read_array(tmp_path / "a", DECLARED)


def test_an_array_that_the_seal_does_not_list_is_refused(tmp_path):
    part = tmp_path / "model"
    part.mkdir()
    write_array(part / "own", ARRAYS["one"], DECLARED)
    seals.seal_folder(part, "model")
    seals.check_folder(part, "model")
    write_array(part / "of_another", ARRAYS["one"], DECLARED)
    with pytest.raises(StoreError, match="a file that was not sealed"):
        seals.check_folder(part, "model")


def test_an_array_written_whole_by_somebody_else_is_caught(tmp_path):
    """Its chunk's checksum is right; the one of the contents is not."""
    write_array(tmp_path / "a", ARRAYS["vector"], DECLARED)
    zarr.open_array(str(tmp_path / "a"), mode="r+")[2] = 99.0
    with pytest.raises(StoreError, match="not what was written"):
        read_array(tmp_path / "a", DECLARED)


@pytest.mark.parametrize("count", [0, 3])
def test_pairs_come_back_and_may_be_written_anew(run, rng, count):
    run.write_pairs(np.ones((9, 2), np.int64), np.zeros((1, 2), np.int64))
    must, cannot = rng.integers(0, 99, (count, 2)), rng.integers(0, 99, (5, 2))
    run.write_pairs(must, cannot)
    back = RunStore.open(run.path).read_pairs()
    assert np.array_equal(back[0], must) and np.array_equal(back[1], cannot)
    assert back[0].shape == (count, 2)


# -- the result -------------------------------------------------------------------------------------------------------


def test_a_factor_is_written_in_whole_chunks_of_rows(run, rng, monkeypatch):
    monkeypatch.setattr(arrays_module, "CHUNK_BYTES", 8 * 3 * 10)
    values = rng.standard_normal((47, 3))
    with pytest.raises(StoreError, match="no result yet"):
        run.factor()
    rows = run.create_factor(47, 3, "float64")
    assert rows == 10
    for lo in range(0, 47, rows):
        write_factor_rows(str(run.path / "factor"), lo, values[lo : lo + rows])
    with pytest.raises(StoreError, match="its seal is missing"):
        run.factor()
    run.seal_part("factor")
    factor = run.factor()
    assert factor.chunks == (10, 3) and np.array_equal(factor[...], values)
    with pytest.raises(ValueError, match="read-only|read only"):
        factor[0] = 1.0
    (run.path / "factor" / "c" / "2" / "0").unlink()
    there = np.asarray(factor[...])
    assert np.isnan(there[20:30]).all(), "a missing chunk is seen as not a number, never as zeros"
    assert np.array_equal(np.delete(there, slice(20, 30), 0), np.delete(values, slice(20, 30), 0))


def test_a_flipped_bit_in_a_factor_is_no_number(run, rng):
    run.create_factor(6, 2, "float32")
    write_factor_rows(str(run.path / "factor"), 0, rng.standard_normal((6, 2)).astype(np.float32))
    run.seal_part("factor")
    path = chunk(run.path / "factor")
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="[Cc]hecksum"):
        run.factor()[...]


@pytest.mark.parametrize(("n", "rank"), [(1, 1), (10, 4), (100_000, 800), (10**7, 1), (5, 10**7)])
def test_a_chunk_has_whole_rows_of_some_megabytes(n, rank):
    rows = arrays_module.rows_per_chunk(n, rank, np.float64)
    assert 1 <= rows <= n
    assert rows == 1 or rows * rank * 8 <= arrays_module.CHUNK_BYTES
    assert rows == n or (rows + 1) * rank * 8 > arrays_module.CHUNK_BYTES


def test_a_report_comes_last_and_goes_first(run):
    lift = np.linspace(0, 1, 11)
    run.create_factor(11, 2, "float64")
    assert not run.is_complete
    run.write_report({"outcome": "solved", "gap": float("inf")}, lift)
    again = RunStore.open(run.path)
    assert again.is_complete and again.report() == {"outcome": "solved", "gap": float("inf")}
    assert np.array_equal(again.lift(), lift)
    run.write_report({"outcome": "better"}, 2 * lift)
    assert again.report() == {"outcome": "better"} and np.array_equal(again.lift(), 2 * lift)
    run.create_factor(11, 3, "float64")
    assert not again.is_complete and again.report() == {}


def test_a_report_that_was_altered_is_refused(run):
    run.create_factor(2, 2, "float64")
    run.write_report({"gap": 1.0}, np.zeros(2))
    path = run.path / "report.json"
    path.write_text(path.read_text().replace("1.0", "0.5"))
    with pytest.raises(StoreError, match="checksum"):
        run.report()


def test_a_complete_run_with_a_file_that_no_seal_lists_is_damaged(run):
    run.create_factor(2, 2, "float64")
    run.write_report({"gap": 1.0}, np.zeros(2))
    run.check()
    part = next(path.parent for path in run.path.glob(f"*/{seals.MANIFEST}"))
    (part / "of_another").write_text("a file that another run has here")
    with pytest.raises(StoreError, match="a file that was not sealed"):
        run.check()


@pytest.mark.parametrize("part", ["log", "pairs", "factor", "report"])
def test_a_full_disk_is_a_disk_error(run, monkeypatch, part):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "No space left on device")

    run.create_factor(2, 2, "float64")
    calls = {
        "log": lambda: run.log(event="x"),
        "pairs": lambda: run.write_pairs(np.zeros((1, 2), np.int64), np.zeros((1, 2), np.int64)),
        "factor": lambda: run.create_factor(3, 2, "float64"),
        "report": lambda: run.write_report({}, np.zeros(2)),
    }
    monkeypatch.setattr("zarr.create_array", full)
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(DiskError, match="No space left on device.*free space"):
        calls[part]()
    assert not run.is_complete


def test_leftovers_of_dead_attempts_are_swept_away(run):
    dead = RunStore.open(run.path)
    for folder in (dead.scratch, run.scratch, run.path / "generations" / f"tmp-{dead.attempt}-1"):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    (run.path / "generations" / "gen-000003").mkdir()
    run.remove_leftovers()
    assert run.scratch.exists() and not dead.scratch.exists()
    assert [entry.name for entry in (run.path / "generations").iterdir()] == ["gen-000003"]
    run.drop_scratch()
    run.drop_scratch()  # once more changes nothing
    assert not run.scratch.exists()


@pytest.mark.parametrize("place", ["pwrite", "replace", "fsync"])
def test_no_room_for_the_beginning_leaves_nothing(place, tmp_path, monkeypatch):
    """For the lock's holder, and for the configuration."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(DiskError, match="No space left"):
        patch.setattr(os, place, full)
        RunStore.create(tmp_path / "run.zarr", {})
    assert not (tmp_path / "run.zarr").exists()
    RunStore.create(tmp_path / "run.zarr", {}).close()
