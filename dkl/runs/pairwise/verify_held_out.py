"""`dkl verify` of what held-out pairs show: likelihoods, gamma, and pairs that look wrong.

    P(must | s) = e + (1 - 2 e) / (1 + exp(-a s - b)),   a >= 0,   0 < e <= 0.45

There may be several maxima over a, b and e. Of the stored one the likelihood is computed again, and it must be a maximum: from there
the simplex method, which shares no derivative with the fit, must find nothing better.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dkl.errors import StoreError
from dkl.estimators.pairwise.fold_store import stored_pairs
from dkl.runs.verify.comparison import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

Vector = NDArray[np.float64]
NATS = 1.0
"""Gain in log-likelihood that a gamma needs to be chosen instead of the last of the path."""
CLOSE = 1e-3
"""Tolerance of a log-likelihood per pair: how far both searches may end from the maximum."""
RIDGE, LEAST_FLOOR, FLOOR = 5e-5, 1e-6, 0.45
"""Weight of a^2, of scores with variance 1, and the bounds of e."""
LEAST_TRUST = 1e-4
ROUNDED = 1e-9
"""Tolerance of numbers that differ by rounding alone, such as two areas under the same curve."""


def of_held_out_pairs(run: RunStore, report: Json) -> Iterator[Comparison]:
    """Compare the stored likelihoods, gamma and probabilities of held-out pairs with the same recomputed."""
    held = run.read_arrays("choice")
    must, cannot = stored_pairs(run)
    is_must = np.repeat([True, False], [len(must), len(cannot)])
    weights = run.read_pair_weights()
    even = np.ones(len(is_must)) if weights is None else weights / weights.mean()
    likely, gammas, curves = held["log_likelihood"], held["gammas"], held["curves"]
    if held["scores"].shape != (len(gammas), len(is_must)) or not len(likely) == len(curves) == len(gammas):
        raise StoreError("scores that are not of these pairs", where=f"{run.path}/choice")
    whole = np.flatnonzero(~np.isnan(likely))
    for place in whole:
        scored = ~np.isnan(held["scores"][place])
        here, best = _likelihoods(curves[place], held["scores"][place, scored], is_must[scored], even[scored])
        mean, which = float(likely[place]) / len(is_must), f" at gamma {gammas[place]:.4g}"
        yield Comparison(f"log-likelihood{which}", mean, here / len(is_must), ROUNDED)
        yield Comparison(f"most likely curve near it{which}", mean, best / len(is_must), CLOSE, quiet=True)
    chosen = len(gammas) - 1
    if len(whole):
        best, last = int(whole[np.argmax(likely[whole])]), int(whole[-1])
        chosen = best if likely[best] > likely[last] + NATS else last
    is_whole = len(whole) == len(gammas)
    if report["settings"]["gamma"] != "cv" and not is_whole:
        chosen = len(gammas) - 1
    yield Comparison("gamma", float(report["gamma"]), float(gammas[chosen]), 0.0)
    if "probability" in held:
        wrong = np.zeros(len(is_must))
        if is_whole:
            curve, cosines = held["curve"], held["cosines"][chosen]
            here, best = _likelihoods(curve, cosines, is_must, even)
            yield Comparison(
                "likelihood of the cosines' curve", here / len(is_must), best / len(is_must), CLOSE, quiet=True
            )
            yield Comparison("share of wrong pairs", float(report["wrong_pairs"]["share"]), float(curve[2]), ROUNDED)
            if chosen < len(gammas) - 1:
                wrong = _wrong(curve, cosines, is_must)
        apart = float(np.abs(held["probability"] - wrong).max(initial=0.0))
        yield Comparison("probabilities of wrong pairs, apart by", 0.0, apart, ROUNDED)
        yield Comparison("pairs that look wrong", *_flags(report, held["probability"]), 0.0)


def of_quality(run: RunStore, report: Json) -> Iterator[Comparison]:
    """Compare the report's AUCs of held-out pairs, of kernel and alternative, with scikit-learn's."""
    from sklearn.metrics import roc_auc_score

    held, claimed = run.read_arrays("held_out"), report.get("quality")
    if claimed is None:
        return
    must, cannot = stored_pairs(run)
    numbers, scores, plain = held["pair"], held.get("scores", np.empty(0)), held["plain"]
    if not len(numbers) == len(scores) == len(plain) or numbers.min() < 0 or numbers.max() >= len(must) + len(cannot):
        raise StoreError("invalid held-out pairs", where=f"{run.path}/held_out")
    is_must = numbers < len(must)
    if is_must.all() or not is_must.any():
        raise StoreError("held-out pairs of one kind alone", where=f"{run.path}/held_out")
    yield Comparison(QUALITY, float(claimed["value"]), float(roc_auc_score(is_must, scores)), ROUNDED)
    plainly = float(roc_auc_score(is_must, plain))
    yield Comparison(ALTERNATIVE, float(claimed["alternative_value"]), plainly, ROUNDED)


def _flags(report: Json, probability: Vector) -> tuple[float, float]:
    """Return the numbers of flagged pairs by the report and by the stored probabilities."""
    return float(report["wrong_pairs"]["flagged"]), float(np.count_nonzero(probability > 0.5))


def _likelihoods(curve: Vector, scores: Vector, is_must: NDArray[np.bool_], weights: Vector) -> tuple[float, float]:
    """Return the pairs' log-likelihoods by the curve (a, b, e) and by the most likely one near it."""
    if curve.shape != (3,) or not (np.isfinite(curve).all() and curve[0] >= 0 and 0 < curve[2] <= FLOOR):
        return float("nan"), float("nan")
    total = float(weights.sum())
    mean = float(weights @ scores) / total
    spread = float(np.sqrt(weights @ (scores - mean) ** 2 / total)) or 1.0
    standard = (scores - mean) / spread

    def likelihood(x: Vector) -> float:
        a, b, e = x
        p = e + (1 - 2 * e) * 0.5 * (1 + np.tanh(0.5 * (a * standard + b)))
        return float(weights @ np.log(np.where(is_must, p, 1 - p)))

    def loss(x: Vector) -> float:
        return RIDGE * x[0] ** 2 - likelihood(x) / total

    here = np.array([curve[0] * spread, curve[1] + curve[0] * mean, curve[2]])
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000, "maxfev": 4000}
    bounds = [(0.0, None), (None, None), (LEAST_FLOOR, FLOOR)]
    return likelihood(here), likelihood(minimize(loss, here, method="Nelder-Mead", bounds=bounds, options=options).x)


def _wrong(curve: Vector, cosines: Vector, is_must: NDArray[np.bool_]) -> Vector:
    """Return the probability (m,) that each pair is wrong."""
    a, b, e = curve
    right = 0.5 * (1 + np.tanh(0.5 * (a * cosines + b)))
    p = e + (1 - 2 * e) * right
    return np.where(is_must, e * (1 - right) / p, e * right / (1 - p))


def trust_in(run: RunStore, count: int) -> Vector:
    """Return the factors (count,) of the pairs' weights: 1 - P(wrong), where the run has that."""
    if not (run.path / "choice").is_dir():
        return np.ones(count)
    probability = run.read_arrays("choice").get("probability", np.zeros(count))
    if probability.shape != (count,) or not np.all((probability >= 0) & (probability <= 1)):
        raise StoreError("not probabilities of pairs", where=f"{run.path}/choice")
    return np.maximum(1 - probability, LEAST_TRUST)
