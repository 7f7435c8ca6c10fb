"""Data to learn from: the papers' sets by name, their synthetic ones, and arrays in files.

The papers' sets are read from the folder that the environment variable DKL_DATA names, a file NAME.npz each:
X (n, d) and y (n,), or X_train, y_train, X_test, y_test, or the parts data, indices, indptr, shape of a CSR matrix
and y; optionally classes and feature_names. scikit-learn's bundled sets need no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dkl.errors import InputError
from dkl.io.array_files import csr_from_parts, read_npz
from dkl.io.array_files import read_array as read_array  # public here
from dkl.io.array_files import read_labels as read_labels
from dkl.io.reading import TableOptions as TableOptions
from dkl.io.tables import Table as Table
from dkl.io.tables import read_table as read_table

PAPER_SETS = (
    *("a1a", "a2a", "a3a", "a4a", "a5a", "a6a", "abalone", "boston_housing", "breast_w", "bupa", "glass", "heart"),
    *("hill_valley_with_noise", "hill_valley_without_noise", "ionosphere", "iris", "mnist", "pima", "protein"),
    *("sonar", "soybean_small", "spambase", "usps", "wine"),
)
_BUNDLED = {
    "breast_cancer": "load_breast_cancer",
    "diabetes": "load_diabetes",
    "digits": "load_digits",
    "iris_sklearn": "load_iris",
    "wine_sklearn": "load_wine",
}


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set: raw values, rows in the order of the source.

    X : (n, d) array or csr_array. y : (n,) class numbers from 0, or float64 targets.
    classes : (n_classes,) what the class numbers mean; None for a regression set.
    X_test, y_test : the fixed test part, for the sets that come with one.
    """

    name: str
    X: Any
    y: npt.NDArray[Any]
    classes: npt.NDArray[Any] | None = None
    feature_names: tuple[str, ...] | None = None
    X_test: Any = None
    y_test: npt.NDArray[Any] | None = None

    @property
    def n_classes(self) -> int | None:
        """Return the number of classes; None for a regression set."""
        return None if self.classes is None else len(self.classes)


def available() -> tuple[str, ...]:
    """Return the names that `load` can load: scikit-learn's bundled sets and files in DKL_DATA."""
    folder = os.environ.get("DKL_DATA")
    found = {file.stem for file in Path(folder).glob("*.npz")} if folder else set()
    return tuple(sorted(found | _BUNDLED.keys()))


def load(name: str) -> Dataset:
    """Load the data set `name`; "abalone_onehot" is abalone with the sex in three columns.

    Class numbers run from 0 whatever the source wrote (-1 and +1 in a1a to a6a: -1 would read as unlabeled).
    Images are flattened to rows and keep their type (uint8 in mnist); missing values stay NaN (breast_w).

    Errors: `InputError` for an unknown name, and for a missing file with how to get it.
    """
    if not isinstance(name, str):
        raise InputError("not a name", where="name", got=repr(name), wanted="a string, see dkl.datasets.available()")
    if name in _BUNDLED:
        return _load_bundled(name)
    arrays = read_npz(_find(name.removesuffix("_onehot")))
    if name.endswith("_onehot"):
        if "X_onehot" not in arrays:
            raise InputError("no such variant", where=name, got=", ".join(arrays), wanted="X_onehot")
        arrays = arrays | {"X": arrays["X_onehot"], "feature_names": arrays["feature_names_onehot"]}
    y, y_test = arrays.get("y_train", arrays.get("y")), arrays.get("y_test")
    if y is None:
        raise InputError("no labels in the file", where=name, got=", ".join(arrays), wanted="y or y_train")
    classes = None
    # Floats are targets of a regression, all else are classes.
    if y.dtype.kind != "f":
        labels, y = np.unique(y, return_inverse=True)
        y_test = None if y_test is None else np.searchsorted(labels, y_test)
        numbered = np.array_equal(labels, np.arange(len(labels)))
        # Names in the file go with numbers from 0; other labels are their own names.
        classes = arrays.get("classes", labels) if numbered else labels
    features = arrays.get("feature_names")
    return Dataset(
        name,
        _matrix(arrays, name),
        y,
        classes=classes,
        feature_names=None if features is None else tuple(map(str, features)),
        X_test=_flat(arrays["X_test"]) if "X_test" in arrays else None,
        y_test=y_test,
    )


def _load_bundled(name: str) -> Dataset:
    """Load a set that scikit-learn bundles."""
    from sklearn import datasets

    bunch = getattr(datasets, _BUNDLED[name])()
    classes = bunch.get("target_names")
    return Dataset(
        name, bunch.data, bunch.target, classes=None if classes is None else np.asarray(classes),
        feature_names=tuple(map(str, bunch.feature_names)),
    )  # fmt: skip


