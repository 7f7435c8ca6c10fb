"""Quality of a fit on data that it did not learn from, next to the plainest alternative.

A certificate says how near a fit is to the optimum of the fit's objective; it says nothing of whether that objective
suits the data. So each learner keeps a part of its data aside, and reports one number of it with that of a method which
learns nothing, or little.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dkl.errors import StoreError

Vector = NDArray[np.float64]

MIN_HELD_OUT = 10
"""Minimum number of held-out rows, pairs or triplets; fewer say too little for a number."""
MAX_HELD_OUT = 5000
"""Maximum number of held-out rows, pairs or triplets: the standard error of a share is then below .008."""


@dataclass(frozen=True)
class Quality:
    """A learner's number on held-out data, and that of the plainest alternative on the same data.

    measure            "held-out R2", "held-out AUC of pairs"
    value              its value; larger is better
    n                  number of rows, pairs or triplets that it was computed on
    how                "5 folds of 442 rows", "44 of 442 rows"
    alternative        "linear regression", "k-means", "the unlearned kernel"
    alternative_value  the same measure of the alternative
    standard_error     of value - alternative_value, over the held-out data
    others             further measures by name, such as accuracy
    advice             what to try where the alternative is better
    """

    measure: str
    value: float
    n: int
    how: str
    alternative: str
    alternative_value: float
    standard_error: float
    others: dict[str, float] = field(default_factory=dict)
    advice: str = ""

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        return f"{self.measure} {self.value:.3f} ({self.how}); {self.alternative} {self.alternative_value:.3f}"

    @property
    def is_worse(self) -> bool:
        """Return whether the alternative is clearly better.

        That is by more than a standard error, and by more than one held-out row can change. The alternative is the
        simpler of the two, so a draw is its own (the rule of one standard error: Breiman et al., Classification and
        Regression Trees, 1984).
        """
        return self.alternative_value - self.value > max(self.standard_error, 1 / self.n)

    @property
    def warning(self) -> str:
        """Return the text of the warning that the alternative is better."""
        less = f"{self.measure} {self.value:.3f} is less than that of {self.alternative}, {self.alternative_value:.3f}"
        return f"{less} ({self.how}; standard error {self.standard_error:.2g}): {self.advice}"

    @property
    def title(self) -> str:
        """Return the beginning of a picture's title."""
        return f"{self.measure} {self.value:.3f} ({self.alternative} {self.alternative_value:.3f})"

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON keeps them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any, where: str) -> Quality | None:
        """Read what `as_dict` returned; None stays None. Raises StoreError that names an invalid field."""
        if stored is None:
            return None
        if not isinstance(stored, dict):
            raise StoreError("invalid quality", where=where, got=type(stored).__name__, wanted="its fields by name")
        for name in (one.name for one in fields(cls)):
            if not _is_valid(name, stored.get(name)):
                raise StoreError(
                    "invalid quality", where=f"{where}, quality.{name}", got=repr(stored.get(name))[:80], wanted=_WANTED[_kind(name)]
                )  # fmt: skip
        return cls(**{one.name: stored[one.name] for one in fields(cls)})


_TEXTS = ("measure", "how", "alternative", "advice")
_WANTED = {
    "text": "a text",
    "count": "a positive integer",
    "number": "a finite number",
    "numbers": "finite numbers by name",
}


