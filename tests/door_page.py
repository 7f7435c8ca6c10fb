"""The page `tests/doors.md` of what comes in and what becomes of it: `python tests/door_page.py > tests/doors.md` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.extend(map(str, (Path(__file__).parent / "support").iterdir()))

from door_cases import AFFINITIES, KERNELS, LABELS, LEARNERS, ROWS, SAMPLE_WEIGHTS

ELSEWHERE: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Packed arrays of zarr, as xarray writes them": (
        ("scale, offset, marks of missing values; formats 2 and 3", "right: decoded", "io/test_packed_arrays.py::test_decoded_as_cf_says"),
        ("the same, of every learner and in every command", "right", "io/test_packed_arrays.py::test_the_command"),
        ("a missing value", "refused, by row and column", "io/test_packed_arrays.py::test_missing_values_are_named"),
        ("targets, labels, weights; y as a path", "right", "io/test_packed_arrays.py::test_targets_labels_and_weights_are_values"),
        ("attributes of no meaning that is known", "refused", "io/test_packed_arrays.py::test_attributes_that_are_not_understood"),
        (
            "a Dask array of stored numbers", "refused: Dask drops the attributes",
            "io/test_packed_arrays.py::test_dask_arrays_of_stored_numbers_are_refused",
        ),
    ),
    "Labels of some rows, by all learners of labels": (
        (
            "None, NaN, NA, NaT, -1, -1.0, ?, nothing, ... in arrays, lists, series and frames", "no label",
            "side_information/test_labels.py::test_marks_are_unlabeled",
        ),
        ("the same marks in .csv", "no label", "side_information/test_labels.py::test_marks_in_files"),
        (
            "a missing label, of a classifier",
            "refused, by row",
            "side_information/test_labels.py::test_a_classifier_names_the_row_without_a_label",
        ),
        ("a missing target", "refused, by row", "side_information/test_labels.py::test_a_regression_names_the_row_without_a_target"),
        ("Na (sodium), + and -, None of some", "classes", "side_information/test_labels.py::test_names_that_are_no_marks"),
        ("as many labels as rows", "refused", "side_information/test_labels.py::test_a_label_a_row_is_refused"),
        (
            "1, 007, 1.0, quoted, padded, too long numbers in .csv", "integers where all are, 1.0 as 1",
            "io/test_array_files.py::test_labels_in_csv",
        ),
        ("one label too many or too few", "refused, or its name noted", "io/test_tables.py::test_labels_that_are_refused"),
    ),
    "Tables of text: .csv and .tsv, also .gz": (
        (
            "commas, semicolons, tabs, decimal commas, quotes, CRLF, byte order marks", "right, with a note",
            "io/test_tables.py::test_what_is_read",
        ),
        (
            "numbers that may be names; text, dates, ids, gaps, thousands, two delimiters",
            "refused",
            "io/test_tables.py::test_what_is_refused",
        ),
        ("what pandas writes, with an index", "refused", "io/test_csv_of_pandas.py::test_rows_are_refused"),
        ("columns of ids, targets, features, to drop", "right", "cli/test_table_commands.py::test_pairs_and_the_other_columns"),
        (
            "columns in another order, of all learners", "right: matched by name",
            "cli/test_column_names.py::test_columns_are_matched_by_name",
        ),
        ("other columns than were learned from", "refused", "cli/test_column_names.py::test_other_names_are_refused"),
        (
            "packed text larger than memory", "refused",
            "cli/test_table_commands.py::test_packed_text_that_does_not_fit_is_refused_before_it_is_read",
        ),
    ),
    "svmlight and LIBSVM": (
        ("any suffix or none, also .gz", "right", "io/test_svmlight_files.py::test_files_are_known_by_their_suffix_or_their_first_line"),
        (
            "fewer features than were learned from", "right: zeros; more are refused",
            "io/test_svmlight_files.py::test_features_that_a_file_does_not_name_are_0",
        ),
    ),
    "Paths in Python": (
        (
            ".npy and zarr, as X and as y, of all learners", "right",
            "estimators/test_paths_as_data.py::test_paths_are_the_arrays_that_they_name",
        ),
        (
            "a group of zarr, as AnnData's", "refused, with its arrays",
            "estimators/test_paths_as_data.py::test_a_group_is_refused_with_the_names_of_its_arrays",
        ),
    ),
    "Pairs and triplets of ids": (
        (
            "files of ids, with words for links and any header",
            "right",
            "side_information/test_pair_ids.py::test_rows_of_a_file_are_named_by_ids",
        ),
        (
            "an id that no row has, 7 for 007",
            "refused, by line",
            "side_information/test_pair_ids.py::test_an_unknown_id_is_one_error_with_its_line",
        ),
        ("repeated ids", "refused", "side_information/test_pair_ids.py::test_refuses_ids"),
        (
            "lists, arrays, frames of pandas and polars, tables of pyarrow", "right",
            "side_information/test_pair_ids.py::test_pairs_of_ids_in_frames_and_tables",
        ),
        (
            "triplets: other names, another order, a first line of unknown ids",
            "read, or refused",
            "side_information/test_pair_ids.py::test_triplets",
        ),
    ),
    "Rows far from 0, of all learners": (
        ("offsets to 1e9, float32, years, degrees", "right", "test_far_from_0.py::test_rows_far_from_0_give_the_same_bytes"),
        ("their runs", "verified", "test_far_from_0.py::test_a_run_of_rows_far_from_0_is_verified"),
    ),
}  # fmt: skip
"""What other tests try: (form, what becomes of it, test below `tests/`) by kind."""


def page() -> str:
    """Return the page that lists the forms and what comes of each."""
    head = """# What comes in, and what becomes of it

