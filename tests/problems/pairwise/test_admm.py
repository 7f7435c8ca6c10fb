"""The ADMM program against the paper's updates written as a plain loop, in every placement, and against the SDP."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from on_workers import Given
from pairwise_cases import dense_targets, objective, plain_iteration, random_problem, sdp_optimum
from repeats import but_for
from scipy import sparse

from dkl.blocks.session import Session
from dkl.blocks.slabs import slab_owner
from dkl.blocks.slabs.placement import ClusterPlacement, LocalPlacement, create_scratch
from dkl.linalg.slabs import small_systems
from dkl.problems.pairwise.admm import next_rho, spectral_bound
from dkl.problems.pairwise.problem import PairwiseKernel, RandomStart
from dkl.problems.pairwise.terms import paper_rank, target_matrix
from dkl.stores.generations import Generations

GAMMA, RHO = 7.0, 100.0


@pytest.fixture(autouse=True)
def threads_for_short_ranges(monkeypatch):
    """Problems of tests, too, are cut over the threads that are asked for."""
    monkeypatch.setattr(slab_owner, "LEAST_CHUNK", 8)


def case(rng, n=50, rank=37, pairs=80):
    laplacian, must, cannot = random_problem(rng, n, pairs)
    target, mask = dense_targets(n, must, cannot)
    problem = PairwiseKernel(laplacian, target_matrix(n, must, cannot), GAMMA)
    start = {name: rng.standard_normal((n, rank)) for name in ("V", "U", "Lambda")}
    return problem, laplacian.toarray(), target, mask, start


def placements(kind, program, tmp_path, client):
    if kind == "memory":
        return LocalPlacement(program, threads=2)
    if kind == "disk":
        return LocalPlacement(program, threads=2, scratch=create_scratch(program, tmp_path / "scratch"))
    scratch = create_scratch(program, tmp_path / "scratch") if kind == "cluster on disk" else None
    return ClusterPlacement(program, Session(client), uuid.uuid4().hex, scratch=scratch)


def run_steps(place, program, start, steps):
    """Factors after some iterations from a start of one's own."""
    place.start(start, program.start(RHO))
    rows = place.advance(steps)
    result = {name: place.collect(name) for name in ("V", "U", "Lambda")}
    place.close()
    return rows, result


@pytest.mark.parametrize("hub_size", [64, 3], ids=["no hubs", "hubs"])
@pytest.mark.parametrize("rank", [5, 37])
def test_one_iteration_in_memory_is_the_plain_loop(rng, monkeypatch, hub_size, rank):
    monkeypatch.setattr(small_systems.SmallSystems.of.__func__, "__kwdefaults__", {"hub_size": hub_size})
    problem, laplacian, target, mask, start = case(rng, rank=rank)
    program = problem.admm(rank, "float64", 1e-9)
    assert (program.systems.hubs.size > 0) == (hub_size == 3)
    rows, got = run_steps(LocalPlacement(program, threads=2), program, Given(start, program.width), 1)
    wanted = plain_iteration(laplacian, target, mask, GAMMA, RHO, start["V"], start["U"], start["Lambda"])
    for name, array in zip(("V", "U", "Lambda"), wanted, strict=True):
        assert np.abs(got[name] - array).max() <= 1e-12 * np.abs(array).max()
    V, U, _ = wanted
    assert rows[0]["objective"] == pytest.approx(objective(U @ U.T, laplacian, target, mask, GAMMA), rel=1e-12)
    assert rows[0]["primal_residual"] == pytest.approx(np.linalg.norm(V - U), rel=1e-12)
    assert rows[0]["dual_residual"] == pytest.approx(RHO * np.linalg.norm(V - start["V"]), rel=1e-12)
    primal, dual = rows[0]["primal_residual"], rows[0]["dual_residual"]
    assert rows[0]["rho"] == next_rho(RHO, primal, dual, program.rho_floor)


