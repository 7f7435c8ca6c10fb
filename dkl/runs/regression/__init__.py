"""Runs of `LowRankKernelRegressor` (SLKL): kernel regression on learned columns. Imports nothing large."""

from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.registry import Declaration, rows_file, targets_file

DECLARATION = Declaration(
    task="regression",
    help="Learn to predict targets from rows: kernel regression on a sparse, learned combination of kernel columns.",
    settings=RegressionSettings,
    files=(
        rows_file(),
        targets_file("Targets, one a row or several"),
    ),
    reader="dkl.runs.regression.kind:read",
    kind="dkl.runs.regression.kind:RegressionRuns",
    remedies={
        "iteration_limit": "raise --max-iter: `dkl resume` takes it too",
        "stationary": "the paper's rule is met, which proves nothing: lower --tol, or take --stopping gap",
        "stalled": "rounding ends all progress: raise --tol or --nu, or use --dtype float64 if it is not",
    },
    less_disk="a lower --n-columns",
    generated="dkl.runs.sweep.data:SMOOTH_FUNCTION",
)
