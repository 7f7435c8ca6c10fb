"""Pictures of what may come, however odd: one row or many classes, long names, constants, nothing known."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from picture_checks import check, drawn, titles
from sklearn.datasets import load_diabetes, load_digits

from dkl import LowRankKernelRegressor
from dkl.estimators.kmeans.plot_data import clusters_plot, view_of
from dkl.estimators.pairwise.plot_data import kernel_plot
from dkl.estimators.regression import plot_data as regression
from dkl.estimators.svm import plot_data as svc
from dkl.plotting.convergence import draw_gaps, draw_last_gaps
from dkl.plotting.figures import PlotData, figure_of, panel, save

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.slow  # drawings of shapes that seldom come; those that come are drawn in test_pictures.py

DIGITS, DIGIT_OF = load_digits(return_X_y=True)
PATIENTS, PROGRESS = load_diabetes(return_X_y=True)
AWKWARD = ("a name that is far too long, one", "a name that is far too long, two", "$x_1$ and $y", "größer", "数字")
ROW = {"iteration": 1, "objective": 3.0, "primal_residual": 0.0, "dual_residual": 0.1}


HISTORIES = ([], [ROW], [ROW, {**ROW, "iteration": 2}, {"iteration": 3, "relative_gap": 0.1, "stage": "finish"}])


@pytest.mark.parametrize(
    ("rank", "n_classes", "history"), [(1, None, 0), (1, 2, 1), (2, 1, 2), (120, None, 2), (5, 100, 1)]
)
def test_pairs_of_any_shape(rank: int, n_classes: int | None, history: int, rng: np.random.Generator) -> None:
    factor = rng.standard_normal((200, rank))
    labels = None if n_classes is None else rng.integers(0, n_classes, 200)
    links = np.array([[0, 1]])
    drawn(kernel_plot(factor, labels=labels, pairs=(links, links[:0]), history=HISTORIES[history]))


def test_pairs_with_awkward_names(rng: np.random.Generator) -> None:
    labels = np.array([*AWKWARD, None], dtype=object)[rng.integers(0, 6, 90)]
    figure = drawn(kernel_plot(rng.standard_normal((90, 3)), rows=sp.csr_array(rng.random((90, 600))), labels=labels))
    for axis in figure.axes[:2]:
        unlabeled, labeled = (len(dots.get_offsets()) for dots in axis.collections)
        assert unlabeled == 90 - labeled == sum(label is None for label in labels)


def test_large_factor_is_sampled(rng: np.random.Generator) -> None:
    figure = drawn(kernel_plot(rng.random((12_000, 2)), rows=rng.random((12_000, 3)), labels=np.arange(12_000) % 3))
    assert [len(axis.collections[1].get_offsets()) for axis in figure.axes[:2]] == [5000, 5000]
    assert "5,000 of 12,000" in titles(figure) and "12,000 patterns, kernel of rank 2" in titles(figure)


def test_report_of_the_demo(tmp_path: Path) -> None:
    plot = kernel_plot(DIGITS[:50] / 60, DIGITS[:50], DIGIT_OF[:50], history=[ROW], title="two\nlines, and $5")
    path = save(figure_of(plot), tmp_path / "report.png")
    assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("outputs", "folds"), [(1, 0), (1, 1), (10, 5), (30, 0)])
def test_regression_of_any_shape(outputs: int, folds: int, rng: np.random.Generator) -> None:
    observed = rng.standard_normal((50, min(outputs, 10)))
    observed[:, 0] = 7.0
    panels = [regression.fit_panel(regression.DrawnPredictions(observed, observed, 50))]
    if folds:
        errors, active = rng.random((5, folds, outputs)), np.ones((5, folds, outputs), int)
        panels += regression.path_panels(np.geomspace(9, 1e-3, 5), errors, active, 1.0, 9.0, 70)
    else:
        panels.append(regression.weights_panel(rng.random((outputs, 70)), 70))
    history = [{"iteration": 0, "relative_gap": 0.0, "output": t} for t in range(outputs)]
    drawn(PlotData("any shape", [*panels, panel(draw_gaps, history, "output", 1e-6)]))


def test_regression_on_a_constant() -> None:
    model = LowRankKernelRegressor(gamma=1.0).fit(PATIENTS[:30], np.full(30, 1e9))
    figure = model.plot()
    check(figure)
    assert any("no column is active" in text.get_text() for axis in figure.axes for text in axis.texts)


@pytest.mark.parametrize(
    ("n_classes", "multi_class", "right", "rows_told"),
    [(2, "ovo", 1.0, 1), (2, "ovr", 0.0, 3), (5, "ovr", 0.9, 0), (5, "ovo", 0.9, 15), (100, "ovo", 0.9, 300)],
)
def test_classifier_of_any_shape(
    n_classes: int, multi_class: str, right: float, rows_told: int, rng: np.random.Generator
) -> None:
    names = AWKWARD if n_classes == 5 else tuple(f"class {k}" for k in range(n_classes))
    codes = rng.integers(0, n_classes, 300)
    predicted = np.where(rng.random(300) < right, codes, (codes + 1) % n_classes)
    rows = svc.DrawnDecisions(codes, predicted, np.where(codes == predicted, 1.0, -1.0), 300)
    machines = 1 if n_classes == 2 else n_classes
    gaps = rng.random(machines)
    gaps[:1], gaps[1:2] = 0.0, np.inf
    history = [{"iteration": k, "relative_gap": 10.0**-k, "machine": m} for m in range(machines) for k in range(3)]
    panels = svc.decision_panels(rows, names, multi_class)
    panels += [
        panel(draw_gaps, history[:rows_told], "machine", 1e-6),
        panel(draw_last_gaps, gaps, 1e-6, "gaps", "machine"),
    ]
    shares = drawn(PlotData("any shape", panels)).axes[0].images[0].get_array()
    expected = [
        np.count_nonzero((codes == k) & (predicted == k)) / max(np.sum(codes == k), 1) for k in range(n_classes)
    ]
    np.testing.assert_allclose(np.diag(shares), expected)


def test_classifier_without_rows_says_what_to_pass() -> None:
    figure = drawn(PlotData("no rows", svc.decision_panels(None, ("no", "yes"), "ovo")))
    assert sum("pass X and y" in text.get_text() for axis in figure.axes for text in axis.texts) == 2


@pytest.mark.parametrize(
    ("k", "d", "kind"), [(1, 1, np.asarray), (2, 3, sp.csr_array), (30, 5, np.asarray), (100, 2, sp.csr_array)]
)
def test_clusters_of_any_shape(k: int, d: int, kind: Callable[[Any], Any], rng: np.random.Generator) -> None:
    rows, labels, centers = rng.random((150, d)), rng.integers(0, k, 150), rng.random((k, d))
    view = view_of(kind(rows), labels, centers)
    assert view is not None
    np.testing.assert_allclose(view.squares, np.square(rows - centers[labels]).sum(axis=1), atol=1e-12)
    drawn(clusters_plot(labels, k, view, inertia=1.0))
    drawn(clusters_plot(labels, k, None, y=np.array(AWKWARD, dtype=object)[rng.integers(0, len(AWKWARD), 150)]))


def test_clusters_of_equal_rows() -> None:
    labels = np.zeros(9, int)
    drawn(clusters_plot(labels, 1, view_of(np.ones((9, 2)), labels, np.ones((1, 2))), inertia=0.0))
