"""Runs in an object store: a commit is there whole or not at all, of two writers one commits, and nothing is lost in between.

In fsspec's files in memory, which are as the store of tests/cli/test_object_stores.py in what commits need.
"""

import shutil
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from object_folders import ONE, OTHER, fetched, write
from repeats import but_for
from s3fs.core import ClientError
from s3fs.errors import translate_boto_error

from dkl.errors import DiskError, DklError, InputError, ResourceError
from dkl.runs import stored
from dkl.runs.stored import found_run, new_run
from dkl.stores import object_commits, object_runs
from dkl.stores import remote as published
from dkl.stores.checkpoints import Checkpointer
from dkl.stores.object_runs import ObjectRun
from dkl.stores.run import RunStore


def test_what_is_committed_is_what_is_read(root, folder, tmp_path):
    run = ObjectRun(root)
    run.publish(folder, ONE)
    wanted = {"a/c/0": b"first", "config.json": b"{}", "large": bytes(1000)}
    assert fetched(root, tmp_path / "one")[1] == wanted
    write(folder, "a/c/0", b"second")
    write(folder, "b", b"new")
    (folder / "config.json").unlink()
    run.publish(folder, ONE)
    assert sorted(root.listed()) == [
        *("commits/00000001.json", "commits/00000002.json"),
        *(f"files/00000001-{ONE}.json", f"files/00000001-{ONE}/a/c/0", f"files/00000001-{ONE}/config.json"),
        *(f"files/00000001-{ONE}/large", f"files/00000002-{ONE}.json", f"files/00000002-{ONE}/a/c/0"),
        f"files/00000002-{ONE}/b",  # and not `large` again
    ]
    assert fetched(root, tmp_path / "two")[1] == {"a/c/0": b"second", "b": b"new", "large": bytes(1000)}
    run.publish(folder, ONE)
    assert run.last.number == 2, "nothing new is no commit"
    (folder / "b").unlink()
    run.publish(folder, ONE)  # what only the first commit named is gone now, all else is there
    there = sorted(name for name in root.listed() if name.startswith("files/00000001"))
    assert there == [f"files/00000001-{ONE}/large"]
    assert fetched(root, tmp_path / "three")[1] == {"a/c/0": b"second", "large": bytes(1000)}


def test_of_two_writers_one_commits(root, folder, tmp_path):
    ObjectRun(root).publish(folder, ONE)
    first, second = (fetched(root, tmp_path / name)[0] for name in ("first", "second"))
    write(tmp_path / "first", "by", b"first")
    write(tmp_path / "second", "by", b"second")
    second.publish(tmp_path / "second", OTHER)
    with pytest.raises(InputError, match=r"run.zarr: another process works on this run; got commit 2 by pid \d+ on .*"):
        first.publish(tmp_path / "first", ONE)
    assert fetched(root, tmp_path / "read")[1]["by"] == b"second"
    with pytest.raises(InputError, match="another process works on this run"):  # nor at its next attempt
        first.publish(tmp_path / "first", ONE)
    second.remove_leftovers()
    assert not any(ONE in name for name in root.listed() if name.startswith("files/00000002"))
    assert fetched(root, tmp_path / "again")[1]["by"] == b"second"


class Killed(BaseException):
    """What nothing catches."""


def killing(monkeypatch, place, after):
    """Ends the process, as it were, at its put number `place`: before it, or `after` it is done."""
    count = iter(range(1000))
    put = MemoryFileSystem.pipe_file

    def pipe_file(self, *arguments, **options):
        here = next(count) == place
        if here and not after:
            raise Killed
        put(self, *arguments, **options)
        if here:
            raise Killed

    def put_file(self, source, key, **options):
        self.pipe_file(key, Path(source).read_bytes())

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)


PUTS = 5  # large, two small ones, the manifest, the number


