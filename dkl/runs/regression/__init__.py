"""Runs of `LowRankKernelRegressor`: kernel regression on learned columns. Imports nothing large."""

from dkl.estimators.regression.settings import RegressionSettings
from dkl.runs.kind import Declaration, InputFile
from dkl.runs.targets import targets_file

DECLARATION = Declaration(
    task="regression",
    help="Learn to predict targets from rows: kernel regression on a sparse, learned combination of kernel columns.",
    settings=RegressionSettings,
    files=(
        InputFile("data", "rows", "Rows: .npz (key X), .npy, .csv, svmlight, zarr."),
        targets_file("Targets, one a row or several: .csv, .npy, .npz."),
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
