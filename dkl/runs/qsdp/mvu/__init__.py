"""Runs of `MaximumVarianceUnfolding`: a manifold unfolded, by the distances of neighbors. Imports nothing large."""

from dkl.estimators.qsdp.settings import UnfoldingSettings
from dkl.runs.registry import Declaration, rows_file, targets_file

DECLARATION = Declaration(
    task="mvu",
    help="Unfold a manifold: the embedding of most variance, or of most dependence on labels, that keeps neighbors' distances.",
    settings=UnfoldingSettings,
    files=(
        rows_file(),
        targets_file(
            "Labels, -1 or NA for unlabeled, or rows of numbers, that --colored learns from; else for the picture"
        ),
    ),
    reader="dkl.runs.qsdp.mvu.kind:read",
    kind="dkl.runs.qsdp.mvu.kind:UnfoldingRuns",
    verb="transform",
    remedies={
        "iteration_limit": "raise --max-iter, which `dkl resume` takes too, or raise --tol",
        "stalled": "rounding ends all progress: raise --tol, or, after a conic solver, take --solver low-rank",
        "stationary": "the conic solver ended at its own tolerance: raise --tol, or take --solver low-rank",
        "numerical_error": "a value stopped being finite: scale the rows",
    },
    less_disk="a smaller --n-basis",
    generated="dkl.runs.sweep.data:SWISS_ROLL",
)
