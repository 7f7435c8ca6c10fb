"""Every learner, and every form in which rows, labels, targets and weights reach it: what `tests/doors.md` lists.

`python tests/door_page.py > tests/doors.md` writes the page; `tests/estimators/test_doors.py` holds it to what happens. Each case has
the numbers of one small problem, or a fault in one of them. A form is right where the learner answers as it does to the plain array,
and refused where it raises one line of an InputError with the words that are named.
"""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse as sp
import zarr
from scipy.spatial.distance import cdist

import dkl
from dkl import baselines

N, D, NEW = 48, 4, 7
"""Rows, columns, and rows that are new to the learner."""
X = np.random.default_rng(7).standard_normal((N, D)) + 3.0 * (np.arange(N) % 2)[:, None]
X[np.abs(X) < 0.4] = 0.0  # so that sparse forms have something to leave out
Y = np.arange(N) % 2
WEIGHTS = 1.0 + np.arange(N) % 3
FRESH = np.random.default_rng(8).standard_normal((NEW, D)) + 3.0 * (np.arange(NEW) % 2)[:, None]


@dataclass(frozen=True)
class Learner:
    """make: a new one, which takes parameters; takes: "labels", "classes", "targets", "numbers" or "" for y; kernel, affinity: whether X
    may be a matrix; weights: whether rows may be weighted."""

    make: Callable[..., Any]
    takes: str = ""
    kernel: bool = False
    affinity: bool = False
    weights: bool = False

    def fit(self, rows: Any, y: Any = Y, **given: Any) -> Any:
        """Return a learner that has learned from the rows, y where it takes one."""
        parameters = {name: given.pop(name) for name in ("kernel", "affinity") if name in given}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self.make(**parameters).fit(rows, *([y] if self.takes else []), **given)


