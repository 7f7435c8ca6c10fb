"""Small pairwise problems, the paper's updates as a plain loop, and the SDP's optimum by a conic solver."""

import clarabel
import numpy as np
from scipy import sparse


def random_problem(rng, n, pairs=None, density=0.3):
    """(laplacian, must_link, cannot_link) of a random connected weighted graph on n patterns."""
    weights = np.triu(rng.random((n, n)) * (rng.random((n, n)) < density), 1)
    weights[np.arange(n - 1), np.arange(1, n)] += 0.1
    weights = weights + weights.T
    laplacian = sparse.csr_array(np.diag(weights.sum(axis=1)) - weights)
    everything = np.array([(i, j) for i in range(n) for j in range(i)])
    chosen = everything[rng.permutation(len(everything))[: pairs or n]]
    half = len(chosen) // 2
    return laplacian, chosen[:half], chosen[half:]


def small_problem(rng: np.random.Generator, n: int) -> tuple[sparse.csr_array, sparse.csr_array]:
    """A normalized Laplacian and targets with both links, (n, n)."""
    weights = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.3), 1)
    weights += np.diag(np.full(n - 1, 0.1), 1)
    weights = weights + weights.T
    scale = 1.0 / np.sqrt(weights.sum(axis=1))
    laplacian = sparse.csr_array(np.eye(n) - scale[:, None] * weights * scale)
    kind = np.triu(rng.integers(0, 8, (n, n)), 1)
    kind = kind + kind.T
    rows, columns = np.nonzero((kind == 1) | (kind == 2) | np.eye(n, dtype=bool))
    values = np.where(rows == columns, 1.0, (kind[rows, columns] == 1).astype(float))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))
    return laplacian, sparse.csr_array((values, columns, indptr), shape=(n, n))


def dense_targets(n, must_link, cannot_link, weights=None):
    """(T, mask): targets and which entries of K they bind, as the paper's (2) defines them; with `weights`, of the must-links
    and then the cannot-links, those in the mask's place."""
    target, mask = np.eye(n), np.eye(n, dtype=bool if weights is None else float)
    told = iter([True] * (len(must_link) + len(cannot_link)) if weights is None else weights)
    for value, pairs in ((1.0, must_link), (0.0, cannot_link)):
        for i, j in pairs:
            target[i, j] = target[j, i] = value
            mask[i, j] = mask[j, i] = next(told)
    return target, mask


def objective(K, laplacian, target, mask, gamma):
    return np.trace(K @ laplacian) + 0.5 * gamma * np.sum(mask * (K - target) ** 2)


def charged(n, spread, gamma, diagonal, shift, lift):
    """What the certificate charges for a shift and a lift of S's diagonal, beside <S, K>: the lesser of its two bounds."""
    whole = lift + shift
    by_trace = shift * (n + np.sqrt(n) * spread) + lift.sum() + np.linalg.norm(lift) * spread
    return min(by_trace, whole @ diagonal + whole @ whole / (2 * gamma))


def lifted_by(certificate, mask):
    """M, dense (n, n): the certificate's lift on the diagonal, and row by row on the pattern's pairs i < j."""
    M = np.diag(certificate.lift)
    if certificate.pair_lift.size:
        i, j = np.nonzero(np.triu(mask, 1))
        M[i, j] = M[j, i] = certificate.pair_lift
    return M


def recomputed_gap(certificate, V, laplacian, target, weights, gamma):
    """(gap, S + M) of the factor by dense arithmetic and nothing of the certificate's but its lift; `weights` is W (n, n), 0 where
    there is no pair."""
    n, K, mask = len(V), V @ V.T, weights > 0
    S = laplacian + gamma * weights * (K - target)
    spread = np.sqrt(2 * objective(K, laplacian, target, weights, gamma) / gamma)
    lifted = S + lifted_by(certificate, mask)
    M = lifted - S + max(-np.linalg.eigvalsh(lifted)[0], 0.0) * np.eye(n)
    size = np.sum(M[mask] ** 2 / weights[mask])
    charge = min(np.sum((M * target)[mask]) + np.sqrt(size) * spread, np.sum(M * K) + size / (2 * gamma))
    return max(np.sum(S * K), 0.0) + charge, lifted


def plain_iteration(laplacian, target, mask, gamma, rho, V, U, multiplier):
    """One iteration of Algorithm 1 by (9)-(13), pattern by pattern, with dense inverses."""
    n, r = V.shape

    def half_step(other, sign):
        out = np.empty((n, r))
        for i in range(n):
            neighbors = np.flatnonzero(mask[i])
            A = rho * np.eye(r) + gamma * sum(mask[i, j] * np.outer(other[j], other[j]) for j in neighbors)
            c = gamma * sum(mask[i, j] * target[i, j] * other[j] for j in neighbors)
            c = c - laplacian[i] @ other + rho * other[i] + sign * multiplier[i]
            out[i] = np.linalg.inv(A) @ c
        return out

    V = half_step(U, -1.0)
    U = half_step(V, 1.0)
    return V, U, multiplier + rho * (V - U)


def sdp_optimum(laplacian, target, mask, gamma):
    """The optimal value of problem (1) by an interior-point method on its conic form.

    With x = svec(K) (upper triangle by columns, off-diagonals times sqrt 2) both (i,j) and (j,i) of a pair together give
    gamma/2 (x_k - sqrt 2 t)^2, and a diagonal entry gamma/2 (x_k - 1)^2: a diagonal quadratic over the psd cone. A weight in
    the mask multiplies its term.
    """
    n = len(target)
    rows, columns = np.triu_indices(n)
    order = np.lexsort((rows, columns))
    rows, columns = rows[order], columns[order]
    weight = np.where(rows == columns, 1.0, np.sqrt(2.0))
    bound = mask[rows, columns].astype(float)
    goal = weight * target[rows, columns]
    P = sparse.diags(gamma * bound, format="csc")
    q = weight * laplacian[rows, columns] - gamma * bound * goal
    m = len(rows)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    solver = clarabel.DefaultSolver(
        P, q, sparse.csc_matrix(-sparse.identity(m)), np.zeros(m), [clarabel.PSDTriangleConeT(n)], settings
    )
    solution = solver.solve()
    return solution.obj_val + 0.5 * gamma * float(np.sum(bound * goal**2))


def hard_rows(n, seed):
    """(X (n, 5), must_link, cannot_link): four groups with heavy tails, a tenth of the rows duplicates; n random pairs, a
    twentieth of which are wrong."""
    rng = np.random.default_rng(seed)
    different = n - n // 10
    y = rng.integers(0, 4, different)
    X = 2 * rng.normal(size=(4, 5))[y] + rng.standard_t(2, size=(different, 5))
    again = rng.permutation(different)[: n // 10]
    X, y = np.vstack([X, X[again]]), np.concatenate([y, y[again]])
    ends = np.array([(i, j) for i in range(n) for j in range(i)])
    ends = ends[rng.permutation(len(ends))[:n]]
    alike = (y[ends[:, 0]] == y[ends[:, 1]]) ^ (rng.random(n) < 0.05)
    return X / X.std(axis=0), ends[alike], ends[~alike]
