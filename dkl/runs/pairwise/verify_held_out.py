"""`dkl verify` of what held-out pairs say: the likelihoods, the gamma that follows, and which pairs look wrong, from the stored scores.

    P(must | s) = e + (1 - 2 e) / (1 + exp(-a s - b)),   a >= 0,   0 < e <= 0.45

The maximum over a, b and e is searched for by the simplex method, so that it shares no derivative with the fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from dkl.errors import StoreError
from dkl.runs.comparison import ALTERNATIVE, QUALITY, Comparison
from dkl.stores.run import RunStore

Vector = NDArray[np.float64]
NATS = 1.0
"""By which a gamma has to be more likely than the last of the path."""
CLOSE = 1e-3
"""How far both searches may end from the maximum: of a log-likelihood, for each pair, and of a probability."""
LEAST_TRUST = 1e-4
ROUNDED = 1e-9
"""How far two areas under the same curve may lie apart."""


def of_held_out_pairs(run: RunStore, report: dict[str, Any]) -> Iterator[Comparison]:
    """Compare the stored likelihoods, the report's gamma, and the stored probabilities with the same recomputed."""
    held = run.read_arrays("choice")
    must, cannot = run.read_pairs()
    is_must = np.repeat([True, False], [len(must), len(cannot)])
    weights = run.read_pair_weights()
    even = np.ones(len(is_must)) if weights is None else weights / weights.mean()
    likely, gammas = held["log_likelihood"], held["gammas"]
    if held["scores"].shape != (len(gammas), len(is_must)) or len(likely) != len(gammas):
        raise StoreError("scores that are not of these pairs", where=f"{run.path}/choice")
    whole = np.flatnonzero(~np.isnan(likely))
    for place in whole:
        scored = ~np.isnan(held["scores"][place])
        found = _fitted(held["scores"][place, scored], is_must[scored], even[scored])
        mean, count = float(likely[place]) / len(is_must), len(is_must)
        yield Comparison(f"log-likelihood at gamma {gammas[place]:.4g}", mean, found[3] / count, CLOSE)
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
        if is_whole and chosen < len(gammas) - 1:
            cosines = held["cosines"][chosen]
            wrong = _wrong(_fitted(cosines, is_must, even), cosines, is_must)
        apart = float(np.abs(held["probability"] - wrong).max(initial=0.0))
        yield Comparison("probabilities of wrong pairs, apart by", 0.0, apart, 30 * CLOSE)
        yield Comparison("pairs that look wrong", *_flags(report, held["probability"]), 0.0)


def of_quality(run: RunStore, report: dict[str, Any]) -> Iterator[Comparison]:
    """Compare the report's AUC of held-out pairs, and that of the plain alternative, with scikit-learn's of the stored scores."""
    from sklearn.metrics import roc_auc_score

    held, claimed = run.read_arrays("held_out"), report.get("quality")
    if claimed is None:
        return
    must, cannot = run.read_pairs()
    numbers, scores, plain = held["pair"], held.get("scores", np.empty(0)), held["plain"]
    if not len(numbers) == len(scores) == len(plain) or numbers.min() < 0 or numbers.max() >= len(must) + len(cannot):
        raise StoreError("invalid held-out pairs", where=f"{run.path}/held_out")
    is_must = numbers < len(must)
    if is_must.all() or not is_must.any():
        raise StoreError("held-out pairs of one kind alone", where=f"{run.path}/held_out")
    yield Comparison(QUALITY, float(claimed["value"]), float(roc_auc_score(is_must, scores)), ROUNDED)
    plainly = float(roc_auc_score(is_must, plain))
    yield Comparison(ALTERNATIVE, float(claimed["alternative_value"]), plainly, ROUNDED)


def _flags(report: dict[str, Any], probability: Vector) -> tuple[float, float]:
    """Return the numbers of flagged pairs by the report and by the stored probabilities."""
    return float(report["wrong_pairs"]["flagged"]), float(np.count_nonzero(probability > 0.5))


def _fitted(scores: Vector, is_must: NDArray[np.bool_], weights: Vector) -> tuple[float, float, float, float]:
    """Return (a, b, e, log-likelihood) of the curve that makes the pairs most likely."""
    total = float(weights.sum())
    mean = float(weights @ scores) / total
    spread = float(np.sqrt(weights @ (scores - mean) ** 2 / total)) or 1.0
    standard = (scores - mean) / spread

    def likelihood(x: Vector) -> float:
        a, b, e = x
        p = e + (1 - 2 * e) * 0.5 * (1 + np.tanh(0.5 * (a * standard + b)))
        return float(weights @ np.log(np.where(is_must, p, 1 - p)))

    def loss(x: Vector) -> float:
        return 5e-5 * x[0] ** 2 - likelihood(x) / total

    share = float(np.clip(weights @ is_must / total, 0.01, 0.99))
    bounds = [(0.0, None), (None, None), (1e-6, 0.45)]
    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 4000, "maxfev": 4000}
    starts = [(a, np.log(share / (1 - share)), e) for a in (0.5, 3.0) for e in (0.02, 0.1, 0.22)]
    found = [minimize(loss, start, method="Nelder-Mead", bounds=bounds, options=options) for start in starts]
    best = min(found, key=lambda one: float(one.fun)).x
    a, b, e = (float(value) for value in best)
    return a / spread, b - a * mean / spread, e, likelihood(best)


def _wrong(curve: tuple[float, float, float, float], cosines: Vector, is_must: NDArray[np.bool_]) -> Vector:
    """Return the probability (m,) that each pair is wrong."""
    a, b, e, _ = curve
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
