"""Sources of the papers' data sets: sizes, where each comes from, and the digest of its values.

The digest is of what `dkl.datasets.load` returns, so that a file made from the set's public source by other means has the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkl.errors import InputError

if TYPE_CHECKING:
    from dkl.datasets import Dataset


@dataclass(frozen=True)
class DataOrigin:
    """Facts of a data set: rows (with the test part), columns, classes (None: targets), origin, digest of its values."""

    rows: int
    columns: int
    classes: int | None
    origin: str
    sha256: str


LICENSES = (
    "The licenses of the copies that were used are mostly not stated; UCI is understood to publish under CC BY 4.0: "
    "check it for each set before "
    "you pass it on."
)
UCI = "UCI Machine Learning Repository"
LIBSVM = "LIBSVM data page (adult)"
SOURCES: dict[str, DataOrigin] = {
    "a1a": DataOrigin(1605, 123, 2, LIBSVM, "8150933a6e4e841dffed9e9a1cd37d242e6b332e44d6f53424e0b60297fba312"),
    "a2a": DataOrigin(2265, 123, 2, LIBSVM, "b36f919cea9a28776bdee51b5c4b63a5dfc962af7108d40de96a82b240120472"),
    "a3a": DataOrigin(3185, 123, 2, LIBSVM, "7a9bda17ed342dca65381ab8734b449b3c21e3d958b7c2972325c0009a353552"),
    "a4a": DataOrigin(4781, 123, 2, LIBSVM, "6f403e427036f88253435bb9255072b7345228289ce3fa1e3de9f64c0e30989e"),
    "a5a": DataOrigin(6414, 123, 2, LIBSVM, "5658c5d69688e3a59e5367b8a740625cf445adad6971aec2d34cba147442e180"),
    "a6a": DataOrigin(11220, 123, 2, LIBSVM, "a7297e809e6ca92036a047eb66fa7e54e2d6977d113e859821c812476e595be0"),
    "abalone": DataOrigin(
        4177, 8, None, f"{UCI}, Abalone", "a68bb7b7eee7f84f336c2b1cef74fc30970c7152dd43047618d89c7084dd5d02"
    ),
    "abalone_onehot": DataOrigin(
        4177,
        10,
        None,
        f"{UCI}, Abalone, the sex in three columns",
        "5ce8ff68371df624e16d95900c525941d447d999ab82bdd177a5bf9a91ad0954",
    ),
    "boston_housing": DataOrigin(
        506, 13, None, "StatLib, housing.data", "2adc74c491360cd532208d23c57be76bcbd0368ae43991c09804c71cfddb6bd5"
    ),
    "breast_w": DataOrigin(
        699,
        9,
        2,
        f"{UCI}, Breast Cancer Wisconsin (Original)",
        "472127b1bea5975de0c5d300eee1afac6d3ccc082399fb770afff097032bd2f9",
    ),
    "bupa": DataOrigin(
        345, 6, 2, f"{UCI}, Liver Disorders", "c1fe60be07be3ca359468724f568992f2860cffccfcb6a3dff4cc5a78bcfc02a"
    ),
    "glass": DataOrigin(214, 9, 6, f"{UCI}, Glass", "151d1f62360b74e1d1be5bdb74356dfe4c9d84821e3f741eebef961bad185906"),
    "heart": DataOrigin(
        270, 13, 2, f"{UCI}, Statlog (Heart)", "f3012bdc83823929a88baa92431b60aa5aaead8628a289ceec9fe8754dd34fe0"
    ),
    "hill_valley_with_noise": DataOrigin(
        1212,
        100,
        2,
        f"{UCI}, Hill-Valley, with noise",
        "5c19e8be3aab915af871a63c0b3adeab7a2e312afa7a0a6e56e0224bf1f64fcc",
    ),
    "hill_valley_without_noise": DataOrigin(
        1212,
        100,
        2,
        f"{UCI}, Hill-Valley, without noise",
        "4b83eb7d51a8c3c14b4c0b4672ce78ecd8cab6f4966a8392c94e819276461d26",
    ),
    "ionosphere": DataOrigin(
        351, 34, 2, f"{UCI}, Ionosphere", "3af9b141ce806e273d1ca75dcd0179efc7182be69d305760077c1f988f9e8ecd"
    ),
    "iris": DataOrigin(150, 4, 3, f"{UCI}, Iris", "b9cf5a4bc0f2874f69c02a7bccfbac262141fce348f340e9867e4a4ea571de85"),
    "mnist": DataOrigin(
        70000,
        784,
        10,
        "MNIST, LeCun, Cortes and Burges",
        "9c00a61ea759301abc93b972009b6d441802b548fd5acbcfab12ee0b81229012",
    ),
    "pima": DataOrigin(
        768, 8, 2, f"{UCI}, Pima Indians Diabetes", "e39c0661375a3d76535c10815044ab9db884252f81d04dae46d75386504eee66"
    ),
    "protein": DataOrigin(
        116, 20, 6, "Xing et al. 2002", "cf1f3c2fc003db5c09e6950a0c8eee0a6555b5065e6af197d82a4e781bdc2c12"
    ),
    "sonar": DataOrigin(
        208,
        60,
        2,
        f"{UCI}, Connectionist Bench (Sonar)",
        "7837fb7490fc16f2c3c206ec30503aca3141cc4d2a854be49927e233e0c2b241",
    ),
    "soybean_small": DataOrigin(
        47, 35, 4, f"{UCI}, Soybean (Small)", "6487ca8bdf8b02abb3f12cd750b0b6a374b9aa2b8e61686db6a4b2e74e0643ce"
    ),
    "spambase": DataOrigin(
        4601, 57, 2, f"{UCI}, Spambase", "9b9b446d82ce893e16b1c594186c37011b8121039cf2bd414320c7085dc7ddeb"
    ),
    "usps": DataOrigin(
        9298,
        256,
        10,
        "Elements of Statistical Learning, zip.train and zip.test",
        "58f943a50bfff81ff903d47a048184ed35fe77c8a6a9df3d626bf220ead8edde",
    ),
    "wine": DataOrigin(178, 13, 3, f"{UCI}, Wine", "049274fae543b5d5bc9b99bcb7b300bae779a76948b5efd2e93a42408206392a"),
}


def digest(data: Dataset) -> str:
    """Return the SHA-256 digest, in hexadecimal, of the values and shapes of a set: X, y and the test part, as little-endian floats."""
    found = hashlib.sha256()
    for part in (data.X, data.y, data.X_test, data.y_test):
        if part is None:
            continue
        rows = np.asarray(part) if isinstance(part, np.ndarray) else part.toarray()
        # The shape too: the same numbers in another shape are another set.
        found.update(repr(rows.shape).encode())
        for start in range(0, len(rows), 4096):  # of MNIST, all rows as floats are 440 MB
            found.update(np.ascontiguousarray(rows[start : start + 4096], dtype="<f8").tobytes())
    return found.hexdigest()


def check(data: Dataset) -> None:
    """Raise InputError where a set of the papers has other values than theirs; other sets pass."""
    source = SOURCES.get(data.name)
    if source is not None and digest(data) != source.sha256:
        raise InputError(
            "other values than the papers' set of this name", where=data.name, got=f"{_shape(data.X)}", wanted=f"SHA-256 {source.sha256}",
            remedy=f"make {data.name}.npz from {source.origin}, or give your own file another name",
        )  # fmt: skip


def _shape(X: Any) -> str:
    return " x ".join(map(str, X.shape))


def contents() -> str:
    """List the sets that can be loaded or are in the papers: size, classes, whether each is here, its origin."""
    from dkl.datasets import available

    here = available()
    lines = [f"{'name':<27}{'rows':>7}{'columns':>9}{'classes':>9}  {'here':<6}origin"]
    for name, one in SOURCES.items():
        is_here = "yes" if name.removesuffix("_onehot") in here else "no"
        lines.append(f"{name:<27}{one.rows:>7}{one.columns:>9}{one.classes or '-':>9}  {is_here:<6}{one.origin}")
    others = ", ".join(name for name in here if name not in SOURCES)
    return "\n".join([*lines, "", f"Also here, from scikit-learn or DKL_DATA: {others}.", LICENSES])


def description(name: str) -> str:
    """Load a set, check its values, and describe it. Raises InputError where it is missing or has other values."""
    from dkl.datasets import load

    data = load(name)
    check(data)
    tested = "" if data.X_test is None else f", {len(data.X_test)} rows more for tests"
    lines = [
        f"{name}: {_shape(data.X)}{tested}, {data.n_classes or 'no'} classes",
        f"SHA-256 of its values: {digest(data)}",
    ]
    if name in SOURCES:
        lines += [f"as in the papers; from {SOURCES[name].origin}", LICENSES]
    return "\n".join(lines)


def write(name: str, path: Path) -> None:
    """Write X and y of a set, the test part behind the training part, to a new .npz file."""
    from dkl.datasets import load

    data = load(name)
    parts: list[Any] = [part for part in (data.X, data.X_test) if part is not None]
    dense = [part if isinstance(part, np.ndarray) else part.toarray() for part in parts]
    labels = [part for part in (data.y, data.y_test) if part is not None]
    # An open file, as np.savez would add .npz to a name without it; "x", so that nothing is overwritten.
    with path.open("xb") as file:
        np.savez(file, X=np.concatenate(dense), y=np.concatenate(labels))
