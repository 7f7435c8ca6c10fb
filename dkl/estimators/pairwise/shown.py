"""Data of the picture of a learned kernel, in small arrays, from an estimator or a run."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dkl.blocks.row_sources import RowSource, row_source
from dkl.errors import ConvergenceWarning, DklError, InputError
from dkl.estimators.common.drawing import classes_of, counted, gap_text, titled
from dkl.estimators.common.samples import read_rows, some_rows
from dkl.estimators.common.views import MOST_PATTERNS
from dkl.estimators.kernel_kmeans import KernelKMeans
from dkl.quality import Quality
from dkl.solvers.gamma_scores import GammaChoice

PAIRS_KEPT = 2000
PAIRS_READ = 100
"""Maximum pairs of either kind, if the factor is not in memory: each end may need another chunk."""
MOST_CLUSTERS = 100
NEGLIGIBLE = 1e-3
"""Eigenvalues below this share of the largest count as equally small."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class PairwiseShown:
    """Data of the picture of a learned kernel.

    factor (m, r): rows of at most 5,000 of the n patterns; codes (m,): their classes, -1 none; names of the classes;
    is_found: whether these are clusters that were found, not labels that were given; raw (m, d) patterns, dense or CSR,
    or None; must, cannot (p,): K at pairs, or None; eigenvalues (r,) of K, scaled to n patterns, largest first;
    history: the rows of the iterations; relative_gap: what the certificate proves, or None; cv: how gamma was chosen, or None;
    quality: the AUC of held-out pairs, or None.
    """

    factor: Numbers
    codes: NDArray[np.intp]
    names: tuple[str, ...]
    is_found: bool
    n: int
    eigenvalues: Numbers
    raw: Any = None
    must: Numbers | None = None
    cannot: Numbers | None = None
    history: Sequence[dict[str, Any]] = field(default=(), repr=False)
    relative_gap: float | None = None
    cv: GammaChoice | None = None
    quality: Quality | None = None

    @property
    def title(self) -> str:
        """Return a summary in one line."""
        said = f"{counted(self.n, 'pattern')}, kernel of rank {self.factor.shape[1]}"
        if self.relative_gap is not None and np.isfinite(self.relative_gap):
            said = f"{said}; {gap_text(self.relative_gap)}"
        return titled(self.quality, said)


def make_shown(
    factor: Any,
    *,
    rows: Any = None,
    labels: Any = None,
    must_link: Any = None,
    cannot_link: Any = None,
    history: Sequence[dict[str, Any]] = (),
    relative_gap: float | None = None,
    cv: GammaChoice | None = None,
    quality: Quality | None = None,
) -> PairwiseShown:
    """Return the picture's data from a factor (n, r) and its patterns; arrays may be NumPy, dask or zarr.

    rows (n, d): the raw patterns; labels (n,): classes, -1, None or NaN for unlabeled; must_link, cannot_link
    (p, 2): row numbers. Without labels the patterns are clustered by k-means on the factor, in as many clusters as K has
    eigenvalues before the largest drop from one to the next.
    """
    source = row_source(factor, where="factor")
    chosen = some_rows(source, MOST_PATTERNS)
    drawn = np.asarray(read_rows(source, chosen), dtype=float)
    values = np.linalg.eigvalsh(drawn.T @ drawn)[::-1].clip(min=0) * (source.n / len(drawn))
    if labels is None:
        codes = clusters_of(drawn, n_clusters(values))
        names = tuple(f"{k}" for k in range(codes.max() + 1))
    else:
        if len(labels) != source.n:
            raise InputError("not a label a pattern", where="y", got=f"{len(labels)}", wanted=f"{source.n}")
        codes, names = classes_of(labels)
        codes = codes[chosen]
    return PairwiseShown(
        drawn, codes, names, labels is None, source.n, values,
        raw=None if rows is None else read_rows(row_source(rows), chosen),
        must=_at_pairs(source, must_link), cannot=_at_pairs(source, cannot_link),
        history=history, relative_gap=relative_gap, cv=cv, quality=quality,
    )  # fmt: skip


