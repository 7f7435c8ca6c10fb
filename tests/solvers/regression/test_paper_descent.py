"""Algorithm 2 of Machart et al. (2011) with the slips of its print, against a plain loop."""

import numpy as np

from dkl.solvers.regression import paper
from dkl.solvers.watch import Outcome


def data(rng, n=20, M=6):
    C = rng.standard_normal((n, M))
    return C, C @ rng.uniform(-2, 2, M) + 0.1 * rng.standard_normal(n)


def F(C, y, mu, lam, nu):
    return y @ np.linalg.solve(np.eye(len(y)) + (C * mu) @ C.T / lam, y) + nu * mu.sum()


def plain_step(C, y, mu, lam, nu, m, factor):
    """(19) with a second derivative of `factor` lambda a^2 q, by dense inverses."""
    inverse = np.linalg.inv(lam * np.eye(len(y)) + (C * mu) @ C.T)
    a, q = y @ inverse @ C[:, m], C[:, m] @ inverse @ C[:, m]
    h = factor * lam * a**2 * q
    mu = mu.copy()
    mu[m] = max(0.0, mu[m] + (lam * a**2 - nu) / h) if h > 0 else 0.0
    return mu


def test_every_step_is_the_printed_or_the_mended_one(rng):
    C, y = data(rng)
    order = rng.integers(6, size=60).tolist()
    for mended, factor in ((True, 2.0), (False, 1.0)):
        left, mu = iter(order), np.zeros(6)
        state = paper.PaperState.zero(6)
        walk = paper.steps(C, y, 0.7, 0.3, state, lambda left=left: next(left), mended=mended)
        for m in order:
            mu = plain_step(C, y, mu, 0.7, 0.3, m, factor)
            np.testing.assert_allclose(next(walk).mu, mu, rtol=1e-8, atol=1e-10)


def test_every_printed_step_down_raises_the_objective_unless_it_is_cut(rng):
    """Along a coordinate, F changes by nu d (1 - x / (1 + d q)), x = lambda a^2 / nu; (19) has d q = (1 - 1 / x) / 2, which raises it
    for x < 1/2: Theorem 1 (a) is false there. Without the 2 d q is 1 - 1 / x, and every step down raises F."""
    seen = dict.fromkeys([(factor, rises) for factor in (1.0, 2.0) for rises in (True, False)], 0)
    for _ in range(200):
        C, y = data(rng, 6, 3)
        mu, nu = rng.uniform(0, 5, 3), rng.uniform(0.01, 3)
        inverse = np.linalg.inv(np.eye(6) + (C * mu) @ C.T)
        x = (y @ inverse @ C[:, 0]) ** 2 / nu
        for factor in (1.0, 2.0):
            new = plain_step(C, y, mu, 1.0, nu, 0, factor)
            before = F(C, y, mu, 1.0, nu)
            rise = F(C, y, new, 1.0, nu) - before
            if abs(rise) > 1e-9 * before and new[0] > 0:
                assert (rise > 0) == (x < 1 and (factor == 1.0 or x < 0.5))
                seen[factor, bool(rise > 0)] += 1
    assert all(seen.values())


def test_the_printed_stop_ends_after_m_steps(rng):
    """F(mu^k) - F(mu^(k-M)) is below any positive share of F as soon as F falls at all; mended, it is the fall."""
    C, y = data(rng)
    draws = np.random.default_rng(0)

    def solve(**more):
        return paper.slkl(C, y, 1.0, 0.01, tol=1e-4, draw=lambda: draws.integers(6), **more)

    printed, mended = solve(mended=False), solve()
    assert printed.outcome is Outcome.SOLVED and printed.n_iter == 6
    assert mended.n_iter > 12
    before, after = mended.objectives[-2:]
    assert 0 <= before - after < 1e-4 * before
