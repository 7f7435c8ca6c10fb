"""The small systems against dense inverses, pattern by pattern: (25) and the updates (13) that it stands for."""

import numpy as np
import pytest
from scipy import sparse

from dkl.linalg.slabs.small_systems import HUB_SIZE, SmallSystems, filled_here, solve

GAMMA = 7.0
N, HUB_PAIRS = 130, 90  # the hub's pattern has 91 entries


def pattern_of(n, pairs):
    """T's pattern: both ends of every pair, and the diagonal."""
    mask = np.eye(n, dtype=bool)
    for i, j in pairs:
        mask[i, j] = mask[j, i] = True
    return sparse.csr_array(mask.astype(float))


def random_pairs(rng, n, count):
    pairs = {tuple(sorted(rng.choice(n, 2, replace=False).tolist(), reverse=True)) for _ in range(count)}
    return sorted(pairs)


def with_hub(rng):
    """Pattern 5 is in 90 pairs, the last 20 patterns in none, the others in a few."""
    ends = [j for j in range(N - 20) if j != 5][:HUB_PAIRS]
    return pattern_of(N, [(5, j) for j in ends] + random_pairs(rng, N - 20, 100))


class State:
    """Rows u_i, linear terms m_i = c_i - rho u_i, and the sums over columns that the systems take."""

    def __init__(self, rng, pattern, rank):
        n = pattern.shape[0]
        self.pattern, self.u = pattern, rng.standard_normal((n, rank)) / np.sqrt(rank)
        self.linear = rng.standard_normal((n, rank))

    def solve(self, systems, rho, filled=filled_here, dtype=np.float64):
        pair = np.array([self.u[a] @ self.u[b] for a, b in zip(systems.left, systems.right, strict=True)])
        rows = np.repeat(np.arange(len(self.u)), np.diff(self.pattern.indptr))
        edge = np.einsum("kc,kc->k", self.u[self.pattern.indices], self.linear[rows])
        weights = np.full(self.pattern.nnz, np.nan, dtype)
        hub_rows = self.u[systems.gathered] if systems.hubs.size else None
        solve(systems, pair, edge, rho, GAMMA, weights, hub_rows, filled)
        return weights

    def of(self, i, rho):
        """(P_i, c_i) of the paper: columns u_j for j in T_i, and the right-hand side of (13)."""
        span = slice(self.pattern.indptr[i], self.pattern.indptr[i + 1])
        return span, self.u[self.pattern.indices[span]].T, self.linear[i] + rho * self.u[i]

    def assert_solved(self, weights, rho, tolerance=1e-12):
        for i in range(len(self.u)):
            span, p, c = self.of(i, rho)
            t, r = p.shape[1], p.shape[0]
            w = np.linalg.inv(rho / GAMMA * np.eye(t) + p.T @ p) @ p.T @ c
            assert np.linalg.norm(weights[span] + w) <= tolerance * np.linalg.norm(w)
            v = np.linalg.inv(rho * np.eye(r) + GAMMA * p @ p.T) @ c  # (13), without the identity (25)
            mine = (c + p @ weights[span]) / rho
            assert np.linalg.norm(mine - v) <= tolerance * np.linalg.norm(c) / rho


@pytest.mark.parametrize("rho", [10.0, 100.0, 12_800.0])
@pytest.mark.parametrize("rank", [1, 20, 120])  # below and above the hub's 91 entries
def test_every_pattern_is_its_dense_inverse(rng, rank, rho):
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern)
    assert systems.hubs.tolist() == [5]
    state = State(rng, pattern, rank)
    state.assert_solved(state.solve(systems, rho), rho)


def test_sums_stay_good_when_rho_is_updated(rng):
    """The sums know no rho, so that it can change between a sum and the half-step that uses it."""
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern)
    state = State(rng, pattern, 30)
    results = []
    for rho in (100.0, 200.0, 50.0, 100.0):
        results.append(state.solve(systems, rho))
        state.assert_solved(results[-1], rho)
    assert results[0].tobytes() == results[3].tobytes() != results[1].tobytes()


