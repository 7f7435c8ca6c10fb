"""`dkl fit mvu --constraints hard` and the verbs after it: what it refuses, keeps, proves and goes on from."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import Answer, call, tree
from command_runs import bytes_of, commits, refused
from numpy.testing import assert_allclose
from run_cases import change

import dkl
from dkl.errors import InterruptedRunError
from dkl.stores.run import RunStore

N = 60
FIT = ("fit", "mvu", "--no-picture", "--threads", "1", "--out", "run.zarr")
OPTIONS = {
    "hard": ("--data", "X.npz", "--constraints", "hard", "--n-neighbors", "5"),
    "at-most": ("--data", "X.npz", "--constraints", "at-most", "--n-neighbors", "4", "--tol", "1e-4"),
}
GIVEN = {"hard": {"n_neighbors": 5}, "at-most": {"n_neighbors": 4, "tol": 1e-4}}


def rolled():
    """Rows of a strip that is rolled up."""
    rng = np.random.default_rng(0)
    length = np.sort(rng.random(N)) * 9.0
    angle = 1.0 + length / 3.0
    return np.stack([2.0 * np.cos(angle), 2.0 * np.sin(angle), 3.0 * rng.random(N)], axis=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hard")
    np.savez(folder / "X.npz", X=rolled())
    np.savez(folder / "new.npz", X=rolled()[:7] + 1e-3)
    np.savez(folder / "equal.npz", X=np.ones((9, 2)))
    np.save(folder / "large.npy", np.zeros((200_000, 2), np.float32))
    return folder


@pytest.fixture
def work(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in files.iterdir():
        if path.is_file():
            Path(path.name).symlink_to(path)
    return tmp_path


@pytest.fixture(scope="module", params=[*OPTIONS])
def complete(request, files):
    """(the form, a complete run of it)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(files)
        answer = call(*FIT, *OPTIONS[request.param])
        assert answer.code == 0, answer.err
        Path("run.zarr").rename(f"{request.param}.zarr")
    return request.param, files / f"{request.param}.zarr"


@pytest.fixture
def run(complete, work):
    return Path(shutil.copytree(complete[1], "run.zarr"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--data", "X.npz", "--n-basis", "5"), 'n_basis: no effect with constraints="hard"; got 5'),
        (("--data", "X.npz", "--nu", "2"), 'nu: no effect with constraints="hard"'),
        (("--data", "X.npz", "--colored"), 'colored: no effect with constraints="hard"'),
        (("--data", "X.npz", "--solver", "sqlp"), 'solver: no effect with constraints="hard"'),
        (("--data", "equal.npz"), "all rows are equal"),
    ],
)
def test_what_cannot_be_learned_from(words, told, work):
    before = tree(work)
    answer = call(*FIT, "--constraints", "hard", *words)
    # Edges are searched by compiled functions, of which a note may tell before.
    refused(Answer(answer.code, answer.out, answer.err[answer.err.rindex("dkl: ") :]))
    assert told in answer.err and tree(work) == before


def test_what_does_not_fit_is_refused_before_any_row_is_read(work, monkeypatch):
    monkeypatch.setattr("dkl.runs.qsdp.basis.check_values", lambda rows: pytest.fail("it was read"))
    words = ("mvu", "--data", "large.npy", "--constraints", "at-most", "--memory-limit", "1 GB", "--out", "run.zarr")
    for verb in ("plan", "fit"):
        refused(call(verb, *words), 5)
    assert call("plan", *words[:6], "64 GB", *words[7:]).code == 0 and not Path("run.zarr").exists()


def test_the_plan_names_the_method_and_what_it_takes(work):
    small = call("plan", "mvu", *OPTIONS["hard"], "--out", "run.zarr")
    assert small.code == 0 and "a step of the interior point" in small.out and "constraints of a kernel" in small.out
    without = call("plan", "mvu", *OPTIONS["hard"], "--out", "run.zarr", "--memory-limit", "400 MB")
    assert without.code == 0 and "augmented Lagrangian" in without.out


def test_the_command_is_the_estimator_and_verified(complete, work):
    form, run = complete
    loaded, own = dkl.load(run), dkl.MaximumVarianceUnfolding(constraints=form, n_jobs=1, **GIVEN[form]).fit(rolled())
    for name in ("embedding_", "basis_", "basis_kernel_", "edges_"):
        assert np.array_equal(getattr(loaded, name), getattr(own, name)), name
    assert loaded.certificate_ == own.certificate_ and loaded.nu_ == np.inf and loaded.n_iter_ == own.n_iter_
    assert loaded.constraints == form and loaded.plot().axes
    answer = call("verify", run)
    assert answer.code == 0 and ("size of the face" in answer.out) == (form == "hard"), answer.err
    told = call("info", run)
    assert "proven relative gap" in told.out and "infeasibility" in told.out and "rank of the kernel" in told.out


def test_rows_are_placed(complete, work):
    """Those learned from where they are, others among their neighbors, as by the estimator."""
    _, run = complete
    model = dkl.load(run)
    assert call("transform", run, "--data", "X.npz", "--out", "own.npy").code == 0
    assert_allclose(np.load("own.npy"), model.embedding_, atol=1e-12)
    assert call("transform", run, "--data", "new.npz", "--out", "out.npy").code == 0
    spread = np.ptp(model.embedding_, axis=0).max()
    assert_allclose(np.load("out.npy"), model.embedding_[:7], atol=0.2 * spread)


