"""The pictures of all learners: they are drawn whole, the same every time, into what was given, and of anything."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import joblib
import numpy as np
import pytest
from picture_checks import check, titles
from repeats import but_for
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from dkl import (
    KernelKMeans,
    LaplacianKernelLearner,
    LogDetKernelLearner,
    LogDetMetricLearner,
    LowRankKernelRegressor,
    MaximumVarianceUnfolding,
    OptimalNeighborhoodSVC,
    Pairs,
    PairwiseKernelLearner,
)
from dkl.errors import ConvergenceWarning, InputError
from dkl.estimators.base.plot_rows import sampled
from dkl.estimators.logdet import plot_data as logdet_plot
from dkl.estimators.regression.plot_data import plot_data as regression_plot
from dkl.estimators.svm.plot_data import plot_data as svc_plot
from dkl.plotting import figures

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

DIGITS, DIGIT_OF = load_digits(return_X_y=True)
PATIENTS, PROGRESS = load_diabetes(return_X_y=True)
NEW = slice(300, 400)


def pairs() -> Any:
    learner = PairwiseKernelLearner(gamma=10.0, max_iter=8, target_gap=0.5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learner.fit(DIGITS[:300], pairs=Pairs.from_labels(DIGIT_OF[:300], random_state=0))


LEARNERS: dict[str, Callable[[], Any]] = {
    "pairs": pairs,
    "regression": lambda: LowRankKernelRegressor(gamma=1.0, n_nus=12, random_state=0).fit(
        PATIENTS[:300], PROGRESS[:300]
    ),
    "svc": lambda: OptimalNeighborhoodSVC().fit(DIGITS[:300], DIGIT_OF[:300]),
    "k-means": lambda: KernelKMeans(10, kernel="linear", n_init=2, random_state=0).fit(DIGITS[:300]),
    "logdet": lambda: LogDetKernelLearner(n_in=2, n_out=2).fit(DIGITS[:300], DIGIT_OF[:300]),
    "metric": lambda: LogDetMetricLearner(loss="log", n_in=2, n_out=2).fit(DIGITS[:300], DIGIT_OF[:300]),
    "laplacian": lambda: LaplacianKernelLearner(random_state=0).fit(DIGITS[:300], DIGIT_OF[:300]),
    "mvu": lambda: MaximumVarianceUnfolding(n_basis=10, n_neighbors=30).fit(DIGITS[:300]),
}
PANELS = {"pairs": 7, "regression": 4, "svc": 4, "k-means": 4, "logdet": 4, "metric": 4, "laplacian": 4, "mvu": 4}
"""Axes in the picture; convergence of pairs takes two."""
HELD_OUT = {
    "pairs": (DIGITS[NEW], DIGIT_OF[NEW]),
    "regression": (PATIENTS[NEW], PROGRESS[NEW]),
    "svc": (DIGITS[NEW], DIGIT_OF[NEW]),
    "k-means": (DIGITS[NEW], DIGIT_OF[NEW]),
    "logdet": (DIGITS[NEW], DIGIT_OF[NEW]),
    "metric": (DIGITS[NEW], DIGIT_OF[NEW]),
    "laplacian": (DIGITS[NEW], DIGIT_OF[NEW]),
    "mvu": (DIGITS[NEW], DIGIT_OF[NEW]),
}


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], Any]:
    made: dict[str, Any] = {}
    return lambda name: made[name] if name in made else made.setdefault(name, LEARNERS[name]())


@pytest.mark.parametrize("name", but_for(LEARNERS.keys() - {"pairs"}, LEARNERS))
def test_picture_has_all_panels(name: str, fitted: Callable[[str], Any]) -> None:
    figure = fitted(name).plot()
    assert isinstance(figure, Figure)
    check(figure, PANELS[name])
    assert figure._repr_png_()[:4] == b"\x89PNG"


@pytest.mark.parametrize("name", but_for(LEARNERS.keys() - {"regression"}, LEARNERS))
def test_picture_of_rows_held_out(name: str, fitted: Callable[[str], Any]) -> None:
    X, y = HELD_OUT[name]
    figure = fitted(name).plot(X=X, y=y)
    check(figure)
    assert "100" in titles(figure)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEARNERS)
def test_same_bytes_twice_and_from_a_pickle(name: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    first = figures.save(fitted(name).plot(), tmp_path / "first.png").read_bytes()
    assert figures.save(fitted(name).plot(), tmp_path / "second.png").read_bytes() == first
    joblib.dump(fitted(name), tmp_path / "model")
    again = joblib.load(tmp_path / "model")
    assert figures.save(again.plot(), tmp_path / "third.png").read_bytes() == first


@pytest.mark.parametrize("name", LEARNERS)
def test_given_axes_are_drawn_into(name: str, fitted: Callable[[str], Any]) -> None:
    figure = figures.new_figure()
    left, right = figure.subplots(1, 2)
    assert fitted(name).plot(right) is right
    assert right.get_title() and not left.get_title()
    assert not (left.lines or left.collections or left.images or left.patches)
    figure.delaxes(left)
    check(figure)


@pytest.mark.parametrize("name", LEARNERS)
def test_what_cannot_be_drawn(name: str, fitted: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFittedError):
        clone(fitted(name)).plot()
    with pytest.raises(InputError, match="axes"):
        fitted(name).plot(figures.new_figure())
    X, y = HELD_OUT[name]
    with pytest.raises(InputError):
        fitted(name).plot(X=X, y=y[:-1])
    monkeypatch.setattr(figures, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"matplotlib is missing.*pip install 'dkl\[report\]'"):
        fitted(name).plot()


@pytest.mark.parametrize("name", ["regression", "svc"])
def test_rows_and_targets_go_together(name: str, fitted: Callable[[str], Any]) -> None:
    X, y = HELD_OUT[name]
    for given in ({"X": X}, {"y": y}):
        with pytest.raises(InputError, match="pass both"):
            fitted(name).plot(**given)


def test_unknown_class(fitted: Callable[[str], Any]) -> None:
    with pytest.raises(InputError, match="unknown class; got 11"):
        fitted("svc").plot(X=DIGITS[:2], y=[3, 11])


@pytest.mark.exhaustive
def test_labels_colour_the_pairs_and_are_held_against_clusters(fitted: Callable[[str], Any]) -> None:
    y = DIGIT_OF[:300].copy()
    y[::3] = -1
    figure = fitted("pairs").plot(y=y)
    check(figure, PANELS["pairs"])
    assert "classes" in titles(figure) and "clusters" not in titles(figure)
    figure = fitted("k-means").plot(y=y)
    check(figure, PANELS["k-means"] + 1)
    assert "classes against clusters" in titles(figure)


@pytest.mark.exhaustive
def test_no_pyplot_and_no_matplotlib_before_a_picture() -> None:
    program = """
