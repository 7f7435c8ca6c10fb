"""Complete runs of `dkl fit mvu` and `laplacian`, soft and hard: the estimator's, verified, disturbed and resumed to the same bytes."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import call
from command_runs import bytes_of, commits
from numpy.testing import assert_allclose
from run_cases import change, fit_hard_pairs, fit_unfolding, write_strip

import dkl
from dkl.errors import InterruptedRunError
from dkl.stores.run import RunStore

FIT = ("--no-picture", "--threads", "1", "--out", "run.zarr")
N = 70


@dataclass(frozen=True)
class Form:
    """A form of a learner. words: its fit; fit: the same by the estimator, of a folder; arrays: stored numbers that verify holds."""

    words: tuple[str, ...]
    fit: Callable[[Path], Any]
    arrays: tuple[str, ...]
    attributes: tuple[str, ...] = ("embedding_", "basis_", "basis_kernel_")
    damaged: tuple[str, ...] = ()

    @property
    def is_hard(self) -> bool:
        return "--constraints" in self.words


def unfolded(constraints, **given):
    def fit(folder):
        model = dkl.MaximumVarianceUnfolding(constraints=constraints, n_jobs=1, **given)
        return model.fit(np.load(folder / "X.npz")["X"])

    return fit


ROWS = ("rows/points", "basis/widths", "model/Y", "model/embedding", "model/dual")
DISTANCES = (*ROWS, "basis/squared")
OF_PAIRS = ("held_out/points", "held_out/relative_gap", "held_out/infeasibility")
FORMS = {
    "soft": Form(
        ("mvu", "--data", "X.npz", "--n-basis", "34", "--n-neighbors", "6", "--tol", "1e-10"),
        lambda folder: fit_unfolding(folder, {}),
        (*DISTANCES, "basis/Q", "basis/values"),
        damaged=("basis/Q", "rows/points"),
    ),
    "hard": Form(
        ("mvu", "--data", "X.npz", "--constraints", "hard", "--n-neighbors", "5"),
        unfolded("hard", n_neighbors=5),
        (*DISTANCES, "model/Q"),
        ("embedding_", "basis_", "basis_kernel_", "edges_"),
        damaged=("basis/squared",),
    ),
    "at-most": Form(
        ("mvu", "--data", "X.npz", "--constraints", "at-most", "--n-neighbors", "4", "--tol", "1e-4"),
        unfolded("at-most", n_neighbors=4, tol=1e-4),
        (*DISTANCES, "model/Q"),
        ("embedding_", "basis_", "basis_kernel_", "edges_"),
    ),
    "pairs": Form(
        ("laplacian", "--data", "X.npz", "--pairs", "hard.csv", "--constraints", "hard", "--n-neighbors", "6", "--holdout", "0.4"),
        lambda folder: fit_hard_pairs(folder, {}),
        (*ROWS, "model/Q", "basis/couplings", *OF_PAIRS),
        damaged=("basis/couplings", "rows/points"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forms")
    write_strip(folder)
    np.savez(folder / "new.npz", X=np.load(folder / "X.npz")["X"][:7] + 1e-3)
    return folder


@pytest.fixture
def work(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in files.iterdir():
        if path.is_file():
            Path(path.name).symlink_to(path)
    return tmp_path


@pytest.fixture(scope="module")
def runs(files):
    """A function from a form's name to a complete run of it, made once."""

    def made(name):
        if not (files / f"{name}.zarr").exists():
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(files)
                answer = call("fit", *FORMS[name].words, *FIT)
                assert answer.code == 0, answer.err
                Path("run.zarr").rename(f"{name}.zarr")
        return files / f"{name}.zarr"

    return made


def copy_of(done):
    return Path(shutil.copytree(done, "run.zarr"))


def begun_again(done):
    """A copy of a run that has its problem, and no result."""
    run = copy_of(done)
    for part in ("model", "held_out", "engine"):
        shutil.rmtree(run / part, ignore_errors=True)
    (run / "report.json").unlink()
    return run