@pytest.mark.parametrize(
    ("place", "after"),
    but_for(
        [(0, False), (0, True), (1, True), (2, False), (3, False)], [(k, x) for k in range(PUTS) for x in (False, True)]
    ),
)
def test_a_writer_killed_at_any_put_leaves_a_whole_commit(place, after, root, folder, tmp_path, monkeypatch):
    run = ObjectRun(root)
    run.publish(folder, ONE)
    old = fetched(root, tmp_path / "old")[1]
    for name in old:
        write(folder, name, old[name][::-1] + b"2")
    with monkeypatch.context() as patch, pytest.raises(Killed):
        killing(patch, place, after)
        run.publish(folder, ONE)
    is_made = (place, after) == (PUTS - 1, True)
    new = {name: content[::-1] + b"2" for name, content in old.items()}
    again, found = fetched(root, tmp_path / "found")
    assert found == (new if is_made else old)
    again.publish(tmp_path / "found", OTHER, always=True)  # whoever resumes it takes it over, and clears up
    again.remove_leftovers()
    needed = again.last.objects() | again._before.objects()
    assert {f"files/{name}" for name in needed} == {name for name in root.listed() if name.startswith("files/")}
    assert fetched(root, tmp_path / "after")[1] == found
    # The same process, had it lived on, would have known.
    write(folder, "more", b"3")
    with pytest.raises(InputError, match="another process works on this run"):
        run.publish(folder, ONE)


def test_a_commit_whose_answer_was_lost_is_made(root, folder, tmp_path, monkeypatch):
    put = MemoryFileSystem.pipe_file

    def deaf(self, path, value, mode="overwrite", **options):
        put(self, path, value, mode=mode, **options)
        if mode == "create":
            raise TimeoutError("no answer")

    run = ObjectRun(root)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", deaf)
        run.publish(folder, ONE)
        patch.setattr(MemoryFileSystem, "exists", lambda *arguments, **options: False)
        patch.setattr(MemoryFileSystem, "isfile", lambda *arguments, **options: False)
        patch.setattr(MemoryFileSystem, "isdir", lambda *arguments, **options: False)
        write(folder, "a/c/0", b"second")
        with pytest.raises(ResourceError, match="its store cannot be reached; got TimeoutError: no answer"):
            run.publish(folder, ONE)
    write(folder, "a/c/0", b"third")
    run.publish(folder, ONE)  # that commit is not written to again
    assert run.last.number == 3
    assert fetched(root, tmp_path / "found")[1]["a/c/0"] == b"third"
    assert (root / f"files/00000002-{ONE}/a/c/0").read() == b"second"


class Keeper(Checkpointer):
    """Of a number, in a file."""

    def write(self, state):
        write(self.run.path, "state", state)
        return {}


def away(self, *arguments, **options):
    raise TimeoutError("no answer")


def test_a_fit_goes_on_while_its_store_is_away(root, tmp_path, monkeypatch):
    run = new_run(str(root)).create({"task": "none"})
    keeper = Keeper(run)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", away)
        with pytest.warns(RuntimeWarning, match="not committed yet, the fit continues: .*no answer"):
            keeper.commit(b"one")
        with pytest.warns(RuntimeWarning, match="not committed yet, the fit continues: .*no answer"):
            run.write_arrays("model", {})
    assert "state" not in fetched(root, tmp_path / "before")[1]
    keeper.commit(b"two")
    found = fetched(root, tmp_path / "after")[1]
    assert found["state"] == b"two" and found["events.jsonl"].count(b'"commit"') == 2
    run.close()


def test_the_end_of_a_fit_waits_for_its_store(root, tmp_path, monkeypatch):
    run, pauses = new_run(str(root)).create({"task": "none"}), []
    write(run.path, "state", b"one")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", away)
        patch.setattr(
            published.time, "sleep", lambda seconds: patch.undo() if len(pauses) == 2 else pauses.append(seconds)
        )
        with pytest.warns(
            RuntimeWarning, match="waiting for up to 600 s: .*its store cannot be reached; got.*no answer"
        ) as told:
            run.publish()
    assert len(told) == 1 and fetched(root, tmp_path / "found")[1]["state"] == b"one"
    run.close()