import sys
import numpy as np
import dkl
model = dkl.KernelKMeans(2, random_state=0).fit(np.arange(8.0)[:, None])
assert "matplotlib" not in sys.modules
model.plot()._repr_png_()
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=120)


# -- what is kept of a fit ------------------------------------------------------------------------------------------


def test_what_the_classifier_keeps_is_what_it_predicts() -> None:
    for scheme in ("ovo", "ovr"):
        model = OptimalNeighborhoodSVC(C=0.01, multi_class=scheme).fit(DIGITS[:200], DIGIT_OF[:200])
        kept = model._rows_kept
        assert kept is not None
        np.testing.assert_array_equal(model.classes_[kept.predicted], model.predict(DIGITS[:200]))
        is_right = kept.codes == kept.predicted
        assert is_right[kept.margins > 0].all()
        if scheme == "ovr":
            assert not is_right[kept.margins < 0].any()


def test_rows_without_weight_are_not_drawn() -> None:
    weights = np.ones(120)
    weights[100:] = 0
    classifier = OptimalNeighborhoodSVC().fit(DIGITS[:120], DIGIT_OF[:120] > 4, weights)
    regressor = LowRankKernelRegressor(gamma=1.0, nu=1.0).fit(PATIENTS[:120], PROGRESS[:120], weights)
    assert len(classifier._rows_kept.codes) == len(regressor._fit_kept.observed) == 100
    np.testing.assert_array_equal(regressor._fit_kept.predicted[:, 0], regressor.predict(PATIENTS[:100]))
    np.testing.assert_allclose(regressor._fit_kept.observed[:, 0], PROGRESS[:100], rtol=1e-14)


