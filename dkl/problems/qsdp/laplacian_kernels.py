"""Kernels K = Q Y Q' in the basis of a graph, as problems in Y (Wu, So, Li & Li 2009, section 2).

    RegMVU        min over Y psd   nu sum over edges of (K_ii - 2 K_ij + K_jj - d_ij^2)^2 - tr(Y)               (11), as a minimum
    RegPCP        min over Y psd   sum over (i, j, t) of w_ij (K_ij - t)^2                                        (12), where w = 1
    Colored MVU   (11) with tr(H K H L), L a kernel of side information and H = I - 11'/n, in the place of tr(Y)  (Song et al. 2008)

Edges count once, and so does each pair and each diagonal entry, the target of which is 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.symmetric.pair_forms import PairForms
from dkl.problems.qsdp import checks
from dkl.problems.qsdp.problem import QuadraticSDP

Array = NDArray[np.float64]
Pairs = NDArray[np.integer]


def variance(Q: Array) -> Array:
    """Return W (m, m) with <W, Y> = tr(Y), the variance of an embedding by Q (n, m) without the constant."""
    return np.eye(Q.shape[1])


def dependence(Q: Array, side: Array) -> Array:
    """Return W (m, m) with <W, Y> = tr(H K H L), L = side side': `side` (n, k) of one-hot labels, say."""
    seen = Q.T @ (side - side.mean(axis=0))
    return seen @ seen.T


def unfolding(Q: Array, edges: Pairs, squared: Array, nu: float, reward: Array) -> QuadraticSDP:
    """Return RegMVU or Colored MVU: edges (e, 2) of squared distances (e,), Q (n, m), nu > 0, and W.

    <W, Y> is to grow. An edge joins two different rows, at a distance of 0 where they are equal. InputError for anything else.
    """
    Q = checks.basis(Q)
    edges = checks.edges(edges, len(Q))
    squared, reward = checks.edge_lengths(squared, len(edges)), checks.symmetric(reward, "reward", Q.shape[1])
    weight = np.sqrt(checks.positive(nu, "nu"))
    checks.refuse_out_of_range(weight * squared)
    return QuadraticSDP(PairForms.distances(Q, edges, np.full(len(edges), weight)), weight * squared, -reward)


def propagation(Q: Array, must_link: Pairs, cannot_link: Pairs, weights: Array | None = None) -> QuadraticSDP:
    """Return RegPCP for Q (n, m) and pairs (., 2) with targets 1 and 0, i != j.

    weights (n_must + n_cannot,): of the pairs' squares, ones by default; the diagonal weighs 1. InputError for invalid pairs or weights.
    """
    Q = checks.basis(Q)
    must_link, cannot_link = (
        checks.ends(pairs, len(Q), where) for pairs, where in ((must_link, "must_link"), (cannot_link, "cannot_link"))
    )
    own = np.repeat(np.arange(len(Q))[:, None], 2, axis=1)
    pairs = np.concatenate([own, must_link, cannot_link])
    targets = np.concatenate([np.ones(len(own) + len(must_link)), np.zeros(len(cannot_link))])
    scale = np.ones(len(pairs))
    scale[len(own) :] = np.sqrt(checks.pair_weights(weights, len(must_link), len(cannot_link)))
    m = Q.shape[1]
    return QuadraticSDP(PairForms.entries(Q, pairs, scale), scale * targets, np.zeros((m, m)))


STRETCH = 0.5


def default_nu(squared: Array, slowest: float, reward: float = 1.0) -> float:
    """Return a nu at which the edges of a flat, unfolded graph would stretch by STRETCH on average.

    squared: d_ij^2 of the edges; slowest: the least nonzero eigenvalue of the graph's Laplacian, unnormalized, edges weighing 1;
    reward: the largest eigenvalue of W, 1 of the variance. With exact distances <W, Y> is at most reward sum d^2 / slowest, which
    a long graph nearly reaches, and at an optimum <W, Y> = 2 nu sum (stretch of d^2) (d^2 + stretch). So
    nu = reward sum d^2 / (2 STRETCH slowest sum d^4): Y grows with the scale of the rows, and nothing else changes.
    """
    # Of lengths of size 1: fourth powers of others overflow, or vanish, where lengths themselves are far from that.
    unit = float(squared.max())
    lengths = squared / unit
    return float(reward * lengths.sum() / slowest / (2.0 * STRETCH * (lengths**2).sum()) / unit)
