"""The rho of a classifier's run: stored for each machine, shown, verified against its rule."""

import pytest
from command_line import call
from command_runs import copied
from svc_files import FIT, write_inputs

import dkl
from dkl.stores.run import RunStore


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scaled")
    write_inputs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        answer = call(*FIT, "--C", "0.5", "--class-weight", "balanced", "--multi-class", "ovr")
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def run(fitted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    return copied(fitted, tmp_path)


def test_it_is_stored_shown_and_loaded(run):
    store = RunStore.open(run)
    assert store.config["settings"]["rho"] == store.report()["settings"]["rho"] == "scale"
    rhos = [output["rho"] for output in store.report()["outputs"]]
    assert len(rhos) == 4 and max(rhos) > 1.01 * min(rhos)
    shown = call("info", "run.zarr").out
    assert f'{min(rhos):.6g} to {max(rhos):.6g}   by the rule "scale"' in shown
    model = dkl.load("run.zarr")
    assert model.rho == "scale" and model.rho_.tolist() == rhos


def test_verify_holds_it_to_the_rule(run):
    answer = call("verify", "run.zarr")
    assert answer.code == 0 and "rho of machine 4" in answer.out, answer.err
    store = RunStore.open(run)
    report = store.report()
    report["outputs"][1]["rho"] *= 1 + 1e-6
    store.write_report(report)
    answer = call("verify", "run.zarr")
    assert answer.code == 6 and "rho of machine 2" in answer.err


def test_a_report_that_lacks_it_is_damaged(run):
    store = RunStore.open(run)
    report = store.report()
    del report["outputs"][0]["rho"]
    store.write_report(report)
    for verb in ("info", "verify"):
        answer = call(verb, "run.zarr")
        assert (answer.code, len(answer.err.splitlines())) == (6, 1) and "damaged report" in answer.err
    with pytest.raises(dkl.errors.StoreError, match="damaged"):
        dkl.load("run.zarr")


def test_a_word_that_is_none(run):
    answer = call("plan", *FIT[1:], "--rho", "scaled")
    assert (answer.code, len(answer.err.splitlines())) == (2, 1)
    assert "rho" in answer.err and "'scale'" in answer.err
