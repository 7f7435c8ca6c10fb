"""Where the neighborhood classifier's kernel stands: held, on disk, made anew, on workers; it is the same model."""

import errno
import gc
import pickle
import shutil
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import zarr
from numpy.testing import assert_allclose, assert_array_equal
from on_workers import deadly_to_matrices
from repeats import but_for, crossed
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC
from svm_cases import blobs, by_libsvm, f, problem

from dkl import OptimalNeighborhoodSVC
from dkl.blocks.kernels import stored_kernel
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.rows import row_blocks
from dkl.errors import ConvergenceWarning, DiskError, InputError, MemoryBudgetError
from dkl.solvers.svm import interface, working_set
from dkl.solvers.svm import working_set as svm_start
from dkl.stores import kernels


@pytest.fixture
def no_room(monkeypatch):
    """A plan in which no kernel matrix fits, of however few rows; and several blocks."""
    from dkl.estimators.svm import plan as svc_plan

    plan = svc_plan.plan_kernel
    monkeypatch.setattr(svc_plan, "plan_kernel", lambda *a, **k: plan(*a, **{**k, "driver_limit": 1}))
    monkeypatch.setattr(row_blocks, "SMALLEST_BLOCK", 4_000)


@pytest.mark.parametrize(("scheme", "form"), crossed(["ovo", "ovr"], ["dense", "sparse", "precomputed"]))
def test_recomputed_kernel_gives_the_same_model(scheme, form, rng, no_room):
    X, y = blobs(rng, 90, 3)
    X = X * (np.abs(X) > 0.5)
    kernel = {"kernel": "precomputed"} if form == "precomputed" else {"gamma": 0.3}
    rows = {"dense": X, "sparse": sparse.csr_array(X), "precomputed": rbf_kernel(X, gamma=0.3)}[form]
    anew = OptimalNeighborhoodSVC(multi_class=scheme, tol=1e-9, **kernel).fit(rows, y)
    assert anew.result_.plan["placement"] == "recomputed"
    with pytest.MonkeyPatch.context() as usual:
        from dkl.blocks.kernels.stored_kernel import plan_kernel
        from dkl.estimators.svm import plan as svc_plan

        usual.setattr(svc_plan, "plan_kernel", plan_kernel)
        held = OptimalNeighborhoodSVC(multi_class=scheme, tol=1e-9, **kernel).fit(rows, y)
    assert held.result_.plan["placement"] == "memory"
    assert_allclose(anew.objective_, held.objective_, rtol=2e-9)
    assert_allclose(anew._decisions(rows), held._decisions(rows), atol=1e-4)


def test_what_is_no_kernel_matrix_is_told_of_one_that_is_not_held(rng, no_room):
    X, y = blobs(rng, 60, 2)
    K = rbf_kernel(X)
    for bad, told in (
        (K + np.triu(K, 1), r"not symmetric; got u'Xv"),
        (1.05 * K - 0.05 * np.eye(60), "an eigenvalue of -0.0"),
    ):
        with pytest.raises(InputError, match=told):
            OptimalNeighborhoodSVC(kernel="precomputed").fit(bad, y)


def test_memory_limit_decides(rng):
    """6,000 rows: their kernel matrix takes 150 MB, and what making it anew takes is less."""
    n = 6000
    X = rng.standard_normal((n, 2))
    y = (X[:, 0] > 0) + 1 * (X[:, 1] > 1)
    limits = {"memory": "2 GB", "recomputed": PROCESS_BASE + 98_000_000}
    for placement, limit in limits.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = OptimalNeighborhoodSVC(multi_class="ovr", memory_limit=limit, max_iter=1, n_jobs=1).fit(X, y)
        assert fitted.result_.plan["placement"] == placement
        assert fitted.result_.plan["process_bytes"] <= fitted.result_.plan["limit"]
    with pytest.raises(MemoryBudgetError, match="memory_limit"):
        OptimalNeighborhoodSVC(memory_limit="200 MB").fit(X, y)


