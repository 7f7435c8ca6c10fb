"""Files beside the rows: options of delimited text reach them in every learner, and what help says is read is what is read."""

import gzip
import re
from pathlib import Path

import click
import numpy as np
import pytest
import zarr
from command_line import Answer, call, tree
from command_runs import refused
from numpy.testing import assert_array_equal
from repeats import but_for
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from dkl import load
from dkl.cli.commands import COMMANDS
from dkl.errors import InputError
from dkl.runs import registry
from dkl.side_information.loading import load_pairs, load_triplets

N = 40
KIND = np.arange(N) % 2
X = (np.random.default_rng(3).standard_normal((N, 3)) + 3 * np.eye(3)[KIND]).round(3)
MUST, CANNOT = (
    np.stack([np.arange(12), np.arange(12) + 2], axis=1),
    np.stack([np.arange(12), np.arange(12) + 1], axis=1),
)
TRIPLETS = np.array([[0, 2, 1], [0, 4, 3], [1, 3, 2], [5, 7, 6]])
ENTRIES = np.array([[0, 2, 1, 3], [0, 1, 2, 3], [1, 3, 3, -1]])
"""Of two constraint matrices."""
PAIR_TASKS = [task for task in registry.TASKS if any(file.name == "pairs" for file in registry.declaration(task).files)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a fresh folder with rows in several formats."""
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X)
    Path("X.csv").write_text("\n".join(["a,b,c", *(",".join(map(str, row)) for row in X.tolist())]) + "\n")
    ids = [f"C{i + 100}" for i in range(N)]
    named = [",".join([name, *map(str, row)]) for name, row in zip(ids, X.tolist(), strict=True)]
    Path("customers.csv").write_text("\n".join(["customer,a,b,c", *named]) + "\n")
    return tmp_path


def pair_lines(
    mark: str = ",", ends: list[str] | None = None, words: tuple[str, str] = ("must", "cannot")
) -> list[str]:
    """Lines of the pairs; ends: what rows are called."""
    names = ends or [str(i) for i in range(N)]
    of_kinds = zip((MUST, CANNOT), words, strict=True)
    return [mark.join([names[i], names[j], word]) for pairs, word in of_kinds for i, j in pairs.tolist()]


def write(name: str, *lines: str) -> None:
    Path(name).write_text("\n".join(lines) + "\n")


def fit(task: str, *more: str) -> Answer:
    return call("plan", task, *more, *loss_of(task, *more), "--out", "run.zarr")


def loss_of(task: str, *more: str) -> tuple[str, ...]:
    """Return the options of a loss of what is given, where the learner's default is of the other kind."""
    other = {("logdet", "--pairs"): "itml", ("metric", "--triplets"): "log", ("metric", "--constraints"): "log"}
    return next((("--loss", loss) for (of, kind), loss in other.items() if of == task and kind in more), ())


def is_read(answer: Answer) -> None:
    assert answer.code == 0, answer.err


# -- options of delimited text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", PAIR_TASKS)
def test_pairs_take_header_and_delimiter_where_the_data_is_no_text(task: str) -> None:
    write("names.csv", "this|that|7", *pair_lines("|"))  # 7 might be a name: nothing but --header says so
    write("bare.csv", *pair_lines("|"))
    given = ("--data", "X.npz", "--pairs")
    is_read(fit(task, *given, "names.csv", "--header", "--delimiter", "|"))
    is_read(fit(task, *given, "bare.csv", "--no-header", "--delimiter", "|"))
    for name, option, words in (("bare.csv", "--header", "leave out --header"), ("names.csv", "--no-header", "line 1")):
        answer = fit(task, *given, name, option, "--delimiter", "|")
        refused(answer)
        assert words in answer.err and name in answer.err, answer.err


@pytest.mark.parametrize("task", PAIR_TASKS)
def test_a_header_of_the_data_is_not_that_of_the_pairs(task: str) -> None:
    write("bare.csv", *pair_lines())
    write("names.csv", "i,j,label", *pair_lines())
    is_read(fit(task, "--data", "X.csv", "--header", "--pairs", "bare.csv"))
    np.savetxt("numbers.csv", X, delimiter=",", fmt="%g")
    is_read(fit(task, "--data", "numbers.csv", "--no-header", "--pairs", "names.csv"))


def test_triplets_take_header_and_delimiter() -> None:
    lines = ["|".join(map(str, row)) for row in TRIPLETS.tolist()]
    write("names.csv", "0|1|2", *lines)
    write("bare.csv", *lines)
    given = ("--delimiter", "|", "--data", "X.npz", "--triplets")
    for name, option, of in (("names.csv", "--header", TRIPLETS), ("bare.csv", "--no-header", TRIPLETS)):
        out = f"{name}.zarr"
        answer = call("fit", "logdet", *given, name, option, "--out", out)
        assert answer.code == 0, answer.err
        found = load_triplets(name, header=option == "--header", delimiter="|")
        assert_array_equal(np.sort(found.triplets, axis=0), np.sort(of, axis=0))
        assert call("transform", out, "--data", "X.npz", "--out", f"{name}.npy").code == 0
    assert_array_equal(np.load("names.csv.npy"), np.load("bare.csv.npy"))
    write("words.csv", "anchor|similar|dissimilar", *lines)
    refused(fit("logdet", *given, "words.csv", "--no-header"))


def test_constraints_are_of_ids_where_rows_have_any() -> None:
    """As by row numbers; whole numbers of arrays are ids, too."""
    ids = [f"C{i + 100}" for i in range(N)]
    lines = [f"{t},{ids[i]},{ids[j]},{value / 2}" for t, i, j, value in ENTRIES.tolist()]
    (customers, numbered) = (["--data", name, "--id-column", "customer"] for name in ("customers.csv", "numbered.csv"))
    Path("numbered.csv").write_text(Path("customers.csv").read_text().replace("C1", "1"))
    np.save("by_number.npy", ENTRIES / [1, 1, 1, 2])
    np.save("by_id.npy", ENTRIES / [1, 1, 1, 2] + [0, 100, 100, 0])
    write("names.csv", "constraint,i,j,value", *lines)
    write("other.csv", "t;a;b;A", *(line.replace(",", ";").replace(".", ",") for line in lines))
    write("bare.csv", *lines)
    found = []
    for k, (given, name) in enumerate(
        [
            (["--data", "X.npz"], "by_number.npy"),
            (numbered, "by_id.npy"),
            *((customers, f"{name}.csv") for name in ("names", "other", "bare")),
        ]
    ):
        answer = call(
            "fit", "logdet", *given, "--constraints", name, "--out", f"{k}.zarr", "--no-picture", "--holdout", "0"
        )
        assert answer.code == 0, answer.err
        assert ("names the columns" in answer.err.partition(name)[2]) == (name == "other.csv"), answer.err
        found.append(load(f"{k}.zarr").M_)
    for M in found[1:]:
        assert_array_equal(M, found[0])
    for line, words in (
        ("0,C100,Z9,1", "no row has this id"),
        ("0,C100,1", "malformed line"),
        ("C1,C100,C101,1", "malformed line"),
    ):
        write("bad.csv", *lines, line)
        answer = fit("logdet", *customers, "--constraints", "bad.csv")
        refused(answer)
        assert words in answer.err and f"bad.csv, line {len(lines) + 1}" in answer.err, answer.err


@pytest.mark.parametrize(("kind", "word"), [("pairs", "24 pairs"), ("triplets", "4 triplets")])
def test_a_note_says_how_the_first_line_was_read(kind: str, word: str) -> None:
    lines = pair_lines() if kind == "pairs" else [",".join(map(str, row)) for row in TRIPLETS.tolist()]
    names = "i,j,label" if kind == "pairs" else "anchor,similar,dissimilar"
    other = "first,second,kind" if kind == "pairs" else "who,near,far"
    ids = [
        re.sub(r"^(\d+),(\d+)", lambda found: f"C{int(found[1]) + 100},C{int(found[2]) + 100}", line) for line in lines
    ]
    if kind == "triplets":
        ids = [re.sub(r",(\d+)$", lambda found: f",C{int(found[1]) + 100}", line) for line in ids]
    of_ids = ("--data", "customers.csv", "--id-column", "customer")
    cases = (
        (("--data", "X.npz"), [*lines], ""),
        (("--data", "X.npz"), ["", names, *lines], ""),
        (("--data", "X.npz"), ["", other, *lines], f"note: side.csv: {word}, line 2 names the columns\n"),
        (
            ("--data", "X.csv"),
            [other, *lines],
            f"line 1 names the columns; side.csv: {word}, line 1 names the columns\n",
        ),
        (of_ids, [*ids], f"; side.csv: {word}, rows by these ids\n"),
        (of_ids, [names, *ids], f"; side.csv: {word}, rows by these ids\n"),
    )
    for given, written, note in cases:
        write("side.csv", *written)
        answer = fit("logdet", *given, f"--{kind}", "side.csv")
        is_read(answer)
        assert note in answer.err, (written[:2], answer.err)
        assert note or "side.csv" not in answer.err


def test_a_first_triplet_below_a_table_with_a_header_is_not_guessed() -> None:
    write("bare.csv", *(",".join(map(str, row)) for row in TRIPLETS.tolist()))
    given = ("--data", "X.csv", "--triplets")
    is_read(fit("logdet", *given, "bare.csv"))
    answer = fit("logdet", *given, "bare.csv", "--header")
    refused(answer)
    assert "bare.csv, line 1" in answer.err and "anchor,similar,dissimilar" in answer.err
    write("names.csv", "anchor,similar,dissimilar", *Path("bare.csv").read_text().splitlines())
    is_read(fit("logdet", *given, "names.csv", "--header"))


def test_what_was_said_of_a_file_in_python() -> None:
    write("p.csv", "this|that|7", *pair_lines("|"))
    found = load_pairs("p.csv", header=True, delimiter="|")
    assert_array_equal(found.must_link, MUST)
    assert_array_equal(found.cannot_link, CANNOT)
    with pytest.raises(InputError, match="line 1"):
        load_pairs("p.csv", header=False, delimiter="|")


# -- sweeps -------------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", but_for(["laplacian"], [task for task in PAIR_TASKS if task != "logdet"]))
def test_a_sweep_reads_pairs_of_ids_as_a_fit_does(task: str) -> None:
    ids = [f"C{i + 100}" for i in range(N)]
    write("pairs.tsv", "first\tsecond\tlink", *pair_lines("\t", ids, ("must-link", "cannot-link")))
    graph = () if task == "metric" else ("--n-neighbors", "5")
    given = ("--data", "customers.csv", "--id-column", "customer", "--pairs", "pairs.tsv", *graph)
    is_read(fit(task, *given))
    answer = call("sweep", task, *given, "--n", "8,40", "--max-iter", "3", "--no-picture", "--out", "sweep")
    assert answer.code in (0, 3), answer.err + answer.out
    assert "; pairs.tsv: 24 pairs, line 1 names the columns, rows by these ids\n" in answer.err
    for n in (8, 40):
        assert_array_equal(np.load(f"sweep/data/n{n}/X.npy"), X[:n])
        with np.load(f"sweep/data/n{n}/pairs.npz") as found:
            assert_array_equal(found["must_link"], MUST[(n > MUST).all(axis=1)])
            assert_array_equal(found["cannot_link"], CANNOT[(n > CANNOT).all(axis=1)])


def test_a_sweep_refuses_an_unknown_id() -> None:
    write("pairs.csv", "C100,C999,must", "C100,C101,cannot")
    given = ("--data", "customers.csv", "--id-column", "customer", "--pairs", "pairs.csv", "--n-neighbors", "5")
    answer = call("sweep", "pairwise", *given, "--n", "8,40", "--no-picture", "--out", "sweep")
    refused(answer)
    assert "pairs.csv, line 1" in answer.err and "C999" in answer.err


# -- what is said of columns and formats ----------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", but_for(["sweep"], ["fit", "sweep"]))
@pytest.mark.parametrize("task", registry.TASKS)
def test_a_remedy_for_a_column_of_text_names_only_options_that_there_are(task: str, verb: str) -> None:
    write("text.csv", "a,city", *(f"{i},town {i % 3}" for i in range(N)))
    write("side.csv", *pair_lines())
    side = next((f"--{file.name}" for file in registry.declaration(task).files[1:]), "")
    given = ("--data", "text.csv", side, "side.csv", *(("--n", "8") if verb == "sweep" else ()), "--out", "run.zarr")
    answer = call(verb, task, *given)
    refused(answer)
    command = COMMANDS[verb].get_command(click.Context(click.Command("dkl")), task)  # type: ignore[attr-defined]
    known = {flag for option in command.params for flag in option.opts}
    named = set(re.findall(r"--[a-z][\w-]+", answer.err))
    assert {"--drop", "--id-column"} <= named <= known, answer.err
    assert ("--target-column" in named) == ("--target-column" in known)


def test_a_remedy_for_new_rows_names_only_options_that_there_are() -> None:
    np.savez("Xy.npz", X=X[:, :2], y=KIND)
    write("text.csv", "a,city", *(f"{i},town {i % 3}" for i in range(N)))
    for task, verb in (("logdet", "transform"), ("logdet", "cluster"), ("svc", "predict")):
        if not Path(f"{task}.zarr").exists():
            assert call("fit", task, "--data", "Xy.npz", "--out", f"{task}.zarr").code == 0
        more = ("--k", "2") if verb == "cluster" else ()
        answer = call(verb, f"{task}.zarr", "--data", "text.csv", *more, "--out", "out.npy")
        refused(answer)
        named, known = set(re.findall(r"--[a-z][\w-]+", answer.err)), {o for p in COMMANDS[verb].params for o in p.opts}
        assert "--drop" in named and named <= known, answer.err


def packed(name: str) -> None:
    with gzip.open(f"{name}.gz", "wb") as file:
        file.write(Path(name).read_bytes())


def write_formats(name: str, values: np.ndarray, key: str, lines: list[str]) -> None:
    """Write values in every format: of numbers, and of lines of cells."""
    np.save(f"{name}.npy", values)
    np.savez(f"{name}.npz", **{key: values})
    rows = sparse.csr_array(X)
    dump_svmlight_file(rows, KIND, f"{name}.svmlight", zero_based=False)
    write(f"{name}.csv", *lines)
    write(f"{name}.tsv", *(line.replace(",", "\t") for line in lines))
    for suffix in (".csv", ".tsv", ".svmlight"):
        packed(f"{name}{suffix}")
    zarr.create_array(f"{name}.zarr", data=values, chunks=values.shape)


FORMATS = (".npy", ".npz", ".csv", ".tsv", ".csv.gz", ".tsv.gz", ".svmlight", ".svmlight.gz", ".zarr")


def named_in(help: str) -> set[str]:
    """The formats that a help text names."""
    words = {".npy", ".npz", ".csv", ".tsv", "svmlight", "zarr"} & set(re.findall(r"\.?\w+", help))
    assert ".gz" in help
    found = {word if word[0] == "." else f".{word}" for word in words}
    return found | {f"{word}.gz" for word in found & {".csv", ".tsv", ".svmlight"}}


def test_targets_in_zarr_are_those_of_a_file() -> None:
    write_formats("targets", KIND, "y", [str(kind) for kind in KIND])
    for suffix in (".npy", ".zarr"):
        answer = call("fit", "svc", "--data", "X.npz", "--targets", f"targets{suffix}", "--out", f"of{suffix}.run")
        assert answer.code == 0, answer.err
        scored = call(
            "predict", f"of{suffix}.run", "--data", "X.npz", "--targets", f"targets{suffix}", "--out", f"p{suffix}.npy"
        )
        assert scored.code == 0 and "accuracy" in scored.out, scored.err
    assert_array_equal(np.load("p.npy.npy"), np.load("p.zarr.npy"))
    assert call("verify", "of.zarr.run").code == 0
    zarr.create_group("group.zarr").create_array("y", data=KIND)
    zarr.create_array("short.zarr", data=KIND[1:])
    for name, words in (
        ("group.zarr", "a group of y (40,)"),
        ("short.zarr", "not labels of these rows; got shape (39,)"),
    ):
        answer = fit("svc", "--data", "X.npz", "--targets", name)
        refused(answer)
        assert words in answer.err, answer.err


INPUTS = [(task, file.name) for task in registry.TASKS for file in registry.declaration(task).files]


@pytest.mark.parametrize(("task", "name"), INPUTS)
def test_help_names_the_formats_that_are_read(task: str, name: str) -> None:
    """Each input of each learner in each format: it is read where its help names it, and else refused."""
    declared = {file.name: file for file in registry.declaration(task).files}
    write_formats("data", X, "X", [",".join(map(str, row)) for row in X.tolist()])
    write_formats("targets", KIND, "y", [str(kind) for kind in KIND])
    write_formats("triplets", TRIPLETS, "triplets", [",".join(map(str, row)) for row in TRIPLETS.tolist()])
    write_formats("constraints", ENTRIES, "constraints", [",".join(map(str, row)) for row in ENTRIES.tolist()])
    write_formats("pairs", MUST, "must_link", pair_lines())
    before, wanted = tree(Path()), named_in(declared[name].help)
    needed = {
        "data": "X.npz",
        **({"pairs": "pairs.csv"} if declared.get("pairs") and declared["pairs"].required else {}),
    }
    if "pairs" not in needed and name not in ("triplets", "pairs", "constraints"):
        needed["targets"] = "targets.npy"
    for suffix in FORMATS:
        given = needed | {name: f"{name}{suffix}"}
        colored = ("--colored",) if task == "mvu" else ()
        answer = fit(task, *(word for option, file in given.items() for word in (f"--{option}", file)), *colored)
        assert (answer.code == 0) == (suffix in wanted), (suffix, answer.err)
        if suffix not in wanted:
            refused(answer)
    assert tree(Path()) == before


@pytest.mark.parametrize("task", PAIR_TASKS)
@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("0,2,must\n1,500,cannot\n", "cannot_link of .*bad.csv: row numbers out of range.*numbered from 0"),
        ("0,2,must\n0,-1,cannot\n", "cannot_link of .*bad.csv: negative row numbers"),
        ("0,2,must\n5,5,cannot\n", "bad.csv, line 2: a row paired with itself; got '5,5,cannot'"),
    ],
)
def test_pairs_that_no_rows_have_are_said_of_their_file(task: str, lines: str, words: str) -> None:
    Path("bad.csv").write_text(lines)
    loss = ["--loss", "itml"] if task in ("logdet", "metric") else []
    answer = call("fit", task, "--data", "X.npz", "--pairs", "bad.csv", *loss, "--out", "run.zarr")
    assert answer.code == 2 and re.search(words, answer.err), answer.err
    assert "dkl.Pairs" not in answer.err and not Path("run.zarr").exists()


def test_a_customer_paired_with_itself_is_named_by_line_and_id() -> None:
    Path("bad.csv").write_text("C100,C102,must-link\nC101,C101,cannot-link\n")
    answer = call(
        "fit", "pairwise", "--data", "customers.csv", "--id-column", "customer", "--pairs", "bad.csv", "--out", "r"
    )
    assert answer.code == 2 and "line 2: a row paired with itself; got 'C101,C101" in answer.err, answer.err
