"""Data sets by name, and the synthetic ones."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.datasets import load_iris, load_wine

from dkl import dataset_sources
from dkl.datasets import PAPER_SETS, available, chessboard, double_spiral, load, two_gaussians
from dkl.errors import InputError

# By name.


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DKL_DATA", str(tmp_path))
    return tmp_path


def test_dense_set(folder: Path) -> None:
    X = np.array([[1.0, np.nan], [3.0, 4.0], [5.0, 6.0]])
    np.savez(folder / "glass.npz", X=X, y=[0, 2, 1], classes=["a", "b", "c"], feature_names=["Ri", "Na"])
    glass = load("glass")
    assert_array_equal(glass.X, X)
    assert_array_equal(glass.y, [0, 2, 1])
    assert_array_equal(glass.classes, ["a", "b", "c"])
    assert (glass.name, glass.n_classes, glass.feature_names, glass.X_test) == ("glass", 3, ("Ri", "Na"), None)
    assert "glass" in available()


def test_sparse_set_with_signs_for_labels(folder: Path) -> None:
    X = csr_array(np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
    np.savez(
        folder / "a1a.npz", data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=[1, -1],
        classes=["-1", "+1"],
    )  # fmt: skip
    a1a = load("a1a")
    assert isinstance(a1a.X, csr_array)
    assert_array_equal(a1a.X.toarray(), X.toarray())
    assert_array_equal(a1a.y, [1, 0])  # never -1, which means unlabeled
    assert_array_equal(a1a.classes[a1a.y], [1, -1])


def test_split_set_of_images(folder: Path) -> None:
    train, test = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.arange(8, dtype=np.uint8).reshape(2, 2, 2)
    np.savez(folder / "mnist.npz", X_train=train, y_train=[7, 3, 5], X_test=test, y_test=[3, 7])
    mnist = load("mnist")
    assert_array_equal(mnist.X, train.reshape(3, 4))
    assert_array_equal(mnist.X_test, test.reshape(2, 4))
    assert mnist.X.dtype == np.uint8
    assert_array_equal(mnist.classes[mnist.y], [7, 3, 5])
    assert_array_equal(mnist.classes[mnist.y_test], [3, 7])


def test_regression_set_with_a_variant(folder: Path) -> None:
    np.savez(
        folder / "abalone.npz", X=[[1.0]], X_onehot=[[1.0, 0.0, 0.0]], y=[9.0], feature_names=["sex"],
        feature_names_onehot=["M", "F", "I"],
    )  # fmt: skip
    assert (load("abalone").n_classes, load("abalone").X.shape) == (None, (1, 1))
    assert (load("abalone_onehot").X.shape, load("abalone_onehot").feature_names) == ((1, 3), ("M", "F", "I"))


def test_missing_and_unknown_sets(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"^wine: the data set is not here; got DKL_DATA=.*; set DKL_DATA .*wine.npz"):
        load("wine")
    for name in ("wein", "../wine", "glass_onehot_onehot", ""):
        with pytest.raises(InputError, match="unknown data set; got .*; wanted .*glass"):
            load(name)
    np.savez(folder / "wine.npz", X=[[1.0]])
    with pytest.raises(InputError, match="no labels in the file; got X"):
        load("wine")
    np.savez(folder / "wine.npz", y=[1])
    with pytest.raises(InputError, match="wine: no X in the file; got y"):
        load("wine")
    with pytest.raises(InputError, match="wine_onehot: no such variant"):
        load("wine_onehot")
    monkeypatch.delenv("DKL_DATA")
    with pytest.raises(InputError, match="got no DKL_DATA"):
        load("wine")


def test_damaged_sparse_set(folder: Path) -> None:
    parts = {"data": [1.0], "indices": [5], "indptr": [0, 1], "shape": [1, 3], "y": [0]}
    np.savez(folder / "a2a.npz", **parts)
    with pytest.raises(InputError, match="a2a: damaged CSR matrix"):
        load("a2a")


def test_bundled_sets() -> None:
    X, y = load_iris(return_X_y=True)
    iris = load("iris_sklearn")
    assert_array_equal(iris.X, X)
    assert_array_equal(iris.y, y)
    assert iris.n_classes == 3
    assert (load("digits").X.shape, load("digits").n_classes) == ((1797, 64), 10)
    assert (load("diabetes").X.shape, load("diabetes").n_classes) == ((442, 10), None)
    assert {"breast_cancer", "diabetes", "digits", "iris_sklearn", "wine_sklearn"} <= set(available())


# Patterns, features and classes as the papers' tables give them (wine: 13 features, as its source has, not 12).
SIZES = {
    "glass": (214, 9, 6),
    "heart": (270, 13, 2),
    "iris": (150, 4, 3),
    "protein": (116, 20, 6),
    "sonar": (208, 60, 2),
    "soybean_small": (47, 35, 4),
    "wine": (178, 13, 3),
    "a1a": (1605, 123, 2),
    "a6a": (11220, 123, 2),
    "ionosphere": (351, 34, 2),
    "usps": (7291, 256, 10),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_the_papers_sets(name: str, data: Callable[[str], dict[str, np.ndarray]]) -> None:
    data(name)  # skips where it is missing
    found = load(name)
    assert (*found.X.shape, found.n_classes) == SIZES[name]
    assert_array_equal(np.unique(found.y), np.arange(SIZES[name][2]))


# Synthetic sets.


def test_chessboard(rng: np.random.Generator) -> None:
    board = chessboard(4000, random_state=rng)
    squares = np.floor(board.X).astype(int)
    assert_array_equal(squares.sum(axis=1) % 2, board.y)
    assert np.bincount(board.y).tolist() == [2000, 2000]
    counts = np.bincount(squares @ [4, 1], minlength=16)
    assert len(counts) == 16
    # 250 a square expected, standard deviation 15; uniform within a square: mean 1/2, deviation 1/sqrt(12).
    assert np.all(abs(counts - 250) < 5 * 15.3)
    assert np.all(abs((board.X - squares).mean(axis=0) - 0.5) < 5 / np.sqrt(12 * 4000))
    assert chessboard(random_state=0).X.shape == (100, 2)
    assert chessboard(500, n_squares=3, random_state=0).X.max() < 3


def test_double_spiral(rng: np.random.Generator) -> None:
    spiral = double_spiral(1000, random_state=rng)
    assert spiral.X.shape == (1000, 3)
    radius = np.hypot(spiral.X[:, 0], spiral.X[:, 1])
    assert (radius.min() >= np.pi / 2) and (radius.max() <= 3.5 * np.pi)
    angle = np.arctan2(spiral.X[:, 1], spiral.X[:, 0])
    turned = (angle - radius - np.pi * spiral.y) / (2 * np.pi)  # on its arm, the angle is the radius, half a turn on
    assert np.allclose(turned, np.rint(turned), atol=1e-9)
    assert (spiral.X[:, 2].min() >= 0) and (spiral.X[:, 2].max() < 1)
    noisy = double_spiral(1000, 2, noise=0.5, random_state=1).X - double_spiral(1000, 2, random_state=1).X
    assert 0.45 < noisy.std() < 0.55


def test_two_gaussians(rng: np.random.Generator) -> None:
    n = 20_000
    sample = two_gaussians(n, random_state=rng)
    assert sample.X.shape == (n, 10)
    for label, mean in ((0, 1.0), (1, -1.0)):
        members = sample.X[sample.y == label]
        assert len(members) == n // 2
        assert np.all(abs(members.mean(axis=0) - mean) < 5 / np.sqrt(n // 2))
        assert np.all(abs(np.cov(members.T) - np.eye(10)) < 5 * np.sqrt(2 / (n // 2)))


@pytest.mark.parametrize("make", [chessboard, double_spiral, two_gaussians])
def test_generators_repeat_themselves(make: Callable[..., Any]) -> None:
    assert_array_equal(make(11, random_state=3).X, make(11, random_state=3).X)
    assert not np.array_equal(make(11, random_state=3).X, make(11, random_state=4).X)
    streams = [make(11, random_state=np.random.RandomState(5)).X for _ in range(2)]
    assert_array_equal(*streams)
    for n in (0, -1, 2.5):
        with pytest.raises(InputError, match="no patterns"):
            make(n)


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(InputError, match="no board"):
        chessboard(n_squares=1)
    with pytest.raises(InputError, match="a spiral needs a plane"):
        double_spiral(n_features=1)
    with pytest.raises(InputError, match="no features"):
        two_gaussians(5, 0)


def test_import_is_light() -> None:
    program = "import sys, dkl.datasets, dkl.side_information.pairs; print({'dask', 'distributed', 'zarr'} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


def test_values_of_the_papers_sets_are_checked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """wine is in scikit-learn too: its values have the digest that is written down, and one changed number has not."""
    X, y = load_wine(return_X_y=True)
    np.savez(folder / "wine.npz", X=X, y=y)
    dataset_sources.check(load("wine"))
    assert "178 x 13, 3 classes" in dataset_sources.description("wine")
    dataset_sources.write("wine", folder / "out.npz")
    with np.load(folder / "out.npz") as written:
        assert_array_equal(written["X"], X)
    X[5, 3] += 1e-9
    np.savez(folder / "wine.npz", X=X, y=y)
    with pytest.raises(InputError, match="wine: other values than the papers' set of this name; .*UCI"):
        dataset_sources.check(load("wine"))
    assert dataset_sources.SOURCES.keys() == {*PAPER_SETS, "abalone_onehot"}
    assert re.search(r"wine +178 +13 +3  yes", dataset_sources.contents())
