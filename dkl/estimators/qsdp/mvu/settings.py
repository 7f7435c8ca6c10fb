"""The settings of `MaximumVarianceUnfolding` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.estimators.base.rules import Either, Flag, Integer, Real, Word
from dkl.estimators.base.settings import EVERYWHERE, SHARE_HELD_OUT
from dkl.estimators.qsdp.basis.settings import BasisSettings


@dataclass(frozen=True)
class UnfoldingSettings(BasisSettings):
    """Settings of RegMVU."""

    n_components: Annotated[int, Integer(1), "Dimensions of the embedding."] = 2
    n_neighbors: Annotated[int, Integer(1), "Neighbors whose distances are kept."] = 10
    nu: Annotated[float | str, Either(Real(above=0), Word("scale")), "Weight of the edges' distances."] = "scale"
    colored: Annotated[bool, Flag(), "Have labels take the variance's place."] = False
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1

    in_python = {**EVERYWHERE, "constraints": ("soft", Word("soft", "hard", "at-most"))}
