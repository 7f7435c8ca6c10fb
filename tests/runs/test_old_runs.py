"""Runs that earlier versions made still open, verify, load and resume. Each learner has a complete one and one that was
killed between two commits, with the same inputs and options, in tests/old_runs."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import call
from repeats import but_for

import dkl
from dkl.stores.run import RunStore
from dkl.stores.sealed_json import write_json

OLD = Path(__file__).parents[1] / "old_runs"
RESULT = {"pairwise": "factor", "regression": "model/weights", "svc": "model/coefficients"}
pytestmark = pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")


@pytest.fixture(params=but_for(["svc"], sorted(RESULT)))
def old(request, tmp_path, monkeypatch):
    """(task, folder with its inputs and both runs, which name the inputs where they stand now)."""
    folder = Path(shutil.copytree(OLD / request.param, tmp_path / "old"))
    for run in ("complete", "unfinished"):
        config = RunStore.open(folder / run).config
        for known in config["inputs"].values():
            known["path"] = str(folder / known["path"])
        write_json(folder / run / "config.json", config)
    monkeypatch.chdir(folder)
    return request.param, folder


def stored(task, run):
    return np.asarray(zarr.open_array(str(run / RESULT[task]), mode="r")[...])


def test_a_complete_one_opens_verifies_and_loads(old):
    task, folder = old
    run, model = dkl.open_run(folder / "complete"), dkl.load(folder / "complete")
    assert (run.task, run.is_complete) == (task, True)
    # Settings that came after these runs, as they were without.
    later = {
        "svc": {"holdout": 0.0},
        "regression": {"refit": "never", "holdout": 0.0},
        "pairwise": {"cv": 3, "n_gammas": 3, "contradictions": "keep", "wrong_pairs": "auto", "holdout": 0.0},
    }
    assert run.settings == run.report["settings"] | later.get(task, {}) | {"standardize": False}
    assert all(one.agrees for one in run.verify())
    assert call("verify", "complete").code == call("info", "complete").code == 0
    held = stored(task, folder / "complete")
    if task == "pairwise":
        assert model.factor_.tobytes() == held.tobytes()
    elif task == "svc":
        assert model.dual_coef_.tobytes() == held.tobytes()
    else:
        scale = RunStore.open(folder / "complete").read_arrays("candidates")["scale"]
        active = held[0] != 0
        assert model.coef_.tobytes() == (held[0][active] * scale[active]).tobytes()
    verb = "transform" if task == "pairwise" else "predict"
    assert call(verb, "complete", "--data", "X.npz", "--out", "out.npy").code == 0


def test_an_unfinished_one_is_resumed_to_the_complete_one(old):
    """To its very bytes on a processor of the kind that made it; here to what rounding leaves."""
    task, folder = old
    assert "complete" not in dkl.open_run(folder / "unfinished").state
    answer = call("resume", "unfinished", "--threads", "1")
    assert answer.code == (3 if task == "pairwise" else 0), answer.err
    found, wanted = stored(task, folder / "unfinished"), stored(task, folder / "complete")
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
    assert call("verify", "unfinished").code == 0
