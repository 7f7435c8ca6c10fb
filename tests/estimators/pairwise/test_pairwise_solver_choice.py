"""What solver="auto" comes to, and that plan, fit, report and resumed run agree on it."""

import numpy as np
import pytest
from pairwise_cases import hard_rows

import dkl
from dkl.blocks.graph.neighbor_graph import build_graph
from dkl.blocks.memory_plan import PROCESS_BASE
from dkl.blocks.session import Session
from dkl.estimators.pairwise.fit import fit_problem, make_problem
from dkl.estimators.pairwise.load import load_learner
from dkl.estimators.pairwise.plan import finish_rank, make_plan, rank_within, solver_of
from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.solvers.pairwise.descent import START_RANK
from dkl.stores.run import RunStore

N = 300
HERE = Session(None, threads=1)


@pytest.fixture(scope="module")
def given():
    return hard_rows(N, 1)


@pytest.fixture(scope="module")
def problem(given):
    X, must, cannot = given
    graph = build_graph(X, n_neighbors=10, laplacian="normalized", session=HERE, warns_of_cuts=False)
    return make_problem(graph.laplacian, dkl.Pairs(must, cannot), 100.0)


def chosen(problem, run=None, **how):
    return solver_of(problem, PairwiseSettings(**how), HERE, run)


def test_each_condition_is_needed(problem):
    assert chosen(problem) == "factored"
    assert chosen(problem, target_gap=None) == chosen(problem, target_gap="none") == "admm"
    assert chosen(problem, rank=20) == "admm"
    assert chosen(problem, solver="admm") == "admm"
    assert chosen(problem, solver="factored", target_gap=None, rank=20) == "factored"


def test_it_is_the_memory_limit_that_decides(problem):
    """By the last byte, at the rank that the solver begins at."""
    limits = range(PROCESS_BASE, PROCESS_BASE + 10_000_000, 10_000)
    ranks = [finish_rank(problem, PairwiseSettings(memory_limit=limit)) for limit in limits]
    assert ranks[0] == 0 and ranks[-1] >= START_RANK
    for limit, rank in zip(limits, ranks, strict=True):
        assert chosen(problem, memory_limit=limit) == ("factored" if rank >= START_RANK else "admm")


def test_few_patterns_need_no_more_columns_than_they_are():
    assert rank_within(5, 20, 9, PairwiseSettings()) == 5
    learner = dkl.PairwiseKernelLearner(n_neighbors=2).fit(
        np.arange(10.0).reshape(5, 2), must_link=[[0, 1]], cannot_link=[[0, 4]]
    )
    assert learner.solver_ == "factored" and learner.result_.outcome.value == "solved"


def test_the_default_proves_its_gap_and_says_how(given, tmp_path):
    X, must, cannot = given
    learner = dkl.PairwiseKernelLearner(work_dir=tmp_path, random_state=0).fit(X, must_link=must, cannot_link=cannot)
    assert learner.solver_ == "factored" and learner.get_params()["solver"] == "auto"
    assert learner.result_.outcome.value == "solved" and learner.certificate_.relative_gap <= 0.01
    run = RunStore.open(learner.run_path_)
    assert run.report()["solver"] == "factored" and run.report()["settings"]["solver"] == "auto"
    again = load_learner(run, [])
    assert again.solver_ == "factored" and again.get_params()["solver"] == "auto"
    assert all(claim.agrees for claim in dkl.open_run(learner.run_path_).verify())


@pytest.mark.filterwarnings("ignore::dkl.errors.ConvergenceWarning")
def test_auto_is_the_solver_that_it_names(given):
    X, must, cannot = given
    for how in ({}, {"target_gap": None}, {"rank": 12}):
        auto = dkl.PairwiseKernelLearner(random_state=0, **how)
        auto.fit(X, must_link=must, cannot_link=cannot)
        named = dkl.PairwiseKernelLearner(random_state=0, **how, solver=auto.solver_)
        named.fit(X, must_link=must, cannot_link=cannot)
        assert auto.factor_.tobytes() == named.factor_.tobytes()
        assert auto.result_.remedy == named.result_.remedy


def test_a_run_that_admm_has_begun_goes_on_with_it(problem, tmp_path):
    """As one that is resumed with a goal that it did not have."""
    begun = PairwiseSettings(target_gap=None, max_iter=5)
    run = RunStore.create(tmp_path / "run", {"task": "pairwise", "settings": begun.as_dict()})
    with pytest.warns(dkl.errors.ConvergenceWarning):
        first = fit_problem(problem, begun, HERE, run=run)
    assert first.solver == "admm"
    then = fit_problem(problem, PairwiseSettings(max_iter=5), HERE, run=run)
    assert then.solver == "admm" and then.result.outcome.value == "solved"
    assert [row["stage"] for row in then.result.history][:6] == ["admm"] * 5 + ["finish"]


def test_the_plan_is_of_the_solver_that_will_run(problem):
    factored = make_plan(problem, PairwiseSettings(), HERE, has_store=True)
    admm = make_plan(problem, PairwiseSettings(target_gap=None), HERE, has_store=True)
    assert "factor, gradients and directions" in factored.items and "state of the solver" in factored.disk
    assert any(name.startswith("factors") for name in admm.items) and "state of the solver" not in admm.disk
    with pytest.raises(dkl.errors.MemoryBudgetError, match="solver='admm'"):
        make_plan(problem, PairwiseSettings(solver="factored", memory_limit=321_000_000), HERE, has_store=True)
