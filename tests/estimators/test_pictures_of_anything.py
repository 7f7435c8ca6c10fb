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
from dkl.estimators import kernel_kmeans_picture
from dkl.estimators.common import drawing
from dkl.estimators.kernel_kmeans_picture import KMeansShown, view_of
from dkl.estimators.pairwise import picture as pairwise_picture
from dkl.estimators.pairwise.shown import make_shown
from dkl.estimators.regression import picture as regression_picture
from dkl.estimators.regression.shown import FitShown, RegressionShown
from dkl.estimators.svc import picture as svc_picture
from dkl.estimators.svc.shown import RowsShown, SVCShown

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
    shown = make_shown(factor, labels=labels, must_link=links, cannot_link=links[:0], history=HISTORIES[history])
    drawn(pairwise_picture.draw, shown)


def test_pairs_with_awkward_names(rng: np.random.Generator) -> None:
    labels = np.array([*AWKWARD, None], dtype=object)[rng.integers(0, 6, 90)]
    shown = make_shown(rng.standard_normal((90, 3)), rows=sp.csr_array(rng.random((90, 600))), labels=labels)
    assert (shown.codes == -1).sum() == sum(label is None for label in labels)
    drawn(pairwise_picture.draw, shown)


def test_large_factor_is_sampled(rng: np.random.Generator) -> None:
    shown = make_shown(rng.random((12_000, 2)), rows=rng.random((12_000, 3)), labels=np.arange(12_000) % 3)
    assert shown.factor.shape == (5000, 2) and shown.raw.shape == (5000, 3) and shown.n == 12_000
    assert "5,000 of 12,000" in titles(drawn(pairwise_picture.draw, shown))


def test_report_of_the_demo(tmp_path: Path) -> None:
    path = pairwise_picture.draw_report(
        tmp_path / "report.png", DIGITS[:50], DIGIT_OF[:50], DIGITS[:50] / 60, [ROW], "two\nlines, and $5"
    )
    assert path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(("outputs", "folds"), [(1, 0), (1, 1), (10, 5), (30, 0)])
def test_regression_of_any_shape(outputs: int, folds: int, rng: np.random.Generator) -> None:
    observed = rng.standard_normal((50, min(outputs, 10)))
    observed[:, 0] = 7.0
    cv = (
        None
        if not folds
        else (np.geomspace(9, 1e-3, 5), rng.random((5, folds, outputs)), np.ones((5, folds, outputs), int))
    )
    nus, errors, active = cv or (None, None, None)
    history = [{"iteration": 0, "relative_gap": 0.0, "output": t} for t in range(outputs)]
    shown = RegressionShown(
        1.0, 9.0, 3, 70, np.inf, rng.random((outputs, 70)), nus, errors, active, FitShown(observed, observed, 50),
        history, 1e-6,
    )  # fmt: skip
    drawn(regression_picture.draw, shown)


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
    rows = RowsShown(codes, predicted, np.where(codes == predicted, 1.0, -1.0), 300)
    machines = 1 if n_classes == 2 else n_classes
    gaps = rng.random(machines)
    gaps[:1], gaps[1:2] = 0.0, np.inf
    history = [{"iteration": k, "relative_gap": 10.0**-k, "machine": m} for m in range(machines) for k in range(3)]
    shown = SVCShown(names, multi_class, 7, gaps, 1e-6, rows, history[:rows_told])
    assert shown.confusion.sum() == 300 and np.trace(shown.confusion) == np.count_nonzero(codes == predicted)
    drawn(svc_picture.draw, shown)


def test_classifier_without_rows_says_what_to_pass() -> None:
    figure = drawing.new_figure()
    svc_picture.draw(figure, SVCShown(("no", "yes"), "ovo", 7, np.array([0.1])))
    assert sum("pass X and y" in text.get_text() for axis in figure.axes for text in axis.texts) == 2


@pytest.mark.parametrize(
    ("k", "d", "kind"), [(1, 1, np.asarray), (2, 3, sp.csr_array), (30, 5, np.asarray), (100, 2, sp.csr_array)]
)
def test_clusters_of_any_shape(k: int, d: int, kind: Callable[[Any], Any], rng: np.random.Generator) -> None:
    rows, labels, centers = rng.random((150, d)), rng.integers(0, k, 150), rng.random((k, d))
    view = view_of(kind(rows), labels, centers)
    assert view is not None
    np.testing.assert_allclose(view.squares, np.square(rows - centers[labels]).sum(axis=1), atol=1e-12)
    sizes = np.bincount(labels, minlength=k)
    drawn(kernel_kmeans_picture.draw, KMeansShown(sizes, 1.0, view))
    table = np.zeros((len(AWKWARD), k), np.int64)
    drawn(kernel_kmeans_picture.draw, KMeansShown(sizes, None, None, table, AWKWARD))


def test_clusters_of_equal_rows() -> None:
    drawn(
        kernel_kmeans_picture.draw,
        KMeansShown(np.array([9]), 0.0, view_of(np.ones((9, 2)), np.zeros(9, int), np.ones((1, 2)))),
    )
