"""Arrays in files: each kind read back, and what is damaged, foreign or unsafe refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array, csr_matrix, save_npz
from sklearn.datasets import dump_svmlight_file

from dkl.datasets import read_array, read_labels
from dkl.errors import InputError

X = np.array([[1.5, 0.0, -2.0], [0.0, 3.0, 1e-300]])


def test_npy_is_mapped_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    found = read_array(tmp_path / "X.npy")
    assert isinstance(found, np.memmap)
    assert not found.flags.writeable
    assert_array_equal(found, X)


@pytest.mark.parametrize("start", [b"row,cluster\n1,2\n", b"\x93NUMPY\x01\x00", b"\x1f\x8b\x08"])
def test_another_kind_of_file_is_no_archive_and_nothing_unsafe_is_advised(start: bytes, tmp_path: Path) -> None:
    (tmp_path / "clusters.npz").write_bytes(start)
    with pytest.raises(InputError, match="not an .npz archive; got a file that starts with") as error:
        read_array(tmp_path / "clusters.npz")
    assert "pickle" not in str(error.value)


def test_npz_and_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "X.npz"
    np.savez(path, X=X, other=X[:1])
    assert_array_equal(read_array(path), X)
    assert_array_equal(read_array(str(path), key="other"), X[:1])
    with pytest.raises(InputError, match=r"no such array; got 'y'; wanted X, other"):
        read_array(path, key="y")
    np.savez(path, only=X)
    assert_array_equal(read_array(path), X)
    np.savez(path, a=X, b=X)
    with pytest.raises(InputError, match="no such array; got .X.; wanted a, b; save .* under the key X"):
        read_array(path)


def test_sparse_npz(tmp_path: Path) -> None:
    path, matrix = tmp_path / "X.npz", csr_array(X)
    save_npz(path, matrix)
    assert_array_equal(read_array(path).toarray(), X)
    np.savez(path, data=matrix.data, indices=matrix.indices, indptr=matrix.indptr, shape=matrix.shape, y=[0, 1])
    assert isinstance(read_array(path), csr_array)
    assert_array_equal(read_array(path).toarray(), X)
    assert_array_equal(read_array(path, key="y"), [0, 1])
    save_npz(path, csr_matrix(X).tocsc())
    with pytest.raises(InputError, match="not a CSR matrix; got b?'?csc"):
        read_array(path)


@pytest.mark.parametrize("header", ["", "a,b,c\n", "\ufeffa,b,c\n", "\ufeff"])
def test_csv(tmp_path: Path, header: str) -> None:
    path = tmp_path / "X.csv"
    path.write_text(header + "1.5,0, -2\n\n0,3,1e-300\n", encoding="utf-8")
    assert_array_equal(read_array(path), X)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n\n3,x\n", r"X.csv, line 4, column 2 \('b'\): not a number; got 'x'"),
        ("1,2\n3\n", "line 2: malformed line; got 1 cells"),
        ("1,x\n3,4\n", "line 1: numbers and text: names of columns, or a row\\?; got '1,x'.*--no-header"),
        ("a,b\n1,\n", r"line 2, column 2 \('b'\): a value is missing; got ''.*--drop b"),
        ("a,b\n1,2,3\n", "line 2: malformed line; got 3 cells"),
        ("a,b\n", "no rows in the file"),
        ("", "no rows in the file"),
    ],
)
def test_malformed_csv(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "X.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_array(tmp_path / "X.csv")


@pytest.mark.parametrize("suffix", [".svmlight", ".svm", ".libsvm"])
def test_svmlight(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"X{suffix}"
    dump_svmlight_file(X, [1, -1], str(path))
    assert isinstance(read_array(path), csr_array)
    assert_array_equal(read_array(path).toarray(), X)
    assert_array_equal(read_array(path, key="y"), [1, -1])


def torn(path: Path) -> None:
    np.savez(path, X=np.arange(1000.0))
    path.write_bytes(path.read_bytes()[:4000])


def flipped(path: Path) -> None:
    np.savez(path, X=np.arange(1000.0))
    content = bytearray(path.read_bytes())
    content[4000] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("absent.npy", lambda path: None, "absent.npy: no such file"),
        ("absent.npz", lambda path: None, "absent.npz: no such file"),
        ("absent.csv", lambda path: None, "absent.csv: no such file"),
        ("absent.svm", lambda path: None, "absent.svm: no such file"),
        ("X.parquet", lambda path: path.write_bytes(b""), "not a kind of file to read; got '.parquet'"),
        ("X.zarr", lambda path: path.mkdir(), "not a kind of file to read.*open_array"),
        ("folder.npy", lambda path: path.mkdir(), "cannot be read"),
        ("X.npy", lambda path: np.save(path, np.array([None])), "objects are never read"),
        ("X.npz", lambda path: np.savez(path, X=np.array([{}])), "objects are never read"),
        ("text.npz", lambda path: np.savez(path, X=np.array(["a"])), "not numbers; got dtype <U1"),
        ("text.npy", lambda path: np.save(path, np.array(["a"])), "not numbers"),
        ("empty.npy", lambda path: path.write_bytes(b""), "cannot be read"),
        ("empty.npz", lambda path: path.write_bytes(b""), "cannot be read"),
        ("torn.npz", torn, "torn.npz: the file cannot be read"),
        ("flipped.npz", flipped, "flipped.npz: the file cannot be read; got Bad CRC"),
        ("bytes.csv", lambda path: path.write_bytes(b"\xff\xfe1"), "cannot be read"),
        ("X.svm", lambda path: path.write_text("1 a:b\n"), "cannot be read"),
    ],
)
def test_refuses_files(tmp_path: Path, name: str, write: Callable[[Path], Any], message: str) -> None:
    write(tmp_path / name)
    with pytest.raises(InputError, match=message) as raised:
        read_array(tmp_path / name)
    assert "\n" not in str(raised.value)


def test_a_plain_array_by_the_name_of_an_archive(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    (tmp_path / "X.npy").rename(tmp_path / "X.npz")
    with pytest.raises(InputError, match="not an .npz archive"):
        read_array(tmp_path / "X.npz")


def test_a_key_where_there_are_none(tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(InputError, match="no keys in such a file; got 'X'"):
        read_array(tmp_path / "X.npy", key="X")


LABELS = {
    "integers": ("1\n-1\n+1\n", [1, -1, 1]),
    "names": ("red\n blue \nred\n", ["red", "blue", "red"]),
    "a header": ("color\n1\n0\n1\n", [1, 0, 1]),
    "a header of names": ("color\nred\nblue\nred\n", ["red", "blue", "red"]),
    "quoted": ('"a, b"\n"say ""c"""\nd\n', ["a, b", 'say "c"', "d"]),
    "leading zeros are names": ("007\n7\n1\n", ["007", "7", "1"]),
    "whole numbers": ("1.0\n-1.\n1\n", [1, -1, 1]),
    "whole numbers and a gap": ("1.0\nNA\n-1.0\n", ["1", "NA", "-1"]),
    "fractions": ("1.0\n2.5\n1\n", ["1.0", "2.5", "1"]),
    "beyond 64 bits": ("99999999999999999999\n1\n2\n", ["99999999999999999999", "1", "2"]),
    "a mark and Windows' ends": ("\ufeffred\r\nblue\r\nred\r\n", ["red", "blue", "red"]),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_in_csv(case: str, tmp_path: Path) -> None:
    text, wanted = LABELS[case]
    (tmp_path / "y.csv").write_text(text, encoding="utf-8", newline="")
    found = read_labels(tmp_path / "y.csv", 3)
    assert_array_equal(found, np.array(wanted))
    assert found.dtype.kind == np.array(wanted).dtype.kind