@pytest.mark.parametrize(("dtype", "n_jobs"), crossed(["float64", "float32"], [1, 2]))
def test_one_machine_of_many_rows_makes_the_columns_that_count(dtype, n_jobs, rng, monkeypatch):
    """Beyond the rows that are solved at once: the machine of LIBSVM at rho = infinity, and the gap told is true."""
    X = rng.standard_normal((2500, 2))
    y = np.sign(X[:, 0] + X[:, 1] ** 2 - 1 + 0.1 * rng.standard_normal(2500))
    fitted = OptimalNeighborhoodSVC(rho=1e12, gamma=1.0, dtype=dtype, n_jobs=n_jobs, tol=1e-7).fit(X, y)
    assert fitted.result_.plan["placement"] == "recomputed"
    assert max(row["rows"] for row in fitted.result_.history) < 2000
    K = rbf_kernel(X, gamma=1.0)
    alpha = np.zeros(2500)
    alpha[fitted.support_] = np.abs(fitted.dual_coef_[0])
    of = problem(K, y, 1.0, 1e12)
    assert fitted.relative_gap_[0] <= 1e-7
    assert of.at(alpha).relative_gap == pytest.approx(fitted.relative_gap_[0], rel=1e-3, abs=1e-12)
    reference = SVC(gamma=1.0, tol=1e-6).fit(X, y)
    assert_allclose(fitted.decision_function(X), reference.decision_function(X), atol=2e-3)


DISK_TOO = [("accelerated", "float32"), ("gradient", "float64"), ("gradient", "float32")]


@pytest.mark.parametrize(("solver", "dtype"), but_for(DISK_TOO, [("accelerated", "float64"), *DISK_TOO]))
def test_a_kernel_on_disk_gives_the_same_model(solver, dtype, rng, no_room, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_kernel, "STORED_TILE", 64)
    monkeypatch.setattr(kernels, "STORED_TILE", 64)
    X, y = blobs(rng, 120, 3)
    options = {"rho": 100.0, "multi_class": "ovr", "solver": solver, "gamma": 0.3, "tol": 1e-7, "dtype": dtype}
    there = OptimalNeighborhoodSVC(work_dir=tmp_path, **options).fit(X, y)
    assert there.result_.plan["placement"] == "disk" and there.result_.plan["disk_bytes"] > 0
    assert not list(tmp_path.iterdir())
    assert (there.relative_gap_ <= 1e-7).all()
    for k, label in enumerate(there.classes_):
        of = problem(rbf_kernel(X, gamma=0.3), np.where(y == label, 1.0, -1.0), 1.0, 100.0)
        assert there.objective_[k] == pytest.approx(f(of, by_libsvm(of, 1e-8)[0]), rel=3e-7)


@pytest.mark.parametrize("dtype", but_for(["float32"], ["float64", "float32"]))
def test_a_working_set_without_room_stands_on_disk(dtype, rng, no_room, tmp_path, monkeypatch):
    monkeypatch.setattr(interface, "SMALLEST_IN_PARTS", 100)
    monkeypatch.setattr(working_set, "FEWEST_FIRST", 60)
    X, y = blobs(rng, 400, 2)
    standing, create = [], stored_kernel.create_tiles

    def watched(path, *shape):
        standing.append(len([other for other in tmp_path.iterdir() if other not in (path, *path.parents)]))
        create(path, *shape)

    monkeypatch.setattr(stored_kernel, "create_tiles", watched)
    options = {"rho": 100.0, "gamma": 0.3, "tol": 1e-7, "dtype": dtype, "C": 0.5}
    there = OptimalNeighborhoodSVC(work_dir=tmp_path, **options).fit(X, y)
    assert there.result_.plan["placement"] == "recomputed"
    assert {row["rows"] for row in there.result_.history} - {400}  # parts of it
    assert len(standing) > 2 and not any(standing)  # that of the round before is gone
    assert not list(tmp_path.iterdir())
    of = problem(rbf_kernel(X, gamma=0.3), np.where(y == 1, 1.0, -1.0), 0.5, 100.0)
    assert there.relative_gap_[0] <= 1e-7
    assert there.objective_[0] == pytest.approx(f(of, by_libsvm(of, 1e-8)[0]), rel=3e-7)


