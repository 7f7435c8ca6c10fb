"""Rows of `dkl reproduce`: verdicts, continued records, missing data, and what stands in the pages."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dkl.errors import InputError
from dkl.reproduce import driver, registry
from dkl.reproduce.driver import comparable, markdown
from dkl.reproduce.item import CONIC, Axes, Case, Effort, Item, Measured, verdict
from dkl.reproduce.page import pages

PAPERS = Path(__file__).parents[2] / "benchmarks" / "papers"


def item(calls: list[str], stop_at: str = "") -> Item:
    """An item of two rows, whose work is noted in `calls`, and interrupted at the row `stop_at`."""

    def work(name: str) -> Measured:
        calls.append(name)
        if name == stop_at:
            raise KeyboardInterrupt
        return Measured([1.0, 3.0], {"rank": 2, "gap": float("inf")}, {"line": ([1, 2], [3.0, 4.0])})

    def cases(effort: Effort) -> list[Case]:
        return [Case({"set": "one", "method": name}, lambda name=name: work(name), (2.5, 1.0)) for name in ("a", "b")]

    return Item("admm-test", "table 0", "nothing", "error", cases, (), (), "none", draws=4)


@pytest.mark.parametrize(
    ("better", "values", "expected"),
    [
        ("higher", [90.0, 92.0], "as the paper or better"),  # mean 91, paper 90
        ("higher", [88.0, 90.0], "within a standard error"),  # 1 short; error sqrt(2 / 2 + 4 / 20) = 1.095
        ("higher", [87.0, 89.0], "worse by 2.00"),
        ("lower", [91.0, 93.0], "worse by 2.00"),
        ("lower", [89.0], "as the paper or better"),
        ("equal", [90.0], "equal"),
        ("equal", [87.0], "differs by 3.00"),
    ],
)
def test_verdicts(better: str, values: list[float], expected: str) -> None:
    assert verdict(replace(item([]), better=better, draws=20), values, (90.0, 2.0)) == expected
    assert verdict(item([]), values, None) == ""


def test_an_interrupted_call_keeps_its_rows_and_is_continued(tmp_path: Path) -> None:
    calls: list[str] = []
    with pytest.raises(KeyboardInterrupt, match="1 of 2 rows are in .*; the same command continues"):
        driver.reproduce(item(calls, stop_at="b"), Effort(quick=True), tmp_path, calls.append)
    said: list[str] = []
    figure = replace(item(calls), axes=Axes("x", "y"))
    record = driver.reproduce(figure, Effort(quick=True), tmp_path, said.append)
    assert [call for call in calls if call in "ab"] == ["a", "b", "b"]
    assert said == [f"{k}/2 one / {name}: 2.00, paper 2.5, as the paper or better" for k, name in ((1, "a"), (2, "b"))]
    assert json.loads((tmp_path / "admm-test.json").read_text("utf-8")) == json.loads(json.dumps(record))
    assert "Infinity" not in (tmp_path / "admm-test.json").read_text("utf-8")  # which JSON has no word for
    assert [row["mean"] for row in record["rows"]] == [2.0, 2.0] and record["quick"] is True
    text = (tmp_path / "admm-test.md").read_text("utf-8")
    assert "| one | a | 2.50 ± 1.00 | 2.00 ± 1.41 | as the paper or better | 2 | 2 | inf |" in text
    assert "Quick: fewer draws" in text and "dkl reproduce admm-test --quick" in text
    assert (tmp_path / "admm-test.png").stat().st_size > 1000


def test_rows_of_another_call_are_not_mixed_in(tmp_path: Path) -> None:
    driver.reproduce(item([]), Effort(), tmp_path, str)
    with pytest.raises(InputError, match="rows of another call; got draws None; wanted draws 3"):
        driver.reproduce(item([]), Effort(draws=3), tmp_path, str)
    (tmp_path / "admm-test.json").write_text("[]")
    with pytest.raises(InputError, match="not a record of dkl reproduce"):
        driver.reproduce(item([]), Effort(), tmp_path, str)


def test_missing_data_are_named_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DKL_DATA", raising=False)
    lacking = replace(item([]), sets=("glass", "digits", "chessboard"), quick_sets=("digits",))
    with pytest.raises(InputError, match=r"data sets are missing; got no DKL_DATA; wanted glass\.npz; set DKL_DATA"):
        driver.reproduce(lacking, Effort(), tmp_path / "new", str)
    assert not (tmp_path / "new").exists()
    driver.check_ready(lacking, Effort(quick=True))


def test_the_best_and_what_is_not_worse_by_a_paired_test() -> None:
    rows = [
        {"key": name, "labels": {"set": "one", "method": name}, "values": values, "mean": sum(values) / 3}
        for name, values in (("a", [3.0, 4.0, 5.1]), ("b", [2.9, 4.1, 5.0]), ("c", [1.0, 2.1, 3.0]))
    ]
    assert comparable(replace(item([]), better="higher", tested="method"), rows) == {"a", "b"}
    assert comparable(item([]), rows) == set()


@pytest.mark.parametrize(("package", "extra"), [("clarabel", "conic"), ("matplotlib", "report")])
def test_a_missing_package_is_named_before_work(
    package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "find_spec", lambda name: None if name == package else name)
    calls: list[str] = []
    lacking = replace(item(calls), extras=CONIC, axes=Axes("x", "y"))
    with pytest.raises(InputError, match=rf"admm-test: {package} is not installed; pip install 'dkl\[{extra}\]'"):
        driver.reproduce(lacking, Effort(), tmp_path / "new", str)
    assert not calls and not (tmp_path / "new").exists()
    driver.check_ready(replace(item([]), extras={} if package == "clarabel" else CONIC), Effort())


def test_names_and_errors_of_the_registry() -> None:
    assert all(name == one.name and one.better in ("higher", "lower", "equal") for name, one in registry.ITEMS.items())
    for one in registry.ITEMS.values():
        for effort in (Effort(), Effort(quick=True, draws=1)):
            keys = [case.key for case in one.cases(effort)]
            assert keys and len(keys) == len(set(keys)), one.name
    assert registry.chosen("all") == list(registry.ITEMS.values())
    with pytest.raises(InputError, match="no such table or figure; got 'admm-table9'; wanted admm-table1"):
        registry.chosen("admm-table9")


@pytest.mark.parametrize("path", sorted(PAPERS.glob("*.json")), ids=lambda path: path.stem)
def test_stored_records_are_of_the_present_registry(path: Path) -> None:
    """A record with other rows or settings than its item has now was made by an older one."""
    record = json.loads(path.read_text("utf-8"))
    one = registry.ITEMS[path.stem]
    cases = one.cases(Effort(record["quick"], record["draws"]))
    assert [row["key"] for row in record["rows"]] == [case.key for case in cases]
    for row, case in zip(record["rows"], cases, strict=True):
        # A slope of the paper's seconds differs in its last bits from one processor to the next.
        assert row["paper"] == (case.paper and [one and pytest.approx(one, rel=1e-9) for one in case.paper])
    assert record["settings"] == one.settings
    assert [row["verdict"] for row in record["rows"]] == [
        verdict(one, row["values"], row["paper"]) for row in record["rows"]
    ]
    assert path.with_suffix(".md").read_text("utf-8") == markdown(one, record)


def test_pages_are_those_of_their_records() -> None:
    for path, text in pages(PAPERS).items():
        assert path.read_text("utf-8") == text, f"{path}: python -m dkl.reproduce.page"


def test_long_curves_are_thinned_and_their_ends_kept() -> None:
    x, y = driver.thinned((range(1, 5001), [1 / 3] * 5000))
    assert 200 < len(x) == len(y) <= driver.MOST_POINTS and (x[0], x[-1], y[0]) == (1, 5000, 0.333333)
    assert driver.thinned(((1, 2), (3, 4))) == ([1, 2], [3, 4])


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.ITEMS)
def test_every_item_is_recomputed_quickly(name: str, tmp_path: Path) -> None:
    one = registry.ITEMS[name]
    if driver.missing(one, Effort(quick=True)):
        pytest.skip("its data are not here")
    record = driver.reproduce(one, Effort(quick=True), tmp_path, str)
    assert [row["key"] for row in record["rows"]] == [case.key for case in one.cases(Effort(quick=True))]
    assert sum(row["cpu_seconds"] for row in record["rows"]) < 60
    assert (tmp_path / f"{name}.png").exists() == (one.axes is not None)
