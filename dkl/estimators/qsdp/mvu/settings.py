"""The settings of `MaximumVarianceUnfolding` and of its runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from dkl.estimators.base.rules import Either, Flag, Integer, Real, Word
from dkl.estimators.base.settings import SHARE_HELD_OUT
from dkl.estimators.qsdp.basis.settings import BasisSettings, refuse_soft


@dataclass(frozen=True)
class UnfoldingSettings(BasisSettings):
    """Settings of RegMVU, and of the form with hard constraints."""

    n_components: Annotated[int, Integer(1), "Dimensions of the embedding."] = 2
    n_neighbors: Annotated[int, Integer(1), "Neighbors whose distances are kept."] = 10
    nu: Annotated[float | str, Either(Real(above=0), Word("scale")), "Weight of the edges' distances."] = "scale"
    colored: Annotated[bool, Flag(), "Have labels take the variance's place."] = False
    constraints: Annotated[
        str,
        Word("soft", "hard", "at-most"),
        "hard: distances are kept, by a kernel on all rows; at-most: none becomes longer.",
    ] = "soft"
    holdout: Annotated[float, SHARE_HELD_OUT, "0: the quality is not measured; nothing is held out for it."] = 0.1

    @property
    def is_hard(self) -> bool:
        """Return whether distances are constraints."""
        return self.constraints != "soft"

    def check_together(self) -> None:
        """Raise InputError for a setting of the soft form that is given with hard constraints."""
        if self.is_hard:
            refuse_soft(self, n_basis=None, nu="scale", colored=False, solver="low-rank")
