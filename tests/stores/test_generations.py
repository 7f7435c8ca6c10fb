"""Checkpoints under attack: damaged files, full disks and crashes at every system call of a commit."""

import errno
import io
import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pairwise_cases import random_problem
from repeats import but_for

from dkl.blocks.session import Session
from dkl.blocks.slabs.placement import LocalPlacement, RunCheckpoints, Workspace
from dkl.errors import DiskError, StoreError
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.problems.pairwise.terms import target_matrix
from dkl.stores.generations import Generations
from dkl.stores.run import RunStore
from dkl.stores.seals import identity_of, read_json, write_json
from dkl.stores.slab_arrays import SlabArray

N, RANK = 24, 20
STATE = ("V", "U", "Lambda")
CHUNKS = [f"{name}/c.{slab}.0.0" for name in STATE for slab in range(2)]
METADATA = [f"{name}/zarr.json" for name in STATE]
FILES = [*CHUNKS, *METADATA, "MANIFEST.json"]


class Case:
    """A run with commits at iterations 5 and 10, the live state at 15, and what the state was at each."""

    def __init__(self, path):
        laplacian, must, cannot = random_problem(np.random.default_rng(0), N)
        problem = PairwiseKernel(laplacian, target_matrix(N, must, cannot), 10.0)
        self.program = problem.admm(RANK, "float64", 0.0)
        self.live = LocalPlacement(self.program)
        self.live.start(RandomStart(0, N, RANK), self.program.start(100.0))
        self.path, self.states, self.carries = path, {}, {}
        run = RunStore.create(path, {})
        for iteration in (5, 10, 15):
            self.carries[iteration] = self.live.advance(5)[-1]
            self.states[iteration] = state_of(self.live)
            if iteration < 15:
                self.live.commit(run.generations(), iteration, self.carries[iteration])
        run.close()

    def copy(self, path):
        shutil.copytree(self.path, path)
        return RunStore.open(path)

    def recover(self, run):
        """(iteration, state) of what a resumed run would start from; None where it would start anew."""
        placement = LocalPlacement(self.program)
        generation = Workspace(Session(threads=1), None, run).newest(placement.restore)
        if generation is None:
            return None
        assert generation.carry == self.carries[generation.iteration]
        return generation.iteration, state_of(placement)

    def commit(self, run, iteration=15):
        return self.live.commit(run.generations(), iteration, self.carries[15])


def state_of(placement):
    return {name: placement.collect(name).tobytes() for name in STATE}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    return Case(tmp_path_factory.mktemp("generations") / "run.zarr")


@pytest.fixture
def run(case, tmp_path):
    return case.copy(tmp_path / "run.zarr")


# -- damage ---------------------------------------------------------------------------------------------------------------


def flip(position):
    def damage(path):
        content = bytearray(path.read_bytes())
        at = int(position * (len(content) - 1))
        content[at] ^= 1 << (at % 7)  # not the top bit: JSON stays text
        path.write_bytes(content)

    return damage


def resize(size):
    return lambda path: os.truncate(path, size(path.stat().st_size))


def replace_by(content):
    return lambda path: path.write_bytes(content(path))


def make_folder(path):
    path.unlink()
    path.mkdir()


def link_to_nothing(path):
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


def same_in_the_other_generation(path):
    folder = next(parent for parent in path.parents if parent.name.startswith("gen-"))
    other = {"gen-000005": "gen-000010", "gen-000010": "gen-000005"}[folder.name]
    return folder.with_name(other) / path.relative_to(folder)


def swap(path):
    """With another file of the same kind, if there is one of the same size: both are valid by themselves."""
    twin = {"c.0.0.0": "c.1.0.0", "c.1.0.0": "c.0.0.0"}.get(path.name)
    other = path.with_name(twin) if twin else path.parent.parent / "U" / "c.0.0.0"
    if path.name == "MANIFEST.json":
        other = path.parent / "U" / "zarr.json"
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


