"""Weights of pairs in the kernel's problem: every solver against the weighted SDP, what a weight means, and weights in runs."""

import warnings

import numpy as np
import pytest
from command_line import call, factor_bytes, write_inputs
from on_workers import Given
from pairwise_cases import dense_targets, objective, plain_iteration, random_problem, sdp_optimum
from repeats import but_for
from scipy import sparse

import dkl
from dkl.blocks.slabs.placement import LocalPlacement
from dkl.errors import ConvergenceWarning, InputError, StoreError
from dkl.estimators.pairwise.store import load_pairs
from dkl.linalg.slabs import small_systems
from dkl.problems.pairwise.low_rank import FactoredPairwise
from dkl.problems.pairwise.problem import PairwiseKernel
from dkl.side_information.pairs import Pairs
from dkl.solvers.watch import Outcome
from dkl.stores.run import RunStore

WAYS = (
    {"target_gap": 1e-4},
    {"target_gap": None, "tol": 1e-6, "max_iter": 300},
    {"target_gap": 1e-3, "dtype": "float32"},
    {"solver": "factored", "target_gap": 1e-6},
)


def weighted_case(seed, n=14):
    """(affinity, must, cannot, weights over four orders of magnitude): labels know nothing of the graph."""
    rng = np.random.default_rng(seed)
    laplacian = random_problem(rng, n)[0]
    affinity = -(laplacian - sparse.diags_array(laplacian.diagonal())).toarray()
    pairs = Pairs.from_labels(rng.integers(0, 3, n), n // 2, 3 * n // 2, int(rng.integers(99)))
    return affinity, pairs.must_link, pairs.cannot_link, 10.0 ** rng.uniform(-2, 2, 2 * n)


def fitted(affinity, must, cannot, weights, **settings):
    learner = dkl.PairwiseKernelLearner(affinity="precomputed", random_state=0, n_jobs=1, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(affinity, must_link=must, cannot_link=cannot, pair_weights=weights)


@pytest.mark.parametrize("seed", but_for([0, 1], range(3)))
def test_every_solver_and_its_certificate_against_the_weighted_sdp(seed):
    affinity, must, cannot, weights = weighted_case(seed)
    gamma, n = (0.3, 5.0, 200.0)[seed], len(affinity)
    target, mask = dense_targets(n, must, cannot, weights)
    optimum = None
    for way in WAYS:
        learner = fitted(affinity, must, cannot, weights, gamma=gamma, **way)
        laplacian, V = learner.graph_.laplacian.toarray(), np.asarray(learner.factor_, float)
        optimum = optimum if optimum is not None else sdp_optimum(laplacian, target, mask, gamma)
        value, told = objective(V @ V.T, laplacian, target, mask, gamma), learner.certificate_
        blur = 1e-7 * (1 + gamma * weights.max())
        assert told.objective == pytest.approx(value, rel=1e-9, abs=blur), way
        assert -blur <= value - optimum <= told.gap + blur, way
        if way["target_gap"] is not None:
            assert learner.result_.outcome is Outcome.SOLVED and told.relative_gap <= way["target_gap"], way


def test_a_weight_of_w_is_the_pair_w_times():
    affinity, must, cannot, _ = weighted_case(3)
    weights = np.random.default_rng(0).integers(1, 5, len(must) + len(cannot))
    learner = fitted(affinity, must, cannot, weights, solver="factored", target_gap=1e-7)
    K = learner.factor_ @ learner.factor_.T
    total = np.sum(learner.graph_.laplacian.toarray() * K) + 50 * np.sum((np.diag(K) - 1) ** 2)
    ends, targets = np.vstack([must, cannot]), np.repeat([1.0, 0.0], [len(must), len(cannot)])
    for (i, j), t in zip(np.repeat(ends, weights, axis=0), np.repeat(targets, weights), strict=True):
        total += 2 * 50 * (K[i, j] - t) ** 2
    assert learner.certificate_.objective == pytest.approx(total, rel=1e-10)


@pytest.mark.parametrize("solver", ["admm", "factored"])
def test_ones_are_none_and_zeros_are_no_pairs(solver):
    affinity, must, cannot, _ = weighted_case(4)
    count = len(must) + len(cannot)
    plain = fitted(affinity, must, cannot, None, solver=solver)
    assert fitted(affinity, must, cannot, np.ones(count), solver=solver).factor_.tobytes() == plain.factor_.tobytes()
    kept = np.arange(count) % 3 != 0
    some = fitted(affinity, must[kept[: len(must)]], cannot[kept[len(must) :]], None, solver=solver)
    assert fitted(affinity, must, cannot, kept.astype(int), solver=solver).factor_.tobytes() == some.factor_.tobytes()
    assert some.factor_.tobytes() != plain.factor_.tobytes()


def test_gamma_and_weights_are_one_scale():
    """All weights, of the diagonal too, times 4 and gamma / 4, or L and gamma times 4: powers of 2 change no digit."""
    affinity, must, cannot, weights = weighted_case(5)
    problem = fitted(affinity, must, cannot, weights, max_iter=1, target_gap=None)
    laplacian = problem.graph_.laplacian
    known = PairwiseKernel.of(laplacian, Pairs(must, cannot, weights=weights).check(len(affinity)), 8.0)
    V = np.random.default_rng(1).standard_normal((len(affinity), 5))
    one = FactoredPairwise(laplacian, known.targets, 8.0, weights=known.weights)
    other = FactoredPairwise(laplacian, known.targets, 2.0, weights=4 * known.weights)
    here, there = one.at(one.padded(V)), other.at(other.padded(V))
    assert (here.objective, here.gradient.tobytes()) == (there.objective, there.gradient.tobytes())
    a, b = (
        fitted(scale * affinity, must, cannot, weights, gamma=scale * 8.0, laplacian="unnormalized",
               solver="factored", target_gap=1e-8) for scale in (1, 4)
    )  # fmt: skip
    assert b.certificate_.objective == pytest.approx(4 * a.certificate_.objective, rel=1e-7)
    K, same = a.factor_ @ a.factor_.T, b.factor_ @ b.factor_.T
    assert np.abs(K - same).max() <= 1e-3


@pytest.mark.parametrize("hub_size", [64, 3], ids=["no hubs", "hubs"])
@pytest.mark.parametrize("rank", [3, 9])
def test_an_admm_iteration_is_the_plain_weighted_loop(rng, monkeypatch, hub_size, rank):
    monkeypatch.setattr(small_systems.SmallSystems.of.__func__, "__kwdefaults__", {"hub_size": hub_size})
    affinity, must, cannot, weights = weighted_case(6)
    n, gamma, rho = len(affinity), 7.0, 100.0
    laplacian = np.diag(affinity.sum(axis=1)) - affinity
    pairs = Pairs(must, cannot, weights=weights).check(n)
    program = PairwiseKernel.of(sparse.csr_array(laplacian), pairs, gamma).admm(rank, "float64", 1e-9)
    assert (program.systems.hubs.size > 0) == (hub_size == 3)
    start = [rng.standard_normal((n, rank)) for _ in range(3)]
    target, mask = dense_targets(n, must, cannot, weights)
    wanted = plain_iteration(laplacian, target, mask, gamma, rho, *start)

    place = LocalPlacement(program, threads=1)
    place.start(Given(dict(zip(("V", "U", "Lambda"), start, strict=True)), program.width), program.start(rho))
    (row,) = place.advance(1)
    for name, array in zip(("V", "U", "Lambda"), wanted, strict=True):
        assert np.abs(place.collect(name) - array).max() <= 1e-12 * np.abs(array).max()
    place.close()
    U = wanted[1]
    assert row["objective"] == pytest.approx(objective(U @ U.T, laplacian, target, mask, gamma), rel=1e-12)


def test_derivatives_have_the_weights(rng):
    """Gradient and quartic against differences of the dense objective."""
    affinity, must, cannot, weights = weighted_case(7)
    n, gamma = len(affinity), 3.0
    laplacian = np.diag(affinity.sum(axis=1)) - affinity
    target, mask = dense_targets(n, must, cannot, weights)
    known = PairwiseKernel.of(sparse.csr_array(laplacian), Pairs(must, cannot, weights=weights).check(n), gamma)
    problem = known.factored(1)
    v, d = (problem.padded(rng.standard_normal((n, 4))) for _ in range(2))

    def f(V):
        return objective(V @ V.T, laplacian, target, mask, gamma)

    point, h = problem.at(v), 1e-4
    assert point.objective == pytest.approx(f(v), rel=1e-12)
    slope, curvature = (f(v + h * d) - f(v - h * d)) / (2 * h), (f(v + h * d) + f(v - h * d) - 2 * f(v)) / h**2
    assert np.vdot(point.gradient, d) == pytest.approx(slope, rel=1e-5)
    line = problem.line(point, d)
    assert 2.0 * line.coefficients[1] == pytest.approx(curvature, rel=1e-4)
    for t in (-1.3, 0.7):
        rise = sum(c * t ** (k + 1) for k, c in enumerate(line.coefficients))
        assert point.objective + rise == pytest.approx(f(v + t * d), rel=1e-11)
    stiff = problem.preconditioner(v.shape[1], dtype=np.float64)
    stiff.refresh(v, 0)
    rows = stiff.ties.rows
    x, image = np.ascontiguousarray(d[rows]), np.zeros((len(rows), 4))
    stiff._step(x, (2 * stiff.SHIFT, 0.0, 0.0), 2 * gamma, x, image)
    change = mask * (v @ d.T + d @ v.T)
    wanted = 2 * (stiff.SHIFT * d + gamma * change @ v)
    np.testing.assert_allclose(image, wanted[rows], rtol=1e-10, atol=1e-9)


def test_slabs_on_workers_give_the_same_bytes(client):
    affinity, must, cannot, weights = weighted_case(8, n=40)
    settings = {"rank": 30, "max_iter": 6, "target_gap": None}
    here = fitted(affinity, must, cannot, weights, **settings)
    assert (
        fitted(affinity, must, cannot, weights, client=client, **settings).factor_.tobytes() == here.factor_.tobytes()
    )


def test_a_weight_beyond_double_precision_is_refused():
    affinity, must, cannot, weights = weighted_case(9)
    with pytest.raises(InputError, match="weights of pairs: too large for double precision; got 100000000000"):
        fitted(affinity, must, cannot, np.where(np.arange(len(weights)) == 3, 1e11, 1.0))


# Runs.


@pytest.fixture(scope="module")
def weighted_run(tmp_path_factory):
    """(folder with inputs and a run of 40 iterations, the arguments of its fit but for the iterations and its name)."""
    folder = tmp_path_factory.mktemp("weighted")
    write_inputs(folder)
    lines = (folder / "pairs.csv").read_text().split()
    sizes = 10.0 ** np.random.default_rng(0).uniform(-1, 1, len(lines) - 1)
    told = [f"{line},{size!r}" for line, size in zip(lines[1:], sizes.tolist(), strict=True)]
    (folder / "pairs.csv").write_text("\n".join(["i,j,label,weight", *told]) + "\n")
    files = ("--data", folder / "X.npz", "--pairs", folder / "pairs.csv", "--rank", "6", "--tol", "0", "--seed", "0")
    command = ("fit", "pairwise", "--no-picture", *files, "--target-gap", "none")
    answer = call(*command, "--max-iter", "40", "--out", folder / "run.zarr")
    assert answer.code in (0, 3), answer.err
    return folder, command


def test_a_run_has_the_bytes_of_the_estimator_and_goes_on_by_the_stored_weights(weighted_run, tmp_path):
    folder, command = weighted_run
    assert call(*command, "--max-iter", "15", "--out", tmp_path / "run.zarr").code in (0, 3)
    (folder / "pairs.csv").rename(tmp_path / "moved.csv")  # a resumed run has no need of it
    try:
        assert call("resume", tmp_path / "run.zarr", "--max-iter", "40").code in (0, 3)
    finally:
        (tmp_path / "moved.csv").rename(folder / "pairs.csv")
    assert factor_bytes(tmp_path / "run.zarr") == factor_bytes(folder / "run.zarr")
    stored = load_pairs(RunStore.open(folder / "run.zarr"))
    assert stored == dkl.load_pairs(folder / "pairs.csv").check(60) and stored.is_weighted
    learner = dkl.load(folder / "run.zarr")
    target, mask = dense_targets(60, stored.must_link, stored.cannot_link, stored.weights)
    value = objective(learner.factor_ @ learner.factor_.T, learner.graph_.laplacian.toarray(), target, mask, 100.0)
    assert learner.certificate_.objective == pytest.approx(value, rel=1e-10)


def test_verify_counts_the_weights(weighted_run, monkeypatch):
    folder, _ = weighted_run
    assert call("verify", folder / "run.zarr").code == 0
    given = RunStore.read_pair_weights
    monkeypatch.setattr(RunStore, "read_pair_weights", lambda run: given(run) * np.where(np.arange(72) == 5, 1.1, 1.0))
    answer = call("verify", folder / "run.zarr")
    assert answer.code == 6 and "got other objective" in answer.err
    for wrong in (lambda run: given(run)[1:], lambda run: -given(run)):
        monkeypatch.setattr(RunStore, "read_pair_weights", wrong)
        with pytest.raises(StoreError, match="pairs: invalid pairs"):
            load_pairs(RunStore.open(folder / "run.zarr"))
        answer = call("verify", folder / "run.zarr")
        assert answer.code == 6 and "no numbers > 0, one a pair" in answer.err


def test_a_logdet_run_refuses_weights(weighted_run, tmp_path):
    folder, _ = weighted_run
    files = ("--data", folder / "X.npz", "--pairs", folder / "pairs.csv", "--out", tmp_path / "run.zarr")
    answer = call("fit", "logdet", "--no-picture", "--loss", "itml", *files)
    assert answer.code == 2 and "pairs.csv: this method takes no weights of pairs" in answer.err
    assert not (tmp_path / "run.zarr").exists()
