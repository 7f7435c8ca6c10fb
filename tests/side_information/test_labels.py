"""Missing labels have one set of marks, in all learners and formats; errors of missing labels name the row."""

import numpy as np
import pandas as pd
import pytest
from command_line import call
from command_runs import refused

import dkl
from dkl.errors import InputError
from dkl.estimators.base.side_information import resolve_pairs
from dkl.metrics import adjusted_rand_index
from dkl.side_information.labels import MOST_DISTINCT, is_unlabeled, label_codes

N = 30
CLASSES = np.arange(N) % 2
MISSING = np.arange(N) % 3 == 0
X = np.random.default_rng(0).normal(size=(N, 3)) + 3 * CLASSES[:, None]
MARKS = ["", "NA", "n/a", "#N/A", "NaN", "null", "None", "none", "?", "-", ".", "<NA>", "-1", "-1.0"]


def named(mark):
    """Labels of text, and a mark where they are missing."""
    return np.where(MISSING, mark, np.array(["hen", "owl"])[CLASSES])


def objects(mark):
    """Labels among objects, and another object where they are missing."""
    found = named("").astype(object)
    found[MISSING] = mark
    return found


FORMS = {
    "integers": np.where(MISSING, -1, CLASSES),
    "floats": np.where(MISSING, -1.0, CLASSES),
    "NaN": np.where(MISSING, np.nan, CLASSES),
    "numerals": np.where(MISSING, "-1", CLASSES.astype(str)),
    "numerals of floats": np.where(MISSING, -1.0, CLASSES).astype(str),
    **{f"text {mark!r}": named(mark) for mark in MARKS},
    "bytes": named("NA").astype("S"),
    **{f"object {mark!r}": objects(mark) for mark in (None, float("nan"), pd.NA, pd.NaT, "NA", -1)},
    "list": objects(None).tolist(),
    "Series": pd.Series(objects(None).tolist()),
    "string": pd.Series(objects(pd.NA).tolist(), dtype="string"),
    "Int64": pd.Series([None if gone else int(k) for gone, k in zip(MISSING, CLASSES, strict=True)], dtype="Int64"),
    "category": pd.Series(objects(None).tolist()).astype("category"),
    "frame": pd.DataFrame({"bird": objects(None).tolist()}),
}
EVERY_MISSING = {
    name: y for name, y in FORMS.items() if name not in ("integers", "floats", "numerals", "numerals of floats")
}
"""Forms in which -1 is not the name of a class of a classifier."""


@pytest.mark.parametrize("name", FORMS)
def test_marks_are_unlabeled(name):
    wanted = np.where(MISSING, -1, CLASSES)
    np.testing.assert_array_equal(label_codes(FORMS[name]), wanted)
    assert dkl.Pairs.from_labels(FORMS[name], random_state=0) == dkl.Pairs.from_labels(wanted, random_state=0)
    np.testing.assert_array_equal(
        dkl.Triplets.from_labels(X, FORMS[name]).triplets, dkl.Triplets.from_labels(X, wanted).triplets
    )


@pytest.mark.parametrize("name", ["NaN", "text 'NA'", "text '-1'", "Series", "string"])
@pytest.mark.parametrize(
    "model",
    [
        dkl.PairwiseKernelLearner(),
        dkl.LaplacianKernelLearner(),
        dkl.LogDetKernelLearner(),
        dkl.LogDetMetricLearner(),
        dkl.MaximumVarianceUnfolding(n_neighbors=8, colored=True),
    ],
    ids=lambda model: type(model).__name__,
)
def test_learners_of_some_labels_learn_the_same(model, name):
    def learned(y):
        model.set_params(random_state=0).fit(X, y)
        return model.embedding_ if isinstance(model, dkl.MaximumVarianceUnfolding) else model.transform(X)

    np.testing.assert_array_equal(learned(FORMS[name]), learned(FORMS["integers"]))


@pytest.mark.parametrize("name", EVERY_MISSING)
def test_a_classifier_names_the_row_without_a_label(name):
    message = r"\[0\]: a label is missing; got .* and 9 more; wanted a label in every row"
    with pytest.raises(InputError, match=message):
        dkl.OptimalNeighborhoodSVC().fit(X, EVERY_MISSING[name])
    with pytest.raises(InputError, match=message):
        adjusted_rand_index(np.ravel(EVERY_MISSING[name]), CLASSES)


def test_names_that_are_no_marks():
    assert not is_unlabeled(np.array(["Na", "Nat", "nano", "0", "no", "minus"])).any()
    assert is_unlabeled(np.array(["+", "-", "+", ""])).tolist() == [False, False, False, True]
    assert is_unlabeled(np.array(["a", "-", "a"], object)).tolist() == [False, True, False]
    assert not is_unlabeled(np.array(["1", "-1"]), minus_one=False).any()
    assert is_unlabeled(np.array([0, 255], np.uint8)).tolist() == [False, False]
    model = dkl.OptimalNeighborhoodSVC().fit(X, np.array(["-", "+"])[CLASSES])
    assert model.classes_.tolist() == ["+", "-"]


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_a_label_a_row_is_refused():
    ids = np.arange(100)
    rows = np.random.default_rng(1).normal(size=(100, 2))
    what = "every label is another: no two rows are of one class.*100 labels of 100 rows.*choose the column of classes"
    for y in (ids, ids.astype(str), pd.Series(ids)):
        for model in (
            dkl.OptimalNeighborhoodSVC(),
            dkl.LogDetMetricLearner(),
            dkl.PairwiseKernelLearner(),
            dkl.MaximumVarianceUnfolding(colored=True),
        ):
            with pytest.raises(InputError, match=what):
                model.fit(rows, y)
        with pytest.raises(InputError, match=what):
            dkl.Pairs.from_labels(y)
    assert dkl.Pairs.from_labels(np.arange(MOST_DISTINCT)).n_must == 0  # an example


