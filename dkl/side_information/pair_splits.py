"""Pairs cut in two: those to learn from, and those to score by."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dkl.datasets import generator
from dkl.errors import InputError
from dkl.side_information.pair_checks import distinct
from dkl.side_information.pairs import Pairs

if TYPE_CHECKING:
    from dkl.side_information.pair_checks import Integers, Weights


def pair_train_test_split(
    pairs: Pairs,
    test_size: float = 0.25,
    random_state: int | np.integer | np.random.Generator | np.random.RandomState | None = None,
) -> tuple[Pairs, Pairs]:
    """Split pairs into (train, test), with a random `test_size` share of either kind held out.

    Repeats are dropped first, so no unordered pair is on both sides; a held-out pair may still follow from the
    training pairs through must-links.

    Parameters
    ----------
    pairs : Pairs
        The pairs to split; each keeps its weight.
    test_size : float
        Between 0 and 1.
    random_state : None, an integer, a NumPy Generator or RandomState

    Returns
    -------
    train, test : Pairs

    Raises
    ------
    InputError
        For other types, a share that is not between 0 and 1, a pair that is repeated with another weight, and where
        one side would be empty.

    See Also
    --------
    Pairs : What is split.
    sklearn.model_selection.train_test_split : The same for rows.

    Examples
    --------
    >>> from dkl import Pairs, pair_train_test_split
    >>> train, test = pair_train_test_split(Pairs([[0, 1], [1, 2], [3, 4], [4, 5]]), test_size=0.25, random_state=0)
    >>> train, test
    (Pairs(n_must=3, n_cannot=0, ends 0 to 5), Pairs(n_must=1, n_cannot=0, ends 3 to 4))
    """
    if not isinstance(pairs, Pairs):
        raise InputError("not pairs", where="pairs", got=type(pairs).__name__, wanted="dkl.Pairs")
    if isinstance(test_size, bool) or not isinstance(test_size, float) or not 0.0 < test_size < 1.0:
        raise InputError("not a share", where="test_size", got=test_size, wanted="a float between 0 and 1")
    # Each kind by itself: a share of all pairs could leave one kind out of the test.
    rng = generator(random_state)
    must_weights, cannot_weights = np.split(pairs.weights, [pairs.n_must])
    kinds = [
        distinct(pairs.must_link, must_weights, "must_link"),
        distinct(pairs.cannot_link, cannot_weights, "cannot_link"),
    ]
    sides: tuple[list[tuple[Integers, Weights]], list[tuple[Integers, Weights]]] = ([], [])
    for kind, weights in kinds:
        held_out = np.zeros(len(kind), dtype=bool)
        held_out[rng.permutation(len(kind))[: round(test_size * len(kind))]] = True
        for side, chosen in zip(sides, (~held_out, held_out), strict=True):
            side.append((kind[chosen], weights[chosen]))
    train, test = (Pairs(must[0], cannot[0], weights=np.r_[must[1], cannot[1]]) for must, cannot in sides)
    if not all(side.n_must + side.n_cannot for side in (train, test)):
        raise InputError("too few pairs to split", got=f"{pairs!r}", wanted="at least one pair on either side")
    return train, test
