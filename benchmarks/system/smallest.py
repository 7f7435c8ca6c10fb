"""Run every program of benchmarks/ once, each at its smallest size: `python -m benchmarks.system.smallest [PART ...]`.

    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.system.smallest             # all, some ten minutes of processor time
    OMP_NUM_THREADS=1 DKL_DATA=... python -m benchmarks.system.smallest qsdp onk    # programs with any of these in their names

`smallest.txt` has a line for each program: its name and arguments; FOLDER is a temporary folder. A Markdown row each: command, exit status,
processor seconds, and of one that failed the last line that it wrote. Exits with 1 where any failed or took longer than --limit.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.logdet.logdet_accuracy import processor_seconds

LINES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()


def run(arguments: list[str], limit: float) -> tuple[int | None, str]:
    """Return (exit status, or None after the limit; what the process wrote)."""
    command = [sys.executable, "-m", *arguments]
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its session: what it started, too
            process.wait()
            status = None
        out.seek(0)
        return status, out.read()


def main() -> None:
    """Print a row for each program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[""], metavar="PART")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of a program by the clock")
    asked = parser.parse_args()
    print("| command | exit | CPU s | |\n|---|---|---|---|", flush=True)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for line in (line for line in LINES if any(part in line.split()[0] for part in asked.parts)):
            start = processor_seconds()
            status, written = run(shlex.split(f"benchmarks.{line}".replace("FOLDER", folder)), asked.limit)
            last = "" if status == 0 else (written.strip().splitlines() or [""])[-1][:100]
            failures += status != 0
            print(f"| `{line}` | {status} | {processor_seconds() - start:.0f} | {last} |", flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
