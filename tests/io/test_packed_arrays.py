"""Arrays of zarr as xarray packs them: decoded wherever rows are taken, missing values refused with row and column."""

import base64
import json
import struct
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from command_line import call
from command_runs import refused
from numpy.testing import assert_allclose, assert_array_equal

import dkl
from dkl.blocks.rows.row_sources import row_source
from dkl.errors import InputError
from dkl.io.packed_arrays import packing_of
from dkl.io.plain_arrays import unpacked

N, D = 40, 3
KIND = np.arange(N) % 2
STORED = (np.random.default_rng(0).integers(-900, 900, (N, D)) + 2000 * KIND[:, None]).astype(np.int16)
SCALE, OFFSET = 0.005, 273.15
VALUES = SCALE * STORED.astype(np.float64) + OFFSET
PAIRS = dkl.Pairs([[i, i + 2] for i in range(20)], [[i, i + 1] for i in range(20)])
LEARNERS = {
    "pairwise": (lambda: dkl.PairwiseKernelLearner(), {"pairs": PAIRS}),
    "laplacian": (lambda: dkl.LaplacianKernelLearner(n_neighbors=6), {"pairs": PAIRS}),
    "logdet": (lambda: dkl.LogDetKernelLearner(gamma=1.0), {"y": KIND}),
    "metric": (lambda: dkl.LogDetMetricLearner(gamma=1.0), {"y": KIND}),
    "mvu": (lambda: dkl.MaximumVarianceUnfolding(n_neighbors=25), {}),
    "kpca": (lambda: dkl.KernelPCA(n_components=2, kernel="rbf"), {}),
    "spectral": (lambda: dkl.SpectralEmbedding(n_components=2, n_neighbors=25), {}),
    "clusters": (lambda: dkl.SpectralClustering(n_clusters=2, n_neighbors=8), {}),
    "kmeans": (lambda: dkl.KernelKMeans(n_clusters=2, kernel="rbf"), {}),
    "regression": (lambda: dkl.LowRankKernelRegressor(n_columns=10, nu=0.1), {"y": VALUES[:, 0]}),
    "svc": (lambda: dkl.OptimalNeighborhoodSVC(), {"y": KIND}),
}


def packed(
    path: Path | None, stored: np.ndarray, fill: float | None = None, version: int = 3, **attributes: object
) -> zarr.Array:
    """An array as `Dataset.to_zarr` writes it: format 3 has its mark among the attributes, format 2 as the fill value."""
    attributes = {name: value for name, value in attributes.items() if value is not None}
    if version == 3 and fill is not None:
        attributes["_FillValue"] = (
            fill if stored.dtype.kind == "i" else base64.b64encode(struct.pack("<d", fill)).decode()
        )
    if version == 2:
        attributes["_ARRAY_DIMENSIONS"] = ["row", "column"][: stored.ndim]
    array = zarr.create_array(
        zarr.storage.MemoryStore() if path is None else str(path), shape=stored.shape, dtype=stored.dtype, chunks=(7, *stored.shape[1:]),
        zarr_format=version, fill_value=fill if version == 2 else 0, config={"write_empty_chunks": True},
    )  # fmt: skip
    array[...] = stored
    array.attrs.update(attributes)
    return zarr.open_array(array.store_path if path is None else str(path), mode="r")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("kind", ["int16", "mark", "float32", "missing_value", "offset"])
def test_decoded_as_cf_says(tmp_path: Path, version: int, kind: str) -> None:
    """The formula of the CF conventions, by hand; in blocks that do not end with chunks."""
    stored, attributes, fill, wanted = STORED, {"scale_factor": SCALE, "add_offset": OFFSET}, -32768.0, VALUES.copy()
    if kind == "mark":
        attributes, wanted = {}, STORED.astype(float)
    if kind == "float32":
        stored, attributes, fill, wanted = STORED.astype(np.float32), {}, -9999.0, STORED.astype(float)
    if kind == "missing_value":
        attributes, fill = {**attributes, "missing_value": -32768}, None
    if kind == "offset":
        attributes, fill, wanted = {"add_offset": 5}, None, STORED + 5.0
    stored = stored.copy()
    if kind != "offset":
        stored[11, 1] = -32768 if fill is None else fill
        wanted[11, 1] = np.nan
    for path in (tmp_path / "X.zarr", None):
        array = packed(path, stored, fill, version, **attributes)
        for X in (array, str(path)) if path else (array,):
            source = row_source(X)
            assert source.dtype == np.float64
            assert_allclose(source.read(5, 23), wanted[5:23], rtol=1e-15)
        assert_allclose(np.asarray(unpacked(array)), wanted, rtol=1e-15)