DAMAGE = {
    **{f"bit flip at {position:.0%}": flip(position) for position in (0, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 1)},
    "one byte short": resize(lambda size: size - 1),
    "half": resize(lambda size: size // 2),
    "empty": resize(lambda size: 0),
    "longer": resize(lambda size: size + 4096),
    "zeros": replace_by(lambda path: bytes(path.stat().st_size)),
    "garbage": replace_by(lambda path: np.random.default_rng(0).bytes(path.stat().st_size)),
    "other JSON": replace_by(lambda path: b'{"kind": "dkl-generation", "version": 1}'),
    "a list": replace_by(lambda path: b"[1, 2]"),
    "deep JSON": replace_by(lambda path: b"[" * 100_000),
    "of another commit": replace_by(lambda path: same_in_the_other_generation(path).read_bytes()),
    "swapped": swap,
    "deleted": Path.unlink,
    "a folder": make_folder,
    "a broken link": link_to_nothing,
}
FURTHER = [
    *(f"bit flip at {position}%" for position in (10, 25, 40, 55, 70, 85)),
    *("one byte short", "empty", "zeros", "other JSON", "a list", "a folder"),
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("kind", but_for(FURTHER, DAMAGE))
def test_damage_is_seen_and_the_commit_before_is_taken(case, run, kind, file):
    newest = run.path / "generations" / "gen-000010"
    whole = (newest / file).read_bytes()
    DAMAGE[kind](newest / file)
    unharmed = (newest / file).is_file() and (newest / file).read_bytes() == whole  # metadata is alike in every commit
    wanted = 10 if unharmed else 5
    assert case.recover(run) == (wanted, case.states[wanted])
    if wanted == 5:
        assert any(event["event"] == "damaged checkpoint passed over" for event in run.events())


@pytest.mark.parametrize("file", but_for(["U/zarr.json"], ["MANIFEST.json", "U/zarr.json"]))
def test_no_single_bit_of_the_metadata_is_used_wrongly(case, run, file):
    """Every bit in turn: passed over, or (where it stands for nothing, as in JSON's spaces) of no effect."""
    generations = run.generations()
    path = generations.root / "gen-000010" / file
    whole = path.read_bytes()
    good = next(generations.newest_first())
    for bit in range(0, 8 * len(whole), 5):  # every bit of a byte, every byte: 5 and 8 share no factor
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(damaged)
        found = next(generations.newest_first())
        assert found.iteration == 5 or found == good
        assert found.iteration == 5 or file == "MANIFEST.json"


def test_a_changed_number_in_a_manifest_is_seen(case, run):
    path = run.path / "generations" / "gen-000010" / "MANIFEST.json"
    content = json.loads(path.read_text())
    content["carry"]["rho"] *= 2
    path.write_text(json.dumps(content))
    assert case.recover(run) == (5, case.states[5])


def test_a_renamed_generation_is_seen(case, run):
    root = run.path / "generations"
    (root / "gen-000010").rename(root / "gen-000012")
    assert case.recover(run) == (5, case.states[5])


def test_the_generation_of_another_run_is_passed_over(case, run):
    """Of the same shape and whole, but of a run with other settings."""
    root = json.loads((run.path / "zarr.json").read_text())
    root["attributes"]["identity"] = identity_of({"settings": {"gamma": 3.0}})
    (run.path / "zarr.json").write_text(json.dumps(root))
    assert case.recover(run) is None


def test_a_state_of_another_type_or_shape_is_not_taken(case, run):
    """Slabs of 32 single and of 16 double columns have the same bytes, and so the same checksums."""
    generation = next(run.generations().newest_first())
    source = SlabArray.open(generation.folder / "U")
    for shape, dtype in [((N, 32), "float32"), ((N, 16), "int64"), ((2 * N, 8), "float64")]:
        with pytest.raises(StoreError, match="another shape or type"):
            source.read(0, np.empty(shape, dtype))


def test_with_all_commits_damaged_a_run_starts_anew_and_its_commits_last(case, run):
    for folder in (run.path / "generations").iterdir():
        os.truncate(folder / "V" / "c.0.0.0", 10)
    assert case.recover(run) is None
    # An early commit is not pruned in favour of damaged ones of later iterations.
    case.commit(run, 3)
    assert [folder.name for folder in (run.path / "generations").iterdir()] == ["gen-000003"]


def test_two_commits_are_kept_and_nothing_else(case, run):
    for iteration in (15, 20, 1_000_000, 999_999 + 5):
        case.commit(run, iteration)
    folders = sorted(folder.name for folder in (run.path / "generations").iterdir())
    assert folders == ["gen-1000000", "gen-1000004"]
    assert [generation.iteration for generation in run.generations().newest_first()] == [1_000_004, 1_000_000]


def test_a_commit_at_the_same_iteration_replaces_a_damaged_one(case, run):
    (run.path / "generations" / "gen-000010" / "V" / "c.0.0.0").unlink()
    case.commit(run, 10)
    generations = list(run.generations().newest_first())
    assert [generation.iteration for generation in generations] == [10, 5]
    placement = LocalPlacement(case.program)
    placement.restore(generations[0])
    assert state_of(placement) == case.states[15]


def test_what_did_not_all_come_is_not_committed(case, run):
    generations = run.generations()
    for spoil in ("missing entry", "entry twice", "missing file", "short file"):
        program = case.program
        folder = generations.begin(program.committed, 2, program.n, program.width, program.dtype)
        written = case.live.owner.write_generation(folder)
        if spoil == "missing entry":
            written.pop()
        elif spoil == "entry twice":
            written[0] = written[1]
        elif spoil == "missing file":
            (folder / written[0][0]).unlink()
        else:
            os.truncate(folder / written[0][0], 100)
        with pytest.raises(DiskError):
            generations.commit(folder, written, 6, 15, {})
        assert case.recover(run) == (10, case.states[10])


def test_a_late_writer_of_a_lost_commit_finds_no_place(case, run):
    """A worker that was taken for lost may go on writing; the next commit has a folder of its own."""
    generations = run.generations()
    program = case.program
    old = generations.begin(program.committed, 2, program.n, program.width, program.dtype)
    late = SlabArray.open(old / "V")
    new = generations.begin(program.committed, 2, program.n, program.width, program.dtype)
    assert new != old and not old.exists()
    with pytest.raises(DiskError):
        late.write(0, np.zeros((N, 16)))
    generations.remove_leftovers()
    assert not new.exists()


def test_a_keeper_loads_the_newest_commit_that_is_whole(case, run):
    placement = LocalPlacement(case.program)
    keeper = RunCheckpoints(run, lambda: placement)
    (run.path / "generations" / "gen-000010" / "V" / "c.0.0.0").unlink()
    assert keeper.load() == case.carries[5]
    assert state_of(placement) == case.states[5]
    shutil.rmtree(run.path / "generations" / "gen-000005")
    assert keeper.load() is None


def test_json_says_what_is_the_matter(tmp_path):
    content = {"a": [1, 2.5, float("inf"), None], "b": {"2": "x", "10": "\u00fc"}}
    write_json(tmp_path / "x.json", content)
    assert read_json(tmp_path / "x.json", sealed=True) == content
    assert (tmp_path / "x.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]
    (tmp_path / "y.json").write_text('{"a": 1}')
    assert read_json(tmp_path / "y.json") == {"a": 1}
    with pytest.raises(StoreError, match="checksum"):
        read_json(tmp_path / "y.json", sealed=True)
    with pytest.raises(StoreError, match="not readable"):
        read_json(tmp_path / "none.json")


# -- crashes --------------------------------------------------------------------------------------------------------------

CALLS = ("open", "write", "pwrite", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "remove")


class Disk:
    """Stands in for the calls of `os` that change the disk: counts them, records them, and fails as it is told.

    fails_at    the number of the call (from 1) that gets ENOSPC
    dead_after  from this call on nothing reaches the disk any more, as after a crash; of a write, half still does
    """

    def __init__(self, monkeypatch, fails_at=None, dead_after=None):
        self.fails_at, self.dead_after = fails_at, dead_after
        self.count, self.trace, self.paths = 0, [], {}
        self.real = {name: getattr(os, name) for name in CALLS}
        self.real_close, self.real_io_open = os.close, io.open
        for name in CALLS:
            monkeypatch.setattr(os, name, self._stand_in(name))
        monkeypatch.setattr(os, "close", self._close)
        monkeypatch.setattr(io, "open", self._io_open)  # pathlib's, and so zarr's

    def _close(self, descriptor):
        self.paths.pop(descriptor, None)
        self.real_close(descriptor)

    def _stand_in(self, name):
        real = self.real[name]

        def call(*arguments, **keywords):
            if name == "open" and not arguments[1] & os.O_CREAT:
                descriptor = real(*arguments, **keywords)
                self.paths[descriptor] = str(arguments[0])
                return descriptor
            what = arguments[0]
            self._count(name, self.paths.get(what, what) if isinstance(what, int) else what, arguments)
            result = real(*arguments, **keywords)
            if name == "open":
                self.paths[result] = str(what)
            return result

        return call

    def _io_open(self, file, mode="r", *arguments, **keywords):
        if set(mode) & set("wax+") and not isinstance(file, int):
            self._count("write", file, ())
        return self.real_io_open(file, mode, *arguments, **keywords)

    def _count(self, name, path, arguments):
        self.count += 1
        self.trace.append((name, str(path), str(arguments[1]) if name in ("rename", "replace") else None))
        if self.count == self.fails_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if self.dead_after is not None and self.count >= self.dead_after:
            if self.count == self.dead_after and name == "pwrite":
                descriptor, data, offset = arguments
                self.real["pwrite"](descriptor, data[: len(data) // 2], offset)
            raise OSError(errno.EIO, "dead", str(path))


EVERY_OTHER = [(how, first, 2) for how in ("fails_at", "dead_after") for first in (1, 2)]


def calls_of_a_commit(case, path):
    run = case.copy(path)
    with pytest.MonkeyPatch.context() as patch:
        disk = Disk(patch)
        case.commit(run)
    return disk


@pytest.mark.parametrize(
    ("how", "first", "step"), but_for(EVERY_OTHER, [("fails_at", 1, 5), ("dead_after", 3, 5), *EVERY_OTHER])
)
def test_at_every_call_of_a_commit_the_old_or_the_new_state_is_whole(case, tmp_path, how, first, step):
    """Every `step`th one from the first on."""
    total = calls_of_a_commit(case, tmp_path / "count").count
    assert total > 50
    outcomes = set()
    for k in range(first, total + 1, step):
        run = case.copy(tmp_path / f"{k}")
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, **{how: k})
            try:
                case.commit(run)
                finished = True
            except DiskError as error:
                finished = False
                assert str(run.path) in str(error)
        assert disk.count >= k
        iteration, state = case.recover(run)
        assert state == case.states[iteration], f"call {k} of {total}: {disk.trace[k - 1]}"
        assert iteration == 15 or (iteration == 10 and not finished)
        outcomes.add((iteration, finished))
        # Once there is room again, a commit works, and leftovers go.
        run.generations().remove_leftovers()
        case.commit(run)
        assert case.recover(run) == (15, case.states[15])
        assert sorted(path.name for path in run.generations().root.iterdir()) == ["gen-000010", "gen-000015"]
        shutil.rmtree(run.path)
    # Failing to clear up is no failure of the commit, and the test has seen all of these.
    assert {(10, False), (15, True)} <= outcomes


def test_a_full_disk_leaves_nothing_of_the_commit_behind(case, run):
    raised = 0
    for call in range(3, 80, 3):
        with pytest.MonkeyPatch.context() as patch:
            Disk(patch, fails_at=call)
            try:
                RunCheckpoints(run, lambda: case.live, 5).save([case.carries[15]])
            except DiskError as error:
                raised += 1
                assert "No space left on device" in str(error) and "free space on that disk" in str(error)
                assert not list(run.generations().root.glob("tmp-*"))
    assert raised > 10


def test_files_then_folders_are_synced_before_the_rename_and_the_parent_after(case, tmp_path):
    disk = calls_of_a_commit(case, tmp_path / "run.zarr")
    target = tmp_path / "run.zarr" / "generations" / "gen-000015"
    renames = [k for k, (call, _, to) in enumerate(disk.trace) if call == "rename" and to == str(target)]
    assert len(renames) == 1
    renamed = renames[0]
    folder = Path(disk.trace[renamed][1])
    synced = SimpleNamespace(
        last=lambda path: max(
            k for k, (call, name, _) in enumerate(disk.trace[:renamed]) if (call, name) == ("fsync", str(path))
        )
    )
    for file in FILES:
        at = {str(folder / file), str(folder / file) + ".partial"}
        made = [
            k
            for k, (call, name, to) in enumerate(disk.trace[:renamed])
            if call in ("open", "write", "pwrite", "replace") and ({name, to} & at)
        ]
        assert made, file
        content = [k for k in made if disk.trace[k][0] != "replace"]
        written = folder / (file + ".partial" if file == "MANIFEST.json" else file)
        assert synced.last(written) > max(content, default=-1), file
        assert synced.last((folder / file).parent) > max(made), file
    after = disk.trace[renamed + 1 :]
    assert after[0] == ("fsync", str(folder.parent), None)
    # The older generation goes only when the new one is safe.
    removals = [k for k, (call, _, _) in enumerate(disk.trace) if call in ("unlink", "rmdir")]
    assert removals and min(removals) > renamed + 1


def test_a_new_folder_of_generations_is_synced_too(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    Generations(tmp_path / "generations", "a")
    assert disk.trace[-1] == ("fsync", str(tmp_path), None)
