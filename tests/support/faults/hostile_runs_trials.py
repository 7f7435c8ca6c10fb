"""Trials with runs whose files are damaged, swapped, or say what nobody wrote; what tests/support/faults/trials.py runs many of.

A base folder has, of every case, a complete run, what it makes of the rows, and a run that was killed on its way.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mutations
import numpy as np
import small_blocks
import trials
from command_line import Answer, call
from command_runs import bytes_of
from hostile_trials import aside, told

from dkl.runs import registry

N, MORE, MANY = 36, 200, 12_000
EACH = ("--checkpoint-every", "1")
PAIRS = ("pairwise", "--pairs", "pairs.csv", "--rank", "4", "--n-neighbors", "4", *EACH)
COLUMNS = ("regression", "--targets", "t.csv", "--n-columns", "12", "--store-columns", *EACH)
MACHINES = ("svc", "--targets", "labels.csv", "--rho", "2", *EACH)
KERNEL = (
    "logdet",
    "--kernel",
    "laplacian",
    "--targets",
    "labels.csv",
    "--n-in",
    "2",
    "--n-out",
    "2",
    "--n-neighbors",
    "4",
    "--n-components",
    "3",
)
METRIC = ("metric", "--targets", "labels.csv", "--n-in", "2", "--n-out", "2")
SMOOTH = ("--n-basis", "32", "--n-neighbors", "8", "--tol", "1e-7", *EACH)
BASIS = ("rows", "basis", "model")
SVC, TARGETS, FACTOR = ("model", "history"), ("model", "candidates", "columns"), ("factor",)


@dataclass(frozen=True)
class Case:
    """given: of the command. parts: of the run's folder, what was learned. kept: where its state is while it is under way.
    data: the rows that it learns from."""

    given: tuple[str, ...]
    parts: tuple[str, ...]
    kept: str = ""
    data: str = "X.npz"

    @property
    def verb(self) -> str:
        return registry.declaration(self.given[0]).verb


CASES = {
    "pairs": Case((*PAIRS, "--max-iter", "8", "--tol", "0", "--target-gap", "none"), FACTOR, "generations/gen-*"),
    "pairs, gap": Case((*PAIRS, "--max-iter", "6", "--target-gap", "0.01"), FACTOR, "generations/gen-*"),
    "pairs, factored": Case((*PAIRS[:-2], "--solver", "factored"), FACTOR),
    "regression, folds": Case((*COLUMNS, "--cv", "3", "--n-nus", "5"), TARGETS, "sums/sums-*"),
    "regression, disk": Case(
        (*COLUMNS, "--n-columns", "80", "--nu", "1", "--targets", "more.csv"),
        (*TARGETS, "gram"),
        "sums/sums-*",
        "more.npz",
    ),
    "logdet": Case((*KERNEL, *(f"--gamma={gamma}" for gamma in (0.5, 2, 8, 32))), SVC, "path/path-*"),
    "metric": Case((*METRIC, *(f"--gamma={gamma}" for gamma in (0.5, 2, 8, 32))), SVC, "path/path-*"),
    "mvu": Case(("mvu", *SMOOTH), BASIS, "engine/engine-*"),
    "laplacian": Case(("laplacian", "--pairs", "pairs.csv", *SMOOTH[2:], "--n-basis", "6"), BASIS, "engine/engine-*"),
    "svc": Case((*MACHINES, "--tol", "1e-6"), SVC, "alphas/alphas-*"),
    "svc, gradient": Case((*MACHINES, "--solver", "gradient", "--tol", "1e-2"), SVC, "alphas/alphas-*"),
    "svc, level": Case((*MACHINES, "--solver", "level", "--tol", "5e-2"), SVC, "alphas/alphas-*"),
    "svc, kernels": Case((*MACHINES, "--kernel", "rbf", "--kernel", "poly", "--tol", "1e-3"), SVC, "alphas/alphas-*"),
}
SHARED = {"mvu, shared": Case(("mvu", "--n-basis", "20", "--n-neighbors", "8", *EACH), BASIS, data="many.npz")}
"""Whose eigenvectors are found with their rows on workers, where there are any: for trials with processes alone."""
EVERY = CASES | SHARED
LIMITED = ("regression, disk",)
"""With a limit of memory that their plan in memory is just above."""
STATES = ("complete", "killed")
MAY = (0, 2, 3, 5, 6)
"""Exit statuses that a changed run may end in."""


# -- the runs that are damaged ------------------------------------------------------------------------------------------


def write_inputs(folder: Path) -> None:
    rng = np.random.default_rng(7)
    numbers = np.arange(N) % 3
    X = rng.standard_normal((N, 3)) + 1.2 * np.eye(3)[numbers]
    more = rng.standard_normal((MORE, 3))
    for name, rows, targets in (("X", X, "t.csv"), ("more", more, "more.csv")):
        np.savez(folder / f"{name}.npz", X=rows)
        np.savetxt(folder / targets, np.sin(2 * rows[:, 0]) + rows[:, 1], fmt="%.17g")
    (folder / "labels.csv").write_text("\n".join(np.array(["blue", "green", "red"])[numbers]) + "\n")
    ends = rng.permutation(N).reshape(-1, 2)
    lines = [f"{i},{j},{'must' if numbers[i] == numbers[j] else 'cannot'}" for i, j in ends]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def make_runs(base: Path, names: tuple[str, ...] = tuple(CASES)) -> None:
    """base/<name>/{complete.zarr, killed.zarr, applied.npy, writes}, and the inputs that they name; writes: how many it takes."""
    write_inputs(base)
    for name in names:
        (base / name).mkdir()
        (made,) = trials.run("hostile_runs_trials.made", [(str(base), name, 0)])
        writes = int(made.told)
        (base / name / "writes").write_text(made.told)
        for share in (0.6, 0.5, 0.7, 0.8, 0.4, 0.9):
            shutil.rmtree(base / name / "killed.zarr", ignore_errors=True)
            (ended,) = trials.run("hostile_runs_trials.made", [(str(base), name, int(share * writes))])
            assert ended.told == f"died of {-signal.SIGKILL}", ended
            if not CASES[name].kept or list((base / name / "killed.zarr").glob(CASES[name].kept)):
                break
        else:
            raise AssertionError(f"no state of {name} was met")


def make_inputs(base: Path, names: list[str]) -> None:
    """The inputs, and the limits of cases that have one: in base/<name>/limit."""
    write_inputs(base)
    np.savez(base / "many.npz", X=np.random.default_rng(8).random((MANY, 6)))
    for name in names:
        (base / name).mkdir()
        if name in LIMITED:
            trials.run("hostile_runs_trials.made", [(str(base), name, 0)])


def made(spec: tuple[str, str, int]) -> str:
    """(base, case, write at which it is killed, or 0): makes the run; the number of its writes."""
    base, name, at = spec
    case, folder = CASES[name], Path(base, name)
    os.chdir(base)
    out = folder / ("killed.zarr" if at else "complete.zarr")
    given = ["fit", *case.given, "--data", case.data, "--no-picture", "--threads", "1", "--out", str(out)]
    if name in LIMITED:
        given += ["--memory-limit", str(limit_of(given, folder))]
    writes = small_blocks.Writes(
        setattr, (lambda: os.kill(os.getpid(), signal.SIGKILL)) if at else _nothing, at or None
    )
    answer = call(*given)
    assert answer.code in (0, 3), answer.err
    assert call(case.verb, out, "--data", "X.npz", "--out", folder / "applied.npy").code == 0
    return str(writes.count)


def _nothing() -> None:
    pass


def limit_of(given: list[str], folder: Path) -> int:
    """Return the bytes of the plan in memory of a command whose last word is the run's folder, less one."""
    kept = folder / "limit"
    if not kept.exists():
        measured = folder / "measured.zarr"
        answer = call(*given[:-1], measured)
        assert answer.code in (0, 3), answer.err
        kept.write_text(str(json.loads((measured / "report.json").read_text())["plan"]["process_bytes"] - 1))
        shutil.rmtree(measured)
    return int(kept.read_text())


