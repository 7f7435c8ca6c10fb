"""Runs of `LaplacianKernelLearner`: a kernel from pairs, smooth on the neighbor graph. Imports nothing large."""

from dkl.estimators.qsdp.settings import PropagationSettings
from dkl.runs.registry import Declaration, pairs_file, rows_file

DECLARATION = Declaration(
    task="laplacian",
    help="Learn a kernel from pairs that is smooth on the neighbor graph, as in the paper; for clusters pairwise is better.",
    settings=PropagationSettings,
    files=(
        rows_file(),
        pairs_file(),
    ),
    reader="dkl.runs.qsdp.laplacian.kind:read",
    kind="dkl.runs.qsdp.laplacian.kind:PropagationRuns",
    verb="transform",
    remedies={
        "iteration_limit": "raise --max-iter, which `dkl resume` takes too, or raise --tol",
        "stalled": "rounding ends all progress: raise --tol, or, after a conic solver, take --solver low-rank",
        "stationary": "the conic solver ended at its own tolerance: raise --tol, or take --solver low-rank",
        "numerical_error": "a value stopped being finite: scale the rows, or the weights of pairs",
    },
    less_disk="a smaller --n-basis",
    generated="dkl.runs.sweep.data:GAUSSIANS_WITH_PAIRS",
)
