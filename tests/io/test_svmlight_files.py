"""Files of svmlight's format: with and without a suffix, packed, with fewer and more features than a model."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from command_line import call
from sklearn.datasets import dump_svmlight_file

from dkl.datasets import read_array, read_labels
from dkl.errors import InputError
from dkl.io.array_files import is_svmlight


@pytest.fixture
def rows(rng):
    X = np.round(rng.standard_normal((40, 5)), 3) * (rng.random((40, 5)) < 0.7)
    X[0, 4] = 1.0
    return X, np.where(X[:, 0] > 0, 1, -1)


def dumped(rows, path, packed=False):
    """Write rows and labels, numbered from 1 as LIBSVM's files are."""
    dump_svmlight_file(*rows, str(path), zero_based=False)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("name", "packed"), [("a9a", False), ("a9a.t", False), ("x.svm", False), ("x.svm.gz", True), ("news.gz", True)]
)
def test_files_are_known_by_their_suffix_or_their_first_line(name, packed, rows, tmp_path):
    path = dumped(rows, tmp_path / name, packed)
    assert is_svmlight(path)
    assert np.array_equal(read_array(path).toarray(), rows[0])
    assert np.array_equal(read_labels(path, 40), rows[1])


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("# a comment\n\n1 1:0.5 3:-2e-3 # the rest\n", True), ("+1 qid:3 2:1\n", True), ("1,3 7:1\n", True), ("-1.5 12:.5\n", True),
        ("1\n1 2:1\n", False), ("a 1:2\n", False), ("12:30 1:2\n", False), ("1 2 3\n", False), ("", False), ("1 x:2\n", False),
    ],
)  # fmt: skip
def test_a_first_line_of_a_label_and_numbered_values(text, known, tmp_path):
    (tmp_path / "file").write_text(text)
    assert is_svmlight(tmp_path / "file") == known
    assert not is_svmlight(tmp_path) and not is_svmlight(tmp_path / "none")


def test_features_that_a_file_does_not_name_are_0(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = rows
    dumped(rows, Path("train"))
    assert call("fit", "svc", "--data", "train", "--out", "run.zarr").code == 0
    fewer = np.where(np.arange(5) < 3, X, 0.0)
    dumped((fewer[:, :3], y), Path("fewer"))
    np.save("fewer.npy", fewer)
    for name in ("fewer", "fewer.npy"):
        answer = call("predict", "run.zarr", "--data", name, "--out", f"{name}.csv")
        assert answer.code == 0, answer.err
    assert Path("fewer.csv").read_bytes() == Path("fewer.npy.csv").read_bytes()
    assert read_array("fewer", n_features=5).shape == (40, 5)
    dumped((np.hstack([X, X]), y), Path("more"))
    answer = call("predict", "run.zarr", "--data", "more", "--out", "more.csv")
    assert answer.code == 2 and "features 6 to 10 were in no row that was learned from" in answer.err
    assert len(answer.err.splitlines()) == 1 and not Path("more.csv").exists()
    with pytest.raises(InputError, match="another number of features; got 10; wanted 5"):
        read_array("more", n_features=5)
