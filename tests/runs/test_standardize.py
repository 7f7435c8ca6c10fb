"""`--standardize` in runs: the scale is kept, applied to whatever the run reads, verified, and the same however the run got there."""

from pathlib import Path

import numpy as np
import pytest
from command_line import call
from repeats import but_for
from run_cases import CASES, change
from sklearn.preprocessing import StandardScaler

import dkl
from dkl.runs import registry

pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
UNITS, OFFSETS = np.array([3.0, 2e4, 0.1, 5, 1, 7]), np.array([0, 1e5, 3, -8, 0, 1])


def write(task, folder):
    """(rows, the same by scikit-learn's StandardScaler): the inputs of a task's case, in mixed units."""
    CASES[task].write(folder)
    with np.load(folder / "X.npz") as held:
        arrays = dict(held)
    d = arrays["X"].shape[1]
    arrays["X"] = X = arrays["X"] * UNITS[:d] + OFFSETS[:d]
    np.savez(folder / "X.npz", **arrays)
    scaled = StandardScaler().fit_transform(X)
    np.savez(folder / "scaled.npz", **{**arrays, "X": scaled})
    return X, scaled


def fit(task, out, *more):
    case = CASES[task]
    return call("fit", task, *case.files, *case.options, "--threads", "1", "--no-picture", "--out", out, *more)


@pytest.fixture(scope="module", params=but_for(("laplacian", "logdet", "metric", "svc"), registry.TASKS))
def runs(request, tmp_path_factory):
    """(task, folder with a run of rows in mixed units, standardized, and one of rows that were scaled before, what was answered)."""
    folder, task = tmp_path_factory.mktemp(request.param), request.param
    X, scaled = write(task, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer = fit(task, "run.zarr")
        before = ["scaled.npz" if word == "X.npz" else word for word in CASES[task].files]
        case = CASES[task]
        call(
            "fit",
            task,
            *before,
            *case.options,
            "--threads",
            "1",
            "--no-picture",
            "--no-standardize",
            "--out",
            "before.zarr",
        )
    return task, folder, X, scaled, answer


@pytest.fixture(autouse=True)
def here(runs, monkeypatch):
    monkeypatch.chdir(runs[1])


def applied(task, run, rows, out):
    np.save("new.npy", rows)
    answer = call(registry.declaration(task).verb, run, "--data", "new.npy", "--out", out)
    assert answer.code == 0, answer.err
    found = np.load(out)
    return found if found.ndim == 1 or found.dtype.kind not in "f" or task == "regression" else found @ found.T


def test_a_run_is_that_of_rows_scaled_before(runs):
    task, _, X, scaled, answer = runs
    assert "columns decide most of all distances: 1; " in answer.err and "--no-standardize leaves" in answer.err
    mixed, new = X[:20] + 0.01 * X.std(axis=0), scaled[:20] + 0.01
    found = applied(task, "run.zarr", mixed, "p.npy")
    expected = applied(task, "before.zarr", new, "q.npy")
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    else:
        assert (found == expected).all()
    Path("p.npy").unlink()
    Path("q.npy").unlink()


def test_what_is_loaded_scales_new_rows(runs):
    task, _, X, _, _ = runs
    model, verb = dkl.load("run.zarr"), registry.declaration(task).verb
    np.testing.assert_allclose(model.scale_.spreads, X.std(axis=0), rtol=1e-9)
    new = X[:20] + 0.01 * X.std(axis=0)
    np.save("new.npy", new)
    assert call(verb, "run.zarr", "--data", "new.npy", "--out", "r.npy").code == 0
    found = getattr(model, verb)(new)
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, np.load("r.npy"), rtol=1e-9, atol=1e-12)
    Path("r.npy").unlink()


def test_verify_recomputes_the_scale_and_info_says_it(runs):
    assert call("verify", "run.zarr").code == 0
    assert "standardized to mean 0 and spread 1" in call("info", "run.zarr").out
    assert "standardized to" not in call("info", "before.zarr").out


def test_verify_sees_a_changed_scale(runs, tmp_path):
    """Of a run whose seals fit, as one that wrote another number from the start."""
    import shutil

    from dkl.stores.run import RunStore

    run = Path(shutil.copytree("run.zarr", tmp_path / "other.zarr"))
    change(run, "column_scale/spreads")
    store = RunStore.open(run)
    report = store.report()
    (run / "report.json").unlink()
    store.write_report(report)
    answer = call("verify", str(run))
    assert answer.code == 6 and "spread of column 1 " in answer.out, answer.err


def test_a_resumed_run_has_the_bytes_of_one_that_was_not_disturbed(runs, tmp_path):
    import shutil

    from command_runs import bytes_of

    task = runs[0]
    run = Path(shutil.copytree("run.zarr", tmp_path / "run.zarr"))
    (run / "report.json").unlink()
    shutil.rmtree(run / "column_scale")
    for part in ("graph", "basis", "model", "candidates"):  # so that rows are read again
        shutil.rmtree(run / part, ignore_errors=True)
    if task == "pairwise":
        shutil.rmtree(run / "pairs")
        shutil.rmtree(run / "generations", ignore_errors=True)
        shutil.rmtree(run / "factor", ignore_errors=True)
    answer = call("resume", str(run))
    assert answer.code in (0, 3), answer.err
    assert bytes_of(run, "column_scale", *CASES[task].result) == bytes_of(
        Path("run.zarr"), "column_scale", *CASES[task].result
    )


def test_pictures_of_a_standardized_run(runs):
    pytest.importorskip("matplotlib")
    assert call("info", "run.zarr", "--picture", "p.png").code == 0
    Path("p.png").unlink()


def test_a_precomputed_kernel_is_refused(runs):
    task = runs[0]
    if task not in ("svc", "regression", "logdet"):
        pytest.skip("takes no precomputed kernel")
    for verb in ("fit", "plan"):
        answer = call(verb, task, *CASES[task].files, "--kernel", "precomputed", "--standardize", "--out", "none.zarr")
        assert answer.code == 2 and "standardize: a precomputed matrix" in answer.err, answer.err
    assert not Path("none.zarr").exists()