@pytest.mark.parametrize("kind", ["disk", "cluster", "cluster on disk"])
def test_other_placements_are_the_plain_loop_and_the_same_bytes(rng, tmp_path, client, kind):
    problem, laplacian, target, mask, _ = case(rng)
    program = problem.admm(37, "float64", 1e-9)
    start = RandomStart(3, 50, 37)
    given = {name: np.zeros((50, 37)) for name in ("V", "U", "Lambda")}
    for name in given:
        for lo in range(0, 37, program.width):
            columns = range(lo, min(lo + program.width, 37))
            block = np.empty((50, program.width))
            start(name, 0, columns, block)
            given[name][:, columns.start : columns.stop] = block[:, : len(columns)]
    place = placements(kind, program, tmp_path, client)
    _, first = run_steps_simple(place, program, start, 1)
    wanted = plain_iteration(laplacian, target, mask, GAMMA, RHO, *(given[name] for name in ("V", "U", "Lambda")))
    for name, array in zip(("V", "U", "Lambda"), wanted, strict=True):
        assert np.abs(first[name] - array).max() <= 1e-12 * np.abs(array).max()
    (tmp_path / "again").mkdir()
    rows, many = run_steps_simple(placements(kind, program, tmp_path / "again", client), program, start, 25)
    rows_here, here = run_steps_simple(LocalPlacement(program, threads=1), program, start, 25)
    assert [row["objective"] for row in rows] == [row["objective"] for row in rows_here]
    for name in here:
        assert many[name].tobytes() == here[name].tobytes()


def run_steps_simple(place, program, start, steps):
    place.start(start, program.start(RHO))
    rows = place.advance(steps)
    result = {name: place.collect(name) for name in ("V", "U", "Lambda")}
    place.close()
    return rows, result


def test_a_commit_restores_to_the_same_bytes(rng, tmp_path, client):
    problem, *_ = case(rng)
    program = problem.admm(37, "float64", 1e-9)
    start = RandomStart(3, 50, 37)
    undisturbed = LocalPlacement(program)
    undisturbed.start(start, program.start(RHO))
    undisturbed.advance(9)
    wanted = undisturbed.collect("U")
    undisturbed.close()

    first = ClusterPlacement(program, Session(client), uuid.uuid4().hex)
    first.start(start, program.start(RHO))
    carry = first.advance(4)[-1]
    generation = first.commit(Generations(tmp_path / "generations", "a"), 4, carry)
    first.close()
    second = LocalPlacement(program, threads=2)
    second.restore(generation)
    assert second.advance(5)[-1]["iteration"] == 9
    assert second.collect("U").tobytes() == wanted.tobytes()
    second.close()


def test_a_batch_ends_where_it_converges(rng, client):
    problem, *_ = case(rng, n=20, rank=20, pairs=20)
    program = problem.admm(20, "float64", 5e-2)
    start = RandomStart(0, 20, 20)
    results = []
    for place in (LocalPlacement(program), ClusterPlacement(program, Session(client), uuid.uuid4().hex)):
        place.start(start, program.start(RHO))
        rows = place.advance(60)
        assert rows[-1]["converged"] and len(rows) < 60
        results.append((len(rows), place.collect("U").tobytes(), place.sums().tobytes()))
        place.close()
    assert results[0] == results[1]


@pytest.mark.exhaustive
def test_runs_on_the_same_workers_do_not_wait_for_each_other(rng, client):
    problem, *_ = case(rng, n=20, rank=20, pairs=20)
    program = problem.admm(20, "float64", 0.0)

    def run(place):
        place.start(RandomStart(0, 20, 20), program.start(RHO))
        for _ in range(5):
            place.advance(20)
        factor = place.collect("U").tobytes()
        place.close()
        return factor

    alone = run(LocalPlacement(program))
    with ThreadPoolExecutor(4) as pool:
        session = Session(client)
        together = pool.map(lambda _: run(ClusterPlacement(program, session, uuid.uuid4().hex)), range(4))
        assert all(factor == alone for factor in together)


def test_single_precision_follows_double(rng):
    problem, *_ = case(rng)
    factors = {}
    for dtype in ("float64", "float32"):
        program = problem.admm(37, dtype, 0.0)
        _, result = run_steps_simple(LocalPlacement(program), program, RandomStart(3, 50, 37), 3)
        factors[dtype] = result["U"]
    assert factors["float32"].dtype == np.float32
    assert np.abs(factors["float32"] - factors["float64"]).max() < 1e-4 * np.abs(factors["float64"]).max()


