"""`dkl verify` of a metric that is cut to some components: these are the leading principal axes of the learned rows.

For W = F'F of all components F (d, d), which the proof is of, and rows X (n, d) about their mean, the metric places the rows at
Z = X F'. The components C (k, d) that are handed out are C = U F, where the rows of U (k, d) are orthonormal eigenvectors of Z'Z of
its k largest eigenvalues, in descending order. Where some are equal any eigenvectors will do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dkl.runs.logdet.verify_proof import KNOWN
from dkl.runs.verify.comparison import Comparison

Matrix = NDArray[np.float64]
LEAST_AGREE, MOST_AGREE, MANY = 1e-10, 1e-5, 100.0
"""Least and largest relative tolerance, and multiple of the estimated rounding that is allowed."""


@dataclass(frozen=True)
class Cut:
    """Rows X (n, d) about their mean, and how many components are kept of a metric that was learned from them."""

    X: Matrix
    count: int

    @classmethod
    def of(cls, rows: Matrix, count: int | None) -> Cut | None:
        """Return the cut of metrics of the rows (n, d) to `count` components; None for all."""
        if count is None:
            return None
        X = rows - rows[0]
        X -= X.mean(axis=0)
        X /= float(np.abs(X).max()) or 1.0  # no principal axis depends on the scale
        return cls(X, count)

    def axes(self, F: Matrix) -> Matrix:
        """Return the leading principal axes (d, k) of Z = X F'."""
        scale = float(np.abs(F).max()) or 1.0
        return np.asarray(np.linalg.eigh(_gram(self.X, F / scale))[1][:, ::-1][:, : self.count])

    def claims(self, components: Matrix, F: Matrix) -> Iterator[Comparison]:
        """Compare C (k, d) with what they must be for all components F (d, d)."""
        sizes = np.linalg.norm(F, axis=0)
        F, components = F / np.where(sizes > 0, sizes, 1.0), components / np.where(sizes > 0, sizes, 1.0)
        left, roots, right = np.linalg.svd(F)
        inverse = (right.T / np.maximum(roots, np.finfo(float).tiny)) @ left.T
        U = components @ inverse
        X = self.X * (sizes / (float(sizes.max()) or 1.0))
        rounding = KNOWN * float((np.abs(components) @ np.abs(inverse)).max() + (np.abs(F) @ np.abs(inverse)).max())
        apart = float(np.abs(U @ U.T - np.eye(len(U))).max())
        yield Comparison("lengths of the components' axes", 0.0, apart, min(LEAST_AGREE + MANY * rounding, MOST_AGREE))
        G = _gram(X, F)
        values = np.maximum(np.linalg.eigvalsh(G)[::-1], 0.0)
        top = float(values[0]) or 1.0
        summed = float((np.abs(F) @ np.linalg.norm(X, axis=0)).max())
        apart = float(np.abs(G @ U.T - U.T * values[: len(U)]).max()) / top
        rounding += KNOWN * summed / top**0.5
        yield Comparison("components beside the rows", 0.0, apart, min(LEAST_AGREE + MANY * rounding, MOST_AGREE))


def _gram(X: Matrix, F: Matrix) -> Matrix:
    """Return Z'Z (d, d) of Z = X F'."""
    Z = X @ F.T
    return np.asarray(Z.T @ Z)