def n_clusters(eigenvalues: Numbers) -> int:
    """Return the number of eigenvalues (r,), largest first, before the largest drop, as a ratio.

    Of c clusters that a kernel keeps apart it has c large eigenvalues. What is negligible counts as equal; 1 where none drops.
    """
    if not eigenvalues[0] > 0:
        return 1
    large = np.maximum(eigenvalues / eigenvalues[0], NEGLIGIBLE)
    after = np.append(large[1:], NEGLIGIBLE)  # K has no more
    return int(np.argmax((large / after)[:MOST_CLUSTERS])) + 1


def clusters_of(factor: Numbers, count: int) -> NDArray[np.intp]:
    """Cluster the rows of a factor by k-means; return the clusters (m,)."""
    model = KernelKMeans(min(count, len(factor)), n_init=4, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # it may have fewer distinct rows
        return model.fit_predict(factor).astype(np.intp)


def kept_pairs(pairs: Any) -> NDArray[np.int64]:
    """Return at most 2,000 (p, 2) of the pairs (q, 2), to draw a picture of."""
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    if len(pairs) <= PAIRS_KEPT:
        return pairs.copy()
    return pairs[np.sort(np.random.default_rng(0).choice(len(pairs), PAIRS_KEPT, replace=False, shuffle=False))]


def _at_pairs(source: RowSource, pairs: Any) -> Numbers | None:
    """Return K at some of the pairs."""
    if pairs is None:
        return None
    kept = kept_pairs(pairs)
    if not source.is_in_memory:
        kept = kept[np.random.default_rng(0).permutation(len(kept))[:PAIRS_READ]]
    if not len(kept):
        return np.empty(0)
    ends, place = np.unique(kept, return_inverse=True)
    rows, place = np.asarray(read_rows(source, ends), dtype=float), place.reshape(kept.shape)
    return np.einsum("pr,pr->p", rows[place[:, 0]], rows[place[:, 1]])


def shown_of(learner: Any, X: Any = None, y: Any = None) -> PairwiseShown:
    """Return the picture's data of a fitted learner.

    Patterns are those learned from, or of X (m, d), which are transformed; y (n,) or (m,): labels.
    """
    check_is_fitted(learner)
    result, certificate = getattr(learner, "result_", None), getattr(learner, "certificate_", None)
    told: dict[str, Any] = {
        "history": [] if result is None else result.history,
        "relative_gap": None if certificate is None else float(certificate.relative_gap),
        "cv": getattr(learner, "cv_", None),
        "quality": None if result is None else result.quality,
    }
    if X is not None:
        source = row_source(learner._rows(X, reset=False))
        chosen = some_rows(source, MOST_PATTERNS)
        if y is not None and len(y) != source.n:
            raise InputError("not a label a pattern", where="y", got=f"{len(y)}", wanted=f"{source.n}")
        rows = read_rows(source, chosen)
        y = y if y is None or isinstance(y, list) else np.asarray(y)
        labels = None if y is None else [y[k] for k in chosen.tolist()]
        shown = make_shown(learner._extended(rows), rows=rows, labels=labels, **told)
        return replace(shown, n=source.n, eigenvalues=shown.eigenvalues * (source.n / len(chosen)))
    must, cannot = getattr(learner, "_pairs_kept", (None, None))
    rows = None if learner.affinity == "precomputed" else _patterns(learner)
    return make_shown(learner.factor_, rows=rows, labels=y, must_link=must, cannot_link=cannot, **told)


def _patterns(learner: Any) -> Any:
    """Return the rows learned from; None if they are unavailable (a learner loaded without its file)."""
    rows = getattr(learner, "_fit_rows", None)
    try:
        return rows() if callable(rows) else rows
    except DklError:
        return None
