"""Small inputs for the `dkl` command, and the command called in this process; or, where DKL_TIMED_COMMANDS names a file, in
one of its own each, of which a line in that file says what it took: `benchmarks/system/promptness.py --timed FILE` sums it up."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from patience import PATIENCE

from dkl.cli.main import dkl
from dkl.side_information.pairs import Pairs

N = 60
FIT = (
    "fit", "pairwise", "--solver", "admm", "--no-picture", "--data", "X.npz", "--pairs", "pairs.csv", "--out", "run.zarr",
)  # fmt: skip
"""ADMM and the finish: commits of two kinds. Tests of the default name `auto` after it."""


@dataclass
class Answer:
    """What a command gave: exit code and both streams."""

    code: int
    out: str
    err: str


Call = Callable[..., Answer]
LARGE = {"numpy", "dask", "zarr", "distributed", "sklearn", "scipy", "numba"}
"""What takes a tenth of a second or more to import."""
SLOW = {"sklearn", "numba", "pandas", "dask", "distributed"}
"""They take a second and a half to import, which nobody who is refused is to wait for."""


def write_inputs(folder: Path, n: int = N) -> None:
    """X.npz, four separate clusters, and pairs.csv drawn from them."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    np.savez(folder / "X.npz", X=rng.standard_normal((n, 6)) + 4 * np.eye(6)[y], y=y)
    pairs = Pairs.from_labels(y, random_state=0)
    lines = [f"{i},{j},{sign}" for i, j, sign in zip(pairs.i, pairs.j, pairs.sign, strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def tree(folder: Path) -> dict[str, str]:
    """Names of all that is below a folder, with the hash of each file."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = hashlib.sha256(content).hexdigest()
    return found


def factor_bytes(run: Path) -> bytes:
    """The result's chunks as they stand on disk."""
    chunks = sorted(path for path in (run / "factor" / "c").rglob("*") if path.is_file())
    assert chunks
    return b"".join(path.read_bytes() for path in chunks)


def call(*arguments: object) -> Answer:
    """`dkl` with these arguments. An exception that escapes it fails the test.

    Not by click's own runner, which tells the streams apart only when asked before 8.2, and must not be asked after.
    """
    if "DKL_TIMED_COMMANDS" in os.environ:
        given = [str(argument) for argument in arguments]
        done = _process(["-m", "dkl.cli.main", *given], given)
        return Answer(done.returncode, done.stdout, done.stderr)
    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        dkl.main([str(argument) for argument in arguments], prog_name="dkl")
    return Answer(ended.value.code, out.getvalue(), err.getvalue())


def _process(program: list[str], arguments: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Python with a program that is `dkl` with these arguments; its seconds go into the file that DKL_TIMED_COMMANDS names."""
    start = time.perf_counter()
    command = [sys.executable, *program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=PATIENCE)
    if log := os.environ.get("DKL_TIMED_COMMANDS"):
        told = {"seconds": round(time.perf_counter() - start, 3), "code": done.returncode, "arguments": arguments}
        with Path(log).open("a") as lines:
            print(json.dumps(told), file=lines)
    return done


def answered_without(modules: set[str], *arguments: str, folder: Path | None = None) -> Answer:
    """What `dkl`, in a process of its own, answers to these arguments, and has imported none of the modules for."""
    program = (
        f"import sys\nfrom dkl.cli.main import main\nsys.argv = ['dkl', *{list(arguments)!r}]\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        f"print(); print(code, {modules!r} & sys.modules.keys())\nsys.exit(code)"
    )
    done = _process(["-c", program], list(arguments), folder)
    said, _, told = done.stdout.rstrip("\n").rpartition("\n")
    code, _, imported = told.partition(" ")
    assert imported == "set()", done.stdout + done.stderr
    return Answer(int(code), said, done.stderr)


def refused_without(modules: set[str], *arguments: str, folder: Path | None = None, code: int = 2) -> str:
    """The one line by which these arguments are refused."""
    answer = answered_without(modules, *arguments, folder=folder)
    assert (answer.code, answer.out.strip()) == (code, "") and len(answer.err.splitlines()) == 1, answer
    return answer.err
