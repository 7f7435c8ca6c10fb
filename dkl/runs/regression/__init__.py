"""Runs of `LowRankKernelRegressor`: kernel regression on learned columns. Imports nothing large."""

from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.inputs.input_files import rows_file, targets_file
from dkl.runs.kind import Declaration

DECLARATION = Declaration(
    task="regression",
    help="Learn to predict targets from rows: kernel regression on a sparse, learned combination of kernel columns.",
    settings=RegressionSettings,
    files=(
        rows_file(),
        targets_file("Targets, one a row or several"),
    ),
    reader="dkl.runs.regression.inputs:read",
    kind="dkl.runs.regression.kind:RegressionRuns",
    planner="dkl.runs.regression.planner:RegressionPlanner",
    remedies={
        "iteration_limit": "raise --max-iter: `dkl resume` takes it too",
        "stalled": "rounding ends all progress: raise --tol, or --nu",
    },
    less_disk="a lower --n-columns",
    generated="dkl.runs.sweep.generated:SMOOTH_FUNCTION",
)
