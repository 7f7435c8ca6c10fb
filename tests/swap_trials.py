"""Files and parts of runs in the place of those of other runs: every verb says so, or answers as without the swap.

    python tests/swap_trials.py --trials 2000 --first-seed 0

makes runs of every learner, complete and killed on their way, and five others of each: of other data, another seed (where the learner
has one, else another tolerance), another kernel or graph, another option, and another version of the package. A trial takes a run, puts
one file, part or state of another in the place of its own, and asks every verb. Prints a line for each trial that was silent, and a table.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import random
import shutil
import signal
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np

sys.path.extend(map(str, [Path(__file__).parent, *(Path(__file__).parent / "support").iterdir()]))

import hostile_runs_trials as runs
import mutations
import preloaded
import small_blocks
import trials
from command_line import Answer, call
from command_runs import bytes_of
from hostile_trials import aside, told

import dkl
from dkl.errors import DklError

Options = tuple[str, ...]
Came = tuple[str, object]
"""Exit of a verb, and what it made or printed where it succeeded."""
GRAPH, TOL = ("--n-neighbors", "5"), ("--tol", "1e-3")
SEED: Options = ("--seed", "5")
OTHERS: dict[str, dict[str, Options]] = {
    "pairs": {"seed": SEED, "kernel": GRAPH, "option": ("--gamma", "20")},
    "pairs, factored": {"seed": SEED, "kernel": ("--sigma", "local"), "option": ("--gamma", "20")},
    "regression, folds": {"seed": SEED, "kernel": ("--kernel", "laplacian"), "option": ("--lam", "0.5")},
    "regression, disk": {"seed": SEED, "kernel": ("--kernel", "laplacian"), "option": ("--nu", "0.5")},
    "svc": {"seed": TOL, "kernel": ("--kernel", "laplacian"), "option": ("--rho", "3")},
    "logdet": {"seed": TOL, "kernel": ("--kernel", "poly"), "option": ("--n-out", "1")},
    "metric": {"seed": TOL, "kernel": ("--prior", "covariance"), "option": ("--n-out", "1")},
    "mvu": {"seed": ("--tol", "1e-5"), "kernel": ("--n-neighbors", "7"), "option": ("--nu", "3")},
    "laplacian": {"seed": ("--tol", "1e-5"), "kernel": ("--n-neighbors", "7"), "option": ("--n-basis", "5")},
}
"""Options of the other runs, by what is other in them; other data and another version need none."""
OTHER = ("data", "seed", "kernel", "option", "version")
"""Names of the runs that parts are swapped with, by what differs in them."""
SHARES = (0.6, 0.5, 0.7, 0.8, 0.4, 0.9, 0.3, 0.2)
"""Shares of the writes of a run at which it is killed, until one leaves a state."""
FAILURES = (2, 5, 6)
"""Exit codes by which a verb may refuse a run."""


def others_of(base: Path, name: str) -> list[str]:
    """Return the names of the runs that the parts of case `name` are swapped with, of those that were made."""
    return [other for other in OTHER if (base / name / other).is_dir()]


# -- runs ------------------------------------------------------------------------------------------------------------------


def make_runs(base: Path, names: list[str], among: tuple[str, ...] = OTHER) -> None:
    """Make base/<case>/<other>/{complete,killed}.zarr of every case and these other runs, and its own runs, with their inputs."""
    runs.write_inputs(base)
    rng = np.random.default_rng(9)
    for data in ("X", "more"):
        with np.load(base / f"{data}.npz") as held:
            X = held["X"]
        np.savez(base / f"{data} of others.npz", X=X + 0.5 * rng.standard_normal(X.shape))
    preloaded.begin_server()
    for name in names:
        (base / name).mkdir()
        _make(base, name, "own")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: _make(base, *one), [(name, other) for name in names for other in among]))


def _make(base: Path, name: str, other: str) -> None:
    folder = base / name / other
    folder.mkdir()
    (complete,) = trials.run("swap_trials.made", [(str(base), name, other, 0)])
    for share in SHARES:
        shutil.rmtree(folder / "killed.zarr", ignore_errors=True)
        (ended,) = trials.run("swap_trials.made", [(str(base), name, other, int(share * int(complete.told)))])
        # A run that commits by the clock may take fewer writes than before, and end.
        kept = runs.CASES[name].kept
        if ended.told == f"died of {-signal.SIGKILL}" and (not kept or list((folder / "killed.zarr").glob(kept))):
            return
    raise AssertionError(f"no state of {name}, {other}, was met")


def made(spec: tuple[str, str, str, int]) -> str:
    """(base, case, what is other, write at which it is killed or 0): make the run; return the number of its writes."""
    base, name, other, at = spec
    case, folder = runs.CASES[name], Path(base, name)
    os.chdir(base)
    data = case.data if other != "data" else f"{Path(case.data).stem} of others.npz"
    given = [
        "fit",
        *case.given,
        *OTHERS[name].get(other, ()),
        "--data",
        data,
        "--no-picture",
        "--threads",
        "1",
        "--out",
    ]
    out = folder / other / ("killed.zarr" if at else "complete.zarr")
    limit = ["--memory-limit", str(runs.limit_of([*given, str(out)], folder))] if name in runs.LIMITED else []
    die = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if at else lambda: None
    writes = small_blocks.Writes(setattr, die, at or None)
    real = importlib.metadata.version
    with patch.object(importlib.metadata, "version", (lambda _: "0.0.9") if other == "version" else real):
        answer = call(*given, out, *limit)
    assert answer.code in (0, 3), answer.err
    return str(writes.count)


# -- trials ----------------------------------------------------------------------------------------------------------------


def swapped(spec: tuple[str, str, str, int]) -> str:
    """(base, case, "complete" or "killed", seed): "refused" by a verb, "same" where all answer as without the swap, or what was silent."""
    base, name, state, seed = spec
    rng = random.Random(f"{name} {state} {seed}")
    own = _undisturbed(base, name, state)
    other = rng.choice(others_of(Path(base), name))
    source = Path(base, name, other, f"{rng.choice((state, *runs.STATES))}.zarr")
    item, found = answers(Path(base), name, state, (source, rng))
    refused = False
    for verb, now in found.items():
        if (wrong := judged(own[verb], now)).endswith("!"):
            print(spec, item, other, source.stem, verb, wrong, now, own[verb], file=sys.stderr)
            return wrong
        refused |= wrong == "refused"
    return "no change" if item is None else "refused" if refused else "same"


@cache
def _undisturbed(base: str, name: str, state: str) -> dict[str, Came]:
    return answers(Path(base), name, state, None)[1]


def judged(own: Came, now: Came) -> str:
    """Return "same", "refused", or what is wrong with an answer, given that without the swap."""
    if now[0].endswith("!"):
        return now[0]
    if now[0] in ("exit 0", "exit 3"):
        shown = now[1][0] if isinstance(now[1], tuple) else None
        says_so = isinstance(shown, str) and "is damaged" in shown
        return "same" if now == own else "refused" if says_so else "silent!"
    return "same" if now[0] == own[0] else "refused"


def answers(
    base: Path, name: str, state: str, swap: tuple[Path, random.Random] | None
) -> tuple[str | None, dict[str, Came]]:
    """Return which item of another run was put into a copy of the run, and what came of every verb on it."""
    case, found = runs.CASES[name], dict[str, Came]()
    with aside(str(base)) as work:
        run = Path(shutil.copytree(base / name / "own" / f"{state}.zarr", work / "run.zarr"))
        item = _swap(run, *swap) if swap else None

        def put(verb: str, answer: Answer, came: object) -> None:
            shown = answer.out.replace(str(work), "") if answer.code in (0, 3) else None
            found[verb] = told(answer, may=(0, 3, *FAILURES)), (shown, came)

        for words in (("info",), ("info", "--json"), ("verify",)):
            put(" ".join(words), call(*words, run), None)
        out = work / "applied.npy"
        answer = call(case.verb, run, "--data", base / "X.npz", "--out", out)
        put(case.verb, answer, out.read_bytes() if out.exists() else None)
        if case.verb == "transform":
            labels = work / "labels.npy"
            put(
                "cluster",
                call("cluster", run, "--k", "3", "--out", labels),
                labels.read_bytes() if labels.exists() else None,
            )
        found["load"] = _loaded(run, base)
        answer = call("resume", run, "--threads", "1")
        learned = bytes_of(run, *case.parts) if answer.code in (0, 3) else None
        found["resume"] = told(answer, may=(0, 3, *FAILURES)), learned
    return item, found


def _loaded(run: Path, base: Path) -> Came:
    try:
        learner = dkl.load(run)
    except DklError as error:
        return f"exit {error.exit_status}", None
    with np.load(base / "X.npz") as held:
        apply = getattr(learner, "predict", None) or learner.transform
        return "exit 0", np.asarray(apply(held["X"])).tobytes()


def _swap(run: Path, source: Path, rng: random.Random) -> str | None:
    """Put a file, part or state of `source` in the place of the run's own; return which. None where nothing has changed."""
    items = sorted(path.relative_to(source) for path in source.rglob("*") if path.name != "LOCK")
    rng.shuffle(items)
    depth = rng.choice((1, 1, 2, 9))  # parts and files of the run, states, any file
    items.sort(key=lambda item: depth not in (len(item.parts), 9))
    for item in items:
        before, target = mutations.content(run / item), run / item
        if before == mutations.content(source / item) or not target.parent.is_dir():
            continue
        mutations.copied(source / item, target)
        return str(item)
    return None


# -- the command -----------------------------------------------------------------------------------------------------------


def specs_of(base: Path, names: list[str], count: int, first: int = 0) -> list[trials.Spec]:
    """Return `count` trials, in turn over cases and states."""
    among = [(name, state) for name in names for state in runs.STATES]
    return [(str(base), *among[seed % len(among)], seed) for seed in range(first, first + count)]


def main() -> int:
    """Make runs, try, print; the number of silent trials, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--cases", nargs="*", default=list(OTHERS), choices=list(OTHERS), metavar="CASE")
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dkl-swaps-") as folder:
        base = Path(folder)
        make_runs(base, given.cases)
        specs = specs_of(base, given.cases, given.trials, given.first_seed)
        with ThreadPoolExecutor(given.processes) as pool:
            parts = pool.map(
                lambda k: trials.run("swap_trials.swapped", specs[k :: given.processes]), range(given.processes)
            )
            found = [outcome for part in parts for outcome in part]
    print(trials.table(found, lambda spec: f"{spec[1]}, {spec[2]}"))
    return int(any(outcome.is_bad for outcome in found))


if __name__ == "__main__":
    sys.exit(main())
