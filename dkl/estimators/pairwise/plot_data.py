"""Plot of a learned kernel: patterns before and after, the kernel by classes, pairs, eigenvalues, convergence."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dkl.blocks.rows.row_sources import RowSource, row_source
from dkl.errors import ConvergenceWarning, DklError
from dkl.estimators.base.plot_rows import MOST_PATTERNS, classes_of, labels_at, read_rows, rows_panel, some_rows
from dkl.estimators.kmeans.learner import KernelKMeans
from dkl.plotting.convergence import draw_history
from dkl.plotting.figures import Panel, PlotData, counted, gap_text, note, panel, titled
from dkl.plotting.panels import draw_eigenvalues, draw_histogram, draw_kernel, draw_path
from dkl.quality import Quality
from dkl.solvers.pairwise.gamma_path import GammaChoice

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from dkl.estimators.base.validation import CheckedRows, UserLabels, UserPairs, UserRows

PAIRS_KEPT = 2000
PAIRS_READ = 100
"""Maximum pairs of either kind, if the factor is not in memory: each end may need another chunk."""
KERNEL_ROWS = 400
MOST_CLUSTERS = 100
NEGLIGIBLE = 1e-3
"""Eigenvalues below this share of the largest count as equally small."""

Numbers = NDArray[np.float64]


def plot_data(learner: BaseEstimator, X: UserRows = None, y: UserLabels = None) -> PlotData:
    """Return the plot of a fitted learner.

    Patterns are those learned from, or of X (m, d), which are transformed; y (n,) or (m,): labels.
    """
    result, certificate = getattr(learner, "result_", None), getattr(learner, "certificate_", None)
    known: dict[str, Any] = {
        "history": [] if result is None else result.history,
        "relative_gap": None if certificate is None else float(certificate.relative_gap),
        "cv": getattr(learner, "cv_", None),
        "quality": None if result is None else result.quality,
    }
    if X is None:
        rows = None if learner.affinity == "precomputed" else _patterns(learner)
        return kernel_plot(learner.factor_, rows, y, pairs=getattr(learner, "_pairs_kept", (None, None)), **known)
    source = row_source(learner._rows(X, reset=False))
    chosen = some_rows(source, MOST_PATTERNS)
    rows, labels = read_rows(source, chosen), labels_at(y, source.n, chosen)
    return kernel_plot(learner._extended(rows), rows, labels, n=source.n, **known)


def kernel_plot(
    factor: object,
    rows: CheckedRows | None = None,
    labels: UserLabels = None,
    *,
    pairs: tuple[Any, Any] = (None, None),
    history: Sequence[dict[str, object]] = (),
    relative_gap: float | None = None,
    cv: GammaChoice | None = None,
    quality: Quality | None = None,
    n: int | None = None,
    title: str | None = None,
) -> PlotData:
    """Return the plot of a kernel with this factor (m, r); arrays may be NumPy, dask or zarr.

    rows (m, d): the patterns; labels (m,): classes, -1, None or NaN for unlabeled; pairs: must-link and cannot-link
    (p, 2), row numbers; n: number of patterns if the m are some of them. Without labels the patterns are clustered by
    k-means on the factor, in as many clusters as K has eigenvalues before the largest drop from one to the next.
    """
    source = row_source(factor, where="factor")
    chosen, n = some_rows(source, MOST_PATTERNS), n or source.n
    drawn = np.asarray(read_rows(source, chosen), dtype=float)
    # Those of V'V (r, r), which K = V V' (n, n) shares; scaled up from the rows that are drawn.
    values = np.linalg.eigvalsh(drawn.T @ drawn)[::-1].clip(min=0) * (n / len(drawn))
    if labels is None:
        codes = clusters_of(drawn, n_clusters(values))
        names = tuple(f"{k}" for k in range(codes.max() + 1))
        kinds, count = "clusters", f"{counted(len(names), 'cluster')} found"
    else:
        codes, names = classes_of(labels_at(labels, source.n, chosen), len(chosen))
        kinds, count = "classes", f"{counted(len(names), 'class', 'classes')} given"
    below = [f"{len(drawn):,} of {counted(n, 'pattern')}"] if len(drawn) < n else []
    below += [f"{count} by k-means"] if labels is None else []
    main = rows_panel(drawn, codes, names, "learned kernel", "".join(["\n", ", ".join(below)]) if below else "")
    some = np.sort(np.random.default_rng(0).permutation(len(drawn))[:KERNEL_ROWS])
    panels = [main, panel(draw_kernel, drawn[some] @ drawn[some].T, codes[some], names, kinds)]
    if rows is not None:
        raw = read_rows(row_source(rows), chosen)
        panels.insert(0, rows_panel(raw, codes, names, "raw patterns"))
    if any(ends is not None for ends in pairs):
        panels.append(_pairs_panel(*(_at_pairs(source, ends) for ends in pairs)))
    title_of_values = "eigenvalues of the learned kernel, largest first"
    panels.append(panel(draw_eigenvalues, values[: max(30, 2 * len(names))], len(names) + 0.5, count, title_of_values))
    if cv is not None:
        panels.append(_choice_panel(cv))
    if history:
        panels.append(panel(draw_history, history))
    if title is None:
        proof = "" if relative_gap is None or not np.isfinite(relative_gap) else f"; {gap_text(relative_gap)}"
        title = titled(quality, f"{counted(n, 'pattern')}, kernel of rank {drawn.shape[1]}{proof}")
    return PlotData(title, panels, main)


def _pairs_panel(must: Numbers | None, cannot: Numbers | None) -> Panel:
    """Return the panel of K at the pairs: 1 is wanted at must-link pairs, 0 at cannot-link pairs."""
    title = "the learned kernel at the pairs"
    kinds = [(must, "must-link: 1 is asked for", "C2"), (cannot, "cannot-link: 0 is asked for", "C3")]
    groups = [(K, f"{text} ({len(K):,} drawn)", colour) for K, text, colour in kinds if K is not None and len(K)]
    if not groups:
        return panel(note, "no pairs were given", title)
    values = np.concatenate([K for K, _, _ in groups])
    bins = np.linspace(min(0.0, values.min()), max(1.0, values.max()), 41)
    return panel(draw_histogram, groups, bins, title, "kernel value", "pairs", loc="upper center")


def _choice_panel(cv: GammaChoice) -> Panel:
    """Return the panel of the mean log-likelihood of held-out pairs, by gamma."""
    count = np.maximum(np.count_nonzero(~np.isnan(cv.scores), axis=1), 1)
    mean, marks = (cv.log_likelihood / count)[:, None], [(cv.gamma, "--", f"chosen gamma {cv.gamma:.3g}")]
    names = "gamma", "mean log-likelihood"
    return panel(draw_path, np.asarray(cv.gammas), mean, "pairs held out", names, marks=marks, marker="o", ms=4)


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


def kept_pairs(pairs: UserPairs) -> NDArray[np.int64]:
    """Return at most 2,000 (p, 2) of the pairs (q, 2), to draw a picture of."""
    pairs = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    if len(pairs) <= PAIRS_KEPT:
        return pairs.copy()
    return pairs[np.sort(np.random.default_rng(0).choice(len(pairs), PAIRS_KEPT, replace=False, shuffle=False))]


def _at_pairs(source: RowSource, pairs: UserPairs) -> Numbers | None:
    """Return K at some of the pairs."""
    if pairs is None:
        return None
    kept = kept_pairs(pairs)
    if not source.is_in_memory:
        # A fixed seed: the same picture each time.
        kept = kept[np.random.default_rng(0).permutation(len(kept))[:PAIRS_READ]]
    if not len(kept):
        return np.empty(0)
    # Each row once, in ascending order: a factor on disk is read chunk by chunk.
    ends, place = np.unique(kept, return_inverse=True)
    rows, place = np.asarray(read_rows(source, ends), dtype=float), place.reshape(kept.shape)
    return np.einsum("pr,pr->p", rows[place[:, 0]], rows[place[:, 1]])


def _patterns(learner: BaseEstimator) -> Any:
    """Return the rows learned from; None if they are unavailable (a learner loaded without its file)."""
    rows = getattr(learner, "_fit_rows", None)
    try:
        return rows() if callable(rows) else rows
    except DklError:
        return None