def test_labels_in_arrays(tmp_path: Path) -> None:
    names = np.array(["red", "blue"])
    np.save(tmp_path / "y.npy", names)
    np.savez(tmp_path / "y.npz", X=X, y=names)
    np.savez(tmp_path / "only.npz", labels=names[:, None])
    dump_svmlight_file(X, [3, 4], str(tmp_path / "y.svmlight"))
    for name, wanted in (("y.npy", names), ("y.npz", names), ("only.npz", names), ("y.svmlight", [3, 4])):
        assert_array_equal(read_labels(tmp_path / name, 2), wanted)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("y.npy", np.array(["red", None], object), "never read"),
        ("y.npy", np.array([1j, 2j]), "not labels; got dtype complex"),
        ("y.npy", np.array([b"red", b"blue"]), "not labels"),
        ("y.npy", np.arange(3), r"not labels of these rows; got shape \(3,\); wanted \(2,\)"),
        ("y.npy", np.zeros((2, 2), int), "not labels of these rows"),
        ("y.npz", {"a": np.arange(2), "b": np.arange(2)}, "no such array"),
        ("y.csv", "red,blue\nred,blue\n", "line 1: malformed line"),
        ("y.csv", "", "not labels of these rows"),
        ("y.txt", "red\nblue\n", "not a kind of file"),
    ],
)
def test_what_is_no_label(name: str, content: Any, match: str, tmp_path: Path) -> None:
    if isinstance(content, str):
        (tmp_path / name).write_text(content)
    elif isinstance(content, dict):
        np.savez(tmp_path / name, **content)
    else:
        np.save(tmp_path / name, content, allow_pickle=True)
    with pytest.raises(InputError, match=match):
        read_labels(tmp_path / name, 2)
