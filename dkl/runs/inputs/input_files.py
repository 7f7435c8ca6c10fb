"""Declarations of files that several learners take, and the formats that are read. Imports nothing large."""

from __future__ import annotations

from dkl.runs.kind import InputFile

ROW_FORMATS = ".npz (key X), .npy, zarr, .csv, .tsv or svmlight, text also as .gz"
TARGET_FORMATS = ".npz (key y), .npy, zarr, .csv, .tsv or svmlight, text also as .gz"
PAIR_FORMATS = ".csv or .tsv of i,j,must-link|cannot-link{more}, also as .gz, or .npz"
TRIPLET_FORMATS = ".npz, .npy, .csv or .tsv, text also as .gz"


def rows_file(what: str = "rows", more: str = "") -> InputFile:
    """Return the declaration of the rows, which are called `what`; more: what else they may be."""
    return InputFile("data", what, f"{what.capitalize()}: {ROW_FORMATS}{more}.")


def targets_file(help: str) -> InputFile:
    """Return the declaration of targets or labels, which may also be in the rows' file as `y`."""
    return InputFile(
        "targets", "targets", f"{help}: {TARGET_FORMATS} [y beside the rows].", required=False, beside="data"
    )


def pairs_file(
    before: str = "Pairs", *, weights: bool = True, required: bool = True, one_of: bool = False
) -> InputFile:
    """Return the declaration of pairs, with weights where the learner takes these."""
    formats = PAIR_FORMATS.format(more="[,weight]" if weights else "")
    return InputFile("pairs", "pairs", f"{before}: {formats}.", required=required, one_of=one_of)
