"""What a sweep stands for: its points, their order, its data; slopes and the picture; what is kept of a point."""

import json
from pathlib import Path

import numpy as np
import picture_checks
import pytest

from dkl.errors import InputError
from dkl.runs import registry
from dkl.runs.inputs.files import Files
from dkl.runs.sweep import data, results
from dkl.runs.sweep import data as generated
from dkl.runs.sweep.data import data_of
from dkl.runs.sweep.request import SweepPoint, SweepRequest
from dkl.runs.sweep.results import SweepTable, curve, draw, groups, slope, slopes
from dkl.side_information.loading import load_pairs
from dkl.stores.seals import read_json, write_json


def test_points_are_all_combinations_each_once_before_any_again(tmp_path: Path) -> None:
    request = SweepRequest(
        "pairwise", [300, 100], 2, {"rank": [8, 16], "tol": [0.1]}, {"workers": [1, 2]}, n_constraints=[50]
    )
    points = request.points()
    assert len(points) == len({point.name for point in points}) == 2 * 2 * 2 * 2
    assert [point.n for point in points[:8]] == [100] * 4 + [300] * 4
    assert [point.repeat for point in points] == [1] * 8 + [2] * 8
    assert request.varied == {"rank": [8, 16], "workers": [1, 2]}  # what has one value is no name of a point
    point = points[7]
    assert point.label == "n 300, rank 16, workers 2" and point.name == "n300_rank-16_workers-2_repeat1"
    assert request.chosen(point) == {"rank": 16, "tol": 0.1} and request.placing(point) == {"workers": 2}
    assert request.n_constraints_of(point) == 50
    write_json(tmp_path / "sweep.json", request.as_dict())
    assert SweepRequest.of(read_json(tmp_path / "sweep.json", sealed=True)) == request
    with pytest.raises(InputError, match="--rank: a value that is there twice; got 8"):
        SweepRequest("pairwise", [100], settings={"rank": [8, 16, 8]}).checked()


def line(n: int, seconds: float, **more: object) -> results.Line:
    stages = {"graph": 0.25 * seconds, "solve": 0.75 * seconds}
    return {"n": n, "varied": {}, "repeat": 1, "status": 0, "seconds": seconds, "stages": stages, **more}


def test_slopes_are_those_of_powers_of_n() -> None:
    n = np.array([1e3, 1e4, 1e5])
    assert slope(n, 3e-4 * n**1.25) == pytest.approx(1.25, rel=1e-12)
    noise = np.array([1.0, -2.0, 1.0])  # orthogonal to 1 and log n: least squares does not see it
    assert slope(n, n * np.exp(0.01 * noise)) == pytest.approx(1.0, rel=1e-12)
    assert slope([10, 10], [1, 2]) is None and slope([10, 100], [1, 0]) is None

    lines = [line(10**k, 2.0**k, varied={"rank": 4}, repeat=1) for k in (2, 3, 4)]
    lines += [line(10**k, 8.0 * 2.0**k, varied={"rank": 4}, repeat=2) for k in (2, 3, 4)]
    lines += [line(10**k, 3.0 * 2.0**k, varied={"rank": 4}, repeat=3) for k in (2, 3, 4)]
    lines += [line(100, 1.0, varied={"rank": 8})]
    found = groups(lines, ["rank"])
    assert list(found) == ["rank 4", "rank 8"]
    assert curve(found["rank 4"])[1].tolist() == [12.0, 24.0, 48.0]  # medians of the repeats
    told = slopes(lines, ["rank"])
    log2 = "0.30 (0.30)"  # to base 10
    assert told[0].startswith(f"rank 4: grow as n to the power of: seconds {log2}, processor seconds - (-)")
    assert told[1].endswith(f"solve 36 s {log2}, graph 12 s {log2}") and len(told) == 2  # one n has no slope
    figure = draw(lines, ["rank"], "pairwise")
    picture_checks.check(figure, 2)
    assert "slope 0.30" in figure.axes[0].get_legend().get_texts()[0].get_text()