@pytest.mark.parametrize("hub_size", [0, 1, 3, 90, 91, 1000])
def test_any_size_may_be_a_hub(rng, hub_size):
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern, hub_size=hub_size)
    counts = np.diff(pattern.indptr)
    assert systems.hubs.tolist() == np.flatnonzero(counts > hub_size).tolist()
    wanted = sorted({int(j) for i in systems.hubs for j in pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]]})
    assert systems.gathered.tolist() == wanted
    for rank in (4, 40):
        state = State(rng, pattern, rank)
        state.assert_solved(state.solve(systems, 100.0), 100.0)


def test_equal_rows_make_no_system_singular(rng):
    pattern = with_hub(rng)
    state = State(rng, pattern, 6)
    state.u[:] = state.u[0]
    state.assert_solved(state.solve(SmallSystems.of(pattern), 10.0), 10.0)
    state.u[:] = 0.0
    assert not state.solve(SmallSystems.of(pattern), 10.0).any()


def test_patterns_without_pairs_have_a_system_of_one(rng):
    pattern = pattern_of(4, [])
    state = State(rng, pattern, 5)
    weights = state.solve(SmallSystems.of(pattern), 30.0)
    size = np.sum(state.u**2, axis=1)
    product = np.sum(state.u * (state.linear + 30.0 * state.u), axis=1)
    np.testing.assert_allclose(weights, -product / (30.0 / GAMMA + size), rtol=1e-13)


@pytest.mark.parametrize("n", [1, 2])
def test_the_smallest_problems(rng, n):
    pattern = pattern_of(n, [(1, 0)] if n == 2 else [])
    state = State(rng, pattern, 3)
    state.assert_solved(state.solve(SmallSystems.of(pattern), 10.0), 10.0)


def test_the_bits_do_not_depend_on_the_cut(rng):
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern)
    state = State(rng, pattern, 30)
    expected = state.solve(systems, 100.0).tobytes()
    for pieces in (2, 3, 8, N, 3 * N):  # more pieces than patterns too: some are empty

        def cut(function, vector, ends, pieces=pieces):
            n = ends.size - 1
            for k in reversed(range(pieces)):
                function(k * n // pieces, (k + 1) * n // pieces)

        assert state.solve(systems, 100.0, cut).tobytes() == expected


def test_single_precision_weights_are_the_double_ones_rounded(rng):
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern)
    state = State(rng, pattern, 30)
    double, single = state.solve(systems, 100.0), state.solve(systems, 100.0, dtype=np.float32)
    assert np.array_equal(single, double.astype(np.float32))


def test_products_are_listed_once_and_all_of_them(rng):
    pattern = with_hub(rng)
    systems = SmallSystems.of(pattern)
    listed = list(zip(systems.left.tolist(), systems.right.tolist(), strict=True))
    assert len(set(listed)) == len(listed) == systems.n_pairs
    wanted = set()
    for i in range(N):
        row = pattern.indices[pattern.indptr[i] : pattern.indptr[i + 1]].tolist()
        wanted |= {(max(i, j), min(i, j)) for j in row}
        if len(row) <= HUB_SIZE:
            wanted |= {(max(a, b), min(a, b)) for a in row for b in row}
    assert set(listed) == wanted
    for k, (i, j) in enumerate(zip(*pattern.nonzero(), strict=True)):
        assert listed[systems.edge_pair[k]] == (max(i, j), min(i, j))
    assert np.array_equal(systems.diagonal, np.equal(*pattern.nonzero()))


def test_a_hub_costs_products_in_the_number_of_its_pairs_not_in_their_square():
    n = 3000
    star = [(i, 0) for i in range(1, n)]
    assert SmallSystems.of(pattern_of(n, star)).n_pairs == 2 * n - 1  # u_i.u_i and u_i.u_0
