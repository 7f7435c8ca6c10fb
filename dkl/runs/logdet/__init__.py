"""Runs of `LogDetKernelLearner` (TRIN): a kernel near a given one from triplets, pairs, labels or constraints. Imports nothing large."""

from dataclasses import replace

from dkl.estimators.logdet.settings import LogDetRunSettings
from dkl.runs.registry import (
    CONSTRAINT_FORMATS,
    TRIPLET_FORMATS,
    Declaration,
    InputFile,
    pairs_file,
    rows_file,
    targets_file,
)

VERIFY_SQUARES, BASIS_SQUARES, MATRIX_SQUARES = 12, 6, 5
"""Arrays p x p, b x b and n x n that `dkl verify` holds at a time."""

DECLARATION = Declaration(
    task="logdet",
    help="Learn a kernel near a given one from labels, triplets, pairs or constraints, at one weight of the loss or along a path of them.",
    settings=LogDetRunSettings,
    files=(
        rows_file(more="; or a kernel matrix"),
        replace(targets_file("Class labels, numbers or text, -1 or NA for unlabeled"), one_of=True),
        InputFile(
            "triplets",
            "triplets",
            f"In place of labels: rows of anchor, similar, dissimilar: {TRIPLET_FORMATS}.",
            required=False,
            one_of=True,
        ),
        pairs_file("In place of labels", weights=False, required=False, one_of=True),
        InputFile(
            "constraints",
            "constraints",
            f"In place of labels: entries of symmetric matrices A_t, of which tr(K A_t) is to be large: {CONSTRAINT_FORMATS}.",
            required=False,
            one_of=True,
            is_swept=False,
        ),
    ),
    reader="dkl.runs.logdet.inputs:read",
    kind="dkl.runs.logdet.kind:LogDetRuns",
    verb="transform",
    remedies={
        "iteration_limit": "raise --max-iter, which `dkl resume` takes too, raise --tol, or give several --gamma from small "
        "to large",
        "stationary": "the gradient is at --tol, which proves nothing: lower --tol, or take --solver auto",
        "stalled": "rounding ends all progress: raise --tol, lower --gamma, or scale the rows",
        "numerical_error": "a value stopped being finite: lower --gamma, or scale the rows",
    },
    less_disk="rows with fewer labels",
    generated="dkl.runs.sweep.data:GAUSSIANS_WITH_SOME_LABELS",
)
