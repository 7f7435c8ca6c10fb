"""Sets of `answers.py`: what scikit-learn brings, what Debian's r-cran-mlbench holds, and what is generated here.

Columns: categories become columns of 0 and 1 (one for two values), ordered ones the number of their level; a missing value becomes the
median of its column, or the most frequent category. More rows than asked for are sampled, by class. Classes of fewer than 8 rows in the
sample are left out.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.model_selection import train_test_split

MLBENCH = "/usr/lib/R/site-library/mlbench"
HOW_TO_GET_MLBENCH = (
    "apt-get download r-cran-mlbench && dpkg -x r-cran-mlbench_*.deb mlbench  # and: pip install rdata; "
    "then --mlbench mlbench/usr/lib/R/site-library/mlbench"
)
MIN_CLASS_ROWS = 8


@dataclass(frozen=True)
class Table:
    """Rows, and a class number or a target a row. numeric: columns to standardize; none where all have one unit."""

    X: Any
    y: Any
    numeric: Any


OUTCOMES = {
    "BreastCancer": "Class", "DNA": "Class", "Glass": "Type", "HouseVotes84": "Class", "Ionosphere": "Class",
    "LetterRecognition": "lettr", "PimaIndiansDiabetes": "diabetes", "Satellite": "classes", "Shuttle": "Class",
    "Sonar": "Class", "Soybean": "Class", "Vehicle": "Class", "Vowel": "Class", "Zoo": "type",
    "BostonHousing": "medv", "Ozone": "V4", "Servo": "Class",
}  # fmt: skip
"""Column of the class or target, by set of mlbench."""
NO_COLUMNS = {"BreastCancer": ["Id"], "Vowel": ["V1"], "Ozone": ["V2"]}
"""Columns left out: numbers of a sample, a speaker, a day of the month."""


def mlbench(name: str, folder: Path) -> Table:
    """Read one set of mlbench."""
    import pandas
    import rdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = rdata.read_rda(folder / "data" / f"{name}.rda")[name]
    outcome = OUTCOMES[name]
    frame = frame[frame[outcome].notna()].drop(columns=NO_COLUMNS.get(name, []))
    labels = frame[outcome]
    y = np.asarray(labels, float) if name in TARGETS else np.unique(labels.astype(str), return_inverse=True)[1]
    columns, numeric = [], []
    for column in frame.columns.drop(outcome):
        values = frame[column]
        if isinstance(values.dtype, pandas.CategoricalDtype) and not values.dtype.ordered:
            values = values.fillna(values.mode()[0])
            levels = sorted(values.unique())
            shown = [np.asarray(values == level, float) for level in (levels if len(levels) > 2 else levels[1:])]
        else:
            if isinstance(values.dtype, pandas.CategoricalDtype):
                values = values.cat.codes.astype(float).replace(-1.0, np.nan)
            number = np.asarray(values.astype(float), float)
            shown = [np.where(np.isnan(number), np.nanmedian(number), number)]
        columns += shown
        numeric += [len(np.unique(one)) > 2 for one in shown]
    return Table(np.stack(columns, axis=1), y, np.array(numeric))


def bundled(load: Callable[..., Any], one_unit: bool = False) -> Callable[[int, Any], Table]:
    """Return a maker of a set that scikit-learn brings."""

    def make(rows: int, rng: Any) -> Table:
        X, y = load(return_X_y=True)
        return Table(np.asarray(X, float), y, np.full(X.shape[1], not one_unit))

    return make


def friedman(load: Callable[..., Any]) -> Callable[[int, Any], Table]:
    """Return a maker of one of Friedman's functions with noise of a tenth of its deviation."""

    def make(rows: int, rng: Any) -> Table:
        X, y = load(n_samples=rows, random_state=int(rng.integers(2**31)))
        return Table(X, y + 0.1 * y.std() * rng.standard_normal(rows), np.full(X.shape[1], True))

    return make


def generated(make_rows: Callable[[int, Any], tuple[Any, Any]]) -> Callable[[int, Any], Table]:
    """Return a maker of a generated set; its columns have one unit, and are left as they are."""

    def make(rows: int, rng: Any) -> Table:
        X, y = make_rows(rows, rng)
        return Table(X, y, np.full(X.shape[1], False))

    return make


def seed_of(rng: Any) -> int:
    """Return a seed for scikit-learn."""
    return int(rng.integers(2**31))