def _kind(name: str) -> str:
    if name in _TEXTS:
        return "text"
    return {"n": "count", "others": "numbers"}.get(name, "number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_valid(name: str, value: Any) -> bool:
    kind = _kind(name)
    if kind == "text":
        return isinstance(value, str)
    if kind == "count":
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if kind == "numbers":
        return isinstance(value, dict) and all(map(_is_number, value.values()))
    return _is_number(value)


def proof_text(relative_gap: float, gap: float | None = None) -> str:
    """Return what a certificate says of a fit: how near its objective is to the minimum, and nothing of its use.

    gap: as `absolute_gap` returns it.

    >>> proof_text(0.0048)
    'objective within 0.48 % of its minimum'
    >>> proof_text(4.5e-7, 2.65e-8)
    'objective within 2.7e-08 of its minimum'
    """
    return f"objective within {f'{100 * relative_gap:.2g} %' if gap is None else f'{gap:.2g}'} of its minimum"


def absolute_gap(objective: float, gap: float, relative_gap: float) -> float | None:
    """Return the gap where `relative_gap` is relative to more than the objective, as of an objective that may fall to 0; else None."""
    # 1.01: the two are rounded apart, and stored as numbers of their own.
    return None if gap <= 1.01 * relative_gap * abs(objective) else gap


def held_out(n: int, share: float, seed: int, step: int, strata: NDArray[np.integer] | None = None) -> NDArray[np.intp]:
    """Return the sorted numbers of the things among n to hold out: `share` of them, at most MAX_HELD_OUT.

    strata (n,)  the same share of each value >= 0 is held out, rounded, and one thing of each at least is left; others are not
                 held out
    step         key of the random stream, next to the seed

    Returns an empty array where fewer than MIN_HELD_OUT would be held out.
    """
    # Another stream for each use, so that a holdout does not follow the draw of pairs or columns by the same seed.
    stream = np.random.default_rng([seed, step])
    if strata is None:
        count = min(round(share * n), MAX_HELD_OUT)
        chosen = (
            stream.choice(n, count, replace=False, shuffle=False) if count >= MIN_HELD_OUT else np.empty(0, np.intp)
        )
        return np.sort(chosen)
    order = stream.permutation(n)
    groups = np.asarray(strata)[order]
    share = min(share, MAX_HELD_OUT / max(1, int(np.count_nonzero(groups >= 0))))
    parts = []
    for value in np.unique(groups[groups >= 0]):
        members = order[groups == value]
        # One of each is left, or the class would be unknown to the fit.
        parts.append(members[: min(round(share * len(members)), len(members) - 1)])
    chosen = np.sort(np.concatenate([np.empty(0, np.intp), *parts]))
    return chosen if len(chosen) >= MIN_HELD_OUT else chosen[:0]


def too_few(n: int, things: str) -> str:
    """Return why none of n rows, pairs or triplets are held out.

    >>> too_few(60, "rows")
    '60 rows are too few to hold 10 out; give more, or a larger holdout'
    """
    more = " of both kinds that do not follow from the others" if things == "pairs" else ""
    return f"{n:,} {things} are too few to hold {MIN_HELD_OUT} out{more}; give more, or a larger holdout"


def paired_error(differences: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Return the standard error of the weighted mean of paired differences (m,), with weights w_i that sum to 1:

        sqrt(m / (m - 1) sum of w_i^2 (d_i - mean)^2)

    Weights of 1 / (classes * rows of the class) give that of a difference of balanced accuracies.
    """
    d = np.asarray(differences, np.float64)
    w = np.full(len(d), 1.0) if weights is None else np.asarray(weights, np.float64)
    w = w / w.sum()
    # In units of a power of 2, which rounds nothing: squares of large or small differences are within double precision.
    unit = 2.0 ** min(int(np.frexp(np.abs(d).max(initial=0.0))[1]), 1023)
    apart = d / unit
    return unit * float(np.sqrt(w**2 @ np.square(apart - w @ apart) * (len(d) / max(len(d) - 1, 1))))


def r2_of(squares: Vector, totals: Vector) -> float:
    """Return the mean over outputs of 1 - squares / totals (T,), as scikit-learn's r2_score: 0 for a constant output unless perfect."""
    constant = np.where(squares == 0, 1.0, 0.0)
    return float(np.where(totals > 0, 1 - squares / np.where(totals > 0, totals, 1.0), constant).mean())


def auc_of(scores: Vector, is_positive: NDArray[np.bool_]) -> tuple[float, Vector]:
    """Return (AUC, placements (m,)): the share of pairs of a positive and a negative whose scores (m,) are in that order.

    A placement is that share over the negatives for a positive, and over the positives for a negative; ties count half.
    """
    ranks, own = _ranks(scores), np.empty(len(scores))
    for kind in (is_positive, ~is_positive):
        own[kind] = _ranks(scores[kind])
    n_positive = int(np.count_nonzero(is_positive))
    # A rank among all, less that among one's own kind, counts the others below, ties by half.
    below = ranks - own  # of the other kind
    placements = np.where(is_positive, below / (len(scores) - n_positive), 1 - below / n_positive)
    return float(placements[is_positive].mean()), placements


def auc_error(first: Vector, second: Vector, is_positive: NDArray[np.bool_]) -> float:
    """Return the standard error of the difference of two AUCs on the same data, from their placements (m,).

    E. DeLong, D. DeLong, D. Clarke-Pearson, Comparing the areas under two or more correlated receiver operating characteristic
    curves, Biometrics 44, 1988.
    """
    apart = first - second
    return float(np.hypot(paired_error(apart[is_positive]), paired_error(apart[~is_positive])))


def _ranks(values: Vector) -> Vector:
    """Return the ranks (m,) from 1 on; equal values share their mean."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[place])