# -- what the verbs make of a changed run -------------------------------------------------------------------------------


def answers(work: Path, base: Path, name: str) -> tuple[dict[str, Answer], str]:
    """What all verbs answer to work/run.zarr, and what is wrong with their results: other bytes with a good exit status."""
    case, run, wrong = CASES[name], work / "run.zarr", ""
    found = {
        "info": call("info", run),
        "info --json": call("info", "--json", run),
        "verify": call("verify", run),
        case.verb: call(case.verb, run, "--data", base / "X.npz", "--out", work / "applied.npy"),
    }
    if found[case.verb].code == 0 and (work / "applied.npy").read_bytes() != (base / name / "applied.npy").read_bytes():
        wrong = f"{case.verb} differs!"
    found["resume"] = call("resume", run, "--threads", "1")
    if found["resume"].code in (0, 3) and learned(run, name) != learned(base / name / "complete.zarr", name):
        wrong = wrong or "resume differs!"
    return found, wrong


def learned(run: Path, name: str) -> dict[str, bytes]:
    return bytes_of(run, *EVERY[name].parts)


def copied(base: str, name: str, state: str, work: Path) -> Path:
    return Path(shutil.copytree(Path(base, name, f"{state}.zarr"), work / "run.zarr"))


def reworded(spec: tuple[str, str, str, int]) -> str:
    """(base, case, state, seed): one value of a JSON file of the run is another, and well sealed. Any result may come of it."""
    base, name, state, seed = spec
    rng = random.Random(f"{name} {state} {seed}")
    with aside(base) as work:
        run = copied(base, name, state, work)
        files = [path for path in mutations.files_in(run) if path.suffix in (".json", ".jsonl")]
        own = [path for path in files if path.name != "zarr.json"]
        file = rng.choice(own if rng.random() < 0.85 else files)
        change = mutations.reworded_json(file, rng, sealed=file.name != "zarr.json")
        found, _ = answers(work, Path(base), name)
    strange = {verb: answer.err for verb, answer in found.items() if told(answer, may=MAY).endswith("!")}
    if strange:
        print(spec, file.relative_to(run), change, strange, file=sys.stderr)
        return told(found[next(iter(strange))], may=MAY)
    return "refused" if any(answer.code not in (0, 3) for answer in found.values()) else "read"


