"""Trials with states of other runs in the place of a run's own; what tests/support/faults/trials.py runs many of.

The base folder is that of `hostile_runs_trials.make_inputs`. Of every case it gets killed runs, in <case>/<difference>.zarr, the
undisturbed one in <case>/complete.zarr.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import hostile_runs_trials as runs
import numpy as np
import small_blocks
import trials
from command_line import call
from hostile_trials import aside, told

OWN = "its own"
DATA = {"data of other values": "other.npz", "data in another order": "turned.npz"}
COMMON = dict.fromkeys(DATA, ())
DIFFERENCES: dict[str, dict[str, tuple[str, ...]]] = {
    "pairs": COMMON
    | {
        "pairs": ("--pairs", "others.csv"),
        "weight of the pairs": ("--gamma", "3"),
        "rank": ("--rank", "3"),
        "number type": ("--dtype", "float32"),
        "seed": ("--seed", "5"),
        "graph": ("--n-neighbors", "5"),
    },
    "svc": COMMON
    | {
        "targets": ("--targets", "others.labels.csv"),
        "bound": ("--C", "3"),
        "kernel": ("--kernel", "poly"),
        "kernel's width": ("--gamma", "0.05"),
        "neighbourhood": ("--rho", "3"),
    },
    "regression, folds": COMMON
    | {
        "targets": ("--targets", "others.targets.csv"),
        "rank": ("--n-columns", "11"),
        "seed": ("--seed", "5"),
        "folds": ("--cv", "4"),
        "kernel": ("--kernel", "laplacian"),
    },
    "mvu": COMMON | {"rank": ("--n-basis", "30"), "graph": ("--n-neighbors", "7")},
}
"""Options that override the case's."""


def write_others(base: Path) -> None:
    """Inputs like the case's own, of other content."""
    with np.load(base / "X.npz") as archive:
        X = archive["X"]
    np.savez(base / "other.npz", X=X + 0.1 * np.random.default_rng(3).standard_normal(X.shape))
    np.savez(base / "turned.npz", X=np.roll(X, 3, axis=0))
    for name, other in (("pairs", "others"), ("labels", "others.labels"), ("t", "others.targets")):
        lines = (base / f"{name}.csv").read_text().splitlines()
        first = lines[:1] if name == "pairs" else []
        rest = lines[len(first) :]
        (base / f"{other}.csv").write_text("\n".join([*first, *rest[5:], *rest[:5]]) + "\n")


def make(base: Path, name: str) -> None:
    """Its undisturbed run, and the killed ones, its own among them."""
    (made,) = trials.run("foreign_trials.fitted", [(str(base), name, OWN, 0)])
    for difference in (OWN, *DIFFERENCES[name]):
        for share in (0.6, 0.7, 0.5, 0.8, 0.4, 0.9):
            killed = base / name / f"{difference}.zarr"
            shutil.rmtree(killed, ignore_errors=True)
            (ended,) = trials.run("foreign_trials.fitted", [(str(base), name, difference, int(share * int(made.told)))])
            assert ended.told == f"died of {-signal.SIGKILL}" or ended.told.isdigit(), ended
            if list(killed.glob(runs.CASES[name].kept)):
                break
        else:
            raise AssertionError(f"no state of {name}, {difference} was met")


def fitted(spec: tuple[str, str, str, int]) -> str:
    """(base, case, difference, write at which it is killed, or 0): makes the run; the number of its writes."""
    base, name, difference, at = spec
    case = runs.CASES[name]
    out = Path(base, name, f"{difference}.zarr" if at else "complete.zarr")
    os.chdir(base)
    changed = () if difference == OWN else DIFFERENCES[name][difference]
    given = ["fit", *case.given, *changed, "--data", DATA.get(difference, case.data), "--no-picture", "--threads", "1"]
    writes = small_blocks.Writes(
        setattr, (lambda: os.kill(os.getpid(), signal.SIGKILL)) if at else lambda: None, at or None
    )
    answer = call(*given, "--out", out)
    assert answer.code in (0, 3), answer.err
    return str(writes.count)


def resumed(spec: tuple[str, str, str]) -> str:
    """(base, case, difference): the state of the other run in the place of its own; refused, or made to the same bytes."""
    base, name, difference = spec
    case, folder = runs.CASES[name], Path(base, name)
    with aside(base) as work:
        run = Path(shutil.copytree(folder / f"{OWN}.zarr", work / "run.zarr"))
        place = Path(case.kept).parts[0]
        shutil.rmtree(run / place)
        shutil.copytree(folder / f"{difference}.zarr" / place, run / place)
        answer = call("resume", run, "--threads", "1")
        found = told(answer, may=runs.MAY)
        if found.endswith("!"):
            print(spec, answer.err, file=sys.stderr)
            return found
        if answer.code not in (0, 3):
            return "refused"
        same = runs.learned(run, name) == runs.learned(folder / "complete.zarr", name)
    return "same bytes" if same else "other bytes!"
