"""LowRankKernelRegressor on threads and on workers: the same bits, also when workers die; bad rows are told from afar."""

import os
import pickle
import signal
import time

import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster
from on_workers import Foreign, deadly
from patience import PATIENCE
from repeats import but_for, crossed
from sklearn.base import clone

from dkl import LowRankKernelRegressor
from dkl.blocks.rows import row_groups
from dkl.blocks.workers import waiting
from dkl.errors import InputError, MemoryBudgetError
from dkl.linalg.kernels import kernel_columns
from dkl.solvers.watch import Outcome

N = 5000
pytestmark = pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning")


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Blocks and groups of a few rows, so that small data has many: eight groups."""
    monkeypatch.setattr(kernel_columns, "LARGEST_BLOCK", 300)
    monkeypatch.setattr(row_groups, "ROWS_IN_GROUP", 512)


@pytest.fixture
def rows(rng):
    return rng.standard_normal((N, 4))


@pytest.fixture
def targets(rows, rng):
    return np.stack([np.sin(2 * rows[:, 0]), rows[:, 1] ** 2], axis=1) + 0.1 * rng.standard_normal((N, 2))


def model(**choices):
    given = {"gamma": 0.3, "nu": 0.5, "n_columns": 25, "random_state": 0, "n_jobs": 1}
    return LowRankKernelRegressor(**given | choices)


def bits(fitted):
    errors = b"" if fitted.cv_ is None else fitted.cv_.errors.tobytes()
    parts = (fitted.columns_, fitted.coef_, np.asarray(fitted.intercept_), np.asarray(fitted.objective_))
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts) + errors


def local_cluster(n_workers, **choices):
    given = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    given["scheduler_kwargs"] = {"dashboard_address": "127.0.0.1:0"}  # the default port may be taken
    return LocalCluster(n_workers=n_workers, **given | choices)


KINDS = {"number": {}, "cross-validation": {"nu": "cv", "n_nus": 8}, "Cholesky": {"columns": "rpcholesky"},
         "single": {"dtype": "float32"}}  # fmt: skip


@pytest.mark.filterwarnings("ignore:not converged")  # rounding of single precision is more than is asked for
@pytest.mark.parametrize("kind", but_for(["number", "Cholesky"], KINDS))
def test_threads_and_workers_give_the_same_bits(rows, targets, client, kind, rng):
    weights = rng.integers(0, 3, N).astype(float)
    wanted = bits(model(**KINDS[kind]).fit(rows, targets, sample_weight=weights))
    for threads in (2, 3):
        assert bits(model(n_jobs=threads, **KINDS[kind]).fit(rows, targets, sample_weight=weights)) == wanted
    assert bits(model(client=client, **KINDS[kind]).fit(rows, targets, sample_weight=weights)) == wanted


@pytest.mark.exhaustive
@pytest.mark.parametrize(("n_workers", "threads"), [(1, 2), (4, 1), (3, 2)])
def test_any_number_of_workers_gives_the_same_bits(rows, targets, n_workers, threads):
    cases = {"number": {}, "cross-validation": {"nu": "cv", "n_nus": 5}}
    wanted = {name: bits(model(client=None, **case).fit(rows, targets)) for name, case in cases.items()}
    with (
        local_cluster(n_workers, threads_per_worker=threads, processes=False, protocol="tcp://") as cluster,
        Client(cluster) as client,
    ):
        for name, case in cases.items():
            assert bits(model(client=client, **case).fit(rows, targets)) == wanted[name], name


@pytest.mark.exhaustive
def test_every_kind_of_rows_on_workers(rows, targets, client, tmp_path):
    np.save(tmp_path / "x.npy", rows)
    forms = {
        "memory map": np.load(tmp_path / "x.npy", mmap_mode="r"),
        "path": tmp_path / "x.npy",
        "zarr": zarr.create_array(str(tmp_path / "x.zarr"), data=rows, chunks=(333, 3)),
        "Fortran order": np.asfortranarray(rows),
        "dask": da.from_array(rows, chunks=(777, 3)),
        "foreign": Foreign(rows),
    }
    here = model().fit(rows, targets)
    predicted = here.predict(rows)
    for name, form in forms.items():
        got = model(client=client).fit(form, targets)
        assert bits(got) == bits(here), name
        np.testing.assert_array_equal(got.predict(form), predicted, err_msg=name)
    sparse = sp.csr_array(np.where(rows > 0, rows, 0))
    assert bits(model(client=client).fit(sparse, targets)) == bits(model().fit(sparse, targets))


def test_targets_as_dask_arrays(rows, targets, client):
    got = model(client=client).fit(da.from_array(rows, chunks=(700, 4)), da.from_array(targets, chunks=(900, 2)))
    assert bits(got) == bits(model().fit(rows, targets))


def test_the_current_client_is_found_and_neither_cloned_nor_pickled(rows, targets, client):
    found = model().fit(rows, targets)
    given = model(client=client).fit(rows, targets)
    assert found.result_.plan["processes"] == given.result_.plan["processes"] == 2
    assert clone(given).client is client
    again = pickle.loads(pickle.dumps(given))
    assert again.client is None
    np.testing.assert_array_equal(again.predict(rows), given.predict(rows))


@pytest.mark.parametrize(("place", "value"), crossed(["here", "workers"], [np.nan, np.inf]))
def test_one_bad_value_is_told_with_its_place(rows, targets, client, tmp_path, place, value):
    bad = rows.copy()
    bad[4321, 2] = value
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=bad, chunks=(400, 4))
    (tmp_path / "work").mkdir()
    learner = model(client=client if place == "workers" else None, work_dir=tmp_path / "work", columns=np.arange(20))
    for form in (stored, da.from_array(bad, chunks=(800, 4)), Foreign(bad)):
        with pytest.raises(InputError, match=r"^X\[4321, 2\]: Input X contains (NaN|infinity)"):
            learner.fit(form, targets)
        assert list((tmp_path / "work").iterdir()) == []
    fitted = model(client=client if place == "workers" else None).fit(rows, targets)
    with pytest.raises(InputError, match=r"^X\[4321, 2\]"):
        fitted.predict(stored)


def test_a_callback_ends_a_pass_on_workers(rows, targets, client, interrupts):
    stopped = model(client=client, callbacks=lambda row: True).fit(rows, targets)
    assert stopped.result_.outcome is Outcome.STOPPED and len(stopped.result_.history) == 1
    with pytest.raises(KeyboardInterrupt):
        model(client=client, callbacks=lambda row: signal.raise_signal(signal.SIGINT)).fit(rows, targets)
    assert bits(model(client=client).fit(rows, targets)) == bits(model().fit(rows, targets))


def test_rows_that_workers_have_no_room_for_are_sent_in_small_pieces(rows, targets, client, monkeypatch):
    monkeypatch.setattr(row_groups, "ROWS_IN_GROUP", 256)  # sixteen groups: of a worker's, four fit
    enough = model(client=client, holdout=0).fit(rows, targets).result_.plan
    rows_bytes = enough["items"]["rows"]
    tight = enough["process_bytes"] - rows_bytes // 3
    got = model(client=client, memory_limit=tight, holdout=0).fit(rows, targets)
    assert got.result_.plan["items"]["rows"] < rows_bytes
    assert bits(got) == bits(model(holdout=0).fit(rows, targets))
    with pytest.raises(MemoryBudgetError, match="memory_limit"):
        model(client=client, memory_limit=enough["base"] + rows_bytes, holdout=0).fit(rows, targets)


# -- workers that die ---------------------------------------------------------------------------------------------------


@pytest.fixture
def mortal(monkeypatch):
    """A cluster that is there to be killed."""
    monkeypatch.setattr(waiting, "LOOK_AGAIN_SECONDS", 0.3)
    with (
        # Else a worker that a loaded machine takes 15 s to start again is let go for good.
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        local_cluster(2) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.exhaustive
def test_fits_outlive_workers_killed_in_the_pass_and_between_waves(rows, targets, mortal, tmp_path):
    def kill(client, how_many):
        pids = client.run(os.getpid)
        for pid in list(pids.values())[:how_many]:
            os.kill(pid, signal.SIGKILL)

    # In the midst of a block, by its kernel.
    few, y = rows[:1200].copy(), targets[:1200]
    few[700, 0] = 13
    (tmp_path / "spared").touch()
    points = rows[2000:2003]
    parameters = {"gamma": 0.3, "mark": tmp_path / "spared"}
    wanted = bits(model(kernel=deadly, kernel_params=parameters, columns=points).fit(few, y))
    parameters = {"gamma": 0.3, "mark": tmp_path / "killed"}
    learner = model(kernel=deadly, kernel_params=parameters, columns=points, client=mortal)
    assert bits(learner.fit(few, y)) == wanted and (tmp_path / "killed").exists()

    # After the first wave: one of them, then all.
    wanted = bits(model().fit(rows, targets))
    stored = zarr.create_array(str(tmp_path / "x.zarr"), data=rows, chunks=(700, 4))
    for how_many, form in ((1, rows), (2, da.from_array(rows, chunks=(700, 4))), (2, stored)):
        waves = []

        def after(row, waves=waves, how_many=how_many):
            waves.append(row["iteration"])
            if len(waves) == 1:
                assert row["iteration"] < row["of"]
                mortal.wait_for_workers(2, timeout=PATIENCE)
                kill(mortal, how_many)
                time.sleep(0.2)

        assert bits(model(client=mortal, callbacks=after).fit(form, targets)) == wanted
        assert len(waves) > 1