@pytest.fixture
def left_behind(root, monkeypatch):
    """The folder of a run that has lost its store, whose file `state` is b"one"."""
    run = new_run(str(root)).create({"task": "none"})
    write(run.path, "state", b"one")
    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "pipe_file", away)
        patch.setattr(published, "STORE_SECONDS", 0.0)
        with pytest.raises(
            ResourceError, match="no answer; all is kept in .*`dkl resume .*dkl-kept-.*` commits it, and continues"
        ):
            run.publish()
    run.close()
    stored._held.close()
    assert run.path.name == f"dkl-kept-run.zarr-{run.attempt}" and (run.path / "state").is_file()
    yield run.path
    shutil.rmtree(run.path)


def test_what_is_kept_is_committed_once_the_store_is_back(root, left_behind, tmp_path):
    assert "state" not in fetched(root, tmp_path / "before")[1]
    assert found_run(left_behind).name == str(left_behind)  # to be read it is a folder as any other
    run = found_run(left_behind, to_work=True)
    assert run.name == str(root)
    run.lock()
    run.take_over()
    run.close()
    content = fetched(root, tmp_path / "after")[1]
    assert content["state"] == b"one" and "store.json" not in content
    assert (left_behind / "state").is_file() and not (left_behind / "store.json").exists()


def test_what_is_kept_is_not_committed_over_the_work_of_another(root, left_behind):
    other = found_run(str(root), to_work=True)
    other.lock()
    other.take_over()
    other.close()
    with pytest.raises(InputError, match="run.zarr: another process has worked on this run since; got commit 2 by pid"):
        found_run(left_behind, to_work=True)


def test_a_fit_that_ends_early_while_its_store_is_away_keeps_its_folder(root, monkeypatch):
    run = new_run(str(root)).create({"task": "none"})
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", away)
    with pytest.warns(RuntimeWarning, match="not committed yet"):
        Keeper(run).commit(b"one")
    with pytest.warns(
        RuntimeWarning, match="run.zarr lacks what came since its last commit; all is kept in .*dkl-kept-"
    ):
        run.close()
    assert (run.path / "state").read_bytes() == b"one"
    shutil.rmtree(run.path)