@pytest.mark.parametrize("seed", but_for(range(4, 20), range(20)))
def test_full_rank_reaches_the_optimum_of_the_sdp(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 31))
    gamma = float(rng.choice([1.0, 10.0, 100.0]))
    laplacian, must, cannot = random_problem(rng, n)
    problem = PairwiseKernel(laplacian, target_matrix(n, must, cannot), gamma)
    program = problem.admm(n, "float64", 1e-11)
    place = LocalPlacement(program)
    place.start(RandomStart(seed, n, n), program.start(RHO))
    place.advance(20_000)
    entries, smooth = problem.evaluate_sums(program, place.sums())
    place.close()
    certificate = problem.certificate(entries, smooth)
    target, mask = dense_targets(n, must, cannot)
    optimum = sdp_optimum(laplacian.toarray(), target, mask, gamma)
    assert certificate.objective == pytest.approx(optimum, rel=1e-6)
    assert certificate.objective - optimum <= certificate.gap + 1e-9 * optimum
    assert certificate.relative_gap < 1e-5


def test_the_paper_s_ranks():
    # Table 1: constraints and r. (a5a's m is two off in the paper's own rounding and is left out.)
    table = {340: 25, 728: 37, 918: 42, 510: 31, 396: 27, 708: 37, 161: 17, 606: 34, 5457: 103, 38148: 275}
    assert {m: paper_rank(m) for m in table} == table


@pytest.mark.parametrize(
    ("primal", "dual", "wanted"), [(11.0, 1.0, 60.0), (1.0, 11.0, 15.0), (1.0, 1.0, 30.0), (10.0, 1.0, 30.0)]
)
def test_the_penalty_follows_15(primal, dual, wanted):
    assert next_rho(30.0, primal, dual) == wanted


def test_the_penalty_has_a_floor():
    assert next_rho(12.0, 0.0, 1.0) == 10.0


def printed_rows(laplacian, target, mask, state, rho, steps):
    """(objective at U U', primal, dual, rho after (15)) of Algorithm 1 to the letter."""
    rows = []
    for _ in range(steps):
        before = state[0]
        state = plain_iteration(laplacian, target, mask, GAMMA, rho, *state)
        primal, dual = np.linalg.norm(state[0] - state[1]), rho * np.linalg.norm(state[0] - before)
        rho = 2 * rho if primal > 10 * dual else max(rho / 2, 10) if dual > 10 * primal else rho
        rows.append((objective(state[1] @ state[1].T, laplacian, target, mask, GAMMA), primal, dual, rho))
    return rows


def test_as_printed_rho_falls_to_10_whatever_the_laplacian_and_residuals_are_absolute(rng):
    laplacian, must, cannot = random_problem(rng, 15, 20)
    laplacian = 8 * laplacian
    target, mask = dense_targets(15, must, cannot)
    problem = PairwiseKernel(laplacian, target_matrix(15, must, cannot), GAMMA)
    assert problem.admm(5, "float64", 0.0).rho_floor > 20
    start = {name: rng.standard_normal((15, 5)) * (name != "Lambda") for name in ("V", "U", "Lambda")}
    wanted = printed_rows(laplacian.toarray(), target, mask, list(start.values()), 14.0, 12)
    assert any(rho == 10.0 for *_, rho in wanted)
    # The first row whose residuals are both below the tolerance is the last.
    reached = np.minimum.accumulate([max(primal, dual) for _, primal, dual, _ in wanted])
    tol = float(reached[9]) * (1 + 1e-9)
    program = problem.admm(5, "float64", tol, adapt_rho="paper", stopping="paper")
    place = LocalPlacement(program)
    place.start(Given(start, program.width), program.start(14.0))
    rows = place.advance(12)
    place.close()
    last = next(k for k, value in enumerate(reached) if value < tol)
    assert len(rows) == last + 1 and rows[-1]["converged"]
    for row, (value, primal, dual, rho) in zip(rows, wanted, strict=False):
        found = (row["objective"], row["primal_residual"], row["dual_residual"])
        assert found == pytest.approx((value, primal, dual), rel=1e-8) and row["rho"] == rho


