"""The settings of `LogDetKernelLearner` and of `LogDetMetricLearner`, and of their runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from dkl.errors import InputError
from dkl.estimators.base.rules import (
    DICTIONARY,
    HINGES,
    KERNELS_WITH,
    LOSS_NAME,
    LOSS_OBJECT,
    LOSS_PARAMETERS,
    PARAMETER_RULES,
    WIDTH,
    Either,
    Flag,
    Integer,
    ListOf,
    NotGiven,
    Real,
    Word,
)
from dkl.estimators.base.settings import (
    EVERYWHERE,
    RESUMABLE,
    SHARE_HELD_OUT,
    Flagged,
    InPython,
    LabelSettings,
    PriorSettings,
    Settings,
)


@dataclass(frozen=True)
class LogDetSettings(LabelSettings):
    """Settings of TRIN: the weight gamma of the loss, the loss, labels, when to end."""

    gamma: Annotated[float, Real(above=0), "Weight of the loss against the divergence."] = 16.0
    loss: Annotated[
        Any, LOSS_NAME, "Of triplets, or of pairs: itml, hoi, hoi_hinge.", InPython(Either(LOSS_NAME, LOSS_OBJECT))
    ] = "log"
    normalize_gamma: Annotated[
        bool,
        Flag(),
        "Divide gamma by the number of labeled rows.",
        Flagged("--whole-gamma", "Do not divide gamma by the number of labeled rows [divided]."),
    ] = True
    solver: Annotated[
        str,
        Word("auto", "pcg", "direct", "paper"),
        "How Newton's systems are solved; auto: by what takes less; paper: all as the paper has it.",
    ] = "auto"
    tol: Annotated[float, Real(least=0), "Relative duality gap to end at, or the paper's gradient."] = 1e-6
    max_iter: Annotated[int, Integer(1), "Most Newton steps.", RESUMABLE] = 200
    holdout: Annotated[
        float, SHARE_HELD_OUT, "Share of labels, triplets or pairs that the quality is measured on; 0: none."
    ] = 0.1

    def check_together(self) -> None:
        """Raise InputError where the paper's method is asked of a loss that it does not take."""
        # A loss object is examined where it is used: whether it has a corner is not known by a name.
        if self.solver == "paper" and isinstance(self.loss, str) and self.loss in HINGES:
            raise InputError(
                "the paper's method takes second derivatives of the loss", where="solver", got=f"paper, loss {self.loss}",
                wanted="loss log, lmnn, linear, itml or hoi, or another solver",
            )  # fmt: skip


@dataclass(frozen=True)
class LogDetKernelSettings(PriorSettings, LogDetSettings):
    """Settings of LogDet kernel learning: those of TRIN, and the prior kernel K0."""


OF_KERNELS = {"kernel_gamma" if name == "gamma" else name: kernels for name, kernels in KERNELS_WITH.items()}
"""Kernels that have each parameter of K0, by the option's name."""
OF_LOSSES = {name: tuple(loss for loss, has in LOSS_PARAMETERS.items() if name in has) for name in PARAMETER_RULES}
"""Losses that have each parameter of the loss."""


