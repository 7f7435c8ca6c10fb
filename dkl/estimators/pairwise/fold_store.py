"""Held-out pairs: which look wrong, and what a run's folder holds of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dkl.errors import InputError, StoreError
from dkl.estimators.base.run_arrays import check_lengths, check_rows, trained_on
from dkl.estimators.pairwise.arrays import ARRAYS
from dkl.problems.pair_folds import n_contradictions
from dkl.side_information.pairs import Pairs
from dkl.solvers.pairwise.gamma_path import FoldPath, GammaChoice, NoisyLogistic
from dkl.solvers.watch import Row
from dkl.stores.checkpoint_folder import CheckpointFolder
from dkl.stores.graph import n_rows_in
from dkl.stores.run import RunStore
from dkl.stores.sealed_json import read_json
from dkl.stores.seals import is_sealed

if TYPE_CHECKING:
    from dkl.stores.sealed_json import Json

# Held-out pairs in a run's folder: the path of each fold under way, then scores and wrong pairs.

FOLDER = "choice"
TABLES = ("gammas", "scores", "cosines", "curves", "log_likelihood", "ranks", "seconds")


class StoredFolds:
    """Store of the folds' paths, a commit a kernel: a kill costs the kernel under way."""

    def __init__(self, run: RunStore, gammas: NDArray[np.float64]) -> None:
        self.run, self.gammas = run, gammas.tolist()
        self._states(0).remove_leftovers()

    def _states(self, fold: int) -> CheckpointFolder:
        return CheckpointFolder(self.run.path / "folds", ARRAYS, f"fold{fold}", "a fold's path")

    def load(self, fold: int, n: int, held_out: int) -> FoldPath:
        """Return the fold's stored path over n rows and `held_out` pairs.

        It is empty if damaged or of other gammas.
        """
        _, found, notes = self._states(fold).read(lambda notes: notes["gammas"] == self.gammas)
        try:
            ranks, seconds = [int(rank) for rank in notes["ranks"]], [float(second) for second in notes["seconds"]]
            factor, scores, cosines = found["factor"], found["scores"], found["cosines"]
            is_whole = len(ranks) == len(seconds) <= len(self.gammas) and scores.shape == cosines.shape
            is_finite = bool(np.isfinite(scores).all() and np.isfinite(cosines).all())
            if is_whole and is_finite and scores.shape == (len(ranks), held_out) and factor.shape == (n, ranks[-1]):
                return FoldPath(factor, list(scores), list(cosines), ranks, seconds)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError):
            pass  # none was kept, or nothing that was ever written
        return FoldPath()

    def commit(self, fold: int, path: FoldPath) -> None:
        """Put the fold's path on disk in place of what was there. Raises DiskError."""
        assert path.factor is not None
        number = len(path.ranks)
        arrays = {
            "factor": np.ascontiguousarray(path.factor),
            "scores": np.array(path.scores),
            "cosines": np.array(path.cosines),
        }
        notes: dict[str, object] = {"gammas": self.gammas, "ranks": path.ranks, "seconds": path.seconds}
        self._states(fold).write(number, arrays, notes)
        self.run.log(event="fold", fold=fold, gamma=self.gammas[number - 1])
        self.run.publish_if_reachable()

    def drop(self) -> None:
        """Remove the paths, once the choice is stored."""
        self._states(0).drop()


def store_choice(run: RunStore, choice: GammaChoice, wrong: WrongPairs | None) -> None:
    """Keep the choice, and the pairs that look wrong, if these were looked for. Raises DiskError."""
    arrays = {name: getattr(choice, name) for name in TABLES}
    if wrong is not None:
        arrays |= {"probability": wrong.probability, "curve": wrong.curve}
    run.write_arrays(FOLDER, arrays)


def stored_pairs(run: RunStore) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the stored (must-link, cannot-link) pairs, (m, 2) each. Raises StoreError for other than rows of the data."""
    must_link, cannot_link = run.read_pairs()
    # A run that an estimator was given a path for names no files, and is read once it has its graph.
    n = trained_on(run)[0] if "inputs" in run.config else n_rows_in(run.path / "graph")
    for name, pairs in (("must_link", must_link), ("cannot_link", cannot_link)):
        check_rows(n, pairs, f"{run.path}/pairs/{name}")
    return must_link, cannot_link


def load_pairs(run: RunStore) -> Pairs:
    """Return the stored pairs with their weights. Raises StoreError where these do not fit together."""
    must_link, cannot_link = stored_pairs(run)
    try:
        return Pairs(must_link, cannot_link, weights=run.read_pair_weights())
    except InputError as error:
        raise StoreError("invalid pairs", where=f"{run.path}/pairs", got=str(error)) from error


def has_graph(run: RunStore) -> bool:
    """Return whether the graph is stored, whole: its seal is written last."""
    return is_sealed(run.path / "graph")


def graph_notes(run: RunStore) -> Json:
    """Return sigma, n_neighbors and the like of the stored graph, {} before; StoreError if damaged."""
    if not has_graph(run):
        return {}
    run.check_part("graph")
    attributes = read_json(run.path / "graph" / "zarr.json").get("attributes")
    notes = attributes if isinstance(attributes, dict) else {}
    return {name: notes[name] for name in ("sigma", "n_neighbors", "laplacian", "summary") if name in notes}


def load_choice(run: RunStore) -> tuple[GammaChoice, WrongPairs | None] | None:
    """Return what `store_choice` was given; None where nothing is. Raises StoreError."""
    if not (run.path / FOLDER).is_dir():
        return None
    found, where = run.read_arrays(FOLDER), f"{run.path}/{FOLDER}"
    if missing := set(TABLES) - found.keys():
        raise StoreError("a part of the choice of gamma is missing", where=where, got=f"no {min(missing)}")
    pairs = load_pairs(run)
    check_lengths(run, FOLDER, found, "a choice of gamma of different lengths", where, pair=len(pairs.i))
    choice = GammaChoice(**{name: found[name] for name in TABLES})
    if not choice.gammas.size or not np.all(np.isfinite(choice.gammas) & (choice.gammas > 0)):
        raise StoreError("not values of gamma", where=where)
    if "probability" not in found:
        return choice, None
    probability, curve = found["probability"], found.get("curve", np.empty(0))
    if curve.shape != (3,) or not np.all((probability >= 0) & (probability <= 1)):
        raise StoreError("not probabilities of pairs", where=where)
    count = n_contradictions(pairs)
    return choice, WrongPairs(pairs, probability, curve, count, choice.gammas, choice.log_likelihood)


def rows_of(choice: GammaChoice) -> list[Row]:
    """Return the choice's rows of the history, as they were recorded."""
    return [{"stage": "cv", "of": choice.ranks.size, **row} for row in choice.rows]


# Pairs that look wrong: the probability of each by held-out scores, and how far the fit trusts it.
#
# Where a gamma smaller than the given one makes the held-out pairs more likely, they are scored by their cosines at
# that gamma, and a `NoisyLogistic` of these says how likely each is wrong. The fit of all pairs is at that gamma, with
# each pair's weight times 1 - P(wrong). Otherwise all pairs are trusted, and the fit is the same as without looking.

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
