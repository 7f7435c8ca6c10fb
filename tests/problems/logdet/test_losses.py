"""Losses by their formulas in Table 2 and (8), by Taylor slopes, and what is refused of a user's."""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.integrate import quad

from dkl.errors import InputError
from dkl.estimators.base.rules import PAIR_LOSSES, TRIPLET_LOSSES
from dkl.problems.logdet.losses import (
    HingeLoss,
    ItmlLoss,
    LinearLoss,
    LogLoss,
    SmoothedHingeLoss,
    SoftBendLoss,
    SoftHingeLoss,
    as_loss,
    check_loss,
)

SIMILAR = np.arange(40) % 2 == 0
LOSSES = [
    LogLoss(),
    SoftHingeLoss(0.3),
    SoftBendLoss(0.7, 0.3),
    SoftBendLoss(-1.0, 0.05),
    SmoothedHingeLoss(),
    SmoothedHingeLoss(0.2),
    LinearLoss(),
    ItmlLoss(SIMILAR, 0.9, 1.3),
]
X = np.linspace(0.05, 3.0, 40)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_derivatives_are_slopes(loss):
    """By central differences, at margins away from the corners of psi'."""
    h = 1e-5
    np.testing.assert_allclose((loss.value(X + h) - loss.value(X - h)) / (2 * h), loss.first(X), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose((loss.first(X + h) - loss.first(X - h)) / (2 * h), loss.second(X), rtol=1e-6, atol=1e-9)
    assert (loss.second(X) >= 0).all()


def test_values_are_those_of_the_paper():
    x = np.array([-2.0, 0.5, 0.85, 2.0])
    np.testing.assert_allclose(LogLoss().value(x), np.log(1 + np.exp(-2 * x)), rtol=1e-14)
    t = 0.7
    bend = 2 / ((1 - t) * (3 + t)) * (1 - 0.85) ** 2
    line = (2 + 2 * t) / (3 + t) - 4 / (3 + t) * x[:2]
    np.testing.assert_allclose(SmoothedHingeLoss(t).value(x), [*line, bend, 0], rtol=1e-14)
    hinge = np.maximum(1 - x, 0)
    np.testing.assert_allclose(SmoothedHingeLoss(1 - 1e-9).value(x), hinge, atol=1e-8)
    ratio = np.array([0.5, 2.0, 0.5, 2.0])
    itml = ItmlLoss(np.array([True, True, False, False]), 3.0, 5.0).value(ratio * [3, 3, 5, 5])
    np.testing.assert_allclose(itml, [0, 2 - np.log(2) - 1, 0.5 - np.log(0.5) - 1, 0], rtol=1e-14)


def test_the_log_loss_knows_the_margin_of_a_slope():
    x = np.linspace(-15.0, 300.0, 50)
    np.testing.assert_allclose(LogLoss().margins_of(LogLoss().first(x)), x, rtol=1e-2, atol=1e-2)
    near = np.linspace(-3.0, 3.0, 50)
    np.testing.assert_allclose(LogLoss().margins_of(LogLoss().first(near)), near, rtol=1e-12, atol=1e-12)
    assert np.isfinite(LogLoss().margins_of(np.array([-2.0, 0.0]))).all()
    assert np.isnan(LogLoss().margins_of(np.array([-2.1, 0.1]))).all()


def test_a_soft_hinge_is_near_the_hinge_and_knows_the_margin_of_a_slope():
    x = np.linspace(-1.0, 3.0, 40)
    soft = HingeLoss().softened(0.1)
    above = soft.value(x) - HingeLoss().value(x)
    assert (above >= 0).all() and (above <= 0.1 * np.log(2) * (1 + 1e-12)).all()
    np.testing.assert_allclose(soft.margins_of(soft.first(x)), x, rtol=1e-6, atol=1e-6)
    assert np.isnan(soft.margins_of(np.array([-1.1, 0.1]))).all()


@pytest.mark.parametrize(("t", "width"), [(0.7, 0.5), (0.7, 0.01), (-2.0, 0.2), (0.999, 0.05)])
def test_a_soft_bend_is_the_mean_of_soft_hinges(t, width):
    """By quadrature over their corners; and near what it softens, whose subgradients its slopes are."""
    x, steepest = np.array([-40.0, -1.0, t, 0.5 * (1 + t), 0.95, 1.0, 1.2, 4.0]), 4 / (3 + t)
    soft, hinge, loss = SoftBendLoss(t, width), SoftHingeLoss(width), SmoothedHingeLoss(t)
    for name in ("value", "first"):
        means = [
            quad(lambda corner: getattr(hinge, name)(np.array([1 + one - corner]))[0], t, 1, points=(one,))[0]  # noqa: B023
            for one in x
        ]
        np.testing.assert_allclose(getattr(soft, name)(x), steepest * np.array(means) / (1 - t), rtol=1e-7, atol=1e-10)
    above = soft.value(x) - loss.value(x)
    assert (above >= -1e-12).all() and (above <= steepest * width * np.log(2) * (1 + 1e-9)).all()
    inner = soft.second(x) > 1e-3
    np.testing.assert_allclose(soft.margins_of(soft.first(x))[inner], x[inner], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(loss.first(loss.supports(soft.first(x))), soft.first(x), rtol=1e-12, atol=1e-12)
    assert np.isnan(soft.margins_of(np.array([-1.01 * steepest, 0.01]))).all()
    assert np.isfinite(soft.margins_of(np.array([-steepest, 0.0]))).all()
    check_loss(soft)


@pytest.mark.parametrize("width", [1e-6, 1e-13])
def test_a_narrow_soft_bend_is_the_smoothed_hinge(width):
    x = np.concatenate([X, [-1e6, -1.0, 0.7, 1.0, 1e6]])
    np.testing.assert_allclose(
        SoftBendLoss(0.7, width).value(x), SmoothedHingeLoss(0.7).value(x), rtol=1e-9, atol=1e-10
    )
    np.testing.assert_allclose(SoftBendLoss(0.7, width).first(x), SmoothedHingeLoss(0.7).first(x), rtol=1e-9, atol=1e-5)


def test_margins_far_out_stay_finite():
    far = np.array([-1e6, 1e6])
    np.testing.assert_allclose(LogLoss().value(far), [2e6, 0])
    np.testing.assert_allclose(LogLoss().first(far), [-2, 0])
    np.testing.assert_allclose(LogLoss().second(far), 0)
    assert ItmlLoss(np.array([True, False]), 1, 1).value(np.zeros(2)).tolist() == [0.0, np.inf]


class Square:
    """max(0, 1 - x)^2, with what a test breaks."""

    def __init__(self, slope=-2.0, curvature=2.0, offset=0.0):
        self.slope, self.curvature, self.offset = slope, curvature, offset

    def value(self, x):
        return np.maximum(1 - x, 0) ** 2 + self.offset

    def first(self, x):
        return self.slope * np.maximum(1 - x, 0)

    def second(self, x):
        return self.curvature * (x < 1)


class Concave:
    def value(self, x):
        return -(x**2)

    def first(self, x):
        return -2 * x

    def second(self, x):
        return np.zeros_like(x)


class Barrier:
    """-log x of x > 0, inf elsewhere, with the inverse of its slope."""

    def value(self, x):
        return np.where(x > 0, -np.log(np.maximum(x, 1e-300)), np.inf)

    def first(self, x):
        return -1 / x

    def second(self, x):
        return 1 / x**2

    def margins_of(self, slopes):
        return -1 / slopes


def with_method(name, method, loss=Square):
    """A loss of which one method is another."""
    return type("Broken", (loss,), {name: lambda self, x: method(x)})()


def test_a_users_loss_may_have_a_domain_and_an_inverse_slope():
    check_loss(Barrier())
    with pytest.raises(InputError, match=r"loss.margins_of: not the inverse of loss.first; got .* of the slope"):
        as_loss(with_method("margins_of", lambda slopes: 1 / slopes, Barrier))


@pytest.mark.parametrize(
    ("name", "method", "said"),
    [
        (
            "value",
            lambda x: np.where(x > 1, np.nan, (1 - x) ** 2),
            r"loss.value: not finite elementwise; got nan of the",
        ),
        ("value", lambda x: float((x**2).sum()), r"loss.value: not elementwise; got shape \(\) of float64"),
        ("value", lambda x: 1 / 0, "loss.value: the loss cannot be evaluated; got ZeroDivisionError"),
        ("value", lambda x: np.full(x.shape, np.inf), "loss.value: not finite"),
        ("first", lambda x: np.full(x.shape, np.nan), "loss.first: not finite elementwise; got nan of the margin -100"),
        ("second", lambda x: x[:, None], r"loss.second: not elementwise; got shape \(25, 1\)"),
        ("second", lambda x: x + 1j, "loss.second: not elementwise; got .* of complex128; wanted real numbers"),
    ],
)
def test_what_a_users_loss_may_not_return(name, method, said):
    with pytest.raises(InputError, match=said):
        as_loss(with_method(name, method))


def test_a_users_loss_is_checked():
    loss = Square()
    assert as_loss(loss) is loss
    for name in ("log", "lmnn", "hoi", "linear"):
        check_loss(as_loss(name))
    with pytest.raises(InputError, match="negative curvature"):
        as_loss(Square(curvature=-2.0))
    with pytest.raises(InputError, match="not the slope"):
        as_loss(Square(slope=-1.0))
    with pytest.raises(InputError, match="not finite"):
        as_loss(Square(offset=np.nan))
    with pytest.raises(InputError, match="below a tangent"):
        as_loss(Concave())
    with pytest.raises(InputError, match="methods value, first and second"):
        as_loss(np.exp)
    with pytest.raises(InputError, match="unknown loss") as refusal:
        as_loss("squared")
    assert all(f"{name}," in str(refusal.value.wanted) for name in (*TRIPLET_LOSSES, *PAIR_LOSSES))
    with pytest.raises(InputError, match="smoothing"):
        as_loss("lmnn", t=1.0)
    with pytest.raises(InputError, match="upper"):
        as_loss("itml", similar=SIMILAR, upper=0.0, lower=1.0)


@pytest.mark.parametrize("beyond", [1e-14, 1e-9, 1e-3, 0.4, 0.6, 1 - 1e-14])
def test_itml_s_loss_next_to_its_bound(beyond):
    """Its error is rounding of the margin's distance from the bound, not of 1."""
    loss = ItmlLoss(np.array([True, False]), 3.0, 5.0)
    margins = np.array([3.0 * (1 + beyond), 5.0 * (1 - beyond)])
    with mp.workdps(60):
        ratios = mpf(float(margins[0])) / 3, mpf(float(margins[1])) / 5
        wanted = [float(ratio - 1 - mp.log(ratio)) for ratio in ratios]
    np.testing.assert_allclose(loss.value(margins), wanted, rtol=1e-14, atol=1e-15 * beyond)
