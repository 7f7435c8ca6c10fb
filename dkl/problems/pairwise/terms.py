"""Terms of the pairwise problem (Hu & Kwok 2013, (1)): the pairs' targets T, their weights, and gammas that fit L.

Plans ask for these too, so nothing here imports what is compiled for a solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dkl.errors import InputError
from dkl.linalg.rows.tree_sum import row_groups
from dkl.side_information.pairs import Pairs

REACH = 1e12
"""Largest ratio of gamma and L's scale, either way: doubles hold three digits of S's smaller term."""
LEAST_GAMMA, MOST_GAMMA = 1.0, 100.0
"""Ends of the path that gamma is chosen on, in units of the Laplacian's largest entry."""


def gamma_path(scale: float, count: int) -> NDArray[np.float64]:
    """Return ascending values (count,) in equal ratios, for a Laplacian whose largest entry is `scale`."""
    return scale * np.geomspace(LEAST_GAMMA, MOST_GAMMA, count)


def check_gamma(gamma: float, scale: float) -> None:
    """Raise InputError if gamma cannot be added in doubles to a Laplacian with `scale` as largest entry.

    S = L + gamma P_T(K - T) holds both to eps = 2e-16 of the larger. Beyond a ratio of 1e12 fewer than three digits of the
    other would be left, and in the end squares of gamma would overflow.
    """
    if scale > 0 and not scale / REACH <= gamma <= scale * REACH:
        raise InputError(
            "too far from the Laplacian for double precision",
            where="gamma",
            got=gamma,
            wanted=f"{scale / REACH:.2g} to {scale * REACH:.2g}, as the Laplacian's largest entry is {scale:.2g}",
        )


def check_weights(gamma: float, weights: NDArray[np.float64], scale: float) -> None:
    """Raise InputError if gamma times the largest weight cannot be added to a Laplacian of that `scale`.

    See `check_gamma`. A small product does no harm: the diagonal has the weight 1, and only gamma itself must not be lost next to L.
    """
    most = float(weights.max(initial=1.0))
    if scale > 0 and not most <= REACH * scale / gamma:
        wanted = f"at most {REACH * scale / gamma:.2g}, as gamma is {gamma:g}"
        raise InputError("too large for double precision", where="weights of pairs", got=most, wanted=wanted)


def target_matrix(n: int, must_link: NDArray[np.int64], cannot_link: NDArray[np.int64]) -> sparse.csr_array:
    """Return T (n, n), CSR, sorted, symmetric, with its diagonal; a cannot-link target is a stored zero.

    must_link, cannot_link : (m, 2) distinct unordered pairs, i != j, in no common pair.
    """
    return _on_pattern(n, must_link, cannot_link, np.repeat([1.0, 0.0], [len(must_link), len(cannot_link)]))


def _on_pattern(
    n: int, must_link: NDArray[np.int64], cannot_link: NDArray[np.int64], values: NDArray[np.float64]
) -> sparse.csr_array:
    """Return the matrix of T's pattern, 1 on the diagonal, `values` at must-links, then at cannot-links."""
    diagonal, must = np.arange(n), len(must_link)
    # Every pair twice, (i, j) and (j, i): the paper counts both, and the small systems need both.
    rows = np.concatenate([diagonal, must_link[:, 0], must_link[:, 1], cannot_link[:, 0], cannot_link[:, 1]])
    columns = np.concatenate([diagonal, must_link[:, 1], must_link[:, 0], cannot_link[:, 1], cannot_link[:, 0]])
    entries = np.concatenate([np.ones(n), values[:must], values[:must], values[must:], values[must:]])
    # Not through scipy's COO: its conversions are free to drop the zeros.
    order = np.lexsort((columns, rows))
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n))))
    return sparse.csr_array((entries[order], columns[order], indptr), shape=(n, n))


def on_targets(n: int, pairs: Pairs, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `values` (must-links first) in the order of T's entries (nnz of T,), and 1 on the diagonal."""
    return _on_pattern(n, pairs.must_link, pairs.cannot_link, values).data


def paper_rank(n_constraints: int) -> int:
    """Return the largest r with r (r + 1) / 2 <= m, m the number of entries of T (section 4)."""
    # By the root, then corrected in integers: the root is rounded.
    r = int((np.sqrt(8.0 * n_constraints + 1.0) - 1.0) / 2.0)
    while (r + 1) * (r + 2) // 2 <= n_constraints:
        r += 1
    while r * (r + 1) // 2 > n_constraints:
        r -= 1
    return max(r, 1)


@dataclass(frozen=True, eq=False)
class PairwiseTerms:
    """Terms of the pairwise problem: Laplacian (n, n), targets T (n, n) of `target_matrix`, their weight gamma > 0.

    weights: W_ij > 0 (nnz of T,), in the order of T's entries; None: ones.
    """

    laplacian: sparse.csr_array
    targets: sparse.csr_array
    gamma: float
    weights: NDArray[np.float64] | None = None

    @classmethod
    def of(cls, laplacian: sparse.csr_array, pairs: Pairs, gamma: float) -> Self:
        """Return the problem of pairs that have passed `Pairs.check`."""
        n, must, cannot = int(laplacian.shape[0]), pairs.must_link, pairs.cannot_link
        weights = on_targets(n, pairs, pairs.weights) if pairs.is_weighted else None
        return cls(laplacian, target_matrix(n, must, cannot), gamma, weights)

    @property
    def n(self) -> int:
        """Return the number of patterns."""
        return int(self.laplacian.shape[0])

    @property
    def paper_rank(self) -> int:
        """Return the paper's rank rule (section 4), over all entries of T; never more than n."""
        return min(paper_rank(int(self.targets.nnz)), self.n)


# Layout of factors of the pairwise problem: width of their slabs, and groups of rows that are added up apart.

LEAST_ROWS = 2048
"""Least number of rows of a group whose sums are added up apart."""
MANY_ROWS = 4096
"""Number of rows from which on slabs have widths between powers of two as well."""


def groups(n: int) -> list[tuple[int, int]]:
    """Return (first row, last row + 1) of the groups that sums over n rows are made of."""
    return row_groups(n, LEAST_ROWS)


def padded_width(n: int, rank: int) -> int:
    """Return the number of columns that a factor (n, rank) is stored with: 4, 8, 16, 24, 32, 48, ...; few rows: powers of two.

    The time of a pass grows with the columns: at n = 7,494, 24 take three quarters of the time of 32. But loops are compiled for each
    width, for two seconds, which few rows do not repay; below 24, where a row is a cache line or two, little is gained.
    """
    # Powers of two first, as vector registers hold 4, 8 or 16 numbers and a slab's row should fill whole ones.
    width = 4
    while width < rank:
        width *= 2
    between = 3 * width // 4
    return between if width > 16 and rank <= between and n >= MANY_ROWS else width
