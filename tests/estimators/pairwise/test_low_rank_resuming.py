"""A fit of pairs that ends within the factored solver, resumed: the bytes of one that was never interrupted, wherever it goes on."""

import errno
import gc
import logging

import numpy as np
import pytest
from pairwise_cases import hard_rows
from repeats import but_for
from small_blocks import Writes

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_worker
from dkl.blocks.workers import waiting
from dkl.blocks.workers.spmd import JointWork
from dkl.errors import DiskError, InterruptedRunError, WorkersLostError
from dkl.estimators.pairwise import plan
from dkl.estimators.pairwise.arrays import SEARCH_FOLDER, history
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.estimators.pairwise.store import report_of, write_result
from dkl.problems.pairwise import terms
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.solvers.pairwise.descent import _Descent
from dkl.solvers.watch import Watch
from dkl.stores.run import RunStore
from dkl.stores.seals import read_json, write_json

N = 450
HOW = {"rank": 8, "gamma": 10.0, "target_gap": 1e-6, "seed": 3}
FACTORED, ADMM = HOW | {"solver": "factored"}, HOW | {"solver": "admm", "max_iter": 60, "tol": 1e-3}


@pytest.fixture(scope="module")
def problem():
    X, must, cannot = hard_rows(N, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", warns_of_cuts=False, session=Session(None, threads=1)
    )
    weights = np.random.default_rng(0).uniform(0.5, 2, len(must) + len(cannot))
    return make_problem(graph.laplacian, dkl.Pairs(must, cannot, weights=weights), HOW["gamma"])


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(terms, "LEAST_ROWS", 64)
    monkeypatch.setattr(plan, "WORTHWHILE", 0)  # on workers wherever there is a client


def begin(path, settings):
    """A new run."""
    return RunStore.create(path, {"task": "pairwise", "settings": settings.as_dict()})


def ending_at(row, *, comes_back):
    """A callback: at that row the run is to be resumed, or what computes it dies."""

    def callback(one):
        if one["iteration"] == row and not comes_back:
            raise RuntimeError("killed")
        return one["iteration"] == row

    callback.comes_back = comes_back
    return callback


def fitted(problem, run, how, client=None, **watching):
    return fit_problem(problem, PairwiseSettings(**how), Session(client, threads=1), run=run, watch=Watch(**watching))


