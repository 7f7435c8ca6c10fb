"""Tables in text by the command: what was decided is said in a line, kept with the run, and what has two readings is refused."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from command_line import Answer, call, tree
from command_runs import refused
from numpy.testing import assert_array_equal

from dkl.datasets import TableOptions, read_table
from dkl.errors import InputError
from dkl.side_information.loading import load_pairs

RNG = np.random.default_rng(3)
N = 40
KIND = np.arange(N) % 2
POINTS = (RNG.standard_normal((N, 2)) + 3 * np.eye(2)[KIND]).round(3)
PAIRS = "".join(f"{i},{i + 2},must\n{i},{i + 1},cannot\n" for i in range(12))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a fresh folder with a table of customers, their pairs, and the same points without names."""
    monkeypatch.chdir(tmp_path)
    rows = [f"c{i:03d};{x:.3f};{city};{y:.3f};{'gold' if kind else 'basic'}".replace(".", ",") for i, ((x, y), kind, city) in enumerate(
        zip(POINTS.tolist(), KIND.tolist(), ["rome", "oslo"] * (N // 2), strict=True))]  # fmt: skip
    Path("customers.csv").write_text("\n".join(["customer;age;city;spent;tier", *rows]) + "\n")
    np.savetxt("X.csv", POINTS, delimiter=",", fmt="%.3f")
    np.savez("X.npz", X=POINTS, y=KIND)
    Path("pairs.csv").write_text(PAIRS)
    return tmp_path


CUSTOMERS = ("--data", "customers.csv", "--id-column", "customer", "--drop", "city")


def fit(task: str, *more: str) -> Answer:
    return call("fit", task, *more, "--out", "run.zarr")


def test_a_classifier_of_a_column(folder: Path) -> None:
    answer = fit("svc", *CUSTOMERS, "--target-column", "tier")
    assert answer.code == 0, answer.err
    assert answer.err.startswith(
        "note: customers.csv: 40 x 2 numbers, line 1 names the columns, cells separated by semicolons, numbers with a decimal "
        "comma, ids: column 1 ('customer'), targets: column 5 ('tier')\n"
    )
    config = json.loads((folder / "run.zarr" / "config.json").read_text())
    assert config["inputs"]["data"]["table"] == {"drop": ["city"], "target_column": "tier", "id_column": "customer"}
    assert config["inputs"]["data"]["shape"] == [N, 2]
    again = call("verify", "run.zarr")
    assert again.code == 0, again.err
    answer = call("predict", "run.zarr", "--data", "customers.csv", "--out", "labels.npy")
    assert answer.code == 0, answer.err
    assert "accuracy" in answer.out
    assert np.mean(np.load("labels.npy") == np.where(KIND, "gold", "basic")) > 0.9


def test_new_rows_may_lack_what_is_not_needed(folder: Path) -> None:
    assert fit("svc", *CUSTOMERS, "--target-column", "tier").code == 0
    assert call("predict", "run.zarr", "--data", "customers.csv", "--out", "all.npy").code == 0
    lines = Path("customers.csv").read_text().splitlines()
    Path("new.csv").write_text("\n".join(";".join(line.split(";")[i] for i in (1, 3)) for line in lines) + "\n")
    answer = call("predict", "run.zarr", "--data", "new.csv", "--out", "new.npy")
    assert answer.code == 0, answer.err
    assert "accuracy" not in answer.out
    assert_array_equal(np.load("new.npy"), np.load("all.npy"))


def test_a_regression_of_a_column(folder: Path) -> None:
    options = ("--data", "customers.csv", "--features", "age", "--target-column", "spent", "--n-columns", "10")
    assert fit("regression", *options).code == 0
    np.savez("same.npz", X=POINTS[:, :1], y=POINTS[:, 1])
    assert call("fit", "regression", "--data", "same.npz", "--n-columns", "10", "--out", "same.zarr").code == 0
    assert call("verify", "run.zarr").code == 0
    for name in ("run", "same"):
        assert call("predict", f"{name}.zarr", "--data", "same.npz", "--out", f"{name}.npy").code == 0
    assert_array_equal(np.load("run.npy"), np.load("same.npy"))


def test_pairs_and_the_other_columns(folder: Path) -> None:
    options = ("--pairs", "pairs.csv", "--n-neighbors", "5")
    refused(fit("pairwise", *CUSTOMERS, "--drop", "tier", *options), 2)  # of row numbers, where the rows have ids
    Path("by-id.csv").write_text(re.sub(r"\b(\d+)\b", lambda number: f"c{int(number[0]):03d}", PAIRS))
    by_id = ("--pairs", "by-id.csv", "--n-neighbors", "5")
    assert fit("pairwise", *CUSTOMERS, "--drop", "tier", *by_id).code == 0
    assert call("fit", "pairwise", "--data", "X.npz", *options, "--out", "same.zarr").code == 0
    for name, data in (("run", "customers.csv"), ("same", "X.npz")):
        answer = call("transform", f"{name}.zarr", "--data", data, "--out", f"{name}.npy")
        assert answer.code == 0, answer.err
    assert_array_equal(np.load("run.npy"), np.load("same.npy"))
    Path("new.csv").write_text("".join(Path("customers.csv").read_text().splitlines(keepends=True)[:9]))
    answer = call("transform", "run.zarr", "--data", "new.csv", "--out", "new.npy")
    assert answer.code == 0, answer.err
    assert np.load("new.npy").shape[0] == 8


def test_a_resumed_run_reads_as_it_did(folder: Path) -> None:
    answer = fit("svc", *CUSTOMERS, "--target-column", "tier", "--max-iter", "1")
    assert answer.code == 3, answer.err
    answer = call("resume", "run.zarr", "--max-iter", "10000")
    assert answer.code == 0, answer.err
    assert "customers.csv" not in answer.err  # said when it began


TARGETS = {
    "a label too many": ("svc", "0\n" + "".join(f"{kind}\n" for kind in KIND), "one label too many, or a name above them"),
    "a label of text too many": ("svc", "a\n" + "".join("ab"[kind] + "\n" for kind in KIND), "one label too many"),
    "text above numbers": ("svc", "kind\n" + "".join(f"{kind}\n" for kind in KIND[1:]), "text above numbers: a name, or a label"),
    "several columns": ("svc", "id,kind\n" + "a,1\n" * N, "malformed line.*--target-column"),
    "a number too many": ("regression", "1\n" + "".join(f"{x}\n" for x in POINTS[:, 0]), "not targets of these.*--header"),
    "an empty line": ("regression", "1\n\n" + "".join(f"{x}\n" for x in POINTS[2:, 0]), "line 2, column 1: a value is missing"),
    "a missing number": ("regression", "spent\n" + "?\n" * N, r"line 2, column 1 \('spent'\): a value is missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", TARGETS)
def test_targets_of_other_rows(case: str, folder: Path) -> None:
    task, text, words = TARGETS[case]
    Path("y.csv").write_text(text)
    before = tree(folder)
    answer = call("fit", task, "--data", "X.npz", "--targets", "y.csv", "--out", "run.zarr")
    refused(answer)
    assert re.search(words, answer.err), answer.err
    assert tree(folder) == before


def test_labels_of_new_rows_in_a_file_of_their_own(folder: Path) -> None:
    assert fit("svc", *CUSTOMERS, "--target-column", "tier").code == 0
    Path("y.csv").write_text("tier\n" + "".join("basic\n" if kind == 0 else "gold\n" for kind in KIND))
    for data in ("customers.csv", "X.npz"):
        answer = call("predict", "run.zarr", "--data", data, "--targets", "y.csv", "--out", f"{data}.npy")
        assert answer.code == 0, answer.err
        assert "accuracy" in answer.out
    answer = call("predict", "run.zarr", "--data", "X.npz", "--drop", "city", "--out", "more.npy")
    refused(answer)
    assert "options of delimited text; got --drop" in answer.err


NOTES = {
    "names of labels": ("svc", "species\n" + "".join(f"{kind}\n" for kind in KIND), "line 1 names the 40 targets"),
    "labels alone": ("svc", "".join("ab"[kind] + "\n" for kind in KIND), None),
    "a missing label": ("logdet", "species\n0\n\n" + "".join(f"{kind}\n" for kind in KIND[2:]), "line 1 names the 40 targets"),
    "names of numbers": ("regression", "a,b\n" + "".join(f"{x},{y}\n" for x, y in POINTS.tolist()), "line 1 names the 40 targets"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOTES)
def test_what_a_file_of_targets_is_said_to_be(case: str, folder: Path) -> None:
    task, text, words = NOTES[case]
    Path("y.csv").write_text(text)
    answer = call("plan", task, "--data", "X.npz", "--targets", "y.csv", "--out", "run.zarr")
    assert answer.code == 0, answer.err
    assert answer.err == ("" if words is None else f"note: y.csv: {words}\n")


def test_a_triplet_of_the_first_rows(folder: Path) -> None:
    triplets = np.array([[0, 2, 1], [0, 4, 3], [1, 3, 2], [5, 7, 6]])
    triplets[0] = [0, 1, 2]
    np.savetxt("t.csv", triplets, delimiter=",", fmt="%d")
    np.save("t.npy", triplets)
    for name in ("t.csv", "t.npy"):
        answer = call("fit", "logdet", "--data", "X.npz", "--triplets", name, "--out", f"{name}.zarr")
        assert answer.code == 0, answer.err
        assert call("transform", f"{name}.zarr", "--data", "X.npz", "--out", f"{name}.out.npy").code == 0
    assert_array_equal(np.load("t.csv.out.npy"), np.load("t.npy.out.npy"))


def test_decimal_commas_of_three_places(folder: Path) -> None:
    Path("X.csv").write_text("".join(f"{1 + k},125;{20 - k},375\n" for k in range(12)))
    options = ("plan", "pairwise", "--data", "X.csv", "--pairs", "few.csv", "--n-neighbors", "3", "--out", "run.zarr")
    Path("few.csv").write_text("0,1,must\n0,9,cannot\n")
    answer = call(*options)
    refused(answer)
    assert "--decimal" in answer.err
    answer = call(*options, "--decimal", ",")
    assert answer.code == 0, answer.err
    assert "12 x 2 numbers, no line of names, cells separated by semicolons, numbers with a decimal comma" in answer.err


def test_packed_text_that_does_not_fit_is_refused_before_it_is_read(folder: Path) -> None:
    with gzip.open("bomb.csv.gz", "wb", compresslevel=1) as file:
        for _ in range(40):
            file.write(b"1" * 10_000_000)
    for more in (("--data", "bomb.csv.gz"), ("--data", "X.npz", "--targets", "bomb.csv.gz")):
        answer = call("plan", "svc", *more, "--target-column", "1", "--memory-limit", "500MB", "--out", "run.zarr")
        refused(answer, 5)
        assert (
            re.search("rows do not fit|a line is too long", answer.err) and "memory_limit" in answer.err
        )  # by what is free


@pytest.mark.exhaustive
def test_a_sweep(folder: Path) -> None:
    answer = call(
        "sweep", "svc", *CUSTOMERS, "--target-column", "tier", "--n", "20,40", "--out", "sweep", "--no-picture"
    )
    assert answer.code == 0, answer.err + answer.out
    assert_array_equal(np.load("sweep/data/n40/X.npy"), POINTS)
    assert_array_equal(np.load("sweep/data/n40/y.npy"), np.where(KIND, "gold", "basic"))
    answer = call(
        "sweep", "svc", *CUSTOMERS, "--drop", "age", "--target-column", "tier", "--n", "20,40", "--out", "sweep"
    )
    refused(answer)
    assert "another sweep is there" in answer.err


def test_few_new_rows_are_read_as_those_before(folder: Path) -> None:
    assert fit("svc", "--data", "X.csv", "--targets", "X.npz").code == 0
    Path("two.csv").write_text("1,2\n2,1\n")
    answer = call("predict", "run.zarr", "--data", "two.csv", "--out", "two.npy")
    assert answer.code == 0, answer.err
    assert np.load("two.npy").shape == (2,)
    answer = call("plan", "regression", "--data", "two.csv", "--targets", "two.csv", "--out", "other.zarr")
    refused(answer)
    assert "--no-header" in answer.err


def test_a_column_of_a_file_of_targets(folder: Path) -> None:
    rows = [f"{kind},{x},{'gb'[kind]}" for x, kind in zip(POINTS[:, 1].tolist(), KIND.tolist(), strict=True)]
    Path("y.csv").write_text("\n".join(["n,spent,tier", *rows]) + "\n")
    options = ("--data", "X.npz", "--targets", "y.csv", "--target-column")
    assert fit("svc", *options, "tier").code == 0
    answer = call("predict", "run.zarr", "--data", "X.npz", "--out", "labels.npy")
    assert answer.code == 0, answer.err
    assert set(np.load("labels.npy")) == {"b", "g"}
    answer = call("fit", "regression", *options, "spent", "--out", "numbers.zarr")
    assert answer.code == 0, answer.err


REFUSED = {
    "wavelengths": (("X.csv", "1100,1102\n1,5\n3,2\n" + "4,1\n" * 5), [], "X.csv, line 1: its numbers may be names.*--no-header"),
    "missing in line 1": (("X.csv", "NA,NA\n" + "1,2\n" * N), [], "line 1, column 1: a value is missing"),
    "a question mark": (("X.csv", "?\n" + "1\n" * N), [], "line 1, column 1: a value is missing"),
    "a dash": (("X.csv", "-,-\n" + "1,2\n" * N), [], "line 1, column 1: a value is missing"),
    "commas alone": (("X.csv", ",,\n" + "1,2,3\n" * N), [], "line 1, column 1: a value is missing"),
    "text": (("X.csv", "a,city\n" + "1,rome\n" * N), [], "line 2, column 2 .'city'.: a column of text.*--drop city.*--id-column city"),
    "two delimiters": (("X.csv", "1;2\t3\n" * N), [], "two delimiters are possible"),
    "no such column": (("X.csv", "a,b\n" + "1,2\n" * N), ["--drop", "c"], "no such column; got 'c'; wanted a, b"),
    "no table": (("X.csv", ""), ["--data", "X.npz", "--drop", "c"], "options of delimited text; got --drop"),
    "a file of no kind": (("X.parquet", "PAR1"), ["--data", "X.parquet", "--drop", "c"], "X.parquet: not a kind of file to read.*to_csv"),
    "a folder": (("X.csv", "1\n"), ["--data", "."], "cannot read a folder; got a folder that is no zarr array; wanted a file of rows"),
    "a delimiter of two characters": (("X.csv", "1,2\n" * N), ["--delimiter", "ab"], "not a delimiter"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["fit", "plan"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused(case: str, command: str, folder: Path) -> None:
    (name, text), more, words = REFUSED[case]
    Path(name).write_text(text)
    before = tree(folder)
    answer = call(command, "pairwise", "--data", "X.csv", "--pairs", "pairs.csv", "--out", "run.zarr", *more)
    refused(answer)
    assert re.search(words, answer.err), answer.err
    assert tree(folder) == before


def test_a_header_of_numbers(folder: Path) -> None:
    Path("X.csv").write_text("1100,1102\n" + Path("X.csv").read_text())
    answer = call("plan", "pairwise", "--data", "X.csv", "--header", "--pairs", "pairs.csv", "--out", "run.zarr")
    assert answer.code == 0, answer.err
    assert answer.err.startswith("note: X.csv: 40 x 2 numbers, line 1 names the columns\n")
    answer = call("plan", "pairwise", "--data", "X.csv", "--no-header", "--pairs", "pairs.csv", "--out", "run.zarr")
    assert answer.err.startswith("note: X.csv: 41 x 2 numbers, no line of names\n")


@pytest.mark.parametrize("mark", [";", "\t", "|", ","])
def test_a_first_line_says_the_delimiter(folder: Path, mark: str) -> None:
    name = {";": "semicolons", "\t": "tabs", "|": "'|'", ",": "commas"}[mark]
    text = Path("customers.csv").read_text().replace(";", "#").replace(",", ".").replace("#", mark)
    Path("excel.csv").write_text(f"sep={mark}\r\n{text}", encoding="utf-8-sig")
    Path("plain.csv").write_text(f'"sep={mark}"\n' + "".join(f"{x}{mark}{y}\n" for x, y in POINTS.tolist()))
    answer = fit("svc", "--data", "excel.csv", *CUSTOMERS[2:], "--target-column", "tier")
    assert answer.code == 0, answer.err
    assert f"line 2 names the columns, cells separated by {name}, as line 1 says" in answer.err
    for file, line in (("excel.csv", 2), ("plain.csv", 0)):
        table = read_table(file, TableOptions(drop=("city", "customer", "tier") if line else ()))
        assert_array_equal(table.values, POINTS)
        assert table.names == (("age", "spent") if line else None)
    Path("plain.csv").write_text(Path("plain.csv").read_text().replace(f"{POINTS[3, 0]}{mark}", f"x{mark}"))
    with pytest.raises(InputError, match=r"plain.csv, line 5, column 1: not a number"):
        read_table("plain.csv")


def test_pairs_below_a_line_that_says_the_delimiter_and_with_decimal_commas(folder: Path) -> None:
    Path("excel.csv").write_text("sep=;\ni;j;label;weight\n0;2;must;0,5\n0;1;cannot;1,25\n")
    found = load_pairs("excel.csv")
    assert (found.must_link.tolist(), found.cannot_link.tolist()) == ([[0, 2]], [[0, 1]])
    assert found.weights is not None and found.weights.tolist() == [0.5, 1.25]
    Path("thousands.csv").write_text("i;j;label;weight\n0;2;must;1,250\n0;1;cannot;2,500\n")
    with pytest.raises(InputError, match="thousands.csv: a decimal comma, or a separator of thousands"):
        load_pairs("thousands.csv")
    assert load_pairs("thousands.csv", decimal=",").weights.tolist() == [1.25, 2.5]
    weighted = ("--data", "X.npz", "--pairs", "thousands.csv", "--max-iter", "5", "--target-gap", "none")
    assert "separator of thousands" in fit("pairwise", *weighted).err
    assert fit("pairwise", *weighted, "--decimal", ",").code in (0, 3)


@pytest.mark.parametrize("above", ["", "kind\n", "sep=;\nkind\n"])
def test_a_missing_label_is_named_by_its_line(folder: Path, above: str) -> None:
    names = ["b" if kind else "a" for kind in KIND]
    Path("y.csv").write_text(above + "\n".join([*names[:3], "NA", *names[4:]]) + "\n")
    line = 4 + above.count("\n")
    answer = fit("svc", "--data", "X.npz", "--targets", "y.csv")
    assert answer.code == 2 and f"y.csv, line {line}: a label is missing; got 'NA'" in answer.err
    text = Path("customers.csv").read_text().splitlines()
    text[4] = text[4].rpartition(";")[0] + ";"
    Path("customers.csv").write_text("\n".join(text) + "\n")
    answer = fit("svc", *CUSTOMERS, "--target-column", "tier")
    assert answer.code == 2 and "customers.csv, line 5, column 'tier': a label is missing" in answer.err
