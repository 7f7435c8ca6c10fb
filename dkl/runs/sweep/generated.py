"""Data that `dkl sweep` makes up where none are given: rows by blocks, so that any n is written within little memory, and
what is known of them. A learner's declaration names its `MadeUp`.

Block b of a seed's rows is drawn from the stream (seed, b): of two sizes the smaller holds the first rows of the larger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dkl.datasets import two_gaussians
from dkl.side_information.pairs import Pairs

BLOCK = 65_536
"""Rows drawn together: an even number, as the classes alternate."""
LABELLED = 400
"""Rows with a label by default, where labels make the problem's size: 40,000 triplets at the default neighbors."""

Block = tuple[NDArray[np.float64], NDArray[Any] | None]
Side = Callable[[NDArray[Any], int | None, int], dict[str, Any]]
"""side(y, count, seed): arrays of a file by their names, or one under "y"."""


@dataclass(frozen=True)
class MadeUp:
    """Synthetic data: a stream of rows, and side information drawn by their y.
    rows: (X (count, d), y (count,) or None) of a stream. side: what is drawn by y, for the input `side_input`; None: y
    itself is the input "targets" if `targets`."""

    rows: Callable[[int, list[int]], Block]
    n_features: int
    targets: bool = False
    side: Side | None = None
    side_input: str = ""

    def blocks(self, n: int, seed: int) -> Iterator[Block]:
        """Yield the n rows in blocks, in order."""
        for number, start in enumerate(range(0, n, BLOCK)):
            X, y = self.rows(BLOCK, [seed, number])
            count = min(BLOCK, n - start)
            yield X[:count], None if y is None else y[:count]

    def bytes_of(self, n: int) -> int:
        """Return the bytes on disk of rows, targets, and side information by the data's own rule."""
        return n * 8 * (self.n_features + self.targets + (3 if self.side else 0))


def gaussians(count: int, stream: list[int]) -> Block:
    """Return rows of the two Gaussians of admm_hu_kwok_2013, section 4.2, in 10 dimensions, with classes."""
    made = two_gaussians(count, random_state=stream)
    return made.X, made.y


def friedman(count: int, stream: list[int]) -> Block:
    """Return rows and Friedman's smooth function of five of ten features, with noise of deviation 1."""
    from sklearn.datasets import make_friedman1

    X, y = make_friedman1(count, 10, noise=1.0, random_state=np.random.RandomState(stream))
    return X, y


def swiss_roll(count: int, stream: list[int]) -> Block:
    """Return rows on a plane rolled up in three dimensions."""
    from sklearn.datasets import make_swiss_roll

    return make_swiss_roll(count, random_state=np.random.RandomState(stream))[0], None


def pairs_of(y: NDArray, count: int | None, seed: int) -> dict[str, NDArray]:
    """Return must-link and cannot-link pairs, by default 0.6 n of each, as admm_hu_kwok_2013, section 4."""
    must, cannot = (None, None) if count is None else (count - count // 2, count // 2)
    pairs = Pairs.from_labels(y, must, cannot, random_state=seed)
    return {"must_link": pairs.must_link, "cannot_link": pairs.cannot_link}


def some_labels(y: NDArray, count: int | None, seed: int) -> dict[str, NDArray]:
    """Return labels of `count` rows, -1 for all others."""
    labelled = np.random.default_rng(seed).permutation(len(y))[: min(len(y), count or LABELLED)]
    found = np.full(len(y), -1, np.int64)
    found[labelled] = y[labelled]
    return {"y": found}


GAUSSIANS_WITH_PAIRS = MadeUp(gaussians, 10, side=pairs_of, side_input="pairs")
GAUSSIANS_WITH_CLASSES = MadeUp(gaussians, 10, targets=True)
GAUSSIANS_WITH_SOME_LABELS = MadeUp(gaussians, 10, side=some_labels, side_input="targets")
SMOOTH_FUNCTION = MadeUp(friedman, 10, targets=True)
SWISS_ROLL = MadeUp(swiss_roll, 3)