@pytest.fixture(scope="module")
def whole(problem, tmp_path_factory):
    """By settings: the fit that nothing interrupts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "LEAST_ROWS", 64)
        found = {}
        for name, how in (("factored", FACTORED), ("admm", ADMM)):
            run = begin(tmp_path_factory.mktemp(name) / "run", PairwiseSettings(**how))
            found[name] = fitted(problem, run, how)
            run.close()
    rounds = [row["iteration"] for row in found["factored"].result.history if row["relative_gap"] is not None]
    assert len(rounds) >= 3 and {row["stage"] for row in found["admm"].result.history} == {"admm", "finish"}
    return found


def same(one, other):
    assert one.factor.tobytes() == other.factor.tobytes()
    assert one.certificate.as_dict() == other.certificate.as_dict()
    for name in ("lift", "pair_lift", "direction"):
        assert getattr(one.certificate, name).tobytes() == getattr(other.certificate, name).tobytes()
    assert one.result.outcome == other.result.outcome
    drop = {"seconds": 0, "of": 0}
    assert [row | drop for row in one.result.history] == [row | drop for row in other.result.history]


def interrupted(problem, path, how, row, *, comes_back=True, client=None, **more):
    """The run, left at a row of the history."""
    run, error = begin(path, PairwiseSettings(**how)), InterruptedRunError if comes_back else RuntimeError
    with pytest.raises(error):
        fitted(problem, run, how | more, client, callbacks=[ending_at(row, comes_back=comes_back)])
    return run


def rounds_of(found):
    return [row["iteration"] for row in found.result.history if row.get("relative_gap") is not None]


@pytest.mark.parametrize(
    "place", but_for(["first", "after a round", "late"], ["first", "early", "round", "after a round", "late"])
)
def test_an_interrupted_run_continues_at_its_row(problem, whole, tmp_path, place):
    rounds = rounds_of(whole["factored"])
    row = {"first": 1, "early": 20, "round": rounds[0], "after a round": rounds[0] + 1, "late": rounds[-1] - 1}[place]
    run = interrupted(problem, tmp_path / "run", FACTORED, row)
    assert history(run)[-1]["iteration"] == row
    before = len(run.events())
    same(fitted(problem, run, FACTORED), whole["factored"])
    again = [event["iteration"] for event in run.events()[before:] if event["event"] == "iteration"]
    assert again[0] == row + 1, "nothing is computed twice"


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", but_for([0, 1, 3], range(4)))
def test_what_is_killed_continues_from_its_last_commit(problem, whole, tmp_path, place):
    rounds, how = rounds_of(whole["factored"]), {"checkpoint_every": 10}
    row = (3, 26, rounds[0] + 8, rounds[1] + 2)[place]
    run = interrupted(problem, tmp_path / "run", FACTORED, row, comes_back=False, **how)
    before = len(run.events())
    same(fitted(problem, run, FACTORED | how), whole["factored"])
    again = [event["iteration"] for event in run.events()[before:] if event["event"] == "iteration"]
    assert again[0] == 10 * ((row - 1) // 10) + 1


def test_the_finish_continues_without_admm(problem, whole, tmp_path):
    stages = [row["stage"] for row in whole["admm"].result.history]
    row = stages.index("finish") + 12
    run = interrupted(problem, tmp_path / "run", ADMM, row)
    before = len(run.events())
    same(fitted(problem, run, ADMM), whole["admm"])
    assert {event["stage"] for event in run.events()[before:] if event["event"] == "iteration"} == {"finish"}


DAMAGED = ["descent-*/v/c/0/0", "descent-*/MANIFEST.json", "round-*/vectors/c/0/0"]


@pytest.mark.parametrize("damaged", but_for(DAMAGED[1:2], DAMAGED))
def test_damage_costs_time_and_nothing_else(problem, whole, tmp_path, damaged):
    rounds = rounds_of(whole["factored"])
    run = interrupted(problem, tmp_path / "run", FACTORED, rounds[0] + 5)
    (file,) = (run.path / SEARCH_FOLDER).glob(damaged)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = len(run.events())
    same(fitted(problem, run, FACTORED), whole["factored"])
    again = [event["iteration"] for event in run.events()[before:] if event["event"] == "iteration"]
    assert again[0] == (1 if damaged.startswith("round") else rounds[0] + 1)


@pytest.mark.parametrize(
    ("name", "value"),
    but_for(
        [("rank", "x"), ("products", None), ("descent", {"top": 1.0})],
        [("rank", "x"), ("rank", -1), ("products", None), ("before", {}), ("descent", {"top": 1.0})],
    ),
)
def test_sealed_notes_that_are_none_are_no_state(problem, whole, tmp_path, name, value):
    run = interrupted(problem, tmp_path / "run", FACTORED, rounds_of(whole["factored"])[0] + 5)
    (manifest,) = (run.path / SEARCH_FOLDER).glob("descent-*/MANIFEST.json")
    notes = read_json(manifest, sealed=True)
    assert name in notes
    manifest.unlink()
    write_json(manifest, notes | {name: value})
    same(fitted(problem, run, FACTORED), whole["factored"])


def test_a_state_of_another_problem_is_not_taken(problem, whole, tmp_path):
    run = interrupted(problem, tmp_path / "run", FACTORED, 30)
    X, must, cannot = hard_rows(N, 1)
    graph = build_graph(
        X, n_neighbors=10, laplacian="normalized", warns_of_cuts=False, session=Session(None, threads=1)
    )
    other = make_problem(graph.laplacian, dkl.Pairs(must[:-1], cannot), HOW["gamma"])
    before = len(run.events())
    fitted(other, run, FACTORED)
    assert next(event["iteration"] for event in run.events()[before:] if event["event"] == "iteration") == 1


@pytest.mark.exhaustive
def test_it_begins_on_workers_and_continues_here(problem, whole, tmp_path, client):
    run = interrupted(problem, tmp_path / "run", FACTORED, 15, client=client)
    same(fitted(problem, run, FACTORED), whole["factored"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("after", but_for([0], [0, 3]))
def test_it_begins_here_and_continues_on_workers(problem, whole, tmp_path, client, after):
    run = interrupted(problem, tmp_path / "run", FACTORED, rounds_of(whole["factored"])[0] + after)
    same(fitted(problem, run, FACTORED, client), whole["factored"])


@pytest.mark.exhaustive
def test_a_lost_worker_costs_what_came_after_the_commit(problem, tmp_path, client, monkeypatch, caplog):
    how = FACTORED | {"target_gap": 0.3, "checkpoint_every": 10}
    real, asked, wanted = JointWork.advance, [], fitted(problem, None, how)

    def losing(work, *given):
        asked.append(work)
        if len(asked) == 27:
            client.run(slab_worker.forget, work.key, workers=[work.addresses[1]])
        return real(work, *given)

    monkeypatch.setattr(JointWork, "advance", losing)
    run = begin(tmp_path / "run", PairwiseSettings(**how))
    with caplog.at_level(logging.WARNING, "dkl"):
        found = fitted(problem, run, how, client, callbacks=[lambda row: None])
    same(found, wanted)
    assert "continues from iteration 20" in caplog.text and found.result.restarts == 1
    logged = [event["iteration"] for event in run.events() if event["event"] == "iteration"]
    assert logged.count(20) == 1 and logged.count(21) == 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("gets_on", [True, False])
def test_losses_end_a_fit_that_keeps_nothing_between_them(problem, tmp_path, client, monkeypatch, gets_on):
    how = FACTORED | {"target_gap": 0.3, "checkpoint_every": 2 if gets_on else 1000}
    monkeypatch.setattr(waiting, "RESEND_PAUSES", (0, 0))
    real, asked, wanted = JointWork.advance, [], fitted(problem, None, how)

    def losing(work, *given):
        asked.append(work)
        if len(asked) % 5 == 0 and len(asked) <= 25:
            client.run(slab_worker.forget, work.key, workers=[work.addresses[1]])
        return real(work, *given)

    monkeypatch.setattr(JointWork, "advance", losing)
    run = begin(tmp_path / "run", PairwiseSettings(**how))
    if gets_on:
        found = fitted(problem, run, how, client, callbacks=[lambda row: None])
        same(found, wanted)
        assert found.result.restarts == 5
    else:
        with pytest.raises(WorkersLostError, match="3 times in a row"):
            fitted(problem, run, how, client, callbacks=[lambda row: None])


def test_a_smaller_gap_is_proven_from_the_factor_that_was_left(problem, tmp_path):
    how = FACTORED | {"checkpoint_every": 10_000}  # none by the clock, from which the last fit here would go on
    run = begin(tmp_path / "run", PairwiseSettings(**how))
    before = fitted(problem, run, how | {"target_gap": 0.01})
    write_result(run, before, report_of(before, {}))
    (run.path / "report.json").rename(run.path / "report-000001.json")  # as a run is that is resumed
    after = fitted(problem, run, how)
    rows = len(before.result.history)
    assert after.certificate.relative_gap <= how["target_gap"] < before.certificate.relative_gap
    assert [row | {"of": 0} for row in after.result.history[:rows]] == [
        row | {"of": 0} for row in before.result.history
    ]
    assert [row["iteration"] for row in after.result.history] == list(range(1, len(after.result.history) + 1))
    assert {row["stage"] for row in after.result.history[rows:]} == {"factored"}
    assert after.result.history[rows]["objective"] < 1.02 * before.certificate.objective
    remade = fitted(problem, run, how | {"target_gap": 0.01})  # a result that is damaged has its bytes again
    assert remade.factor.tobytes() == before.factor.tobytes()


def test_a_descent_that_is_over_is_not_held(problem, tmp_path, monkeypatch):
    """Its ten arrays would stand beside those of the certificate."""
    held, real = [], FactoredPairwise.certify

    def certify(found, *given, **more):
        gc.collect()
        # type(), not isinstance(), which asks a weak proxy for the class of what may be gone
        held.append([one for one in gc.get_objects() if type(one) is _Descent and one.problem is found])
        return real(found, *given, **more)

    monkeypatch.setattr(FactoredPairwise, "certify", certify)
    run = interrupted(problem, tmp_path / "run", FACTORED, 20)
    fitted(problem, run, FACTORED)
    assert len(held) >= 3 and not any(held)


def test_a_fit_leaves_no_state_behind(problem, tmp_path):
    X, must, cannot = hard_rows(N, 1)
    learner = dkl.PairwiseKernelLearner(
        rank=8, solver="factored", target_gap=0.3, work_dir=tmp_path, checkpoint_every=5, random_state=0
    )
    learner.fit(X, must_link=must, cannot_link=cannot)
    run = RunStore.open(learner.run_path_)
    assert any(event["event"] == "commit" for event in run.events()) and not (run.path / SEARCH_FOLDER).exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", but_for([0.1, 0.25, 0.55, 0.7, 0.85, 0.99], [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.99]))
def test_a_disk_that_fills_up_leaves_what_was_committed(problem, tmp_path, monkeypatch, share):
    """At any write of a fit that commits each iteration: resumed, it has the bytes of one with room."""
    how = FACTORED | {"target_gap": 0.05, "checkpoint_every": 1}

    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as counting:
        writes = Writes(counting.setattr, lambda: None)
        wanted = fitted(problem, begin(tmp_path / "whole", PairwiseSettings(**how)), how)
    run = begin(tmp_path / "run", PairwiseSettings(**how))
    with monkeypatch.context() as filling, pytest.raises(DiskError, match="No space left"):
        Writes(filling.setattr, full, at=int(share * writes.count))
        fitted(problem, run, how)
    same(fitted(problem, run, how), wanted)
    assert not list(run.path.glob(f"{SEARCH_FOLDER}/tmp-*")), "nothing is left of what did not fit"
