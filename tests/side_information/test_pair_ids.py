"""Pairs and triplets that name rows by ids: in files, and by the index of a data frame."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dkl.errors import InputError
from dkl.side_information.loading import load_pairs, load_triplets
from dkl.side_information.pairs import Pairs
from dkl.side_information.triplets import Triplets

IDS = ["ann", "bob", "eve", "007"]


@pytest.mark.parametrize(
    "text",
    [
        "ann,eve,must-link\nbob,007,cannot-link\n",
        "customer_a,customer_b,link\nann,eve,must\nbob,007,cannot\n",
        "i,j,label\nann, eve ,MUST_LINK\nbob,007,Cannot Link\n",
        "label;i;j\nmustlink;ann;eve\n-1;bob;007\n",
        "a\tb\tc\nann\teve\t+1\n\nbob\t007\t0\n",
    ],
)
def test_rows_of_a_file_are_named_by_ids(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    assert load_pairs(path, ids=IDS) == Pairs([[0, 2]], [[1, 3]])


def test_a_header_of_any_names_stands_above_row_numbers_too(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("first,second,kind,sure\n0,1,must-link,2\n2,3,cannot-link,0.5\n")
    assert load_pairs(path) == Pairs([[0, 1]], [[2, 3]], weights=[2.0, 0.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\nann,zoe,must\n", "pairs.csv, line 2: no row has this id; got 'zoe'; wanted an id of a row"),
        ("ann,eve,must\n7,bob,cannot\n", "line 2: no row has this id; got '7'"),  # not 007
        ("ann,Eve,must\n", "line 1: no row has this id; got 'Eve'"),
        ("ann,eve,mustt\n", "line 1: malformed line"),  # no header: ann is a row
        ("ann,eve,must\nbob,007,perhaps\n", "line 2: malformed line"),
        ("ann,eve,must\nbob,007\n", "line 2: malformed line"),
    ],
)
def test_an_unknown_id_is_one_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_pairs(path, ids=IDS)


def test_ids_in_place_of_row_numbers_say_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("ann,eve,must\n")
    with pytest.raises(InputError, match=r"line 1: malformed line.*integers i and j.*--id-column"):
        load_pairs(path)


def test_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "pairs.npz", must_link=np.array([["ann", "eve"]]), weights=[3.0])
    assert load_pairs(tmp_path / "pairs.npz", ids=IDS) == Pairs([[0, 2]], weights=[3.0])
    np.savez(tmp_path / "numbers.npz", cannot_link=[[20, 30]])
    assert load_pairs(tmp_path / "numbers.npz", ids=[10, 20, 30]) == Pairs(None, [[1, 2]])
    with pytest.raises(InputError, match=r"numbers.npz, cannot_link\[0\]: no row has this id; got '20'"):
        load_pairs(tmp_path / "numbers.npz", ids=IDS)


def test_the_index_of_a_frame() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0]}, index=IDS)
    wanted = Pairs([[0, 2]], [[1, 3]], weights=[1.0, 0.5])
    for index in (frame, frame.index, IDS):
        assert Pairs.from_index(index, [("ann", "eve")], [("bob", "007")], weights=[1.0, 0.5]) == wanted
    by_frame = pd.DataFrame([["ann", "eve"]], columns=["a", "b"])
    assert Pairs.from_index(frame, by_frame) == Pairs([[0, 2]])
    numbers = pd.DataFrame({"x": [1.0, 2.0, 3.0]}, index=[30, 10, 20])
    assert Pairs.from_index(numbers.index, np.array([[10, 20]])) == Pairs([[1, 2]])
    dates = pd.date_range("2026-01-01", periods=3)
    assert Pairs.from_index(dates, None, [(dates[0], dates[2])]) == Pairs(None, [[0, 2]])
    several = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    assert Pairs.from_index(several, [(("a", 1), ("b", 1))]) == Pairs([[0, 2]])


@pytest.mark.parametrize(
    ("index", "must", "message"),
    [
        (["a", "b", "a"], [], "index: two rows of one id; got 'a' in rows 0 and 2"),
        (IDS, [("ann", "zoe")], r"must_link\[0\]: no row has this id; got 'zoe'"),
        (IDS, [("ann", "eve"), ("ann",)], r"must_link\[1\]: not ids"),
        (IDS, ["ab"], r"must_link\[0\]: not ids"),
        (IDS, [0], r"must_link\[0\]: not ids"),
        (5, [], "index: not ids of rows"),
        ([["a"], ["b"]], [], "index: not ids of rows"),
    ],
)
def test_refuses_ids(index: Any, must: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Pairs.from_index(index, must)


def test_triplets(tmp_path: Path) -> None:
    wanted = Triplets([[0, 1, 2], [3, 2, 0]])
    path = tmp_path / "triplets.csv"
    for header in ("", "anchor,similar,dissimilar\n"):
        path.write_text(f"{header}ann,bob,eve\n007,eve,ann\n")
        assert load_triplets(path, ids=IDS) == wanted
    path.write_text("ann,bob,eve\nann,bob,zoe\n")
    with pytest.raises(InputError, match="triplets.csv, line 2: no row has this id; got 'zoe'"):
        load_triplets(path, ids=IDS)
    path.write_text("ann,bob,eve\nann,bob\n")
    with pytest.raises(InputError, match="line 2: malformed line"):
        load_triplets(path, ids=IDS)
    path.write_text("row,near,far\n1,2,3\n4,3,1\n")  # other names, of ids that are written otherwise
    assert load_triplets(path, ids=["1", "2", "3", "4"]) == wanted
    path.write_text("zoe,tim,ida\nann,bob,eve\n007,eve,ann\n")  # was passed over as names
    with pytest.raises(
        InputError, match="line 1: names of columns, or ids that no row has.*write anchor,similar,dissimilar"
    ):
        load_triplets(path, ids=IDS)
    assert load_triplets(path, ids=IDS, header=True) == wanted
    for text, ids in (("ann,bob,eve\n", IDS), ("0,1,2\n", None)):
        path.write_text(f"similar,anchor,dissimilar\n{text}")
        with pytest.raises(InputError, match="line 1: columns in another order"):
            load_triplets(path, ids=ids)
    np.savez(tmp_path / "triplets.npz", triplets=np.array([["ann", "bob", "eve"], ["007", "eve", "ann"]]))
    assert load_triplets(tmp_path / "triplets.npz", ids=IDS) == wanted
    np.save(tmp_path / "triplets.npy", [[10, 20, 30]])
    assert load_triplets(tmp_path / "triplets.npy", ids=[20, 10, 30]) == Triplets([[1, 0, 2]])
    assert Triplets.from_index(pd.Index(IDS), [("ann", "bob", "eve"), ("007", "eve", "ann")]) == wanted


def test_pairs_of_ids_in_frames_and_tables() -> None:
    """Row by row: a frame of polars is a sequence of columns, and pandas keeps what its columns hold."""
    polars, pyarrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    wanted = Pairs([[0, 2], [1, 0]])
    for index in (pd.Index(["ann", "bob", "eve"]), pd.Index([7, 9, 8]), pd.date_range("2020-01-01", periods=3)):
        columns = {"a": [index[0], index[1]], "b": [index[2], index[0]]}
        assert Pairs.from_index(index, pd.DataFrame(columns, index=[5, 6])) == wanted
        assert Pairs.from_index(index, list(zip(*columns.values(), strict=True))) == wanted
        if not isinstance(index, pd.DatetimeIndex):
            assert Pairs.from_index(index, polars.DataFrame(columns)) == wanted
            assert Pairs.from_index(index, pyarrow.table(columns)) == wanted
