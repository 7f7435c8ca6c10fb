"""Tables in delimited text: what the first line is, what separates cells, and which columns are which."""

import gzip
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from dkl.datasets import read_array, read_labels
from dkl.errors import InputError
from dkl.io.tables import TableOptions, read_table
from dkl.side_information.loading import load_triplets


def written(folder: Path, text: str, name: str = "X.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


READ = {
    "numbers alone": ("1.5,-2\n3,4\n", {}, [[1.5, -2], [3, 4]], None),
    "names": ("a,b\n1,2\n", {}, [[1, 2]], ("a", "b")),
    "CRLF, a byte order mark, lines without cells": ("\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n  \r\n", {}, [[1, 2], [3, 4]], ("a", "b")),
    "lines that end as on old Macs": ("a,b\r1,2\r3,4\r", {}, [[1, 2], [3, 4]], ("a", "b")),
    "text of several lines": ('a,note\n1,"x\ny"\n2,"say ""z"", twice"\n', {"drop": ("note",)}, [[1], [2]], ("a",)),
    "numbers in quotes, blanks": ('"a","b"\n"1"," 2"\n 3 ,"-4"\n', {}, [[1, 2], [3, -4]], ("a", "b")),
    "names that are numbers": ("1100,1102,1104\n1,2,3\n3,1,2\n", {"header": True}, [[1, 2, 3], [3, 1, 2]], ("1100", "1102", "1104")),
    "rows that ascend, as the first": ("1,2,3\n4,5,6\n2,4,9\n", {}, [[1, 2, 3], [4, 5, 6], [2, 4, 9]], None),
    "a single row": ("1100,1102,1104\n", {}, [[1100, 1102, 1104]], None),
    "semicolons": ("a;b\n1;2.5\n", {}, [[1, 2.5]], ("a", "b")),
    "a decimal comma": ("a;b\n1,5;2\n-,25;1e-3\n", {}, [[1.5, 2], [-0.25, 1e-3]], ("a", "b")),
    "a decimal comma in quotes": ('"1,5",2\n"0,25",4\n', {}, [[1.5, 2], [0.25, 4]], None),
    "a decimal comma by option": ("1,500;2\n2,750;3\n", {"decimal": ","}, [[1.5, 2], [2.75, 3]], None),
    "tabs": ("a\tb\n1\t2\n", {}, [[1, 2]], ("a", "b")),
    "another delimiter": ("a|b\n1|2\n", {"delimiter": "|"}, [[1, 2]], ("a", "b")),
    "columns by name": ("a,b,c\n1,2,3\n", {"features": ("c", "a")}, [[3, 1]], ("c", "a")),
    "columns by number": ("1,2,-3\n2,7,9\n", {"drop": ("2",)}, [[1, -3], [2, 9]], None),
    "text that is dropped": ("a,city\n1,rome\n2,oslo\n", {"drop": ("city",)}, [[1], [2]], ("a",)),
    "names in quotes": ('"a, b",c\n1,2\n', {}, [[1, 2]], ("a, b", "c")),
    "text that occurs again is no name": ("1,x\n2,x\n", {"drop": ("2",)}, [[1], [2]], None),
    "sodium is a name": ("Na,K\n1,2\n", {}, [[1, 2]], ("Na", "K")),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_what_is_read(case: str, tmp_path: Path) -> None:
    text, options, values, names = READ[case]
    found = read_table(written(tmp_path, text), TableOptions(**options))
    assert_array_equal(found.values, np.array(values, float))
    assert found.names == names


REFUSED = {
    "wavelengths over rows": ("1100,1102,1104\n1,2,3\n3,1,2\n", {}, "line 1: its numbers may be names .*--no-header"),
    "wavelengths over spectra": ("1100,1102,1104\n.1,.2,.3\n.2,.3,.4\n", {}, "--no-header"),
    "whole numbers over fractions": ("7,5,2\n.1,.3,.2\n.2,.1,.4\n", {}, "--no-header"),
    "years": ("2019,2020\n5,4\n3,1\n", {}, "--no-header"),
    "the numbers of the columns": ("0,1\n1,0\n", {}, "--no-header"),
    "numbers and text": ("c1,2\nc2,3\n", {}, "numbers and text.*--no-header"),
    "a cell": ("a,b\n1,2\n3,x\n", {}, r"line 3, column 2 \('b'\): not a number; got 'x'"),
    "a long line": (",".join("abcdefgh") + "\n1,2,3,4,5,6,7,8\n1,2,3,4,5,6,7,8x\n", {}, r"line 3, column 8 \('h'\).*'8x'"),
    "a missing value": ("a,b\n1,2\n,3\n", {}, r"line 3, column 1 \('a'\): a value is missing.*--drop a"),
    "infinity": ("a,b\n1,inf\n", {}, r"column 2 \('b'\): a value is not finite"),
    "an integer that is rounded": (
        "a,b\n1,9007199254740992\n2,9007199254740993\n", {},
        r"line 3, column 2 \('b'\): an integer would be rounded; got 9007199254740993; .*--drop b .*--id-column b",
    ),
    "an empty line of one column": ("a\n1\n\n2\n", {}, r"line 3, column 1 \('a'\): a value is missing"),
    "two delimiters": ("1;2\t3\n4;5\t6\n", {}, "two delimiters are possible; got semicolons and tabs.*--delimiter"),
    "thousands": ("1,500;2\n2,750;3\n", {}, "separator of thousands.*--decimal"),
    "a point among decimal commas": ("1,5;2\n1.500;2\n", {}, "line 2, column 1: not a number; got '1.500'"),
    "a column of text": ("a,my city\n1,rome\n2,oslo\n", {}, r"column 2 \('my city'\): a column of text.*--drop 'my city'.*--id-column"),
    "a column of true and false": ("a,paid\n1,True\n2,False\n", {}, r"column 2 \('paid'\): a column of text.*write 1 and 0.*--drop paid"),
    "ids": ("customer_id,b\n1001,2\n1007,2\n", {}, "looks like ids.*--id-column customer_id"),
    "an index": (",a,b\n0,1,2\n", {}, "its first column is an index.*--drop 1"),
    "no such column": ("a,b\n1,2\n", {"drop": ("c",)}, "no such column; got 'c'; wanted a, b"),
    "nothing left": ("a,b\n1,2\n", {"drop": ("a", "b")}, "no column is left"),
    "a name twice": ("a,a\n1,2\n", {}, "two columns of one name"),
    "an id twice": ("n,b\nx,2\nx,3\n", {"id_column": "n"}, "two rows of one id.*'x' in rows 1 and 2"),
    "no id": ("n,b\nx,2\n,3\n", {"id_column": "n"}, r"row 2, column 1 \('n'\)"),
    "blanks between cells": ("1 2\n3 4\n", {}, "separate cells by commas, semicolons or tabs"),
}  # fmt: skip
LACKING = ("NA,NA", "?,?", "-,-", ",", "nan,nan")
REFUSED |= {
    f"a line of {marks}": (f"{marks}\n1,2\n3,4\n", {}, "line 1, column 1: a value is missing.*--header")
    for marks in LACKING
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, tmp_path: Path) -> None:
    text, options, words = REFUSED[case]
    with pytest.raises(InputError, match=words) as caught:
        read_table(written(tmp_path, text), TableOptions(**options))
    assert "\n" not in str(caught.value)


def test_ids_and_targets(tmp_path: Path) -> None:
    text = "customer;age;city;spent\nc7;31,5;rome;1,25\nc2;40;oslo;2\n"
    options = TableOptions(id_column="customer", target_column="spent", drop=("city",))
    found = read_table(written(tmp_path, text), options)
    assert_array_equal(found.values, [[31.5], [40]])
    assert found.names == ("age",)
    assert_array_equal(found.ids, ["c7", "c2"])
    assert_array_equal(found.targets, ["1,25", "2"])
    assert found.note == (
        "X.csv: 2 x 1 numbers, line 1 names the columns, cells separated by semicolons, numbers with a decimal comma, "
        "ids: column 1 ('customer'), targets: column 4 ('spent')"
    )


def test_ids_that_are_a_feature(tmp_path: Path) -> None:
    found = read_table(written(tmp_path, "id,b\n11,2\n17,3\n"), TableOptions(features=("id", "b")))
    assert_array_equal(found.values, [[11, 2], [17, 3]])


@pytest.mark.parametrize("name", ["X.tsv", "X.TSV", "X.tsv.gz"])
def test_tabs(name: str, tmp_path: Path) -> None:
    assert_array_equal(read_array(written(tmp_path, "a\tb\n1\t2\n3\t5\n", name)), [[1, 2], [3, 5]])


def test_packed(tmp_path: Path) -> None:
    assert_array_equal(read_array(written(tmp_path, "a,b\n1,2\n3,5\n", "X.csv.gz")), [[1, 2], [3, 5]])
    (tmp_path / "torn.csv.gz").write_bytes((tmp_path / "X.csv.gz").read_bytes()[:-9])
    with pytest.raises(InputError, match=r"torn.csv.gz: the file cannot be read"):
        read_array(tmp_path / "torn.csv.gz")


def test_options_as_json() -> None:
    options = TableOptions(header=False, features=("a", "b"), id_column="a")
    assert options.as_dict() == {"header": False, "features": ["a", "b"], "id_column": "a"}
    assert TableOptions.from_dict(options.as_dict()) == options
    assert TableOptions().as_dict() == {}


def test_a_triplet_of_the_first_rows(tmp_path: Path) -> None:
    path = written(tmp_path, "0,1,2\n3,4,5\n", "t.csv")
    assert_array_equal(np.asarray(load_triplets(path).triplets), [[0, 1, 2], [3, 4, 5]])
    assert_array_equal(np.asarray(load_triplets(path, header=True).triplets), [[3, 4, 5]])
    assert_array_equal(np.asarray(load_triplets(written(tmp_path, "i,j,k\n0,1,2\n")).triplets), [[0, 1, 2]])


LABELS = {
    "as many as rows": ("red\nblue\nred\n", None, ["red", "blue", "red"]),
    "a name of text above": ("color\nred\nblue\nred\n", None, ["red", "blue", "red"]),
    "a name above numbers": ("species\n0\n1\n1\n", None, [0, 1, 1]),
    "a number above text": ("0\nred\nblue\nred\n", None, ["red", "blue", "red"]),
    "a name that is a number": ("0\n1\n0\n1\n", True, [1, 0, 1]),
    "an empty line at the end": ("1\n0\n1\n\n\n", None, [1, 0, 1]),
    "text that is a label": ("none\n0\n1\n", False, ["none", "0", "1"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels(case: str, tmp_path: Path) -> None:
    text, header, wanted = LABELS[case]
    found = read_labels(written(tmp_path, text, "y.csv"), 3, TableOptions(header=header))
    assert_array_equal(found, wanted)
    assert found.dtype.kind == np.array(wanted).dtype.kind


def test_an_empty_line_is_no_label_and_shifts_none(tmp_path: Path) -> None:
    found = read_labels(written(tmp_path, "species\n0\n\n1\n1\n", "y.csv"), 4)
    assert [str(label or "") for label in found] == ["0", "", "1", "1"]


@pytest.mark.parametrize("mark", ["", "NA", "?"])
def test_empty_lines_among_labels_of_text_are_missing_as_other_marks_are(mark: str, tmp_path: Path) -> None:
    """With two or more, only the first line can be what makes one line too many; a single one may separate labels."""
    found = read_labels(written(tmp_path, f"species\n{mark}\nred\n{mark}\nblue\n", "y.csv"), 4)
    assert found.tolist() == [mark, "red", mark, "blue"]
    with nullcontext() if mark else pytest.raises(InputError, match="one label too many"):
        read_labels(written(tmp_path, f"species\n{mark}\nred\nblue\n", "one.csv"), 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "red\nred\nblue\nred\n",
            "one label too many, or a name above them.; got 'red' above 3 lines, of 3 rows.*--header",
        ),
        ("2\n0\n1\n1\n", "one label too many"),
        ("species\n0\n1\n", "text above numbers: a name, or a label"),
        ("red\n\nblue\n\nred\n", "not labels of these rows; got 5 labels"),
        ("red\n\nblue\nred\n", "one label too many"),
        ("1;2\n3;4\n5;6\n", "line 1: malformed line; got 2 cells.*--target-column"),
    ],
)
def test_labels_that_are_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        read_labels(written(tmp_path, text, "y.csv"), 3)


def test_labels_of_a_column(tmp_path: Path) -> None:
    path = written(tmp_path, "id;kind;x\n7;1;a\n9;0;b\n", "y.csv")
    assert_array_equal(read_labels(path, 2, TableOptions(target_column="kind")), [1, 0])
    assert_array_equal(read_labels(path, 2, TableOptions(target_column="x")), ["a", "b"])
    with pytest.raises(InputError, match="not labels of these rows"):
        read_labels(path, 3, TableOptions(target_column="x"))


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_lines_that_are_longer_than_csv_s_largest_cell(delimiter: str, tmp_path: Path) -> None:
    # By any other delimiter a line is one cell, of more than the 131,072 characters that csv takes.
    row = delimiter.join(str(j % 7) for j in range(70_000))
    text = f"{delimiter.join(f'g{j}' for j in range(70_000))}\n{row}\n{row}\n"
    found = read_table(written(tmp_path, text, "wide.csv"))
    assert found.names is not None and len(found.names) == 70_000 and found.names[-1] == "g69999"
    assert_array_equal(found.values, np.tile(np.arange(70_000) % 7, (2, 1)))