def test_rows_made_up_are_the_first_of_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "BLOCK", 64)
    for task in registry.TASKS:
        request = SweepRequest(task, [100, 150], data_seed=3)
        made = data_of(request, registry.declaration(task), tmp_path / task)
        few, more = (made.files(n, None) for n in (100, 150))
        rows = np.load(more["data"])
        assert rows.shape[0] == 150 and len(np.unique(rows, axis=0)) == 150
        assert np.array_equal(np.load(few["data"]), rows[:100])
        assert made.files(100, None) == few  # written once
        kind = registry.kind(task)
        inputs = kind.read(Files.of(kind.declaration.files, few), kind.declaration.settings().checked(), values=True)
        assert inputs.rows.n == 100
        if "targets" in few and few["targets"].endswith("npy"):
            assert np.array_equal(np.load(few["targets"]), np.load(more["targets"])[:100])


def test_side_information_is_as_much_as_was_asked_for(tmp_path: Path) -> None:
    made = data_of(SweepRequest("pairwise", [80], n_constraints=[31]), registry.declaration("pairwise"), tmp_path)
    pairs, alternating = load_pairs(made.files(80, 31)["pairs"]).check(80), np.arange(80) % 2
    assert (pairs.n_must, pairs.n_cannot) == (16, 15)
    assert np.array_equal(alternating[pairs.i] == alternating[pairs.j], pairs.sign > 0)  # of the rows' classes
    made = data_of(SweepRequest("logdet", [80], n_constraints=[30]), registry.declaration("logdet"), tmp_path)
    with np.load(made.files(80, 30)["targets"]) as held:
        labelled = held["y"] >= 0
        assert labelled.sum() == 30 and np.array_equal(held["y"][labelled], alternating[labelled])


def test_given_rows_keep_their_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "READ_BYTES", 200)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 4))
    np.savez(tmp_path / "X.npz", X=X)
    ends = rng.permutation(50).reshape(-1, 2)
    np.savez(tmp_path / "pairs.npz", must_link=ends[:12], cannot_link=ends[12:])
    files = {"data": str(tmp_path / "X.npz"), "pairs": str(tmp_path / "pairs.npz")}
    given = data_of(
        SweepRequest("pairwise", [30], files=files, shuffled=True), registry.declaration("pairwise"), tmp_path
    )
    found = given.files(30, None)
    taken, pairs = np.load(found["data"]), load_pairs(found["pairs"]).check(30)
    chosen = [int(np.flatnonzero((row == X).all(axis=1))[0]) for row in taken]
    assert len(set(chosen)) == 30 and chosen != list(range(30))
    wanted = {tuple(sorted(pair)) for pair in ends[:12].tolist() if set(pair) <= set(chosen)}
    assert {tuple(sorted((chosen[i], chosen[j]))) for i, j in pairs.must_link} == wanted


def whole(name: str, n: int) -> results.Line:
    return line(n, 1.0, point=name, task="svc", environment={})


def test_a_line_that_a_crash_cut_short_costs_itself_alone(tmp_path: Path) -> None:
    results.append(tmp_path, whole("one", 1))
    with open(tmp_path / results.FILE, "ab") as file:
        file.write(b'{"point": "two", "n"')
    results.append(tmp_path, whole("three", 3))
    results.append(tmp_path, whole("one", 4))  # tried again
    assert {name: found["n"] for name, found in results.read(tmp_path).items()} == {"one": 4, "three": 3}
    assert json.loads((tmp_path / results.FILE).read_text().splitlines()[-1])["n"] == 4


def test_what_was_not_measured_is_a_dash() -> None:
    table = SweepTable(SweepRequest("pairwise", [1000, 20000], settings={"rank": [4, 256]}))
    head, row = table.head(), table.row(line(20000, 1.5, varied={"rank": 256}, status=-9, error="killed"))
    assert row.splitlines()[0].split() == [
        "20,000",
        "256",
        "1.5",
        "-",
        "-",
        "killed",
        "(9)",
        "-",
        "-",
        "-",
        "-",
        "-",
        "-",
        "-",
    ]
    assert len(head) == len(row.splitlines()[0]) and row.splitlines()[1].strip() == "killed"


def test_a_point_has_a_folder_of_its_own_name() -> None:
    names = {SweepPoint(10, {"gamma": value}).name for value in (0.1, "scale", "a/b")}
    assert len(names) == 3 and not any("/" in name for name in names)
