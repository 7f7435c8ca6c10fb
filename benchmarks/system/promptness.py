"""How soon the command answers: help, and an option that is wrong, in processor seconds and by the clock.

    python -m benchmarks.system.promptness [--repeats 5]
    DKL_TIMED_COMMANDS=FILE pytest -n0 tests/cli/test_malformed_input.py; python -m benchmarks.system.promptness --timed FILE

Each is the least of several runs of a process of its own, beside an empty Python (`python -c pass`) of the same minute. A
wrong option is to be reported before numpy and Dask are loaded, which tests/cli hold by the modules that are imported.

--timed: of the commands that tests have called as processes of their own, how long those took that were refused, by exit code
(2: bad input, 5: it does not fit, 6: a damaged store), and the slowest of each.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

DKL = [sys.executable, "-m", "dkl.cli.main"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "python -c 'import dkl'": [sys.executable, "-c", "import dkl"],
    "dkl --help": [*DKL, "--help"],
    "dkl fit pairwise --help": [*DKL, "fit", "pairwise", "--help"],
    "dkl fit pairwise --rank 0": [*DKL, "fit", "pairwise", "--rank", "0"],
    "dkl fit svc --kernel magic": [*DKL, "fit", "svc", "--kernel", "magic"],
    "dkl resume --max-iter none": [*DKL, "resume", "run.zarr", "--max-iter", "none"],
}


def measured(command: list[str]) -> tuple[float, float]:
    """(processor seconds, seconds by the clock) of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    clock, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def sum_up(file: Path) -> None:
    """A line for each exit code, of all commands that have ended with it."""
    commands = [json.loads(line) for line in file.read_text().splitlines()]
    for code in sorted({command["code"] for command in commands} - {0, 3}):
        ended = sorted((one["seconds"], " ".join(one["arguments"])) for one in commands if one["code"] == code)
        within = sum(seconds <= 1 for seconds, _ in ended)
        middle, (most, which) = ended[len(ended) // 2][0], ended[-1]
        print(
            f"exit code {code}: {len(ended)} commands, {within} within 1 s; median {middle:.2f} s, at most {most:.2f} s: dkl {which}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--timed", type=Path, metavar="FILE")
    asked = parser.parse_args()
    if asked.timed is not None:
        sum_up(asked.timed)
        return
    repeats = asked.repeats
    print(f"{'':<30}{'processor':>12}{'clock':>10}")
    for name, command in COMMANDS.items():
        runs = [measured(command) for _ in range(repeats)]
        print(f"{name:<30}{min(cpu for cpu, _ in runs):>10.2f} s{min(clock for _, clock in runs):>8.2f} s")


if __name__ == "__main__":
    main()
