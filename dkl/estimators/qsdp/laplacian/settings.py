"""The settings of `LaplacianKernelLearner` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.estimators.base.rules import CONTRADICTIONS, WIDTH, Integer, Word
from dkl.estimators.base.settings import EVERYWHERE, SHARE_HELD_OUT
from dkl.estimators.qsdp.basis.settings import BasisSettings


@dataclass(frozen=True)
class PropagationSettings(BasisSettings):
    """Settings of RegPCP."""

    n_neighbors: Annotated[int, Integer(1), "Neighbors of a row in the graph."] = 20
    sigma: Annotated[float | str, WIDTH, "Width of the similarity: a number, local, average or kth; auto: local."] = (
        "auto"
    )
    contradictions: Annotated[
        str, CONTRADICTIONS, "Cannot-links inside must-link components: keep them, leave out, or refuse."
    ] = "keep"
    holdout: Annotated[float, SHARE_HELD_OUT, "Share of the pairs that the quality is measured on; 0: none."] = 0.1

    in_python = {**EVERYWHERE, "constraints": ("soft", Word("soft", "hard"))}