def test_lemma_1_and_proposition_1_steps_vanish_and_the_limit_is_a_kkt_point(rng):
    """V - V+ and U - U+ vanish, and (24) holds, if the multipliers' steps can be summed."""
    laplacian, must, cannot = random_problem(rng, 12, 16)
    target, mask = dense_targets(12, must, cannot)
    problem = PairwiseKernel(laplacian, target_matrix(12, must, cannot), GAMMA)
    program = problem.admm(6, "float64", 0.0)
    place = LocalPlacement(program)
    place.start(RandomStart(1, 12, 6), program.start(RHO))
    rows = place.advance(1000)
    while max(rows[-1]["primal_residual"], rows[-1]["dual_residual"]) > 1e-8 and len(rows) < 20_000:
        rows += place.advance(1000)
    before = {name: place.collect(name).copy() for name in ("V", "U")}
    rows += place.advance(1)
    V, U, multiplier = (place.collect(name) for name in ("V", "U", "Lambda"))
    place.close()
    # (16): |Lambda+ - Lambda| = rho |V - U| can be summed, and Lambda is bounded.
    steps = np.array([row["rho_used"] * row["primal_residual"] for row in rows])
    assert steps[len(steps) // 2 :].sum() < 1e-3 * steps.sum()
    assert max(row["multiplier_norm"] for row in rows) < 1e3
    size = np.linalg.norm(V)
    assert np.linalg.norm(V - before["V"]) < 1e-7 * size and np.linalg.norm(U - before["U"]) < 1e-7 * size
    # KKT of (5): A_i v_i = c_i, B_i u_i = d_i, V = U; rho cancels where V = U.
    pulled = GAMMA * mask * target - laplacian.toarray()
    for X, Y, sign in ((V, U, -1.0), (U, V, 1.0)):
        left = GAMMA * np.einsum("ij,ik,jk,jr->ir", mask, X, Y, Y)
        assert np.abs(left - pulled @ Y - sign * multiplier).max() < 1e-5 * np.abs(left).max()
    assert np.linalg.norm(V - U) < 1e-7 * size


def test_strong_convexity_of_17_has_half_the_printed_constant(rng):
    """(17) and (19) hold with rho / 2 in the place of rho, and not with rho: the lemma needs no more."""
    n, r, rho = 8, 6, 3.0
    laplacian, must, cannot = random_problem(rng, n, 3)
    target, mask = dense_targets(n, must, cannot)
    L = laplacian.toarray()
    V, U, multiplier = (rng.standard_normal((n, r)) for _ in range(3))

    def lagrangian(V):
        loss = 0.5 * GAMMA * np.sum(mask * (V @ U.T - target) ** 2)
        return np.sum(V * (L @ U)) + loss + np.sum(multiplier * (V - U)) + 0.5 * rho * np.sum((V - U) ** 2)

    best = plain_iteration(L, target, mask, GAMMA, rho, V, U, multiplier)[0]
    for _ in range(20):
        other = best + rng.standard_normal((n, r))
        assert lagrangian(other) - lagrangian(best) >= rho / 2 * np.sum((other - best) ** 2) * (1 - 1e-12)
    # A row with fewer pairs than columns has a direction that its pairs do not see.
    i = int(np.argmin(mask.sum(axis=1)))
    unseen = np.linalg.svd(U[mask[i]])[2][-1]
    other = best.copy()
    other[i] += unseen
    assert lagrangian(other) - lagrangian(best) == pytest.approx(rho / 2, rel=1e-9)


def test_the_floor_bounds_the_largest_eigenvalue(rng):
    for seed in range(5):
        laplacian, *_ = random_problem(np.random.default_rng(seed), 30)
        dense = laplacian.toarray()
        largest = np.linalg.eigvalsh(dense)[-1]
        assert largest <= spectral_bound(laplacian) * (1 + 1e-12) <= 2 * np.diag(dense).max() * (1 + 1e-12)
        degree = np.sqrt(np.diag(dense))
        normalized = sparse.csr_array(dense / np.outer(degree, degree))
        assert np.linalg.eigvalsh(normalized.toarray())[-1] <= spectral_bound(normalized) <= 2.001
