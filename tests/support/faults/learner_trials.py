"""What the programs of random trials a learner share: their options, processes, and table of counts."""

from __future__ import annotations

import argparse
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Made = TypeVar("Made")


def options_of(description: str | None, learners: list[str], count: int) -> argparse.Namespace:
    """Parse the command line: --learner, --trials (by default `count`), --first-seed and --jobs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learner", nargs="+", default=learners, choices=learners)
    parser.add_argument("--trials", type=int, default=count)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    return parser.parse_args()


def trials(make: Callable[[str, int], Made], options: argparse.Namespace) -> Iterator[Made]:
    """Yield make(learner, seed) of all learners and seeds asked for, made by processes of one thread each."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    seeds = range(options.first_seed, options.first_seed + options.trials)
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(make, *zip(*((name, seed) for name in options.learner for seed in seeds), strict=True))


def print_table(counts: Mapping[str, Counter[str]]) -> None:
    """Print a Markdown table with a line for each learner and a column for each count."""
    names = sorted({name for count in counts.values() for name in count})
    print("| learner | " + " | ".join(names) + " |\n" + "| --- " * (len(names) + 1) + "|")
    for learner, count in counts.items():
        print(f"| {learner} | " + " | ".join(str(count[name]) for name in names) + " |")