UNREAD = ("LOCK", "events.jsonl")
"""What no result depends on."""
OF_NO_RESULT = ("zarr.json", "generations")
"""Parts of a complete run that a report does not know: what they say is looked at, or made again, when it is needed."""


def damaged(spec: tuple[str, str, str, int, bool]) -> str:
    """(base, case, state, seed, whether files are swapped): "detected" by who reads it, or "the same bytes" by all."""
    base, name, state, seed, swaps = spec
    rng = random.Random(f"{name} {state} {seed} {swaps}")
    with aside(base) as work:
        run = copied(base, name, state, work)
        before = {path: path.read_bytes() for path in mutations.files_in(run) if path.name not in UNREAD}
        (_swap if swaps else _damage)(sorted(before), rng)
        changed = [
            path.relative_to(run)
            for path, content in before.items()
            if not path.is_file() or path.read_bytes() != content
        ]
        if not changed:
            return "no change"
        found, wrong = answers(work, Path(base), name)
    strange = [text for answer in found.values() if (text := told(answer, may=MAY)).endswith("!")]
    wrong = wrong or next(iter(strange), "")
    if not wrong and state == "complete" and found["verify"].code == 0:
        wrong = "of no result" if all(path.parts[0] in OF_NO_RESULT for path in changed) else "verify is content!"
    if wrong.endswith("!"):
        said = {verb: (answer.code, answer.err[-300:]) for verb, answer in found.items()}
        print(spec, changed, wrong, said, file=sys.stderr)
    return wrong or ("refused" if found["resume"].code not in (0, 3) else "made again")


def _damage(files: list[Path], rng: random.Random) -> None:
    """A file is gone, a folder, another length, or of other bytes: some, or zeros throughout."""
    file, way = rng.choice(files), rng.randrange(7)
    content = bytearray(file.read_bytes() or b"0")
    if way < 2:
        file.unlink()
        if way == 1:
            file.mkdir()
        return
    change: Callable[..., Any] = (mutations.flipped, mutations.flipped, mutations.truncated, mutations.zeroed, _empty)[
        way - 2
    ]
    file.write_bytes(change(content, rng))


def _empty(content: bytearray, rng: random.Random) -> bytes:
    return bytes(len(content))


def _swap(files: list[Path], rng: random.Random) -> None:
    """Two files in each other's place, of the same size if there are any, wherever they are; not two of the same bytes."""
    for _ in range(100):
        one = rng.choice(files)
        same = [path for path in files if path != one and path.stat().st_size == one.stat().st_size]
        other = rng.choice(same if same and rng.random() < 0.9 else files)
        first, second = one.read_bytes(), other.read_bytes()
        if first != second:
            one.write_bytes(second), other.write_bytes(first)
            return
    raise AssertionError("no two files differ")
