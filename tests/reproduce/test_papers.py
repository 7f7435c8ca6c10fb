"""Rows of benchmarks/papers/*.toml: every name, file and test in them is there; and facts of the papers' data that no other test has."""

import ast
import importlib
import inspect
import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import dkl
from dkl.dataset_sources import SOURCES
from dkl.reproduce import onk, slkl
from dkl.reproduce.oriented_gradients import GRIDS, N_FEATURES, oriented_gradients
from dkl.reproduce.page import PAPERS, STATUSES, Row, Shortfall, figures, rows_of, shortfalls_of
from dkl.reproduce.registry import ITEMS

ROOT = Path(__file__).parents[2]
ROWS = rows_of(ROOT / "benchmarks" / "papers")
ALL = [pytest.param(row, id=f"{title.split()[0]}, {row.of[:40]}") for title, rows in ROWS.items() for row in rows]


SHORT = shortfalls_of(ROOT / "benchmarks" / "papers")


@cache
def functions(path: str) -> set[str]:
    """Names of the functions of a module, read from its source."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def public(name: str) -> Any:
    """The object that a dotted name of dkl stands for."""
    found: Any = dkl
    for part in name.split("."):
        assert not part.startswith("_")
        if not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)
    return found


def test_every_paper_has_rows_and_none_twice() -> None:
    assert list(ROWS) == list(PAPERS.values())
    for rows in ROWS.values():
        assert len({row.of for row in rows}) == len(rows) > 20


@pytest.mark.parametrize("row", ALL)
def test_a_row_names_what_is_there(row: Row) -> None:
    assert row.of and row.status in STATUSES
    assert row.test and row.file or row.status != "whole", "what is whole has a file and a test"
    assert row.note or row.status == "whole", "what is not whole says why"
    assert not row.test or row.status != "not built"
    for path in row.file:
        assert (ROOT / path).is_file(), path
    for test in row.test:
        path, _, function = test.partition("::")
        assert function.startswith("test_") and function in functions(path), test
    for name in row.ours:
        found = re.fullmatch(r"([\w.]+)(?:\(([\w, ]+)\))?", name)
        assert found is not None, name
        parameters = inspect.signature(public(found[1])).parameters
        assert set((found[2] or "").replace(" ", "").split(",")) - {""} <= set(parameters), name


def records() -> dict[str, list[dict[str, Any]]]:
    """Rows of the whole records, by item."""
    paths = (ROOT / "benchmarks" / "papers").glob("*.json")
    found = [json.loads(path.read_text("utf-8")) for path in paths]
    return {record["item"]: record["rows"] for record in found if not record["quick"]}


def test_every_row_that_falls_short_has_one_experiment_that_says_why() -> None:
    explained = Counter(
        (item, row["key"]) for item, rows in records().items() for row in rows
        for short in SHORT if short.item == item and short.is_of(row)
    )  # fmt: skip
    short = {
        (item, row["key"]) for item, rows in records().items() for row in rows
        if row["verdict"].startswith(("worse", "differs"))
    }  # fmt: skip
    assert set(explained) == short
    assert set(explained.values()) == {1}


@pytest.mark.parametrize("short", SHORT, ids=lambda one: f"{one.item}, {one.rows}")
def test_an_experiment_is_there_and_of_rows_that_fall_short(short: Shortfall) -> None:
    assert any(short.is_of(row) for row in records()[short.item]), "nothing falls short any more"
    assert (ROOT / "benchmarks" / short.see).is_file()
    words = short.run.split()
    if words[:2] == ["dkl", "reproduce"]:
        assert words[2] in ITEMS
    elif words[:2] == ["dkl", "datasets"]:
        assert words[2] in SOURCES
    else:
        assert words[:2] == ["python", "-m"]
        module = ROOT / (words[2].replace(".", "/") + ".py")
        assert module.is_file()
        options = [word for word in words[3:] if word.startswith("--")]
        assert all(f'"{option}"' in module.read_text("utf-8") for option in options)


def test_sizes_of_the_sets_of_slkl_are_those_of_its_table_1() -> None:
    """Features, training and test rows, and sigma^2, as printed."""
    table = {
        "sinc": (2, 1000, 1000, 1.0),
        "abalone_onehot": (10, 3000, 1177, 2.5),
        "boston_housing": (13, 350, 156, 3.25),
        "usps": (256, 7291, 2007, 64.0),
    }
    drawn = slkl.sinc(0)
    assert (drawn.X.shape[1], len(drawn.X), len(drawn.X_test)) == table["sinc"][:3]
    for name, (columns, train, test, width) in table.items():
        assert slkl.TASKS[name].width == width
        if name != "sinc":
            assert (SOURCES[name].columns, SOURCES[name].rows) == (columns, train + test)
        if name != "usps":
            assert slkl.TASKS[name].counts[-1] == train  # the largest M is n


def test_noise_of_sinc_is_10_dB_below_its_signal() -> None:
    drawn = [slkl.sinc(seed) for seed in range(20)]
    clean = [np.sinc(np.linalg.norm(one.X, axis=1) / np.pi) for one in drawn]
    noise = np.mean([np.mean((one.y - y) ** 2) for one, y in zip(drawn, clean, strict=True)])
    # 20,000 draws: the variance has a relative deviation of 1 %.
    assert 10 * np.log10(np.mean(np.square(clean)) / noise) == pytest.approx(10, abs=0.2)
    assert_allclose(drawn[0].y_test, np.sinc(np.linalg.norm(drawn[0].X_test, axis=1) / np.pi))


def test_sizes_of_the_sets_of_onk_are_those_of_its_table_1() -> None:
    table = {
        "liver": (6, 345), "ionosphere": (34, 351), "diabetes": (8, 768), "hill valley": (100, 1212), "a2a": (123, 2265),
        "a4a": (123, 4781),
    }  # fmt: skip
    assert {name: (SOURCES[set_].columns, SOURCES[set_].rows) for name, set_ in onk.SETS.items()} == table


@pytest.mark.parametrize("k", [1, 2, 3])
def test_widths_of_onk_are_by_the_mean_squared_distance(k: int, rng: np.random.Generator) -> None:
    X = rng.normal(size=(40, 5)) * [1, 2, 3, 4, 5]
    assert onk.paper_gamma(X, k) == pytest.approx(1 / (4 ** (k - 1) * cdist(X, X, "sqeuclidean").mean()))


def test_of_many_figures_the_least_and_the_most_favorable_are_shown() -> None:
    def row(key: str, paper: float | None, mean: float) -> dict[str, Any]:
        printed = None if paper is None else [paper, None]
        return {
            "key": key,
            "labels": {"set": key[0], "method": key[2:]},
            "paper": printed,
            "mean": mean,
            "deviation": None,
        }

    rows = [row("a ours", 10.0, 11.0), row("b ours", 10.0, 5.0), row("c ours", None, 1.0), row("d ours", 100.0, 90.0)]
    rows += [row("e ours", 1.0, float("nan")), row("f ours", 10.0, 9.9), row("g rival", 10.0, 99.0)]
    one = replace(ITEMS["slkl-table2"], own="ours", digits=1)
    assert figures(one, rows) == "a ours: paper 10.0, dkl 11.0; b ours: paper 10.0, dkl 5.0"
    assert figures(replace(one, better="higher"), rows).startswith("b ours: paper 10.0, dkl 5.0; a ours")
    assert figures(replace(one, better="equal"), rows) == "b ours: paper 10.0, dkl 5.0"
    assert figures(one, rows[:3]) == "a ours: paper 10.0, dkl 11.0; b ours: paper 10.0, dkl 5.0"
    assert figures(one, rows[2:3]) == "c ours: 1.0"


@pytest.mark.parametrize("quarter", [0, 1, 2, 3])
def test_oriented_gradients_have_the_direction_of_a_slope(quarter: int) -> None:
    """An even slope across the image, turned by quarters: every cell has one orientation of its twelve, and all cells are alike."""
    slope = np.tile(np.arange(28.0), (28, 1))
    image = (slope, slope.T, slope[:, ::-1], slope.T[::-1])[quarter]
    found = oriented_gradients(image.reshape(1, -1))[0]
    assert N_FEATURES == 2172 == len(found)
    first = 0
    for size, step in GRIDS:
        cells = ((26 - size) // step + 1) ** 2
        grid = found[first : first + 12 * cells].reshape(12, cells)
        # A grid's features have length 1: of equal cells each has 1 / sqrt(cells).
        assert_allclose(grid[3 * quarter], 1 / np.sqrt(cells), rtol=1e-4)
        assert_allclose(np.delete(grid, 3 * quarter, axis=0), 0, atol=2e-3)
        first += 12 * cells
    assert_allclose(oriented_gradients(np.zeros((2, 784))), 0)