def blobs(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return 6 normal clusters in 10 columns."""
    X, y = datasets.make_blobs(rows, 10, centers=6, cluster_std=3.0, center_box=(-5, 5), random_state=seed_of(rng))
    return X, y


def stretched(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return 4 normal clusters in 6 columns under one linear map of condition 10."""
    X, y = datasets.make_blobs(rows, 6, centers=4, cluster_std=1.0, center_box=(-3, 3), random_state=seed_of(rng))
    rotation, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    return X @ (rotation * np.geomspace(0.3, 3.0, 6)), y


def heavy_tails(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return 4 clusters in 8 columns whose noise is Student's t of 2 degrees of freedom."""
    y = np.arange(rows) % 4
    return 3.0 * rng.standard_normal((4, 8))[y] + rng.standard_t(2.0, (rows, 8)), y


def duplicates(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return 5 normal clusters in 5 columns; half the rows are copies of a tenth of the rows, 5 each on average."""
    X, y = datasets.make_blobs(rows, 5, centers=5, cluster_std=2.0, center_box=(-5, 5), random_state=seed_of(rng))
    order = rng.permutation(rows)
    copies, originals = order[: rows // 2], order[rows // 2 : rows // 2 + rows // 10]
    source = rng.choice(originals, len(copies))
    X[copies], y[copies] = X[source], y[source]
    return X, y


def swiss_roll(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return a rolled sheet with 4 classes along the roll."""
    X, t = datasets.make_swiss_roll(rows, noise=0.3, random_state=seed_of(rng))
    return X, np.searchsorted(np.quantile(t, (0.25, 0.5, 0.75)), t)


def roll_length(rows: int, rng: Any) -> tuple[Any, Any]:
    """Return a rolled sheet with the position along the roll as target."""
    return datasets.make_swiss_roll(rows, noise=0.3, random_state=seed_of(rng))


MAKERS: dict[str, Callable[[int, Any], Table]] = {
    "iris": bundled(datasets.load_iris),
    "wine": bundled(datasets.load_wine),
    "breast_cancer": bundled(datasets.load_breast_cancer),
    "digits": bundled(datasets.load_digits, one_unit=True),
    "moons": generated(lambda n, rng: datasets.make_moons(n, noise=0.1, random_state=seed_of(rng))),
    "circles": generated(lambda n, rng: datasets.make_circles(n, noise=0.07, factor=0.5, random_state=seed_of(rng))),
    "blobs": generated(blobs),
    "stretched": generated(stretched),
    "heavy_tails": generated(heavy_tails),
    "duplicates": generated(duplicates),
    "swiss_roll": generated(swiss_roll),
    "diabetes": bundled(datasets.load_diabetes),
    "friedman1": friedman(datasets.make_friedman1),
    "friedman2": friedman(datasets.make_friedman2),
    "friedman3": friedman(datasets.make_friedman3),
    "roll_length": generated(roll_length),
}
TARGETS = ("diabetes", "friedman1", "friedman2", "friedman3", "roll_length", "BostonHousing", "Ozone", "Servo")
"""Sets with a number to predict; the others have classes."""
NAMES = (*MAKERS, *OUTCOMES)


def load(name: str, rows: int, seed: int, folder: Path) -> Table:
    """Return at most `rows` rows of a set; the sample and what is generated depend on `seed`."""
    rng = np.random.default_rng([seed, sum(map(ord, name))])
    table = MAKERS[name](rows, rng) if name in MAKERS else mlbench(name, folder)
    kept = np.arange(len(table.y))
    if len(kept) > rows:
        kept = np.sort(rng.permutation(len(kept))[:rows]) if name in TARGETS else by_class(table.y, rows, rng)
    X, y = table.X[kept], table.y[kept]
    if name not in TARGETS:
        codes, counts = np.unique(y, return_counts=True)
        large = np.isin(y, codes[counts >= MIN_CLASS_ROWS])
        X, y = X[large], np.unique(y[large], return_inverse=True)[1]
    return Table(X, y, table.numeric)


def by_class(y: Any, rows: int, rng: Any) -> Any:
    """Return a sample of row numbers with each class in its share of all."""
    order = rng.permutation(len(y))
    ranks = np.empty(len(y))
    for code in np.unique(y):
        mine = order[y[order] == code]
        ranks[mine] = (np.arange(len(mine)) + 0.5) / len(mine)
    return np.sort(np.argsort(ranks, kind="stable")[:rows])


def missing(names: list[str], folder: Path) -> str | None:
    """Return how to get what the sets of these names need and is not here; None if nothing is missing."""
    wanted = [name for name in names if name in OUTCOMES]
    try:
        import rdata  # noqa: F401
    except ImportError:
        return f"sets {', '.join(wanted)} are left out: {HOW_TO_GET_MLBENCH}" if wanted else None
    lacking = [name for name in wanted if not (folder / "data" / f"{name}.rda").is_file()]
    return f"sets {', '.join(lacking)} are left out: {HOW_TO_GET_MLBENCH}" if lacking else None


def split(table: Table, columns: str, seed: int, classes: bool) -> tuple[Any, Any, Any, Any]:
    """Return (X, y, unseen X, unseen y): a third of the rows is unseen.

    columns="standardized": numeric columns to mean 0 and deviation 1 of the rows that are not unseen; columns of 0 and 1, and sets
    whose columns have one unit, stay. columns="raw": all stay.
    """
    X, Z, y, wanted = train_test_split(
        table.X, table.y, test_size=1 / 3, random_state=seed, stratify=table.y if classes else None
    )
    if columns == "standardized":
        center = np.where(table.numeric, X.mean(axis=0), 0.0)
        scale = np.where(table.numeric & (X.std(axis=0) > 0), X.std(axis=0), 1.0)
        X, Z = (X - center) / scale, (Z - center) / scale
    return X, y, Z, wanted
