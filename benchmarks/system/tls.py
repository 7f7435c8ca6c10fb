"""What TLS costs fits on workers of our own: processor and wall seconds of `dkl fit --workers 2`, with it and without.

    OMP_NUM_THREADS=1 python -m benchmarks.system.tls [--repeats 5] [--only start pairs regression]

    start       400 rows: starting workers, and with TLS the making of a key
    pairs       20,000 patterns of 20 features: workers exchange sums in every iteration
    regression  20,000 x 784 in a packed archive: read here and sent to the workers, 125 MB; their sums come back
    sent        an array of 125 MB to a worker, and nothing else, eight times

Runs with TLS and without take turns, the first of a pair now the one, now the other, after a run of each that is not counted.
Seconds of the processor are those of the command with its workers; ratios are of pairs, so that both halves had the same load.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.regression.slkl import circumstances, spread, table

SENT = """
import time, psutil, numpy as np
from dkl.runs.own_workers import own_workers
if __name__ == "__main__":
    with own_workers(1, 4_000_000_000) as client:
        X = np.ones((20_000, 784))
        process = [psutil.Process(), *psutil.Process().children(recursive=True)]
        used = lambda: sum(sum(each.cpu_times()[:2]) for each in process)
        client.scatter(X[:1000], hash=False)
        before, start = used(), time.perf_counter()
        for _ in range(8):
            client.scatter(X, hash=False)
        print("SENT", used() - before, time.perf_counter() - start)
"""
START = "import sys; from dkl.cli.main import dkl; dkl(sys.argv[1:])"
OPEN = "from distributed import Security; Security.temporary = classmethod(lambda cls, **more: None); "
"""Before START: workers whose connections are plain."""
CASES = {
    "start": ("regression", "--data", "few.npz", "--n-columns", "20", "--nu", "1"),
    "pairs": ("pairwise", "--data", "patterns.npy", "--pairs", "pairs.csv", "--rank", "16", "--max-iter", "40",
              "--target-gap", "none"),
    "regression": ("regression", "--data", "wide.npz", "--n-columns", "500", "--nu", "1"),
}  # fmt: skip


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.integers(256, size=(20_000, 784)).astype(np.float64)
    np.savez_compressed(folder / "wide.npz", X=X, y=X[:, :9].sum(axis=1))
    np.savez_compressed(folder / "few.npz", X=X[:400, :20], y=X[:400, 0])
    classes = rng.integers(10, size=20_000)
    np.save(folder / "patterns.npy", rng.standard_normal((20_000, 20)) + 3 * np.eye(20)[classes])
    lines = [
        f"{i},{j},{'must' if classes[i] == classes[j] else 'cannot'}" for i, j in rng.permutation(20_000).reshape(-1, 2)
    ]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label", *lines]) + "\n")


def sent(folder: Path, *, tls: bool) -> tuple[float, float]:
    """(processor seconds, wall seconds) of SENT."""
    file = folder / "sent.py"
    file.write_text(("" if tls else OPEN.rstrip("; ")) + SENT)
    said = subprocess.run([sys.executable, str(file)], capture_output=True, check=True, text=True).stdout
    _, used, seconds = said.split()
    return float(used), float(seconds)


def fit(name: str, folder: Path, *, tls: bool) -> tuple[float, float]:
    """(processor seconds, wall seconds) of a fit with all its processes."""
    with tempfile.TemporaryDirectory(dir=folder) as out:
        options = [*CASES[name], "--workers", "2", "--no-picture", "--out", f"{out}/run.zarr"]
        command = [sys.executable, "-c", ("" if tls else OPEN) + START, "fit", *options]
        with tempfile.TemporaryFile("w+") as said:
            start = time.perf_counter()
            process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said, text=True)
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            if process.returncode not in (0, 3):
                sys.exit(said.read())
        return used.ru_utime + used.ru_stime, seconds


def main() -> None:
    os.environ["DASK_DKL__WORKERS"] = "always"  # however small the fits
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[*CASES, "sent"], default=[*CASES, "sent"])
    given = parser.parse_args()
    print(circumstances(1), flush=True)
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder)
        for name in given.only:
            found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            for repeat in range(-1, given.repeats):
                for tls in (True, False) if repeat % 2 else (False, True):
                    seconds = sent(folder, tls=tls) if name == "sent" else fit(name, folder, tls=tls)
                    if repeat >= 0:
                        found[tls].append(seconds)
            for k, what in enumerate(("processor", "wall")):
                closed, plain = (np.array(found[tls])[:, k] for tls in (True, False))
                lines.append((name, what, spread(closed), spread(plain), spread(closed / plain)))
            print(table(("", "seconds of", "TLS", "plain", "ratio"), lines[-2:]), flush=True)
    print(table(("", "seconds of", "TLS", "plain", "ratio"), lines))


if __name__ == "__main__":
    main()