def without_seconds(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


class Away:
    """Ends a run at a row, to be resumed."""

    comes_back = True

    def __init__(self, iteration, stage=None):
        self.iteration, self.stage = iteration, stage

    def __call__(self, row):
        return row["iteration"] == self.iteration and self.stage in (None, row["stage"])


@pytest.mark.parametrize("name", [*FORMS])
def test_the_command_is_the_estimator_and_verified(name, files, runs, work):
    run, form = runs(name), FORMS[name]
    loaded, own = dkl.load(run), form.fit(files)
    for attribute in form.attributes:
        assert np.array_equal(getattr(loaded, attribute), getattr(own, attribute)), attribute
    assert loaded.certificate_ == own.certificate_ and loaded.n_iter_ == own.n_iter_
    assert loaded.result_.quality == own.result_.quality and loaded.result_.quality is not None
    assert loaded.constraints == own.constraints and loaded.plot().axes
    answer = call("verify", run)
    assert answer.code == 0 and "quality of the alternative" in answer.out, answer.err
    assert ("size of the face" in answer.out) == (name == "hard")
    told = call("info", run)
    assert "proven relative gap" in told.out and ("rank of the kernel" in told.out) == form.is_hard
    assert call("info", run, "--picture", "picture.png").code == 0


@pytest.mark.parametrize("name", [*FORMS])
def test_rows_are_placed(name, runs, work):
    """Those learned from where they are, others among their neighbors, as by the estimator."""
    model = dkl.load(runs(name))
    for data in ("X.npz", "new.npz"):
        assert call("transform", runs(name), "--data", data, "--out", f"{data}.npy").code == 0
        assert_allclose(np.load(f"{data}.npy"), model.transform(np.load(data)["X"]), atol=1e-12)
    assert_allclose(np.load("X.npz.npy"), model.embedding_, atol=1e-12)
    spread = np.ptp(model.embedding_, axis=0).max()
    assert_allclose(np.load("new.npz.npy"), model.embedding_[:7], atol=0.2 * spread)


def test_pairs_hold_in_what_is_handed_out(runs, work):
    E, basis = dkl.load(runs("pairs")).embedding_, RunStore.open(runs("pairs")).read_arrays("basis")
    for ends, wanted in (("must_link", 1.0), ("cannot_link", 0.0)):
        i, j = basis[ends].T
        assert len(i) > 5
        assert_allclose(np.sum(E[i] * E[j], axis=1), wanted, atol=1e-5)
    assert_allclose(np.square(E).sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name, form in FORMS.items() for array in form.arrays], ids=str
)
def test_verify_holds_all_that_is_stored_together(name, array, runs, work):
    """One number that is another, well sealed, in the report's eyes too."""
    run = copy_of(runs(name))
    change(run, array, -1e-3 if array.endswith("relative_gap") else 1e-3)  # a gap may be less than is claimed
    answer = call("verify", run)
    assert answer.code == 6 and "other" in answer.err, answer.out


@pytest.mark.parametrize("name", ["hard", "at-most", "pairs"])
def test_a_bound_that_no_multipliers_prove_is_seen(name, runs, work):
    """One that is nearer by a hundredth of the objective, and all other numbers of the report by it."""
    store = RunStore.open(copy_of(runs(name)))
    report = store.report()
    told = report["certificate"]
    told["bound"] += 0.01 * abs(told["objective"])
    told["gap"] = told["objective"] - told["bound"]
    told["relative_gap"] = abs(told["gap"]) / max(abs(told["objective"]), abs(told["bound"]))
    store.write_report(report)
    answer = call("verify", "run.zarr")
    assert answer.code == 6 and "bound" in answer.err


@pytest.mark.parametrize("part", ["must_link", "cannot_link"])
def test_pairs_of_other_rows_are_seen(part, runs, work):
    """One pair whose second row is one of the other side."""
    store = RunStore.open(copy_of(runs("pairs")))
    basis, E = store.read_arrays("basis"), dkl.load("run.zarr").embedding_
    is_same = E @ E[basis[part][0, 0]] > 0.5
    basis[part][0, 1] = np.flatnonzero(is_same == (part == "cannot_link"))[-1]
    store.write_arrays("basis", basis)
    store.write_report(store.report())
    assert call("verify", "run.zarr").code == 6


def test_pairs_that_contradict_each_other_are_not_of_a_run(runs, work):
    """Well sealed: neither verified, nor loaded, nor resumed from."""
    store = RunStore.open(copy_of(runs("pairs")))
    basis = store.read_arrays("basis")
    basis["cannot_link"][0] = basis["must_link"][0]
    store.write_arrays("basis", basis)
    store.write_report(store.report())
    assert call("verify", "run.zarr").code == 6
    with pytest.raises(dkl.errors.StoreError, match="must-link"):
        dkl.load("run.zarr")


def test_multipliers_of_another_sign_prove_nothing_of_upper_bounds(runs, work):
    store = RunStore.open(copy_of(runs("at-most")))
    model, report, squared = store.read_arrays("model"), store.report(), store.read_arrays("basis")["squared"]
    model["dual"][int(np.argmin(np.abs(model["dual"])))] = 1e-3
    report["dual_value"] = float(squared @ model["dual"])
    store.write_arrays("model", model)
    store.write_report(report)
    answer = call("verify", "run.zarr")
    assert answer.code == 6 and "largest multiplier of an upper bound" in answer.err


def test_cliques_that_are_none_prove_no_face(runs, work):
    store = RunStore.open(copy_of(runs("hard")))
    model, edges = store.read_arrays("model"), store.read_arrays("basis")["edges"]
    near = {(int(i), int(j)) for i, j in edges}
    pair = next([i, j] for i in range(N) for j in range(i + 1, N) if (i, j) not in near)
    for rows, told in ((pair, "rows without all distances among them"), ([0, N], "row numbers out of range")):
        store.write_arrays("model", {**model, "cliques": np.array(rows), "clique_sizes": np.array([2])})
        store.write_report(store.report())
        answer = call("verify", "run.zarr")
        assert answer.code == 6 and told in answer.err