@pytest.mark.parametrize(
    "array", ["rows/points", "basis/squared", "basis/widths", "model/Q", "model/Y", "model/embedding", "model/dual"]
)
def test_verify_holds_all_that_is_stored_together(array, run):
    """One number that is another, well sealed, in the report's eyes too."""
    change(run, array)
    answer = call("verify", run)
    assert answer.code == 6 and "other" in answer.err, answer.out


def test_a_bound_that_no_multipliers_prove_is_seen(run):
    """One that is nearer by a hundredth of the objective, and all other numbers of the report by it."""
    store = RunStore.open(run)
    report = store.report()
    told = report["certificate"]
    told["bound"] += 0.01 * abs(told["objective"])
    told["gap"] = told["objective"] - told["bound"]
    told["relative_gap"] = abs(told["gap"]) / max(abs(told["objective"]), abs(told["bound"]))
    store.write_report(report)
    answer = call("verify", run)
    assert answer.code == 6 and "bound" in answer.err


def test_multipliers_of_another_sign_prove_nothing_of_upper_bounds(complete, run):
    if complete[0] == "hard":
        pytest.skip("equations have multipliers of any sign")
    store = RunStore.open(run)
    model, report, squared = store.read_arrays("model"), store.report(), store.read_arrays("basis")["squared"]
    model["dual"][int(np.argmin(np.abs(model["dual"])))] = 1e-3
    report["dual_value"] = float(squared @ model["dual"])
    store.write_arrays("model", model)
    store.write_report(report)
    answer = call("verify", run)
    assert answer.code == 6 and "largest multiplier of an upper bound" in answer.err


def test_cliques_that_are_none_prove_no_face(complete, run):
    if complete[0] != "hard":
        pytest.skip("upper bounds leave no face")
    store = RunStore.open(run)
    model, edges = store.read_arrays("model"), store.read_arrays("basis")["edges"]
    near = {(int(i), int(j)) for i, j in edges}
    pair = next([i, j] for i in range(N) for j in range(i + 1, N) if (i, j) not in near)
    for rows, told in ((pair, "rows without all distances among them"), ([0, N], "row numbers out of range")):
        store.write_arrays("model", {**model, "cliques": np.array(rows), "clique_sizes": np.array([2])})
        store.write_report(store.report())
        answer = call("verify", run)
        assert answer.code == 6 and told in answer.err


class Away:
    """Ends a run at a row, to be resumed."""

    comes_back = True

    def __init__(self, iteration, stage=None):
        self.iteration, self.stage = iteration, stage

    def __call__(self, row):
        return row["iteration"] == self.iteration and self.stage in (None, row["stage"])


def test_a_run_goes_on_without_its_data_to_the_same_bytes(files, complete, work):
    _, done = complete
    run, wanted = Path(shutil.copytree(done, "run.zarr")), dkl.open_run(done).history
    shutil.rmtree(run / "model")
    (run / "report.json").unlink()
    (files / "X.npz").rename(files / "away.npz")
    try:
        for row in wanted[1:-1]:
            with pytest.raises(InterruptedRunError):
                dkl.resume(run, n_jobs=1, callbacks=Away(row["iteration"]))
            assert f"step {row['iteration']}" in dkl.open_run(run).state
        assert len(commits(run)) == len(wanted) - 2
        found = dkl.resume(run, n_jobs=1)
    finally:
        (files / "away.npz").rename(files / "X.npz")
    assert bytes_of(run, "model") == bytes_of(done, "model")
    assert without_seconds(found.result_.history) == without_seconds(wanted)
    assert call("verify", run).code == 0 and not (run / "engine").exists()


def without_seconds(history):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in history]


def test_a_run_goes_on_in_either_of_two_methods(work):
    """Of copies of rows, whose distances leave little room: factors stall, and the interior point has its turn."""
    rng = np.random.default_rng(3)
    np.savez("copies.npz", X=rng.standard_normal((40, 3))[rng.integers(0, 20, 40)])
    words = ("--data", "copies.npz", "--constraints", "hard", "--n-neighbors", "3", "--tol", "1e-8")
    assert call(*FIT, *words).code == 0
    done = dkl.open_run("run.zarr")
    history, wanted = done.history, bytes_of(Path("run.zarr"), "model")
    last = {row["stage"]: row["iteration"] for row in history}
    assert [*last] == ["solve", "interior"] and call("verify", "run.zarr").code == 0
    shutil.rmtree("run.zarr/model")
    shutil.rmtree("run.zarr/engine", ignore_errors=True)  # solved, it is not kept
    Path("run.zarr/report.json").unlink()
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


def test_damaged_distances_are_made_again(run, complete):
    wanted = bytes_of(run, "rows", "basis", "model")
    (file,) = (path for path in (run / "basis/squared").rglob("*") if path.is_file() and path.suffix == "")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 8
    file.write_bytes(content)
    assert call("verify", run).code == 6
    answer = call("resume", run, "--threads", "1")
    assert answer.code == 0 and "damaged" in answer.err, answer.err
    assert bytes_of(run, "rows", "basis", "model") == wanted


def test_more_steps_go_on_where_the_limit_was(complete, work):
    form, done = complete
    assert call(*FIT, *OPTIONS[form], "--max-iter", "3").code == 3
    assert call("verify", "run.zarr").code == 0
    assert call("resume", "run.zarr", "--max-iter", "200", "--threads", "1").code == 0
    assert bytes_of(Path("run.zarr"), "model") == bytes_of(done, "model")