def test_what_means_nothing_is_left_alone(tmp_path: Path) -> None:
    """Fill values of plain arrays, other attributes, and marks that are NaN."""
    plain = zarr.create_array(str(tmp_path / "a.zarr"), data=STORED, zarr_format=2, fill_value=-1)
    zeros = packed(tmp_path / "b.zarr", STORED, 0, 2, units="K")
    nan = packed(tmp_path / "c.zarr", VALUES, float("nan"), 3, scale_factor=1, add_offset=0.0)
    assert all(packing_of(array, "X") is None for array in (plain, zeros, nan))


@pytest.mark.parametrize("name", LEARNERS)
def test_learners_learn_from_values(name: str, tmp_path: Path) -> None:
    """Of packed rows on disk, by path and in memory the same as of their values, in `fit` and in what follows."""
    make, given = LEARNERS[name]

    def learned(X: object, new: object) -> np.ndarray:
        model = make()
        if "random_state" in model.get_params():
            model.set_params(random_state=0)
        model.fit(X, **given)
        if hasattr(model, "predict") and name != "clusters":
            return np.asarray(model.predict(new))
        return np.asarray(model.transform(new)) if hasattr(model, "transform") else model.labels_

    options = {"scale_factor": SCALE, "add_offset": OFFSET}
    on_disk = packed(tmp_path / "X.zarr", STORED, -32768, **options)
    new = packed(tmp_path / "new.zarr", STORED[:9] + np.int16(3), -32768, **options)
    wanted = learned(VALUES, VALUES[:9] + 3 * SCALE)
    held, new_held = (packed(None, rows, -32768, 2, **options) for rows in (STORED, STORED[:9] + np.int16(3)))
    for X, rows in ((on_disk, new), (held, new_held)):
        assert_allclose(learned(X, rows), wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", LEARNERS)
def test_missing_values_are_named(name: str, tmp_path: Path) -> None:
    make, given = LEARNERS[name]
    stored = STORED.copy()
    stored[4, 2] = -32768
    for path in (tmp_path / "X.zarr", None):
        X = packed(path, stored, -32768, scale_factor=SCALE, add_offset=OFFSET)
        with pytest.raises(InputError, match=r"\[4, 2\]"):
            make().fit(X, **given)


def test_targets_labels_and_weights_are_values(tmp_path: Path) -> None:
    """Of y and weights too; without a mark a label is its value, with one it is missing."""
    targets = packed(tmp_path / "y.zarr", STORED[:, 0], -32768, scale_factor=SCALE, add_offset=OFFSET)
    for more, packed_more in (({}, {}), ({"sample_weight": VALUES[:, 0]}, {"sample_weight": targets})):
        models = [dkl.LowRankKernelRegressor(n_columns=10, nu=0.1, random_state=0) for _ in range(2)]
        models[0].fit(VALUES, VALUES[:, 0], **more)
        for y in (targets, tmp_path / "y.zarr"):
            models[1].fit(VALUES, y, **packed_more)
            assert_allclose(models[1].predict(VALUES), models[0].predict(VALUES))
    labels = np.where(np.arange(N) % 5, KIND, -9).astype(np.int16)
    partly = packed(tmp_path / "labels.zarr", labels, -9, version=2)
    assert dkl.Pairs.from_labels(partly, random_state=0) == dkl.Pairs.from_labels(
        np.where(labels < 0, -1, labels), random_state=0
    )
    with pytest.raises(InputError, match=r"y\[0\]: a label is missing; got 'nan' and 7 more"):
        dkl.OptimalNeighborhoodSVC().fit(VALUES, partly)
    with pytest.raises(InputError, match=r"y\[0\]: a target is missing"):
        dkl.LowRankKernelRegressor(n_columns=10, nu=0.1).fit(VALUES, partly)
    triplets = dkl.Triplets.from_labels(
        packed(tmp_path / "X.zarr", STORED, scale_factor=SCALE, add_offset=OFFSET), KIND
    )
    assert_array_equal(triplets.triplets, dkl.Triplets.from_labels(VALUES, KIND).triplets)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"scale_factor": "two"}, "its attribute scale_factor is not understood; got 'two'"),
        ({"add_offset": [1, 2]}, "its attribute add_offset is not understood"),
        ({"missing_value": "none"}, "its attribute missing_value is not understood"),
        ({"_Unsigned": "true"}, "integers that are to be read with another sign"),
    ],
)
def test_attributes_that_are_not_understood(tmp_path: Path, attributes: dict[str, object], what: str) -> None:
    array = packed(tmp_path / "X.zarr", STORED, **attributes)
    for X in (array, str(tmp_path / "X.zarr")):
        with pytest.raises(InputError, match=what.replace("[", r"\[")):
            dkl.KernelPCA(n_components=2).fit(X)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit, verify and predict of packed rows are those of their values; a missing one is refused by row and column."""
    monkeypatch.chdir(tmp_path)
    options = {"scale_factor": SCALE, "add_offset": OFFSET}
    packed(tmp_path / "X.zarr", STORED, -32768, **options)
    np.save("X.npy", VALUES)
    np.save("y.npy", KIND)
    stored = STORED.copy()
    stored[4, 2] = -32768
    packed(tmp_path / "gap.zarr", stored, -32768, **options)
    for data in ("X.zarr", "X.npy"):
        answer = call("fit", "svc", "--data", data, "--targets", "y.npy", "--out", f"{data}-run.zarr", "--no-picture")
        assert answer.code == 0, answer.err
        assert call("verify", f"{data}-run.zarr").code == 0
        answer = call("predict", f"{data}-run.zarr", "--data", data, "--decision", "--out", f"{data}-p.npy")
        assert answer.code == 0, answer.err
    assert_allclose(np.load("X.zarr-p.npy"), np.load("X.npy-p.npy"), rtol=1e-9)
    assert json.loads(Path("X.zarr-run.zarr/config.json").read_text())["inputs"]["data"]["shape"] == [N, D]
    for words in (
        ("fit", "svc", "--data", "gap.zarr", "--targets", "y.npy", "--out", "never.zarr"),
        ("predict", "X.zarr-run.zarr", "--data", "gap.zarr", "--out", "never.npy"),
    ):
        answer = call(*words)
        refused(answer)
        assert "[4, 2]" in answer.err and "nan" in answer.err.lower()
    assert_array_equal(np.load("y.npy"), KIND)


def test_dask_arrays_of_stored_numbers_are_refused(tmp_path: Path) -> None:
    """Dask has no attributes: its array of a packed one holds stored numbers, whatever is cut off or joined; decoded, it holds values."""
    array = packed(tmp_path / "X.zarr", STORED, scale_factor=SCALE, add_offset=OFFSET)
    raw = da.from_array(array, chunks=(9, 2))
    forms = {"path": da.from_zarr(str(tmp_path / "X.zarr")), "array": da.from_zarr(array), "blocks": raw}
    forms |= {"cut": raw.rechunk((20, 3))[:30], "joined": da.concatenate([raw[:5], raw[5:]])}
    for name, given in forms.items():
        with pytest.raises(InputError, match="^X: stored numbers of a packed zarr array.*got scale_factor, add_offset"):
            dkl.KernelPCA(n_components=2).fit(given)
        with pytest.raises(InputError, match="^y: stored numbers of a packed"):
            dkl.LowRankKernelRegressor(n_columns=10, nu=0.1).fit(VALUES, given[:, 0]), name
    source = row_source(raw * SCALE + OFFSET)
    assert_allclose(source.read(0, N), VALUES)
    plain = packed(tmp_path / "plain.zarr", STORED)
    assert_array_equal(row_source(da.from_array(plain, chunks=(9, 2))).read(0, N), STORED)
