"""The settings of `LogDetKernelLearner` and of `LogDetMetricLearner`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.estimators.common.losses import LOSS_NAME, LOSS_OBJECT
from dkl.estimators.common.prior_settings import LabelSettings, PriorSettings
from dkl.estimators.common.rules import DICTIONARY, Either, Flag, Integer, Real, Word
from dkl.estimators.common.settings import EVERYWHERE, RESUMABLE, Flagged, InPython


@dataclass(frozen=True)
class LogDetSettings(LabelSettings):
    """TRIN: the weight gamma of the loss, the loss, what labels stand for, how far to go."""

    gamma: Annotated[float, Real(above=0), "Weight of the loss against the divergence."] = 16.0
    loss: Annotated[
        Any, LOSS_NAME, "Of triplets, or of pairs: itml, hoi.", InPython(Either(LOSS_NAME, LOSS_OBJECT))
    ] = "log"
    normalize_gamma: Annotated[
        bool, Flag(), "Divide gamma by the number of labelled rows.", Flagged("--whole-gamma")
    ] = True
    solver: Annotated[
        str, Word("auto", "pcg", "direct"), "How Newton's systems are solved; auto: by what takes less."
    ] = "auto"
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most Newton steps.", RESUMABLE] = 200


@dataclass(frozen=True)
class LogDetKernelSettings(PriorSettings, LogDetSettings):
    """And the kernel K0 that the learned one is near."""


@dataclass(frozen=True)
class LogDetMetricSettings(LogDetSettings):
    """The metric W0 that the learned one is near."""

    loss: Annotated[Any, LOSS_NAME, "Of pairs, or of triplets.", InPython(Either(LOSS_NAME, LOSS_OBJECT))] = "itml"
    prior: Annotated[str, Word("identity", "covariance"), "W0: the identity, or the inverse of the covariance."] = (
        "identity"
    )

    in_python = {"loss_params": (None, DICTIONARY), **EVERYWHERE}
