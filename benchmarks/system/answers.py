"""Answers of each learner's defaults on ordinary data, next to other methods: `python -m benchmarks.system.answers --out answers.json`.

    python -m benchmarks.system.answers --learner pairwise svc --sets iris Glass moons --seeds 1 --out answers.json
    python -m benchmarks.system.answers --out answers.json --jobs 2 --mlbench mlbench/usr/lib/R/site-library/mlbench
    python -m benchmarks.system.answers --table answers.json

The first two run the named learners (by default all) and the methods that answer the same question (`answers_questions.py`) on the
named sets (by default all, `answers_sets.py`). Each fit is a line of JSON in the file of `--out`, written as it ends; lines that are
there are not computed again, so the same command continues an interrupted benchmark. The third writes the tables of `answers.md`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.logdet.logdet_accuracy import processor_seconds
from benchmarks.system import answers_sets as sets
from benchmarks.system.answers_questions import LEARNERS, QUESTIONS, draw
from benchmarks.system.answers_tables import page

KEY = ("question", "case", "set", "columns", "seed", "rows", "method")


def key_of(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what identifies a fit."""
    return tuple(record[name] for name in KEY)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the fits in a file; of one that was written twice the later."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    records = (json.loads(line) for line in lines if line.endswith("\n"))
    return list({key_of(record): record for record in records}.values())


def version() -> str:
    """Return the commit of this checkout, with "+" where files differ from it."""
    here = Path(__file__).parent
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def points(options: argparse.Namespace, done: set[tuple[Any, ...]]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Yield (draw, methods that are not in `done`), the first seed of all before the second of any."""
    wanted: dict[str, list[str]] = {}
    for learner in options.learner:
        question, method, _ = LEARNERS[learner]
        wanted.setdefault(question, list(QUESTIONS[question].peers)).insert(0, method)
    for seed in range(options.seeds):
        for question, methods in wanted.items():
            for name in options.sets:
                if (name in sets.TARGETS) == QUESTIONS[question].classes:
                    continue
                for case in QUESTIONS[question].cases:
                    point = {"question": question, "case": case, "set": name, "columns": options.columns, "seed": seed}
                    point["rows"] = options.rows
                    left = [m for m in methods if key_of(point | {"method": m}) not in done]
                    left = [m for m in left if any(part in m for part in options.methods)]
                    if left:
                        yield point, left


def compute(point: dict[str, Any], methods: list[str], folder: Path, limit: int, earlier: Any) -> list[dict[str, Any]]:
    """Return a record a method. earlier: number of columns that the learner kept on this draw, if it is known."""
    question = QUESTIONS[point["question"]]
    made = draw(point["set"], point["case"], point["seed"], point["rows"], point["columns"], folder)
    records = []
    for method in methods:
        records.append(
            point | {"method": method, "n": len(made.X)} | fit(question, method, replace(made, columns=earlier), limit)
        )
        earlier = records[-1].get("columns_kept", earlier)
    return records


def fit(question: Any, method: str, made: Any, limit: int) -> dict[str, Any]:
    """Return scores, outcome, warnings, exception and CPU seconds of one method on one draw."""
    record: dict[str, Any] = {"scores": {}, "outcome": None, "exception": None}
    start = processor_seconds()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        signal.alarm(limit)
        try:
            record["scores"], model = (question.learners | question.peers)[method](made)
            result = getattr(model, "result_", None)
            record["outcome"] = getattr(getattr(result, "outcome", None), "value", None)
            quality = getattr(result, "quality", None)
            if quality is not None:
                record["quality"] = quality.as_dict() | {"is_worse": bool(quality.is_worse)}
            if hasattr(model, "support_vectors_") and not question.classes:
                record["columns_kept"] = len(model.support_vectors_)
        except Exception as error:  # what failed, and how, is a result
            record["exception"] = [type(error).__name__, str(error)[:300]]
        finally:
            signal.alarm(0)
    record["seconds"] = round(processor_seconds() - start, 3)
    record["warnings"] = sorted({(w.category.__name__, str(w.message)[:300]) for w in caught})
    return record


def overdue(*_: Any) -> None:
    """Raise TimeoutError: the answer of the alarm."""
    raise TimeoutError("the limit of seconds of a fit")


def prepare() -> None:
    """Limit a process that fits to one thread of BLAS, and end fits that take too long by an alarm."""
    threadpool_limits(1)
    signal.signal(signal.SIGALRM, overdue)


def run(options: argparse.Namespace) -> None:
    """Compute what is missing in the file of results."""
    folder = Path(options.mlbench)
    lacking = sets.missing(options.sets, folder)
    if lacking:
        print(lacking, file=sys.stderr)
        options.sets = [name for name in options.sets if not sets.missing([name], folder)]
    records = read(options.out)
    kept = {key_of(r)[:-1]: r["columns_kept"] for r in records if "columns_kept" in r}
    todo = list(points(options, {key_of(record) for record in records}))
    commit, start, context = version(), time.monotonic(), multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(options.jobs, mp_context=context, initializer=prepare) as pool,
        options.out.open("a", encoding="utf-8") as file,
    ):
        waiting = []
        for point, methods in todo:
            earlier = kept.get(key_of(point | {"method": ""})[:-1])
            waiting.append(pool.submit(compute, point, methods, folder, options.limit, earlier))
        for count, future in enumerate(as_completed(waiting), 1):
            for record in future.result():
                file.write(json.dumps(record | {"commit": commit}) + "\n")
                file.flush()
                failed = f"  {record['exception'][0]}" if record["exception"] else ""
                scores = ", ".join(f"{name} {value:.3f}" for name, value in record["scores"].items())
                shown = (
                    f"{record['set']}, {record['case']}, {record['method']}: {scores}{failed}, {record['seconds']} s"
                )
                print(f"{count}/{len(todo)} {time.monotonic() - start:.0f} s  {shown}", flush=True)


def main() -> None:
    """Run the benchmark, or write its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learner", nargs="+", choices=LEARNERS, default=list(LEARNERS))
    parser.add_argument("--sets", nargs="+", choices=[*sets.NAMES, "all"], default=["all"], metavar="SET")
    parser.add_argument("--seeds", type=int, default=3, help="draws of each set")
    parser.add_argument("--rows", type=int, default=1000, help="most rows of a set, a third of them unseen")
    parser.add_argument("--columns", choices=["standardized", "raw"], default="standardized")
    parser.add_argument("--methods", nargs="+", default=[""], help="methods with any of these in their names")
    parser.add_argument("--mlbench", default=sets.MLBENCH, help="folder of the R package; " + sets.HOW_TO_GET_MLBENCH)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a fit")
    parser.add_argument("--out", type=Path, help="file of results, a line a fit")
    parser.add_argument("--table", type=Path, help="write the tables of this file of results")
    options = parser.parse_args()
    if options.table:
        print(page(read(options.table)))
        return
    if options.out is None:
        parser.error("--out FILE or --table FILE")
    if "all" in options.sets:
        options.sets = list(sets.NAMES)
    run(options)


if __name__ == "__main__":
    main()