Every public learner was given every one of the forms of the first five tables, in `fit` and, of rows, in `predict` or `transform`. "right":
the answer is that to the plain array; all else is refused by one line of an error that has these words. The tables below them are of what
other tests try, each by its name. Written by `python tests/door_page.py > tests/doors.md`; `tests/estimators/test_doors.py` tries each
form with each learner, and fails where a learner is missing."""
    return "\n".join([head, "", f"Learners: {', '.join(LEARNERS)}.", *_tables(), *_elsewhere(), ""])


def _tables() -> Iterator[str]:
    everyone = f"all {len(LEARNERS)} learners"
    some = {
        name: sum(bool(getattr(one, name)) for one in LEARNERS.values())
        for name in ("kernel", "affinity", "weights", "takes")
    }
    for title, tests, forms, who in (
        ("Rows", ("rows_to_learn_from", "new_rows"), ROWS, everyone),
        ('Kernel matrices, kernel="precomputed"', ("kernel_matrices",), KERNELS, f"the {some['kernel']} that take one"),
        ('Affinities, affinity="precomputed"', ("affinities",), AFFINITIES, f"the {some['affinity']} that take one"),
        ("Labels and targets", ("labels_and_targets",), LABELS, f"the {some['takes']} that learn from y"),
        ("Weights of rows", ("weights",), SAMPLE_WEIGHTS, f"the {some['weights']} that take them"),
    ):
        named = " and ".join(f"`test_{name}`" for name in tests)
        yield from ("", f"## {title}", "", f"Tried by {named} of `tests/estimators/test_doors.py`.")
        yield from ("", f"| form | {who} |", "|---|---|")
        for form, (_, words) in forms.items():
            said = (
                words.replace("^", "")
                .replace("\\", "")
                .replace(".*", " ... ")
                .replace("[Cc]", "c")
                .replace("|", " or ")
            )
            yield f"| {form} | {'refused: ' + said if words else 'right'} |"


def _elsewhere() -> Iterator[str]:
    for title, forms in ELSEWHERE.items():
        yield from ("", f"## {title}", "", "| form | what becomes of it | test |", "|---|---|---|")
        yield from (f"| {form} | {outcome} | `{test}` |" for form, outcome, test in forms)


if __name__ == "__main__":
    print(page(), end="")
