"""Optimum of a small semidefinite program by Clarabel, from dense matrices."""

import clarabel
import numpy as np
from scipy import sparse


def sdp_optimum(C, matrices, b, upper=None):
    """(least <C, K> over K psd with <A_s, K> = b_s, or <= b_s where `upper`, K); C, A_s dense (n, n), symmetric."""
    n, b = len(C), np.asarray(b, float)
    upper = np.zeros(len(b), bool) if upper is None else np.asarray(upper)
    columns, rows = np.tril_indices(n)  # Clarabel's triangle, column by column
    scale = np.where(rows == columns, 1.0, np.sqrt(2.0))
    A = np.array([scale * matrix[rows, columns] for matrix in matrices]).reshape(len(b), len(rows))
    size = len(rows)
    G = sparse.vstack([sparse.csc_matrix(A[~upper]), sparse.csc_matrix(A[upper]), -sparse.eye(size)], format="csc")
    h = np.concatenate([b[~upper], b[upper], np.zeros(size)])
    cones = [
        clarabel.ZeroConeT(int((~upper).sum())),
        clarabel.NonnegativeConeT(int(upper.sum())),
        clarabel.PSDTriangleConeT(n),
    ]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    found = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)), scale * C[rows, columns], G, h, cones, settings
    ).solve()
    K = np.zeros((n, n))
    K[rows, columns] = K[columns, rows] = np.asarray(found.x) / scale
    return found.obj_val, K