def answer(fitted: Any, rows: Any) -> Any:
    """Return what a fitted learner says of new rows."""
    verb = next(name for name in ("decision_function", "predict", "transform") if hasattr(fitted, name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(getattr(fitted, verb)(rows))


def _of(cls: Any, **fixed: Any) -> Callable[..., Any]:
    return lambda **given: cls(**{"random_state": 0, **fixed, **given})


LEARNERS = {
    "KernelKMeans": Learner(_of(dkl.KernelKMeans, n_clusters=2, n_init=2, kernel="linear"), kernel=True),
    "KernelPCA": Learner(_of(dkl.KernelPCA, n_components=2), kernel=True),
    "LaplacianKernelLearner": Learner(_of(dkl.LaplacianKernelLearner, holdout=0), "labels"),
    "LogDetKernelLearner": Learner(_of(dkl.LogDetKernelLearner, kernel="rbf", holdout=0), "labels", kernel=True),
    "LogDetMetricLearner": Learner(_of(dkl.LogDetMetricLearner, holdout=0), "labels"),
    "LowRankKernelRegressor": Learner(
        _of(dkl.LowRankKernelRegressor, nu=0.1, holdout=0), "targets", kernel=True, weights=True
    ),
    "MaximumVarianceUnfolding": Learner(_of(dkl.MaximumVarianceUnfolding, colored=True, holdout=0), "numbers"),
    "OptimalNeighborhoodSVC": Learner(_of(dkl.OptimalNeighborhoodSVC, holdout=0), "classes", kernel=True, weights=True),
    "PairwiseKernelLearner": Learner(_of(dkl.PairwiseKernelLearner, max_iter=20, holdout=0), "labels", affinity=True),
    "SpectralClustering": Learner(_of(dkl.SpectralClustering, n_clusters=2), affinity=True),
    "SpectralEmbedding": Learner(_of(dkl.SpectralEmbedding, holdout=0), affinity=True),
    "BCDNPKL": Learner(_of(baselines.BCDNPKL, rank=2, max_iter=5), "labels"),
    "COPKMeans": Learner(_of(baselines.COPKMeans, n_clusters=2), "labels"),
    "ConjugateGradientKernelLearner": Learner(
        _of(baselines.ConjugateGradientKernelLearner, kernel="rbf", max_iter=3, n_in=2, n_out=2),
        "labels",
        kernel=True,
    ),
    "FirstOrderRegressor": Learner(_of(baselines.FirstOrderRegressor, nu=0.1), "targets", kernel=True, weights=True),
    "FirstOrderSVC": Learner(
        _of(baselines.FirstOrderSVC, solver="subgradient", max_iter=20), "classes", kernel=True, weights=True
    ),
    "E2CP": Learner(_of(baselines.E2CP, n_clusters=2), "labels"),
    "HybridSDP": Learner(_of(baselines.HybridSDP), "labels"),
    "ITMLKernelLearner": Learner(_of(baselines.ITMLKernelLearner, kernel="rbf"), "labels", kernel=True),
    "ITMLMetricLearner": Learner(_of(baselines.ITMLMetricLearner), "labels"),
    "LMNNMetricLearner": Learner(_of(baselines.LMNNMetricLearner), "labels"),
    "KernelRidgeRegressor": Learner(_of(baselines.KernelRidgeRegressor), "targets", kernel=True, weights=True),
    "LaplacianEigenmaps": Learner(_of(baselines.LaplacianEigenmaps, n_components=2)),
    "NystromClassifier": Learner(_of(baselines.NystromClassifier), "classes", kernel=True, weights=True),
    "MFPC": Learner(_of(baselines.MFPC, rank=5, max_iter=20), "labels"),
    "NystromRegressor": Learner(_of(baselines.NystromRegressor), "targets", kernel=True, weights=True),
    "PCKMeans": Learner(_of(baselines.PCKMeans, n_clusters=2), "labels"),
    "SimpleNPKL": Learner(_of(baselines.SimpleNPKL), "labels"),
    "UniformWeightsRegressor": Learner(_of(baselines.UniformWeightsRegressor), "targets", kernel=True, weights=True),
}


def public_learners() -> set[str]:
    """Return the names of all public classes that are fitted."""
    places = ((dkl, dkl.__all__), (baselines, baselines.__all__))
    found = {name: getattr(place, name) for place, names in places for name in names}
    return {name for name, one in found.items() if isinstance(one, type) and hasattr(one, "fit")}


RIGHT = ""
"""What is expected of a form that is taken; of one that is refused, words of the error."""
NAMES = list("abcd")
HAS_FRAMES = all(importlib.util.find_spec(name) for name in ("pandas", "pyarrow"))
"""Whether Dask has data frames, which need pyarrow."""
_FOLDER = tempfile.TemporaryDirectory(prefix="doors-")


def promised(rows: Any, make: Callable[..., Any], **meta: Any) -> Any:
    """Return a Dask array of two blocks that `make` gives, whatever the array says of them."""
    half = len(rows) // 2
    parts = [rows[:half], rows[half:]]
    return da.concatenate([da.from_delayed(dask.delayed(make)(part), part.shape, float, **meta) for part in parts])


def hidden(rows: Any) -> Any:
    """Return the rows with one of their entries masked."""
    return np.ma.array(rows, mask=np.arange(rows.size).reshape(rows.shape) == 13)


def changed(value: float, array: Any = X) -> Any:
    """Return a copy of an array of which one entry is `value`."""
    array = np.array(array)
    array[(5, 2) if array.ndim == 2 else 5] = value
    return array


def wide(array: Any) -> Any:
    """Return the integers nearest to an array's numbers; the entry that `changed` changes is none that a double is."""
    return changed(2**53 + 1, np.round(array).astype(np.int64))


def _objects(values: Iterable[Any]) -> Any:
    """An array of objects, which NumPy does not look into."""
    items = list(values)
    made = np.empty(len(items), object)
    made[:] = items
    return made


def _unsized(rows: Any) -> Any:
    padded = da.from_array(np.concatenate([rows, rows[:2]]), chunks=(10, 3))
    return padded[da.from_array(np.arange(len(rows) + 2) < len(rows), chunks=10)]


def _stored(rows: Any, suffix: str) -> Path:
    path = Path(_FOLDER.name) / f"{len(rows)}{suffix}"
    if not path.exists():
        if suffix.endswith(".npy"):
            np.save(path, rows)
        else:
            zarr.create_array(path, data=rows, chunks=(10, 3))
    return path


def _mapped(rows: Any, order: Any = "C") -> Any:
    path = Path(_FOLDER.name) / f"{len(rows)}-{order}-{rows.dtype.str[1:]}-{rows.dtype.byteorder == '>'}.dat"
    held = np.memmap(path, rows.dtype, "w+", shape=rows.shape, order=order)
    held[:] = rows
    return np.memmap(path, rows.dtype, "r", shape=rows.shape, order=order)


def _packed(rows: Any) -> Path:
    """Return a zarr array of 64 bits as xarray packs it, whose values are the rows to 5e-14."""
    path = _stored(np.round((rows - 3.0) * 2.0**44).astype(np.int64), "-packed.zarr")
    zarr.open_array(path).attrs.update({"scale_factor": 2.0**-44, "add_offset": 3.0})
    return path


def _frame(rows: Any, **columns: Any) -> Any:
    import dask.dataframe as frames

    return frames.from_pandas(pd.DataFrame(rows, columns=NAMES).assign(**columns), npartitions=3)


ROWS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "list of lists": (lambda X: X.tolist(), RIGHT),
    "array in columns' order": (np.asfortranarray, RIGHT),
    "array of objects that are numbers": (lambda X: X.astype(object), RIGHT),
    "array of the other byte order": (lambda X: X.astype(">f8"), RIGHT),
    "array with negative strides": (lambda X: X[::-1].copy()[::-1], RIGHT),
    "masked array that hides nothing": (np.ma.array, RIGHT),
    "scipy sparse, CSR": (sp.csr_array, RIGHT),
    "scipy sparse, COO": (sp.coo_array, RIGHT),
    "frame of pandas": (lambda X: pd.DataFrame(X), RIGHT),
    "frame of pandas, nullable": (lambda X: pd.DataFrame(X).astype("Float64"), RIGHT),
    "frame of pandas, of pyarrow's types": (lambda X: pd.DataFrame(X).astype("float64[pyarrow]"), RIGHT),
    "frame of pandas, of two indices": (
        lambda X: pd.DataFrame(X, pd.MultiIndex.from_product([["a"], range(len(X))])),
        RIGHT,
    ),
    "frame of polars": (lambda X: pl.DataFrame(X, schema=NAMES), RIGHT),
    "table of pyarrow": (lambda X: pa.table(dict(zip(NAMES, X.T, strict=True))), RIGHT),
    "memory map": (lambda X: np.load(_stored(X, ".npy"), mmap_mode="r"), RIGHT),
    "memory map in columns' order": (lambda X: _mapped(X, "F"), RIGHT),
    "memory map of the other byte order": (lambda X: _mapped(X.astype(">f8")), RIGHT),
    "path of .npy": (lambda X: _stored(X, ".npy"), RIGHT),
    "path of zarr": (lambda X: str(_stored(X, ".zarr")), RIGHT),
    "zarr array": (lambda X: zarr.open_array(_stored(X, ".zarr"), mode="r"), RIGHT),
    "packed zarr array": (lambda X: zarr.open_array(_packed(X), mode="r"), RIGHT),
    "path of packed zarr": (lambda X: str(_packed(X)), RIGHT),
    "dask array of packed zarr": (lambda X: da.from_zarr(str(_packed(X))), "stored numbers of a packed zarr array"),
    "dask array of packed zarr, decoded": (lambda X: da.from_zarr(str(_packed(X))) * 2.0**-44 + 3.0, RIGHT),
    "dask array": (lambda X: da.from_array(X, chunks=(10, 3)), RIGHT),
    "dask array of unknown sizes": (_unsized, RIGHT),
    "dask array of sparse blocks": (lambda X: da.from_array(X, chunks=(10, 3)).map_blocks(sp.csr_array), RIGHT),
    "dask array that says dense, blocks sparse": (lambda X: promised(X, sp.csr_array), RIGHT),
    "dask array that says sparse, blocks dense": (lambda X: promised(X, np.asarray, meta=sp.csr_array((0, D))), RIGHT),
    "dask array of masks that hide nothing": (lambda X: da.from_array(np.ma.array(X), chunks=(10, 3)), RIGHT),
    "dask frame": (_frame, RIGHT),
    "dask frame, nullable": (lambda X: _frame(X).astype({"b": "Float64"}), RIGHT),
    "array of dask frame": (lambda X: _frame(X).to_dask_array(), RIGHT),
    "masked value": (hidden, "masked values"),
    "masked value in a dask block": (lambda X: da.from_array(hidden(X), chunks=(10, 3)), r"^X\[3, 1\]: masked values"),
    "masked value, dask says dense": (lambda X: promised(hidden(X), np.ma.asarray), "masked values"),
    "NaN": (lambda X: changed(np.nan, X), "NaN"),
    "infinity": (lambda X: changed(np.inf, X), "infinity"),
    "complex": (lambda X: X + 1j, "Complex data"),
    "complex in a dask block": (lambda X: promised(X + 1j, np.asarray), "real numbers; got a block of dtype complex"),
    "text": (lambda X: X.astype(str), "text, not numbers"),
    "text in a dask block": (lambda X: promised(X.astype(str), np.asarray), "real numbers; got a block of dtype <U"),
    "text in a dask frame": (lambda X: _frame(X, b="x"), "not numbers; got dtype"),
    "objects in a dask array": (lambda X: da.from_array(X.astype(object), chunks=9), "real numbers; got dtype object"),
    "dask block of another shape": (lambda X: promised(X, np.transpose), "a block of another shape"),
    "dates": (lambda X: np.zeros(X.shape, "M8[s]"), "real numbers; got dtype datetime64"),
    "frame of dates": (lambda X: pd.DataFrame(X.astype("M8[s]"), columns=NAMES), "dates or times, .* in column 'a'"),
    "frame with a column of dates": (lambda X: pd.DataFrame(X).assign(day=pd.Timestamp(0)), "dates or times, .*'day'"),
    "frame of polars with dates": (lambda X: pl.DataFrame(X).with_columns(day=pl.date(2000, 1, 1)), "dates .*'day'"),
    "frame of polars with text": (lambda X: pl.DataFrame(X).with_columns(city=pl.lit("Rome")), "text, .*'city'"),
    "frame of pandas with categories": (
        lambda X: pd.DataFrame(X).assign(b=pd.Categorical(["x"] * len(X))),
        "text, not",
    ),
    "frame of pandas with a missing number": (
        lambda X: pd.DataFrame(changed(np.nan, X)).astype("Float64"),
        r"X\[5, 2\].*NaN",
    ),
    "records": (lambda X: np.rec.fromarrays(X.T, names=NAMES), "real numbers; got dtype"),
    "integers beyond floats": (lambda X: [[10**400] * D] * len(X), "too large to convert"),
    "integers that are rounded": (wide, r"^X\[5, 2\]: an integer would be rounded; got 9007199254740993"),
    "integers of objects that are rounded": (lambda X: wide(X).astype(object), "an integer would be rounded"),
    "list of integers that are rounded": (lambda X: wide(X).tolist(), "an integer would be rounded"),
    "sparse integers that are rounded": (lambda X: sp.csr_array(wide(X)), r"^X\[5, 2\]: an integer would be rounded"),
    "frame of pandas with a column that is rounded": (
        lambda X: pd.DataFrame(X).assign(id=wide(X)[:, 2]),
        "column 'id': an integer would be rounded",
    ),
    "frame of pandas, nullable, that is rounded": (
        lambda X: pd.DataFrame(wide(X), columns=NAMES).astype("Int64"),
        "column 'c': an integer would be rounded",
    ),
    "frame of polars that is rounded": (lambda X: pl.DataFrame(wide(X), schema=NAMES), "column 'c': an integer would"),
    "table of pyarrow that is rounded": (
        lambda X: pa.table(dict(zip(NAMES, wide(X).T, strict=True))),
        "column 'c': an integer would be rounded",
    ),
    "path of integers that are rounded": (lambda X: _stored(wide(X), "-wide.npy"), "an integer would be rounded"),
    "zarr array of integers that are rounded": (
        lambda X: zarr.open_array(_stored(wide(X), "-wide.zarr"), mode="r"),
        r"^X\[5, 2\]: an integer would be rounded",
    ),
    "dask array of integers that are rounded": (
        lambda X: da.from_array(wide(X), chunks=(4, 3)),
        r"^X\[5, 2\]: an integer would be rounded",
    ),
    "dask frame that is rounded": (lambda X: _frame(wide(X)), "column 'c': an integer would be rounded"),
    "three dimensions": (lambda X: X[:, :, None], "dim 3|tuples of points"),
    "one column as a vector": (lambda X: X[:, 0], "2D array"),
    "one column of a dask array": (lambda X: da.from_array(X)[:, 0], "2-d"),
    "one column of a dask frame": (lambda X: _frame(X)["a"], "2-d"),
    "no rows": (lambda X: X[:0], "0 sample"),
    "no columns": (lambda X: X[:, :0], "0 feature"),
    "rows of different lengths": (lambda X: [[1.0, 2.0], [3.0]], "inhomogeneous"),
    "dask.delayed": (lambda X: dask.delayed(X), "only a promise of a value; got a Delayed"),
    "list of dask.delayed": (lambda X: list(map(dask.delayed, X)), r"got a list of Delayeds; .*dask\.compute\(\*X\)"),
    "array of dask.delayed": (lambda X: _objects(map(dask.delayed, X)), "got an array of Delayeds"),
    "dask bag": (lambda X: db.from_sequence(X.tolist(), npartitions=2), r"got a Bag; .*X\.to_dataframe\(\)"),
    "no such file": (lambda X: str(_stored(X, ".npy")) + "x.npy", "no such file"),
}
K = np.exp(-(cdist(X, X) ** 2) / 8)
KERNELS = {
    "not square": (K[:, :5], "must be square"),
    "not symmetric": (K + 0.3 * np.triu(K, 1), "not symmetric"),
    "a negative eigenvalue": (K - 0.5 * np.eye(N), "not positive semidefinite"),
    "distances": (cdist(X, X), "not positive semidefinite.*as of distances"),
    "squared distances": (cdist(X, X) ** 2, "not positive semidefinite.*as of distances"),
    "distances in dask": (da.from_array(cdist(X, X), chunks=20), "not positive semidefinite.*as of distances"),
    "NaN": (changed(np.nan, K), "NaN"),
    "masked value": (hidden(K), "masked values"),
    "sparse": (sp.csr_array(K), "dense"),
    "sparse dask blocks": (da.from_array(K, chunks=20).map_blocks(sp.csr_array), "dense"),
}
AFFINITIES = {
    "not square": (K[:, :5], "square"),
    "not symmetric": (K + 0.3 * np.triu(K, 1), "not symmetric"),
    "negative": (-K, "negative"),
    "NaN": (changed(np.nan, K), "NaN"),
    "masked value": (hidden(K), "masked values"),
}
W = WEIGHTS.astype(float)
SAMPLE_WEIGHTS = {
    "negative": (-W, "Negative"),
    "NaN": (changed(np.nan, W), "NaN"),
    "infinity": (changed(np.inf, W), "infinity"),
    "too few": (W[:5], "expected"),
    "all zero": (0 * W, "zero"),
    "text": (W.astype(str), "text, not numbers"),
    "masked value": (np.ma.array(W, mask=np.arange(N) == 5), r"sample_weight\[5\]: masked values"),
    "masked value in a dask block": (
        da.from_array(np.ma.array(W, mask=np.arange(N) == 5), chunks=20), r"sample_weight\[5\]: masked values",
    ),
    "dask.delayed": (dask.delayed(W), "only a promise"),
    "list of dask.delayed": (list(map(dask.delayed, W.tolist())), "got a list of Delayeds"),
}  # fmt: skip
LABELS = {
    "dask array": (da.from_array(Y, chunks=20), RIGHT),
    "objects that are numbers": (Y.astype(object), RIGHT),
    "series of pandas, nullable": (pd.Series(Y, dtype="Int64"), RIGHT),
    "series of pandas, of pyarrow's types": (pd.Series(Y).astype("int64[pyarrow]"), RIGHT),
    "series of polars": (pl.Series(Y), RIGHT),
    "array of pyarrow": (pa.array(Y), RIGHT),
    "dates": (Y.astype("M8[s]"), "datetime64"),
    "too few": (Y[:5], r"got shape \(5,\)"),
    "none": (None, "requires y to be passed"),
    "masked value": (np.ma.array(Y, mask=np.arange(N) == 5), r"y\[5\]: masked values"),
    "masked value in a dask block": (
        da.from_array(np.ma.array(Y, mask=np.arange(N) == 5), chunks=20), r"y\[5\]: masked values",
    ),
    "complex": (Y + 1j, "[Cc]omplex"),
    "infinity": (changed(np.inf, Y.astype(float)), "inf"),
    "dask.delayed": (dask.delayed(Y), "only a promise"),
    "list of dask.delayed": (list(map(dask.delayed, Y.tolist())), r"got a list of Delayeds; .*dask\.compute\(\*y\)"),
}  # fmt: skip
