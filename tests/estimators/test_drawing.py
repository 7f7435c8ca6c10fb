"""Foundations of all pictures: samples of large arrays, planes, histories, files."""

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr

from dkl.blocks.rows.row_sources import row_source
from dkl.errors import InputError
from dkl.estimators.base.plot_rows import read_rows, sample, some_rows
from dkl.estimators.pairwise.plot_data import n_clusters
from dkl.linalg.eigen.principal_coordinates import Plane
from dkl.plotting import figures
from dkl.plotting.convergence import series, stages_of

pytest.importorskip("matplotlib")


def test_samples_are_rows_wherever_they_stand(rng: np.random.Generator, tmp_path: Path) -> None:
    X = rng.standard_normal((5000, 3))
    np.save(tmp_path / "X.npy", X)
    stored = zarr.create_array(str(tmp_path / "X.zarr"), data=X, chunks=(100, 3))
    for array in (X, sp.csr_array(X), tmp_path / "X.npy", stored, da.from_array(X, chunks=(70, 3))):
        chosen, rows = sample(array, 400)
        assert len(chosen) == 400 and len(np.unique(chosen)) == 400 and (np.diff(chosen) > 0).all()
        np.testing.assert_array_equal(rows.toarray() if sp.issparse(rows) else rows, X[chosen])
        np.testing.assert_array_equal(sample(array, 400)[0], chosen)
        np.testing.assert_array_equal(sample(array, 9000)[0], np.arange(5000))
    np.testing.assert_array_equal(read_rows(row_source(stored), np.array([3, 4999])), X[[3, 4999]])


def test_a_sample_reads_few_chunks(tmp_path: Path) -> None:
    array = zarr.create_array(str(tmp_path / "X"), shape=(100_000, 2), chunks=(100, 2), dtype="float64")
    chosen = some_rows(row_source(array), 500)
    assert len(chosen) == 500 and len(np.unique(chosen // 100)) <= 32


def test_plane_of_wide_and_sparse_rows(rng: np.random.Generator) -> None:
    X = rng.standard_normal((80, 2)) @ (rng.standard_normal((2, 700)) * [[9.0], [4.0]])
    X += 0.01 * rng.standard_normal(X.shape)
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    for rows in (X, sp.csr_array(X)):
        points = Plane.of(rows).project(rows)
        np.testing.assert_allclose(np.abs(points), np.abs(U[:, :2] * s[:2]), atol=1e-4 * s[0])


@pytest.mark.parametrize(
    ("eigenvalues", "count"),
    [([9, 8, 7, 0.1, 0.1], 3), ([5], 1), ([9, 8, 7], 3), ([5, 0, 0], 1), ([0, 0], 1), ([9] * 400, 1)],
)
def test_number_of_clusters(eigenvalues: list[float], count: int) -> None:
    assert n_clusters(np.array(eigenvalues, dtype=float)) == count


# -- histories ------------------------------------------------------------------------------------------------------


def test_history_counts_on_and_passes_over_what_is_no_number() -> None:
    rows = [{"iteration": k, "relative_gap": 10.0**-k} for k in range(3)] + [{"iteration": 0, "relative_gap": np.inf}]
    rows += [{"iteration": 1, "relative_gap": None}, {"iteration": 2, "gap": 1.0, "objective": -4.0}]
    iterations, values = series(rows, "relative_gap")
    np.testing.assert_array_equal(iterations, [0, 1, 2, 4])
    np.testing.assert_allclose(values, [1, 0.1, 0.01, 0.25])
    many, _ = series([{"iteration": k, "objective": 1.0} for k in range(100_001)], "objective")
    assert len(many) <= 2001 and many[-1] == 100_000


def test_stages_of_a_history() -> None:
    rows: list[dict[str, Any]] = [{"iteration": 4, "stage": "pass"}]
    rows += [{"iteration": k, "objective": 2.0, "primal_residual": 1.0} for k in (1, 2)]
    rows += [{"iteration": 3, "objective": 1.0, "stage": "finish"}]
    assert stages_of(rows) == [(1.0, "admm"), (3.0, "finish")]
    np.testing.assert_array_equal(series(rows, "objective")[0], [1, 2, 3])


@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_files_are_whole_and_equal(suffix: str, tmp_path: Path) -> None:
    def write(name: str) -> bytes:
        figure = figures.new_figure()
        figure.subplots().plot([1, 2])
        return figures.save(figure, tmp_path / f"{name}{suffix}").read_bytes()

    assert write("a") == write("b")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"a{suffix}", f"b{suffix}"]


def test_a_failed_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = figures.new_figure()
    with pytest.raises(InputError, match="unknown kind"):
        figures.save(figure, tmp_path / "a.bmp")
    monkeypatch.setattr(figure, "draw", lambda renderer: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        figures.save(figure, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())
