"""Pairs that look wrong: the probability of each by held-out scores, and how far the fit trusts it.

Where a gamma smaller than the given one makes the held-out pairs more likely, they are scored by their cosines at that gamma, and a
`NoisyLogistic` of these says how likely each is wrong. The fit of all pairs is at that gamma, with each pair's weight times
1 - P(wrong). Otherwise all pairs are trusted, and the fit is the same as without looking.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dkl.linalg.noisy_logistic import NoisyLogistic
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_scores import GammaChoice

Vector = NDArray[np.float64]
LEAST_TRUST = 1e-4
"""Smallest factor of a pair's weight: the problem takes weights above 0."""
NAMED = 3
"""Maximum number of pairs that a text names."""


@dataclass(frozen=True)
class WrongPairs:
    """Pairs that look wrong; they may be right.

    pairs           the checked pairs, m of them, must-links first
    probability     (m,) that each is wrong, in their order; 0 where all are trusted
    curve           (slope, intercept, floor) of the `NoisyLogistic` of the pairs' cosines; NaN where a callback ended the choice before
    contradictions  number of cannot-links whose ends the must-links join
    gammas, log_likelihood
                    (k,) gammas that were compared, and the log-likelihood of the held-out pairs under each
    """

    pairs: Pairs = field(repr=False)
    probability: Vector = field(repr=False)
    curve: Vector = field(repr=False)
    contradictions: int
    gammas: Vector = field(repr=False)
    log_likelihood: Vector = field(repr=False)

    @property
    def share(self) -> float:
        """Return the estimated share of wrong pairs."""
        return float(np.nan_to_num(self.curve[2]))

    @property
    def flagged(self) -> NDArray[np.bool_]:
        """Return flags (m,), True for pairs that are more likely wrong than right."""
        return self.probability > 0.5

    @property
    def trust(self) -> Vector:
        """Return the factors (m,) of the pairs' weights in the fit."""
        return np.maximum(1.0 - self.probability, LEAST_TRUST)

    @property
    def is_used(self) -> bool:
        """Return whether the fit trusts pairs less that look wrong."""
        return bool(self.probability.any())

    @property
    def reason(self) -> str:
        """Return why some pairs must be wrong; empty without contradictions."""
        if not self.contradictions:
            return ""
        lie = "cannot-links lie" if self.contradictions > 1 else "cannot-link lies"
        return f"{self.contradictions:,} {lie} inside must-link components, so some pairs are wrong"

    @property
    def summary(self) -> str:
        """Return one line for a warning."""
        m = len(self.probability)
        looks = (
            f"{np.count_nonzero(self.flagged):,} of {m:,} pairs look wrong, and count for less (result_.wrong_pairs)"
        )
        return f"{self.reason}: {looks}" if self.reason else looks

    def as_dict(self) -> dict[str, object]:
        """Return the numbers for a report, JSON."""
        return {
            "share": self.share,
            "flagged": int(np.count_nonzero(self.flagged)),
            "contradictions": self.contradictions,
            "used": self.is_used,
        }

    def __str__(self) -> str:
        m, count = len(self.probability), int(np.count_nonzero(self.flagged))
        if not self.is_used:
            why = f"{self.reason}, but pairs" if self.reason else "Pairs"
            return f"{why} held out do not show which of {m:,} look wrong: all are trusted"
        text = f"About {self.share:.0%} of {m:,} pairs look wrong; {count:,} flagged (P > .5)"
        if not count:
            return text
        order = np.argsort(-self.probability, kind="stable")[: min(NAMED, count)]
        kinds = ("cannot-link", "must-link")
        i, j, sign = self.pairs.i, self.pairs.j, self.pairs.sign
        named = [f"{kinds[int(sign[k] > 0)]} {i[k]}-{j[k]} (P = {self.probability[k]:.2f})" for k in order.tolist()]
        more = f" and {count - len(named):,} more" if count > len(named) else ""
        known = (
            "on test sets most such flags were right, fewer where classes overlap, and half of the wrong pairs had one"
        )
        return f"{text}; {known}: {', '.join(named)}{more}"


def wrong_pairs_of(choice: GammaChoice, pairs: Pairs, contradictions: int) -> WrongPairs:
    """Return how likely each pair is wrong by its score; none is flagged if the last gamma is the best."""
    is_must = pairs.sign > 0
    probability, parameters = np.zeros(len(is_must)), np.full(3, np.nan)
    if choice.is_whole:
        cosines = choice.cosines[choice.best]
        curve = NoisyLogistic.fit(cosines, is_must, even_weights(pairs))
        parameters[:] = curve.parameters
        if choice.best < len(choice.gammas) - 1:
            probability = curve.wrong(cosines, is_must)
    return WrongPairs(pairs, probability, parameters, contradictions, choice.gammas, choice.log_likelihood)


def even_weights(pairs: Pairs) -> Vector:
    """Return the pairs' weights scaled to mean 1, so that a likelihood counts m pairs whatever their unit."""
    return pairs.weights / pairs.weights.mean()
