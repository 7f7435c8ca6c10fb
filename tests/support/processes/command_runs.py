"""What tests of the commands that learn from rows and targets share: their runs, copied, read and disturbed."""

import shutil
from pathlib import Path

import numpy as np
import small_blocks
from preloaded import Forked

from dkl.stores.run import RunStore
from dkl.stores.seals import MANIFEST, write_json


def refused(answer, code=2):
    """One line on stderr."""
    assert answer.code == code, answer.err or answer.out
    assert len(answer.err.splitlines()) == 1, answer.err
    assert "Traceback" not in answer.err and "bug" not in answer.err


def arrays(name: str) -> dict[str, np.ndarray]:
    """Those of an archive, which is closed again."""
    with np.load(name) as archive:
        return dict(archive)


def bytes_of(run: Path, *parts: str) -> dict[str, bytes]:
    """Names and bytes of all files in some parts of a run, but for their manifests: these name the run's settings."""
    files = [path for part in parts for path in (run / part).rglob("*") if path.is_file() and path.name != MANIFEST]
    assert files
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(files)}


def copied(finished: Path, folder: Path) -> Path:
    """The finished run of one folder in another, whose data it names."""
    copy = Path(shutil.copytree(finished / "run.zarr", folder / "run.zarr"))
    config = RunStore.open(copy).config
    for part in ("data", "targets"):
        config["inputs"][part]["path"] = str(folder / "X.npz")
    write_json(copy / "config.json", config)
    for name in ("X.npz", "new.npz"):  # archives hold the time they were made at
        shutil.copy(finished / name, folder)
    return copy


def read(run, name):
    return RunStore.open(run).read_arrays("model")[name]


def start(place, *arguments):
    """`dkl` with these arguments in a process of its own, with small blocks; killed at its write number `place`, if any."""
    return Forked(small_blocks.main, str(place), *arguments)


def told_of_commit(err: str) -> str:
    """The line that a run which was interrupted ends with. Behind it an LLVM that was interrupted while it compiled may
    complain when the process ends."""
    (line,) = [line for line in err.splitlines() if "committed" in line]
    return line


def commits(run="run.zarr"):
    return [event for event in RunStore.open(run).events() if event["event"] == "commit"]
