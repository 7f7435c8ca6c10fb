"""Settings of every learner of a kernel near a prior one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from dkl.estimators.base.kernels import KERNEL, KERNEL_FUNCTION
from dkl.estimators.base.rules import CONTRADICTIONS, DICTIONARY, Either, Flag, Integer, Size
from dkl.estimators.base.settings import EVERYWHERE, RESUMABLE, Flagged, InPython, Settings
from dkl.estimators.base.standardize_setting import Standardize


@dataclass(frozen=True)
class LabelSettings(Settings):
    """Settings on side information from labels, and on the resources of the process."""

    n_in: Annotated[int, Integer(1), "Nearest rows of its class that a labeled row is compared with."] = 10
    n_out: Annotated[int, Integer(1), "Nearest rows of other classes."] = 10
    standardize: Standardize = "auto"
    contradictions: Annotated[
        str, CONTRADICTIONS, "Pairs or triplets that contradict each other: keep them, leave out, or refuse."
    ] = "keep"
    memory_limit: Annotated[int | None, Size(), 'Bytes a process may use, as "4 GB".', RESUMABLE] = None


@dataclass(frozen=True)
class PriorSettings(LabelSettings):
    """Settings of the prior kernel K0, and of the number of principal components that show rows."""

    kernel: Annotated[
        Any, KERNEL, "K0; the paper's is laplacian, of the neighbor graph.", InPython(Either(KERNEL, KERNEL_FUNCTION))
    ] = "rbf"
    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph of --kernel laplacian."] = 10
    n_components: Annotated[int, Integer(1), "Principal components of transformed rows."] = 30
    center: Annotated[
        bool,
        Flag(),
        "Whether components are about the mean.",
        Flagged("--not-centered", "Take components about 0, not about the mean [about the mean]."),
    ] = True

    in_python = {"loss_params": (None, DICTIONARY), "kernel_params": (None, DICTIONARY), **EVERYWHERE}