def test_a_kernel_on_disk_goes_when_the_fit_breaks_off(rng, no_room, tmp_path):
    X, y = blobs(rng, 60, 2)
    seen = []

    def stop(row):
        seen.extend(path.name for path in tmp_path.iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        OptimalNeighborhoodSVC(work_dir=tmp_path, callbacks=[stop]).fit(X, y)
    assert seen == ["kernel-001.zarr"] and not list(tmp_path.iterdir())


def test_what_is_left_of_a_broken_fit_takes_nothing_from_the_next(rng, no_room, tmp_path):
    """The exception that someone holds holds its kernel, whose folder's name the next fit takes."""
    X, y = blobs(rng, 60, 2)
    held = []

    def stop(row):
        raise KeyboardInterrupt

    def let_go(row):
        held.clear()
        gc.collect()
        assert list(tmp_path.iterdir())

    options = {"work_dir": tmp_path, "solver": "gradient", "tol": 1e-3}
    try:
        OptimalNeighborhoodSVC(callbacks=[stop], **options).fit(X, y)
    except KeyboardInterrupt as error:
        held.append(error)
    fitted = OptimalNeighborhoodSVC(callbacks=[let_go], **options).fit(X, y)
    assert not held and fitted.relative_gap_[0] <= 1e-3


@pytest.mark.parametrize("at", [1, 3])
def test_nothing_is_left_of_a_kernel_that_could_not_be_written(at, rng, no_room, tmp_path, monkeypatch):
    monkeypatch.setattr(stored_kernel, "STORED_TILE", 32)
    monkeypatch.setattr(kernels, "STORED_TILE", 32)
    write = zarr.Array.__setitem__
    written = []

    def full(self, *tile):
        written.append(tile)
        if len(written) == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, *tile)

    monkeypatch.setattr(zarr.Array, "__setitem__", full)
    with pytest.raises(DiskError, match="No space left"):
        OptimalNeighborhoodSVC(work_dir=tmp_path).fit(*blobs(rng, 60, 2))
    assert len(written) == at and not list(tmp_path.iterdir())


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(rng, no_room, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**6, used=0, free=10**6))
    with pytest.raises(DiskError, match=r"work_dir: the kernel matrix does not fit on the disk; got 1 MB free"):
        OptimalNeighborhoodSVC(work_dir=tmp_path).fit(*blobs(rng, 60, 2))
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="no such folder"):
        OptimalNeighborhoodSVC(work_dir=tmp_path / "none").fit(*blobs(rng, 60, 2))


def test_on_workers(rng, client, no_room):
    X, y = blobs(rng, 200, 2)
    there = OptimalNeighborhoodSVC(rho=100.0, tol=1e-5, client=client).fit(X, y)
    assert there.result_.plan["processes"] == 2
    sign = np.where(y == 1, 1.0, -1.0)
    of = problem(rbf_kernel(X, gamma=1 / (3 * X.var())), sign, 1.0, 100.0)
    assert_allclose(there.objective_, f(of, by_libsvm(of, 1e-8)[0]), rtol=1e-5)
    again = pickle.loads(pickle.dumps(there))
    assert again.client is None
    assert_array_equal(again.predict(X), there.predict(X))


def test_threads_and_workers_give_the_same_bytes(rng, client, no_room, monkeypatch):
    X, y = blobs(rng, 200, 3)
    settings = {"rho": 100.0, "tol": 1e-5, "gamma": 0.3}
    there = OptimalNeighborhoodSVC(**settings, client=client).fit(X, y)
    assert there.result_.plan["processes"] == 2
    monkeypatch.setattr("dkl.blocks.session._current_client", lambda: None)
    for n_jobs in (1, 2):
        here = OptimalNeighborhoodSVC(**settings, n_jobs=n_jobs).fit(X, y)
        assert here.result_.plan["processes"] == 1
        for name in ("support_", "dual_coef_", "intercept_", "objective_", "duality_gap_"):
            assert getattr(here, name).tobytes() == getattr(there, name).tobytes()


@pytest.mark.exhaustive
def test_a_worker_that_dies_in_a_fit_changes_nothing(rng, no_room, tmp_path, monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(svm_start, "MAX_ROWS", 0)  # this process starts a machine of few rows, on a copy of its kernel

    X, y = blobs(rng, 100, 2)
    X[70, 0], mark = 13, tmp_path / "mark"  # the row that kills the first worker to meet it
    options = {"kernel": deadly_to_matrices, "kernel_params": {"gamma": 0.3, "mark": mark}, "tol": 0.1}
    mark.touch()  # nobody dies here
    wanted = OptimalNeighborhoodSVC(n_jobs=1, **options).fit(X, y)
    mark.unlink()
    local = LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
    )  # fmt: skip
    with local, Client(local) as own:
        found = OptimalNeighborhoodSVC(client=own, **options).fit(X, y)
    assert mark.exists() and found.result_.plan["placement"] == "recomputed"
    assert_array_equal(found.dual_coef_, wanted.dual_coef_)
    assert_array_equal(found.support_, wanted.support_)