def _find(name: str) -> Path:
    """Return the .npz file of a set; raise InputError for an unknown name or a missing file.

    The error of a missing file says how to get it.
    """
    folder = os.environ.get("DKL_DATA")
    if name not in PAPER_SETS and name not in available():
        raise InputError("unknown data set", where="name", got=repr(name), wanted=", ".join((*_BUNDLED, *PAPER_SETS)))
    path = Path(folder or ".", f"{name}.npz")
    if not folder or not path.is_file():
        got = f"DKL_DATA={folder}" if folder else "no DKL_DATA"
        remedy = f"set DKL_DATA to a folder with {name}.npz (X, y; see dkl.datasets), made from the set's public source"
        raise InputError("the data set is not here", where=name, got=got, remedy=remedy)
    return path


def _matrix(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Any:
    """Return X of a set: dense, the training part of a split one, or sparse."""
    dense = arrays.get("X", arrays.get("X_train"))
    return csr_from_parts(arrays, name) if dense is None else _flat(dense)


def _flat(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return X as (n, d): images become rows."""
    return X.reshape(len(X), -1) if X.ndim > 2 else X


def generator(random_state: Any) -> np.random.Generator:
    """Return NumPy's Generator from None, an integer, a Generator or a RandomState (scikit-learn's).

    A Generator is returned itself; from a RandomState 128 bits are drawn. Errors: `InputError` for anything else.
    """
    if isinstance(random_state, np.random.RandomState):
        # 128 bits, as NumPy's SeedSequence takes by itself: two RandomStates give the same stream by no chance.
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint32))
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError) as error:
        wanted = "None, an integer >= 0, a Generator or a RandomState"
        raise InputError("not a seed", where="random_state", got=repr(random_state), wanted=wanted) from error


def chessboard(n: int = 100, *, n_squares: int = 4, random_state: Any = None) -> Dataset:
    """Draw two classes on the black and white squares of a square board, uniform in them; (n, 2).

    A side of a square is 1. The classes alternate, so their sizes differ by at most one.
    Source: the set of admm_hu_kwok_2013, table 1 (n = 100), which does not print its recipe; this one is ours.
    """
    rng, y = _start(n, random_state)
    _check_count("n_squares", n_squares, 2, "no board")
    corners = np.indices((n_squares, n_squares)).reshape(2, -1).T
    color = corners.sum(axis=1) % 2
    X = rng.random((n, 2))
    for label in (0, 1):
        squares, members = corners[color == label], y == label
        X[members] += squares[rng.integers(len(squares), size=np.count_nonzero(members))]
    return Dataset("chessboard", X, y, classes=np.arange(2))


def double_spiral(
    n: int = 100, n_features: int = 3, *, turns: float = 1.5, noise: float = 0.0, random_state: Any = None
) -> Dataset:
    """Draw two classes on two interleaved spirals; (n, n_features).

    Arm k is t (cos(t + k pi), sin(t + k pi)), t uniform in [pi / 2, pi / 2 + 2 pi turns]; the arms lie pi apart.
    Further features are uniform in [0, 1), as the height of a swiss roll; `noise` is the standard deviation of
    normal noise on the plane. Source: admm_hu_kwok_2013, table 1 (n = 100, 3 features), recipe ours.
    """
    rng, y = _start(n, random_state)
    _check_count("n_features", n_features, 2, "a spiral needs a plane")
    for name, value in (("turns", turns), ("noise", noise)):
        if not isinstance(value, Real) or not 0 <= value < np.inf:
            raise InputError("not such a number", where=name, got=repr(value), wanted="a finite number >= 0")
    t = np.pi / 2 + 2 * np.pi * turns * rng.random(n)
    plane = t[:, None] * np.stack([np.cos(t + np.pi * y), np.sin(t + np.pi * y)], axis=1)
    plane += noise * rng.standard_normal((n, 2))
    return Dataset("double_spiral", np.hstack([plane, rng.random((n, n_features - 2))]), y, classes=np.arange(2))


def two_gaussians(n: int, n_features: int = 10, *, random_state: Any = None) -> Dataset:
    """Draw class 0 from N(+1, I) and class 1 from N(-1, I), alternating; (n, n_features).

    Source: admm_hu_kwok_2013, section 4.2.
    """
    rng, y = _start(n, random_state)
    _check_count("n_features", n_features, 1, "no features")
    X = rng.standard_normal((n, n_features)) + (1.0 - 2.0 * y)[:, None]
    return Dataset("two_gaussians", X, y, classes=np.arange(2))


def _start(n: int, random_state: Any) -> tuple[np.random.Generator, npt.NDArray[np.int64]]:
    """Return the generator and the labels (n,): 0 and 1 in turn."""
    _check_count("n", n, 1, "no patterns")
    return generator(random_state), np.arange(n) % 2


def _check_count(name: str, value: Any, least: int, what: str) -> None:
    """Raise InputError for anything but an integer of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        raise InputError(what, where=name, got=repr(value), wanted=f"an integer >= {least}")
