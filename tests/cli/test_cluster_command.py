"""`dkl cluster`: from tables with ids and pairs of ids to labeled rows, what it writes and reads back, and what it refuses."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import SLOW, call, refused_without, tree

import dkl
from dkl.datasets import read_array
from dkl.io.paths import ObjectPath

N = 45
KINDS = np.arange(N) % 3
CENTERS = np.array([[2.0, 300.0], [9.0, 40.0], [20.0, 120.0]])
IDS = [f"C{1000 + 7 * i}" for i in range(N)]


def write_customers(folder: Path) -> None:
    """Customers of three kinds, far apart; pairs of ids with the words for links; and some new ones."""
    rng = np.random.default_rng(0)
    values = CENTERS[KINDS] + rng.normal(size=(N, 2)) * [1.0, 10.0]
    cities = rng.choice(["Rome", "Oslo"], N)
    rows = [f"{name},{city},{a:.3f},{b:.2f}" for name, city, (a, b) in zip(IDS, cities, values, strict=True)]
    (folder / "customers.csv").write_text("\n".join(["customer,city,visits,spent", *rows]) + "\n")
    new = [row.replace("C", "N", 1) for row in rows[:6]]
    (folder / "new.csv").write_text("\n".join(["customer,city,visits,spent", *new]) + "\n")
    lines = ["customer_a,customer_b,link"]
    for i, j in rng.permutation(N)[:40].reshape(-1, 2):
        lines.append(f"{IDS[i]},{IDS[j]},{'must-link' if KINDS[i] == KINDS[j] else 'cannot-link'}")
    (folder / "pairs.csv").write_text("\n".join(lines) + "\n")


FIT = (
    "fit", "pairwise", "--data", "customers.csv", "--id-column", "customer", "--drop", "city", "--standardize",
    "--pairs", "pairs.csv", "--threads", "1", "--out", "run.zarr",
)  # fmt: skip
THREE = ("cluster", "run.zarr", "--k", "3", "--threads", "1")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("customers")
    write_customers(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer = call(*FIT)
    assert answer.code == 0, answer.err
    assert "line 1 names the columns, rows by these ids" in answer.err
    return folder


@pytest.fixture
def work(fitted, tmp_path, monkeypatch):
    """A folder with the run and its inputs, which it knows by where they were when it was fitted."""
    shutil.copytree(fitted, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def table(path):
    with open(path, newline="") as text:
        return list(csv.reader(text))


def same_partition(labels, kinds):
    """Each label is of one kind, and each kind has one label."""
    return len(set(zip(labels, kinds, strict=True))) == len(set(labels)) == len(set(kinds))


def test_from_a_table_and_pairs_of_ids_to_labeled_customers_in_three_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_customers(tmp_path)
    assert call(*FIT).code == 0
    answer = call(*THREE, "--out", "labels.csv", "--out", "clusters.npz")
    assert (answer.code, answer.err) == (0, "")
    assert call("info", "clusters.npz", "--picture", "clusters.png").code == 0
    header, *rows = table("labels.csv")
    assert header == ["customer", "cluster"] and [name for name, _ in rows] == IDS
    assert same_partition([label for _, label in rows], KINDS)
    assert "sizes                           15, 15, 15" in answer.out and "inertia" in answer.out
    assert Path("clusters.png").stat().st_size > 10_000


def test_clusters_in_an_object_store_are_those_in_files(work):
    """All that reads a file of clusters reads the object, too; labels by it are written there."""
    store = "memory://labels"
    assert call(*THREE, "--out", "labels.csv").code == 0
    answer = call(*THREE, "--out", f"{store}/labels.csv", "--out", f"{store}/clusters.npz")
    assert answer.code == 0, answer.err
    assert ObjectPath(f"{store}/labels.csv").read() == Path("labels.csv").read_bytes()
    assert "15, 15, 15" in call("info", f"{store}/clusters.npz").out
    known, out = f"{store}/clusters.npz", f"{store}/again.npy"
    assert call("cluster", "run.zarr", "--clusters", known, "--out", out).code == 0
    again = read_array(out)
    np.testing.assert_array_equal(again, dkl.load(known).labels_)
    assert sorted(ObjectPath(store).names()) == ["again.npy", "clusters.npz", "labels.csv"]


def test_what_is_written_is_what_the_estimator_finds(work):
    answer = call(
        *THREE, "--out", "labels.npy", "--out", "clusters.npz", "--out", "labels.csv", "--picture", "one.png", "--json"
    )
    found = json.loads(answer.out)
    own = dkl.KernelKMeans(3, random_state=0).fit(dkl.load("run.zarr").factor_)
    assert found["sizes"] == [15, 15, 15] and found["inertia"] == own.inertia_ and found["seed"] == 0
    assert np.array_equal(np.load("labels.npy"), own.labels_)
    assert [row[1] for row in table("labels.csv")[1:]] == own.labels_.astype(str).tolist()
    loaded = dkl.load("clusters.npz")
    assert np.array_equal(loaded.labels_, own.labels_) and np.array_equal(loaded.cluster_centers_, own.cluster_centers_)
    assert (loaded.inertia_, loaded.n_iter_, loaded.n_clusters) == (own.inertia_, own.n_iter_, 3)
    assert loaded.result_.outcome is own.result_.outcome and len(loaded.result_.history) == len(own.result_.history)
    assert np.array_equal(loaded.predict(dkl.load("run.zarr").factor_), own.labels_)
    with np.load("clusters.npz") as held:
        assert held["ids"].tolist() == IDS
    assert call("info", "clusters.npz", "--picture", "two.png").code == 0
    assert Path("one.png").read_bytes() == Path("two.png").read_bytes()
    assert json.loads(call("info", "clusters.npz", "--json").out)["sizes"] == [15, 15, 15]


def test_new_rows_get_the_labels_of_the_clusters_that_are_there(work):
    assert call(*THREE, "--out", "labels.csv", "--out", "clusters.npz").code == 0
    known = dict(table("labels.csv")[1:])
    answer = call("cluster", "run.zarr", "--clusters", "clusters.npz", "--data", "new.csv", "--out", "new-labels.csv")
    assert answer.code == 0 and "6 rows in 3 clusters" in answer.out, answer.err
    header, *rows = table("new-labels.csv")
    assert header == ["customer", "cluster"] and rows == [[name.replace("C", "N"), known[name]] for name in IDS[:6]]
    assert call("cluster", "run.zarr", "--k", "3", "--data", "new.csv", "--out", "own.csv").code == 0
    assert same_partition([label for _, label in table("own.csv")[1:]], KINDS[:6])


def test_without_a_column_of_ids_a_label_a_line(work):
    np.save("X.npy", np.array([row[2:] for row in table("new.csv")[1:]], float))
    assert call("cluster", "run.zarr", "--k", "2", "--data", "X.npy", "--out", "labels.csv").code == 0
    lines = Path("labels.csv").read_text().splitlines()
    assert len(lines) == 6 and set(lines) == {"0", "1"}


def test_a_fit_that_is_cut_short_is_written_and_ends_as_not_converged(work):
    np.savez("Y.npz", X=np.random.default_rng(0).normal(size=(500, 2)) * 3)
    words = (
        "cluster",
        "run.zarr",
        "--k",
        "30",
        "--n-init",
        "1",
        "--data",
        "Y.npz",
        "--max-iter",
        "1",
        "--out",
        "labels.npy",
    )
    answer = call(*words)
    assert answer.code == 3 and "raise --max-iter; the result is written" in answer.err and Path("labels.npy").exists()


BAD = {
    "no k": (("--out", "l.csv"), "--k, --clusters: how many clusters is not clear; wanted one of the two"),
    "both": (("--k", "3", "--clusters", "c.npz", "--out", "l.csv"), "--k, --clusters: how many clusters is not clear"),
    "k of 0": (("--k", "0", "--out", "l.csv"), "'--k': '0' is not an integer >= 1"),
    "k above n": (("--k", "46", "--out", "l.csv"), "--k: more clusters than rows; got 46; wanted at most 45"),
    "no out": (("--k", "3"), "Missing option '--out'"),
    "out is there": (("--k", "3", "--out", "pairs.csv"), "pairs.csv: exists already and is never overwritten"),
    "a kind of file": (("--k", "3", "--out", "l.txt"), "--out: not a kind of file to write; got '.txt'"),
    "out twice": (("--k", "3", "--out", "l.csv", "--out", "l.csv"), "--out: the same file twice"),
    "a picture": (("--k", "3", "--out", "l.csv", "--picture", "p.gif"), "p.gif: a picture of an unknown kind"),
    "data is gone": (("--k", "3", "--out", "l.csv", "--data", "none.csv"), "none.csv: no such file"),
    "other clusters": (("--clusters", "other.npz", "--out", "l.csv"), "other.npz: not a file of clusters; got X"),
    "a seed": (("--k", "3", "--out", "l.csv", "--seed", "5000000000"), "Invalid value for '--seed'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_nothing_is_written(case, work):
    words, said = BAD[case]
    np.savez("other.npz", X=np.ones((3, 3)))
    before = tree(work)
    answer = call("cluster", "run.zarr", *words)
    assert (answer.code, len(answer.err.splitlines())) == (2, 1) and said in answer.err, answer.err
    assert tree(work) == before


def test_what_is_wrong_is_said_before_what_a_fit_imports(work):
    said = refused_without(SLOW, "cluster", "run.zarr", "--k", "99", "--out", "l.npy", folder=work)
    assert "more clusters than rows" in said


def test_ids_are_of_the_file_that_was_learned_from(work, fitted, monkeypatch):
    """Without it rows would be labeled by number, or by the ids of others."""
    customers = fitted / "customers.csv"
    text = customers.read_text()
    try:
        customers.write_text(text.replace("C1000", "C1001"))
        answer = call(*THREE, "--out", "labels.csv")
        assert answer.code == 2 and "customers.csv: the rows have changed" in answer.err
        assert call(*THREE, "--out", "labels.npy").code == 0  # has no ids
    finally:
        customers.write_text(text)


def test_clusters_of_another_run_and_damaged_files_are_refused(work):
    assert call(*THREE, "--out", "clusters.npz").code == 0
    report = json.loads(Path("run.zarr/report.json").read_text())
    assert report
    other = call(*FIT[:-1], "other.zarr", "--seed", "1", "--gamma", "3")
    assert other.code == 0, other.err
    answer = call("cluster", "other.zarr", "--clusters", "clusters.npz", "--out", "l.csv")
    assert answer.code == 2 and "clusters of another run" in answer.err
    with np.load("clusters.npz") as held:
        arrays = dict(held)
    notes = json.loads(str(arrays["clusters"]))
    for number, change in enumerate(
        (
            {"labels": arrays["labels"] + 7},
            {"cluster_centers": arrays["cluster_centers"] * np.nan},
            {"ids": arrays["ids"][:3]},
            {"view_points": arrays["view_points"][:2]},
            {"clusters": np.array("{}")},
            {"clusters": np.array("[1")},
            {"clusters": np.array(json.dumps({**notes, "version": 9}))},
            {"clusters": np.array(json.dumps({**notes, "outcome": "better"}))},
            {"clusters": np.array(json.dumps({**notes, "settings": {**notes["settings"], "n_init": "many"}}))},
        )
    ):
        np.savez(f"damaged{number}.npz", **{**arrays, **change})
        answer = call("info", f"damaged{number}.npz")
        assert (answer.code, len(answer.err.splitlines())) == (2, 1), (change, answer)
        with pytest.raises(dkl.errors.InputError):
            dkl.load(f"damaged{number}.npz")
    Path("torn.npz").write_bytes(Path("clusters.npz").read_bytes()[:900])
    assert call("info", "torn.npz").code == 2


def test_transform_writes_ids_and_a_header(work):
    assert call("transform", "run.zarr", "--data", "new.csv", "--out", "rows.csv").code == 0
    assert call("transform", "run.zarr", "--data", "new.csv", "--out", "rows.npy").code == 0
    header, *rows = table("rows.csv")
    found = np.load("rows.npy")
    assert header == ["customer", *(f"c{k}" for k in range(found.shape[1]))]
    assert [row[0] for row in rows] == [name.replace("C", "N") for name in IDS[:6]]
    assert np.array_equal(np.array([row[1:] for row in rows], float), found)  # to the last bit
    np.save("X.npy", np.array([row[2:] for row in table("new.csv")[1:]], float))
    assert call("transform", "run.zarr", "--data", "X.npy", "--out", "plain.csv").code == 0
    assert np.array_equal(np.loadtxt("plain.csv", delimiter=","), found)


def test_predicted_labels_have_ids_and_compare_with_themselves(work):
    """Also those that a spreadsheet would run: what is written reads back as the same."""
    header, *rows = table("customers.csv")
    names = ["+plus", "=eq", "@at"]
    lines = [",".join([*row, names[kind]]) for row, kind in zip(rows, KINDS, strict=True)]
    Path("tiers.csv").write_text("\n".join([",".join([*header, "tier"]), *lines]) + "\n")
    chosen = (
        "--data",
        "tiers.csv",
        "--id-column",
        "customer",
        "--drop",
        "city",
        "--target-column",
        "tier",
        "--standardize",
    )
    assert call("fit", "svc", *chosen, "--out", "svc.zarr").code == 0
    answer = call("predict", "svc.zarr", "--data", "tiers.csv", "--out", "p.csv")
    assert answer.code == 0 and "accuracy 1," in answer.out and "takes 45 of these labels for formulas" in answer.err
    assert table("p.csv") == [["customer", "prediction"], *([IDS[i], names[KINDS[i]]] for i in range(N))]
    own = ("--targets", "p.csv", "--target-column", "prediction")
    answer = call("predict", "svc.zarr", "--data", "tiers.csv", *own, "--out", "q.csv")
    assert answer.code == 0 and "accuracy 1," in answer.out, answer.err
    assert call("predict", "svc.zarr", "--data", "tiers.csv", "--decision", "--out", "d.csv").code == 0
    assert table("d.csv")[0] == ["customer", *(f"decision_{name}" for name in sorted(names))]