def test_an_interruption_of_the_wait_keeps_the_folder(root, monkeypatch):
    run = new_run(str(root)).create({"task": "none"})
    write(run.path, "state", b"one")

    def interrupt(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", away)
    monkeypatch.setattr(published.time, "sleep", interrupt)
    with (
        pytest.warns(RuntimeWarning, match="waiting for up to 600 s"),
        pytest.raises(KeyboardInterrupt, match="interrupted while .*run.zarr could not be reached; all is kept in"),
    ):
        run.publish()
    run.close()
    shutil.rmtree(run.path)


def test_a_store_without_conditional_puts_is_refused(root, monkeypatch):
    put = MemoryFileSystem.pipe_file
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", lambda self, path, value, mode="": put(self, path, value))
    with pytest.raises(InputError, match="cannot commit safely.*wanted conditional puts.*write to a disk"):
        new_run(str(root))
    assert not root.exists()


def refusal(status, **error):
    """What s3fs makes of an answer of a server: of a body without <Condition> no FileExistsError."""
    answer = {"Error": {"Message": "refused", **error}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_boto_error(ClientError(answer, "PutObject"))


# https://github.com/minio/minio/blob/master/cmd/api-errors.go names the codes; it and SeaweedFS send no <Condition>.
MINIO = {"Code": "PreconditionFailed", "Key": "run.zarr/probe", "BucketName": "bucket", "Resource": "/bucket/run.zarr"}


@pytest.mark.parametrize("error", [MINIO, {"Code": "412"}, {"Code": "SomeNewCode"}], ids=lambda error: error["Code"])
def test_a_store_is_believed_by_the_status_of_its_refusal(error, root, folder, monkeypatch):
    refused = refusal(412, **error)
    assert not isinstance(refused, FileExistsError)
    put = MemoryFileSystem.pipe_file

    def pipe_file(self, path, value, mode="overwrite", **options):
        if mode == "create" and self.exists(path):
            raise refused
        put(self, path, value, mode=mode, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    run = new_run(str(root)).create({"task": "none"})
    run.close()
    assert not any("probe" in name for name in root.listed())
    with pytest.raises(InputError, match="another process works on this run; got commit 1 by pid"):
        ObjectRun(root).publish(folder, OTHER)


@pytest.mark.parametrize("other_wins", [True, False])
def test_a_put_that_conflicts_with_another_is_tried_again(other_wins, root, folder, tmp_path, monkeypatch):
    """Of two puts at once a store may refuse both, as Amazon's does with 409: then neither object is there."""
    put, answers = MemoryFileSystem.pipe_file, []

    def pipe_file(self, path, value, mode="overwrite", **options):
        if mode == "create" and len(answers) < 2:
            answers.append(409)
            if other_wins:
                put(self, path, b"{}")
            raise refusal(409, Code="ConditionalRequestConflict")
        put(self, path, value, mode=mode, **options)

    monkeypatch.setattr(object_commits, "CONFLICT_SECONDS", 0.0)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    if other_wins:
        with pytest.raises(DklError):
            ObjectRun(root).publish(folder, ONE)
        return
    ObjectRun(root).publish(folder, ONE)
    assert len(answers) == 2 and fetched(root, tmp_path / "found")[1]["config.json"] == b"{}"


def test_a_store_that_conflicts_for_ever_is_not_asked_for_ever(root, folder, monkeypatch):
    def pipe_file(self, path, value, mode="overwrite", **options):
        raise refusal(409, Code="OperationAborted")

    monkeypatch.setattr(object_commits, "CONFLICT_SECONDS", 0.0)
    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    with pytest.raises(ResourceError, match="probe-.*refuses to create an object that is not there; got status 409"):
        new_run(str(root))


def test_no_probe_is_left_where_the_second_put_fails(root, monkeypatch):
    put, puts = MemoryFileSystem.pipe_file, []

    def pipe_file(self, path, value, mode="overwrite", **options):
        puts.append(path)
        if len(puts) == 2:
            raise TimeoutError("no answer")
        put(self, path, value, mode=mode, **options)

    monkeypatch.setattr(MemoryFileSystem, "pipe_file", pipe_file)
    with pytest.raises(ResourceError, match="no answer"):
        new_run(str(root))
    assert len(puts) == 2 and not root.exists()


def test_nothing_that_exists_is_written_to(root, folder):
    (root / "thesis.txt").write(b"precious")
    with pytest.raises(InputError, match="exists already and is never overwritten"):
        new_run(str(root))
    one, other = ObjectRun(root), ObjectRun(root)  # both had found nothing
    one.publish(folder, ONE)
    with pytest.raises(InputError, match="another process works on this run"):
        other.publish(folder, OTHER)
    assert (root / "thesis.txt").read() == b"precious"


def test_a_reader_meets_a_writer_that_clears_up(root, folder, tmp_path, monkeypatch):
    run = ObjectRun(root)
    run.publish(folder, ONE)
    read = object_runs.RunCommits.read

    def slow(self, number):
        found = read(self, number)
        if number == 1:  # two commits while the reader has the list of the first
            for content in (b"second", b"third"):
                write(folder, "a/c/0", content)
                run.publish(folder, ONE)
        return found

    monkeypatch.setattr(object_runs.RunCommits, "read", slow)
    assert fetched(root, tmp_path / "found")[1]["a/c/0"] == b"third"


def test_a_copy_that_does_not_fit_is_not_begun(root, folder, tmp_path, monkeypatch):
    ObjectRun(root).publish(folder, ONE)
    usage = object_runs.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(object_runs.shutil, "disk_usage", lambda path: usage._replace(free=10))
    with pytest.raises(DiskError, match="no space for a copy of the run; got 10 B free; wanted .*TMPDIR"):
        fetched(root, tmp_path / "found")


def test_a_run_that_was_not_begun_is_not_there(root, monkeypatch):
    run = new_run(str(root)).create({"task": "none"})
    assert found_run(str(root)).config == {"task": "none"}
    run.close()
    run.remove()
    assert not root.exists() and not run.path.exists()
    with pytest.raises(InputError, match=r"run.zarr: no such run; wanted one made by `dkl fit`"):
        RunStore.open(found_run(str(root)).path)
