"""Runs of `PairwiseKernelLearner` (KL-ADMM): a kernel from must-link and cannot-link pairs. Imports nothing large."""

from dkl.estimators.pairwise.settings import PairwiseSettings
from dkl.runs.registry import Declaration, pairs_file, rows_file

DECLARATION = Declaration(
    task="pairwise",
    help="Learn a kernel from must-link and cannot-link pairs.",
    settings=PairwiseSettings,
    files=(
        rows_file("patterns"),
        pairs_file(),
    ),
    reader="dkl.runs.pairwise.kind:read",
    kind="dkl.runs.pairwise.kind:PairwiseRuns",
    verb="transform",
    remedies={
        "iteration_limit": "raise --max-iter or --target-gap; where that is none raise --tol, or give it to finish by a "
        "second-order method; `dkl resume` takes --max-iter and --target-gap too",
        "stationary": "the residuals are at --tol, which proves nothing: give --target-gap, or more --memory-limit where it is "
        "set; `dkl resume` takes both",
        "stalled": "no further progress was made: raise --target-gap, or use --dtype float64 if it is not",
        "numerical_error": "a value stopped being finite: lower --gamma, or use --dtype float64 if it is not",
    },
    less_disk="a lower --rank",
    generated="dkl.runs.sweep.data:GAUSSIANS_WITH_PAIRS",
)
