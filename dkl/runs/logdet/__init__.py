"""Runs of `LogDetKernelLearner`: a kernel near a given one from triplets, pairs or labels. Imports nothing large."""

from dataclasses import replace

from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.runs.kind import Declaration, InputFile
from dkl.runs.targets import targets_file

DECLARATION = Declaration(
    task="logdet",
    help="Learn a kernel near a given one from labels, triplets or pairs, at one weight of the loss or along a path of them.",
    settings=LogDetRunSettings,
    files=(
        InputFile("data", "rows", "Rows: .npz (key X), .npy, .csv, svmlight, zarr; or a kernel matrix."),
        replace(targets_file("Class labels, numbers or text, -1 or NA for unlabeled: .csv, .npy, .npz."), one_of=True),
        InputFile(
            "triplets",
            "triplets",
            "In place of labels: rows of anchor, similar, dissimilar: .csv, .npy, .npz.",
            required=False,
            one_of=True,
        ),
        InputFile(
            "pairs",
            "pairs",
            "In place of labels: .csv of i,j,must-link|cannot-link, or .npz.",
            required=False,
            one_of=True,
        ),
    ),
    reader="dkl.runs.logdet.inputs:read",
    kind="dkl.runs.logdet.kind:LogDetRuns",
    planner="dkl.runs.logdet.planner:LogDetPlanner",
    verb="transform",
    remedies={
        "iteration_limit": "raise --max-iter, which `dkl resume` takes too, raise --tol, or give several --gamma from small "
        "to large",
        "stalled": "rounding ends all progress: raise --tol, lower --gamma, or scale the rows",
        "numerical_error": "a value stopped being finite: lower --gamma, or scale the rows",
    },
    less_disk="rows with fewer labels",
    generated="dkl.runs.sweep.generated:GAUSSIANS_WITH_SOME_LABELS",
)
