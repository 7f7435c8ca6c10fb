"""Whether runs keep to `--memory-limit`: the peak of every process, beside the limit and the plan, by learner and kind of file.

    python -m benchmarks.system.memory_within_limit [--rows 10000] [--features 2000] [--folder DIR] [--only pairwise/.npy ...]
    python -m benchmarks.system.memory_within_limit --workers 2 --only pairwise/.npy regression/.npy svc/.npy
    python -m benchmarks.system.memory_within_limit --apply     # predict and transform, of as many other rows

A learner and a kind of file is a case, at a limit that leaves no room for an X of 160 MB beside the work on it (`--limits` has
all cases at each of its own). The table shows the plan (`dkl plan`), the largest resident memory that any process of `dkl fit`
reached (VmHWM of the whole tree, which the kernel keeps; pages of libraries and of mapped files count), with --workers that
of each worker behind that of the command itself, and the exit code: 0 solved, 3 not converged within the few iterations that
are allowed, 5 refused. Exits with 1 where a process took more than its limit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import zarr

DKL = [sys.executable, "-m", "dkl.cli.main"]
FORMS = (".npy", ".npz", ".csv", ".zarr")
LEARNERS = {
    "pairwise": ("--pairs", "pairs.csv", "--rank", "8", "--max-iter", "5", "--target-gap", "none"),
    "regression": ("--targets", "y.npy", "--n-columns", "200", "--nu", "50"),
    "svc": ("--targets", "labels.npy", "--max-iter", "2"),
}
LIMITS = {"pairwise": 520, "regression": 480, "svc": 1400}
"""MB: an SVM holds its rows and their kernel matrix, the others read rows by blocks."""
APPLIED = {"pairwise": ("transform", 460), "regression": ("predict", 440), "svc": ("predict", 700)}
"""The verb that uses a run, and its limit: an SVM may have every row as a support vector, 160 MB."""
POLL_SECONDS = 0.01


def write(folder: Path, n: int, d: int) -> None:
    """X in every kind of file, integers of three digits in float64, and what is to be learned of it."""
    rng = np.random.default_rng(0)
    classes = rng.integers(2, size=n)
    X = np.rint(30 * rng.standard_normal((n, d), dtype=np.float32)) + 60 * classes[:, None] * (np.arange(d) < 20)
    X = X.astype(np.float64)
    for name, rows in (("X", X), ("other", X[::-1])):
        np.save(folder / f"{name}.npy", rows)
        np.savez(folder / f"{name}.npz", X=rows)
        with open(folder / f"{name}.csv", "w") as file:
            for row in rows.astype(np.int64):
                file.write(",".join(map(str, row.tolist())) + "\n")
        zarr.create_array(str(folder / f"{name}.zarr"), data=rows, chunks=(max(1, 4_000_000 // (8 * d)), d))
    np.save(folder / "y.npy", X[:, :20].sum(axis=1) + rng.standard_normal(n))
    np.save(folder / "labels.npy", classes)
    ends = rng.permutation(n)[: n // 2 * 2].reshape(-1, 2)
    lines = [f"{i},{j},{'must' if classes[i] == classes[j] else 'cannot'}" for i, j in ends.tolist()]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def tree(root: int) -> list[int]:
    """A process and all below it."""
    found = [root]
    for pid in found:
        with suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
    return found


def peaks(command: list[str], folder: Path) -> tuple[int, list[int], str, float]:
    """(exit code, VmHWM in bytes of the command and of the largest processes below it, stdout and stderr, seconds)."""
    start, high = time.perf_counter(), {}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True)
        while process.poll() is None:
            for pid in tree(process.pid):
                with suppress(OSError, TypeError):  # it has ended, and has no memory any more
                    status = Path(f"/proc/{pid}/status").read_text()
                    high[pid] = 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])  # type: ignore[index]
            time.sleep(POLL_SECONDS)
        said.seek(0)
        own = high.pop(process.pid)
        return process.returncode, [own, *sorted(high.values(), reverse=True)], said.read(), time.perf_counter() - start


def megabytes(text: str) -> str:
    """The plan's peak of a process, as `dkl plan` prints it; of a refusal, what it wants."""
    found = re.search(r"a process, at most +(\S+ \S+)", text) or re.search(
        r"wanted:? (?:at least )?(\S+ [kMGT]?B)", text
    )
    return found[1] if found else "-"


def main() -> None:
    os.environ["DASK_DKL__WORKERS"] = "always"  # however small the fits
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=2000)
    parser.add_argument("--limits", nargs="+", type=int, help="in MB")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, help="processes, instead of threads")
    parser.add_argument("--apply", action="store_true", help="measure predict and transform")
    parser.add_argument("--folder", type=Path, help="kept, and used again where X is there")
    parser.add_argument("--only", nargs="+", help="cases, as pairwise/.npy")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        if not (folder / "pairs.csv").exists():
            write(folder, given.rows, given.features)
        sys.exit(1 if table(given, folder) else 0)


def table(given: argparse.Namespace, folder: Path) -> int:
    """Prints a line a run; how many took more than their limit."""
    size = 8 * given.rows * given.features / 1e6
    print(f"X {given.rows:,} x {given.features:,} float64, {size:.0f} MB")
    print(f"{'learner':<11}{'X':<11}{'limit':>9}{'planned':>10}{'measured':>10}{'exit':>6}{'seconds':>9}")
    place = ["--threads", str(given.threads)] if given.workers is None else ["--workers", str(given.workers)]
    beyond = 0
    for task, options in LEARNERS.items():
        verb, small = APPLIED[task]
        forms = [form for form in FORMS if not given.only or f"{task}/{form}" in given.only]
        with tempfile.TemporaryDirectory(dir=folder) as out:
            if given.apply and forms:
                learned = ["--data", "X.npy", *options, "--out", f"{out}/run.zarr", "--no-picture"]
                peaks([*DKL, "fit", task, *learned], folder)
            for form in forms:
                for limit in given.limits or [small if given.apply else LIMITS[task]]:
                    within = ["--memory-limit", f"{limit} MB", *place]
                    if given.apply:
                        command = [
                            verb,
                            f"{out}/run.zarr",
                            "--data",
                            f"other{form}",
                            "--out",
                            f"{out}/{form}-{limit}.npy",
                        ]
                        planned = "-"
                    else:
                        command = [task, "--data", f"X{form}", *options, "--out", f"{out}/{form}-{limit}.zarr"]
                        planned = megabytes(peaks([*DKL, "plan", *command, *within], folder)[2])
                        command = ["fit", *command]
                    beyond += shown(
                        task, form, limit, planned, peaks([*DKL, *command, *within], folder), given.workers or 0
                    )
    return beyond


def shown(
    task: str, form: str, limit: int, planned: str, found: tuple[int, list[int], str, float], workers: int
) -> bool:
    """Prints a line; whether a process took more than its limit."""
    code, high, said, seconds = found
    over = max(high) > limit * 10**6
    each = "".join(f"{size / 1e6:>7.0f} MB" for size in high[1 : workers + 1])
    print(
        f"{task:<11}{form:<11}{limit:>6} MB{planned:>10}{(high[0] if each else max(high)) / 1e6:>7.0f} MB{code:>6}{seconds:>9.1f}"
        f"{f'   workers{each}' if each else ''}{'   beyond the limit' if over else ''}",
        flush=True,
    )
    if code not in (0, 3, 5):
        print(said)
    return over


if __name__ == "__main__":
    main()