@pytest.mark.parametrize("y", [np.r_[np.nan, np.ones(N - 1)], pd.Series([None, *range(N - 1)], dtype="Int64")])
def test_a_regression_names_the_row_without_a_target(y):
    with pytest.raises(InputError, match=r"y\[0\]: a target is missing; got .*; wanted a number in every row"):
        dkl.LowRankKernelRegressor().fit(X, y)
    with pytest.raises(InputError, match=r"y\[0, 1\]: a target is missing"):
        dkl.LowRankKernelRegressor().fit(X, np.c_[np.ones(N), np.asarray(y, float)])
    with pytest.raises(InputError, match=r"y\[0, 1\]: a target is missing"):
        dkl.MaximumVarianceUnfolding(colored=True).fit(X, np.c_[np.arange(N), np.asarray(y, float)])


def error_of(*words):
    """The line that the command refuses by."""
    answer = call(*words)
    refused(answer)
    return answer.err


def test_marks_in_files(tmp_path, monkeypatch):
    """A column with NA in a CSV, and NaN or NA in arrays, are the same labels in `dkl fit`."""
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", X)
    texts = {"NA": named("NA"), "-1": named("-1"), "?": named("?"), "1": np.where(MISSING, "NA", CLASSES.astype(str))}
    for number, y in enumerate(texts.values()):
        (tmp_path / f"y{number}.csv").write_text("\n".join(["bird", *y]) + "\n")
    np.save("nan.npy", FORMS["NaN"])
    np.save("text.npy", named("nan"))
    files = [f"y{number}.csv" for number in range(len(texts))] + ["nan.npy", "text.npy"]
    found = []
    for file in files:
        for task in (["logdet", "--gamma", "1"], ["mvu", "--colored", "--n-neighbors", "8"]):
            out = f"{file}-{task[0]}.zarr"
            assert call("fit", *task, "--data", "X.npy", "--targets", file, "--out", out, "--no-picture").code == 0
        found.append([dkl.load(f"{file}-logdet.zarr").transform(X), dkl.load(f"{file}-mvu.zarr").embedding_])
        got = {"nan.npy": "nan", "text.npy": "nan", "y1.csv": "-1", "y2.csv": "?"}.get(file, "NA")
        message = error_of("fit", "svc", "--data", "X.npy", "--targets", file, "--out", "never.zarr")
        place = f"{file}, line 2" if file.endswith(".csv") else f"{file} [0]"
        assert f"{place}: a label is missing; got '{got}' and 9 more" in message
    for other in found[1:]:
        for one, wanted in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(one, wanted)
    np.save("ids.npy", np.arange(N))
    for task in (["svc"], ["logdet"], ["mvu", "--colored"]):
        message = error_of("fit", *task, "--data", "X.npy", "--targets", "ids.npy", "--out", "never.zarr")
        assert "ids.npy: every label is another" in message


def test_labels_to_compare_with_are_all_needed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("X.npz", X=X, y=np.array(["hen", "owl"])[CLASSES])
    assert call("fit", "svc", "--data", "X.npz", "--out", "run.zarr", "--no-picture").code == 0
    np.save("y.npy", named("NA"))
    message = error_of("predict", "run.zarr", "--data", "X.npz", "--targets", "y.npy", "--out", "p.csv")
    assert "y.npy [0]: a label is missing; got 'NA' and 9 more" in message


@pytest.mark.parametrize("column", [CLASSES[:, None], pd.DataFrame({"bird": named("NA")}), CLASSES.tolist()])
def test_a_column_of_labels_is_a_vector(column):
    flat = column["bird"] if isinstance(column, pd.DataFrame) else CLASSES
    assert resolve_pairs(N, y=column, random_state=0) == resolve_pairs(N, y=flat, random_state=0)
    with pytest.raises(InputError, match=r"^y: labels and rows differ in number; got shape \(30,\); wanted \(31,\)"):
        resolve_pairs(N + 1, y=column)


def test_labels_that_are_one_double_are_refused():
    y = pd.Series([2**53, 2**53 + 1, 2**53 + 2, None] * 3)  # pandas makes doubles of them, the first two alike
    for given in (y, pd.Series([2**53, 2**53 + 1, None] * 3, dtype="Int64")):
        with pytest.raises(InputError, match=r"^y: not a class label; got y\[0\] = 9007199254740992.*make text"):
            label_codes(given)
    text = pd.Series([2**53, 2**53 + 1, None] * 3, dtype="Int64").astype(str)
    assert label_codes(text).tolist() == [0, 1, -1] * 3
