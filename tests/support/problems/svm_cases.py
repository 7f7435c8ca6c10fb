"""Problems (7) of the optimal neighborhood kernel, and their solutions by LIBSVM and by a conic solver."""

from dataclasses import replace

import clarabel
import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC

from dkl.problems.svm.problem import NeighborhoodSVM


class Dense:
    """A kernel operator on a matrix."""

    def __init__(self, K):
        self.K, self.n = K, len(K)

    def times(self, v):
        return self.K @ v

    def columns(self, chosen):
        return self.K[:, chosen]

    def block(self, chosen):
        return self.K[np.ix_(chosen, chosen)]


def problem(K, y, C=1.0, rho=1.0):
    return NeighborhoodSVM(Dense(K), y, np.broadcast_to(np.asarray(C, float), len(y)).copy(), float(rho))


def two_clouds(rng, n, d=3, apart=1.0):
    """Rows of two overlapping classes, and their labels."""
    y = np.where(rng.random(n) < 0.4, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return rng.standard_normal((n, d)) + apart * y[:, None] * rng.standard_normal(d), y


def blobs(rng, n, classes):
    """Rows of several classes in turn, and their numbers."""
    y = np.arange(n) % classes
    return rng.standard_normal((n, 3)) + 1.5 * rng.standard_normal((classes, 3))[y], y


def random_problem(rng, n, kernel="rbf", C=1.0, rho=1.0, **params):
    X, y = two_clouds(rng, n)
    return problem(pairwise_kernels(X, metric=kernel, **params), y, C, rho)


def f(of, alpha):
    """(7), plainly."""
    beta = of.y * alpha
    return beta @ of.kernel.K @ beta - 2 * alpha.sum() + (alpha @ alpha) ** 2 / (4 * of.rho)


def machine(K, y, C, tol=1e-10):
    """(alpha, b) of the support vector machine on a kernel matrix, bounds C (n,), by LIBSVM."""
    weights = np.asarray(C) / np.max(C)
    found = SVC(C=float(np.max(C)), kernel="precomputed", tol=tol, cache_size=50).fit(K, y, sample_weight=weights)
    alpha = np.zeros(len(y))
    alpha[found.support_] = np.abs(found.dual_coef_[0])
    return alpha, float(found.intercept_[0])


def by_libsvm(of, tol=1e-10):
    """(alpha, b): the machine on K + s / (2 rho) I at the one s with s = |alpha|^2."""
    K, n = of.kernel.K, of.n

    def at(s):
        return machine(K + s / (2 * of.rho) * np.eye(n), of.y, of.C, tol)

    def excess(s):
        alpha, _ = at(s)
        return alpha @ alpha - s

    # |alpha|^2 falls with s, and by e'alpha >= ... no sum of squares exceeds that of the bounds.
    high = float(of.C @ of.C)
    low = high
    while excess(low) <= 0 and low > 1e-300:
        high, low = low, low / 16
    return at(brentq(excess, low, high, xtol=1e-300, rtol=1e-11) if low < high else high)


def by_conic(of):
    """alpha of (7) as the quadratic programme in (alpha, s) with the second-order cone |alpha|^2 <= s."""
    n = of.n
    Q = of.y[:, None] * of.kernel.K * of.y
    P = sparse.block_diag([sparse.triu(Q + Q.T), [[1 / (2 * of.rho)]]], format="csc")
    A = np.zeros((1 + 2 * n + n + 2, n + 1))
    b = np.zeros(len(A))
    A[0, :n] = of.y
    A[1 : n + 1, :n], A[n + 1 : 2 * n + 1, :n], b[n + 1 : 2 * n + 1] = -np.eye(n), np.eye(n), of.C
    A[2 * n + 1, n], b[2 * n + 1] = -1.0, 1.0  # |(2 alpha, s - 1)| <= s + 1
    A[2 * n + 2, n], b[2 * n + 2] = -1.0, -1.0
    A[2 * n + 3 :, :n] = -2 * np.eye(n)
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(2 * n), clarabel.SecondOrderConeT(n + 2)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    linear = np.append(-2 * np.ones(n), 0.0)
    found = clarabel.DefaultSolver(P, linear, sparse.csc_matrix(A), b, cones, settings).solve()
    assert "Solved" in str(found.status), found.status
    return np.array(found.x[:n])


class Parted(Dense):
    """One that gives parts, in double or single precision, and counts what is asked of the whole."""

    dtype = np.dtype(np.float64)

    def __init__(self, K, part_dtype=np.float64, fits=True):
        super().__init__(K)
        self.part_dtype, self.fits, self.columns_used, self.largest = np.dtype(part_dtype), fits, 0, 0

    def times(self, v):
        self.columns_used += np.count_nonzero(v)
        return super().times(v)

    def roughly(self, v):
        self.columns_used += np.count_nonzero(v)
        return self.K.astype(self.part_dtype).astype(float) @ v

    def part(self, chosen):
        self.largest = max(self.largest, len(chosen))
        found = Dense(self.K[np.ix_(chosen, chosen)].astype(self.part_dtype).astype(float))
        found.dtype = self.part_dtype
        return found


def parted(of, **kinds):
    """The same problem, on a kernel that gives parts."""
    return replace(of, kernel=Parted(of.kernel.K, **kinds))