@pytest.mark.slow
def test_a_model_of_a_path_shows_nothing_of_another_fit(fitted: Callable[[str], Any]) -> None:
    model = clone(fitted("svc")).fit(DIGITS[:60], DIGIT_OF[:60])
    of_path = model.path(DIGITS[:100], DIGIT_OF[:100], [1.0], [100.0]).model(0, 0)
    assert model._rows_kept is not None and of_path._rows_kept is None
    check(of_path.plot())


def test_own_kernels_are_not_asked_for_a_picture() -> None:
    calls = []

    def linear(a: np.ndarray, b: np.ndarray) -> float:
        calls.append(None)
        return float(a @ b)

    model = LowRankKernelRegressor(linear, nu=1.0, columns=[0, 1, 2]).fit(PATIENTS[:20], PROGRESS[:20])
    before = len(calls)
    figure = model.plot()
    assert len(calls) == before
    assert any("pass X and y" in text.get_text() for axis in figure.axes for text in axis.texts)
    check(model.plot(X=PATIENTS[:20], y=PROGRESS[:20]))


@pytest.mark.slow
def test_picture_of_a_factor_on_disk(tmp_path: Path) -> None:
    learner = PairwiseKernelLearner(gamma=10.0, max_iter=5, random_state=0, work_dir=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(DIGITS[:100], pairs=Pairs.from_labels(DIGIT_OF[:100], random_state=0))
    in_memory = learner.plot()._repr_png_()
    learner.factor_ = da.from_array(np.asarray(learner.factor_), chunks=(40, -1))
    assert learner.plot()._repr_png_() == in_memory


def test_more_new_patterns_than_are_drawn(fitted: Callable[[str], Any]) -> None:
    X, y = np.tile(DIGITS[NEW], (60, 1)), np.tile(DIGIT_OF[NEW], 60)
    figure = fitted("pairs").plot(X=X, y=y)
    assert "5,000 of 6,000" in titles(figure)
    assert "2,000 of 6,000" in titles(
        fitted("regression").plot(X=np.tile(PATIENTS[NEW], (60, 1)), y=np.tile(PROGRESS[NEW], 60))
    )
    for name in ("logdet", "metric", "laplacian"):
        assert titles(fitted(name).plot(X=X)).count("2,000 of 6,000 rows") == 2


def test_a_large_matrix_is_drawn_by_some_of_its_rows(
    fitted: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, most = fitted("logdet"), 20
    monkeypatch.setattr(logdet_plot, "MOST_DECOMPOSED", most)
    figure = model.plot()
    assert f"{most} of {len(model.points_):,} rows" in titles(figure)
    prior, learned = figure.axes[2].lines
    some = model.points_[sampled(len(model.points_), most)]
    for line, K in (
        (learned, model.kernel_matrix(DIGITS[some])),
        (prior, rbf_kernel(DIGITS[some], gamma=1 / (64 * DIGITS[:300].var()))),
    ):
        np.testing.assert_allclose(line.get_ydata(), np.linalg.eigvalsh(K)[::-1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["regression", "svc"])
def test_rows_that_a_run_learned_from_are_called_so(name: str, fitted: Callable[[str], Any]) -> None:
    plot_data = {"regression": regression_plot, "svc": svc_plot}[name]
    X, y = HELD_OUT[name]
    for whose, expected in (({}, "rows given"), ({"whose": "rows learned from"}, "rows learned from")):
        axis = figures.draw_plot(
            figures.new_figure().subplots(), lambda whose=whose: plot_data(fitted(name), X, y, **whose)
        )
        assert f"the 100 {expected}" in axis.get_title()
