"""Pairs that contradict each other: refused, weighed or left out, once each pair is there once."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from dkl.errors import DataWarning, InputError
from dkl.side_information.pair_checks import Integers, contradicted, contradiction_error, joined_ends
from dkl.side_information.pair_weights import Weights, distinct, without_opposites

if TYPE_CHECKING:
    from numpy.typing import NDArray


def consistent(
    must: Integers,
    cannot: Integers,
    must_weights: Weights,
    cannot_weights: Weights,
    n: int,
    contradictions: str,
    *,
    stacklevel: int,
) -> tuple[Integers, Integers, Weights]:
    """Return (must-links, cannot-links, weights) of n rows as `dkl.Pairs.check` describes them.

    stacklevel: of the warning that counts what is kept, as in `warnings.warn`.
    """
    if contradictions == "raise":
        joining = must[must_weights > 0]
        bad = contradicted(joining, cannot, n) & (cannot_weights > 0)
        if bad.any():
            raise contradiction_error(joining, cannot, bad, n)
    must, must_weights = distinct(must, must_weights, "must_link")
    cannot, cannot_weights = distinct(cannot, cannot_weights, "cannot_link")
    must_weights, cannot_weights, *opposites = without_opposites(must, must_weights, cannot, cannot_weights, n)
    if not must_weights.any() and not cannot_weights.any():
        got = f"{opposites[0]} given both as a must-link and as a cannot-link, with equal weights"
        raise InputError("no pairs left", where="must_link, cannot_link", got=got, wanted="one that is given one way")
    must, cannot = must[must_weights > 0], cannot[cannot_weights > 0]
    must_weights, cannot_weights = must_weights[must_weights > 0], cannot_weights[cannot_weights > 0]
    bad = contradicted(must, cannot, n)
    if contradictions == "keep" and (bad.any() or any(opposites)):
        warnings.warn(_said_of(must, cannot, bad, n, *opposites), DataWarning, stacklevel=stacklevel)
    elif bad.any():
        cannot, cannot_weights = cannot[~bad], cannot_weights[~bad]
    return must, cannot, np.concatenate([must_weights, cannot_weights])


def _said_of(must: Integers, cannot: Integers, bad: NDArray[np.bool_], n: int, n_out: int, n_heavier: int) -> str:
    """Describe contradictions that are kept: the cannot-links in `bad` (c,), and the pairs that were given both ways."""
    said = []
    if n_out + n_heavier:
        out = [f"{n_out:,} left out"] * bool(n_out)
        out += [f"{n_heavier:,} kept on the heavier side with the difference of the weights"] * bool(n_heavier)
        said.append(f"{n_out + n_heavier:,} given both as must-link and as cannot-link: {', '.join(out)}")
    if bad.any():
        named = joined_ends(must, cannot, bad, n)
        said.append(
            f"{np.count_nonzero(bad):,} of {len(cannot):,} cannot-links lie inside must-link components: {named}"
        )
    return f"the pairs contradict each other, and are kept: {'; '.join(said)}"
