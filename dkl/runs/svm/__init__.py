"""Runs of `OptimalNeighborhoodSVC` (ONK): classification with a learned kernel. Imports nothing large."""

from dkl.estimators.svm.settings import SVCSettings
from dkl.runs.registry import Declaration, rows_file, targets_file

DECLARATION = Declaration(
    task="svc",
    help="Learn to tell classes apart: a support vector machine that learns its kernel in the neighborhood of a given "
    "one.",
    settings=SVCSettings,
    files=(
        rows_file(),
        targets_file("Class labels, numbers or text"),
    ),
    reader="dkl.runs.supervised.inputs:read",
    kind="dkl.runs.svm.kind:SVCRuns",
    remedies={
        "iteration_limit": "raise --max-iter: `dkl resume` takes it too",
        "stationary": "the paper's rule is met, which proves nothing: lower --tol, or take --stopping gap",
        "stalled": "rounding ends all progress: raise --tol, scale the rows, or use --dtype float64 if it is not",
    },
    generated="dkl.runs.sweep.data:GAUSSIANS_WITH_CLASSES",
)
