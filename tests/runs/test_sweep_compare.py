"""Two sweeps' results compared: what is noise, what is slower, what ends worse. No fits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from command_runs import refused
from scipy import stats

from dkl.runs.sweep import results
from dkl.stores.seals import write_json

MACHINE = {"processor": "a processor", "processors": 2}


def sweep(folder: Path, seconds: dict[int, list[float]], **more: Any) -> str:
    """A folder with these seconds by n, a number a repeat."""
    folder.mkdir()
    write_json(folder / "sweep.json", {"task": "svc"})
    for n, values in seconds.items():
        for repeat, value in enumerate(values, start=1):
            line = {"point": f"n{n}_{repeat}", "task": "svc", "n": n, "repeat": repeat, "varied": {}, "status": 0}
            line |= {"seconds": value, "cpu_seconds": 2 * value, "peak_bytes": 3e8, "disk_bytes": 1e6}
            line |= {"outcome": "solved", "relative_gap": 1e-7, "asked": {"C": 1.0}, "place": {}, "n_constraints": None}
            line |= {"data": {"seed": 0, "files": {}}, "attempts": 1, "environment": MACHINE}
            results.append(folder, line | more)
    return str(folder)


def compared(before: str, after: str, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    answer = call("sweep", "compare", before, after, "--json", *options)
    told = json.loads(answer.out)
    return answer.code, {f"{change['point']}, {change['cost']}": change for change in told["changes"]} | {"all": told}


def test_without_repeats_a_threshold_counts(tmp_path: Path) -> None:
    before = sweep(tmp_path / "a", {100: [1.0], 1000: [10.0]})
    after = sweep(tmp_path / "b", {100: [1.09], 1000: [13.0]})
    code, told = compared(before, after, "--threshold", "0.1")
    assert code == 7
    assert told["svc n 100 --C 1.0, seconds"]["verdict"] == ""
    assert told["svc n 1,000 --C 1.0, seconds"]["verdict"] == "slower"
    assert told["svc n 1,000 --C 1.0, CPU seconds"]["verdict"] == "more processor"
    assert told["svc n 1,000 --C 1.0, peak memory"]["verdict"] == ""
    assert compared(before, after, "--threshold", "0.5")[0] == 0
    code, told = compared(after, before, "--threshold", "0.1")  # faster is no fault
    assert code == 0 and told["svc n 1,000 --C 1.0, seconds"]["verdict"] == "faster"


def test_one_repeat_shows_no_spread(tmp_path: Path) -> None:
    before, after = sweep(tmp_path / "a", {100: [1.0]}), sweep(tmp_path / "b", {100: [1.5]})
    code, told = compared(before, after)
    change = told["svc n 100 --C 1.0, seconds"]
    assert code == 0 and not told["all"]["worse"]
    assert (
        change["growth"] == pytest.approx(0.5, rel=1e-12) and change["counts_from"] is None and change["verdict"] == ""
    )
    answer = call("sweep", "compare", before, after)
    assert answer.code == 0 and "+50.0%" in answer.out and "shows no spread" in answer.out
    assert "1 point in common: costs measured once" in answer.out


def test_noise_is_that_of_repeats_pooled(tmp_path: Path, rng: np.random.Generator) -> None:
    """The threshold is that of the t-test of each point with one variance for all, at 1 % over all points together."""
    sizes = (100, 300, 1000)
    noise = {n: np.exp(0.05 * rng.standard_normal((2, 4))) for n in sizes}
    first = {n: (n * noise[n][0]).tolist() for n in sizes}
    second = {n: (n * noise[n][1] * (1.3 if n == 300 else 1.0)).tolist() for n in sizes}
    code, told = compared(sweep(tmp_path / "a", first), sweep(tmp_path / "b", second))
    logs = [np.log(side[n]) for n in sizes for side in (first, second)]
    pooled = np.sqrt(np.mean([np.var(part, ddof=1) for part in logs]))
    least = stats.t.isf(0.01 / 3 / 2, 18) * pooled * np.sqrt(1 / 2)
    assert told["svc n 300 --C 1.0, seconds"]["counts_from"] == pytest.approx(np.expm1(least), rel=1e-9)
    slower = [change["point"] for change in told["all"]["changes"] if change["verdict"] == "slower"]
    assert code == 7 and slower == ["svc n 300 --C 1.0"]


def test_a_resumed_point_has_no_seconds_to_compare(tmp_path: Path) -> None:
    before = sweep(tmp_path / "a", {100: [1.0]})
    code, told = compared(before, sweep(tmp_path / "b", {100: [9.0]}, attempts=2))
    assert code == 0 and not told["all"]["changes"]
    assert told["all"]["notes"] == ["resumed after, so costs of its resumed repeats are left out: svc n 100 --C 1.0"]


def test_an_end_that_is_worse_counts_and_other_gaps_are_told(tmp_path: Path) -> None:
    before = sweep(tmp_path / "a", {100: [1.0]})
    worse = {"status": 3, "outcome": "iteration_limit", "relative_gap": 1e-3}
    code, told = compared(before, sweep(tmp_path / "b", {100: [1.0]}, **worse))
    assert code == 7 and told["all"]["ends"][0]["outcome"] == [["solved"], ["iteration_limit"]]
    code, told = compared(before, sweep(tmp_path / "c", {100: [1.0]}, relative_gap=1e-9))
    assert code == 0 and told["all"]["ends"][0]["relative_gap"] == [1e-7, 1e-9]


def test_points_are_joined_by_all_that_was_asked_for(tmp_path: Path) -> None:
    before = sweep(tmp_path / "a", {100: [1.0], 200: [2.0]})
    refused(call("sweep", "compare", before, sweep(tmp_path / "b", {100: [1.0]}, asked={"C": 2.0})))
    elsewhere = {"environment": {"processor": "another", "processors": 8}}
    answer = call("sweep", "compare", before, sweep(tmp_path / "c", {100: [1.0], 300: [3.0]}, **elsewhere))
    assert answer.code == 0
    assert "only before: svc n 200" in answer.out and "only after: svc n 300" in answer.out
    assert "other processors: 2 x a processor and 8 x another" in answer.out
    assert "1 point in common: costs measured once" in answer.out
