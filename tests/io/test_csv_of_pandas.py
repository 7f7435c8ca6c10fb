"""CSV files as pandas writes them by default: what would be misread is refused, with what to write instead."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal

from dkl.datasets import read_array, read_labels
from dkl.errors import InputError
from dkl.side_information.loading import load_pairs

X = np.random.default_rng(0).standard_normal((5, 3))
NAMED, NUMBERED = pd.DataFrame(X, columns=["a", "b", "c"]), pd.DataFrame(X)
FLAGS = pd.DataFrame({0: [1, 0], 1: [0, 1]})


def refused(read, *words: str) -> None:
    with pytest.raises(InputError) as caught:
        read()
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (NAMED, {}, "its first column is an index; got ',a,b,c'; write it without: to_csv(path, index=False)"),
        (NUMBERED, {}, "its first column is an index; got ',0,1,2'"),
        (NUMBERED, {"index": False}, "its numbers may be names of columns, or a row; got '0,1,2'"),
        (FLAGS, {"index": False}, "its numbers may be names of columns, or a row; got '0,1'"),
        (NUMBERED[[0]], {"index": False}, "its numbers may be names of columns, or a row; got '0'"),
        (NAMED.rename_axis("id"), {}, "its first column counts the rows; got column 'id': 0, 1"),
        (NAMED.rename_axis("Unnamed: 0"), {}, "its first column is an index"),
    ],
)
def test_rows_are_refused(frame: pd.DataFrame, options: dict[str, bool], words: str, tmp_path: Path) -> None:
    frame.to_csv(tmp_path / "X.csv", **options)
    refused(lambda: read_array(tmp_path / "X.csv"), words)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b,c\n", X),
        ("", X),
        ("id,b,c\n", X),  # a feature of that name, which counts nothing
    ],
)
def test_rows_are_read(text: str, rows: np.ndarray, tmp_path: Path) -> None:
    pd.DataFrame(rows).to_csv(tmp_path / "X.csv", index=False, header=False, float_format="%.17g")
    (tmp_path / "X.csv").write_text(text + (tmp_path / "X.csv").read_text())
    assert_array_equal(read_array(tmp_path / "X.csv"), rows)


def test_a_row_that_numbers_its_columns_is_read_below_names(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text("a,b\n0,1\n1,0\n")
    assert_array_equal(read_array(tmp_path / "X.csv"), [[0, 1], [1, 0]])
    (tmp_path / "one.csv").write_text("0\n1\n2\n")  # a column of integers that begins with 0
    assert_array_equal(read_array(tmp_path / "one.csv"), [[0], [1], [2]])


def test_a_row_without_its_first_value_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "X.csv").write_text(",1.5,2\n1,2,3\n")
    refused(lambda: read_array(tmp_path / "X.csv"), "line 1, column 1: a value is missing")


def test_labels_and_pairs_with_an_index(tmp_path: Path) -> None:
    pd.Series(["red", "blue"]).to_csv(tmp_path / "y.csv")
    refused(lambda: read_labels(tmp_path / "y.csv", 2), "index=False")
    pd.Series(["red", "blue"]).to_csv(tmp_path / "y.csv", index=False)
    assert_array_equal(read_labels(tmp_path / "y.csv", 2), ["red", "blue"])
    pairs = pd.DataFrame({"i": [0, 1], "j": [1, 2], "label": ["must", "cannot"]})
    pairs.to_csv(tmp_path / "pairs.csv")
    refused(lambda: load_pairs(tmp_path / "pairs.csv"), "index=False")
    pairs.to_csv(tmp_path / "pairs.csv", index=False)
    assert load_pairs(tmp_path / "pairs.csv").n_must == 1