@pytest.mark.parametrize("name", [*FORMS])
def test_a_run_goes_on_from_any_step_without_its_data(name, files, runs, work):
    """To the same bytes and the same history, with neither rows nor graph made again."""
    done = runs(name)
    run, wanted = begun_again(done), dkl.open_run(done).history
    if name == "soft":
        assert len(wanted) > 6 and {row["step"] for row in wanted} >= {"gradient", "newton"}
    (files / "X.npz").rename(files / "away.npz")
    try:
        for row in wanted[1:-1]:
            with pytest.raises(InterruptedRunError):
                dkl.resume(run, n_jobs=1, callbacks=Away(row["iteration"]))
            assert f"step {row['iteration']}" in dkl.open_run(run).state
        assert len(commits(run)) == len(wanted) - 2 >= 1
        found = dkl.resume(run, n_jobs=1)
    finally:
        (files / "away.npz").rename(files / "X.npz")
    for part in ("model", "held_out") if name == "pairs" else ("model",):
        assert bytes_of(run, part) == bytes_of(done, part)
    assert without_seconds(found.result_.history) == without_seconds(wanted)
    assert call("verify", run).code == 0 and not (run / "engine").exists()


def test_a_run_that_ends_while_its_quality_is_measured_is_not_solved_again(runs, work, monkeypatch):
    """By Ctrl-C: what was solved is committed, and the rest is done from there."""
    done = runs("pairs")
    run = begun_again(done)

    def interrupted(*given, **more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dkl.estimators.qsdp.laplacian.fit.hold_out", interrupted)
        with pytest.raises((KeyboardInterrupt, InterruptedRunError)):
            dkl.resume(run, n_jobs=1)
    last = dkl.open_run(done).history[-1]["iteration"]
    assert f"step {last}" in dkl.open_run(run).state
    seen = []
    dkl.resume(run, n_jobs=1, callbacks=seen.append)
    assert bytes_of(run, "model", "held_out") == bytes_of(done, "model", "held_out") and not seen


def test_a_run_goes_on_in_either_of_two_methods(work):
    """Of copies of rows, whose distances leave little room: factors stall, and the interior point has its turn."""
    rng = np.random.default_rng(3)
    np.savez("copies.npz", X=rng.standard_normal((40, 3))[rng.integers(0, 20, 40)])
    words = ("--data", "copies.npz", "--constraints", "hard", "--n-neighbors", "3", "--tol", "1e-8")
    assert call("fit", "mvu", *FIT, *words).code == 0
    done = dkl.open_run("run.zarr")
    history, wanted = done.history, bytes_of(Path("run.zarr"), "model")
    last = {row["stage"]: row["iteration"] for row in history}
    assert [*last] == ["solve", "interior"] and call("verify", "run.zarr").code == 0
    Path("run.zarr").rename("done.zarr")
    begun_again("done.zarr")
    ends = [
        ("solve", 1),
        ("solve", 10),
        ("solve", last["solve"]),
        ("interior", 0),
        ("interior", 7),
        ("interior", last["interior"] - 1),
    ]
    for stage, iteration in ends:
        with pytest.raises(InterruptedRunError):
            dkl.resume("run.zarr", n_jobs=1, callbacks=Away(iteration, stage))
    found = dkl.resume("run.zarr", n_jobs=1)
    assert bytes_of(Path("run.zarr"), "model") == wanted
    assert without_seconds(found.result_.history) == without_seconds(history)


@pytest.mark.parametrize(
    ("name", "array"), [(name, array) for name, form in FORMS.items() for array in form.damaged], ids=str
)
def test_what_is_damaged_is_made_again(name, array, runs, work):
    """From the rows' file."""
    run = copy_of(runs(name))
    wanted = bytes_of(run, "rows", "basis", "model")
    (file,) = (path for path in (run / array).rglob("*") if path.is_file() and path.suffix == "")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    assert call("verify", run).code == 6
    answer = call("resume", run, "--threads", "1")
    assert answer.code == 0 and "damaged" in answer.err, answer.err
    assert bytes_of(run, "rows", "basis", "model") == wanted


@pytest.mark.parametrize("name", [*FORMS])
def test_more_steps_go_on_where_the_limit_was(name, runs, work):
    most = {"soft": "4", "pairs": "2"}.get(name, "3")
    limited = call("fit", *FORMS[name].words, *FIT, "--max-iter", most)
    assert limited.code == 3 and "raise --max-iter" in limited.err and call("verify", "run.zarr").code == 0
    again = call("resume", "run.zarr")
    assert again.code == 3 and "nothing to do" in again.out and "raise --max-iter" in again.err
    answer = call("resume", "run.zarr", "--max-iter", "200", "--threads", "1")
    assert answer.code == 0 and bytes_of(Path("run.zarr"), "model") == bytes_of(runs(name), "model")
    assert "solve 0" not in answer.err
