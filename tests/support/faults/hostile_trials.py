"""Trials with mutated inputs, and with mutated and damaged files of runs; what tests/support/faults/trials.py runs many of.

Every trial works in a folder of its own beside what it was made from, and tells the exit status that the command gave, or
what was wrong with its answer.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mutations
import numpy as np
import zarr
from command_line import Answer, call
from scipy import sparse

N, D = 24, 3
FITS: dict[str, tuple[str, ...]] = {
    "pairwise": (
        "--pairs",
        "pairs.csv",
        "--rank",
        "3",
        "--max-iter",
        "6",
        "--target-gap",
        "none",
        "--n-neighbors",
        "3",
    ),
    "regression": ("--targets", "t.csv", "--n-columns", "6", "--nu", "0.1"),
    "svc": ("--targets", "labels.csv", "--tol", "1e-2"),
}
ROWS = ("X.npy", "X.npz", "csr.npz", "X.csv", "X.svm", "X.zarr")
OTHERS = {
    "pairs.csv": ("pairwise", "--pairs"),
    "pairs.npz": ("pairwise", "--pairs"),
    "t.csv": ("regression", "--targets"),
    "t.npy": ("regression", "--targets"),
    "labels.csv": ("svc", "--targets"),
    "labels.npy": ("svc", "--targets"),
    "both.npz": ("svc", "--data"),
}
FORMATS = (*ROWS, *OTHERS)


def write_formats(folder: Path) -> None:
    """The same rows, pairs, targets and labels in all formats that are read."""
    rng = np.random.default_rng(5)
    X, labels = rng.standard_normal((N, D)).round(3), np.arange(N) % 2
    X[:, 0] += 2 * labels
    y = (X[:, 1] + 0.1 * rng.standard_normal(N)).round(3)
    np.save(folder / "X.npy", X)
    np.savez(folder / "X.npz", X=X)
    np.savez(folder / "both.npz", X=X, y=labels)
    sparse.save_npz(folder / "csr.npz", sparse.csr_matrix(X), compressed=False)
    np.savetxt(folder / "X.csv", X, fmt="%.3f", delimiter=",", header="a,b,c", comments="")
    lines = [
        " ".join([str(label), *(f"{k + 1}:{v}" for k, v in enumerate(row))])
        for label, row in zip(labels, X, strict=True)
    ]
    (folder / "X.svm").write_text("\n".join(lines) + "\n")
    zarr.create_array(str(folder / "X.zarr"), shape=X.shape, chunks=(10, D), dtype="f8")[...] = X
    np.savetxt(folder / "t.csv", y, fmt="%.3f")
    np.save(folder / "t.npy", y)
    (folder / "labels.csv").write_text("color\n" + "\n".join(("blue", "red")[label] for label in labels) + "\n")
    np.save(folder / "labels.npy", labels)
    pairs = np.arange(N).reshape(-1, 4)
    must, cannot = pairs[:, [0, 2]], pairs[:, [1, 2]]
    both = [(*pair, "must") for pair in must] + [(*pair, "cannot") for pair in cannot]
    (folder / "pairs.csv").write_text("i,j,label\n" + "".join(f"{i},{j},{label}\n" for i, j, label in both))
    np.savez(folder / "pairs.npz", must_link=must, cannot_link=cannot)


@contextmanager
def aside(folder: str) -> Iterator[Path]:
    """A new folder in `folder`, where the trial works; it goes at the end."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        os.chdir(work)
        try:
            yield Path(work)
        finally:
            os.chdir(before)


def told(answer: Answer, *, may: tuple[int, ...]) -> str:
    """The exit status; more where the answer is not what it should be: one line on stderr, no bug, no want of memory."""
    lines = answer.err.splitlines()  # progress, and last what is wrong
    if answer.code not in may or "a bug in dkl" in answer.err:
        return f"exit {answer.code}!"
    if "Unable to allocate" in answer.err or "MemoryError" in answer.err:
        return "memory!"
    is_error = [line.startswith(("dkl: ", "dkl ")) for line in lines]
    if "Warning" in answer.err or "Traceback" in answer.err or (answer.code not in (0, 3) and is_error[-1:] != [True]):
        return "lines!"
    return f"exit {answer.code}"


# -- inputs -------------------------------------------------------------------------------------------------------------


def mutated_input(spec: tuple[str, str, int]) -> str:
    """(folder with all formats, the one that is mutated, seed): fitted by a learner that reads it."""
    folder, name, seed = spec
    answer = _fit_mutated(folder, name, random.Random(f"{name} {seed}"))
    found = told(answer, may=(0, 2, 3, 5))
    if found.endswith("!"):
        print(spec, found, answer.err, file=os.sys.stderr)
    return found


def _fit_mutated(folder: str, name: str, rng: random.Random) -> Answer:
    with aside(folder) as work:
        for path in Path(folder).iterdir():
            if path.name in (name, "X.npy", "pairs.csv", "t.csv", "labels.csv"):
                mutations.copied(path, work / path.name)
        mutations.mutate(work / name, rng)
        task, option = OTHERS.get(name) or (rng.choice(list(FITS)), "--data")
        given = ["--data", "X.npy", *FITS[task]]
        if name == "both.npz":
            given = given[:2] + given[4:]
        given[given.index(option) + 1] = name
        return call("fit", task, "--no-picture", "--threads", "1", "--out", "run.zarr", *given)