@dataclass(frozen=True)
class PathSettings(Settings):
    """Settings of runs alone: gamma may be a path, and entries of `loss_params` are options."""

    gamma: Annotated[
        Any,
        Either(Real(above=0), ListOf(Real(above=0))),
        "Weight of the loss against the divergence; given several times, a path, each begun where those before lead.",
    ] = 16.0
    t: Annotated[
        float | None, Either(PARAMETER_RULES["t"], NotGiven()), "Where the lmnn and hoi losses bend [0.7]."
    ] = None
    upper: Annotated[
        float | None, Either(Real(above=0), NotGiven()), "itml: similar rows are to be nearer, squared [percentile 5]."
    ] = None
    lower: Annotated[
        float | None, Either(Real(above=0), NotGiven()), "itml: others are to be farther, squared [percentile 95]."
    ] = None

    @property
    def gammas(self) -> list[float]:
        """Return the path's gammas, one at least."""
        return list(map(float, self.gamma)) if isinstance(self.gamma, list) else [float(self.gamma)]

    @property
    def loss_params(self) -> dict[str, object]:
        """Return `loss_params` as the estimator takes them."""
        return {name: getattr(self, name) for name in OF_LOSSES if getattr(self, name) is not None}

    def check_options(self, setting: str, chosen: str, known: dict[str, tuple[str, ...]]) -> None:
        """Raise InputError for an option that what is `chosen` as `setting`, a kernel or a loss, does not have."""
        for name, of in known.items():
            if getattr(self, name) is not None and chosen not in of:
                flag, wanted = f"--{name.replace('_', '-')}", " or ".join(f"--{setting} {one}" for one in of)
                raise InputError(
                    f"a parameter that this {setting} does not have",
                    where=flag,
                    got=f"--{setting} {chosen}",
                    wanted=wanted,
                )


@dataclass(frozen=True)
class LogDetRunSettings(PathSettings, LogDetKernelSettings):
    """Settings of a run of a kernel: those of `PathSettings`, and entries of `kernel_params` as options."""

    kernel_gamma: Annotated[
        float | None, Either(Real(above=0), NotGiven()), "gamma of a kernel of rows [as SVC's scale]."
    ] = None
    degree: Annotated[float | None, Either(Real(least=0), NotGiven()), "Of the polynomial kernel [3]."] = None
    coef0: Annotated[float | None, Either(Real(), NotGiven()), "Of the polynomial and sigmoid kernels [1]."] = None
    sigma: Annotated[
        float | str | None,
        Either(WIDTH, NotGiven()),
        "Width of the graph's similarity: a number, local, average or kth [local].",
    ] = None
    laplacian: Annotated[
        str | None, Either(Word("normalized", "unnormalized"), NotGiven()), "Of the graph [normalized]."
    ] = None

    @property
    def kernel_params(self) -> dict[str, Any]:
        """Return `kernel_params` as the estimator takes them."""
        given = {name: getattr(self, name) for name in OF_KERNELS if getattr(self, name) is not None}
        return {name.removeprefix("kernel_"): value for name, value in given.items()}

    def check_together(self) -> None:
        """Raise InputError for a parameter that the kernel or the loss does not have."""
        super().check_together()
        self.check_options("kernel", self.kernel, OF_KERNELS)
        self.check_options("loss", self.loss, OF_LOSSES)


@dataclass(frozen=True)
class LogDetMetricSettings(LogDetSettings):
    """Settings of LogDet metric learning: those of TRIN, and the prior metric W0."""

    loss: Annotated[Any, LOSS_NAME, "Of pairs, or of triplets.", InPython(Either(LOSS_NAME, LOSS_OBJECT))] = "itml"
    prior: Annotated[str, Word("identity", "covariance"), "W0: the identity, or the inverse of the covariance."] = (
        "identity"
    )
    n_components: Annotated[
        int | None,
        Either(Integer(1), NotGiven()),
        "Columns of transformed rows: of the metric those directions that keep most of the learned distances [all].",
    ] = None

    in_python = {"loss_params": (None, DICTIONARY), **EVERYWHERE}

    def check_columns(self, d: int, where: str) -> None:
        """Raise InputError for more components than rows of d columns have."""
        if self.n_components is not None and self.n_components > d:
            wanted = f"at most {d}, the number of columns"
            raise InputError("more components than columns", where=where, got=self.n_components, wanted=wanted)


@dataclass(frozen=True)
class LogDetMetricRunSettings(PathSettings, LogDetMetricSettings):
    """Settings of a run of a metric."""

    kernel: ClassVar[str] = "linear"
    """Kernel whose distances are those of rows: side information is checked and counted as that of a linear kernel."""

    def check_together(self) -> None:
        """Raise InputError for a parameter that the loss does not have."""
        super().check_together()
        self.check_options("loss", self.loss, OF_LOSSES)
